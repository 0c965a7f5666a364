"""P_theta through the key and value projections of the tiny models in this folder: what tests/encoder/test_enc_projected.c compares with.

Writes projected.safetensors with tensors NAME.*: theta [L, P, C]; prefix [L, 2, G, P, D], what each layer's own k_proj, v_proj (with
biases), k_norm and rotary embedding at positions 0 .. P-1 make of it; and the gradient with respect to theta, all of it through
transformers: causal models: of the loss of the rows in model_NAME under that prefix as a cache; encoders: of sum(prefix * weights).

Run: python make_projected_golden.py
"""
import os

import torch
import transformers
from make_model_golden import HERE, P, run
from make_vectors_golden import CAUSAL, load
from safetensors.torch import load_file, save_file


def heads(x, size):
    return x.view(P, -1, size).transpose(0, 1)


def project(name, model, theta):
    c = model.config
    size = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
    layers = []
    if name in ("bert", "roberta"):
        for x, layer in zip(theta, model.encoder.layer):
            own = layer.attention.self
            layers.append(torch.stack([heads(own.key(x), size), heads(own.value(x), size)]))
    elif name.startswith("gpt2"):
        for x, layer in zip(theta, model.transformer.h):
            _, k, v = layer.attn.c_attn(x).split(c.n_embd, dim=-1)
            layers.append(torch.stack([heads(k, size), heads(v, size)]))
    else:
        from transformers.models.llama.modeling_llama import apply_rotary_pos_emb
        cos, sin = model.model.rotary_emb(theta[0][None], torch.arange(P)[None])
        for x, layer in zip(theta, model.model.layers):
            own = layer.self_attn
            k = heads(own.k_proj(x), size)
            if hasattr(own, "k_norm"):
                k = own.k_norm(k)
            k, _ = apply_rotary_pos_emb(k[None], k[None], cos, sin)
            layers.append(torch.stack([k[0], heads(own.v_proj(x), size)]))
    return torch.stack(layers)


def golden(name, seed):
    generator = torch.Generator().manual_seed(seed)
    model = load(name)
    c = model.config
    theta = (torch.randn(c.num_hidden_layers, P, c.hidden_size, generator=generator)).requires_grad_(True)
    prefix = project(name, model, theta)
    out = {"theta": theta.detach(), "prefix": prefix.detach()}
    if name in CAUSAL:
        own = load_file(os.path.join(HERE, "model_" + name, "model.safetensors"))
        rows, start = [], 0
        for n in own["golden.lengths"].tolist():
            at = own["golden.label_at"].long() - start
            rows.append((own["golden.ids"][start:start + n].long(), at[(at >= 0) & (at < n)]))
            start += n
        _, loss = run(model, rows, prefix)
        out["loss"] = loss.detach()[None]
    else:
        out["weights"] = torch.randn(prefix.shape, generator=generator)
        loss = (prefix * out["weights"]).sum()
    loss.backward()
    out["gradient"] = theta.grad
    print(f"{name}: {tuple(theta.shape)}, loss {loss.item():.5f}, |gradient| {theta.grad.norm():.4f}")
    return {f"{name}.{k}": v.contiguous() for k, v in out.items()}


if __name__ == "__main__":
    torch.set_num_threads(1)
    tensors = {}
    for seed, name in enumerate(CAUSAL + ["bert", "roberta"], start=80):
        tensors |= golden(name, seed)
    path = os.path.join(HERE, "projected.safetensors")
    save_file(tensors, path, metadata={"format": "pt", "torch": torch.__version__, "transformers": transformers.__version__})
    os.chmod(path, 0o644)
    print(os.path.getsize(path), "bytes")
