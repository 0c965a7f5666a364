"""Keys and values of words in the tiny BERT and RoBERTa of this folder: what tests/train/test_start_words.c compares with.

Writes words.safetensors with tensors NAME.*: ids [P + 2], <s> "fold9" </s> in the alphabet of tests/toy_base.h; kv [L, 2, G, P, D],
what transformers' own key and value layers make of the words in that row, start and end left out; inputs [L, P, C], what these layers
read. Positions count from the start token on, so the words stand at 1 .. P.

Run: python make_words_golden.py
"""
import os

import torch
import transformers
from make_model_golden import HERE
from make_vectors_golden import load
from safetensors.torch import save_file

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,:;!?-+*/()=<>[]{}_%&"
IDS = [59] + [LETTERS.index(c) + 1 for c in "fold9"] + [60]


def words(name):
    model = load(name)
    c = model.config
    size = c.hidden_size // c.num_attention_heads
    seen = []
    for layer in model.encoder.layer:
        own = layer.attention.self
        for part in (own.key, own.value):
            part.register_forward_hook(lambda _, x, y: seen.append((x[0][0, 1:-1], y[0, 1:-1].view(-1, c.num_attention_heads, size))))
    with torch.no_grad():
        model(torch.tensor([IDS]), attention_mask=torch.ones(1, len(IDS)))
    kv = torch.stack([y.transpose(0, 1) for _, y in seen])
    return {f"{name}.ids": torch.tensor(IDS, dtype=torch.int32),
            f"{name}.kv": kv.view(c.num_hidden_layers, 2, *kv.shape[1:]).contiguous(),
            f"{name}.inputs": torch.stack([x for x, _ in seen[::2]])}


if __name__ == "__main__":
    torch.set_num_threads(1)
    path = os.path.join(HERE, "words.safetensors")
    save_file(words("bert") | words("roberta"), path,
              metadata={"format": "pt", "torch": torch.__version__, "transformers": transformers.__version__})
    os.chmod(path, 0o644)
    print(os.path.getsize(path), "bytes")
