"""What the tests share: folders, tiny random models, and the command whose answers Python's must equal."""
import json
import os
import random
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import kvfold

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = ROOT / "build"
COMMAND = os.environ.get("KVFOLD_COMMAND") or str(BUILD / "kvfold")
MAKE_TINY = os.environ.get("KVFOLD_MAKE_TINY") or str(BUILD / "tests/make_tiny")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # else the command starts itself anew

SMALL = {"prefix_length": 3, "steps": 4, "seed": 3, "force": True}
PAIRS = [{"prompt": f"w{i}: ü", "completion": f" abc {i * i}"} for i in range(12)]
_WORDS = "good bad day night tree river stone small old warm".split()


def sentences(n, seed=1):
    rng = random.Random(seed)
    return [" ".join(rng.choices(_WORDS, k=rng.randint(1, 9))) for _ in range(n)]


CLASSES = [{"text": text, "label": ("yes", "no")["bad" in text]} for text in sentences(24)]
TAGGED = [{"tokens": text.split(), "tags": ["B-X" if w == "tree" else "O" for w in text.split()]} for text in sentences(16)]


def write_rows(path, rows):
    Path(path).write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return str(path)


def command(*arguments):
    """kvfold with these arguments; what it prints."""
    done = subprocess.run([COMMAND, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(f"kvfold {' '.join(map(str, arguments))}: {done.stderr}")
    return done.stdout


def answer(*arguments):
    return json.loads(command(*arguments, "--json"))


def flags(options):
    """Keyword arguments of train() as the command's options."""
    out = []
    for name, value in options.items():
        out += ["--" + name.replace("_", "-")] + ([] if value is True else [str(value)])
    return out


class Case(unittest.TestCase):
    """A folder of its own with the models `llama` and `bert`; `base` is the first, open in f32."""

    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.llama, cls.bert = str(cls.folder / "llama"), str(cls.folder / "bert")
        subprocess.run([MAKE_TINY, cls.llama, "1"], check=True)
        subprocess.run([MAKE_TINY, cls.bert, "1", "bert"], check=True)
        cls.pairs = write_rows(cls.folder / "pairs.jsonl", PAIRS)
        cls.base = kvfold.Base(cls.llama)

    @classmethod
    def prefix_of(cls, base, rows, name, **options):
        """Trained in a few steps and merged."""
        run = kvfold.train(base, rows, out=cls.folder / f"{name}.run.h5", **{**SMALL, "method": "direct", **options})
        return run.merge(cls.folder / f"{name}.h5", force=True)

    def fails(self, pattern, function, *arguments, status=None, **options):
        with self.assertRaisesRegex(kvfold.Error, pattern) as caught:
            function(*arguments, **options)
        self.assertNotIn("\n", str(caught.exception))
        if status:
            self.assertEqual(caught.exception.status, status)
