"""Steps of `kvfold train` on a base of random weights, for the families that `kvfold bench` has no rows for: encoders, which tag every
token, and encoder-decoders. For each line of standard input one short run trains, and one line of JSON says what one of its steps took;
race.py writes the lines, and peft_step.py runs the same shapes in PyTorch.

Rows are random letters, a token each; an encoder's LENGTH counts its two special tokens. An encoder-decoder reads LENGTH tokens and
writes a quarter as many, both with their end, and has prefixes in the decoder's self-attention alone, as PEFT's form has. The clock of
train begins with the first step; processor time is that of a run less that of a run of one step, by the steps between them.

Needs make_tiny beside kvfold (build/tests), for the tokenizer.
"""
import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile

BASE = dict(hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072, max_position_embeddings=512)
SHAPES = {
    "bert-base": dict(BASE, model_type="bert", vocab_size=30522),
    "deberta-base": dict(BASE, model_type="deberta-v2", vocab_size=128100, relative_attention=True, position_biased_input=False,
                         share_att_key=True, pos_att_type=["p2c", "c2p"], norm_rel_ebd="layer_norm", position_buckets=256,
                         type_vocab_size=0, layer_norm_eps=1e-7),
    "t5-small": dict(model_type="t5", vocab_size=32128, d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_heads=8,
                     decoder_start_token_id=0, pad_token_id=0, eos_token_id=1),
}
TAGS = 13  # of WNUT17


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kvfold", default="build/kvfold")
    parser.add_argument("--shape", choices=list(SHAPES), default="bert-base")
    parser.add_argument("--mode", choices=["auto", "f32", "bf16"], default="auto")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--steps", type=int, default=3, help="of a run, at least 2")
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def letters(n):
    return [random.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(n)]


def write_rows(path, args, n):
    with open(path, "w", encoding="utf-8") as file:
        for row in range(n):
            if args.shape == "t5-small":
                file.write(json.dumps({"prompt": "".join(letters(args.length - 1)), "completion": "".join(letters(args.length // 4 - 1))}) + "\n")
            else:
                file.write("".join(f"{letter}\tB-{(row + i) % TAGS}\n" for i, letter in enumerate(letters(args.length - 2))) + "\n")


def make(args, folder):
    """The base, and the command that trains on it."""
    config, tokens, base = (os.path.join(folder, name) for name in ("config.json", "tokens", "base.h5"))
    seq2seq = args.shape == "t5-small"
    data = os.path.join(folder, "rows.jsonl" if seq2seq else "rows.conll")
    with open(config, "w", encoding="utf-8") as file:
        json.dump(SHAPES[args.shape], file)
    make_tiny = os.path.join(os.path.dirname(args.kvfold), "tests", "make_tiny")
    subprocess.run([make_tiny, tokens, "1"] + ([] if seq2seq else ["bert"]), check=True, stdout=subprocess.DEVNULL)
    subprocess.run([args.kvfold, "new-base", "--config", config, "--tokenizer", tokens, "--out", base], check=True, capture_output=True)
    write_rows(data, args, args.batch * args.steps)
    task = ["--task", "lm", "--places", "decoder"] if seq2seq else ["--task", "token-cls"]
    return [args.kvfold, "train", "--base", base, "--data", data, *task, "--method", "mlp", "--prefix-length", "20", "--encoder-hidden", "512",
            "--init", "random", "--batch-size", str(args.batch), "--precision", args.mode, "--threads",
            str(args.threads), "--out", os.path.join(folder, "run.h5"), "--force", "--quiet", "--json"]


def run(command, steps):
    """What train says of a run of so many steps, and its processor time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command + ["--steps", str(steps)], check=True, stdout=subprocess.PIPE)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return json.loads(done.stdout), after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    args = parse()
    random.seed(0)
    with tempfile.TemporaryDirectory() as folder:
        command = make(args, folder)
        for _ in sys.stdin:
            first = run(command, 1)[1]
            done, cpu = run(command, args.steps)
            tokens = done["tokens"] / done["steps"]
            print(json.dumps({"seconds": tokens / done["tokens_per_second"], "cpu_seconds": (cpu - first) / (args.steps - 1), "tokens": tokens,
                              "tokens_per_second": done["tokens_per_second"], "loss": done["train_loss"],
                              "peak_rss_bytes": done["peak_rss_bytes"]}), flush=True)


if __name__ == "__main__":
    main()
