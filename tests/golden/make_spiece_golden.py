"""A folder's tokenizer as T5 has it, spiece.model alone, and what transformers makes of some lines: what tests/text/test_sentencepiece.c
compares with.

Writes sentencepiece/spiece.model, a small Unigram model with T5's first pieces and rules of its own, and sentencepiece/spiece.json: ids
by T5Tokenizer with EOS and <extra_id_N>, {"default": of a folder that says nothing of them, "seven": with extra_ids 7}, each [{"text",
"ids"}]. Lines on which the sentencepiece library differs are left out and printed: a ▁ in the text, and what special tokens are there.

Run: python make_spiece_golden.py   (sentencepiece 0.2, transformers 5.23, protobuf)
"""
import json
import os
import shutil
import tempfile

import sentencepiece as spm
from make_sentencepiece_golden import HERE, LINES, RULES, train
from transformers import T5Tokenizer

SPECIAL = ["<extra_id_0>", "say <extra_id_1> and<extra_id_6>.", "a <extra_id_99> b", "</s> the<pad>", "<extra_id_100>", "<extra_id_7> x"]
RULES.update({"\t": " ", "\n": " ", "\r": " "})  # as T5's
train("spiece", model_type="unigram", vocab_size=180, rules=True, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
model = os.path.join(HERE, "spiece.model")
own = spm.SentencePieceProcessor(model_file=model)
out = {}
for name, config in ("default", {}), ("seven", {"extra_ids": 7}):
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(model, folder)
        with open(os.path.join(folder, "tokenizer_config.json"), "w") as file:
            json.dump({"tokenizer_class": "T5Tokenizer", **config}, file)
        theirs = T5Tokenizer.from_pretrained(folder)
    rows = [{"text": text, "ids": theirs(text)["input_ids"]} for text in LINES]
    out[name] = [row for row in rows if row["ids"] == own.encode(row["text"]) + [1]]
    print(name, "left out:", [row["text"] for row in rows if row not in out[name]])
    out[name] += [{"text": text, "ids": theirs(text)["input_ids"]} for text in SPECIAL]
with open(os.path.join(HERE, "spiece.json"), "w", encoding="utf-8") as file:
    file.write("{\n" + ",\n".join(
        f'"{name}": [\n' + ",\n".join(json.dumps(row) for row in rows) + "]" for name, rows in out.items()) + "}\n")
