#!/usr/bin/env python3
"""Time and peak memory of the command on small files that ask for much: ./setup.sh amplify.

amplify.py KVFOLD MAKE_TINY [NAME...]: each case is made in two sizes and given to the command, which
may read it or refuse it. Beyond what the same command takes for a plain file the larger one may take
16 times its unpacked bytes and 64 MiB, and as much longer than the smaller one as it is larger."""
import gzip, json, math, os, shutil, struct, subprocess, sys, tempfile, time

MB = 1 << 20
GROWTH, SLACK = 16, 64 * MB
ROW, WORD = 600, 300  # bytes of a row, of a tagged word besides: where it came from, its answer
SHORT = 1.0  # seconds that measure nothing
CASES = {}


def case(small, large):
    def add(make):
        CASES[make.__name__] = (make, small, large)
        return make
    return add


# ---- tokenizers -----------------------------------------------------------------------------------

def folder(name="made"):
    shutil.rmtree(name, ignore_errors=True)
    shutil.copytree("model", name)
    return name


def encode(text, base="made"):
    with open("text.jsonl", "w") as f:
        json.dump({"text": text}, f)
    return ["eval", "--base", base, "--data", "text.jsonl", "--overlong", "truncate"]


def tokenizer(prompt, **parts):
    with open(folder() + "/tokenizer.json") as f:
        t = json.load(f)
    for key, value in parts.items():
        t[key] = t[key] + value if key == "added_tokens" else value
    with open("made/tokenizer.json", "w") as f:
        json.dump(t, f, separators=(",", ":"))
    return os.path.getsize("made/tokenizer.json") + len(prompt), encode(prompt)


def replace(content):
    return {"type": "Replace", "pattern": {"String": "a"}, "content": content}


def normalizers(steps):
    return {"type": "Sequence", "normalizers": steps}


def unigram(tokens):
    vocab = [["<unk>", -1.0]] + [[token, -2.0] for token in tokens]
    return {"type": "Unigram", "unk_id": 0, "vocab": vocab + [[f"<{i}>", -9.0] for i in range(258 - len(vocab))]}


def added(texts):
    flags = dict.fromkeys(("special", "single_word", "lstrip", "rstrip", "normalized"), False)
    return [{"id": i % 258, "content": text, **flags} for i, text in enumerate(texts)]


@case(10, 200)
def replace_doubles(n):
    return tokenizer("a", normalizer=normalizers([replace("aa")] * n))


@case(100000, 1000000)
def replace_by_long(n):
    return tokenizer("a" * 20000, normalizer=normalizers([replace("b" * n)]))


@case(2000, 20000)
def many_steps(n):
    return tokenizer("a" * 100000, normalizer=normalizers([replace("a")] * n))


@case(16000, 64000)
def unigram_long_token(n):
    return tokenizer("a" * n, model=unigram(["a" * n]), pre_tokenizer=None, post_processor=None, decoder=None)


@case(200000, 800000)
def unigram_all_lengths(n):
    tokens = ["a" * i for i in range(1, 1000, 4)]
    return tokenizer("a" * n, model=unigram(tokens), pre_tokenizer=None, post_processor=None, decoder=None)


@case(200000, 800000)
def wordpiece_all_lengths(n):
    tokens = ["<unk>", "a", "##a"] + ["##" + "a" * i + "b" for i in range(1, 1000, 4)]
    vocab = {token: i for i, token in enumerate(tokens)}
    model = {"type": "WordPiece", "unk_token": "<unk>", "max_input_chars_per_word": 1 << 30, "vocab": vocab}
    return tokenizer("a" * n, model=model, pre_tokenizer=None, post_processor=None, decoder=None)


@case(20000, 160000)
def many_added_tokens(n):
    return tokenizer("after 1:", added_tokens=added(f"{i:08d}" for i in range(n)))


@case(50000, 200000)
def long_added_token(n):
    return tokenizer("a" * n, added_tokens=added(["a" * n + "b"]))


@case(200000, 800000)
def added_tokens_of_all_lengths(n):
    return tokenizer("a" * n, added_tokens=added("a" * i + "b" for i in range(1, 1000, 4)))


@case(400000, 1600000)
def long_word(n):
    return tokenizer("a" * n, pre_tokenizer=None, post_processor=None)


# ---- tokenizer.model ------------------------------------------------------------------------------

