"""Arithmetic with worked answers: the methods after 64, 256 and 1,024 rows, and the bare base with eight examples before each question.

    python tests/bench/reasoning.py --kvfold build/kvfold --base SmolLM2-135M-Instruct.Q4_1.gguf --out reasoning

Problems of two or three operations come from templates with random names, things and numbers; training, validation and test problems have different
questions. Prints, tab-separated, the share of 200 test problems whose last number is right in a greedy answer, the mean length of the answers in
tokens, and the loss on 64 validation problems. Every run has the state with the lowest of four validation losses, except the LoRA (--lora RATE,
repeatable, peft_lora.py), which has its last.
"""
import argparse
import json
import os
import random
import re
import subprocess

import peft_lora

METHODS = {"mlp": ["mlp"], "mlp, 32 neurons": ["mlp", "--ffn-length", "32"], "direct": ["direct"], "adapter": ["adapter"], "full": ["full"]}
STEPS = {64: 64, 256: 128, 1024: 256}  # of 8 rows
SHOTS, VALID, TEST = 8, 64, 200
MOST_TOKENS = 48
NAMES = ["Ann", "Ben", "Cora", "Dan", "Eve", "Finn", "Gina", "Hugo", "Iris", "Jack", "Kate", "Leo"]
THINGS = ["apples", "books", "coins", "eggs", "pens", "shells", "stamps", "cards", "marbles", "nuts"]
BOXES = ["bags", "boxes", "baskets", "jars", "crates"]


def problem(rng):
    """Returns question and worked answer."""
    name, other = rng.sample(NAMES, 2)
    thing, box = rng.choice(THINGS), rng.choice(BOXES)
    a, b, c, more = rng.randint(2, 9), rng.randint(2, 9), rng.randint(2, 30), rng.randint(2, 20)
    total, kind = a * b, rng.randrange(4)
    if kind == 0:
        result = c + total
        return (f"{name} has {c} {thing} and buys {a} {box} with {b} {thing} each. How many {thing} does {name} have now?",
                f"{a} * {b} = {total}. {c} + {total} = {result}. The answer is {result}.")
    if kind == 1:
        gone = rng.randint(1, total - 1)
        result = total - gone
        return (f"{name} has {a} {box} with {b} {thing} each and gives {gone} {thing} to {other}. How many {thing} are left?",
                f"{a} * {b} = {total}. {total} - {gone} = {result}. The answer is {result}.")
    if kind == 2:
        result = c + c + more
        return (f"{name} has {c} {thing}. {other} has {more} more than {name}. How many {thing} do they have together?",
                f"{c} + {more} = {c + more}. {c} + {c + more} = {result}. The answer is {result}.")
    d = rng.randint(2, 9)
    result = total + a * d
    return (f"{name} fills {a} {box} with {b} {thing} each, and {other} fills {a} {box} with {d} {thing} each. How many {thing} is that?",
            f"{a} * {b} = {total}. {a} * {d} = {a * d}. {total} + {a * d} = {result}. The answer is {result}.")


def draw(seed, n, seen):
    """Returns n problems as (prompt, completion), with questions that are not in `seen`, and adds them there."""
    rng, rows = random.Random(seed), []
    while len(rows) < n:
        question, answer = problem(rng)
        if question not in seen:
            seen.add(question)
            rows.append((f"Question: {question}\nAnswer:", f" {answer}"))
    return rows


def write(args, name, rows):
    path = os.path.join(args.out, name)
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"prompt": prompt, "completion": text}) + "\n" for prompt, text in rows)
    return path


def run(args, command, *options):
    done = subprocess.run([args.kvfold, command, "--base", args.base, "--threads", str(args.threads), "--map", "", "--quiet", "--json", *options],
                          check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def answer_of(text):
    numbers = re.findall(r"-?\d+", text)
    return numbers[-1] if numbers else None


def measure(args, name, valid, test, subject, before=""):
    rows = write(args, "asked.jsonl", [(before + prompt, text) for prompt, text in test])
    found = run(args, "generate", "--data", rows, "--max-tokens", str(MOST_TOKENS), "--stop", "\n", *subject)
    right = sum(answer_of(text) == answer_of(gold) for text, (_, gold) in zip(found["texts"], test))
    loss = run(args, "eval", "--data", write(args, "valid.jsonl", [(before + prompt, text) for prompt, text in valid]), *subject)["loss"]
    print(f"{name}\t{100 * right / len(test):.1f}\t{found['new_tokens'] / len(test):.1f}\t{loss:.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kvfold", default="build/kvfold")
    parser.add_argument("--base", required=True)
    parser.add_argument("--out", default="reasoning", help="folder for the runs")
    parser.add_argument("--method", action="append", choices=[*METHODS, "bare base"], help="default: all")
    parser.add_argument("--lora", type=float, action="append", default=[], help="learning rate of a LoRA")
    parser.add_argument("--rows", type=int, action="append", choices=STEPS)
    parser.add_argument("--lr", help="learning rate of the methods (default: each method's own)")
    parser.add_argument("--seed", type=int, default=0, help="also draws the training rows")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    seen = set()
    shots, valid, test = (draw(1000 + i, n, seen) for i, n in enumerate((SHOTS, VALID, TEST)))
    every = draw(args.seed, max(STEPS), seen)
    if "bare base" in (args.method or ["bare base"]):
        measure(args, "bare base", valid, test, [])
        measure(args, f"bare base, {SHOTS} examples", valid, test, [], "".join(f"{prompt}{text}\n\n" for prompt, text in shots))
    for rows in args.rows or STEPS:
        data = write(args, f"train-{rows}.jsonl", every[:rows])
        held = write(args, "held.jsonl", valid)
        for name in [name for name in args.method or METHODS if name in METHODS]:
            out = os.path.join(args.out, f"{name}-{rows}-{args.seed}.h5".replace(", ", "-").replace(" ", "-"))
            run(args, "train", "--data", data, "--valid", held, "--method", *METHODS[name], "--steps", str(STEPS[rows]), "--eval-every",
                str(STEPS[rows] // 4), "--seed", str(args.seed), "--out", out, "--force", *(["--lr", args.lr] if args.lr else []))
            measure(args, f"{rows} rows, {name}", valid, test, ["--prefix", out])
        for rate in args.lora:
            out = os.path.join(args.out, f"lora-{rate}-{rows}-{args.seed}")
            peft_lora.train_lm(args.base, every[:rows], rate, STEPS[rows], out, args.seed, args.threads)
            measure(args, f"{rows} rows, LoRA at {rate}", valid, test, ["--lora", out])


if __name__ == "__main__":
    main()
