"""A prefix in models of transformers: logits within 2e-3 of kvfold's in every family, generate() on rows of unequal length, and
torch before or after kvfold in one process. Skipped where torch and transformers are missing; SmolLM2 and MiniLM where they are not
in ~/.cache/kvfold.
"""
import contextlib
import importlib.util
import io
import os
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

import kvfold
import numpy as np
from support import CLASSES, PAIRS, ROOT, Case

if not all(importlib.util.find_spec(name) for name in ("torch", "transformers")):
    raise unittest.SkipTest("no torch and transformers")
import torch  # noqa: E402
import transformers  # noqa: E402

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
CLOSE = {"rtol": 0, "atol": 2e-3}
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kvfold"
TEXTS = ["w3: good", "w1: a bad old day by the river", "x"]
SIZE = {"vocab_size": 258, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
        "max_position_embeddings": 256, "bos_token_id": 256, "eos_token_id": 257}
GROUPED = {**SIZE, "num_key_value_heads": 2}
FAMILIES = {
    "llama": GROUPED,
    "mistral": {**GROUPED, "sliding_window": None},
    "qwen2": GROUPED,
    "qwen3": {**GROUPED, "head_dim": 16},
    "gpt2": {"vocab_size": 258, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 256, "eos_token_id": 257},
    "openai-gpt": {"vocab_size": 258, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 256},
    "bert": {**SIZE, "pad_token_id": 0},
    "roberta": {**SIZE, "pad_token_id": 1, "max_position_embeddings": 258},
    "xlm-roberta": {**SIZE, "pad_token_id": 1, "max_position_embeddings": 258},
    "electra": {**SIZE, "pad_token_id": 0, "embedding_size": 16},
}
ENCODERS = ("bert", "roberta", "xlm-roberta", "electra")


def without_grad(model, inputs):
    with torch.no_grad():
        return model(**inputs).logits.float().numpy()


needs_peft = unittest.skipUnless(importlib.util.find_spec("peft"), "no peft")


def head_agrees(case, path, tokenizer, name):
    """to_peft brings a classifier; inputs() bring the prefix to the model below it, and logits are kvfold's."""
    import peft

    prefix = case.prefix_of(kvfold.Base(path, precision="f32"), CLASSES, name, task="seq-cls", steps=12)
    prefix.to_peft(case.folder / f"{name}.peft", base_id=path)
    adapter = peft.AutoPeftModelForSequenceClassification.from_pretrained(case.folder / f"{name}.peft", dtype=torch.float32,
                                                                          num_labels=2).eval()
    texts = [row["text"] for row in CLASSES]
    for row, want in zip(without_grad(adapter.get_base_model(), prefix.inputs(tokenizer, texts)), prefix.predict(CLASSES)):
        log_shares = row - np.log(np.exp(row).sum())
        np.testing.assert_allclose(log_shares, np.log(list(want["probabilities"].values())), **CLOSE)


