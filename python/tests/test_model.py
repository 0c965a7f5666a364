"""Bases and prefixes compute what the command computes, bit for bit."""
import functools
import json
import math
import os
import pickle
import shutil
import subprocess
import sys
import threading
import traceback
import unittest.mock

import kvfold
import numpy as np
from support import CLASSES, MAKE_TINY, PAIRS, SMALL, TAGGED, Case, answer, command, sentences, write_rows


class SameAsTheCommand(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.prefix = cls.prefix_of(cls.base, PAIRS, "lm")
        cls.at = ["--base", cls.llama, "--prefix", cls.folder / "lm.h5"]

    def test_base(self):
        base = kvfold.Base(self.llama, precision="f32")
        self.assertEqual((base.name, base.architecture, base.precision), ("llama", "llama", "f32"))
        self.assertEqual(base.shape, (2, 4, 2, 8, 32, 64, 258, 512))
        self.assertEqual(base.hash, self.prefix.base_hash)
        self.assertEqual(base.detokenize(base.tokenize("größe")), "größe")
        self.assertEqual(base.tokenize("").dtype, np.int32)

    def test_lora(self):
        """Another base, for which alone a prefix is that was trained on it."""
        lora = self.folder / "lora"
        subprocess.run([MAKE_TINY, lora, "5", "lora"], check=True)
        base = kvfold.Base(self.llama, precision="f32", lora=lora)
        self.assertNotEqual(base.hash, self.base.hash)
        self.assertEqual(base.name, "llama+lora")
        prefix = self.prefix_of(base, PAIRS, "on_lora")
        self.assertEqual(prefix.base_hash, base.hash)
        ours = answer("eval", "--base", self.llama, "--lora", lora, "--prefix", self.folder / "on_lora.h5", "--data", self.pairs,
                      "--precision", "f32")
        self.assertEqual(prefix.eval(PAIRS).loss, ours["loss"])
        self.fails("the prefix is for base llama.lora ", kvfold.Prefix.load, self.folder / "on_lora.h5", self.base)

    def test_generate(self):
        prompts = [row["prompt"] for row in PAIRS]
        greedy = answer("generate", *self.at, "--data", self.pairs, "--max-tokens", 20)["texts"]
        self.assertEqual(self.prefix.generate(prompts, max_tokens=20), greedy)
        self.assertEqual(self.prefix.generate(prompts[3:4], max_tokens=20), greedy[3:4])
        bare = answer("generate", "--base", self.llama, "--data", self.pairs, "--max-tokens", 20)["texts"]
        self.assertEqual(self.base.generate(prompts, max_tokens=20), bare)
        self.assertNotEqual(bare, greedy)
        drawn = answer("generate", *self.at, "--data", self.pairs, "--temperature", 0.8, "--top-p", 0.9, "--top-k", 50, "--min-p",
                       0.01, "--seed", 7, "--stop", "a", "--logit-bias", "98=2.5", "--presence-penalty", 0.5)["texts"]
        self.assertEqual(self.prefix.generate(prompts, temperature=0.8, top_p=0.9, top_k=50, min_p=0.01, seed=7, stop=["a"],
                                              logit_bias={98: 2.5}, presence_penalty=0.5), drawn)
        self.assertEqual(self.prefix.generate([]), [])

    def test_score(self):
        command("score", *self.at, "--data", self.pairs, "--out", self.folder / "scores.jsonl", "--force")
        lines = [json.loads(line) for line in open(self.folder / "scores.jsonl")]
        for got, want in zip(self.prefix.score([(row["prompt"], row["completion"]) for row in PAIRS]), lines):
            self.assertEqual(got.loglikelihood, want["loglikelihood"])
            self.assertEqual(got.ids.tolist(), want["ids"])
            self.assertEqual(got.logprobs.tolist(), [np.float32(x) for x in want["logprobs"]])
            self.assertEqual(got.greedy.tolist(), want["greedy"])
        self.assertEqual(got.logprobs.dtype, np.float32)
        left = self.prefix.score([("a", "b" * 30), ("a", "b")], max_length=9, overlong="skip")
        self.assertEqual([row.loglikelihood is None for row in left], [True, False])

    def test_logits_are_what_score_sums(self):
        row = PAIRS[0]
        prompt = self.base.tokenize(row["prompt"])
        ids = np.concatenate([prompt, self.base.tokenize(row["completion"], special=False)])
        logits = self.prefix.logits(ids).astype(np.float64)
        self.assertEqual(logits.shape, (len(ids), 258))
        logprobs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        want = [logprobs[i, ids[i + 1]] for i in range(len(prompt) - 1, len(ids) - 1)]
        np.testing.assert_allclose(self.prefix.score([row])[0].logprobs, want, atol=1e-5)

    def same_evaluation(self, got, want):
        seconds, counts = want.pop("seconds"), {}
        for name in ("label_tokens", "examples", "skipped", "truncated", "loss", "perplexity", "task", "classes", "entity_types"):
            if name in want:
                counts[name] = want.pop(name)
        self.assertGreater(seconds, 0)
        for name, value in counts.items():
            self.assertEqual(getattr(got, name), value, name)
        self.assertEqual({name: value for name, value in got.scores.items() if name != "loss"}, want)

    def test_eval(self):
        self.same_evaluation(self.prefix.eval(PAIRS), answer("eval", *self.at, "--data", self.pairs))
        self.same_evaluation(self.base.eval(self.pairs), answer("eval", "--base", self.llama, "--data", self.pairs))
        self.same_evaluation(self.prefix.eval(PAIRS, generate=12, limit=5),
                             answer("eval", *self.at, "--data", self.pairs, "--generate", 12, "--limit", 5))

    def test_classes_and_tags(self):
        base = kvfold.Base(self.bert)
        for task, rows in (("seq-cls", CLASSES), ("token-cls", TAGGED)):
            prefix = self.prefix_of(base, rows, task, task=task)
            data, out = write_rows(self.folder / f"{task}.jsonl", rows), self.folder / f"{task}.out.jsonl"
            at = ["--base", self.bert, "--prefix", self.folder / f"{task}.h5", "--data", data]
            command("predict", *at, "--out", out, "--force")
            self.assertEqual(prefix.predict(rows), [json.loads(line) for line in open(out)])
            self.same_evaluation(prefix.eval(rows, per_class=True), answer("eval", *at, "--per-class"))
        self.assertEqual(len(prefix.predict([{"tokens": ["a", "tree"]}])), 1)
        self.assertEqual((prefix.task, prefix.labels), ("token-cls", ["B-X", "O"]))
        self.fails("probabilities.. is for classes", prefix.probabilities, TAGGED, status="EUNSUPPORTED")

    def test_numbers_as_labels(self):
        """Labels that are whole numbers are int; probabilities are an array in their order."""
        rows = [{**row, "label": int(row["label"] == "yes")} for row in CLASSES]
        prefix = self.prefix_of(kvfold.Base(self.bert), rows, "numbers", task="seq-cls")
        self.assertEqual((prefix.task, prefix.labels), ("seq-cls", [0, 1]))
        got = prefix.predict(rows)
        self.assertEqual([row["label"] for row in got], [row["label"] for row in rows])
        shares = prefix.probabilities(rows)
        np.testing.assert_array_equal(shares, [[row["probabilities"][0], row["probabilities"][1]] for row in got])
        np.testing.assert_array_equal(shares.argmax(1), [row["prediction"] for row in got])
        left = prefix.probabilities([{"text": "a" * 200}, {"text": "b"}], max_length=90, overlong="skip")
        self.assertEqual(np.isnan(left).tolist(), [[True, True], [False, False]])


class HubCache(Case):
    def test_a_name_in_the_local_cache(self):
        folder = self.folder / "hub/models--someone--tiny"
        (folder / "refs").mkdir(parents=True)
        (folder / "refs/main").write_text("0123abcd")
        shutil.copytree(self.llama, folder / "snapshots/0123abcd")
        with unittest.mock.patch.dict(os.environ, {"HF_HUB_CACHE": str(self.folder / "hub")}):
            base = kvfold.Base("someone/tiny")
            self.assertEqual((base.name, base.hash), ("someone/tiny", self.base.hash))
            run = kvfold.train(base, PAIRS, out=self.folder / "hub.h5", **SMALL)
            self.assertEqual(run.merge(self.folder / "hub.prefix.h5").generate(["a"], max_tokens=2), run.prefix().generate(["a"], 2))
            self.fails("nor is it in the Hugging Face cache", kvfold.Base, "someone/other", status="EIO")


class Misuse(Case):
    def test_lines(self):
        base = self.base
        self.fails("nowhere: cannot open", kvfold.Base, self.folder / "nowhere", status="EIO")
        self.fails("precision 'f64': want auto, f32, bf16, int8", kvfold.Base, self.llama, precision="f64")
        self.fails("option temprature is not known, the nearest is temperature", base.generate, ["a"], temprature=1)
        self.assertIn("top_k, top_p, ", kvfold.Prefix.generate.__doc__)
        self.fails("option max_new_tokens is not known, the nearest is max_tokens", base.generate, ["a"], max_new_tokens=1)
        self.fails("top_k 1.5: want a whole number", base.generate, ["a"], top_k=1.5)
        self.fails("want a list of texts", base.generate, "a")
        self.fails("U[+]0000", base.generate, ["a\0b"])
        self.fails("a text has a lone surrogate", base.generate, ["a\ud800b"])
        self.fails("rows:2: want a dict", base.score, [("a", "b"), 3], status="EDATA")
        self.fails("rows:1: .*JSON compliant", base.score, [{"prompt": "a", "completion": "b", "x": math.inf}], status="EDATA")
        self.fails("rows:1: .*surrogates", base.score, [("a", "\ud800")], status="EDATA")
        self.fails("overlong 'cut': want stop", base.eval, PAIRS, overlong="cut")
        self.fails("no head to predict with", base.predict, PAIRS, status="EUSAGE")
        self.fails("outside the vocabulary|vocabulary", base.logits, [100000], status="ESHAPE")
        self.fails("comes before", kvfold.set_threads, 1)

    def test_kinds_of_errors(self):
        """An Error is also what Python calls it, by one name; it survives a pickle."""
        for kind, function, *arguments in ((FileNotFoundError, kvfold.Base, "nowhere"), (FileNotFoundError, kvfold.Base, "some/one"),
                                           (ValueError, self.base.generate, "a"), (ValueError, self.base.logits, [100000]),
                                           (ValueError, self.base.score, [3])):
            with self.assertRaises(kind) as caught:
                function(*arguments)
            error = caught.exception
            self.assertEqual(traceback.format_exception_only(type(error), error), [f"kvfold.Error: {error}\n"])
            again = pickle.loads(pickle.dumps(error))
            self.assertEqual((type(again), str(again), again.status), (type(error), str(error), error.status))

    def test_closed(self):
        with kvfold.Base(self.llama) as base:
            prefix = kvfold.Prefix.from_numpy(base, np.zeros((2, 2, 1, 2, 3, 8)))
        base.close()
        for function, *arguments in ((base.generate, ["a"]), (prefix.generate, ["a"]), (base.tokenize, "a"), (getattr, base, "name"),
                                     (kvfold.train, base, PAIRS)):
            options = {"out": self.folder / "closed.h5"} if function is kvfold.train else {}
            self.fails("^the base is closed$", function, *arguments, **options)
        self.assertEqual(prefix.numpy().shape, prefix.shape)

    def test_the_command(self):
        done = subprocess.run([sys.executable, "-m", "kvfold", "--version"], text=True, capture_output=True,
                              env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        self.assertEqual(done.stdout, command("--version"))

    def test_numbers_and_arrays(self):
        """What C would get as another number, or read past, is refused by name."""
        base, values = self.base, np.zeros((2, 2, 1, 2, 3, 8))
        make = functools.partial(kvfold.Prefix.from_numpy, base)
        for ids in ([[65, 66], [67, 68]], np.zeros((9, 0), np.int32), 65):
            self.fails("ids have shape .*, want \\[n\\]", base.logits, ids, status="ESHAPE")
            self.fails("ids have shape", base.detokenize, ids, status="ESHAPE")
        for ids in ([65.9], [True], ["a"], [None], [1j]):
            self.fails("ids are .*, want whole numbers", base.detokenize, ids)
        for ids in (np.array([66, 2**32 + 65]), np.array([2**64 - 1], np.uint64), [-2**31 - 1]):
            self.fails("ids: -?[0-9]+ does not fit int32", base.logits, ids)
        self.fails("ids: ", base.detokenize, [[1], [2, 3]])
        self.assertEqual(base.detokenize(np.array([97, 98], np.uint64)), "ab")
        self.assertEqual(base.detokenize([]), "")
        self.fails("values are complex64, want numbers", make, values.astype(np.complex64))
        self.fails("values: 1e[+]300 does not fit float32", make, np.where(values == 0, 1e300, 0))
        self.fails("layer_mask: -1 does not fit uint8", make, values, layer_mask=[-1, 1])
        self.fails("layer_mask are float64", make, values, layer_mask=[0.5, 1])
        self.fails("log_weights: 1e[+]39 does not fit", make, values, log_weights=np.full((2, 2, 3), 1e39))
        for start, why in ((-5, "want 0 to"), (2**63, "want 0 to"), (1.5, "whole number"), ("P", "whole number")):
            self.fails(f"position_start .*{why}", make, values, position_start=start)
        for option, value in (("max_tokens", 2**64 + 3), ("max_tokens", 2.5), ("seed", -1), ("seed", 2**64), ("top_k", True),
                              ("top_k", "4"), ("beams", math.inf), ("beams", math.nan), ("temperature", "hot"),
                              ("top_p", np.zeros((9, 9)))):
            self.fails(f"{option} .*: want ", base.generate, ["a"], **{option: value})
        for bias in ({2**32 + 65: 1}, {65: 1e39}, {65: "much"}, {6.5: 1}):
            self.fails("logit_bias .*: want ", base.generate, ["a"], logit_bias=bias)
        self.fails("per_class 'False': want True or False", base.eval, PAIRS, per_class="False")
        self.fails("limit .*: want -9", base.eval, PAIRS, limit=2**64 + 1)
        self.assertEqual(base.generate(["a"], max_tokens=np.int16(2), top_k=5.0, seed=2**64 - 1, temperature=np.float32(0)),
                         base.generate(["a"], max_tokens=2))

    def test_rows_of_any_kind(self):
        want = self.base.score([{"prompt": "ab", "completion": "cd"}, {"text": "abcd"}])
        got = self.base.score(iter([("ab", "cd"), "abcd"]))
        self.assertEqual([row.loglikelihood for row in got], [row.loglikelihood for row in want])
        ids = np.array([97, 98, 99], dtype=np.int64)
        self.assertEqual(self.base.score([{"input_ids": ids, "labels": ids}])[0].ids.tolist(), [98, 99])


class Threads(Case):
    def test_one_base_for_many(self):
        """Callers in other threads wait for each other, and get what they get alone."""
        prompts = sentences(6)
        want = [self.base.generate([prompt], max_tokens=8)[0] for prompt in prompts]
        got, errors = {}, []

        def ask(base, i):
            try:
                got[i] = base.generate([prompts[i % 6]], max_tokens=8)[0]
                base.score([1])
            except kvfold.Error as error:
                errors.append(str(error))

        other = kvfold.Base(self.llama)
        threads = [threading.Thread(target=ask, args=((self.base, other)[i % 2], i)) for i in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([got[i] for i in range(12)], want * 2)
        self.assertEqual(len(errors), 12)
        self.assertEqual(len(set(errors)), 1)

    def test_the_gil_is_released(self):
        """A thread of Python counts while C computes."""
        ticks, stop = [0], threading.Event()

        def count():
            while not stop.wait(0.001):
                ticks[0] += 1

        counter = threading.Thread(target=count)
        counter.start()
        before = ticks[0]
        self.base.generate(["a"] * 64, max_tokens=200)
        during = ticks[0] - before
        stop.set()
        counter.join()
        self.assertGreater(during, 5)
