"""Frozen weights in another type: what changes in loss and gradient.

One batch of rows through one prefix (an untrained run of --steps steps), with the base's weights packed in f32, kept in memory as
bf16 or int8, and streamed from the file; all computed in f32, and the first again in bf16. Printed: the mean loss of the labels, its
difference from f32, and the relative L2 distance of the prefix's gradient.

    python tests/bench/weights.py --kvfold build/kvfold --dump build/tests/dump_pass --base MODEL.gguf --data ../shared/data

--data: a folder with e2e/trainset.csv. Needs numpy and safetensors.
"""
import argparse
import csv
import json
import os
import subprocess
import tempfile

import numpy
from safetensors.numpy import load_file

MODES = {  # name: options
    "f32": ["--precision", "f32"],
    "f32, streamed": ["--precision", "f32", "--stream-layers", "on"],
    "weights in bf16": ["--precision", "f32", "--weight-dtype", "bf16"],
    "weights in int8": ["--precision", "f32", "--weight-dtype", "int8"],
    "computed in bf16": ["--precision", "bf16"],
    "weights in int8, computed in bf16": ["--precision", "bf16", "--weight-dtype", "int8"],
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kvfold", default="build/kvfold")
    parser.add_argument("--dump", default="build/tests/dump_pass")
    parser.add_argument("--base", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--steps", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(args.data, "e2e", "trainset.csv"), newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))[:args.rows * 97:97]
        data = os.path.join(folder, "rows.jsonl")
        with open(data, "w", encoding="utf-8") as file:
            for row in rows:
                file.write(json.dumps({"prompt": row["mr"], "completion": " " + row["ref"]}) + "\n")
        run, prefix = os.path.join(folder, "run.h5"), os.path.join(folder, "prefix.h5")
        subprocess.run([args.kvfold, "train", "--base", args.base, "--data", data, "--out", run, "--method", "direct", "--steps", str(args.steps),
                        "--batch-size", "8", "--precision", "f32", "--quiet"], check=True, capture_output=True)
        subprocess.run([args.kvfold, "merge", run, "--out", prefix, "--quiet"], check=True, capture_output=True)
        first = None
        print(f"| {'':34} | {'loss':>9} | {'against f32':>11} | {'gradient':>9} |")
        for name, options in MODES.items():
            out = os.path.join(folder, "out.safetensors")
            subprocess.run([args.dump, "--base", args.base, "--data", data, "--prefix", prefix, "--position-start", "20", "--out", out] + options,
                           check=True, capture_output=True)
            got = load_file(out)
            loss, gradient = float(got["loss"][0]), got["dprefix"].astype(numpy.float64)
            first = first or (loss, gradient)
            away = numpy.linalg.norm(gradient - first[1]) / numpy.linalg.norm(first[1])
            print(f"| {name:34} | {loss:9.6f} | {loss - first[0]:+11.6f} | {away:9.1e} |", flush=True)


if __name__ == "__main__":
    main()
