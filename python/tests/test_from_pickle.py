"""Pickles of torch, in the layouts of the five programs, become safetensors: kvfold refuses each with a command, and that command makes
what import and --base read, with the values of tests/golden. Skipped where torch and safetensors are missing.
"""
import contextlib
import importlib.util
import io
import json
import os
import shlex
import shutil
import subprocess
import sys
import unittest
from pathlib import Path
from unittest import mock

import kvfold
import numpy as np
from kvfold import from_pickle
from support import COMMAND, ROOT, Case, command

if all(importlib.util.find_spec(name) for name in ("torch", "safetensors")):
    import torch
    from safetensors.torch import load_file, save_file
else:
    torch = None

GOLDEN = ROOT / "tests/golden"
FOREIGN = GOLDEN / "foreign_prefixes"


def listed(path):
    """As HazyResearch's cartridges are saved: lists of parameters, of which the frozen ones may be empty."""
    lists = {f"{kind}_{half}": torch.nn.ParameterList() for kind in ("trainable", "fixed") for half in ("keys", "values")}
    for name, value in sorted(load_file(path).items()):
        lists[name.rpartition(".")[0]].append(torch.nn.Parameter(value))
    return lists


# Checkpoints of tests/golden/foreign_prefixes, and the model of each.
LAYOUTS = {"pt2_flat": "bert", "pt2_mlp": "roberta", "ah_gpt2": "gpt2", "ah_bert": "bert", "ah_llama": "qwen2", "peft_cartridge": "llama_tied",
           "li_liang": "gpt2", "li_deep": "gpt2", "li_flat": "gpt2", "li_cache": "gpt2", "cartridge": "llama_tied",
           "cartridge_all": "llama_tied"}
PICKLES = {"model.safetensors": "pytorch_model.bin", "adapter.safetensors": "pytorch_adapter.bin",
           "model_head.safetensors": "pytorch_model_head.bin", "adapter_model.safetensors": "adapter_model.bin"}


def python(*arguments):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, env=env)


class Code:
    def __reduce__(self):
        return os.system, ("touch pickle_was_run",)


class WithoutTorch(unittest.TestCase):
    def test_says_what_it_needs(self):
        for arguments, code, line in ((["a.bin", "b"], 1, "needs torch 2.5 or later"), (["a"], 2, "required: OUT"),
                                      (["--help"], 0, "")):
            script = f"import sys; sys.modules['torch'] = None; from kvfold.from_pickle import main; sys.exit(main({arguments}))"
            done = python("-c", script)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(line, done.stderr)
            self.assertEqual(done.stderr.count("\n"), int(code > 0))


