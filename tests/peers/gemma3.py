"""The real Gemma 3 270M (Q4_K_M), whose layers with a sliding window have a rope and, in llama.cpp, a cache of their own: token ids, the bare
loss and ten training steps against transformers, the merged prefix against the live encoder and in transformers' cache, and answers of
llama-server with the exported prefix. check.py of the export passes on a server with --swa-full and fails without. (--prefix is not read.)"""
import os
import subprocess
import sys

import h5py
import torch

import engine
import peer
import program
from llama_server import LlamaServer, Server

TEXTS = ["Hello  world", " leading", "tab\tnew\nline\n\n\nx", "\u65e5\u672c\u8a9e\u306e\u30c6\u30b9\u30c8 \U0001f642", "<bos>a<eos>",
         "<start_of_turn>user\nhi<end_of_turn>\n", "1234567 3.14", "", "   ", "a\u00a0b", "<unused3>x", "e\u0301", "\x00\x01", "<0x41>"]
P, STEPS, ROWS, LR = 16, 10, 4, 1e-3


def tokens(args, tokenizer, texts):
    sys.path.insert(0, "python")
    os.environ.setdefault("KVFOLD_LIBRARY", os.path.abspath(os.path.join(args.build, "libkvfold.so.0")))
    import kvfold
    base, server = kvfold.Base(args.model), Server(args, args.model, None)
    theirs = [tokenizer(text)["input_ids"] for text in texts]
    ours = [base.tokenize(text).tolist() for text in texts]
    engines = [server.tokens(text) for text in texts]
    program.report(f"gemma3: {len(texts)} texts: ids that differ from transformers", sum(a != b for a, b in zip(ours, theirs)), 0)
    program.report(f"gemma3: {len(texts)} texts: ids that differ from llama.cpp", sum(a != b for a, b in zip(ours, engines)), 0)


def loss_of(model, kv, rows):
    """As kvfold's: the mean over the labels of all rows. In f64: torch's f32 sum over this vocabulary is off by 1e-4."""
    ids, mask, labels = peer.padded(rows, "right")
    past = {} if kv is None else {"past_key_values": peer.cache_of(kv, len(rows))}
    first = 0 if kv is None else kv.shape[4]
    logits = model(ids, attention_mask=torch.cat([torch.ones(len(rows), first, dtype=mask.dtype), mask], 1), **past).logits
    return peer.loss_of(logits.double(), labels)


def prefix_of(path):
    with h5py.File(path) as file:
        return torch.from_numpy(file["prefix/past_key_values"][:])


def train(args, name, data, *more):
    """A direct prefix: its run, as it is and merged."""
    run, merged = (os.path.join(args.work, f"gemma3_{name}{end}.h5") for end in ("", "_merged"))
    peer.kvfold(args, "train", "--base", args.model, "--data", data, "--out", run, "--force", "--steps", STEPS, "--batch-size", ROWS, "--method",
                "direct", "--prefix-length", P, "--lr", LR, "--lr-units", "parameter", "--schedule", "constant", "--warmup", 0, "--clip", 1,
                "--shuffle", "off", "--weight-decay", 0, "--precision", "f32", "--threads", args.threads, *more)
    peer.kvfold(args, "merge", run, "--out", merged, "--force")
    return run, merged


def train_torch(model, kv, steps):
    kv = kv.clone().requires_grad_()
    optimizer = torch.optim.AdamW([kv], lr=LR, weight_decay=0)
    losses = []
    for rows in steps:
        loss = loss_of(model, kv, rows)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_([kv], 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def check(args, folder, swa_full):
    """The exit status of the exported check.py on a server."""
    server = Server(args, args.model, folder, swa_full=swa_full)
    done = subprocess.run([sys.executable, os.path.join(folder, "check.py"), server.server.listening_address], capture_output=True, text=True)
    print("    " + (done.stdout + done.stderr).strip().replace("\n", "\n    "))
    return done.returncode


def ten_steps(args, model, data, rows):
    """From the prefix of the first run; returns the merged prefix."""
    _, start = train(args, "start", data, "--init", "vocab")
    run, merged = train(args, "steps", data, "--init", "kv", "--init-kv", start)
    with h5py.File(run) as file:
        ours = file["history/train_loss"][:].tolist()
    theirs = train_torch(model, prefix_of(start), [rows[i:i + ROWS] for i in range(0, len(rows), ROWS)])
    for i, (a, b) in enumerate(zip(ours, theirs)):
        print(f"    step {i + 1:2}: kvfold {a:.6f}, torch {b:.6f}")
    program.report("gemma3: losses of ten steps, largest relative distance", max(abs(a / b - 1) for a, b in zip(ours, theirs)), 1e-4)
    return run, merged


def losses(args, model, data, rows, run, merged):
    """Over all rows: bare, of the live encoder, merged, and behind transformers' cache."""
    with torch.no_grad():
        bare, behind = (loss_of(model, kv, rows).item() for kv in (None, prefix_of(merged)))
    got = [peer.kvfold(args, "eval", "--base", args.model, "--data", data, "--precision", "f32", *more)["loss"]
           for more in ((), ("--prefix", run), ("--prefix", merged))]
    program.report("gemma3: bare loss, relative distance from transformers", abs(got[0] / bare - 1), 1e-5)
    program.report("gemma3: loss of the merged prefix and of the live one", abs(got[1] - got[2]), 0)
    program.report("gemma3: loss behind transformers' cache, relative distance", abs(got[2] / behind - 1), 1e-5)
    rows = [(ids, ids) for ids, _ in rows[:4]]
    logits = peer.dump(args, args.model, rows, prefix=merged)["logits"]
    with torch.no_grad():
        want = torch.cat([model(torch.tensor([ids]), past_key_values=peer.cache_of(prefix_of(merged), 1)).logits[0, :-1] for ids, _ in rows])
    program.report("gemma3: logits behind transformers' cache", (logits - want).abs().max().item(), 2e-3)


def main():
    args = engine.parse(__doc__, ("--data", {"default": "build/demo/train.jsonl"}))
    torch.set_num_threads(args.threads)
    model, tokenizer = peer.load_gguf(args.model, args.work), peer.gguf_tokenizer(args.model)
    tokens(args, tokenizer, TEXTS + engine.PROMPTS)
    rows = peer.text_rows(args.data, tokenizer, 40)[:STEPS * ROWS]
    rows = [([tokenizer.bos_token_id] + ids, [-100] + labels) for ids, labels in rows]
    data = peer.write_rows(os.path.join(args.work, "gemma3.jsonl"), rows)
    run, args.prefix = ten_steps(args, model, data, rows)
    losses(args, model, data, rows, run, args.prefix)
    del model
    engine.compare_engine(args, LlamaServer(args))
    folder = engine.export(args, args.model, "llama-server")
    for swa_full in (True, False):
        program.report(f"gemma3: check.py fails {'with' if swa_full else 'without'} --swa-full", check(args, folder, swa_full) == swa_full, 0)
    program.finish()


main()
