"""Small made-up tokenizers that together use every step and flag kvfold knows, and texts for them.

The vocabulary is trained-like: bytes or characters, and merges learned from a few sentences, so that pre-token
borders show in the ids."""
import itertools

CORPUS = ("the cat sat on the mat and the hat . don't we'll they're it's HELLO hello world 123 1234 2024 x1y2 "
          "the the there then naïve café über straße été 東京 東京都 привет мир hello , world ! a--b (c) [d] {e} ▁the ▁cat "
          "foo_bar foo-bar 12ab34 aaa aaaa aaaaaa   spaces    many \t tab \n line ").split(" ")

TEXTS = [
    "the cat sat on the mat", "the  cat   sat", " the cat ", "don't we'll they're it's", "hello, world!", "Hello WORLD straße",
    "123 1234 x1y2 12ab34 2024", "a--b (c) [d]{e}", "naïve café über été e\u0301te\u0301", "東京都 привет мир", "foo_bar foo-bar",
    "aaaaaaaaaaaaaaa", "aXaXa the", "the<T>the", "the <T> the", "the  <T>  the", "<T><T>", " <T>", "<T> ", "the<S>cat", "xthe the thex",
    "<L>the <L> x", "x <R>  the", "x<R>\n\tthe", "<W> a<W> <W>b <W>", "aab<N>c <n>", "the▁cat ▁the", "▁", "", " ", "\n", "zzz qqq", "the\u00a0cat",
    "a\u200db \u0660\u0661 ½ Ⅷ", "!?the!?cat!?", "--", "--a--b--", "the,cat,,sat", "\u0130stanbul ẞ Σ", "ﬁn ① ｆｕｌｌ", "x\u0301\u0327y", "🙂the🙂",
    "<T>the<T> cat<S>", "the <T>", "cat<R> <R> x", "<X><XY><XYZ><X", "<XYZ>a", "a<ab>",
]


def byte_chars():
    keep = list(range(0x21, 0x7F)) + list(range(0xA1, 0xAD)) + list(range(0xAE, 0x100))
    rest = [b for b in range(256) if b not in keep]
    return {**{b: chr(b) for b in keep}, **{b: chr(0x100 + i) for i, b in enumerate(rest)}}


def learn(words, merges_wanted):
    """Plain BPE learning over lists of symbols: most frequent pair first, ties by text."""
    words = [list(w) for w in words if w]
    merges = []
    for _ in range(merges_wanted):
        counts = {}
        for word in words:
            for pair in itertools.pairwise(word):
                counts[pair] = counts.get(pair, 0) + 1
        if not counts:
            break
        best = min(counts, key=lambda p: (-counts[p], p))
        merges.append(best)
        for word in words:
            i = 0
            while i + 1 < len(word):
                if (word[i], word[i + 1]) == best:
                    word[i:i + 2] = ["".join(best)]
                i += 1
    return merges


def byte_model(**flags):
    table = byte_chars()
    words = ["".join(table[b] for b in (" " + w).encode()) for w in CORPUS] + ["".join(table[b] for b in w.encode()) for w in CORPUS]
    merges = learn(words, 90)
    vocab = {c: i for i, c in enumerate(sorted(table.values()))}
    for pair in merges:
        vocab.setdefault("".join(pair), len(vocab))
    return bpe(vocab, merges, **flags)


def char_model(words, extra=(), skip="", **flags):
    merges = learn(words, 60)
    vocab = {t: i for i, t in enumerate(extra)}
    for c in sorted(set("".join(words)) - set(skip)):
        vocab.setdefault(c, len(vocab))
    merges = [m for m in merges if not set("".join(m)) & set(skip)]
    for pair in merges:
        vocab.setdefault("".join(pair), len(vocab))
    return bpe(vocab, merges, **flags)


def bpe(vocab, merges, **flags):
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocab,
             "merges": [list(m) for m in merges]}
    model.update(flags)
    return model


