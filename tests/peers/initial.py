"""Where training starts: the first loss of every --init, for the mlp and direct forms, against transformers with the same prefix."""
import os
import re

import h5py
import torch

import peer

ROWS = 32


def first_loss(args, data, *more):
    """Loss of the first step, before it changes anything, and the residual that the command reports."""
    out = os.path.join(args.work, "initial.h5")
    result = peer.kvfold(args, "train", "--base", args.model, "--data", data, "--out", out, "--force", "--steps", 1, "--batch-size", ROWS,
                         "--shuffle", "off", "--precision", "f32", *more)
    residual = re.findall(r"residual ([0-9.e+-]+)", str(result))
    with h5py.File(out) as file:
        return file["history/train_loss"][0].item(), float(residual[0]) if residual else 0.0


def main():
    args = peer.parse(__doc__, ("--data", {"required": True, "help": "prompt/completion JSONL"}))
    model, tokenizer = peer.load_gguf(args.model, args.work), peer.gguf_tokenizer(args.model)
    rows = peer.text_rows(args.data, tokenizer, longest=64)[:ROWS]
    data = peer.write_rows(os.path.join(args.work, "initial.jsonl"), rows)

    start = peer.base_prefix(model, tokenizer(peer.START)["input_ids"][:peer.P])
    ids, mask, labels = peer.padded(rows, "right")
    whole = torch.cat([torch.ones(ROWS, peer.P, dtype=mask.dtype), mask], 1)
    with torch.no_grad():
        want = peer.loss_of(model(ids, attention_mask=whole, past_key_values=peer.cache_of(start, ROWS)).logits, labels).item()
        bare = peer.loss_of(model(ids, attention_mask=mask).logits, labels).item()
    losses = {}
    for method in ("mlp", "direct"):
        for init in ("text", "vocab", "random", "zero"):
            text = ("--init-text", peer.START) if init == "text" else ()
            losses[method, init], residual = first_loss(args, data, "--method", method, "--init", init, *text)
            print(f"first loss, {method} from {init}: {losses[method, init]:.4f}" + (f", residual {residual:.1e}" if residual else ""))
            if method == "mlp" and residual:
                peer.report(f"residual of mlp from {init}", residual, 1e-4)
    print(f"transformers with the text's K/V: {want:.4f}; bare base: {bare:.4f}")
    peer.report("direct from text against transformers, relative", abs(losses["direct", "text"] / want - 1), 1e-5)
    for init in ("text", "vocab"):
        peer.report(f"mlp from {init} against direct, relative", abs(losses["mlp", init] / losses["direct", init] - 1), 1e-4)
    peer.report("text starts lower than random by (negated)", losses["mlp", "text"] - losses["mlp", "random"], 0)
    peer.finish()


main()
