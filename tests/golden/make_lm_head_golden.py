"""A trained language-model head by torch: what tests/pass/test_head_lm.c compares with.

For some of the models that make_model_golden.py made, writes lm_heads.safetensors with NAME.head [V, C] (the model's own
head plus noise, so that it differs from a tied embedding), NAME.loss (summed over the stored labels under the stored
prefix), NAME.grad [V, C] of it, and NAME.prefix_grad.

Run: python make_lm_head_golden.py   (torch 2.13, transformers 5.23; the versions used are stored in the file)
"""
import json
import os

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from make_model_golden import HERE, run

NAMES = ["llama_tied", "llama_untied", "gpt2", "qwen3"]


def golden(name, generator):
    folder = os.path.join(HERE, "model_" + name)
    stored = load_file(os.path.join(folder, "model.safetensors"))
    with open(os.path.join(folder, "config.json")) as file:
        config = json.load(file)
    config["tie_word_embeddings"] = False
    config = AutoConfig.for_model(**config)
    model = AutoModelForCausalLM.from_config(config).eval()
    weights = {k: v.float() for k, v in stored.items() if not k.startswith("golden.")}
    embedding = next(v for k, v in weights.items() if "embed_tokens" in k or "wte" in k)
    own = weights.pop("lm_head.weight", embedding)
    missing = model.load_state_dict(weights, strict=False)
    assert missing.missing_keys == ["lm_head.weight"] and not missing.unexpected_keys, missing
    head = own + 0.05 * torch.randn(own.shape, generator=generator)
    for value in model.parameters():
        value.requires_grad_(False)
    model.lm_head.weight = torch.nn.Parameter(head.clone())

    rows, start = [], 0
    at_all, lengths = stored["golden.label_at"].long(), stored["golden.lengths"].tolist()
    for n in lengths:
        at = at_all[(at_all >= start) & (at_all < start + n)] - start
        rows.append((stored["golden.ids"][start:start + n].long(), at))
        start += n
    prefix = stored["golden.prefix"].clone().requires_grad_(True)
    _, loss = run(model, rows, prefix)
    loss.backward()
    return {f"{name}.head": head, f"{name}.loss": loss.detach().reshape(1),
            f"{name}.grad": model.lm_head.weight.grad, f"{name}.prefix_grad": prefix.grad}


if __name__ == "__main__":
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(31)
    tensors = {}
    for name in NAMES:
        tensors |= golden(name, generator)
    path = os.path.join(HERE, "lm_heads.safetensors")
    save_file(tensors, path, metadata={"format": "pt", "torch": torch.__version__,
                                       "transformers": transformers.__version__})
    os.chmod(path, 0o644)
    print(os.path.getsize(path), "bytes")
