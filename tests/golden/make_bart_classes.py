"""What BartForSequenceClassification says of classes.jsonl with the prefix and head of bart/classes.h5, for tests/cli/bart.sh:
bart/classes.txt, the probability of the second label of each row.

classes.h5 is a folded prefix in all three places, made by kvfold on the folder bart (make_bart_golden.py):
    kvfold train --base bart --data bart/classes.jsonl --task seq-cls --method direct --prefix-length 5 --steps 12 --lr 0.05 \\
        --batch-size 3 --precision f32 --seed 2 --out run.h5 && kvfold merge run.h5 --out bart/classes.h5
Its keys and values are put in front by a patched attention; the decoder begins at position P.

Run: python make_bart_classes.py   (torch 2.13, transformers 5.23)
"""
import json
import os

import h5py
import torch
from transformers import AttentionInterface, AttentionMaskInterface, BartForSequenceClassification, PreTrainedTokenizerFast
from transformers.masking_utils import eager_mask

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bart")


def attention(module, query, key, value, mask, scaling=None, **kwargs):
    front = module.prefix.shape[2]
    key, value = (torch.cat([p[None].expand(len(x), -1, -1, -1), x], 2) for p, x in zip(module.prefix, (key, value)))
    scores = query @ key.transpose(2, 3) * scaling
    scores = scores if mask is None else scores + torch.nn.functional.pad(mask, (front, 0))
    return (torch.softmax(scores, -1) @ value).transpose(1, 2), None


AttentionInterface.register("prefixed", attention)
AttentionMaskInterface.register("prefixed", eager_mask)
torch.set_num_threads(1)
stored = {}
with h5py.File(os.path.join(HERE, "classes.h5")) as file:
    file.visititems(lambda name, item: stored.update({name: torch.tensor(item[()])}) if isinstance(item, h5py.Dataset)
                    and item.dtype.kind == "f" else None)
model = BartForSequenceClassification.from_pretrained(HERE, num_labels=2, dtype=torch.float32)
model.eval()
model.set_attn_implementation("prefixed")
head = {name[name.index("classification_head"):]: value for name, value in stored.items() if "classification_head" in name}
assert len(head) == 4 and not model.load_state_dict(head, strict=False).unexpected_keys
prefix, = (value for value in stored.values() if value.dim() == 6)  # [L, 2, 1, G, P, D]
model.model.decoder.embed_positions.offset = 2 + prefix.shape[4]
modules = [layer.self_attn for layer in model.model.encoder.layers] + [
    at for layer in model.model.decoder.layers for at in (layer.self_attn, layer.encoder_attn)]
for module, values in zip(modules, prefix[:, :, 0]):
    module.prefix = values
tokenizer = PreTrainedTokenizerFast.from_pretrained(HERE)
with open(os.path.join(HERE, "classes.txt"), "w") as out, torch.no_grad():
    for line in open(os.path.join(HERE, "classes.jsonl")):
        ids = torch.tensor([tokenizer(json.loads(line)["text"])["input_ids"]])
        out.write(f"{model(input_ids=ids).logits.softmax(-1)[0, 1]:.6f}\n")
