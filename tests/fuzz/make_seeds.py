"""Writes the seeds of the text formats into corpus/: small files of every kind that the readers accept.

Seeds of binary formats lie in corpus/ and tests/golden as other programs made them. Usage: python make_seeds.py"""
import gzip, json, os, struct

HERE = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.join(HERE, "..", "golden")


def put(target, name, data):
    folder = os.path.join(HERE, "corpus", target)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as file:
        file.write(data if isinstance(data, bytes) else data.encode())


def lines(rows):
    return "\n".join(json.dumps(row) for row in rows) + "\n"


# The first byte of a data file chooses task (0 lm, 1 seq-cls, 2 token-cls, 3 qa, 4 choice, 6 regression) and reading.
CHAT, HEADERLESS, UNLABELED = b"\x40", b"\x20", b"\x80"
QA = {"context": "the cat. a b, 11", "question": "a cat", "answers": [{"text": "cat", "start": 4}], "id": "q1"}
SQUAD = {"version": "2.0", "data": [{"title": "t", "paragraphs": [{"context": "the cat. a b, 11", "qas": [
    {"id": "1", "question": "a", "answers": [{"text": "cat", "answer_start": 4}], "is_impossible": False},
    {"id": "2", "question": "b", "answers": [], "is_impossible": True}]}]}]}
MESSAGES = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
ALPACA = {"instruction": "a", "input": "the cat", "output": "b"}
SHARED = {"conversations": [{"from": "system", "value": "a"}, {"from": "human", "value": "b"}, {"from": "gpt", "value": "c"}]}
ROWS = {
    "jsonl": {
        "prompt": (b"\x00", lines([{"prompt": "a", "completion": "b"}, {"prompt": "the", "completion": "cat",
                                                                       "references": ["a", "b"]}])),
        "text": (b"\x00", lines([{"text": "the cat"}])),
        "messages": (CHAT, lines([MESSAGES])),
        "ids": (b"\x00", lines([{"input_ids": [1, 2, 3], "labels": [-100, 2, 3], "attention_mask": [1, 1, 0]}])),
        "classes": (b"\x01", lines([{"text": "a", "label": "x"}, {"text": "b", "text_pair": "c", "label": 1}])),
        "numbers": (b"\x06", lines([{"text": "a", "label": 1.5}, {"text": "b", "label": -2}])),
        "tags": (b"\x02", lines([{"tokens": ["the", "cat"], "tags": ["O", "B-X"]}])),
        "qa": (b"\x03", lines([QA, dict(QA, answers=[])])),
        "choice": (b"\x04", lines([{"text": "a", "choices": ["b", "c"], "label": 1}])),
        "unlabeled": (b"\x81", lines([{"text": "a"}])),
        "alpaca": (b"\x00", lines([ALPACA, dict(ALPACA, input="")])),
        "sharegpt": (CHAT, lines([SHARED])),
    },
    "array": {
        "prompt": (b"\x00", json.dumps([{"prompt": "a", "completion": "b"}, {"text": "the, ]cat\\"}], indent=1)),
        "alpaca": (CHAT, json.dumps([ALPACA])),
        "sharegpt": (CHAT, json.dumps([SHARED, SHARED])),
        "qa": (b"\x03", json.dumps([QA, dict(QA, answers=[])])),
        "empty": (b"\x00", "[ ]"),
    },
    "text": {"lines": (b"\x00", "the cat. a b,\n11 a\n\nthe cat\n" * 3), "chat": (CHAT, "a")},
    "csv": {
        "header": (b"\x01", 'text,text_pair,label\na,"b, ""c""",x\nthe,cat,y\n'),
        "prompt": (b"\x00", "prompt,completion\na,b\n"),
        "bare": (HEADERLESS, "the cat\na\n"),
        "columns": (b"\xa1", "a,x\nb,y\n"),
    },
    "tsv": {
        "glue": (b"\x01", "sentence\tlabel\nthe cat\t1\na b\t0\n"),
        "prompt": (b"\x00", "prompt\tcompletion\r\na\tb\r\n"),
        "stsb": (b"\x06", "index\tsentence1\tsentence2\tscore\n0\ta\tb\t2.5\n"),
    },
    "conll": {
        "tags": (b"\x02", "-DOCSTART- -X- O\n\nthe B-X\ncat I-X\n. O\n\na O\n"),
        "tabs": (b"\x02", "# c\nthe\tDT\tO\ncat\tNN\tB-Y\n"),
        "unlabeled": (b"\x82", "the\ncat\n\na\n"),
    },
    "squad": {"two": (b"\x03", json.dumps(SQUAD)), "cut": (b"\x13", json.dumps(SQUAD, indent=1))},
    "superglue": {
        "boolq": (b"\x01", lines([{"question": "a", "passage": "b", "idx": 0, "label": True}])),
        "cb": (b"\x01", lines([{"premise": "a", "hypothesis": "b", "label": "neutral", "idx": 3}])),
        "copa": (b"\x04", lines([{"premise": "a", "choice1": "b", "choice2": "c", "question": "cause", "label": 0}])),
        "swag": (b"\x04", lines([{"ctx": "a", "endings": ["b", "c", "the", "cat"], "label": "2"}])),
    },
}
for target, seeds in ROWS.items():
    for name, (choice, text) in seeds.items():
        put(target, name, choice + text.encode())

