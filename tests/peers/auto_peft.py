"""Exported adapters in PEFT, each loaded by the Python of its own card (README.md), which names no base: what it answers, compared with what
kvfold answered.

    python auto_peft.py KIND:BASE:FOLDER:EXPECTED ...

KIND "text": EXPECTED is what `generate` gave after the prompt PROMPT. "classes": the JSON lines of `predict`.
"""
import json
import os
import re
import sys

import torch
from tokenizers import Tokenizer

PROMPT = "after 3:"
TOLERANCE = 1e-4


def from_card(folder):
    """`model`, by the first block of Python in the card, run in its folder."""
    back = os.getcwd()
    os.chdir(folder)
    try:
        with open("README.md") as card:
            code = re.search(r"```python\n(.*?)```", card.read(), re.S)[1]
        names = {}
        exec(code, names)  # a card of our own
        return names["model"].eval()
    finally:
        os.chdir(back)


def text(model, tokenizer, expected):
    rows = torch.tensor([tokenizer.encode(PROMPT).ids])
    with torch.no_grad():
        ids = model.generate(input_ids=rows, attention_mask=torch.ones_like(rows), max_new_tokens=20, do_sample=False)
    said = tokenizer.decode(ids[0, rows.shape[1]:].tolist())
    with open(expected) as file:
        want = file.read()
    return None if said == want.removesuffix("\n") else f"{said!r}, kvfold says {want!r}"


def classes(model, tokenizer, expected):
    with open(expected) as file:
        rows = [json.loads(line) for line in file]
    for row in rows:
        with torch.no_grad():
            found = torch.softmax(model(input_ids=torch.tensor([tokenizer.encode(row["text"]).ids])).logits[0], -1)
        names = model.config.id2label
        if [names[i] for i in range(len(found))] != list(row["probabilities"]):
            return f"names {names}, kvfold's are {list(row['probabilities'])}"
        for p, (name, want) in zip(found.tolist(), row["probabilities"].items()):
            if abs(p - want) > TOLERANCE:
                return f"{row['text']!r}: {name} has {p}, kvfold says {want}"
    return None


def main():
    wrong = 0
    for case in sys.argv[1:]:
        kind, base, folder, expected = case.split(":")
        tokenizer = Tokenizer.from_file(os.path.join(base, "tokenizer.json"))
        found = {"text": text, "classes": classes}[kind](from_card(folder), tokenizer, expected)
        print(f"{folder}: {found or 'as kvfold says'}")
        wrong += found is not None
    sys.exit(1 if wrong else 0)


main()
