"""KL to a teacher's likeliest items by torch: what tests/pass/test_head_soft.c compares with.

For some of the models that make_model_golden.py made, writes soft.safetensors with the targets of the bare model as a teacher
at the stored labels, NAME.ids [n, K] (ascending) and NAME.logp [n, K + 1] (the last: all other items together), and of
the model behind the stored prefix NAME.loss, the summed KL over those K + 1 buckets, with NAME.prefix_grad.

Run: python make_soft_golden.py   (torch 2.13, transformers 5.23; the versions used are stored in the file)
"""
import json
import os

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from make_model_golden import HERE, run

NAMES = ["llama_tied", "llama_untied", "gpt2", "qwen3"]
K = 6


def buckets(logits, ids):
    """log-probabilities [n, K + 1] of the items and of all others together."""
    logp = torch.log_softmax(logits.double(), -1)
    others = logp.scatter(-1, ids, float("-inf"))
    return torch.cat([logp.gather(-1, ids), torch.logsumexp(others, -1, keepdim=True)], -1)


def golden(name):
    folder = os.path.join(HERE, "model_" + name)
    stored = load_file(os.path.join(folder, "model.safetensors"))
    with open(os.path.join(folder, "config.json")) as file:
        config = AutoConfig.for_model(**json.load(file))
    model = AutoModelForCausalLM.from_config(config).eval()
    weights = {k: v.float() for k, v in stored.items() if not k.startswith("golden.")}
    missing = model.load_state_dict(weights, strict=False)
    assert set(missing.missing_keys) <= {"lm_head.weight"} and not missing.unexpected_keys, missing
    model.tie_weights()

    rows, start = [], 0
    at_all, lengths = stored["golden.label_at"].long(), stored["golden.lengths"].tolist()
    for n in lengths:
        at = at_all[(at_all >= start) & (at_all < start + n)] - start
        rows.append((stored["golden.ids"][start:start + n].long(), at))
        start += n
    with torch.no_grad():
        said, _ = run(model, rows)
    ids = said.topk(K, -1).indices.sort(-1).values
    teacher = buckets(said, ids)
    prefix = stored["golden.prefix"].clone().requires_grad_(True)
    logits, _ = run(model, rows, prefix)
    loss = (teacher.exp() * (teacher - buckets(logits, ids))).sum()
    loss.backward()
    return {f"{name}.ids": ids.int(), f"{name}.logp": teacher.float(), f"{name}.loss": loss.detach().float().reshape(1),
            f"{name}.prefix_grad": prefix.grad}


if __name__ == "__main__":
    torch.set_num_threads(1)
    tensors = {}
    for name in NAMES:
        tensors |= golden(name)
    path = os.path.join(HERE, "soft.safetensors")
    save_file(tensors, path, metadata={"format": "pt", "torch": torch.__version__,
                                       "transformers": transformers.__version__})
    os.chmod(path, 0o644)
    print(os.path.getsize(path), "bytes")
