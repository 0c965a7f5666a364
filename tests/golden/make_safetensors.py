"""Makes foreign.safetensors with the reference library: every type that torch and kvfold share, an empty
tensor, a scalar, names that JSON must escape. Values count up from 0.

    python make_safetensors.py foreign.safetensors
"""
import sys

import torch
from safetensors.torch import save_file


def count(shape, dtype):
    n = 1
    for dim in shape:
        n *= dim
    return torch.arange(n).reshape(shape).to(dtype)


save_file({
    "zeta.f32": count((2, 3), torch.float32),
    "alpha.f32": count((4,), torch.float32),
    "b.f16": count((3, 1, 2), torch.float16),
    "b.bf16": count((5,), torch.bfloat16),
    "c.f64": count((2, 2), torch.float64),
    "d.i64": count((3,), torch.int64),
    "d.i32": count((3,), torch.int32),
    "d.i16": count((3,), torch.int16),
    "d.i8": count((3,), torch.int8),
    "d.u8": count((5,), torch.uint8),
    "d.bool": torch.tensor([True, False, True]),
    "empty": count((2, 0), torch.float32),
    "a scalar": torch.tensor(42.0),
    "quote\" back\\slash tab\t bell\x07 umlaut \u00e4 / \u2603": count((1,), torch.float32),
}, sys.argv[1], metadata={"format": "pt"})