class Families(Case):
    def family(self, name):
        """A random model of it in a folder, with a tokenizer of bytes; weights large enough that a prefix matters."""
        folder = self.folder / name
        if not folder.exists():
            torch.manual_seed(0)
            encoder = name in ENCODERS
            config = transformers.AutoConfig.for_model(name, initializer_range=0.2, **FAMILIES[name])
            kind = transformers.AutoModel if encoder else transformers.AutoModelForCausalLM
            kind.from_config(config).save_pretrained(folder)
            for file in ("tokenizer.json", "tokenizer_config.json"):
                shutil.copy(Path(self.bert if encoder else self.llama) / file, folder)
        return str(folder)

    def tokenizer(self, path):
        """Of bytes; AutoTokenizer would add tokens of the family, which random models have no rows for."""
        encoder = path.endswith(ENCODERS)
        special = {"pad_token": "Ā"} if encoder else {"bos_token": "<s>", "eos_token": "</s>"}
        return transformers.PreTrainedTokenizerFast(tokenizer_file=f"{path}/tokenizer.json", **special)

    def test_logits_of_causal_families(self):
        for name in ("llama", "mistral", "qwen2", "qwen3", "gpt2"):
            with self.subTest(name):
                path = self.family(name)
                base = kvfold.Base(path, precision="f32")
                prefix = self.prefix_of(base, PAIRS, f"lm.{name}")
                model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
                tokenizer = self.tokenizer(path)
                moved = kvfold.Prefix.from_numpy(base, prefix.numpy(), position_start=9)
                for each in (prefix, moved):
                    logits = without_grad(model, each.inputs(tokenizer, TEXTS, forward=True))
                    for row, text in zip(logits, TEXTS):
                        ids = base.tokenize(text)
                        np.testing.assert_allclose(row[-len(ids):], each.logits(ids), **CLOSE)
                ids = base.tokenize(TEXTS[0])
                self.assertGreater(abs(base.logits(ids) - prefix.logits(ids)).max(), 0.1)

    def test_generate(self):
        """Rows of unequal length, greedy, beams, several answers: what each row gives alone, and what kvfold gives."""
        path = self.family("llama")
        base = kvfold.Base(path, precision="f32")
        tokenizer = self.tokenizer(path)
        model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        trained = self.prefix_of(base, PAIRS, "generate")
        for prefix in (trained, kvfold.Prefix.from_numpy(base, trained.numpy(), position_start=9)):
            for options, ours in (({}, {}), ({"num_beams": 3}, {"beams": 3})):
                inputs = prefix.inputs(tokenizer, TEXTS)
                T = inputs["input_ids"].shape[1]
                self.assertEqual(T, prefix.length + max(len(base.tokenize(text)) for text in TEXTS))
                out = model.generate(**inputs, max_new_tokens=6, do_sample=False, **options)
                texts = tokenizer.batch_decode(out[:, T:], skip_special_tokens=True)
                self.assertEqual(texts, prefix.generate(TEXTS, max_tokens=6, **ours))
                for again in (lambda: model.generate(**inputs), lambda: model(**inputs)):
                    self.fails("inputs were used.*call prefix.inputs.. again", again)
        out = model.generate(**trained.inputs(tokenizer, TEXTS).to("cpu"), max_new_tokens=3, do_sample=True, num_return_sequences=2)
        self.assertEqual(out.shape, (6, T + 3))

    @unittest.skipUnless(importlib.util.find_spec("h5py"), "no h5py")
    def test_nothing_is_deprecated(self):
        """Names of arguments are those of the installed version, in inputs() and in the example. A program of its own shows the
        first warning, which transformers gives once."""
        path = self.family("llama")
        self.prefix_of(kvfold.Base(path), PAIRS, "named")
        program = ("import sys, kvfold, torch, transformers\nbase, prefix, examples = sys.argv[1:]\nsys.path.insert(0, examples)\n"
                   "import prefix_in_transformers as example\n"
                   "model = transformers.AutoModelForCausalLM.from_pretrained(base)\n"
                   "tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=base + '/tokenizer.json', eos_token='</s>')\n"
                   "ours = kvfold.Prefix.load(prefix, kvfold.Base(base))\n"
                   "model.generate(**ours.inputs(tokenizer, ['ab']), max_new_tokens=2)\n"
                   "model(**ours.inputs(tokenizer, ['ab'], forward=True))\n"
                   "example.complete(model, tokenizer, 'ab', *example.load(prefix), 2)\n")
        done = subprocess.run([sys.executable, "-W", "always", "-c", program, path, str(self.folder / "named.h5"),
                               str(ROOT / "examples")], text=True, capture_output=True, timeout=300,
                              env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        self.assertEqual(done.returncode, 0, done.stderr)
        for word in ("deprecated", "past_key_values"):
            self.assertNotIn(word, done.stderr)

    def test_the_model_s_type(self):
        path = self.family("llama")
        prefix = self.prefix_of(kvfold.Base(path), PAIRS, "type")
        model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16).eval()
        tokenizer = self.tokenizer(path)
        out = model.generate(**prefix.inputs(tokenizer, TEXTS), max_new_tokens=3, do_sample=False)
        self.assertEqual(out.shape[0], 3)

    @needs_peft
    def test_the_card_of_an_adapter(self):
        """Logits of PEFT's forward are kvfold's. The card's code prints whether generate() uses the prefix, too."""
        path = self.family("llama")
        base = kvfold.Base(path, precision="f32")
        prefix = self.prefix_of(base, PAIRS, "card")
        prefix.to_peft(self.folder / "card", base_id=path)
        code = "".join(re.findall("```python\n(.*?)```", (self.folder / "card/README.md").read_text(), re.DOTALL))
        names, printed = {}, io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code.replace('"."', repr(str(self.folder / "card"))), names)
        model, x = names["model"], names["x"]
        with torch.no_grad():
            np.testing.assert_allclose(model(**x).logits[0].numpy(), prefix.logits([1, 2, 3]), **CLOSE)
        first = model.generate(**x, max_new_tokens=1, output_logits=True, return_dict_in_generate=True).logits[0][0].numpy()
        self.assertEqual(printed.getvalue(), f"{bool(abs(first - prefix.logits([1, 2, 3])[-1]).max() < 0.01)}\n")
        if not printed.getvalue().startswith("True"):
            np.testing.assert_allclose(first, base.logits([1, 2, 3])[-1], **CLOSE)

    @needs_peft
    def test_heads_of_encoders(self):
        for name in ENCODERS:
            with self.subTest(name):
                path = self.family(name)
                tokenizer = self.tokenizer(path)
                tokenizer.pad_token_id = FAMILIES[name]["pad_token_id"]
                head_agrees(self, path, tokenizer, name)

    def test_refused(self):
        base = kvfold.Base(self.llama)
        tokenizer = self.tokenizer(self.llama)
        for options, why in (({"infix": True}, "inside rows"), ({"layers": "1-1"}, "some layers only"),
                             ({"method": "adapter", "adapter_size": 2, "prefix_length": None}, "no keys and values")):
            prefix = self.prefix_of(base, PAIRS, "refused", **options)
            self.fails(why, prefix.inputs, tokenizer, TEXTS, status="EUNSUPPORTED")
        prefix = self.prefix_of(kvfold.Base(self.family("openai-gpt")), PAIRS, "gpt")
        self.fails("has no cache", prefix.inputs, tokenizer, TEXTS, status="EUNSUPPORTED")
        prefix = self.prefix_of(base, PAIRS, "right")
        self.fails("want a list of texts", prefix.inputs, tokenizer, "text")
        self.fails("without a token", prefix.inputs, tokenizer, ["a", ""])


