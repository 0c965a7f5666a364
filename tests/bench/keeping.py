"""What training on one task does to the base elsewhere: prefixes with and without --kl-to-base, adapters, and a LoRA of PEFT.

    python tests/bench/keeping.py --kvfold build/kvfold --base SmolLM2-135M-Instruct.Q4_1.gguf --data ../shared/data --folder /tmp/keeping

Trains on E2E. Prints, tab-separated, the loss on 100 rows of E2E, on 60 paragraphs of XQuAD, on the answers to 80 questions of XQuAD behind their
paragraphs, and the accuracy on 100 sentences of SST-2 behind four examples. The text of --kl-to-base are the prompts of the training rows, or 120
paragraphs of the other half of XQuAD's articles. --lora RATE trains the LoRA of peft_lora.py.
"""
import argparse
import csv
import json
import os
import random
import subprocess

import peft_lora

WORD = {"1": "positive", "0": "negative"}
TEXT = ["--kl-to-base", "1", "--retain"]


def settings(folder):
    """Name and options of every run; the last --steps counts."""
    other = os.path.join(folder, "retain.jsonl")
    return {
        "bare base": [], "mlp": ["--method", "mlp"], "direct": ["--method", "direct"], "neurons": ["--method", "mlp", "--ffn-length", "32"],
        "adapter": ["--method", "adapter"],
        "adapter, 60 steps": ["--method", "adapter", "--steps", "60"],
        "mlp, prompts": ["--method", "mlp", *TEXT, "prompts"],
        "mlp, text": ["--method", "mlp", *TEXT, other],
    }


def read_csv(path, delimiter=","):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.reader(file, delimiter=delimiter))


def write_rows(path, rows):
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def write_data(data, folder):
    rng = random.Random(1)
    with open(os.path.join(data, "xquad_en/xquad.en.json"), encoding="utf-8") as file:
        articles = json.load(file)["data"]
    half = len(articles) // 2
    kept, held = ([paragraph for article in part for paragraph in article["paragraphs"]] for part in (articles[:half], articles[half:]))
    rng.shuffle(kept)
    rng.shuffle(held)
    write_rows(os.path.join(folder, "retain.jsonl"), [{"text": paragraph["context"][:500]} for paragraph in kept[:128]])
    write_rows(os.path.join(folder, "text.jsonl"), [{"text": paragraph["context"][:500]} for paragraph in held[:60]])
    write_rows(os.path.join(folder, "answers.jsonl"),
               [{"prompt": f"{paragraph['context']}\nQuestion: {question['question']}\nAnswer:", "completion": " " + question["answers"][0]["text"]}
                for paragraph in held[60:100] for question in paragraph["qas"][:2]])
    shots = "".join(f"Review: {text.strip()}\nSentiment: {WORD[label]}\n\n" for text, label in read_csv(os.path.join(data, "sst2/train.tsv"), "\t")[:4])
    asked = read_csv(os.path.join(data, "sst2/dev.tsv"), "\t")
    rng.shuffle(asked)
    write_rows(os.path.join(folder, "sst2.jsonl"),
               [{"prompt": f"{shots}Review: {text.strip()}\nSentiment:", "completion": " " + word, "right": word == WORD[label]}
                for text, label in asked[:100] for word in ("positive", "negative")])
    write_rows(os.path.join(folder, "e2e.jsonl"),
               [{"prompt": prompt, "completion": text} for prompt, text in read_csv(os.path.join(data, "e2e/devset.csv"))[1:101]])


def measure(args, name, subject):
    def run(command, *options):
        return subprocess.run([args.kvfold, command, "--base", args.base, "--threads", str(args.threads), "--quiet", "--map", "", *options, *subject],
                              check=True, stdout=subprocess.PIPE, text=True).stdout
    losses = [json.loads(run("eval", "--json", "--data", os.path.join(args.folder, part + ".jsonl")))["loss"] for part in ("e2e", "text", "answers")]
    rows = os.path.join(args.folder, "sst2.jsonl")
    scores = [json.loads(line)["loglikelihood"] for line in run("score", "--data", rows, "--out", "-").splitlines()]
    with open(rows, encoding="utf-8") as file:
        right = [json.loads(line)["right"] for line in file]
    hits = sum((scores[i] > scores[i + 1]) == right[i] for i in range(0, len(right), 2))
    print("\t".join([name] + [f"{loss:.3f}" for loss in losses] + [str(hits)]), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kvfold", default="build/kvfold")
    parser.add_argument("--base", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--only", action="append", help="names of runs; default: all")
    parser.add_argument("--lora", type=float, action="append", default=[], help="learning rate of a LoRA")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    os.makedirs(args.folder, exist_ok=True)
    write_data(args.data, args.folder)
    known = settings(args.folder)
    for name in args.only or known:
        if not known[name]:
            measure(args, name, [])
            continue
        run = os.path.join(args.folder, f"{name}-{args.seed}.h5".replace(" ", "-"))
        subprocess.run([args.kvfold, "train", "--base", args.base, "--data", os.path.join(args.data, "e2e/trainset.csv"), "--map",
                        "prompt=mr,completion=ref", "--steps", str(args.steps), *known[name], "--seed", str(args.seed), "--threads", str(args.threads),
                        "--out", run, "--force", "--quiet"], check=True, stdout=subprocess.DEVNULL)
        measure(args, f"{name}, seed {args.seed}", ["--prefix", run, "--checkpoint", "last"])
    for rate in args.lora:
        folder = os.path.join(args.folder, f"lora-{rate}-{args.seed}")
        peft_lora.train_lm(args.base, read_csv(os.path.join(args.data, "e2e/trainset.csv"))[1:], rate, args.steps, folder, args.seed, args.threads)
        measure(args, f"LoRA at {rate}, seed {args.seed}", ["--lora", folder])


if __name__ == "__main__":
    main()
