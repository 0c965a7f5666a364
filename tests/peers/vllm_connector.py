"""vLLM with prefixes through python/kvfold/vllm.py, against `kvfold generate`: prompts, bare and with either of two prefixes; a prompt of
several blocks, twice; chats; and what vLLM computes itself for prompt_logprobs. --python: one that has vLLM."""
import argparse
import json
import os
import subprocess

import engine
import peer
import program

CHATS = ["What is the internet?", "Define: Meeting", "Say something about marriage."]
LONG = "A dictionary is a strange kind of book. Nobody reads it from the first page to the last, and yet every page was written by somebody. " * 4


def ask(args, **request):
    work = os.path.abspath(args.work)
    path, out = os.path.join(work, "vllm_request.json"), os.path.join(work, "vllm_answers.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"new": engine.NEW, "likeliest": 10 * engine.LIKELIEST, "out": out, **request}, file)
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    env = {**os.environ, "PYTHONPATH": os.path.join(root, "python"), "OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": str(args.threads),
           "KVFOLD_LIBRARY": os.path.abspath(os.path.join(args.build, "libkvfold.so.0"))}
    subprocess.run([args.python, os.path.join(root, "tests/peers/vllm_answers.py"), path], check=True, env=env)
    with open(out, encoding="utf-8") as file:
        return json.load(file)


def told(found):
    """(ids without the end, text) of each answer."""
    return [([t for t in a["ids"] if t != 2], a["text"]) for a in found]


def with_prefix(args, path):
    return argparse.Namespace(**{**vars(args), "prefix": path})


args = engine.parse(__doc__, ("--python", {"required": True}))
folder, _, tokenizer = peer.f32_folder(args)
other = os.path.abspath(os.path.join(args.work, "prefix-int8.h5"))
program.run(os.path.join(args.build, "kvfold"), "quantize", args.prefix, "--out", other, "--dtype", "int8", "--force")
prompts = [tokenizer(prompt, add_special_tokens=False)["input_ids"] for prompt in engine.PROMPTS]
long = tokenizer(LONG, add_special_tokens=False)["input_ids"]
batches = [{"rows": [{"prefix": 0, "ids": ids} for ids in (prompts[0], long)], "prompt": 0},
           {"rows": [{"prefix": 0, "ids": long}]}, {"rows": [{"prefix": 0, "ids": long}]},
           {"rows": [{"prefix": None, "ids": ids} for ids in prompts], "likeliest": 10 * engine.LIKELIEST}]
batches += [{"rows": [{"prefix": number, "ids": ids} for ids in prompts]} for number in (0, 1)]
found = ask(args, model=folder, prefixes=[os.path.abspath(args.prefix), other], batches=batches, chats=CHATS, step=64)
computed, first, second, bare, one, two = found["batches"]
P = len(found["ids"][0])

largest = engine.bare_difference(args, args.model, [(a["prompt"], dict(a["likeliest"])) for a in bare])
rows = [{"prompt": prompt, "completion": ""} for prompt in engine.PROMPTS]
for what, answers, path in (("bare", bare, None), ("with the prefix", one, args.prefix), ("with another", two, other)):
    engine.compare(args, f"vllm, {what}", args.model, path, prompts, told(answers),
                   engine.generate(with_prefix(args, path), args.model, rows, path is not None), largest, 0)
program.report("vllm: answers with fewer cached tokens than P", sum(a["cached"] < P for a in one + two + second), 0)
program.report("vllm: bare answers with cached tokens", sum(a["cached"] > 0 for a in bare), 0)

text = engine.generate(args, args.model, [{"prompt": LONG, "completion": ""}], True)
for what, answers in (("computed by vLLM first", computed[1:]), ("then from its cache", first), ("and again", second)):
    engine.compare(args, f"vllm, a long prompt, {what}", args.model, args.prefix, [long], told(answers), text, largest, 0)
program.report("vllm: the long prompt again: tokens not from vLLM's own cache", len(long) + P - second[0]["cached"], 32)

ours = engine.logits_after(args, args.model, args.prefix, [(prompts[0], len(prompts[0]) - 1), (long, len(long) - 1)])
for a, logits, ids in zip(computed, ours, (prompts[0], long)):
    theirs = a["prompt_logprobs"][P + 1:]
    mine = [engine.log_probabilities(row.astype("float64"))[t] for row, t in zip(logits, ids[1:])]
    program.report(f"vllm: prompt_logprobs of {len(ids)} tokens behind the prefix", max(abs(x - y) for x, y in zip(mine, theirs)), 2e-3)

chats = [{"messages": [{"role": "user", "content": text}]} for text in CHATS]
engine.compare(args, "vllm, chats", args.model, args.prefix, [a["prompt"][P:] for a in found["chats"]], told(found["chats"]),
               engine.generate(args, args.model, chats, True), largest, 0)
program.finish()
