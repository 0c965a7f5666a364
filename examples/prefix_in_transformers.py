"""A prefix file in transformers 5: h5py reads it, a DynamicCache holds it, generate() continues after it.

    python prefix_in_transformers.py BASE_FOLDER PREFIX.h5 "Internet, noun:" [--max-tokens 20]

The dataset's first axes are layer and key or value; what is left, [1, G, P, D], is what a cache holds for one row. Keys lie as they do
in a cache: rotated already. int8 values come with one scale for each head. The file has the position at which the text begins: after
a prefix that was pruned or moved this is not its length. What no cache can hold is refused.
"""
import argparse
import inspect
import sys

import h5py
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache


def refusal(file):
    """Why a cache cannot hold this file; None: it can."""
    kind = file.attrs.get("kvfold_kind", "unknown")
    if kind != "prefix":
        return f"of kind {kind}, want prefix (`kvfold merge` makes one of a run)"
    if "head" in file or "heads" in file:
        return "has a head of its own, which `kvfold export --format peft` takes along"
    if "features" in file:
        return f"needs {', '.join(file['features'].asstr()[:])}, for which a cache has no place (docs/format.md)"
    return None


def load(path):
    """Values [L, 2, 1, G, P, D] in f32, and the position of the text's first token."""
    with h5py.File(path) as file:
        if reason := refusal(file):
            raise ValueError(f"{path}: {reason}")
        kept = file["prefix/past_key_values"]
        values = torch.from_numpy(kept[:].astype("float32"))
        if "scale" in file["prefix"]:
            values *= torch.from_numpy(file["prefix/scale"][:])[..., None, None]
        return values, int(kept.attrs["position_start"])


def complete(model, tokenizer, prompt, values, start, max_tokens):
    """Greedy completion. The cache grows while it is used, so each call makes its own. transformers 5.24 renamed the argument."""
    ids = tokenizer(prompt, return_tensors="pt").input_ids
    values = values.to(model.dtype)
    name = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
    out = model.generate(ids, max_new_tokens=max_tokens, do_sample=False,
                         attention_mask=torch.ones(1, values.shape[4] + ids.shape[1], dtype=torch.long),
                         position_ids=torch.arange(start, start + ids.shape[1])[None],
                         **{name: DynamicCache([(key, value) for key, value in values])})
    return tokenizer.decode(out[0, ids.shape[1]:], skip_special_tokens=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base")
    parser.add_argument("prefix")
    parser.add_argument("prompt")
    parser.add_argument("--max-tokens", type=int, default=20)
    args = parser.parse_args()
    try:
        values, start = load(args.prefix)
    except ValueError as error:
        sys.exit(f"prefix_in_transformers.py: {error}")
    tokenizer = AutoTokenizer.from_pretrained(args.base)
    model = AutoModelForCausalLM.from_pretrained(args.base, dtype=torch.float32).eval()
    print(complete(model, tokenizer, args.prompt, values, start, args.max_tokens))


if __name__ == "__main__":
    main()
