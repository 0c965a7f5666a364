"""Virtual tokens in rows of the tiny models in this folder, run by transformers: what tests/pass/test_embed_vectors.c compares with.

Writes vectors.safetensors with tensors NAME.*: ids of rows in which -1 - p is virtual token p (leading a row, inside it,
twice, not at all), vectors [P, C], what the rows' loss is (causal models: summed over the labelled tokens; encoders: the sum of
hidden * weights at label_at), and its gradient with respect to the vectors, all through inputs_embeds, row by row in f32.
NAME.autocast_error is the relative L2 error of that gradient under torch.autocast(bfloat16).

Run: python make_vectors_golden.py
"""
import os

import torch
import transformers
from make_model_golden import HERE
from safetensors.torch import load_file, save_file
from transformers import (AutoConfig, AutoModelForCausalLM, BertModel, RobertaModel)

P = 4
ROWS = [[-1, -2, -3, -4] + [0] * 11, [0, 0, -2, 0, -2, -4, 0, 0], [0] * 6, [-3] + [0] * 9 + [-1, 0, 0]]
CAUSAL = ["llama_tied", "llama_untied", "gpt2", "gpt2_by_layer", "qwen2", "qwen3"]


def load(name):
    folder = os.path.join(HERE, "model_" + name)
    config = AutoConfig.from_pretrained(folder)
    state = {k: v.float() for k, v in load_file(os.path.join(folder, "model.safetensors")).items() if not k.startswith("golden.")}
    if name in CAUSAL:
        model = AutoModelForCausalLM.from_config(config)
        if name == "gpt2_by_layer":
            model.config._attn_implementation = "eager"
    else:
        model = {"bert": BertModel, "roberta": RobertaModel}[name](config)
        state = {k.removeprefix("roberta."): v for k, v in state.items() if "lm_head" not in k}
    missing, surplus = model.load_state_dict(state, strict=False)
    assert all("lm_head" in k or "pooler" in k or "masked_bias" in k for k in missing), missing
    assert all("position_ids" in k for k in surplus), surplus
    model.tie_weights()
    return model.eval().requires_grad_(False)


def embeds(model, ids, vectors):
    table = model.get_input_embeddings().weight
    return torch.stack([vectors[-1 - i] if i < 0 else table[i] for i in ids.tolist()])


def run(name, model, rows, vectors, weights):
    total, at = 0.0, 0
    for ids, types, labels in rows:
        x = embeds(model, ids, vectors)[None]
        if name in CAUSAL:
            logits = model(inputs_embeds=x).logits[0][labels].float()
            total = total + torch.nn.functional.cross_entropy(logits, ids[labels + 1], reduction="sum")
        else:
            hidden = model(inputs_embeds=x, token_type_ids=types[None]).last_hidden_state[0][labels].float()
            total = total + (hidden * weights[at:at + len(labels)]).sum()
            at += len(labels)
    return total


def gradient(name, model, rows, vectors, weights):
    leaf = vectors.clone().requires_grad_(True)
    loss = run(name, model, rows, leaf, weights)
    loss.backward()
    return loss.detach(), leaf.grad


def golden(name, seed):
    generator = torch.Generator().manual_seed(seed)
    model = load(name)
    c = model.config
    vectors = torch.randn(P, c.hidden_size, generator=generator) * 0.4
    rows, label_at, start = [], [], 0
    for pattern in ROWS:
        ids = torch.tensor([i if i < 0 else int(torch.randint(2, c.vocab_size, (1,), generator=generator)) for i in pattern])
        types = (torch.arange(len(ids)) > len(ids) // 2).long() * (max(getattr(c, "type_vocab_size", 1), 1) - 1)
        at = torch.tensor([i for i in range(len(ids) - 1) if ids[i + 1] >= 0][-5:]) if name in CAUSAL else torch.arange(0, len(ids), 2)
        rows.append((ids, types, at))
        label_at.append(at + start)
        start += len(ids)
    weights = torch.randn(sum(len(at) for _, _, at in rows), c.hidden_size, generator=generator)
    loss, grad = gradient(name, model, rows, vectors, weights)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        _, auto = gradient(name, model, rows, vectors, weights)
    error = ((auto - grad).norm() / grad.norm()).item()
    print(f"{name}: loss {loss:.5f}, |gradient| {grad.norm():.4f}, autocast {error:.2e}")
    out = {"ids": torch.cat([ids for ids, _, _ in rows]).int(), "types": torch.cat([t for _, t, _ in rows]).int(),
           "lengths": torch.tensor([len(ids) for ids, _, _ in rows]).int(), "label_at": torch.cat(label_at).int(),
           "vectors": vectors, "gradient": grad, "loss": loss[None], "autocast_error": torch.tensor([error])}
    if name in CAUSAL:
        out["label_id"] = torch.cat([ids[at + 1] for ids, _, at in rows]).int()
    else:
        out["weights"] = weights
    return {f"{name}.{k}": v.contiguous() for k, v in out.items()}


if __name__ == "__main__":
    torch.set_num_threads(1)
    tensors = {}
    for seed, name in enumerate(CAUSAL + ["bert", "roberta"], start=60):
        tensors |= golden(name, seed)
    path = os.path.join(HERE, "vectors.safetensors")
    save_file(tensors, path, metadata={"format": "pt", "torch": torch.__version__, "transformers": transformers.__version__})
    os.chmod(path, 0o644)
    print(os.path.getsize(path), "bytes")
