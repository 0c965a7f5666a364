"""The tensors of a model under the names that save_pretrained gives them, which are not always those of state_dict()."""
import os
import tempfile

import torch
from safetensors.torch import load_file


def saved_tensors(model, dtype=torch.float16):
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        stored = load_file(os.path.join(folder, "model.safetensors"))
    return {name: value.to(dtype).contiguous() for name, value in stored.items()}