packed = gzip.compress(lines([{"text": "the cat"}, {"prompt": "a", "completion": "b"}]).encode(), mtime=0)
put("gzip", "rows", b"\x00" + packed)
put("gzip", "members", b"\x00" + packed + packed + bytes(5))
put("gzip", "cut", b"\x00" + packed[:-9])
put("gzip", "stored", b"\x01" + gzip.compress(b"text\tlabel\na\tx\n", 0, mtime=0))
put("gzip", "zeros", b"\x00" + gzip.compress(bytes(100000), mtime=0))

BODIES = {
    "chat": {"model": "m", "messages": [{"role": "system", "content": "a"}, {"role": "user", "content": [
        {"type": "text", "text": "b"}]}], "stream": True, "stream_options": {"include_usage": True}, "temperature": 0.5},
    "text": {"model": "m", "prompt": "the cat", "max_tokens": 5, "stop": ["\n", "."], "seed": 7, "top_p": 0.9, "n": 1},
    "ids": {"model": "m", "prompt": [1, 2, 3], "stop": "x", "logprobs": None},
    "penalties": {"model": "m", "prompt": "x", "logit_bias": {"5": -100}, "presence_penalty": 0.5, "repetition_penalty": 1.2,
                  "min_p": 0.1},
    "tokenize": {"model": "m", "messages": [{"role": "user", "content": "x", "name": "n"}], "add_generation_prompt": False},
    "detokenize": {"tokens": [1, 2, 3]},
}
for name, body in BODIES.items():
    put("request", name, json.dumps(body))

put("json", "values", '{"a": [1, -2.5e3, true, null, "\\u00e9\\ud83d\\ude42"], "b": {"c": 123456789012345678901234567890}}')
put("json", "deep", "[" * 40 + "]" * 40)
put("json", "scalar", '"text"')

for case in json.load(open(os.path.join(GOLDEN, "configs.json")))["cases"][::4]:
    for key in ("v4", "v5"):
        if key in case:
            put("config", "%s_%s" % (case["name"].replace("/", "_"), key), json.dumps(case[key], separators=(",", ":")))
for name in ("lfm2", "qwen3_5"):
    config = json.load(open(os.path.join(GOLDEN, "model_" + name, "config.json")))
    put("config", name, json.dumps(config, separators=(",", ":")))

header = {"__metadata__": {"format": "pt"}, "b": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
          "a": {"dtype": "BF16", "shape": [0, 3], "data_offsets": [16, 16]},
          "c": {"dtype": "U8", "shape": [], "data_offsets": [16, 17]}}
text = json.dumps(header).encode()
put("safetensors", "three", struct.pack("<Q", len(text)) + text + bytes(17))
put("safetensors", "empty", struct.pack("<Q", 6) + b"{}\r \t\n")
put("gguf", "empty", b"GGUF" + struct.pack("<IQQ", 3, 0, 0))

BYTES = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
VOCAB = {chr(c): i for i, c in enumerate(range(33, 127))}
VOCAB.update({"\u0120": 94, "he": 95, "ll": 96, "hell": 97, "\u0120w": 98})
BPE = {"type": "BPE", "vocab": VOCAB, "merges": ["h e", "l l", "he ll", "\u0120 w"]}
S, SEP = {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}
ADDED = [{"id": 99, "content": "<s>", "single_word": False, "lstrip": True, "rstrip": False, "normalized": False,
          "special": True}]
TEMPLATE = {"type": "TemplateProcessing", "single": [S, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [S, {"Sequence": {"id": "A", "type_id": 0}}, SEP],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [99], "tokens": ["<s>"]}}}
CONFIG = {"add_bos_token": True, "bos_token": "<s>", "eos_token": {"content": "<s>"}, "chat_template":
          "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + "
          "'\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"}
bpe = {"version": "1.0", "added_tokens": ADDED, "normalizer": {"type": "NFC"},
       "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
           {"type": "Split", "pattern": {"Regex": "\\p{N}{1,3}|\\s+(?!\\S)"}, "behavior": "Isolated", "invert": False},
           {"type": "Digits", "individual_digits": True}, BYTES]},
       "post_processor": TEMPLATE, "decoder": BYTES, "model": BPE}
