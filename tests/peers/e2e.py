"""PEFT's prefix tuning (mlp) on E2E with SmolLM2, at the budget of recipes/e2e-smollm2.txt: 80 steps of 16, P = 20, encoder_hidden
512, AdamW without decay, linear schedule with 5 % warmup, clip 1.0; one learning rate for all parameters, PEFT's own random start.

    python tests/peers/e2e.py --model SmolLM2-135M-Instruct.Q4_1.gguf --build build --train e2e/trainset.csv --valid dev.csv --test test.csv

The base is the GGUF, dequantised. Rows are rendered by the tokenizer's own chat template, as `--chat-template chatml` does; the
reference and its end token carry loss. Every rate of --lr trains one run; the lowest loss on --valid is measured on --test: loss, and
BLEU and ROUGE-L of greedy continuations (--max-tokens) of its different prompts against all their references, computed by kvfold's own
metrics (tests/dump_metrics, which metrics.py compares with sacrebleu and rouge_score). Trained encoders stay in the work folder,
so that measuring can be done again. Without --lr the bare base is measured, which `kvfold eval` must equal: rows are then the same."""
import csv
import json
import math
import os
import time

import torch
from peft import PrefixTuningConfig, get_peft_model
from transformers import DynamicCache, get_linear_schedule_with_warmup

import metrics
import peer
from understanding import cache_of, order_of_steps

STEPS, BATCH, HIDDEN, CLIP, WARMUP, PARTS = 80, 16, 512, 1.0, 0.05, 2


def read(path):
    with open(path, encoding="utf-8", newline="") as file:
        return [(row["mr"], row["ref"]) for row in csv.DictReader(file)]