def affixed_model(prefix, suffix):
    """Continuing characters carry a prefix, last ones a suffix."""
    words = [w for w in CORPUS if w]

    def spell(word):
        out = [word[0]] + [prefix + c for c in word[1:]]
        out[-1] += suffix
        return out
    vocab = {"<unk>": 0}
    for word in words:
        for symbol in spell(word):
            vocab.setdefault(symbol, len(vocab))
    merges = []
    for word in ("the", "there", "cat", "hello", "world", "aaaa"):
        symbols = spell(word)
        while len(symbols) > 1:
            pair, symbols = symbols[:2], [symbols[0] + symbols[1][len(prefix):]] + symbols[2:]
            if pair not in merges:
                merges.append(pair)
                vocab.setdefault(symbols[0], len(vocab))
    return bpe(vocab, merges, unk_token="<unk>", continuing_subword_prefix=prefix or None, end_of_word_suffix=suffix or None)


def wordpiece(extra=(), prefix="##", most=100, unk="[UNK]"):
    """Whole words, their second halves as continuations, and single characters both ways."""
    vocab = {t: i for i, t in enumerate(("[PAD]", unk, "[CLS]", "[SEP]", "[MASK]", *extra))}
    words = sorted({w.strip() for w in CORPUS if w.strip()})
    for word in words[::2] + [prefix + w[len(w) // 2:] for w in words] + sorted(set("".join(words))) + [prefix + c for c in sorted(set("".join(words)))]:
        vocab.setdefault(word, len(vocab))
    return {"type": "WordPiece", "unk_token": unk, "continuing_subword_prefix": prefix, "max_input_chars_per_word": most, "vocab": vocab}


# A table of SentencePiece (--normalization_rule_tsv): the ligature fi, circled 1, full-width f, one half, no-break space, tab and
# line end become what they look like; a bell and a lone U+0301 go, e with U+0301 becomes one character.
CHARSMAP = (
    "AAQAAAAYAAAHDQAAAAAAgAEAAIDMAAIAgQkAAKAVAAAOAACABQAAgIEtAACRhAIAoBkAAAo9AAADAACArHwCAAkxAACBBQAACwAAgIYFAAAJAACAFQAAABQA"
    "AAAXAAAAFgAAABkAAAAYAAAAGwAAAL1NAAAdAAAAHAAAAB8AAAC9LAIAIQAAACAAAAAjAAAAIgAAACUAAAAkAAAAJwAAACYAAAApAAAAKAAAACsAAAAqAAAA"
    "LQAAACwAAAAvAAAALgAAADEAAAAwAAAAMwAAADIAAAA1AAAANAAAADcAAAA2AAAAOQAAADgAAAA7AAAAOgAAAD0AAAA8AAAAPwAAAD4AAABBAAAAQAAAAEMA"
    "AABCAAAARQAAAEQAAABHAAAARgAAAEkAAABIAAAASwAAAEoAAABNAAAATAAAAE8AAABOAAAAUQAAAFAAAABTAAAAUgAAAFUAAABUAAAAVwAAAFYAAABZAAAA"
    "WAAAAFsAAABaAAAAXQAAAFwAAABfAAAAXgAAAGEAAABgAAAAYwAAAGWsAgBlAAAAZAAAAGcAAABmAAAAaQAAAGgAAABrAAAAagAAAG0AAABsAAAAbwAAAG4A"
    "AABxAAAAcAAAAHMAAAByAAAAdQAAAHQAAAB3AAAAdgAAAHkAAAB4AAAAewAAAHoAAAB9AAAAfAAAAH8AAAB+AAAAgQAAAIAAAACDAAAAggAAAIUAAACEAAAA"
    "hwAAAIYAAACJAAAAiAAAAIsAAACKAAAAjQAAAIwAAACPAAAAjgAAAJEAAACQAAAAkwAAAJIAAACVAAAAlAAAAJcAAACWAAAAmQAAAJgAAACbAAAAmgAAAJ0A"
    "AACcAAAAnwAAAJ4AAAChAAAAoAAAAKMAAACiAAAApQAAAKQAAACnAAAApgAAAKkAAACoAAAAqwAAAKoAAACtAAAArAAAAK8AAACuAAAAsQAAALAAAACzAAAA"
    "sgAAALUAAAC0AAAAtwAAALYAAAC5AAAAuAAAALsAAAC6AAAAvQAAALwAAAC/AAAAvgAAAMEAAADAAAAAwwAAAMIAAADCiAEAxAAAAMcAAADGAAAAyQAAAMgA"
    "AADMCAEAygAAAM0AAADMAAAAzwAAAM4AAADRAAAA0AAAANMAAADSAAAA1QAAANQAAADXAAAA1gAAANkAAADYAAAA2wAAANoAAADdAAAA3AAAAN8AAADeAAAA"
    "4QAAAOAAAADjAAAA4gAAAOL8AQDkAAAA5wAAAOYAAADpAAAA7ywBAOsAAADqAAAA7QAAAOwAAADvAAAA7gAAAPEAAADwAAAA8wAAAPIAAAD1AAAA9AAAAPcA"
    "AAD2AAAA+QAAAPgAAAD7AAAA+gAAAP0AAAD8AAAA/wAAAP4AAAAAIAAxADEvMgBmAGZpAMOpAA==")


def unigram(flags=(), skip=""):
    """Words, their halves and characters, scored by length and place; <unk>, and tokens of bytes where flags ask for them."""
    vocab = [["<unk>", 0.0]] + [[f"<0x{i:02X}>", -30.0] for i in range(256) if "byte_fallback" in dict(flags)]
    words = sorted({"▁" + w.strip() for w in CORPUS if w.strip()})
    halves = {w[:len(w) // 2] for w in words} | {w[len(w) // 2:] for w in words}
    pieces = sorted((set(words[::2]) | halves | set("".join(words)) | {"fi", "é"}) - {""} - set(skip))
    vocab += [[p, -4.0 - 3.5 / len(p) - i % 7 / 8] for i, p in enumerate(pieces)]
    return {"type": "Unigram", "unk_id": 0, "byte_fallback": False, "vocab": vocab, **dict(flags)}


def unigram_pipelines():
    table = {"type": "Precompiled", "precompiled_charsmap": CHARSMAP}
    words = pres({"type": "WhitespaceSplit"}, metaspace("always"))
    yield "unigram xlm-r", tokenizer(unigram(), table, words, None, metaspace("always"), ADDED)
    deberta = sequence("normalizers", {"type": "Replace", "pattern": {"Regex": r"\s{2,}|[\n\r\t]"}, "content": " "}, {"type": "NFC"},
                       {"type": "Strip", "strip_left": False, "strip_right": True})
    yield "unigram deberta", tokenizer(unigram(skip="xyz"), deberta, metaspace("always"), None, metaspace("always"), ADDED)
    both = sequence("normalizers", {"type": "Strip", "strip_left": True, "strip_right": True}, table)
    yield "unigram bytes", tokenizer(unigram([("byte_fallback", True)], skip="xyzé"), both, metaspace("first", False), None,
                                     sequence("decoders", {"type": "ByteFallback"}, metaspace("first", False)), ADDED)


def bert_normalizer(clean, chinese, strip, lower):
    return {"type": "BertNormalizer", "clean_text": clean, "handle_chinese_chars": chinese, "strip_accents": strip, "lowercase": lower}


def template(cls, sep, vocab, pair=True):
    """[CLS] A [SEP] and [CLS] A [SEP] B [SEP], with types that are no one's defaults where there is no pair."""
    special = lambda text, kind: {"SpecialToken": {"id": text, "type_id": kind}}
    text = lambda name, kind: {"Sequence": {"id": name, "type_id": kind}}
    return {"type": "TemplateProcessing",
            "single": [special(cls, 0), text("A", 0), special(sep, 0)] if pair else [special(cls, 3), text("A", 2), special(sep, 1)],
            "pair": [special(cls, 0), text("A", 0), special(sep, 0), text("B", 1), special(sep, 1)] if pair
            else [text("B", 4), special(cls, 3), special(sep, 0), text("A", 2)],
            "special_tokens": {t: {"id": t, "ids": [vocab[t]], "tokens": [t]} for t in (cls, sep)}}


BERT_ADDED = [(t, {"special": True}) for t in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")]


def bert_pipelines():
    bert, words = {"type": "BertPreTokenizer"}, {"type": "WordPiece", "prefix": "##", "cleanup": True}
    model = wordpiece()
    for clean, chinese, strip, lower in itertools.product((True, False), (True, False), (None, True, False), (True, False)):
        yield f"bert {clean} {chinese} {strip} {lower}", tokenizer(
            model, normalizer=bert_normalizer(clean, chinese, strip, lower), pre=bert, post=template("[CLS]", "[SEP]", model["vocab"]),
            decoder=words, added=BERT_ADDED)
    uncased = bert_normalizer(True, True, None, True)
    processing = {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
    yield "bert processing", tokenizer(model, uncased, bert, processing, {**words, "cleanup": False}, ADDED)
    yield "bert odd template", tokenizer(model, uncased, bert, template("[CLS]", "[SEP]", model["vocab"], pair=False), words, ADDED)
    yield "bert short words", tokenizer(wordpiece(most=4), uncased, bert, processing, words)
    yield "bert no prefix", tokenizer(wordpiece(prefix=""), uncased, bert, processing, {**words, "prefix": ""})
    yield "bert other prefix", tokenizer(wordpiece(prefix="é@"), uncased, bert, processing, {**words, "prefix": "é@"})
    yield "bert whole text", tokenizer(wordpiece(most=1000), uncased, None, None, None)
    for space in (False, True):
        for trim in (False, True):
            roberta = {"type": "RobertaProcessing", "sep": ["<S>", 2], "cls": ["<T>", 0], "trim_offsets": trim, "add_prefix_space": space}
            yield f"roberta {space} {trim}", tokenizer(byte_model(), pre={**BYTE, "add_prefix_space": space}, post=roberta, decoder=BYTE, added=ADDED)


def tokenizer(model, normalizer=None, pre=None, post=None, decoder=None, added=()):
    tokens = []
    for i, (text, flags) in enumerate(added):
        known = model["vocab"] if isinstance(model["vocab"], dict) else {t: i for i, (t, _) in enumerate(model["vocab"])}
        token = {"id": known.get(text, len(model["vocab"]) + i), "content": text, "single_word": False, "lstrip": False,
                 "rstrip": False, "normalized": False, "special": False}
        token.update(flags)
        tokens.append(token)
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens, "normalizer": normalizer,
            "pre_tokenizer": pre, "post_processor": post, "decoder": decoder, "model": model}


BYTE = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
RAW_BYTE = {**BYTE, "use_regex": False}
ADDED = [("<T>", {"special": True}), ("<S>", {"normalized": True}), ("<L>", {"lstrip": True}), ("<R>", {"rstrip": True}),
         ("<W>", {"single_word": True}), ("<N>", {"normalized": True, "lstrip": True, "rstrip": True}), ("<X>", {}), ("<XY>", {}),
         ("<XYZ>", {}), ("ab", {"single_word": True, "normalized": True})]


def sequence(key, *items):
    return {"type": "Sequence", key: list(items)}


def pres(*items):
    return sequence("pretokenizers", *items)


def split(pattern, behavior, invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def metaspace(scheme, cut=True):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": cut}


def all_of_them():
    model = byte_model()
    for name, pre in {
        "byte": BYTE, "byte prefix": {**BYTE, "add_prefix_space": True}, "byte raw": RAW_BYTE,
        "digits": pres({"type": "Digits", "individual_digits": True}, BYTE), "digit runs": pres({"type": "Digits", "individual_digits": False}, BYTE),
        "whitespace": pres({"type": "Whitespace"}, RAW_BYTE), "whitespace split": pres({"type": "WhitespaceSplit"}, RAW_BYTE),
        "whitespace split prefix": pres({"type": "WhitespaceSplit"}, {**RAW_BYTE, "add_prefix_space": True}),
        "nested": pres(pres({"type": "WhitespaceSplit"}), pres({"type": "Punctuation", "behavior": "Isolated"}, RAW_BYTE)),
        "words of onig": pres(split(r"\w+", "Isolated"), RAW_BYTE), "not words": pres(split(r"\W", "Removed"), RAW_BYTE),
        "empty matches": pres(split(r"(?=t)|x*", "Isolated"), RAW_BYTE), "lines": pres(split(r"^.|.$", "Isolated"), RAW_BYTE),
        "possessive": pres(split(r"[^\s\d]++|\d{,2}", "Isolated"), RAW_BYTE), "classes": pres(split(r"[\s\p{P}]|\p{Lu}|[^\x{61}-\x7a\u0041]", "Isolated"), RAW_BYTE),
        "empty string": pres(split("", "Isolated", kind="String"), RAW_BYTE),
    }.items():
        yield name, tokenizer(model, pre=pre, decoder=BYTE, added=ADDED)
    for behavior in ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        yield f"punctuation {behavior}", tokenizer(model, pre=pres({"type": "Punctuation", "behavior": behavior}, RAW_BYTE), decoder=BYTE)
        for invert in (False, True):
            yield f"split {behavior} {invert}", tokenizer(model, pre=pres(split(r"[\s,-]", behavior, invert), RAW_BYTE), decoder=BYTE, added=ADDED)
            yield f"split string {behavior} {invert}", tokenizer(model, pre=pres(split("--", behavior, invert, "String"), RAW_BYTE), decoder=BYTE)
    for form in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents"):
        yield form, tokenizer(model, normalizer={"type": form}, pre=BYTE, decoder=BYTE, added=ADDED)
    yield "nfd strip", tokenizer(model, normalizer=sequence("normalizers", {"type": "NFD"}, {"type": "StripAccents"}, {"type": "Lowercase"}), pre=BYTE,
                                 decoder=BYTE, added=ADDED)
    for pattern in ({"String": "the"}, {"Regex": r"\s+"}, {"Regex": "[aeiou]+"}):
        yield f"replace {pattern}", tokenizer(model, normalizer={"type": "Replace", "pattern": pattern, "content": "--"}, pre=BYTE, decoder=BYTE)
    yield "ignore merges", tokenizer(byte_model(ignore_merges=True), pre=pres({"type": "WhitespaceSplit"}, RAW_BYTE), decoder=BYTE)

    pieces = ["▁" + w.replace(" ", "▁") for w in CORPUS if w and w.isascii()]
    hexes = tuple(f"<0x{i:02X}>" for i in range(256))
    llama_decoder = sequence("decoders", {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
                             {"type": "Strip", "content": " ", "start": 1, "stop": 0})
    legacy = sequence("normalizers", {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"})
    bos = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<T>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
           "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}]}
    fallback = char_model(pieces, ("<unk>", *hexes), unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    bos["special_tokens"] = {"<T>": {"id": "<T>", "ids": [len(fallback["vocab"])], "tokens": ["<T>"]}}
    yield "llama legacy", tokenizer(fallback, normalizer=legacy, post=bos, decoder=llama_decoder, added=ADDED)
    yield "llama normalized", tokenizer(fallback, normalizer=legacy, post=bos, decoder=llama_decoder,
                                        added=[(t, {**f, "normalized": True}) for t, f in ADDED])
    for scheme in ("always", "first", "never"):
        for cut in (True, False):
            space = metaspace(scheme, cut)
            yield f"metaspace {scheme} {cut}", tokenizer(fallback, pre=space, decoder=space, added=ADDED)
    yield "metaspace after split", tokenizer(fallback, pre=pres(split(" ", "Isolated", kind="String"), metaspace("first")), decoder=metaspace("first"))
    yield "metaspace after removal", tokenizer(fallback, pre=pres({"type": "WhitespaceSplit"}, metaspace("first")), decoder=metaspace("first"))
    few = tuple(h for h in hexes if h < "<0xB0>")
    for fuse in (False, True):
        for name, model in {
            "unk": char_model(pieces, ("<unk>",), skip="xyz", unk_token="<unk>", fuse_unk=fuse),
            "dropped": char_model(pieces, skip="xyz", fuse_unk=fuse),
            "few bytes": char_model(pieces, ("<unk>", *few), skip="xyzé", unk_token="<unk>", fuse_unk=fuse, byte_fallback=True),
        }.items():
            yield f"{name} fuse {fuse}", tokenizer(model, pre=metaspace("always"), decoder=llama_decoder)
    for prefix, suffix in (("##", ""), ("", "</w>"), ("@@", "</w>")):
        yield f"affixes {prefix} {suffix}", tokenizer(affixed_model(prefix, suffix), pre={"type": "Whitespace"})
    roberta = {"type": "RobertaProcessing", "sep": ["<S>", 2], "cls": ["<T>", 0], "trim_offsets": True, "add_prefix_space": False}
    yield "roberta", tokenizer(byte_model(), pre=BYTE, post=roberta, decoder=BYTE)
    yield "two posts", tokenizer(fallback, normalizer=legacy, post=sequence("processors", BYTE, bos), decoder=llama_decoder, added=ADDED)
    yield from bert_pipelines()
    yield from unigram_pipelines()
