#!/usr/bin/env python3
"""Makes h5_*.h5 (prefix files that kvfold did not write, good and bad) and peft_tiny/ (an adapter that PEFT saved).

    python make_h5_golden.py            in this folder; made with h5py 3.16 (HDF5 2.0), PEFT 0.21.2, torch 2.13

The values are plain formulas, so that the tests can state them: element i of the prefix is i / 64 - 2, element i of
peft_tiny's prompt_embeddings (flat order) is (i % 97) / 32 - 1.5. Both are exact in f32, f16 and bf16.
"""
import os
import shutil

import h5py
import numpy as np

SHAPE = (2, 2, 1, 2, 4, 8)  # L, key and value, batch, G, P, D
LABELS = ("layer", "key_value", "batch", "head", "position", "head_dim")


def values(dtype="<f4"):
    n = int(np.prod(SHAPE))
    return (np.arange(n, dtype=np.float64) / 64 - 2).astype(dtype).reshape(SHAPE)


def heading(f):
    f.attrs["kvfold_kind"] = "prefix"
    f.attrs["kvfold_format"] = 1
    f.attrs["kvfold_version"] = "0.1.0"
    f.attrs["base_name"] = "tiny"
    f.attrs["base_architecture"] = "llama"
    f.attrs["base_hash"] = ""


def describe(d, dtype="f32"):
    d.attrs["method"] = "direct"
    d.attrs["task"] = "lm"
    d.attrs["chat_template"] = "none"
    d.attrs["position_start"] = 4
    d.attrs["layer_mask"] = np.ones(SHAPE[0], np.uint8)
    d.attrs["dtype"] = dtype
    for i, label in enumerate(LABELS):
        d.dims[i].label = label


def make(name, libver=("v108", "v108"), dtype="f32", numpy_type="<f4", **storage):
    with h5py.File(name, "w", libver=libver) as f:
        heading(f)
        d = f.create_dataset("prefix/past_key_values", data=values(numpy_type), **storage)
        describe(d, dtype)
        options = f.create_group("options")
        options.attrs["lr"] = 0.5
        options.attrs["steps"] = np.int32(7)
        options.attrs["method"] = "direct"
        options.attrs["shuffle"] = True


def make_link(name, link):
    with h5py.File(name, "w", libver=("v108", "v108")) as f:
        heading(f)
        describe(f.create_dataset("elsewhere", data=values()))
        f.create_group("prefix")["past_key_values"] = link


def make_loop(name):
    """The group of heads is one of its own heads."""
    with h5py.File(name, "w", libver=("v108", "v108")) as f:
        heading(f)
        describe(f.create_dataset("prefix/past_key_values", data=values()))
        heads = f.create_group("heads")
        heads["loop"] = heads


def make_unfilled(name, **storage):
    """A dataset that claims 2^40 elements and stores none."""
    with h5py.File(name, "w", libver=("v108", "v108")) as f:
        heading(f)
        d = f.create_dataset("prefix/past_key_values", (1 << 20, 2, 1, 1 << 9, 1 << 5, 1 << 5), "<f4", **storage)
        d.attrs["layer_mask"] = np.ones(2, np.uint8)


def make_zeros(name):
    """41 MB of zeros, compressed to less than a thousandth."""
    with h5py.File(name, "w", libver=("v108", "v108")) as f:
        heading(f)
        shape = (2, 2, 1, 2, 160000, 8)
        d = f.create_dataset("prefix/past_key_values", shape, "<f4", chunks=(1, 2, 1, 2, 8000, 8), compression=9, shuffle=True)
        d[:] = np.zeros(shape, "<f4")
        describe(d)


def make_external(name):
    with h5py.File(name, "w", libver=("v108", "v108")) as f:
        heading(f)
        size = 4 * int(np.prod(SHAPE))
        describe(f.create_dataset("prefix/past_key_values", SHAPE, "<f4", external=[("outside.bin", 0, size)]))


def make_virtual(name):
    with h5py.File(name, "w", libver=("v110", "v110")) as f:
        heading(f)
        layout = h5py.VirtualLayout(SHAPE, "<f4")
        layout[:] = h5py.VirtualSource("h5_v108.h5", "prefix/past_key_values", shape=SHAPE)
        describe(f.create_virtual_dataset("prefix/past_key_values", layout))


def make_format(name, number):
    make(name)
    with h5py.File(name, "r+") as f:
        f.attrs.modify("kvfold_format", number)


