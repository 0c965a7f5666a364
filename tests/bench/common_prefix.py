"""Common prefixes of rows: how much of the saved tokens is saved as time.

Rows of a step that begin with the same tokens compute them once. Three kinds of data, read by a causal base: chat rows that begin
with the template's system turn, the choices of COPA behind their premise, questions behind one document (with --group-by prefix). Every
round trains the same steps with common prefixes shared and with every row alone, in turn; the figures are medians over rounds.

    python tests/bench/common_prefix.py --kvfold build/kvfold --base MODEL.gguf --data ../shared/data

--data: a folder with e2e/trainset.csv, superglue/COPA/train.jsonl and xquad_en/xquad.en.json. Needs no package.
"""
import argparse
import csv
import json
import os
import statistics
import subprocess
import tempfile


def chat_rows(folder):
    with open(os.path.join(folder, "e2e", "trainset.csv"), newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))[:400]
    return [{"messages": [{"role": "user", "content": row["mr"]}, {"role": "assistant", "content": row["ref"]}]} for row in rows]


def copa_rows(folder):
    with open(os.path.join(folder, "superglue", "COPA", "train.jsonl"), encoding="utf-8") as file:
        examples = [json.loads(line) for line in file]
    link = {"cause": " because", "effect": " so"}
    return [{"prompt": e["premise"].rstrip(".") + link[e["question"]], "completion": " " + e[choice]}
            for e in examples for choice in ("choice1", "choice2")]


def document_rows(folder):
    with open(os.path.join(folder, "xquad_en", "xquad.en.json"), encoding="utf-8") as file:
        articles = json.load(file)["data"]
    return [{"prompt": f"{p['context']}\n\nQuestion: {q['question']}\nAnswer:", "completion": " " + q["answers"][0]["text"]}
            for article in articles[:12] for p in article["paragraphs"] for q in p["qas"]]


WORK = {  # name: rows, rows per step, options
    "chat, system turn": (chat_rows, 8, []),
    "COPA, premise": (copa_rows, 64, ["--shuffle", "off"]),
    "questions on a document": (document_rows, 8, ["--group-by", "prefix"]),
}


def train(args, path, rows, options, share):
    out = path + ".h5"
    command = [args.kvfold, "train", "--base", args.base, "--data", path, "--out", out, "--force", "--json", "--quiet", "--steps", str(args.steps),
               "--batch-size", str(rows), "--share-prefixes", share, "--precision", args.precision, "--seed", "1"] + options
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kvfold", default="build/kvfold")
    parser.add_argument("--base", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--work", action="append", choices=WORK)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--precision", default="auto")
    args = parser.parse_args()
    for name in args.work or WORK:
        make, rows, options = WORK[name]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "rows.jsonl")
            with open(path, "w", encoding="utf-8") as file:
                file.writelines(json.dumps(row) + "\n" for row in make(args.data))
            rounds = [(train(args, path, rows, options, "auto"), train(args, path, rows, options, "off")) for _ in range(args.rounds)]
        shared, alone = rounds[0]
        tokens = 1 - shared["computed_tokens"] / alone["computed_tokens"]
        time = statistics.median(1 - s["step_seconds"] / a["step_seconds"] for s, a in rounds)
        loss = max(abs(s["train_loss"] - a["train_loss"]) / a["train_loss"] for s, a in rounds)
        print(f"{name:24} tokens {alone['computed_tokens']} -> {shared['computed_tokens']}, saved {tokens:.1%}; time saved {time:.1%}, "
              f"of the tokens {time / tokens:.0%}; loss of the last step differs by {loss:.1e}", flush=True)


if __name__ == "__main__":
    main()
