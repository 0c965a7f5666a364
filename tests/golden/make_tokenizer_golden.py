#!/usr/bin/env python3
"""Writes the golden files of test_tokenizer.c and test_chat.c:

    tokenizer_pipelines.json  made-up tokenizers (../tokenizer_pipelines.py), texts, ids by `tokenizers`
    tokenizer_bert.json       made-up WordPiece and RoBERTa tokenizers, texts: ids, origins in bytes, words, pairs
    tokenizer_offsets.json    the same of BPE pipelines that rewrite their text
    tokenizer_unigram.json    the same of Unigram pipelines
    tokenizer_decoding.json   decoders, lists of ids drawn from a small vocabulary, their texts
    tokenizer_splitters.json  one byte-level vocabulary, cut by the splitter of each tokenizer.ggml.pre, ids by `tokenizers`
    tokenizer_spm.json        a small SentencePiece BPE vocabulary with scores, ids by `sentencepiece`
    tokenizer_shared.json     nasty texts (../tokenizer_parity.py), ids of the tokenizers in the shared data
    chat_shared.json          conversations (../chat_parity.py), ids by transformers' apply_chat_template

    make_tokenizer_golden.py SHARED"""
import io
import json
import os
import random
import sys
import tempfile

import sentencepiece
import tokenizers
import transformers
from tokenizers import Tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import chat_parity  # noqa: E402
import tokenizer_parity  # noqa: E402
import tokenizer_pipelines  # noqa: E402

PICKED = ["byte", "byte prefix", "digits", "whitespace", "whitespace split prefix", "nested", "empty matches", "split MergedWithPrevious False",
          "split MergedWithNext False", "split string Removed False", "punctuation Isolated", "NFC", "NFKD",
          "nfd strip", "llama legacy", "llama normalized", "metaspace first True",
          "metaspace after removal", "unk fuse True", "few bytes fuse False", "affixes @@ </w>", "roberta",
          "two posts"]


def spaced(ids):
    return " ".join(map(str, ids))


def save(name, value, rows):
    """One line per row of value[rows], the rest on the first."""
    head = {"versions": f"tokenizers {tokenizers.__version__}, transformers {transformers.__version__}, "
                        f"sentencepiece {sentencepiece.__version__}", **{k: v for k, v in value.items() if k != rows}}
    text = json.dumps(head, ensure_ascii=True)[:-1] + f', "{rows}": [\n'
    text += ",\n".join(json.dumps(row, ensure_ascii=True) for row in value[rows]) + "\n]}\n"
    with open(os.path.join(HERE, name), "w", encoding="utf-8") as file:
        file.write(text)
    print(name, len(text), "bytes,", len(value[rows]), rows)
    assert len(text) < 100_000


def pipelines():
    models, cases = [], []
    texts = tokenizer_pipelines.TEXTS
    found = dict(tokenizer_pipelines.all_of_them())
    for name in PICKED:
        made = found[name]
        reference = Tokenizer.from_str(json.dumps(made))
        ids = tokenizer_parity.encode_all(reference, texts, True)
        plain = tokenizer_parity.encode_all(reference, texts, False)
        model = made.pop("model")
        if model not in models:
            models.append(model)
        row = {"name": name, "model_at": models.index(model), **made,
               "ids": ["panic" if i is None else spaced(i) for i in ids]}
        if plain != ids:
            row["plain"] = ["panic" if i is None else spaced(i) for i in plain]
        cases.append(row)
    save("tokenizer_pipelines.json", {"texts": texts, "models": models, "cases": cases}, "cases")


BERT = ["bert True True None True", "bert False False False False", "bert True True False True", "bert True False True False",
        "bert processing", "bert odd template", "bert short words", "bert other prefix"]
ORIGINS = ["NFC", "NFKD", "nfd strip", "llama legacy", "metaspace first True", "unk fuse True",
           "few bytes fuse False", "roberta True True", "roberta False True"]