class RealModels(Case):
    @unittest.skipUnless((CACHE / "SmolLM2-135M-Instruct.Q4_1.gguf").exists(), "no SmolLM2")
    @unittest.skipUnless(importlib.util.find_spec("gguf"), "no gguf")
    def test_smollm2(self):
        path = CACHE / "SmolLM2-135M-Instruct.Q4_1.gguf"
        base = kvfold.Base(path, precision="f32")
        where = {"pretrained_model_name_or_path": str(CACHE), "gguf_file": path.name}
        model = transformers.AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32).eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(**where)
        prefix = self.prefix_of(base, PAIRS, "smollm2", steps=2, batch_size=2)
        texts = ["Internet, noun:", "The capital of France is a city with"]
        logits = without_grad(model, prefix.inputs(tokenizer, texts, forward=True))
        for row, text in zip(logits, texts):
            ids = base.tokenize(text)
            np.testing.assert_allclose(row[-len(ids):], prefix.logits(ids), **CLOSE)
        inputs = prefix.inputs(tokenizer, texts)
        out = model.generate(**inputs, max_new_tokens=12, do_sample=False)
        self.assertEqual(tokenizer.batch_decode(out[:, inputs["input_ids"].shape[1]:], skip_special_tokens=True),
                         prefix.generate(texts, max_tokens=12))


    @needs_peft
    @unittest.skipUnless((CACHE / "all-MiniLM-L6-v2/model.safetensors").exists(), "no MiniLM")
    def test_minilm(self):
        path = str(CACHE / "all-MiniLM-L6-v2")
        head_agrees(self, path, transformers.AutoTokenizer.from_pretrained(path), "minilm")


class TwoRuntimes(Case):
    PROGRAM = """
import sys
for name in sys.argv[1].split(","): __import__(name)
import kvfold
base = kvfold.Base(sys.argv[2], precision="f32")
def ours(): return kvfold.train(base, [("w1:", " ab")] * 8, out=sys.argv[3], method="direct", steps=5, force=True).result.train_loss
def theirs(): return (torch.ones(256, 256) @ torch.ones(256, 256)).sum().item()
if "torch" in sys.modules:
    import torch
    before = torch.get_num_threads()
    want = ours(), theirs()
    for _ in range(3): assert (ours(), theirs()) == want
    assert torch.get_num_threads() == before
print(repr(ours()))
"""

    def test_torch_before_and_after(self):
        def run(modules):
            done = subprocess.run([sys.executable, "-c", self.PROGRAM, modules, self.llama, str(self.folder / "two.h5")], text=True,
                                  capture_output=True, timeout=300, env={**environment, "PYTHONPATH": os.pathsep.join(sys.path)})
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout

        environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
        alone = run("kvfold")
        self.assertEqual(run("torch,kvfold"), alone)
        self.assertEqual(run("kvfold,torch"), alone)