@unittest.skipUnless(torch, "no torch and safetensors")
class Pickles(Case):
    def setUp(self):
        self.place = self.folder / self.id().rpartition(".")[2]
        self.place.mkdir()

    def path(self, name):
        return self.place / name

    def saved(self, name, value, **options):
        self.path(name).parent.mkdir(exist_ok=True)
        torch.save(value, self.path(name), **options)
        return self.path(name)

    def same_tensors(self, path, want):
        got = load_file(path)
        self.assertEqual(list(sorted(got)), list(sorted(want)))
        for name, value in want.items():
            self.assertEqual(got[name].dtype, value.dtype, name)
            self.assertEqual(got[name].shape, value.shape, name)
            self.assertEqual(got[name].contiguous().reshape(-1).view(torch.uint8).tolist(),
                             value.detach().contiguous().reshape(-1).view(torch.uint8).tolist(), name)

    def run_main(self, *arguments):
        """Exit code, and the one line there is."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), mock.patch("signal.signal"):
            code = from_pickle.main([str(a) for a in arguments])
        self.assertEqual(bool(code), bool(err.getvalue()))
        self.assertLessEqual(err.getvalue().count("\n"), 1)
        return code, err.getvalue() or out.getvalue()

    def told(self, *arguments):
        """kvfold refuses; the arguments of the command that its line has."""
        done = subprocess.run([COMMAND, *map(str, arguments)], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done.stderr)
        line = done.stderr.rstrip().partition("; this converts it: ")[2]
        words = shlex.split(line)
        self.assertEqual(words[:3], ["python", "-m", "kvfold.from_pickle"], done.stderr)
        return words[3:]

    # ---- bases ---------------------------------------------------------------------------------------------------------------

    def pickled_base(self, name, shards):
        """The model `llama` with its weights pickled, in as many files as there are shards (0: a whole one)."""
        folder = self.path(name)
        shutil.copytree(self.llama, folder)
        weights = load_file(folder / "model.safetensors")
        (folder / "model.safetensors").unlink()
        if not shards:
            torch.save(weights, folder / "pytorch_model.bin")
        names = sorted(weights)
        files = {n: f"pytorch_model-{i % shards + 1:05}-of-{shards:05}.bin" for i, n in enumerate(names)} if shards else {}
        for file in set(files.values()):
            torch.save({n: weights[n] for n in names if files[n] == file}, folder / file)
        if shards:
            (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
        return folder, weights

    def test_bases(self):
        ids = self.base.tokenize("w1: abc")
        want = self.base.logits(ids)
        for name, shards in ("whole", 0), ("sharded", 2):
            with self.subTest(name):
                folder, weights = self.pickled_base(name, shards)
                copy = self.path(name + " copy")
                self.assertEqual(from_pickle.convert(folder, copy), {str(copy / "model.safetensors"): len(weights)})
                self.assertEqual(sorted(os.listdir(copy)), sorted(os.listdir(self.llama)))
                for command_of in (["inspect", folder], ["import", folder, "--out", self.path("x.h5")],
                                   ["eval", "--base", folder, "--data", self.pairs]):
                    words = self.told(*command_of)
                self.assertEqual(self.run_main(*words), (0, f"{words[1]}: {len(weights)} tensors\n"))
                for path in copy, folder:
                    np.testing.assert_array_equal(kvfold.Base(str(path)).logits(ids), want)
                    self.same_tensors(path / "model.safetensors", weights)

    def test_the_command_itself(self):
        folder, _ = self.pickled_base("it's", 0)
        out = self.path("made")
        for code, line in (0, ""), (1, f"kvfold.from_pickle: {out}: exists (use --force to replace it)\n"):
            done = python("-m", "kvfold.from_pickle", folder, out)
            self.assertEqual((done.returncode, done.stderr), (code, line))

    # ---- prefixes ------------------------------------------------------------------------------------------------------------

    def golden_base(self, name):
        folder = self.folder / f"model_{name}"
        if not folder.exists():
            folder.mkdir()
            shutil.copy(GOLDEN / f"model_{name}" / "config.json", folder)
            weights = load_file(GOLDEN / f"model_{name}" / "model.safetensors")
            save_file({k: v for k, v in weights.items() if not k.startswith("golden.")}, folder / "model.safetensors", {"format": "pt"})
            (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
        return folder

    def pickled(self, case):
        """The case as its program saves it."""
        golden, path = FOREIGN / case, self.path(case)
        if case.startswith("cartridge"):
            return self.saved(case + ".pt", listed(FOREIGN / f"{case}.safetensors"))
        for source in golden.glob("*.safetensors") if golden.is_dir() else [FOREIGN / f"{case}.safetensors"]:
            self.saved(f"{case}/{PICKLES.get(source.name, 'pytorch_model.bin')}", load_file(source))
        for config in golden.glob("*.json"):
            shutil.copy(config, path)
        if case.startswith("pt2"):  # transformers' trainer saves its arguments too
            torch.save({"learning_rate": Code()}, path / "training_args.bin")
        return path

    def test_prefixes(self):
        wanted = {**load_file(FOREIGN / "want.safetensors"), **load_file(FOREIGN / "want_ah.safetensors")}
        for case, model in LAYOUTS.items():
            with self.subTest(case):
                base, pickles, out = self.golden_base(model), self.pickled(case), self.path(case + ".h5")
                if case == "li_flat":
                    self.refused("preseqlen of config.json is None", pickles, self.path("none"))
                    (pickles / "config.json").write_text('{"preseqlen": 5}')
                if case.startswith("peft"):
                    self.assertEqual(self.run_main(*self.told("import", pickles, "--base", base, "--out", out))[0], 0)
                    folder = pickles
                else:
                    words = self.told("import", pickles, "--base", base, "--out", out)
                    self.refused("want a folder as OUT", *words)
                    folder, again = self.path(case + " made"), self.path(case + " again")
                    from_pickle.convert(pickles, folder)
                    golden = FOREIGN / case
                    if golden.is_dir():  # from safetensors, the same
                        from_pickle.convert(golden, again)
                        self.same_tensors(folder / "adapter_model.safetensors", load_file(again / "adapter_model.safetensors"))
                    if (FOREIGN / "peft" / case).exists():
                        for name in "adapter_config.json", "labels.json":
                            self.assertEqual((folder / name).read_bytes(), (FOREIGN / "peft" / case / name).read_bytes(), name)
                command("import", folder, "--base", base, "--out", out)
                got = kvfold.Prefix.load(out, kvfold.Base(str(base))).numpy()
                np.testing.assert_allclose(got[:, :, 0], wanted[case + ".prefix"].numpy(), rtol=0, atol=1e-6)

    def refused(self, line, *arguments):
        code, said = self.run_main(*arguments)
        self.assertEqual((code, line in said), (1, True), said)

    def test_prefixes_that_are_refused(self):
        """Tensors that are missing, surplus or of other shapes, and what has no form here."""
        rows = {
            "pt2_mlp": [({"prefix_encoder.trans.2.weight": None}, "'prefix_encoder.trans.2.weight' is missing"),
                        ({"lora.weight": 1}, "holds 'lora.weight'"), ({"prefix_encoder.weight": 1}, "a prompt at the input"),
                        ({"prefix_encoder.trans.0.bias": 1}, "do not fit each other")],
            "li_liang": [({"wte.weight": None}, "'wte.weight' is missing"), ({"wte2.weight": 1}, "infix-tuning"),
                         ({"control_trans_enc.0.bias": 1}, "encoder-decoder"), ({"wte.weight": 0}, "want a float type")],
            "cartridge": [({"trainable_values.1": None}, "is missing"), ({"trainable_keys.0": 1}, "do not fit each other")],
            "ah_gpt2": [({"transformer.prefix_tuning.prefix_tunings.b.self_prefix.wte.weight": 1}, "want one prefix"),
                        ({"x.prefix_tunings.tiny.cross_prefix.wte.weight": 1}, "is no part of a prefix")]}
        for case, changes in rows.items():
            golden = FOREIGN / case
            where = golden if golden.is_dir() else None
            held = load_file(next(golden.glob("*.safetensors")) if where else FOREIGN / f"{case}.safetensors")
            for edit, line in changes:
                folder = self.path("in")
                shutil.rmtree(folder, ignore_errors=True)
                shutil.copytree(where, folder, ignore=shutil.ignore_patterns("*.safetensors")) if where else folder.mkdir()
                now = {**held, **{n: torch.ones(3) if v else torch.zeros(5, 32, dtype=torch.int32) for n, v in edit.items()}}
                self.saved("in/pytorch_adapter.bin", {n: v for n, v in now.items() if edit.get(n, 1) is not None})
                with self.subTest(line):
                    self.refused(line, folder, self.path("none"))
        config = json.loads((FOREIGN / "ah_bert/adapter_config.json").read_text())
        for key, value, line in (("architecture", "lora", "want an adapter_config.json"), ("use_gating", True, "without use_gating"),
                                 ("leave_out", [3], "leave_out"), ("leave_out", [0, 1, 2], "leave_out"), ("leave_out", [1, 1], "leave_out"),
                                 ("flat", False, "'wte.weight' is missing"), ("prefix_length", 7, "want a vector of whole rows")):
            folder = self.path("in")
            shutil.rmtree(folder)
            shutil.copytree(FOREIGN / "ah_bert", folder)
            (folder / "adapter_config.json").write_text(json.dumps({**config, "config": {**config["config"], key: value}}))
            with self.subTest(line):
                self.refused(line, folder, self.path("none"))
        self.assertEqual(os.listdir(self.place), ["in"])

    def test_tasks_and_heads(self):
        folder, out = self.path("in"), self.path("out")
        shutil.copytree(FOREIGN / "ah_bert", folder)
        (folder / "model_head.safetensors").unlink()
        self.refused("no head for task seq-cls; --task lm takes the prefix alone", folder, out)
        from_pickle.convert(folder, out, task="lm")
        self.assertEqual(list(load_file(out / "adapter_model.safetensors")), ["prompt_embeddings"])
        shutil.copy(FOREIGN / "pt2_flat/model.safetensors", self.path("model.safetensors"))
        self.refused("has a classifier, but not for what", self.path("model.safetensors"), self.path("flat"))
        from_pickle.convert(self.path("model.safetensors"), self.path("flat"), task="token-cls")
        self.assertEqual(json.loads(self.path("flat/adapter_config.json").read_text())["task_type"], "TOKEN_CLS")
        self.refused("is no prefix of another program", GOLDEN / "model_bert", self.path("none"))

    def test_a_pickle_as_a_prefix(self):
        self.assertEqual(self.told("generate", "--base", self.llama, "--prefix", self.saved("a.pt", {}), "--prompt", "x")[1],
                         str(self.path("a.safetensors")))

    # ---- tensors -------------------------------------------------------------------------------------------------------------

    def test_every_type(self):
        base = torch.arange(12, dtype=torch.float32).reshape(3, 4) / 4 - 1
        tensors = {"ü.weight": base, "tied": base, "rows": base[1:], "turned": base.T, "scalar": torch.tensor(7.5),
                   "empty": torch.zeros(0, 3), "parameter": torch.nn.Parameter(torch.tensor([1.0, -0.0, float("nan")]))}
        for name in from_pickle._TYPES:
            tensors[name] = torch.tensor([[0, 1, 2], [3, 4, 5]]).to(getattr(torch, name))
        save_file({k: v.detach().clone().contiguous() for k, v in tensors.items()}, self.path("want.safetensors"), {"format": "pt"})
        for form in {}, {"_use_new_zipfile_serialization": False}:
            out = self.path("got.safetensors")
            from_pickle.convert(self.saved("state.bin", tensors, **form), out, force=True)
            self.same_tensors(out, tensors)
            self.assertEqual(out.read_bytes(), self.path("want.safetensors").read_bytes())
            self.assertEqual(out.stat().st_mode & 0o777, self.path("state.bin").stat().st_mode & 0o777)

    def test_refusals(self):
        one = torch.ones(2)
        rows = {"names posix.system": {"w": one, "x": Code()}, "'epoch' is no tensor": {"epoch": 3, "model": {"w": one}},
                "'w' is no tensor": {"w": [one]}, "holds no tensor": {}, "finds no dict of tensors": [one],
                "'trainable_keys.1' is no tensor": {"trainable_keys": [one, 2]}, "'3' is no name": {3: one},
                "'__metadata__' is no name": {"__metadata__": one}, "name of a tensor": {"a\nb": one},
                "complex64": {"w": torch.ones(2, dtype=torch.complex64)}, "sparse_coo": {"w": one.to_sparse()},
                "repeats its values": {"w": one[:1].expand(10**12)}, "'fixed_keys.0' occurs twice":
                {"fixed_keys.0": one, "fixed_keys": [one]}}
        damaged = torch.nn.ParameterList([one])
        damaged.__dict__["_size"] = 9
        rows["or damage"] = {"trainable_keys": damaged}
        for line, value in rows.items():
            with self.subTest(line):
                out = self.path("out.safetensors")
                code, said = self.run_main(self.saved("bad.bin", value), out)
                self.assertEqual(code, 1)
                self.assertIn(f"{self.path('bad.bin')}: ", said)
                self.assertIn(line, said)
                self.assertEqual(os.listdir(self.place), ["bad.bin"])
        self.assertFalse(os.path.exists("pickle_was_run"))

    def test_files_cut_short(self):
        for form in {}, {"_use_new_zipfile_serialization": False}:
            whole = self.saved("whole.bin", {"w": torch.ones(3)}, **form).read_bytes()
            for n in range(0, len(whole), 7):
                self.path("cut.bin").write_bytes(whole[:n])
                self.assertEqual(self.run_main(self.path("cut.bin"), self.path("out.safetensors"))[0], 1, n)
        self.assertEqual(sorted(os.listdir(self.place)), ["cut.bin", "whole.bin"])

    def test_shards(self):
        index, out = self.path("pytorch_model.bin.index.json"), self.path("out.safetensors")
        self.saved("a.bin", {"w": torch.ones(2)})
        self.saved("b.bin", {"w": torch.ones(2)})
        for text, line in (('{"weight_map":{"w":"../a.bin"}}', "no bare name"), ('{"weight_map":{"w":"a.h5"}}', "no bare name"),
                           ('{"weight_map":{"w":3,"v":3}}', "no bare name"), ('{"weight_map":3}', "no weight_map"), ("[", "no weight_map"),
                           ('{"weight_map":{"w":"a.bin","v":"b.bin"}}', "'w' occurs twice"), ('{"weight_map":{}}', "an empty one"),
                           ('{"weight_map":{"w":"a.bin","v":"a.bin"}}', "a.bin: holds other tensors than the index says"),
                           ('{"weight_map":{"w":"c.bin"}}', "c.bin: No such file")):
            index.write_text(text)
            code, said = self.run_main(index, out)
            self.assertEqual((code, line in said), (1, True), said)
        self.assertEqual(len(os.listdir(self.place)), 3)

    # ---- outputs -------------------------------------------------------------------------------------------------------------

    def test_outputs_are_not_lost(self):
        source = self.saved("in/pytorch_model.bin", {"w": torch.ones(2)})
        self.path("in/config.json").write_text("{}")
        file, folder = self.path("out.safetensors"), self.path("out")
        os.link(source, self.path("link.safetensors"))
        self.fails("is read here", from_pickle.convert, source, self.path("link.safetensors"), force=True)
        self.fails("is read here", from_pickle.convert, source.parent, source.parent, force=True)
        self.fails("no regular file", self.taken, source, file.mkdir, file)
        file.rmdir()
        self.fails("exists", self.taken, source, lambda: file.write_text("old"), file, force=False)
        from_pickle.convert(source, file, force=True)
        self.same_tensors(file, {"w": torch.ones(2)})
        self.assertEqual(list(from_pickle.convert(source, folder)), [str(folder / "model.safetensors")])
        (folder / "config.json").write_text("old")
        from_pickle.convert(source.parent, folder, force=True)
        self.assertEqual((folder / "config.json").read_text(), "{}")
        (folder / "mine").write_text("mine")
        self.fails("holds 'mine', which no conversion writes", from_pickle.convert, source, folder, force=True)
        self.fails("none of", from_pickle.convert, self.place, self.path("new"))
        self.saved("in/pytorch_adapter.bin", {"w": torch.ones(2)})
        self.fails("want a folder", from_pickle.convert, source.parent, self.path("new.safetensors"))
        self.assertEqual(sorted(os.listdir(self.place)), ["in", "link.safetensors", "out", "out.safetensors"])

    def taken(self, source, make, out, force=True):
        make()
        from_pickle.convert(source, out, force=force)

    def test_whole_or_not_at_all(self):
        source = self.saved("in/pytorch_adapter.bin", {"w": torch.ones(2)}).parent
        (source / "pytorch_model_head.bin").write_bytes(b"PK\3\4")
        self.fails("pytorch_model_head.bin: ", from_pickle.convert, source, self.path("out"))
        self.saved("in/pytorch_model_head.bin", {"w": torch.ones(2)})
        for where in "os.fsync", "kvfold.from_pickle._put":
            for out in "out", "out.safetensors":
                with mock.patch(where, side_effect=KeyboardInterrupt):
                    self.assertRaises(KeyboardInterrupt, from_pickle.convert, source if out == "out" else source / "pytorch_adapter.bin",
                                      self.path(out))
                self.assertEqual(os.listdir(self.place), ["in"])
        from_pickle.convert(source, self.path("out"))
        self.assertEqual(sorted(os.listdir(self.path("out"))), ["adapter.safetensors", "model_head.safetensors"])
