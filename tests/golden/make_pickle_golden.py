"""Files of torch.save: what tests/test_pickle.c reads, and what it refuses.

Writes pickle/NAME.bin, and pickle/state.safetensors, the tensors of state.bin.

    state        a state dict: tensors of all types, two that share a storage, a part of one, an empty one, a parameter
    protocol4    the same by the pickle protocol 4
    transposed   a tensor that is a transposed view
    checkpoint   a dict of more than tensors
    code         calls os.system
    legacy       no zip archive (torch before 1.6)

Run: python make_pickle_golden.py   (torch 2.13)
"""
import os
from collections import OrderedDict

import torch
from safetensors.torch import save_file

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pickle")


class Code:
    def __reduce__(self):
        return os.system, ("echo run by a pickle >pickle_was_run",)


def state():
    base = torch.arange(12, dtype=torch.float32).reshape(3, 4) / 4 - 1
    out = OrderedDict()
    out["layer.weight"] = base
    out["tied.weight"] = base
    out["rows.weight"] = base[1:]
    for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool):
        out[f"type.{str(dtype)[6:]}"] = torch.tensor([[0, 1, 2], [3, 4, 5]]).to(dtype)
    out["scalar"] = torch.tensor(7.5)
    out["empty"] = torch.zeros(0, 3)
    out["parameter"] = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
    out._metadata = OrderedDict({"": {"version": 1}})
    return out


def save(value, name, **options):
    torch.save(value, os.path.join(HERE, name + ".bin"), **options)


if __name__ == "__main__":
    os.makedirs(HERE, exist_ok=True)
    save(state(), "state")
    save(state(), "protocol4", pickle_protocol=4)
    save({"weight": torch.arange(6.0).reshape(2, 3).T}, "transposed")
    save({"epoch": 3, "model": state()}, "checkpoint")
    save({"weight": torch.zeros(2), "x": Code()}, "code")
    save({"weight": torch.zeros(2)}, "legacy", _use_new_zipfile_serialization=False)
    save_file({name: value.detach().clone() for name, value in state().items()}, os.path.join(HERE, "state.safetensors"), metadata={"format": "pt"})
    os.chmod(os.path.join(HERE, "state.safetensors"), 0o644)
