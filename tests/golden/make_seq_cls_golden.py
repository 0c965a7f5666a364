"""Folders of T5ForSequenceClassification and BartForSequenceClassification, tiny and random, whose heads a run of --task seq-cls begins
with: what tests/cli/stored_heads.sh compares with.

seq_cls/<family>/ holds config, weights in f16 and the tokenizer (of model_t5, of bart); prefix.h5, a prefix in all three places that kvfold
trained on rows.jsonl; and want.txt, what transformers says of the rows with the folder's head and that prefix, which a patched attention
puts in front: the probabilities of the labels in the order of --labels, a row a line. T5's labels have names in id2label, in another order
and in capitals; BART's have none, so they go by their order.

Run: python make_seq_cls_golden.py KVFOLD   (torch 2.13, transformers 5.23, sentencepiece 0.2)
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

import h5py
import sentencepiece
import torch
from make_seq2seq_golden import attentions, set_prefix
from transformers import BartConfig, BartForSequenceClassification, PreTrainedTokenizerFast, T5Config, T5ForSequenceClassification

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "seq_cls")
LABELS = ["cat", "dog", "end"]
TEXTS = ["a dene", "b", "nnnsc ceded aa", "the sbase, ici", "no cnb", "is ii aa bibn i s"]
T5 = T5Config(vocab_size=48, d_model=16, d_kv=8, num_heads=2, d_ff=32, num_layers=2, num_decoder_layers=1, pad_token_id=0, eos_token_id=1,
              relative_attention_num_buckets=8, relative_attention_max_distance=20, decoder_start_token_id=0,
              id2label={0: "END", 1: "CAT", 2: "DOG"}, label2id={"END": 0, "CAT": 1, "DOG": 2})
BART = BartConfig(vocab_size=96, d_model=16, encoder_layers=1, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2,
                  encoder_ffn_dim=32, decoder_ffn_dim=32, max_position_embeddings=64, num_labels=3)


def kvfold(*args):
    subprocess.run([sys.argv[1], *args], check=True, capture_output=True)


def t5_ids(folder):
    pieces = sentencepiece.SentencePieceProcessor(model_file=os.path.join(folder, "tokenizer.model"))
    return lambda text: pieces.encode(text) + [1]


def bart_ids(folder):
    return lambda text: PreTrainedTokenizerFast.from_pretrained(folder)(text)["input_ids"]


FAMILIES = {"t5": (T5ForSequenceClassification, T5, "model_t5", ["tokenizer.model"], t5_ids, [1, 2, 0]),
            "bart": (BartForSequenceClassification, BART, "bart", ["tokenizer.json", "tokenizer_config.json"], bart_ids, [0, 1, 2])}


def make(family, scratch):
    kind, config, source, files, ids_of, order = FAMILIES[family]
    folder = os.path.join(OUT, family)
    model = kind(config)
    for value in model.parameters():
        value.data.copy_((value + 0.15 * torch.randn_like(value)).half().float())
    model.half().save_pretrained(folder)
    os.chmod(os.path.join(folder, "model.safetensors"), 0o644)
    model.float().eval().set_attn_implementation("prefixed")
    for name in files:
        shutil.copy(os.path.join(HERE, source, name), folder)
    run, prefix = os.path.join(scratch, "run.h5"), os.path.join(folder, "prefix.h5")
    kvfold("train", "--base", folder, "--data", os.path.join(OUT, "rows.jsonl"), "--task", "seq-cls", "--method", "direct", "--steps", "12",
           "--lr", "0.1", "--head-lr", "0.01", "--prefix-length", "4", "--batch-size", "3", "--precision", "f32", "--out", run)
    kvfold("merge", run, "--out", prefix)
    with h5py.File(prefix) as file:
        values = torch.tensor(file["prefix/past_key_values"][()])[:, :, 0]  # [L, 2, G, P, D]
    stacks = model.transformer if family == "t5" else model
    ids, lines, n = ids_of(folder), [], values.shape[3]
    for with_prefix in (False, True):
        set_prefix(stacks, values if with_prefix else None)
        if family == "bart":
            model.model.decoder.embed_positions.offset = 2 + (n if with_prefix else 0)
        with torch.no_grad():
            rows = torch.cat([model(input_ids=torch.tensor([ids(text)])).logits.softmax(-1)[:, order] for text in TEXTS])
        lines.append(rows)
    assert (lines[0] - lines[1]).abs().max() > 0.05
    assert len(attentions(stacks)) == len(values)
    with open(os.path.join(folder, "want.txt"), "w") as file:
        file.writelines(" ".join(f"{x:.6f}" for x in row) + "\n" for row in rows.tolist())
    print(family, rows.tolist())


shutil.rmtree(OUT, ignore_errors=True)
os.makedirs(OUT)
with open(os.path.join(OUT, "rows.jsonl"), "w") as file:
    file.writelines(json.dumps({"text": text, "label": LABELS[i % 3]}) + "\n" for i, text in enumerate(TEXTS))
torch.manual_seed(2)
for family in FAMILIES:
    with tempfile.TemporaryDirectory() as scratch:
        make(family, scratch)