UNIGRAM = ["unigram xlm-r", "unigram deberta", "unigram bytes"]
LIMITS = ["", " ", "the cat", "Hello, WORLD! don't", "naïve café ÉTÉ e\u0301te\u0301 \u0130stanbul", "東京都 привет 𠀀a", "한국어 각",
          "x\u0000y\u0007z\u200b\ufeff\u00adthe\ufffd", "the\tcat\r\n\u00a0mat\u3000", "🙂the 👩‍👩‍👧 1️⃣", "aaaa", "aaaaa",
          "éééé ééééé the", "[CLS] the [SEP] [MASK]a[UNK]", " <T> the  <L> x<S>", "foo_bar (c) [d] — «x»", "ﬁn ① x\u0301\u0327y",
          "\u1734a\u0903b\u20dd", "there  the"]


def in_bytes(text, offsets):
    at = [0]
    for char in text:
        at.append(at[-1] + len(char.encode()))
    return [at[i] for span in offsets for i in span]


def details(out, names):
    """Of every text: ids | origins, its words given one by one: ids | counts, and the pair with the next text:
    ids | types."""
    models, cases = [], []
    found = dict(tokenizer_pipelines.all_of_them())
    for name in names:
        made = found[name]
        reference = Tokenizer.from_str(json.dumps(made))
        model = made.pop("model")
        if model not in models:
            models.append(model)
        row = {"name": name, "model_at": models.index(model), **made, "origins": [], "words": [], "pairs": [], "decoded": []}
        for text, other in zip(LIMITS, LIMITS[1:] + LIMITS[:1]):
            plain = reference.encode(text, add_special_tokens=False)
            words = reference.encode(text.split(), is_pretokenized=True, add_special_tokens=False)
            pair = reference.encode(text, other)
            row["origins"].append(spaced(plain.ids) + " | " + spaced(in_bytes(text, plain.offsets)))
            row["words"].append(spaced(words.ids) + " | " + spaced(words.word_ids.count(i) for i in range(len(text.split()))))
            row["pairs"].append(spaced(pair.ids) + " | " + spaced(pair.type_ids))
            row["decoded"].append(reference.decode(plain.ids, skip_special_tokens=False))
        cases.append(row)
    save(out, {"texts": LIMITS, "words": [text.split() for text in LIMITS], "models": models, "cases": cases}, "cases")


DECODED = ["\u2581", "\u2581a", "a", "b", "##b", " .", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>", "<0xE4>", "<0xBD>", "<0xA0>", "<0x0A>", "<0x20>",
           "<0x41>", "\u00c3", "\u00a9", "\u0120", "\u00e4\u00bd", "\u4f60", " ", "\u0100"]


def decoders():
    def replace(pattern, content, kind="String"):
        return {"type": "Replace", "pattern": {kind: pattern}, "content": content}

    def strip(start, stop):
        return {"type": "Strip", "content": " ", "start": start, "stop": stop}

    space, fallback, fuse, to_bytes = replace("\u2581", " "), {"type": "ByteFallback"}, {"type": "Fuse"}, tokenizer_pipelines.BYTE
    words = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    metaspace = tokenizer_pipelines.metaspace("always")
    yield "llama", [space, fallback, fuse, strip(1, 0)]
    yield "gemma", [space, fallback, fuse]
    yield "strip both ends", [space, fallback, fuse, strip(1, 2)]
    yield "strip tokens", [space, fallback, strip(1, 1)]
    yield "fallback alone", [fallback]
    yield "fallback twice", [fallback, fallback, fuse]
    yield "replace one late", [fallback, fuse, space]
    yield "replace many late", [fallback, fuse, replace("ab", "--"), strip(1, 1)]
    yield "replace by pattern", [fuse, replace("[ab]+", "x", "Regex")]
    yield "bytes", [to_bytes]
    yield "bytes, replaced", [to_bytes, replace("a", "\u00e9")]
    yield "fused bytes", [fuse, to_bytes]
    yield "fused fallback", [fuse, fallback]
    yield "metaspace", [fallback, metaspace]
    yield "metaspace late", [fallback, fuse, metaspace]
    yield "words", [words]
    yield "words late", [fallback, fuse, words]