wordpiece = {"version": "1.0", "added_tokens": [], "normalizer": {
    "type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
    "pre_tokenizer": {"type": "BertPreTokenizer"}, "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
    "post_processor": {"type": "BertProcessing", "sep": ["[S]", 1], "cls": ["[C]", 0]},
    "model": {"type": "WordPiece", "unk_token": "[U]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 9,
              "vocab": {"[C]": 0, "[S]": 1, "[U]": 2, "hell": 3, "##o": 4, "a": 5, "!": 6}}}
spm = {"version": "1.0", "added_tokens": ADDED, "normalizer": {"type": "Sequence", "normalizers": [
    {"type": "Prepend", "prepend": "\u2581"}, {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
    "post_processor": TEMPLATE, "decoder": {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "unk_token": "<u>", "fuse_unk": True, "byte_fallback": True, "merges": [["\u2581", "H"]],
              "vocab": {"<u>": 0, "\u2581": 1, "H": 2, "\u2581H": 3, "<0x0A>": 4, "e": 5, "<s>": 99}}}
for name, made in (("bpe", bpe), ("wordpiece", wordpiece), ("spm", spm)):
    put("tokenizer", name, json.dumps(made, separators=(",", ":")) + "\x1e" + json.dumps(CONFIG) + "\x1eHello  a\u00e9")

# The first byte of `vocab` tells which files follow: 1 tokenizer.json, 2 tokenizer.gguf.json, 4 vocab.json, 8 merges.txt,
# 16 vocab.txt, 32 tokenizer_config.json, 64 special_tokens_map.json, 128 chat_template.jinja.
GPT2 = {"model": "gpt2", "pre": "gpt-2", "bos": 99, "eos": 99, "add_bos": 1, "chat_template": CONFIG["chat_template"],
        "tokens": list(VOCAB) + ["<s>"], "types": [1] * 99 + [3], "merges": BPE["merges"]}
LLAMA = {"model": "llama", "unk": 0, "bos": 1, "eos": 2, "add_space_prefix": 1,
         "tokens": ["<unk>", "<s>", "</s>", "<0x0A>", "\u2581", "H", "e", "\u2581H", "He"], "merges": [],
         "scores": [0, 0, 0, 0, -1, -2, -3, -1.5, -2.5], "types": [2, 3, 3, 6, 1, 1, 1, 1, 1]}
SPECIAL = {"bos_token": "<s>", "unk_token": {"content": "[UNK]", "lstrip": False}}
LINES = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhell\n##o\na\n!\n"
for name, mask, parts in (
        ("gpt2", 2, [GPT2]), ("llama", 2 | 32 | 64, [LLAMA, CONFIG, SPECIAL]),
        ("merges", 4 | 8 | 32, [dict(VOCAB, **{"<s>": 99}), "#version: 0.2\n" + "\n".join(BPE["merges"]) + "\n", CONFIG]),
        ("lines", 16 | 32 | 64 | 128, [LINES, {"do_lower_case": True}, SPECIAL, CONFIG["chat_template"]])):
    texts = [part if isinstance(part, str) else json.dumps(part, separators=(",", ":")) for part in parts]
    put("vocab", name, bytes([mask]) + "\x1e".join(texts + ["Hello  a\u00e9"]).encode())


def llama_state(version, streams, transposed, kind, letter, cells=2):
    """A sequence of 1 layer, 1 head of 2 elements (src/io/llama_state.h)."""
    values = [0.5, -1.25, 2.0, 0.0][: 2 * cells]
    data = b"".join(struct.pack("<H", struct.unpack("<I", struct.pack("<f", v))[0] >> 16) if letter == "b" else struct.pack("<" + letter, v)
                    for v in values)
    size = len(data) // len(values)
    out = struct.pack(f"<3I{cells}iII", 0x67677371, version, cells, *range(cells), streams, cells)
    out += b"".join(struct.pack("<iIi", p, 1, 0) for p in range(cells)) + struct.pack("<II", transposed, 1)
    out += struct.pack("<II", 0, 0) if version == 4 else b""
    out += struct.pack("<iQ", kind, 2 * size) + data
    out += struct.pack("<iII", kind, size, 2) + data if transposed else struct.pack("<iQ", kind, 2 * size) + data
    return out + struct.pack("<I", 0) * (streams - 1)


for name, form in {"v3_f32": (3, 1, 0, 0, "f"), "v4_f16": (4, 1, 0, 1, "e"), "v4_bf16_transposed": (4, 1, 1, 30, "b"),
                   "v3_transposed": (3, 1, 1, 0, "f"), "v4_streams": (4, 3, 0, 1, "e")}.items():
    put("llama_state", name, llama_state(*form))