def prompt_ids(tokenizer, text):
    text = tokenizer.apply_chat_template([{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True)
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def rows_of(tokenizer, pairs):
    rows = []
    for mr, ref in pairs:
        begin = prompt_ids(tokenizer, mr)
        answer = tokenizer(ref + tokenizer.eos_token, add_special_tokens=False)["input_ids"]
        rows.append((begin + answer, [-100] * len(begin) + answer))
    return rows


def loss_sum(args, model, rows):
    """(sum of the loss of all labels, their number)."""
    ids, mask, labels = peer.padded(rows, "right")
    wanted = labels[:, 1:] != -100
    columns = torch.arange(int(wanted.any(0).nonzero()[0]), wanted.shape[1])
    logits = model(input_ids=ids, attention_mask=mask, logits_to_keep=columns).logits
    wanted, labels = wanted[:, columns], labels[:, 1:][:, columns]
    return torch.nn.functional.cross_entropy(logits[wanted].float(), labels[wanted], reduction="sum"), int(wanted.sum())


def mean_loss(args, model, rows):
    total, terms, rows = 0.0, 0, sorted(rows, key=lambda r: len(r[0]))
    with torch.no_grad():
        for at in range(0, len(rows), 32):
            part, n = loss_sum(args, model, rows[at:at + 32])
            total, terms = total + part.item(), terms + n
    return total / terms, terms


def train(args, tuned, rows, lr):
    wanted = [p for p in tuned.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(wanted, lr=lr, weight_decay=0.0)
    schedule = get_linear_schedule_with_warmup(optimizer, math.ceil(WARMUP * args.steps), args.steps)
    losses, tokens, start = [], 0, time.monotonic()
    step_rows = [[rows[i] for i in chosen[:BATCH]] for chosen in order_of_steps(len(rows), args.steps, torch.Generator().manual_seed(args.seed))]
    for some in step_rows:
        some, loss = sorted(some, key=lambda r: len(r[0])), 0.0
        terms = sum(label != -100 for _, labels in some for label in labels[1:])
        for at in range(0, BATCH, BATCH // PARTS):  # parts of like length: the same gradient with less padding
            part = loss_sum(args, tuned, some[at:at + BATCH // PARTS])[0] / terms
            part.backward()
            loss += part.item()
        torch.nn.utils.clip_grad_norm_(wanted, CLIP)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(loss)
        tokens += sum(len(ids) for ids, _ in some)
        if len(losses) % 10 == 0:
            print(f"lr {lr:g} step {len(losses)}: loss {sum(losses[-10:]) / 10:.4f}, {tokens / (time.monotonic() - start):.0f} tokens/s", flush=True)


def base_of(args):
    base = peer.load_gguf(args.model, args.work)
    return base.to(torch.bfloat16) if args.precision == "bf16" else base


def trained(args, tokenizer, lr):
    """The model at this rate, from the work folder if it is there, and its loss on --valid."""
    torch.manual_seed(args.seed)
    config = PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=peer.P, prefix_projection=True, encoder_hidden_size=HIDDEN)
    tuned = get_peft_model(base_of(args), config)
    kept = os.path.join(args.work, f"e2e-{args.precision}-{lr:g}-{args.seed}-{args.steps}.pt")
    if os.path.exists(kept):
        tuned.prompt_encoder.load_state_dict(torch.load(kept))
    else:
        train(args, tuned, rows_of(tokenizer, read(args.train)), lr)
        torch.save(tuned.prompt_encoder.state_dict(), kept)
    return tuned, mean_loss(args, tuned, rows_of(tokenizer, read(args.valid)))[0]


def cache_for(args, model, rows):
    """The prefix as the cache of so many rows; (cache, its length)."""
    encoder = getattr(model, "prompt_encoder", None)
    if encoder is None:
        return DynamicCache(), 0
    L, G, _ = peer.shape(model)
    flat = encoder["default"](torch.arange(peer.P)[None])
    return cache_of(flat.expand(rows, -1, -1).to(model.dtype), L, G), peer.P


def continuations(args, model, tokenizer, prompts):
    """Greedy, rows padded on the left, positions and masks by hand: PEFT's `generate` counts the padding."""
    rows, (cache, at) = [prompt_ids(tokenizer, p) for p in prompts], cache_for(args, model, len(prompts))
    ids, mask, _ = peer.padded([(r, r) for r in rows], "left")
    positions = (mask.cumsum(1) - 1).clamp(min=0) + at
    mask = torch.cat([torch.ones(len(rows), at, dtype=mask.dtype), mask], 1)
    base, said, ended = getattr(model, "base_model", model) if at else model, [], torch.zeros(len(rows), dtype=torch.bool)
    for _ in range(args.max_tokens):
        out = base(input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True, logits_to_keep=1)
        ids = out.logits[:, -1].argmax(-1, keepdim=True)
        ids[ended] = tokenizer.eos_token_id
        ended |= ids[:, 0] == tokenizer.eos_token_id
        said.append(ids)
        if ended.all():
            break
        positions, mask = positions[:, -1:] + 1, torch.cat([mask, torch.ones_like(ids)], 1)
    return tokenizer.batch_decode(torch.cat(said, 1), skip_special_tokens=True, clean_up_tokenization_spaces=False)


def scores(args, model, tokenizer):
    pairs, references = read(args.test), {}
    loss, terms = mean_loss(args, model, rows_of(tokenizer, pairs))
    result = {"loss": loss, "label_tokens": terms, "examples": len(pairs)}
    if not args.max_tokens:
        return result
    for mr, ref in pairs:
        references.setdefault(mr, []).append(ref)
    prompts = sorted(references, key=lambda p: len(prompt_ids(tokenizer, p)))
    said = []
    with torch.no_grad():
        for at in range(0, len(prompts), 25):
            said += continuations(args, model, tokenizer, prompts[at:at + 25])
    case = {"predicted": said, "references": [references[p] for p in prompts]}
    bleu, rouge = metrics.answers(args, [("e2e", "bleu", case), ("e2e", "rouge", case)])
    return {**result, "bleu": bleu["v"][0], "rouge_l": rouge["v"][2], "prompts": len(prompts), "first": [prompts[0], said[0]]}


def main():
    args = peer.parse(__doc__, ("--train", {}), ("--valid", {}), ("--test", {"required": True}),
                      ("--lr", {"nargs": "*", "type": float, "default": []}), ("--seed", {"type": int, "default": 1}),
                      ("--steps", {"type": int, "default": STEPS}), ("--max-tokens", {"type": int, "default": 64}),
                      ("--precision", {"choices": ["f32", "bf16"], "default": "f32", "help": "the base's; PEFT's encoder stays f32"}))
    tokenizer = peer.gguf_tokenizer(args.model)
    if not args.lr:
        return print(json.dumps(scores(args, base_of(args), tokenizer)))
    best = None
    for lr in args.lr:
        tuned, valid = trained(args, tokenizer, lr)
        print(json.dumps({"lr": lr, "seed": args.seed, "steps": args.steps, "valid_loss": valid, "precision": args.precision}), flush=True)
        if best is None or valid < best[1]:
            best = (tuned, valid, lr)
    print(json.dumps({"lr": best[2], "seed": args.seed, "steps": args.steps, "valid_loss": best[1], **scores(args, best[0], tokenizer)}), flush=True)


main()
