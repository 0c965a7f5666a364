"""Methods on few rows: SST-2, RTE, WNUT-17 and E2E with 16, 64 and 256 training rows.

Each cell is one `kvfold compare --rows N --draws D --resume`: every method is trained on D draws of N rows. The table has mean and
standard deviation over the draws, and the difference to the first method over equal draws with its standard error. A stopped call
continues: finished runs are read back from --out.

    python tests/bench/few_rows.py --kvfold build/kvfold --encoder all-MiniLM-L6-v2 --decoder SmolLM2-135M-Instruct --data ../shared/data

--encoder is for SST-2, RTE and WNUT-17, --decoder for E2E. Tasks without a base or without data are skipped. --data is a folder with
sst2/{train,dev}.tsv, superglue/RTE/{train,val}.jsonl, wnut17/{wnut17train.conll,emerging.dev.conll} and e2e/{trainset,devset}.csv. E2E is
validated on the first 100 rows of devset.csv, and trained for three epochs only, because few rows are soon learnt by heart. Its rows are drawn here, since
they are also measured as text in the context, in the place of a prefix. Scores are those of the best checkpoints on the validation rows. Needs no package.

--lora RATE, once for each rate to try on the first draw, trains the LoRA of peft_lora.py instead. Its rows are drawn here (for SST-2 and RTE each class
keeps its share), so on E2E they are those of the other methods, on other tasks different ones. On E2E its last state counts.
"""
import argparse
import csv
import json
import os
import random
import re
import statistics
import subprocess
import sys

import peft_lora

METHODS = ["mlp", "mlp:ffn-length=32", "direct", "adapter"]
TASKS = {  # name: base, training rows, validation rows, methods, options
    "SST-2": ("encoder", "sst2/train.tsv", "sst2/dev.tsv", [*METHODS, "full"],
              ["--task", "seq-cls", "--no-header", "--columns", "text,label"]),
    "RTE": ("encoder", "superglue/RTE/train.jsonl", "superglue/RTE/val.jsonl", [*METHODS, "full"],
            ["--task", "seq-cls", "--overlong", "truncate"]),
    "WNUT-17": ("encoder", "wnut17/wnut17train.conll", "wnut17/emerging.dev.conll", [*METHODS, "full"],
                ["--task", "token-cls", "--overlong", "truncate"]),
    "E2E": ("decoder", "e2e/trainset.csv", "e2e/devset.csv", METHODS,
            ["--map", "prompt=mr,completion=ref"]),
}
E2E_VALID = 100
MOST_IN_CONTEXT = 64  # rows that fit into the positions of SmolLM2
E2E_END = "<|im_end|>"  # of SmolLM2, as in the rows


