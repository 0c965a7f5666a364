"""Logits of kvfold (packed rows) against transformers: no padding, right padding, left padding with explicit positions; without
and with a random prefix; SmolLM2 from its GGUF, random GPT-2 and Llama models from folders of save_pretrained.

The last line of each block judges both f32 computations by the same model in f64. On SmolLM2 a random prefix makes f32 itself
inexact (largest error of torch's logits 3e-3 and more): there only that line counts, by root mean square."""
import torch

import peer

LENGTHS = [23, 5, 41, 12]


def past(model, prefix, rows):
    return {} if prefix is None else {"past_key_values": peer.cache_of(prefix.to(model.dtype), rows)}


def alone(model, rows, prefix):
    return torch.cat([model(torch.tensor([ids]), **past(model, prefix, 1)).logits[0, :-1] for ids, _ in rows])


def together(model, rows, prefix, side):
    ids, mask, _ = peer.padded(rows, side)
    first = 0 if prefix is None else prefix.shape[4]
    more = past(model, prefix, len(rows))
    if side == "left":
        more["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0) + first
    whole = torch.cat([torch.ones(len(rows), first, dtype=mask.dtype), mask], 1)
    logits = model(ids, attention_mask=whole, **more).logits
    return torch.cat([x[m.bool()][:-1] for x, m in zip(logits, mask)])


def largest(a, b):
    return (a.double() - b.double()).abs().max().item()


def rms(a, b):
    return (a.double() - b.double()).square().mean().sqrt().item()


def compare(args, name, base, model, double, scale):
    rows = peer.random_rows(model.config.vocab_size, LENGTHS)
    prefix = peer.random_prefix(model, scale) if scale else None
    options = {"prefix": peer.save_prefix(args, prefix)} if scale else {}
    got = peer.dump(args, base, rows, **options)["logits"]
    what = f"{name}, {f'prefix of scale {scale}' if scale else 'P = 0'}"
    with torch.no_grad():
        exact = alone(double, rows, prefix)
        sides = {"no padding": alone(model, rows, prefix)}
        for side in ("right", "left"):
            sides[side + " padding"] = together(model, rows, prefix, side)
    well = largest(sides["no padding"], exact) < 1e-3
    for side, want in sides.items():
        if well:
            peer.report(f"{what}, {side}: largest difference", largest(got, want), 2e-3)
    peer.report(f"{what}: rms from f64 (bound: 2 x torch f32)", rms(got, exact), 2 * rms(sides["no padding"], exact))


def main():
    args = peer.parse(__doc__, ("--only", {"default": ""}))
    models = {"smollm2": lambda: (args.model, peer.load_gguf(args.model, args.work))}
    for name in peer.RANDOM_MODELS:
        models[name] = lambda name=name: peer.random_model(name, args.work)
    for name, load in models.items():
        if args.only not in name:
            continue
        base, model = load()
        double = peer.exact(model)
        for scale in (0, 0.3, 0.7):
            compare(args, name, base, model, double, scale)
    peer.finish()


main()
