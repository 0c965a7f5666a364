"""Greedy continuations, token for token, against `generate` of transformers (bare base) and of PEFT (with a trained prefix). A
difference is accepted where the two best logits of transformers lie within 1e-3 at that place."""
import json
import os

import torch
from peft import PeftModel

import peer

NEW = 48
PROMPTS = ["The capital of France is", "Once upon a time", "def fibonacci(n):", "The best way to learn is", "Water boils at",
           "In 1969, men", "List three colours:\n1.", "Dear Sir or Madam,", "The opposite of hot is", "2 + 2 =",
           "\u00c9t\u00e9 2024:", "She opened the door and", "Internet, noun:", "Meeting, noun:", "Software, noun:", "Marriage, noun:",
           "Q: What is the moon?\nA:", "import numpy as np\n", "\u65e5\u672c\u306e\u9996\u90fd\u306f", "<p>Hello"]


def ours(args, *more):
    data = os.path.join(args.work, "prompts.jsonl")
    with open(data, "w", encoding="utf-8") as file:
        for prompt in PROMPTS:
            file.write(json.dumps({"prompt": prompt, "completion": ""}) + "\n")
    return peer.kvfold(args, "generate", "--base", args.model, "--data", data, "--max-tokens", NEW, "--precision", "f32",
                       "--chat-template", "none", *more)["texts"]


def theirs(model, tokenizer, prompt):
    """New ids, and how far the second logit was below the first at each."""
    ids = tokenizer(prompt, return_tensors="pt", add_special_tokens=False)
    with torch.no_grad():
        out = model.generate(**ids, max_new_tokens=NEW, do_sample=False, output_logits=True, return_dict_in_generate=True)
    best = [step[0].topk(2).values for step in out.logits]
    return out.sequences[0, ids["input_ids"].shape[1]:].tolist(), [(b[0] - b[1]).item() for b in best]


def first_difference(tokenizer, ids, text):
    """Index of the first new token whose text is not in `text`; None if all are."""
    for n in range(1, len(ids) + 1):
        part = tokenizer.decode(ids[:n], skip_special_tokens=True, clean_up_tokenization_spaces=False)
        if not text.startswith(part.rstrip("\ufffd")):
            return n - 1
    whole = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return None if whole == text else len(ids) - 1


def compare(what, texts, model, tokenizer):
    same, ties = 0, 0
    for prompt, text in zip(PROMPTS, texts):
        ids, gaps = theirs(model, tokenizer, prompt)
        at = first_difference(tokenizer, ids, text)
        same += at is None
        if at is None:
            continue
        ties += gaps[at] < 1e-3
        want = tokenizer.decode(ids, skip_special_tokens=True)
        print(f"    {prompt!r}: token {at}, gap of the two best {gaps[at]:.1e}\n      transformers {want!r}\n      kvfold       {text!r}")
    print(f"    {what}: {same} of {len(PROMPTS)} equal for {NEW} tokens, {ties} near-ties")
    peer.report(f"{what}: continuations that differ without a near-tie", len(PROMPTS) - same - ties, 0)


def main():
    args = peer.parse(__doc__)
    folder, prefix = os.path.join(args.work, "exported"), os.path.join(args.work, "interop_prefix.h5")
    if not os.path.exists(prefix):
        raise SystemExit("run interop.py first: it trains the prefix")
    model, tokenizer = peer.load_gguf(args.model, args.work), peer.gguf_tokenizer(args.model)
    compare("bare base", ours(args), model, tokenizer)
    compare("with a prefix", ours(args, "--prefix", prefix), PeftModel.from_pretrained(model, folder), tokenizer)
    peer.finish()


main()
