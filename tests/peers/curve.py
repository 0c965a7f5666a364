"""The loss of every training step, PEFT against kvfold: same base, same initial encoder, same rows in the same order, AdamW and
clipping as torch has them, no schedule, f32.

Adam's first steps move every parameter by the sign of its gradient, so rounding decides for the smallest ones, and two correct
f32 runs part. How fast, PEFT's own runs say: one more of them takes the rows of each step in reverse order, which changes nothing
but rounding (its thread count does not even change that). The first --exact steps are also run in f64, from which kvfold may not be
further than twice PEFT.

--start text: the encoder aimed at the base's keys and values of a text. --start random: PEFT's own start, where SmolLM2 is so
ill-conditioned that PEFT leaves its f64 run by 1 % at the fourth step; there the f64 line is the one that counts. Runs of PEFT are kept
in the work folder: --again forgets them."""
import json
import os
import random

import h5py
import torch
from peft import PrefixTuningConfig, get_peft_model

import peer

ROWS = 8


def initial(args, model, tokenizer):
    torch.manual_seed(11)
    config = PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=peer.P, prefix_projection=True, encoder_hidden_size=512)
    tuned = get_peft_model(model, config)
    if args.start == "text":
        peer.aim(tuned.prompt_encoder["default"], peer.base_prefix(model, tokenizer(peer.START)["input_ids"][:peer.P]))
    return tuned


def train_peft(args, name, tuned, steps, state):
    kept = os.path.join(args.work, f"curve_{args.start}_{name}.json")
    if os.path.exists(kept) and not args.again:
        return json.load(open(kept, encoding="utf-8"))
    encoder = tuned.prompt_encoder["default"]
    encoder.load_state_dict(state)
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=args.lr, weight_decay=0)
    losses = []
    for rows in steps:
        ids, mask, labels = peer.padded(rows, "right")
        loss = peer.loss_of(tuned(input_ids=ids, attention_mask=mask).logits, labels)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(encoder.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    json.dump(losses, open(kept, "w", encoding="utf-8"))
    return losses


def train_kvfold(args, data, encoder, threads, steps):
    out = os.path.join(args.work, f"curve_{args.start}_{threads}.h5")
    peer.kvfold(args, "train", "--base", args.model, "--data", data, "--out", out, "--force", "--steps", steps, "--batch-size", ROWS,
                "--method", "mlp", "--prefix-length", peer.P, "--encoder-hidden", 512, "--init-encoder", encoder,
                "--lr", args.lr, "--lr-units", "parameter", "--schedule", "constant", "--warmup", 0, "--clip", 1, "--shuffle", "off",
                "--weight-decay", 0, "--precision", "f32", "--threads", threads)
    with h5py.File(out) as file:
        return file["history/train_loss"][:].tolist()


def distance(a, b):
    return [abs(x - y) / y for x, y in zip(a, b)]


def main():
    args = peer.parse(__doc__, ("--data", {"required": True, "help": "prompt/completion JSONL"}),
                      ("--steps", {"type": int, "default": 200}), ("--lr", {"type": float, "default": 2e-4}),
                      ("--longest", {"type": int, "default": 40}), ("--start", {"choices": ["random", "text"], "default": "text"}),
                      ("--exact", {"type": int, "default": 8}), ("--again", {"action": "store_true"}))
    tokenizer = peer.gguf_tokenizer(args.model)
    pool = peer.text_rows(args.data, tokenizer, args.longest)
    rows, order = [], random.Random(1)
    while len(rows) < args.steps * ROWS:
        rows += order.sample(pool, len(pool))
    steps = [rows[ROWS * i:ROWS * (i + 1)] for i in range(args.steps)]
    data = peer.write_rows(os.path.join(args.work, "curve.jsonl"), [row for step in steps for row in step])
    tuned = initial(args, peer.load_gguf(args.model, args.work), tokenizer)
    encoder = peer.save_encoder(args, tuned)
    state = {k: v.clone() for k, v in tuned.prompt_encoder["default"].state_dict().items()}

    ours = train_kvfold(args, data, encoder, args.threads, args.steps)
    ours_alone = train_kvfold(args, data, encoder, 1, args.steps)
    exact = train_peft(args, "exact", peer.exact(tuned), steps[:args.exact], state)
    peft = train_peft(args, "peft", tuned, steps, state)
    reverse = train_peft(args, "reverse", tuned, [rows[::-1] for rows in steps], state)

    for i, x in enumerate(exact):
        print(f"step {i + 1:4}: f64 {x:.7f}, distance of PEFT {abs(peft[i] / x - 1):.1e}, of kvfold {abs(ours[i] / x - 1):.1e}")
    spread, own, off = distance(reverse, peft), distance(ours_alone, ours), distance(ours, peft)
    for i in (0, 1, 2, 3, 4, 9, 19, 49, 99, 149, 199):
        if i < args.steps:
            print(f"step {i + 1:4}: PEFT {peft[i]:.6f} kvfold {ours[i]:.6f}, distance {off[i]:.1e}, PEFT's own {spread[i]:.1e}, "
                  f"kvfold's own {own[i]:.1e}")
    report(args, ours, peft, exact, spread, off)
    peer.finish()


def mean(values):
    return sum(values) / len(values)


def report(args, ours, peft, exact, spread, off):
    peer.report("first loss, relative distance", off[0], 1e-5)
    from_exact = [mean(distance(side, exact)) for side in (ours, peft)]
    peer.report(f"first {len(exact)} losses from f64, mean (bound: 2 x PEFT's)", from_exact[0], 2 * from_exact[1])
    if args.start == "text":
        peer.report("losses of steps 2 to 5, largest relative distance", max(off[1:5]), 1e-5)
        peer.report("losses of later steps, largest distance", max(off[5:], default=0), 5e-3)
        peer.report("mean loss over all steps, relative distance", abs(mean(ours) / mean(peft) - 1), 5e-3)
    if args.start == "text" and args.steps > 5:
        peer.report("losses of later steps, mean distance (bound: 2 x PEFT's own)", mean(off[5:]), 2 * mean(spread[5:]))
        peer.report("losses of later steps, largest distance (bound: 2 x PEFT's own)", max(off[5:]), 2 * max(spread[5:]))


main()
