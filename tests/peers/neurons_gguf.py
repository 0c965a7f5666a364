"""llama-server on a GGUF with folded virtual neurons: neurons with values of zero, which change no answer of the base as it is; and on an
f32 GGUF trained neurons alone, and beside keys and values with their saved state, against `kvfold generate`. (--prefix is not read.)"""
import os

import engine
import program
from llama_server import Server

PARTS = {"zero": (0, 1, 1e-30), "alone": (0, 15, 0.01), "both": (4, 15, 0.01)}  # P, steps, rate of the neurons


def fold(args, name, base):
    """Trains on the demo's rows; returns the run and what was exported."""
    P, steps, rate = PARTS[name]
    run, out = (os.path.abspath(os.path.join(args.work, f"neurons_{name}{end}")) for end in (".h5", "" if P else ".gguf"))
    program.kvfold(args, "train", "--base", args.model, "--data", args.data, "--method", "direct", "--prefix-length", P, "--ffn-length", 20,
                   "--steps", steps, "--batch-size", 4, "--max-length", 128, "--overlong", "skip", "--precision", "f32", "--lr", 0.01, "--ffn-lr",
                   rate, "--schedule", "constant", "--threads", args.threads, "--out", run, "--force")
    program.kvfold(args, "export", run, "--format", "gguf", "--base", base, "--out", out, "--force")
    return run, out


def answers(args, model, folder=None):
    server = Server(args, model, folder)
    found = [server.complete(prompt, n_probs=2) for prompt in engine.PROMPTS]
    if folder:
        program.report("neurons and state: answers with cache_n below P", sum(a["timings"]["cache_n"] < len(server.ids) for a in found), 0)
    return found


def parted(answer, want):
    """Whether an answer differs where no two tokens were a near-tie."""
    gaps = [token["top_logprobs"][0]["logprob"] - token["top_logprobs"][1]["logprob"] for token in answer["completion_probabilities"]]
    return answer["content"].strip() != want.strip() and min(gaps) > 1e-3


def main():
    args = program.parse(__doc__, ("--data", {"default": "build/demo/train.jsonl"}), ("--prefix", {}), prefix=False)
    _, wide = fold(args, "zero", args.model)
    same = [a["content"] == b["content"] for a, b in zip(answers(args, args.model), answers(args, wide))]
    program.report("neurons of zeros, Q4_1: answers that differ", same.count(False), 0)
    f32 = engine.f32_model(args)
    rows = [{"prompt": prompt, "completion": ""} for prompt in engine.PROMPTS]
    for name in ("alone", "both"):
        args.prefix, out = fold(args, name, f32)
        folder = out if PARTS[name][0] else None
        found = answers(args, os.path.join(out, "model.gguf") if folder else out, folder)
        ours = engine.generate(args, f32, rows, True)
        for answer, want in zip(found, ours):
            if answer["content"].strip() != want.strip():
                print(f"      engine {answer['content']!r}\n      kvfold {want!r}")
        program.report(f"neurons {name}, f32: answers that differ without a near-tie", sum(map(parted, found, ours)), 0)
    program.finish()


if __name__ == "__main__":
    main()