def decoding(out):
    draw, cases = random.Random(1), []
    model = {"type": "BPE", "vocab": {text: i for i, text in enumerate(DECODED)}, "merges": []}
    kinds = [range(len(DECODED)), range(6, 16), (6, 7, 8, 9), (10, 11, 12, 2), (14, 0, 1, 21)]
    for name, steps in [*decoders(), ("none", None)]:
        chain = steps and {"type": "Sequence", "decoders": steps}
        made = tokenizer_pipelines.tokenizer(model, decoder=chain, added=[("<T>", {"special": True})])
        reference = Tokenizer.from_str(json.dumps(made))
        lists = [[6, 7, 8, 9, 10, 11, 12], [6, 7, 8, 9, 10, 11], [6, 7, 8, 9, 11, 2], [2, 6, 7, 8, 9, 13, 6, 2]]
        while len(lists) < 60:
            kind = draw.choice(kinds)
            lists.append([draw.choice([*kind, len(DECODED)]) if draw.random() < 0.8 else kind[i % len(kind)] for i in range(draw.randint(1, 14))])
        rows = []
        for ids in lists:
            try:
                rows.append((spaced(ids), reference.decode(ids, skip_special_tokens=True)))
            except BaseException:  # Strip panics on texts shorter than what it may strip
                continue
        del made["model"]
        cases.append({"name": name, "model_at": 0, **made, "ids": [ids for ids, _ in rows], "decoded": [text for _, text in rows]})
    save(out, {"models": [model], "cases": cases}, "cases")


ENDING = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
CL100K = ENDING + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + ENDING + "?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + ENDING + "?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
TEKKEN = O200K.replace(ENDING + "?", "").replace("{1,3}", "")
QWEN35 = ENDING + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
DEFAULT = [r"[\p{P}\$\+<=>\^~\|]+", r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)", r"\p{N}+",
           r"[0-9][0-9][0-9]"]  # of llama.cpp, one after the other
# of each pre: the regex or several, None: the byte-level step's own; NFC; ignore_merges and BOS
SPLITTERS = {"gpt-2": (None, False, False), "olmo": (None, True, False), "llama-bpe": (CL100K, False, True), "dbrx": (CL100K, False, False),
             "smaug-bpe": (CL100K, False, False), "qwen2": (CL100K.replace("{1,3}", ""), True, False),
             "deepseek-r1-qwen": (CL100K.replace("{1,3}", ""), True, False), "gpt-4o": (O200K, False, False), "tekken": (TEKKEN, False, True),
             "default": (DEFAULT, False, False), "qwen35": (QWEN35, True, False), "lfm2": (CL100K, False, True)}


def splitters():
    """Merges are learned across what splitters cut, so that every cut shows; "aWordOfItsOwn" has a token and no merges."""
    cased = ["camelCase HTMLParser iPhone's I'LL can'T", "a/b// \\n/", "1234567 x12", "Ab'sAB'SaB", "aWordOfItsOwn", "e\u0301te\u0301"]
    texts = [t for t in tokenizer_pipelines.TEXTS + tokenizer_parity.NASTY if len(t) < 100] + cased
    learner = Tokenizer(tokenizers.models.BPE())
    learner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    learner.train_from_iterator(texts * 3, tokenizers.trainers.BpeTrainer(
        vocab_size=700, initial_alphabet=alphabet, show_progress=False, max_token_length=8))
    made = json.loads(learner.to_str())["model"]
    tokens = sorted(made["vocab"], key=made["vocab"].get) + ["aWordOfItsOwn", "<S>"]
    bos = len(tokens) - 1
    vocab = {"model": "gpt2", "tokens": tokens, "merges": [" ".join(m) for m in made["merges"]], "bos": bos,
             "types": [1] * bos + [3]}
    rows = []
    for pre, (regex, nfc, whole) in SPLITTERS.items():
        reference = Tokenizer(tokenizers.models.BPE({t: i for i, t in enumerate(tokens)}, [tuple(m) for m in made["merges"]],
                                                    ignore_merges=whole))
        regexes = regex if isinstance(regex, list) else [regex] if regex else []
        steps = [tokenizers.pre_tokenizers.Split(tokenizers.Regex(r), "isolated") for r in regexes]
        reference.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
            steps + [tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not regex)])
        if nfc:
            reference.normalizer = tokenizers.normalizers.NFC()
        reference.add_special_tokens(["<S>"])
        rows.append({"pre": pre, "ids": [spaced([bos] * whole + reference.encode(t).ids) for t in texts]})
    save("tokenizer_splitters.json", {"vocab": vocab, "texts": texts, "cases": rows}, "cases")


