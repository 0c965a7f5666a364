"""Rows [x][prefix][y] by torch: what tests/pass/test_pass_infix.c compares with.

For some of the models that make_model_golden.py made, writes infix.safetensors with NAME.cut (tokens of each row before the
prefix: those before the first labelled position), NAME.loss (summed over the stored labels), and NAME.grad of it. x runs
alone; keys and values of the stored prefix, its keys rotated by hand to the positions behind x where the model has rope,
join its cache; y runs P positions further on.

Run: python make_infix_golden.py   (torch 2.13, transformers 5.23; the versions used are stored in the file)
"""
import json
import os

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

from make_model_golden import HERE

NAMES = ["llama_tied", "gpt2", "qwen3"]


def rotate(keys, config, first):
    """keys [G, P, D] turned as if virtual token p stood at first + p: half-split pairs, by the definition."""
    if config.model_type == "gpt2":
        return keys
    dim = keys.shape[-1]
    theta = config.rope_parameters["rope_theta"]
    frequency = theta ** (-torch.arange(0, dim, 2).double() / dim)
    angle = (first + torch.arange(keys.shape[1])).double()[:, None] * frequency
    cos, sin = angle.cos().float(), angle.sin().float()
    a, b = keys[..., :dim // 2], keys[..., dim // 2:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def golden(name):
    folder = os.path.join(HERE, "model_" + name)
    stored = load_file(os.path.join(folder, "model.safetensors"))
    with open(os.path.join(folder, "config.json")) as file:
        config = AutoConfig.for_model(**json.load(file))
    model = AutoModelForCausalLM.from_config(config).eval()
    model.load_state_dict({k: v.float() for k, v in stored.items() if not k.startswith("golden.")}, strict=False)
    for value in model.parameters():
        value.requires_grad_(False)
    prefix = stored["golden.prefix"].clone().requires_grad_(True)
    P, start, loss, cuts = prefix.shape[3], 0, 0.0, []
    for n in stored["golden.lengths"].tolist():
        at = stored["golden.label_at"].long()
        at = at[(at >= start) & (at < start + n)] - start
        ids = stored["golden.ids"][start:start + n].long()
        cut = at[0].item()
        cache = DynamicCache(config=config)
        model(input_ids=ids[None, :cut], past_key_values=cache)
        for layer in range(prefix.shape[0]):
            cache.update(rotate(prefix[layer, 0], config, cut)[None], prefix[layer, 1][None], layer)
        positions = torch.arange(cut + P, n + P)[None]
        out = model(input_ids=ids[None, cut:], past_key_values=cache, position_ids=positions).logits[0]
        loss = loss + torch.nn.functional.cross_entropy(out[at - cut], ids[at + 1], reduction="sum")
        cuts.append(cut)
        start += n
    loss.backward()
    return {f"{name}.cut": torch.tensor(cuts, dtype=torch.int32), f"{name}.loss": loss.detach().reshape(1),
            f"{name}.grad": prefix.grad}


if __name__ == "__main__":
    torch.set_num_threads(1)
    tensors = {}
    for name in NAMES:
        tensors |= golden(name)
    path = os.path.join(HERE, "infix.safetensors")
    save_file(tensors, path, metadata={"format": "pt", "torch": torch.__version__,
                                       "transformers": transformers.__version__})
    os.chmod(path, 0o644)
    print(os.path.getsize(path), "bytes", {k: v.tolist() for k, v in tensors.items() if "cut" in k or "loss" in k})
