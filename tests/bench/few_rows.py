"""Methods on few rows: SST-2, RTE, WNUT-17 and E2E with 16, 64 and 256 training rows.

Each cell is one `kvfold compare --rows N --draws D --resume`: every method is trained on D draws of N rows. The table has mean and
standard deviation over the draws, and the difference to the first method over equal draws with its standard error. A stopped call
continues: finished runs are read back from --out.

    python tests/bench/few_rows.py --kvfold build/kvfold --encoder all-MiniLM-L6-v2 --decoder SmolLM2-135M-Instruct --data ../shared/data

--encoder is for SST-2, RTE and WNUT-17, --decoder for E2E. Tasks without a base or without data are skipped. --data is a folder with
sst2/{train,dev}.tsv, superglue/RTE/{train,val}.jsonl, wnut17/{wnut17train.conll,emerging.dev.conll} and e2e/{trainset,devset}.csv. E2E is
validated on the first 100 rows of devset.csv, and trained for 40 steps only, because few rows are soon learnt by heart. Scores are those of the best checkpoints on the validation rows. Needs no package.
"""
import argparse
import csv
import json
import os
import subprocess
import sys

NEURONS = "mlp:ffn-length=32"
TASKS = {  # name: base, training rows, validation rows, methods, options
    "SST-2": ("encoder", "sst2/train.tsv", "sst2/dev.tsv", ["mlp", NEURONS, "direct", "adapter"],
              ["--task", "seq-cls", "--no-header", "--columns", "text,label"]),
    "RTE": ("encoder", "superglue/RTE/train.jsonl", "superglue/RTE/val.jsonl", ["mlp", NEURONS, "direct", "adapter"],
            ["--task", "seq-cls", "--overlong", "truncate"]),
    "WNUT-17": ("encoder", "wnut17/wnut17train.conll", "wnut17/emerging.dev.conll", ["mlp", NEURONS, "direct", "adapter"],
                ["--task", "token-cls", "--overlong", "truncate"]),
    "E2E": ("decoder", "e2e/trainset.csv", "e2e/devset.csv", ["mlp", NEURONS, "direct", "adapter"],
            ["--map", "prompt=mr,completion=ref", "--steps", "40", "--eval-every", "5"]),
}
E2E_VALID = 100


def first_rows(path, out, n):
    """Writes the first n rows of a CSV file, and returns their path."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))[:n + 1]
    with open(out, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return out


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
        found[1] = valid if os.path.exists(valid) else first_rows(found[1], valid, E2E_VALID)
    return [base] + found


def compare(args, name, rows, inputs):
    """Runs one cell and returns the object that compare prints; None: no run succeeded."""
    methods, options = TASKS[name][3:]
    command = [args.kvfold, "compare", "--base", inputs[0], "--data", inputs[1], "--valid", inputs[2], "--rows", str(rows),
               "--draws", str(args.draws), "--methods", ",".join(methods), "--out", os.path.join(args.out, f"{name}-{rows}"),
               "--resume", "--json", "--quiet"]
    command += options + (["--threads", str(args.threads)] if args.threads else [])
    if "--steps" not in options:
        command += ["--steps", str(args.steps), "--eval-every", str(max(1, args.steps // 4))]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        print(f"{name}, {rows} rows: compare ended with {done.returncode}", file=sys.stderr)
    return json.loads(done.stdout) if done.stdout.strip() else None


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
    parser.add_argument("--threads", type=int)
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    print(f"{args.draws} draws, {args.steps} steps; differences are to the first method, over equal draws\n")
    print("| task, score | rows | method | mean, difference |\n|---|---|---|---|")
    for name in args.task or TASKS:
        inputs = inputs_of(args, name)
        for rows in (args.rows or [16, 64, 256]) if inputs else []:
            found = compare(args, name, rows, inputs)
            for method in found["methods"] if found else []:
                print(f"| {name}, {method.get('best_metric') or 'loss'} | {rows} | {method['name']} | {cell_text(method)} |", flush=True)


if __name__ == "__main__":
    main()
