"""Adapters between kvfold and PEFT on encoder-decoders, both ways: what tests/cli/peft_stacks.sh compares with.

For T5 (model_t5) and BART (bart) kvfold trains a prefix with --places peft, merges and exports it. PEFT loads the adapter, and one of
the same config goes on training its values for some steps. peft_trained/<family>/ holds the merged prefix (prefix.h5), the adapter that PEFT loaded (exported/), the one
that it saved (continued/), and for either the log-probabilities of the labels of rows.jsonl by PEFT's logits, a row a line
(exported.txt, continued.txt). The script stops unless PEFT saves the first as it loaded it and kvfold's log-probabilities are its own.

Run: python make_peft_trained.py KVFOLD   (torch 2.13, transformers 5.23, peft 0.21.2)
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

import torch
from peft import PeftConfig, PeftModel, get_peft_model, load_peft_weights, set_peft_model_state_dict
from safetensors.torch import load_file
from transformers import BartForConditionalGeneration, T5ForConditionalGeneration

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "peft_trained")
FAMILIES = {"t5": ("model_t5", T5ForConditionalGeneration), "bart": ("bart", BartForConditionalGeneration)}
ROWS = [{"input_ids": [i + 3, 3 * i + 2, 9, 2], "labels": [3 * i + 2, i + 5] + [7, i + 9] * (i % 3) + [2]} for i in range(1, 9)]


def kvfold(*args):
    return subprocess.run([sys.argv[1], *args], check=True, capture_output=True, text=True).stdout


def log_probabilities(model):
    """Of the labels, a list for each row."""
    lists = []
    for row in ROWS:
        labels = torch.tensor([row["labels"]])
        logits = model(input_ids=torch.tensor([row["input_ids"]]), labels=labels).logits
        lists.append(logits.double().log_softmax(-1)[0].gather(1, labels[0, :, None])[:, 0])
    return lists


def write(family, name, lists):
    with open(os.path.join(OUT, family, name + ".txt"), "w") as file:
        file.writelines(" ".join(f"{x:.6f}" for x in row.tolist()) + "\n" for row in lists)


def save(model, folder):
    """As PEFT writes it, without its card and without this machine's paths."""
    model.save_pretrained(folder)
    os.chmod(os.path.join(folder, "adapter_model.safetensors"), 0o644)
    os.remove(os.path.join(folder, "README.md"))
    path = os.path.join(folder, "adapter_config.json")
    with open(path) as file:
        config = json.load(file)
    config["base_model_name_or_path"] = "base"
    with open(path, "w") as file:
        json.dump(config, file, indent=2, sort_keys=True)


def trainable(model, folder):
    """PEFT loads no prefix to train it: one of the same config takes the values."""
    config = PeftConfig.from_pretrained(folder)
    config.inference_mode = False
    model = get_peft_model(model, config).eval()
    set_peft_model_state_dict(model, load_peft_weights(folder))
    return model


def go_on(model, steps, lr):
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=lr)
    for _ in range(steps):
        optimizer.zero_grad()
        (-torch.cat(log_probabilities(model)).mean()).backward()
        optimizer.step()


def make(family, scratch):
    folder, kind = FAMILIES[family]
    base, out = os.path.join(HERE, folder), os.path.join(OUT, family)
    run, prefix, exported = os.path.join(scratch, "run.h5"), os.path.join(out, "prefix.h5"), os.path.join(out, "exported")
    os.makedirs(out)
    kvfold("train", "--base", base, "--data", os.path.join(OUT, "rows.jsonl"), "--places", "peft", "--method", "mlp",
           "--steps", "60", "--lr", "0.03", "--prefix-length", "5", "--batch-size", "4", "--precision", "f32", "--out", run)
    kvfold("merge", run, "--out", prefix)
    kvfold("export", prefix, "--out", exported)
    os.remove(os.path.join(exported, "README.md"))
    model = kind.from_pretrained(base, dtype=torch.float32).eval()
    with torch.no_grad():
        bare = log_probabilities(model)
    peft = PeftModel.from_pretrained(model, exported).eval()
    with torch.no_grad():
        theirs = log_probabilities(peft)
    far = (torch.cat(bare) - torch.cat(theirs)).abs().mean().item()
    assert far > 0.1, far
    write(family, "exported", theirs)
    ours = kvfold("score", "--base", base, "--prefix", prefix, "--data", os.path.join(OUT, "rows.jsonl"), "--precision", "f32",
                  "--out", "-", "--quiet")
    off = max((torch.tensor(json.loads(line)["logprobs"]) - row).abs().max().item() for line, row in zip(ours.splitlines(), theirs))
    assert off < 1e-5, off
    again = os.path.join(scratch, "again")
    peft.save_pretrained(again)
    a, b = (load_file(os.path.join(x, "adapter_model.safetensors"))["prompt_embeddings"] for x in (exported, again))
    assert torch.equal(a, b)
    peft = trainable(kind.from_pretrained(base, dtype=torch.float32), exported)
    with torch.no_grad():
        assert all(torch.equal(a, b) for a, b in zip(theirs, log_probabilities(peft)))
    go_on(peft, 20, 0.02)
    save(peft, os.path.join(out, "continued"))
    with torch.no_grad():
        continued = log_probabilities(peft)
    write(family, "continued", continued)
    print(f"{family}: kvfold and PEFT differ by {off:.1e}; mean log-probabilities bare, exported, continued",
          *(torch.cat(x).mean().item() for x in (bare, theirs, continued)))


shutil.rmtree(OUT, ignore_errors=True)
os.makedirs(OUT)
with open(os.path.join(OUT, "rows.jsonl"), "w") as file:
    file.writelines(json.dumps(row) + "\n" for row in ROWS)
torch.manual_seed(1)
torch.set_num_threads(1)
for family in FAMILIES:
    with tempfile.TemporaryDirectory() as scratch:
        make(family, scratch)