def spm():
    buffer = io.BytesIO()
    lines = [" ".join(tokenizer_pipelines.CORPUS)] * 4 + [t for t in tokenizer_pipelines.TEXTS if t.strip()]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=buffer, vocab_size=420, model_type="bpe", byte_fallback=True,
        character_coverage=0.98, normalization_rule_name="identity", remove_extra_whitespaces=False, num_threads=1,
        minloglevel=2, max_sentence_length=10000)
    sp = sentencepiece.SentencePieceProcessor(model_proto=buffer.getvalue())
    types = [2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 6 if sp.is_byte(i) else 1 for i in range(len(sp))]
    texts = [t for t in tokenizer_pipelines.TEXTS + tokenizer_parity.NASTY if len(t) < 200 and "\0" not in t
             and not any(s in t for s in ("<s>", "</s>", "<unk>"))]
    vocab = {"model": "llama", "tokens": [sp.id_to_piece(i) for i in range(len(sp))], "types": types,
             "scores": [sp.get_score(i) for i in range(len(sp))], "bos": 1, "eos": 2, "unk": 0}
    save("tokenizer_spm.json", {"vocab": vocab, "cases": [{"text": t, "ids": spaced(sp.encode(t)), "decoded": sp.decode(sp.encode(t))}
                                                          for t in texts]}, "cases")


def shared(base):
    rows = []
    texts = [t for t in tokenizer_parity.NASTY if len(t) < 100]
    for name in ("gpt2", "roberta-base", "llama3", "qwen3"):
        reference = Tokenizer.from_file(os.path.join(base, name, "tokenizer.json"))
        rows.append({"tokenizer": name, "ids": [spaced(e.ids) for e in reference.encode_batch(texts)]})
    save("tokenizer_shared.json", {"texts": texts, "cases": rows}, "cases")


def chat(base):
    rows = []
    for name in ("llama3", "qwen3"):
        source = os.path.join(base, name)
        with tempfile.TemporaryDirectory() as folder:
            path = chat_parity.with_template(folder, source, chat_parity.own_template(source))
            theirs = transformers.PreTrainedTokenizerFast.from_pretrained(path)
            for item in chat_parity.variants():
                if any(m["role"] == "tool" or (m["role"] == "assistant" and m["content"][:1].isspace()) for m in item["messages"]):
                    continue
                rows.append({"tokenizer": name, **item,
                             "ids": spaced(chat_parity.rendered(theirs, item, tokenize=True, return_dict=False))})
    save("chat_shared.json", {"cases": rows}, "cases")


if __name__ == "__main__":
    data = os.path.join(sys.argv[1], "data", "tokenizers")
    pipelines()
    details("tokenizer_bert.json", BERT)
    details("tokenizer_offsets.json", ORIGINS)
    details("tokenizer_unigram.json", UNIGRAM)
    decoding("tokenizer_decoding.json")
    splitters()
    spm()
    shared(data)
    chat(data)