def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def message(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def number(at, value):
    return varint(at << 3) + varint(value)


def piece(text, score, kind):
    return message(1, message(1, text.encode()) + varint(21) + struct.pack("<f", score) + number(3, kind))


def sentencepiece(pieces, units, values, prompt):
    table = struct.pack("<I", len(units) * 4) + struct.pack(f"<{len(units)}I", *units) + values
    data = piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("</s>", 0, 3) + piece("\u2581", -30, 1)
    data += b"".join(pieces) + message(2, number(3, 2)) + message(3, message(2, table) + number(3, 1) + number(4, 0) + number(5, 1))
    os.remove(folder() + "/tokenizer.json")
    with open("made/tokenizer.model", "wb") as f:
        f.write(data)
    return len(data) + len(prompt), encode(prompt)


LETTERS = [piece(chr(97 + i), -1.0 - i, 1) for i in range(26)]


@case(100000, 400000)
def charsmap_circle(n):
    units = [0] * 512
    units[0], units[0x161] = 0x100 << 10, 0x61 << 10 | 0x61
    return sentencepiece(LETTERS, units, b"x\0", "a" * n)


@case(5000, 20000)
def charsmap_long_value(n):
    units = [0] * 512
    units[0], units[0x161], units[0x160] = 0x100 << 10, 1 << 10 | 1 << 8 | 0x61, 0x80000000
    return sentencepiece(LETTERS, units, b"b" * 65536 + b"\0", "a" * n)


@case(100000, 400000)
def short_pieces(n):
    return sentencepiece([piece(chr(0x4E00 + i % 20000), -1, 1) for i in range(n)], [0] * 4, b"x\0", "a")


# ---- model files ----------------------------------------------------------------------------------

@case(2 * MB, 16 * MB)
def config_of_lists(n):
    path = folder() + "/config.json"
    with open(path) as f:
        text = f.read().strip()[:-1]
    with open(path, "w") as f:
        f.write(text + ',"x":[' + ",".join(["[]"] * (n // 3)) + "]}")
    return n, encode("a")


@case(2 * MB, 16 * MB)
def config_of_numbers(n):
    path = folder() + "/config.json"
    with open(path) as f:
        text = f.read().strip()[:-1]
    with open(path, "w") as f:
        f.write(text + ',"x":[' + ",".join("1" * (n // 2)) + "]}")
    return n, encode("a")


@case(2 * MB, 16 * MB)
def safetensors_header(n):
    tensors = ",".join(f'"t{i}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}' for i in range(n // 60))
    header = ("{" + tensors + "}").encode()
    with open("made.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header)
    return len(header), ["inspect", "made.safetensors"]


def gguf(tensors, keys, body):
    with open("made.gguf", "wb") as f:
        f.write(b"GGUF" + struct.pack("<IQQ", 3, tensors, keys) + body)
    return 24 + len(body), ["inspect", "made.gguf"]


def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


@case(2 * MB, 16 * MB)
def gguf_empty_texts(n):
    return gguf(0, 1, text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, n // 8) + bytes(n // 8 * 8))


@case(2 * MB, 16 * MB)
def gguf_keys(n):
    return gguf(0, n // 24, b"".join(text(f"k{i:07d}") + struct.pack("<Ii", 5, 0) for i in range(n // 24)))


@case(2 * MB, 16 * MB)
def gguf_tensors(n):
    each = b"".join(text(f"t{i:07d}") + struct.pack("<IQIQ", 1, 0, 0, 0) for i in range(n // 40))
    return gguf(n // 40, 0, each)


# ---- HDF5 -----------------------------------------------------------------------------------------

def hdf5(kind, command="inspect"):
    """made.h5, a copy of that file to be edited, and how the command is asked to read it."""
    import h5py  # here, in a process of its own: the command would count its memory
    shutil.copy(kind + ".h5", "made.h5")
    args = {"inspect": ["made.h5"], "diff": ["made.h5", kind + ".h5"],
            "eval": ["--base", "model", "--prefix", "made.h5", "--data", "one.jsonl"],
            "merge": ["made.h5", "--base", "model", "--out", "out.h5", "--force"],
            "export": ["made.h5", "--format", "safetensors", "--out", "out", "--force"],
            "serve": ["--base", "model", "--prefix", "a=made.h5", "--host", "203.0.113.1"]}  # no address of this machine
    return h5py.File("made.h5", "r+", libver=("v108", "v108")), [command, *args[command]]


def sized(args):
    return os.path.getsize("made.h5"), args


def put_zeros(file, path, shape, chunk, dtype="f4"):
    """Zeros in place of a dataset, compressed to about a thousandth. Its labels are lost."""
    import numpy
    parent, name = file[os.path.dirname(path)], os.path.basename(path)
    attributes = {k: v for k, v in parent[name].attrs.items() if k != "DIMENSION_LABELS"}
    del parent[name]
    new = parent.create_dataset(name, shape, dtype, chunks=chunk, compression=9, shuffle=True)
    new[:] = numpy.zeros(shape, dtype)
    new.attrs.update(attributes)
    return new


def zeros(kind, path, shape, small=4, large=64, command="inspect", dtype="f4", name=None):
    """A case: `small` and `large` MB of zeros. shape: with 0 for the dimension that grows."""
    def make(n):
        rows = n * MB // math.prod(d or 1 for d in shape) // int(dtype[1])
        file, args = hdf5(kind, command)
        with file:
            put_zeros(file, path, [d or rows for d in shape], tuple(d or rows // 8 for d in shape), dtype)
            if dtype == "i1":
                file[path].attrs["dtype"] = "int8"
                file["prefix"].create_dataset("scale", data=[[[[1, 1]]] * 2] * 2, dtype="f4")
        return sized(args)
    make.__name__ = name or f"zeros_{kind}_{command}"
    case(small, large)(make)


PREFIX = ("prefix", "prefix/past_key_values", [2, 2, 1, 2, 0, 8])
for command in "inspect", "diff", "eval", "export", "serve":
    zeros(*PREFIX, command=command)
    if command != "eval":  # where attention takes more for a key than this small base's prefix does
        zeros(*PREFIX, 3, 24, command, name=f"zeros_that_pass_{command}")
zeros(*PREFIX, 1, 6, dtype="i1", name="zeros_that_pass_int8")
zeros("run", "encoder/embedding.weight", [0, 16])
zeros("run", "encoder/embedding.weight", [0, 16], command="merge")
zeros("run", "best/encoder/embedding.weight", [0, 16], name="zeros_best")
zeros("run", "optimizer/m/embedding.weight", [0, 16], name="zeros_moments")
zeros("run", "history/step", [0], dtype="i8", name="zeros_history")
zeros("adapter", "adapter/0.attn.down.weight", [0, 32])
zeros("embeddings", "embeddings/virtual", [0, 32])
zeros("seq-cls.run", "head/classifier.weight", [0, 32], name="zeros_head")
zeros("base", "weights/model.embed_tokens.weight", [0, 32])


@case(1 << 20, 1 << 40)
def never_written(n):
    file, args = hdf5("prefix")
    with file:
        del file["prefix/past_key_values"]
        file["prefix"].create_dataset("past_key_values", (2, 2, 1, 2, n, 8), "f4", chunks=(2, 2, 1, 2, 1024, 8))
    return sized(args)


def links(kind, group, path, command="inspect", order=True):
    """A case: a group with n names for one dataset, in the order of creation or by name."""
    def make(n):
        file, args = hdf5(kind, command)
        with file:
            old, file["one"] = dict(file[group].attrs), file[f"{group}/{path}"]
            del file[group]
            new = file.create_group(group, track_order=order)
            new.attrs.update(old)
            for i in range(n):
                new[f"x{i:05d}"] = file["one"]
        return sized(args)
    make.__name__ = f"links_{kind}_{command}" + ("" if order else "_by_name")
    case(3000, 30000)(make)


links("run", "encoder", "embedding.weight")
links("run", "encoder", "embedding.weight", "merge")
links("run", "encoder", "embedding.weight", order=False)
links("adapter", "adapter", "0.attn.down.bias", order=False)
links("base", "weights", "model.norm.weight", order=False)


@case(1000, 4000)
def many_attributes(n):
    file, args = hdf5("run")
    with file:
        for i in range(n):
            file["lineage"].attrs[f"x{i}"] = i
    return sized(args)


@case(1000, 4000)
def many_attributes_by_name(n):
    file, args = hdf5("run")
    with file:
        del file["lineage"]
        file.create_group("lineage").attrs.update({f"x{i}": i for i in range(n)})
    return sized(args)


@case(6000, 60000)
def attributes_of_the_root(n):
    file, args = hdf5("run")
    with file:
        file.attrs.update({f"x{i}": i for i in range(n)})
    return sized(args)


@case(1 * MB, 8 * MB)
def long_attributes(n):
    file, args = hdf5("run")
    with file:
        file["lineage"].attrs.update({f"x{i}": "a" * (n // 16) for i in range(16)})
    return sized(args)


@case(800, 8000)
def small_chunks(n):
    file, args = hdf5("run")
    with file:
        for name in "abcd":
            file["encoder"].create_dataset(name, data=[0.5] * n, dtype="f4", chunks=(1,))
    return sized(args)


def labels(n, bytes, distinct):
    """Labels that all refer to the bytes of the first `distinct`, by turns."""
    import h5py
    file, args = hdf5("seq-cls.run")
    with file:
        del file["head/labels"]
        d = file["head"].create_dataset("labels", (n,), h5py.string_dtype())
        for i in range(distinct):
            d[i] = chr(97 + i) * bytes
        at = d.id.get_offset()
    with open("made.h5", "r+b") as f:
        f.seek(at)
        references = f.read(16 * distinct)
        f.seek(at)
        f.write(references * (n // distinct))
    return sized(args)


@case(1600, 16000)
def labels_of_the_same_bytes(n):
    return labels(n, 65536, 1)


@case(1600, 16000)
def labels_by_turns(n):
    return labels(n, 2 * MB, 2)


# ---- data -----------------------------------------------------------------------------------------

def data(name, content, task="lm"):
    with open(name, "wb") as f:
        f.write(content if isinstance(content, bytes) else content.encode())
    if task == "lm":
        return ["eval", "--base", "model", "--data", name, "--overlong", "truncate"]
    return ["predict", "--base", "bert", "--prefix", task, "--data", name, "--out", "answers", "--force", "--overlong", "truncate"]


@case(2 * MB, 16 * MB)
def row_of_lists(n):
    return n, data("made.jsonl", '{"text":"a","x":[' + ",".join(["[]"] * (n // 3)) + "]}")


@case(2 * MB, 16 * MB)
def rows_of_lists(n):
    return n, data("made.json", "[" + ",".join(["[]"] * (n // 3)) + "]")


@case(15 * MB, 60 * MB)
def long_row(n):
    return n, data("made.jsonl", '{"text":"' + "a b" * (n // 3) + '"}\n')


@case(75 * MB, 300 * MB)
def packed_row(n):
    return n, data("made.jsonl.gz", gzip.compress(b'{"text":"' + b"a" * n + b'"}\n', 1))


@case(MB // 4, MB)
def short_rows(n):
    return n + n // 4 * ROW // GROWTH, data("made.tsv", "text\tlabel\n" + "a\t1\nb\t0\n" * (n // 8), "seq-cls")


@case(MB // 4, MB)
def short_words(n):
    return n + n // 9 * ROW // GROWTH, data("made.conll", "a\tO\nb\tB\n\n" * (n // 9), "token-cls")


@case(MB // 4, MB)
def one_sentence(n):
    return n + n // 4 * WORD // GROWTH, data("made.conll", "a\tO\nb\tB\n" * (n // 8), "token-cls")


@case(200000, 800000)
def squad_lost_ids(n):
    questions = ",".join('{"id":"\\u00e9%d","question":"a","answers":[{"text":"b","answer_start":0}]}' % i for i in range(n // 80))
    return n, data("made.json", '{"data":[{"paragraphs":[{"context":"b","qas":[' + questions + "]}]}]}", "qa")


@case(50000, 200000)
def many_answers(n):
    answer = '{"text":"b","answer_start":%d}' % (n - 1)
    row = '{"question":"a","context":"' + "a" * (n - 1) + 'b","answers":[' + ",".join([answer] * 1000) + "]}\n"
    return len(row), data("made.jsonl", row, "qa")


@case(250, 1000)
def many_choices(n):
    row = '{"text":"' + "ab " * 300 * n + '","label":0,"choices":[' + ",".join(['"a"'] * n) + "]}\n"
    return len(row), data("made.jsonl", row, "multiple-choice")


# ---- measuring ------------------------------------------------------------------------------------

ROWS = {"seq-cls": {"text": "a", "label": "1"}, "token-cls": {"tokens": ["a"], "tags": ["O"]},
        "qa": {"question": "a", "context": "b", "answers": ["b"]}, "multiple-choice": {"text": "a", "choices": ["b", "c"], "label": 0}}


def prepare(command, tiny):
    """Two bases, and a run of each task."""
    subprocess.run([tiny, "model"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([tiny, "bert", "1", "bert"], check=True, stdout=subprocess.DEVNULL)
    for task, row in ROWS.items():
        with open("rows.jsonl", "w") as f:
            f.write(json.dumps(row) + "\n")
        labels = ["--labels", "O,B" if task == "token-cls" else "0,1"] if task in ("seq-cls", "token-cls") else []
        subprocess.run([command, "train", "--base", "bert", "--task", task, "--data", "rows.jsonl", "--steps", "1", "--prefix-length", "2",
                        "--method", "direct", "--max-length", "64", "--out", task, "--quiet", *labels], check=True, stdout=subprocess.DEVNULL)
    prepare_hdf5(command)


def prepare_hdf5(command):
    """One of our files of each kind."""
    def run(*args):
        subprocess.run([command, *args], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    def train(base, data, out, *args):
        run("train", "--base", base, "--data", data, "--steps", "1", "--max-length", "64", "--valid", data, "--out", out, *args)
    with open("one.jsonl", "w") as f:
        f.write('{"text": "a"}\n')
    with open("seq-cls.jsonl", "w") as f:
        f.write(json.dumps(ROWS["seq-cls"]) + "\n")
    classes = ["--task", "seq-cls", "--labels", "0,1"]
    run("import", "model", "--out", "base.h5")
    train("model", "one.jsonl", "run.h5", "--prefix-length", "2", "--method", "mlp")
    run("merge", "run.h5", "--base", "model", "--out", "prefix.h5")
    train("bert", "seq-cls.jsonl", "seq-cls.run.h5", "--prefix-length", "2", "--method", "direct", *classes)
    for kind, method in ("adapter", ["adapter"]), ("embeddings", ["prompt", "--prefix-length", "2"]):
        train("bert", "seq-cls.jsonl", "unmerged.h5", "--force", "--method", *method, *classes)
        run("merge", "unmerged.h5", "--base", "bert", "--out", kind + ".h5")


def made(make, size):
    """What a case returns. Another process makes it: a child counts the memory of its parent as its own."""
    read, write = os.pipe()
    if not os.fork():
        with os.fdopen(write, "w") as f:
            json.dump(make(size), f)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as f:
        result = json.load(f)
    os.wait()
    return result


def measure(command, args):
    """Exit status, seconds, peak memory in bytes and the first line of its errors."""
    with open("errors", "w+") as errors:
        begin = time.monotonic()
        child = subprocess.Popen(["timeout", "-s", "KILL", "300", command, *args], stdout=subprocess.DEVNULL, stderr=errors)
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.monotonic() - begin
        child.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        return child.returncode, seconds, usage.ru_maxrss * 1024, errors.readline().strip()[:100]


def check(command, plain, name):
    make, small, large = CASES[name]
    before = measure(command, made(make, small)[1])[1]
    size, args = made(make, large)
    status, seconds, memory, line = measure(command, args)
    took, allowed = memory - plain, GROWTH * size + SLACK
    longest = 1.5 * (before + SHORT) * large / small
    good = status in ((0, 1, 2) if args[0] == "diff" else (0, 1)) and took <= allowed and seconds <= longest
    print(f"{'ok  ' if good else 'FAIL'} {name}: {size / MB:.1f} MB, {took / MB:.0f} MiB of {allowed / MB:.0f}, {before:.1f} and {seconds:.1f} s, "
          f"exit {status} {line}", flush=True)
    return good


def main():
    command, tiny = map(os.path.abspath, sys.argv[1:3])
    names = sys.argv[3:] or list(CASES)
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        prepare(command, tiny)
        plain = max(measure(command, args)[2] for args in (encode("a", "model"), data("plain.tsv", "text\na\n", "seq-cls")))
        bad = [name for name in names if not check(command, plain, name)]
        os.chdir("/")
    print(f"{len(names)} cases, {len(bad)} above the limits" + "".join(" " + name for name in bad))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
