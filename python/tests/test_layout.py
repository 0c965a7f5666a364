"""The layout of structs and the values of enums are those of tests/abi.txt, which the C compiler printed."""
import ctypes
import inspect
import unittest

from kvfold import _structs
from support import ROOT


def listed():
    sizes, offsets, values = {}, {}, {}
    for line in (ROOT / "tests/abi.txt").read_text().splitlines():
        words = line.split()
        if words[0] == "struct" and len(words) == 3:
            sizes[words[1]] = int(words[2])
        elif words[0] == "struct":
            offsets.setdefault(words[1], {})[words[2]] = int(words[3])
        elif words[0] != "function":
            values[words[0]] = int(words[1])
    return sizes, offsets, values


class Layout(unittest.TestCase):
    def test_structs(self):
        sizes, offsets, _ = listed()
        ours = {name: kind for name, kind in inspect.getmembers(_structs, inspect.isclass)
                if issubclass(kind, _structs.Struct) and kind is not _structs.Struct}
        self.assertGreater(len(ours), 15)
        for name, kind in ours.items():
            with self.subTest(name):
                self.assertEqual(ctypes.sizeof(kind), sizes[name])
                self.assertEqual({member: getattr(kind, member).offset for member, _ in kind._fields_}, offsets[name])

    def test_enums(self):
        _, _, values = listed()

        def check(stem, table):
            for word, value in table.items():
                name = "KVF_" + stem + str(word).upper().replace("-", "_")
                self.assertEqual(value, values[name], name)

        check("DTYPE_", _structs.DTYPES)
        check("PRECISION_", _structs.PRECISIONS)
        check("WEIGHTS_", _structs.WEIGHT_DTYPES)
        check("EVENT_", {name: i for i, name in enumerate(_structs.EVENTS)})
        for table, stem, none in ((_structs.CHECKPOINTS, "CHECKPOINT_", "DEFAULT"), (_structs.OVERLONG, "OVERLONG_", "UNSET")):
            check(stem, {word or none: value for word, value in table.items()})
        check("", {"EXPORT_MLX": _structs.EXPORT_MLX, "EXPORT_PEFT": _structs.EXPORT_PEFT, "LOG_WARN": _structs.LOG_WARN,
                   "PREDICT_JSONL": _structs.PREDICT_JSONL, "ESTOPPED": _structs.STATUS_STOPPED})
