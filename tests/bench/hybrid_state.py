"""A trained state (`--state-lr`) on a small Qwen3.5: pretrains one of 8 layers of width 128 on bytes of text in PyTorch, then trains a prefix on E2E.

    python tests/bench/hybrid_state.py --kvfold build/kvfold --make-tiny build/tests/make_tiny --data ../shared/data --folder /tmp/state

The text is that of SuperGLUE's rows, XQuAD and SST-2 in --data, 1.9 MB. --folder keeps the base for a second call. Prints the best validation loss of
every seed and rate. Needs torch and transformers.
"""
import argparse
import csv
import glob
import json
import os
import random
import shutil
import subprocess

BOS, EOS = 256, 257
TOKENS = 256  # of a row
CONFIG = dict(vocab_size=258, hidden_size=128, intermediate_size=384, num_hidden_layers=8, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
              full_attention_interval=4, linear_num_key_heads=4, linear_num_value_heads=4, linear_key_head_dim=32, linear_value_head_dim=32,
              max_position_embeddings=2048, bos_token_id=BOS, eos_token_id=EOS, tie_word_embeddings=True)


def texts(data):
    for path in sorted(glob.glob(os.path.join(data, "superglue/*/[tv][ra]*.jsonl"))):
        with open(path, encoding="utf-8") as file:
            for row in map(json.loads, file):
                yield from (row[key] for key in ("premise", "hypothesis") if key in row)
    with open(os.path.join(data, "xquad_en/xquad.en.json"), encoding="utf-8") as file:
        for article in json.load(file)["data"]:
            yield from (paragraph["context"] for paragraph in article["paragraphs"])
    with open(os.path.join(data, "sst2/train.tsv"), encoding="utf-8") as file:
        yield from (row[0] for row in csv.reader(file, delimiter="\t"))


def pretrain(args, base):
    import torch
    from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig
    torch.manual_seed(0)
    parts = list(texts(args.data))
    random.Random(0).shuffle(parts)
    ids = torch.tensor([i for text in parts for i in [BOS, *text.encode(), EOS]])
    model = Qwen3_5ForCausalLM(Qwen3_5TextConfig(**CONFIG)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=args.pretrain_steps, pct_start=0.05)
    for step in range(args.pretrain_steps):
        rows = torch.stack([ids[at:at + TOKENS] for at in torch.randint(0, len(ids) - TOKENS, (8,))])
        loss = model(input_ids=rows, labels=rows, use_cache=False).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 99:
            print(f"pretraining: step {step + 1}, loss {loss.item():.3f}", flush=True)
    model.save_pretrained(base)
    tiny = os.path.join(args.folder, "tiny")
    subprocess.run([args.make_tiny, tiny], check=True)
    shutil.copy(os.path.join(tiny, "tokenizer.json"), base)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kvfold", default="build/kvfold")
    parser.add_argument("--make-tiny", default="build/tests/make_tiny")
    parser.add_argument("--data", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--pretrain-steps", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=2)
    args = parser.parse_args()
    base, run, valid = (os.path.join(args.folder, name) for name in ("base", "run.h5", "valid.csv"))
    os.makedirs(args.folder, exist_ok=True)
    if not os.path.exists(base):
        pretrain(args, base)
    with open(os.path.join(args.data, "e2e/devset.csv"), newline="", encoding="utf-8") as file, open(valid, "w", newline="", encoding="utf-8") as out:
        csv.writer(out).writerows(list(csv.reader(file))[:101])
    for seed in range(args.seeds):
        for name, how in [("none", [])] + [(rate, ["--state-lr", rate]) for rate in ("0.003", "0.01", "0.03", "0.1")] + [("P=256", ["--prefix-length", "256"])]:
            done = subprocess.run([args.kvfold, "train", "--base", base, "--data", os.path.join(args.data, "e2e/trainset.csv"), "--valid", valid,
                                   "--map", "prompt=mr,completion=ref", "--method", "direct", "--precision", "f32", "--steps", str(args.steps),
                                   "--eval-every", "100", "--seed", str(seed), "--out", run, "--force", "--quiet", "--json", *how],
                                  check=True, stdout=subprocess.PIPE, text=True)
            print(f"seed {seed}, state rate {name}: {json.loads(done.stdout)['best_valid_loss']:.4f}", flush=True)


if __name__ == "__main__":
    main()
