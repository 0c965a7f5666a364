"""Training from files and from rows writes the bytes of the command; events, history, Ctrl-C."""
import contextlib
import functools
import importlib.util
import io
import logging
import math
import operator
import os
import re
import signal
import subprocess
import sys
import threading

import kvfold
import numpy as np
from support import CLASSES, PAIRS, SMALL, Case, command, flags, sentences, write_rows


class Training(Case):
    def bytes_of(self, name):
        return (self.folder / name).read_bytes()

    def by_command(self, name, *data, **options):
        command("train", "--base", self.llama, "--data", self.pairs, "--out", self.folder / name, "--quiet", *data, *flags(options))
        return self.bytes_of(name)

    def test_same_bytes(self):
        options = {**SMALL, "encoder_hidden": 8}
        want = self.by_command("command.h5", "--valid", self.pairs, **options)
        kvfold.train(self.base, self.pairs, valid=self.pairs, out=self.folder / "path.h5", **options)
        self.assertEqual(self.bytes_of("path.h5"), want)
        run = kvfold.train(self.base, PAIRS, valid=iter(PAIRS), out=self.folder / "rows.h5", **options)
        self.assertEqual(self.bytes_of("rows.h5"), want)
        run.merge(self.folder / "rows.prefix.h5")
        command("merge", self.folder / "command.h5", "--out", self.folder / "command.prefix.h5")
        self.assertEqual(self.bytes_of("rows.prefix.h5"), self.bytes_of("command.prefix.h5"))
        self.assertEqual(run.result.steps, 4)
        self.assertEqual(run.result.best_valid_loss, np.nanmin(run.history["valid_loss"]))

    def test_same_bytes_of_options(self):
        """Flags, on|off, numbers, lists."""
        want = self.by_command("o.h5", "--method", "direct", "--shuffle", "off", "--lr", "0.1", "--limit", "8", "--steps", "2",
                               "--force")
        kvfold.train(self.base, self.pairs, out=self.folder / "o2.h5", method="direct", shuffle=False, lr=0.1, limit=8,
                     steps=np.int64(2), force=True)
        self.assertEqual(self.bytes_of("o2.h5"), want)
        bert = kvfold.Base(self.bert)
        data = write_rows(self.folder / "c.jsonl", CLASSES)
        command("train", "--base", self.bert, "--data", data, "--out", self.folder / "c.h5", "--quiet", "--task", "seq-cls",
                "--labels", "yes,no", *flags(SMALL))
        run = kvfold.train(bert, CLASSES, out=self.folder / "c2.h5", task="seq-cls", labels=["yes", "no"], **SMALL)
        self.assertEqual(self.bytes_of("c2.h5"), self.bytes_of("c.h5"))
        self.assertTrue(math.isnan(run.result.valid_loss))

    def same_as_rows(self, data, name):
        kvfold.train(self.base, data, out=self.folder / name, **SMALL)
        kvfold.train(self.base, PAIRS, out=self.folder / "as_dicts.h5", **SMALL)
        self.assertEqual(self.bytes_of(name), self.bytes_of("as_dicts.h5"))

    def test_tables(self):
        """Tables of other packages, with columns that kvfold does not read and holes in them, and dicts of columns."""
        extra = [{**row, "n": i, "note": "x" if i % 2 else None} for i, row in enumerate(PAIRS)]
        self.same_as_rows({name: [row[name] for row in PAIRS] for name in PAIRS[0]}, "columns.h5")
        for package in ("pandas", "polars", "pyarrow", "datasets"):
            with self.subTest(package):
                if not importlib.util.find_spec(package):
                    self.skipTest(f"no {package}")
                module = importlib.import_module(package)
                table = {"pandas": "DataFrame", "polars": "DataFrame", "pyarrow": "Table.from_pylist", "datasets": "Dataset.from_list"}
                make = operator.attrgetter(table[package])(module)
                self.same_as_rows(make(PAIRS), f"{package}.h5")
                kvfold.train(self.base, make(extra), out=self.folder / "extra.h5", **SMALL)
                kvfold.train(self.base, extra, out=self.folder / "extra_rows.h5", **SMALL)
                self.assertEqual(self.bytes_of("extra.h5"), self.bytes_of("extra_rows.h5"))
                if package == "pandas":
                    frame = kvfold.Run(self.folder / "pandas.h5").history.to_pandas()
                    self.assertEqual(list(frame["step"]), [1, 2, 3, 4])
                    self.same_as_rows(make(PAIRS).itertuples(index=False), "tuples.h5")
                if package == "datasets":
                    self.fails('splits train, test: choose one, data."train".', kvfold.train, self.base,
                               module.DatasetDict(train=make(PAIRS), test=make(PAIRS)), out=self.folder / "no.h5")

    def test_class_labels(self):
        """Numbers of a ClassLabel are its names."""
        try:
            import datasets
        except ImportError:
            self.skipTest("no datasets")
        bert, names = kvfold.Base(self.bert), ["yes", "no"]
        data = datasets.Dataset.from_list([{**row, "label": names.index(row["label"])} for row in CLASSES])
        data = data.cast_column("label", datasets.ClassLabel(names=names))
        self.assertEqual(self.prefix_of(bert, data, "named", task="seq-cls").labels, ["no", "yes"])

    def test_dicts_and_lists_of_options(self):
        """They mean what they say, or are refused by name."""
        rows = [{"prompt": "DECOY", "question": f"q{i}", "answer": "y"} for i in range(6)]
        losses = [kvfold.train(self.base, rows, out=self.folder / "map.h5", map=fields, **SMALL).result.train_loss
                  for fields in ("prompt=question,completion=answer", {"prompt": "question", "completion": "answer"})]
        self.assertEqual(*losses)
        self.assertEqual(self.base.eval(rows, map={"prompt": "question", "completion": "answer"}).loss,
                         self.base.eval(rows, map="prompt=question,completion=answer").loss)
        bert = kvfold.Base(self.bert)
        for labels, want in (({0: "yes", 1: "no"}, ["yes", "no"]), ({"yes": 1, "no": 0}, ["no", "yes"])):
            self.assertEqual(self.prefix_of(bert, CLASSES, "by_id", task="seq-cls", labels=labels).labels, want)
        commas = [{**row, "label": row["label"] + ", or not"} for row in CLASSES]
        self.assertEqual(self.prefix_of(bert, commas, "commas", task="seq-cls", labels=["yes, or not", "no, or not"]).labels,
                         ["yes, or not", "no, or not"])
        train = functools.partial(kvfold.train, self.base, out=self.folder / "no.h5")
        self.fails("lr: want X, not a dict", train, PAIRS, lr={"a": 1})
        self.fails('map: "a,b=c" has a comma', train, PAIRS, map={"a,b": "c"})
        self.fails('rows:1: "pairs.jsonl" is a path', train, ["pairs.jsonl", "more.jsonl"], status="EDATA")
        self.fails("texts prompt, completion.*list, .row.", train, PAIRS[0])
        self.fails("data is of type int: want a path or rows", train, 3)
        self.fails("a dict of nothing", train, {})
        self.fails("differ in length: prompt 2, completion 1", train, {"prompt": ["a", "b"], "completion": ["c"]})
        self.fails("rows of one task", self.base.score, {"a": PAIRS, "b": PAIRS})
        self.fails("labels: want names by the numbers 0 to 1", train, CLASSES, task="seq-cls", labels={0: "yes", 2: "no"})

    def test_progress(self):
        """The line names the last step and its validation; a pipe gets none unless it is asked for."""
        lines = io.StringIO()
        with contextlib.redirect_stderr(lines):
            kvfold.train(self.base, PAIRS, valid=PAIRS[:2], out=self.folder / "bar.h5", **SMALL)
            self.assertEqual(lines.getvalue(), "")
            kvfold.train(self.base, PAIRS, valid=PAIRS[:2], out=self.folder / "bar.h5", progress=True, **SMALL)
        last = lines.getvalue().split("\r")[-1]
        self.assertRegex(last, "█{20} 4/4  loss [0-9.]+  valid [0-9.]+")
        self.assertTrue(last.endswith("\n"))

    def test_several_tasks(self):
        bert = kvfold.Base(self.bert)
        other = [{"text": text, "label": str("tree" in text)} for text in sentences(20, 2)]
        run = kvfold.train(bert, {"a": CLASSES, "b": other}, out=self.folder / "both.h5", task="seq-cls", **SMALL)
        prefix = run.merge(self.folder / "a.h5", head="a")
        self.assertEqual((prefix.task, prefix.heads, prefix.labels), ("seq-cls", [], ["no", "yes"]))
        all_heads = run.merge(self.folder / "all.h5")
        self.assertEqual((all_heads.task, all_heads.heads, all_heads.labels), ("multi-task", ["a", "b"], []))
        self.fails("has the heads a, b: open one", all_heads.predict, CLASSES)
        for each in (kvfold.Prefix.load(self.folder / "all.h5", bert, head="a"), run.prefix(head="a")):
            np.testing.assert_array_equal(each.probabilities(CLASSES), prefix.probabilities(CLASSES))

    def test_a_base_is_as_before(self):
        """Training packs it for backward passes too, with the same bits; and twice is as once."""
        base = kvfold.Base(self.llama)
        before = base.score(PAIRS)
        runs = []
        for _ in range(2):
            kvfold.train(base, PAIRS, out=self.folder / "again.h5", **SMALL)
            runs.append(self.bytes_of("again.h5"))
        self.assertEqual(runs[0], runs[1])
        for a, b in zip(before, base.score(PAIRS)):
            np.testing.assert_array_equal(a.logprobs, b.logprobs)

    def test_events_and_history(self):
        events = []
        run = kvfold.train(self.base, PAIRS, valid=PAIRS[:4], out=self.folder / "e.h5", eval_every=2, on_event=events.append, **SMALL)
        steps = [event for event in events if event.kind == "step"]
        self.assertEqual([(e.step, e.steps) for e in steps], [(i, 4) for i in range(1, 5)])
        history = run.history
        np.testing.assert_array_equal(history["train_loss"], [e.train_loss for e in steps])
        np.testing.assert_array_equal(history["lr"], [e.lr for e in steps])
        evals = [event for event in events if event.kind == "eval"]
        np.testing.assert_array_equal(history["valid_loss"][[1, 3]], [e.valid_loss for e in evals])
        self.assertTrue(np.isnan(history["valid_loss"][0]))
        self.assertEqual(events[-1].kind, "save")
        owners = {"train_loss": "step", "lr": "step", "grad_norm": "step", "prefix_norm": "step", "tokens_per_second": "step",
                  "valid_loss": "eval", "metric_value": "eval", "retention_loss": "retention"}
        for event in events:
            for name, owner in owners.items():
                self.assertEqual(math.isnan(getattr(event, name)), event.kind != owner, (event.kind, name))
            self.assertEqual((event.metric, event.best) == ("", False), event.kind != "eval")
        self.assertEqual({"step", "train_loss", "valid_loss", "lr", "grad_norm"} - set(history), set())

    def test_dry_run(self):
        run = kvfold.train(self.base, PAIRS, out=self.folder / "dry.h5", dry_run=True, **SMALL)
        self.assertEqual(run.result.forecast["steps"], 4)
        self.assertFalse((self.folder / "dry.h5").exists())

    def stopped_then_resumed(self, name, error, on_event):
        options = {name: value for name, value in SMALL.items() if name != "force"}
        with self.assertRaises(error):
            kvfold.train(self.base, PAIRS, out=self.folder / name, on_event=on_event, **options)
        self.assertEqual(list(kvfold.Run(self.folder / name).history["step"]), [1, 2])
        kvfold.train(self.base, PAIRS, out=self.folder / name, resume=True, **options)
        kvfold.train(self.base, PAIRS, out=self.folder / "whole.h5", **SMALL)
        self.assertEqual(self.bytes_of(name), self.bytes_of("whole.h5"))

    def test_ctrl_c(self):
        def interrupt(event):
            if (event.kind, event.step) == ("step", 2):
                os.kill(os.getpid(), signal.SIGINT)

        before = signal.default_int_handler  # a shell's background job begins with SIGINT ignored
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, before))
        self.stopped_then_resumed("ctrl_c.h5", KeyboardInterrupt, interrupt)
        self.assertIs(signal.getsignal(signal.SIGINT), before)

    def test_ctrl_c_from_outside(self):
        """A program that trains for long gets SIGINT as a terminal sends it."""
        program = ("import kvfold, signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
                   f"kvfold.train(kvfold.Base({self.llama!r}), {self.pairs!r}, out={str(self.folder / 'p.h5')!r}, "
                   "steps=100000, on_event=lambda e: e.step == 3 and e.kind == 'step' and print('go', flush=True))")
        child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                 env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        self.assertEqual(child.stdout.readline(), "go\n")
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=120)
        self.assertIn("KeyboardInterrupt", err)
        steps = kvfold.Run(self.folder / "p.h5").history["step"]
        self.assertGreaterEqual(len(steps), 3)
        self.assertLess(len(steps), 100000)

    def test_a_callback_that_fails(self):
        def fail(event):
            if event.step == 2:
                raise ZeroDivisionError

        self.stopped_then_resumed("fails.h5", ZeroDivisionError, fail)

    def test_the_base_is_taken_while_it_trains(self):
        with self.assertRaisesRegex(kvfold.Error, "in use"):
            kvfold.train(self.base, PAIRS, out=self.folder / "taken.h5", on_event=lambda event: self.base.generate(["a"]), **SMALL)
        self.assertEqual(len(self.base.generate(["a"])), 1)
        base = kvfold.Base(self.llama)  # whose training would open it once more
        with self.assertRaisesRegex(kvfold.Error, "in use"):
            kvfold.train(base, PAIRS, out=self.folder / "taken.h5", method="adapter", adapter_size=2, steps=2, force=True,
                         on_event=lambda event: kvfold.train(base, PAIRS, out=self.folder / "inner.h5", **SMALL))
        self.assertEqual(len(base.generate(["a"])), 1)

    def test_in_another_thread(self):
        done = []
        thread = threading.Thread(target=lambda: done.append(
            kvfold.train(self.base, PAIRS, out=self.folder / "thread.h5", **SMALL).result.steps))
        thread.start()
        thread.join()
        self.assertEqual(done, [4])
        kvfold.train(self.base, PAIRS, out=self.folder / "main.h5", **SMALL)
        self.assertEqual(self.bytes_of("thread.h5"), self.bytes_of("main.h5"))

    def test_misuse(self):
        out = self.folder / "m.h5"
        for option, ours in (("stps", "steps"), ("learning_rate", "lr"), ("num_virtual_tokens", "prefix_length")):
            self.fails(f"^option {option} is not known, the nearest is {ours}$", kvfold.train, self.base, PAIRS, out=out, **{option: 1})
        self.fails("^lr \"fast\"", kvfold.train, self.base, PAIRS, out=out, lr="fast")
        self.fails("rows:1: none of the fields", kvfold.train, self.base, [{"a": 1}], out=out, status="EDATA")
        self.fails("", kvfold.train, self.base, [], out=out)
        self.fails("precision bf16", kvfold.train, self.base, PAIRS, out=out, precision="bf16", **SMALL)
        self.assertFalse(out.exists())
        kvfold.train(self.llama, PAIRS, out=out, **SMALL)  # a base by its path
        self.fails("exists .force=True replaces it, resume=True", kvfold.train, self.base, PAIRS, out=out, steps=1, status="EEXIST")
        self.fails("", kvfold.History, self.pairs)

    def test_options_are_listed(self):
        """train_options(), the TypedDict and help() have the same names; choices are those of the command."""
        types = kvfold.TrainOptions.__annotations__
        given = ("base", "data", "valid", "out")
        options = {o.name.replace("-", "_"): o for o in kvfold.train_options() if o.name not in given}
        self.assertEqual(list(types), list(options))
        for name, kind in types.items():
            self.assertIn(f"\n        {name}=", kvfold.train.__doc__)
            choices = re.search(r"Literal\[([^]]*)\]", kind.__forward_arg__)
            if choices:
                self.assertEqual(re.sub("['\"]", "", choices[1]).split(", "), options[name].argument.split("|"), name)
            elif kind.__forward_arg__ == "bool":
                self.assertIn(options[name].argument, (None, "on|off"), name)
        self.assertIn("Literal", types["method"].__forward_arg__)
        self.assertEqual(types["steps"].__forward_arg__, "int")

    def test_notes_are_logged(self):
        with self.assertLogs("kvfold", logging.INFO) as logs:
            kvfold.train(self.base, PAIRS, out=self.folder / "logged.h5", **{**SMALL, "encoder_hidden": 8})
        self.assertIn("relative error", "".join(logs.output))
