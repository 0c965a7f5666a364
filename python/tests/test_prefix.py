"""Prefixes: files, arrays without a copy, PEFT folders."""
import functools
import gc

import kvfold
import numpy as np
from support import PAIRS, Case, answer, command


class Prefixes(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.prefix = cls.prefix_of(cls.base, PAIRS, "lm")

    def test_array_is_the_memory_of_the_prefix(self):
        prefix = kvfold.Prefix.load(self.folder / "lm.h5")
        array = prefix.numpy()
        self.assertEqual((array.shape, array.dtype), ((2, 2, 1, 2, 3, 8), np.float32))
        self.assertEqual(array.ctypes.data, prefix.numpy().ctypes.data)
        self.assertFalse(array.flags.writeable)
        copy = array.copy()
        view = array[1]
        del prefix, array
        gc.collect()
        fill = [np.random.rand(96 * k) for k in range(1, 200)]  # memory that was freed would be used again
        np.testing.assert_array_equal(view, copy[1])
        del fill

    def test_as_an_array(self):
        array = self.prefix.numpy()
        self.assertEqual((self.prefix.shape, self.prefix.dtype, self.prefix.task), (array.shape, array.dtype, "lm"))
        self.assertEqual(np.asarray(self.prefix).ctypes.data, array.ctypes.data)
        np.testing.assert_array_equal(np.array(self.prefix, dtype=np.float64), array.astype(np.float64))
        self.assertNotEqual(np.array(self.prefix).ctypes.data, array.ctypes.data)

    def test_from_numpy(self):
        array = self.prefix.numpy()
        for values in (array, array.astype(np.float64), array.tolist()):
            made = kvfold.Prefix.from_numpy(self.base, values)
            self.assertEqual(made.generate(["w1:"]), self.prefix.generate(["w1:"]))
        self.assertEqual((made.length, made.position_start), (3, 3))
        self.assertEqual(kvfold.Prefix.from_numpy(self.base, array, position_start=9).position_start, 9)
        made.save(self.folder / "saved.h5")
        self.assertEqual("", command("diff", self.folder / "lm.h5", self.folder / "saved.h5", "--tensors-only"))
        self.fails("exists", made.save, self.folder / "saved.h5", status="EEXIST")
        made.save(self.folder / "saved.h5", dtype="int8", force=True)
        again = kvfold.Prefix.load(self.folder / "saved.h5", self.base)
        self.assertLess(abs(again.numpy() - array).max(), 0.05)
        self.fails("want \\[L, 2, 1, G, P, D\\]", kvfold.Prefix.from_numpy, self.base, array[0], status="ESHAPE")
        self.fails("", kvfold.Prefix.from_numpy, self.base, array[:1], status="ESHAPE")
        self.fails("is nan", kvfold.Prefix.from_numpy, self.base, np.where(array > 0, np.nan, array), status="ENUMERIC")

    def test_neurons(self):
        self.assertEqual(self.prefix.neurons(), {})
        run = self.folder / "neurons.h5"
        kvfold.train(self.base, PAIRS, out=run, method="direct", prefix_length=0, ffn_length=3, ffn_lr=0.1, steps=2)
        prefix = kvfold.Prefix.load(run, self.base)
        neurons = prefix.neurons()
        self.assertEqual(sorted(neurons), ["gate", "up", "value"])
        self.assertTrue(all(array.dtype == np.float32 and array.shape[1] == 3 for array in neurons.values()))
        self.assertGreater(np.abs(neurons["value"]).max(), 0)
        self.assertEqual(prefix.length, 0)
        self.assertNotEqual(prefix.generate(["w1:"]), [])
        self.fails("virtual neurons", prefix.inputs, None, ["a"], status="EUNSUPPORTED")

    def test_log_weights(self):
        self.assertIsNone(self.prefix.log_weights)
        array = self.prefix.numpy()
        shape = (array.shape[0], array.shape[3], array.shape[4])
        weights = np.linspace(-2, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)
        made = kvfold.Prefix.from_numpy(self.base, array, log_weights=weights)
        np.testing.assert_array_equal(made.log_weights, weights)
        made.save(self.folder / "weighted.h5")
        again = kvfold.Prefix.load(self.folder / "weighted.h5", self.base)
        np.testing.assert_array_equal(again.log_weights, weights)
        ids = self.base.tokenize("w1: abc")
        np.testing.assert_array_equal(again.logits(ids), made.logits(ids))
        self.assertGreater(abs(made.logits(ids) - self.prefix.logits(ids)).max(), 1e-3)
        zeros = kvfold.Prefix.from_numpy(self.base, array, log_weights=0 * weights)
        np.testing.assert_array_equal(zeros.logits(ids), self.prefix.logits(ids))
        make = functools.partial(kvfold.Prefix.from_numpy, self.base, array)
        self.fails("want \\[L, G, P\\]", make, log_weights=weights[0], status="ESHAPE")
        self.fails("log-weights are", make, log_weights=weights[:1], status="ESHAPE")
        self.fails("is nan", make, log_weights=weights * np.nan, status="ENUMERIC")
        self.fails("log-weights", made.to_peft, self.folder / "weighted", status="EUNSUPPORTED")
        self.fails("log-weights", made.inputs, None, ["a"], status="EUNSUPPORTED")

    def test_layer_mask(self):
        array = self.prefix.numpy()
        self.assertTrue(self.prefix.layer_mask.all() and not self.prefix.relative_bias)
        mask = np.arange(array.shape[0]) > 0
        made = kvfold.Prefix.from_numpy(self.base, array, layer_mask=mask)
        np.testing.assert_array_equal(made.layer_mask, mask)
        np.testing.assert_array_equal(made.numpy()[1:], array[1:])
        self.assertFalse(made.numpy()[0].any())
        make = functools.partial(kvfold.Prefix.from_numpy, self.base, array)
        self.fails("excludes all layers", make, layer_mask=0 * mask, status="EUSAGE")
        self.fails("the layer mask is", make, layer_mask=mask[1:], status="ESHAPE")
        self.fails("not an encoder-decoder", make, relative_bias=True, status="EUNSUPPORTED")

    def test_peft_there_and_back(self):
        self.prefix.to_peft(self.folder / "adapter", base_id=self.llama)
        self.fails("exists", self.prefix.to_peft, self.folder / "adapter")
        back = kvfold.Prefix.from_peft(self.folder / "adapter", self.base)
        np.testing.assert_array_equal(back.numpy(), self.prefix.numpy())
        kvfold.Prefix.from_numpy(self.base, back.numpy()).to_peft(self.folder / "adapter2")
        self.assertEqual((self.folder / "adapter2/adapter_model.safetensors").read_bytes(),
                         (self.folder / "adapter/adapter_model.safetensors").read_bytes())
        self.fails("nowhere", kvfold.Prefix.from_peft, self.folder / "nowhere", status="EIO")

    def test_methods(self):
        """Every method's run and merged file are used; a base that a prefix changes is opened for it."""
        for method in ("mlp", "projected", "prompt", "p-tuning", "adapter"):
            with self.subTest(method):
                size = {"mlp": {"encoder_hidden": 8}, "p-tuning": {"encoder_hidden": 8},
                        "adapter": {"adapter_size": 2, "prefix_length": None}}.get(method, {})
                prefix = self.prefix_of(self.base, PAIRS, method, method=method, **size)
                run = self.folder / f"{method}.run.h5"
                want = answer("generate", "--base", self.llama, "--prefix", self.folder / f"{method}.h5", "--prompt", "w1:")["text"]
                self.assertEqual(prefix.generate(["w1:"]), [want])
                live = kvfold.Run(run, self.base).prefix("last")
                self.assertEqual(live.generate(["w1:"]), [want])
        self.assertIsNot(prefix.base, self.base)
        self.fails("no keys and values", prefix.numpy, status="EUNSUPPORTED")
        self.fails("base", kvfold.Prefix.load, self.folder / "projected.run.h5", status="EUSAGE")
        full = kvfold.train(self.base, PAIRS, out=self.folder / "full.run.h5", method="full", steps=1)
        trained = full.merge_base(self.folder / "full")
        self.assertNotEqual(trained.score(PAIRS)[0].loglikelihood, self.base.score(PAIRS)[0].loglikelihood)
        self.fails("merge_base", full.merge, self.folder / "other")
        self.fails("not of method full", kvfold.Run(self.folder / "lm.run.h5").merge_base, self.folder / "other")

    def test_wrong_base(self):
        bert = kvfold.Base(self.bert)
        self.fails("", kvfold.Prefix.load, self.folder / "lm.h5", bert, status="EMISMATCH")
        self.assertEqual(kvfold.Prefix.load(self.folder / "lm.h5", self.llama).generate(["w1:"]), self.prefix.generate(["w1:"]))
        self.fails("no base", kvfold.Prefix.load(self.folder / "lm.h5").generate, ["a"])
        self.fails("cannot open|no such", kvfold.Prefix.load, self.folder / "nowhere.h5")

    def test_inspect(self):
        self.assertEqual(kvfold.inspect(self.folder / "lm.h5")["kind"], "prefix")
        self.assertEqual(kvfold.inspect(self.llama)["kind"], "hf")
