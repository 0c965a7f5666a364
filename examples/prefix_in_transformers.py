"""A prefix file in transformers: h5py reads it, a DynamicCache holds it, generate() continues behind it.

    python prefix_in_transformers.py BASE_FOLDER PREFIX.h5 "Internet, noun:" [--max-tokens 20]

The dataset's first axes are layer and key or value; what is left, [1, G, P, D], is what a cache holds for one row. Keys lie as they do
in a cache: rotated already. The file says at which position the text begins.
"""
import argparse

import h5py
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache


def load(path):
    with h5py.File(path) as file:
        kept = file["prefix/past_key_values"]
        return torch.from_numpy(kept[:]).float(), int(kept.attrs["position_start"])


def cache_of(values):
    cache = DynamicCache()
    for layer, (key, value) in enumerate(values):
        cache.update(key, value, layer)
    return cache


def complete(model, tokenizer, prompt, values, position, max_tokens):
    """Greedy, token by token: it shows what generate() does with past_key_values."""
    tokens = tokenizer(prompt, return_tensors="pt").input_ids
    cache, out = cache_of(values), []
    with torch.no_grad():
        for _ in range(max_tokens):
            positions = torch.arange(position, position + tokens.shape[1])[None]
            logits = model(tokens, past_key_values=cache, position_ids=positions).logits
            position += tokens.shape[1]
            tokens = logits[:, -1:].argmax(-1)
            if tokens.item() == model.config.eos_token_id:
                break
            out.append(tokens.item())
    return tokenizer.decode(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base")
    parser.add_argument("prefix")
    parser.add_argument("prompt")
    parser.add_argument("--max-tokens", type=int, default=20)
    args = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(args.base)
    model = AutoModelForCausalLM.from_pretrained(args.base, dtype=torch.float32).eval()
    values, position = load(args.prefix)
    print(complete(model, tokenizer, args.prompt, values, position, args.max_tokens))


if __name__ == "__main__":
    main()