def read_rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def write_rows(path, rows):
    """Writes a CSV file, and returns its path."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return path


def inputs_of(args, name):
    """Returns base, training file and validation file of a task, or None with a line for a missing one."""
    kind, data, valid = TASKS[name][:3]
    base = getattr(args, kind)
    found = [os.path.join(args.data, path) for path in (data, valid)]
    missing = [path for path in found if not os.path.exists(path)]
    if not base or missing:
        print(f"{name}: skipped, there is no {missing[0] if missing else '--' + kind}", file=sys.stderr)
        return None
    if name == "E2E":
        valid = os.path.join(args.out, "e2e-dev.csv")
        found[1] = valid if os.path.exists(valid) else write_rows(valid, read_rows(found[1])[:E2E_VALID + 1])
    return [base] + found


def run(args, *words):
    """Runs kvfold and returns its JSON object; None: it printed none."""
    threads = ["--threads", str(args.threads)] if args.threads else []
    done = subprocess.run([args.kvfold, *words, *threads, "--json"], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        print(f"kvfold {words[0]} ended with {done.returncode}", file=sys.stderr)
    return json.loads(done.stdout) if done.stdout.strip() else None


def compare(args, name, inputs, out, *options):
    methods, how = TASKS[name][3:]
    return run(args, "compare", "--base", inputs[0], "--data", inputs[1], "--valid", inputs[2], "--methods", ",".join(methods),
               "--out", os.path.join(args.out, out), "--resume", "--quiet", *how, *options)


def in_context(args, inputs, data, rows):
    """Returns the loss with the rows as text before each validation row."""
    _, how = TASKS["E2E"][3:]
    out = os.path.join(args.out, "context.h5")

    def write(length):
        return run(args, "train", "--base", inputs[0], "--data", data, "--method", "direct", "--init", "text", "--init-text",
                   "".join(prompt + text + E2E_END for prompt, text in rows), "--prefix-length", str(length), "--steps", "0", "--out", out,
                   "--force", "--quiet", *how)
    notes = " ".join(write(8)["notes"])
    write(int(re.search(r"with (\d+) tokens", notes).group(1)))
    return run(args, "eval", "--base", inputs[0], "--prefix", out, "--data", inputs[2], "--quiet", *how)["loss"]


def spread_of(values):
    return {"mean": statistics.mean(values), "sd": statistics.stdev(values) if len(values) > 1 else None}


def e2e_rows(inputs, rows, seed):
    """Returns the header and the rows of one draw."""
    header, *every = read_rows(inputs[1])
    return [header, *random.Random(1000 * rows + seed).sample(every, rows)]


def e2e_steps(rows):
    return max(1, 3 * rows // 8)


def decoder_cell(args, rows, inputs):
    """Like the object of compare, over draws made here, with the rows in the context as another method."""
    losses, steps = {}, e2e_steps(rows)
    for seed in range(args.draws):
        chosen = e2e_rows(inputs, rows, seed)
        data = write_rows(os.path.join(args.out, f"E2E-{rows}-{seed}.csv"), chosen)
        found = compare(args, "E2E", [inputs[0], data, inputs[2]], f"E2E-{rows}-{seed}", "--seeds", "1", "--seed", str(seed), "--steps", str(steps),
                        "--eval-every", str(max(1, steps // 2) if rows > 16 else steps))
        if not found:
            return None
        for method in found["methods"]:
            losses.setdefault(method["name"], []).append(method["loss"]["mean"])
        if rows <= MOST_IN_CONTEXT:
            losses.setdefault("rows in the context", []).append(in_context(args, inputs, data, chosen[1:]))
    first = next(iter(losses.values()))
    methods = []
    for name, values in losses.items():
        apart = spread_of([value - other for value, other in zip(values, first)])
        error = apart["sd"] / len(values) ** 0.5 if apart["sd"] is not None else None
        methods.append({"name": name, "loss": spread_of(values), "score": None,
                        "difference": {"mean": apart["mean"], "standard_error": error} if values is not first else None})
    return {"methods": methods}


def read_examples(name, path):
    """Returns (text, class), ((text, text), class) or (words, tags) of a file."""
    with open(path, newline="", encoding="utf-8") as file:
        if name == "SST-2":
            return [tuple(line.rstrip("\n").rsplit("\t", 1)) for line in file]
        if name == "RTE":
            return [((row["premise"], row["hypothesis"]), row["label"]) for row in map(json.loads, file)]
        sentences = [[line.split("\t") for line in part.splitlines()] for part in re.split(r"\n\s*\n", file.read().strip().replace("\r", ""))]
    return [([words[0] for words in sentence], [words[-1].strip() for words in sentence]) for sentence in sentences]


def draw(examples, rows, seed):
    """Chooses rows; each class keeps its share."""
    order = random.Random(seed).sample(examples, len(examples))
    if isinstance(order[0][1], list):
        return order[:rows]
    classes = sorted({gold for _, gold in order})
    chosen, left = [], rows
    for i, name in enumerate(classes):
        same = [row for row in order if row[1] == name]
        take = left if i == len(classes) - 1 else max(1, round(rows * len(same) / len(order)))
        chosen, left = chosen + same[:take], left - take
    return chosen


def lora(args, name, rows, seed, rate, inputs):
    """Returns the score, or the loss on E2E, of one LoRA."""
    if name != "E2E":
        return peft_lora.train_encoder(inputs[0], draw(read_examples(name, inputs[1]), rows, seed), read_examples(name, inputs[2]), rate, args.steps,
                                       max(1, args.steps // 2), seed, args.threads or 1)
    out = os.path.join(args.out, "lora")
    peft_lora.train_lm(inputs[0], e2e_rows(inputs, rows, seed)[1:], rate, e2e_steps(rows), out, seed, args.threads or 1)
    return run(args, "eval", "--base", inputs[0], "--lora", out, "--data", inputs[2], "--quiet", *TASKS["E2E"][4])["loss"]


def lora_cell(args, name, rows, inputs):
    """The scores of a LoRA over the draws, at the best of the rates on the first one; finished scores are in --out."""
    kept = os.path.join(args.out, f"{name}-{rows}-lora.json")
    done = {}
    if os.path.exists(kept):
        with open(kept, encoding="utf-8") as file:
            done = json.load(file)

    def score(seed, rate):
        key = f"{seed} {rate}"
        if key not in done:
            done[key] = lora(args, name, rows, seed, rate, inputs)
            with open(kept, "w", encoding="utf-8") as file:
                json.dump(done, file)
        return done[key]
    sign = -1 if name == "E2E" else 1
    best = max(args.lora, key=lambda rate: sign * score(0, rate))
    return {"methods": [{"name": f"LoRA at {best}", "score": spread_of([score(seed, best) for seed in range(args.draws)]), "difference": None}]}


def cell(args, name, rows, inputs):
    """Trains one cell; None: no run succeeded."""
    if args.lora:
        return lora_cell(args, name, rows, inputs)
    if name == "E2E":
        return decoder_cell(args, rows, inputs)
    return compare(args, name, inputs, f"{name}-{rows}", "--rows", str(rows), "--draws", str(args.draws), "--steps", str(args.steps),
                   "--eval-every", str(max(1, args.steps // 4)))


def cell_text(method):
    """Formats "0.8123 (sd 0.0100), +0.0123 ± 0.0045"."""
    spread, difference = method["score"] or method["loss"], method["difference"]
    if not spread:
        return "-"
    text = f"{spread['mean']:.4f}"
    if spread.get("sd") is not None:
        text += f" (sd {spread['sd']:.4f})"
    if difference:
        text += f", {difference['mean']:+.4f}"
    if difference and difference["standard_error"] is not None:
        text += f" ± {difference['standard_error']:.4f}"
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kvfold", default="build/kvfold")
    parser.add_argument("--encoder", help="bidirectional base")
    parser.add_argument("--decoder", help="causal base")
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", default="few-rows", help="folder for the runs")
    parser.add_argument("--task", action="append", choices=TASKS)
    parser.add_argument("--rows", type=int, action="append", help="default: 16, 64, 256")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200, help="of all tasks but E2E")
    parser.add_argument("--lora", type=float, action="append", help="learning rates of a LoRA")
    parser.add_argument("--threads", type=int)
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    print(f"{args.draws} draws, {args.steps} steps; differences are to the first method, over equal draws\n")
    print("| task, score | rows | method | mean, difference |\n|---|---|---|---|")
    for name in args.task or TASKS:
        inputs = inputs_of(args, name)
        for rows in (args.rows or [16, 64, 256]) if inputs else []:
            found = cell(args, name, rows, inputs)
            for method in found["methods"] if found else []:
                print(f"| {name}, {method.get('best_metric') or ('loss' if name == 'E2E' else 'score')} | {rows} | {method['name']} | {cell_text(method)} |", flush=True)


if __name__ == "__main__":
    main()
