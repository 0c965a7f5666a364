"""How near the forecast of train comes: time and memory predicted before step 1 against those of the whole run.

    python tests/bench/forecast.py --kvfold build/kvfold --base MODEL.gguf --minilm FOLDER --data ../shared/data

Each row is one run with --forecast on, mostly of a recipe, for so many steps. --data: a folder with e2e and sst2. Needs no package.
"""
import argparse
import csv
import json
import os
import statistics
import subprocess
import tempfile

RECIPES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "recipes")


def cut(source, target, rows):
    """The first rows of a CSV whose fields may hold line ends."""
    with open(source, newline="", encoding="utf-8") as file, open(target, "w", newline="", encoding="utf-8") as out:
        csv.writer(out).writerows(row for i, row in enumerate(csv.reader(file)) if i <= rows)


def runs(args, folder):
    data = os.path.join(args.data, "sst2")
    sst2 = ["--base", args.minilm, "--data", f"{data}/train.tsv", "--valid", f"{data}/dev.tsv"]
    for name, rows in (("train", 600), ("dev", 60)):
        cut(os.path.join(args.data, "e2e", f"{name}set.csv"), os.path.join(folder, f"{name}.csv"), rows)
    e2e = ["--base", args.base, "--data", os.path.join(folder, "train.csv"), "--valid", os.path.join(folder, "dev.csv")]
    yield "SmolLM2, E2E, mlp, 16 rows", "e2e-smollm2", e2e + ["--steps", 20]
    lm = ["--map", "prompt=mr,completion=ref", "--max-length", 256, "--overlong", "truncate"]
    yield "the same, 4 rows, f32, direct", None, e2e + lm + ["--steps", 25, "--batch-size", 4, "--precision", "f32", "--method", "direct"]
    yield "MiniLM, SST-2, mlp, 32 rows", "sst2-mlp", sst2 + ["--steps", 100]
    yield "the same, 8 rows, 5 validations", "sst2-mlp", sst2 + ["--steps", 200, "--batch-size", 8, "--eval-every", 40]
    yield "MiniLM, SST-2, direct, f32", "sst2-direct", sst2 + ["--steps", 60, "--precision", "f32"]


def train(args, folder, recipe, options):
    recipe = ["--recipe", os.path.join(RECIPES, recipe + ".txt")] if recipe else []
    command = [args.kvfold, "train", *recipe, "--out", os.path.join(folder, "run.h5"),
               "--force", "--json", "--forecast", "on", "--threads", args.threads, *options]
    return json.loads(subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kvfold", default="build/kvfold")
    parser.add_argument("--base", required=True)
    parser.add_argument("--minilm", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--threads", default=2)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    print("| run | seconds said, taken | ratio | MiB said, taken | ratio | the forecast took, in steps |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for what, recipe, options in runs(args, folder):
            if args.only not in what:
                continue
            results = [train(args, folder, recipe, options) for _ in range(args.rounds)]
            said, taken = (statistics.median(values) for values in zip(*((r["forecast"]["seconds"], r["seconds"]) for r in results)))
            memory, peak = (statistics.median(values) / 2**20 for values in
                            zip(*((r["forecast"]["peak_rss_bytes"], r["peak_rss_bytes"]) for r in results)))
            cost = statistics.median(r["forecast"]["probe_seconds"] / r["forecast"]["seconds_per_step"] for r in results)
            worst = max((r["forecast"]["seconds"] / r["seconds"] for r in results), key=lambda ratio: abs(ratio - 1))
            print(f"| {what} | {said:.1f}, {taken:.1f} | {said / taken:.2f} (worst {worst:.2f}) | {memory:.0f}, {peak:.0f} | "
                  f"{memory / peak:.2f} | {cost:.1f} |", flush=True)


main()
