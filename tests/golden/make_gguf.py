"""Makes tiny.gguf with the reference writer: metadata of every value type, tensors of several types.

    python make_gguf.py tiny.gguf
"""
import sys
from importlib.metadata import version

import numpy as np
from gguf import GGMLQuantizationType as T
from gguf import GGUFWriter
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize, quantize

SEED = 11
rng = np.random.default_rng(SEED)
w = GGUFWriter(sys.argv[1], "llama")
w.add_string("golden.made_by", f"gguf {version('gguf')}, numpy {np.__version__}, seed {SEED}")
w.add_uint8("kind.u8", 200)
w.add_int8("kind.i8", -100)
w.add_uint16("kind.u16", 60000)
w.add_int16("kind.i16", -30000)
w.add_uint32("kind.u32", 4000000000)
w.add_int32("kind.i32", -2000000000)
w.add_float32("kind.f32", 1e-5)
w.add_bool("kind.true", True)
w.add_bool("kind.false", False)
w.add_string("kind.text", "Schn\u00e4ppchen \u2603 \"quoted\"\n")
w.add_uint64("kind.u64", 2**63 - 1)
w.add_uint64("kind.u64_big", 2**63 + 2048)
w.add_int64("kind.i64", -2**62)
w.add_float64("kind.f64", 0.1)
w.add_array("few.ints", [3, -1, 4])
w.add_array("few.floats", [0.5, -2.0])
w.add_array("few.texts", ["a", "", "bc"])
w.add_array("few.bools", [True, False])
w.add_array("many.ints", list(range(-40, 60)))
w.add_array("many.floats", [i / 4 for i in range(100)])
w.add_array("tokenizer.ggml.tokens", [f"token{i}" for i in range(80)])

f32 = np.arange(6, dtype=np.float32).reshape(2, 3)
w.add_tensor("token_embd.weight", f32)
w.add_tensor("half", f32.astype(np.float16))
w.add_tensor("vector", np.arange(5, dtype=np.float32))
w.add_tensor("cube", np.arange(24, dtype=np.int32).reshape(2, 3, 4))
for kind in (T.Q4_1, T.Q8_0, T.BF16, T.MXFP4):
    rows = rng.normal(size=(2, 64)).astype(np.float32)
    packed = quantize(rows, kind)
    w.add_tensor(f"packed.{kind.name}", packed, raw_dtype=kind)
    w.add_tensor(f"values.{kind.name}", dequantize(packed, kind))
for kind, halves in {T.Q2_K: (80, 82), T.Q3_K: (108,), T.IQ4_NL: (0,), T.IQ4_XS: (0,)}.items():
    elements, size = GGML_QUANT_SIZES[kind]  # the package dequantises these, no more
    packed = rng.integers(0, 256, (2, size), dtype=np.uint8)
    for at in halves:
        packed[:, at:at + 2] = np.array([0.25], dtype=np.float16).view(np.uint8)
    w.add_tensor(f"packed.{kind.name}", packed, raw_dtype=kind)
    w.add_tensor(f"values.{kind.name}", dequantize(packed, kind))
blocks = rng.integers(0, 256, (1, 2 * 74), dtype=np.uint8)  # listed, never computed with
w.add_tensor("other.IQ2_XS", blocks, raw_dtype=T.IQ2_XS)
w.write_header_to_file()
w.write_kv_data_to_file()
w.write_tensors_to_file()
w.close()