def make_features(name, *features):
    make(name)
    with h5py.File(name, "r+", libver=("v108", "v108")) as f:
        if features:
            f.create_dataset("features", data=features, dtype=h5py.string_dtype())


def make_weighted(name, *features, shape=(2, 2, 4)):
    """Log-weights [L, G, P]: element i is i / 8 - 1."""
    make_features(name, *features)
    with h5py.File(name, "r+") as f:
        f["prefix/log_weight"] = (np.arange(16) / 8 - 1).astype("<f4").reshape(shape)


def make_heads(name, heads=((2, 8), (1, 16)), layers=2, flat=True):
    """Heads that differ by layer: the same values in a row, [2, 2, 4, 8] of layer 0, then [2, 1, 4, 16]."""
    make_features(name, "heads-by-layer")
    with h5py.File(name, "r+") as f:
        f["heads_by_layer"] = np.array(heads, np.int64)
        if flat:
            shaped = f["prefix/past_key_values"]
            facts = dict(shaped.attrs)
            del f["prefix/past_key_values"]
            d = f.create_dataset("prefix/past_key_values", data=values().reshape(-1))
            for key, value in facts.items():
                if key != "DIMENSION_LABELS":
                    d.attrs[key] = value
            d.attrs["L"], d.attrs["P"] = layers, 4


def make_plain(name):
    with h5py.File(name, "w", libver=("v108", "v108")) as f:
        f["x"] = [1.0, 2.0]


def make_edited(name):
    """As a user would: open a good file for writing, change some texts."""
    make(name)
    with h5py.File(name, "r+") as f:
        f.attrs["base_name"] = "renamed base"
        f["prefix/past_key_values"].attrs["method"] = "mlp"


def make_peft(folder):
    import torch
    import transformers
    from peft import PrefixTuningConfig, get_peft_model

    config = transformers.LlamaConfig(hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
                                      num_key_value_heads=2, vocab_size=64, max_position_embeddings=64)
    model = get_peft_model(transformers.LlamaForCausalLM(config),
                           PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=5))
    weight = model.prompt_encoder.default.embedding.weight
    flat = (torch.arange(weight.numel()) % 97 / 32 - 1.5).reshape(weight.shape)
    with torch.no_grad():
        weight.copy_(flat)
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    os.remove(os.path.join(folder, "README.md"))


if __name__ == "__main__":
    make("h5_v108.h5")
    make("h5_v110.h5", libver=("v110", "v110"))
    make("h5_f16.h5", dtype="f16", numpy_type="<f2")
    make("h5_gzip.h5", compression="gzip", shuffle=True, fletcher32=True, chunks=(1, 2, 1, 1, 4, 8))
    make("h5_lzf.h5", compression="lzf", chunks=(1,) + SHAPE[1:])
    make("h5_f64.h5", dtype="f64", numpy_type="<f8")
    make("h5_big_endian.h5", numpy_type=">f4")
    make("h5_v0.h5", libver=("earliest", "v108"))
    make_link("h5_soft.h5", h5py.SoftLink("/elsewhere"))
    make_link("h5_external_link.h5", h5py.ExternalLink("h5_v108.h5", "/prefix/past_key_values"))
    make_external("h5_external.h5")
    make_virtual("h5_virtual.h5")
    make_loop("h5_loop.h5")
    make_unfilled("h5_unfilled.h5")
    make_unfilled("h5_unfilled_chunked.h5", chunks=(1 << 10, 2, 1, 1 << 4, 1 << 5, 1 << 5))
    make_zeros("h5_zeros.h5")
    make_edited("h5_edited.h5")
    make_format("h5_format2.h5", 2)
    make_features("h5_feature_unknown.h5", "log-weight", "sparse-keys")
    make_features("h5_feature_unused.h5", "log-weight")
    make_weighted("h5_feature_unlisted.h5")
    make_weighted("h5_weighted.h5", "log-weight")
    make_weighted("h5_weighted_shape.h5", "log-weight", shape=(2, 4, 2))
    make_heads("h5_heads.h5")
    make_heads("h5_heads_few.h5", heads=((2, 8), (1, 8)))
    make_heads("h5_heads_zero.h5", heads=((2, 8), (0, 16)))
    make_heads("h5_heads_layers.h5", layers=3)
    make_heads("h5_heads_shape.h5", flat=False)
    make_plain("h5_plain.h5")
    make_peft("peft_tiny")
