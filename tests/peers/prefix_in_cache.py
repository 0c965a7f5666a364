"""The Python of README.md and examples/prefix_in_transformers.py on prefix files of every kind, compared with `kvfold generate`.

    python prefix_in_cache.py SOURCE BASE NAME ...

For each NAME, NAME.h5 is a file and NAME.txt what kvfold generated after PROMPT with it; without NAME.txt both must refuse the file in a
line of their own. Each runs twice, and must leave what it was given as it was.
"""
import importlib.util
import os
import re
import shutil
import sys

from transformers import AutoModelForCausalLM, AutoTokenizer

PROMPT, TOKENS = "Internet, noun:", 40


class Example:
    """examples/prefix_in_transformers.py."""

    def __init__(self, source, base):
        spec = importlib.util.spec_from_file_location("example", os.path.join(source, "examples/prefix_in_transformers.py"))
        self.module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.module)
        self.model, self.tokenizer = AutoModelForCausalLM.from_pretrained(base).eval(), AutoTokenizer.from_pretrained(base)

    def says(self, path):
        values, start = self.module.load(path)
        before = values.clone()
        said = [self.module.complete(self.model, self.tokenizer, PROMPT, values, start, TOKENS) for _ in range(2)]
        assert before.equal(values), "the values have changed"
        return said


class Snippet:
    """The block of README.md that calls generate(), with the names of its inputs."""

    def __init__(self, source, base):
        with open(os.path.join(source, "README.md")) as file:
            blocks = re.findall(r"```python\n(.*?)```", file.read(), re.S)
        (self.code,) = [block for block in blocks if "past_key_values" in block]
        assert self.code.rstrip().endswith(")") and "model.generate(" in self.code.rstrip().split("\n\n")[-1], "does not end in generate()"
        if not os.path.exists("MODEL"):
            os.symlink(base, "MODEL")

    def says(self, path):
        shutil.copyfile(path, "prefix.h5")
        names = {}
        exec(self.code, names)  # README's own
        before, last = names["kv"].clone(), self.code[self.code.index("out = "):]
        outs = [names["out"]]
        exec(last, names)
        assert before.equal(names["kv"]), "kv has changed"
        outs.append(names["out"])
        return [names["tokenizer"].decode(out[0, names["ids"].shape[1]:], skip_special_tokens=True) for out in outs]


def fault(way, name):
    expected = f"{name}.txt"
    try:
        said = way.says(f"{name}.h5")
    except ValueError as error:
        return f"refused: {error}" if os.path.exists(expected) else None
    if not os.path.exists(expected):
        return f"not refused: {said[0]!r}"
    with open(expected, newline="") as file:  # \r stays \r
        want = file.read().removesuffix("\n")
    return None if said == [want, want] else f"{said}, kvfold says {want!r}"


def main():
    source, base, *names = sys.argv[1:]
    wrong = 0
    for way in (Example(source, base), Snippet(source, base)):
        for name in names:
            found = fault(way, name)
            print(f"{type(way).__name__.lower()}, {name}: {found or 'right'}")
            wrong += found is not None
    sys.exit(1 if wrong else 0)


main()
