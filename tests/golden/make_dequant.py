"""Makes dequant.bin: random blocks of every quantised type and what the reference dequantises them to.

64 bytes of text (versions, seed), then for each type, in the order below: N_BLOCKS blocks as they
stand in a GGUF file, and their values as f32. Scales are any finite f16, subnormals and negative ones too.

    python make_dequant.py dequant.bin
"""
import sys
from importlib.metadata import version

import numpy as np
from gguf import GGMLQuantizationType as T
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize

SEED = 7
N_BLOCKS = 6
# type -> byte offsets of the f16 fields of a block
TYPES = {T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0],
         T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208],
         T.Q2_K: [80, 82], T.Q3_K: [108], T.IQ4_NL: [0], T.IQ4_XS: [0], T.MXFP4: []}

rng = np.random.default_rng(SEED)
with open(sys.argv[1], "wb") as out:
    head = f"gguf {version('gguf')}, numpy {np.__version__}, seed {SEED}\n"
    out.write(head.encode().ljust(64, b" "))
    for kind, halves in TYPES.items():
        _, size = GGML_QUANT_SIZES[kind]
        blocks = rng.integers(0, 256, (N_BLOCKS, size), dtype=np.uint8)
        for at in halves:
            scale = rng.integers(0, 0x7c00, N_BLOCKS).astype(np.uint16)
            scale[0] = 0x2c00  # an everyday one
            scale[1] = rng.integers(1, 0x400)  # subnormal
            scale |= (rng.integers(0, 2, N_BLOCKS) << 15).astype(np.uint16)
            blocks[:, at:at + 2] = scale.view(np.uint8).reshape(-1, 2)
        if kind == T.MXFP4:
            blocks[:, 0] = [127, 0, 1, 2, 120, 250]  # an exponent of 8 bits
        with np.errstate(over="ignore"):
            values = np.concatenate([dequantize(b, kind) for b in blocks])
        assert np.isfinite(values).all()
        out.write(blocks.tobytes() + values.astype("<f4").tobytes())
