"""Tiny encoders with random weights, run by transformers: what tests/pass/test_arch_bert.c compares with.

Writes model_<name> as make_model_golden.py writes the causal models, with other tensors golden.*: ids, types and
lengths of rows, the positions that are read (label_at), final hidden states there without and with a random prefix (its tokens
from P on, and from 0 on), weights [n_labels, C], and the gradient of sum(hidden * weights) with respect to the prefix. All is
computed in f32 row by row; the script checks that transformers' padded batch gives the same. RoBERTa's rows hold the padding's
id, which has its own row of the position table. The names of BERT's file have no prefix and a pooler, as sentence-transformers
writes them; those of RoBERTa's begin with "roberta.", there is no pooler, and there are tensors to be ignored.

BERT and RoBERTa take the prefix as a cache. The others have their attention patched to put keys and values in front: most take
no cache. Their prefix has 20 virtual tokens.

Run: python make_encoder_golden.py [NAME ...]
"""
import json
import os
import sys

import torch
import transformers
from make_model_golden import HERE, P, prefix_cache, randomise
from safetensors.torch import save_file
from saved_tensors import saved_tensors
from transformers import (AttentionInterface, AttentionMaskInterface, BertConfig, BertModel, DebertaV2Config, DebertaV2Model,
                          DistilBertConfig, DistilBertModel, ElectraConfig, ElectraModel, ModernBertConfig, ModernBertModel, NomicBertConfig,
                          NomicBertModel, RobertaConfig, RobertaModel)
from transformers.masking_utils import eager_mask
from transformers.models.deberta_v2.modeling_deberta_v2 import DisentangledSelfAttention

LENGTHS = [17, 5, 30, 9]
SMALL = dict(vocab_size=48, max_position_embeddings=52)
SIZES = dict(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4)
MODELS = {
    "bert": BertModel(BertConfig(**SIZES, max_position_embeddings=40, type_vocab_size=2)),
    "roberta": RobertaModel(RobertaConfig(**SIZES, max_position_embeddings=42, type_vocab_size=1, layer_norm_eps=1e-5)),
    "electra": ElectraModel(ElectraConfig(**SMALL, intermediate_size=40, num_hidden_layers=2, num_attention_heads=2, hidden_size=24,
                                          embedding_size=16)),
    "distilbert": DistilBertModel(DistilBertConfig(**SMALL, dim=24, hidden_dim=40, n_layers=2, n_heads=2)),
    "deberta": DebertaV2Model(DebertaV2Config(
        **SMALL, intermediate_size=40, num_hidden_layers=2, num_attention_heads=2, hidden_size=24, relative_attention=True,
        position_biased_input=False, share_att_key=True, pos_att_type=["p2c", "c2p"], norm_rel_ebd="layer_norm", position_buckets=8)),
    "modernbert": ModernBertModel(ModernBertConfig(**SMALL, intermediate_size=40, num_hidden_layers=4, num_attention_heads=2, hidden_size=24,
                                                   local_attention=8, pad_token_id=0)),
    "nomic": NomicBertModel(NomicBertConfig(**SMALL, intermediate_size=40, num_hidden_layers=2, num_attention_heads=2, hidden_size=24)),
}
PATCHED = ("ElectraSelfAttention", "DistilBertSelfAttention", "DisentangledSelfAttention", "ModernBertAttention", "NomicBertAttention")


def attention(module, query, key, value, mask, scaling=None, **kwargs):
    """Eager attention with module.prefix, keys and values [G, P, D], in front of a row's own."""
    if module.prefix is not None:
        key, value = (torch.cat([p.to(x.dtype).expand(len(x), -1, -1, -1), x], 2) for p, x in zip(module.prefix, (key, value)))
        mask = None if mask is None else torch.nn.functional.pad(mask, (module.prefix[0].shape[1], 0))
    scores = query @ key.transpose(2, 3) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    shares = torch.softmax(scores if mask is None else scores + mask, -1)
    return (shares @ value).transpose(1, 2), shares


def disentangled(module, hidden_states, mask, *args, relative_pos=None, rel_embeddings=None, **kwargs):
    """DisentangledSelfAttention.forward with module.prefix in front, whose keys have no relative terms."""
    heads = module.num_attention_heads
    query, key, value = (module.transpose_for_scores(p(hidden_states), heads)
                         for p in (module.query_proj, module.key_proj, module.value_proj))
    scale = (query.shape[-1] * 3) ** -0.5
    scores = query @ key.transpose(-1, -2) * scale + module.disentangled_attention_bias(query, key, relative_pos, rel_embeddings, 3)
    rows = lambda x: x.view(-1, heads, *x.shape[1:])
    scores = rows(scores).masked_fill(~mask.bool(), torch.finfo(scores.dtype).min)
    query, value = rows(query), rows(value)
    if module.prefix is not None:
        pk, pv = (p.to(query.dtype).expand(len(query), -1, -1, -1) for p in module.prefix)
        scores, value = torch.cat([query @ pk.transpose(-1, -2) * scale, scores], -1), torch.cat([pv, value], 2)
    return (torch.softmax(scores, -1) @ value).transpose(1, 2).flatten(2), None


DisentangledSelfAttention.forward = disentangled
AttentionInterface.register("prefixed", attention)
AttentionMaskInterface.register("prefixed", eager_mask)


def patched(model):
    """The attention modules of a model, from the first layer on; of BERT and RoBERTa none."""
    return [m for m in model.modules() if type(m).__name__ in PATCHED]


def positions(model, ids, start):
    if model.config.model_type != "roberta":
        return torch.arange(start, start + ids.shape[1])[None]
    pad = model.config.pad_token_id
    real = (ids != pad).int()
    return (real.cumsum(1) + start) * real + pad


def states(model, ids, types, mask, prefix=None, start=None):
    args = dict(input_ids=ids)
    if getattr(model.config, "type_vocab_size", 0):
        args["token_type_ids"] = types
    layers = patched(model)
    for l, layer in enumerate(layers):
        layer.prefix = None if prefix is None else prefix[l]
    if layers:
        start = prefix.shape[3] if start is None and prefix is not None else start
    elif prefix is not None:
        cache = prefix_cache(model, prefix)
        for layer in cache.layers:
            layer.keys, layer.values = (x.expand(len(ids), -1, -1, -1) for x in (layer.keys, layer.values))
        args["past_key_values"] = cache
        mask = torch.cat([torch.ones(len(ids), prefix.shape[3], dtype=mask.dtype), mask], 1)
    if start is not None:
        args["position_ids"] = positions(model, ids, start)
    return model(**args, attention_mask=mask).last_hidden_state.float()


def run(model, rows, prefix=None, start=None):
    """Final hidden states at the positions that are read, of all rows."""
    out = []
    for ids, types, at in rows:
        out.append(states(model, ids[None], types[None], torch.ones(1, len(ids), dtype=torch.long), prefix, start)[0][at])
    return torch.cat(out)


def run_padded(model, rows, prefix):
    T = max(LENGTHS)
    fill = lambda x, value: torch.nn.functional.pad(x, (0, T - len(x)), value=value)
    ids = torch.stack([fill(ids, model.config.pad_token_id) for ids, _, _ in rows])
    types = torch.stack([fill(types, 0) for _, types, _ in rows])
    mask = torch.stack([fill(torch.ones_like(ids), 0) for ids, _, _ in rows])
    return torch.cat([h[at] for h, (_, _, at) in zip(states(model, ids, types, mask, prefix), rows)])


def gradient(model, rows, prefix, weights):
    leaf = prefix.clone().requires_grad_(True)
    hidden = run(model, rows, leaf)
    (hidden * weights).sum().backward()
    return hidden.detach(), leaf.grad


def file_tensors(name, model):
    state = saved_tensors(model)
    if name == "bert":
        return state | {"embeddings.position_ids": torch.arange(40)[None]}
    if name != "roberta":
        return state
    state = {"roberta." + k: v for k, v in state.items() if "pooler" not in k}
    return state | {"roberta.embeddings.position_ids": torch.arange(42)[None], "lm_head.bias": torch.zeros(64)}


def golden(name, model, seed):
    generator = torch.Generator().manual_seed(seed)
    model.eval()
    if patched(model) and name != "deberta":
        model.set_attn_implementation("prefixed")
    randomise(model, generator)
    for value in model.parameters():
        value.requires_grad_(False)
    c = model.config
    prefix = torch.randn(c.num_hidden_layers, 2, c.num_attention_heads, 20 if patched(model) else P, c.hidden_size // c.num_attention_heads,
                         generator=generator)
    rows, at_all, start = [], [], 0
    for n in LENGTHS:
        ids = torch.randint(0, c.vocab_size, (n,), generator=generator)
        if name == "roberta":
            ids[n // 2] = c.pad_token_id
        types = (torch.arange(n) > n // 2).long() * max(getattr(c, "type_vocab_size", 1) - 1, 0)
        at = torch.cat([torch.tensor([0]), torch.arange(n - 1 - n // 3, n)])
        rows.append((ids, types, at))
        at_all.append(at + start)
        start += n
    weights = torch.randn(sum(len(at) for at in at_all), c.hidden_size, generator=generator)

    with torch.no_grad():
        bare, start0 = run(model, rows), run(model, rows, prefix, start=0)
        padded = run_padded(model, rows, prefix)
    hidden, grad = gradient(model, rows, prefix, weights)
    assert (hidden - padded).abs().max() < 1e-5 and (hidden - run(model, rows, prefix, start=prefix.shape[3])).abs().max() < 1e-6
    with torch.autocast("cpu", dtype=torch.bfloat16):
        _, auto_grad = gradient(model, rows, prefix, weights)
    auto_error = ((auto_grad - grad).norm() / grad.norm()).item()

    tensors = file_tensors(name, model) | {
        "golden.ids": torch.cat([ids for ids, _, _ in rows]).to(torch.int32),
        "golden.types": torch.cat([types for _, types, _ in rows]).to(torch.int32),
        "golden.lengths": torch.tensor(LENGTHS, dtype=torch.int32),
        "golden.label_at": torch.cat(at_all).to(torch.int32),
        "golden.prefix": prefix, "golden.gradient": grad, "golden.weights": weights,
        "golden.bare_hidden": bare, "golden.hidden": hidden, "golden.hidden_from_0": start0,
        "golden.autocast_error": torch.tensor([auto_error]),
    }
    folder = os.path.join(HERE, "model_" + name)
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "model.safetensors")
    save_file(tensors, path, metadata={"format": "pt", "seed": str(seed), "torch": torch.__version__,
                                       "transformers": transformers.__version__})
    os.chmod(path, 0o644)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(c.to_dict(), file, indent=2, sort_keys=True)
        file.write("\n")
    print(f"{name}: {os.path.getsize(path)} bytes, autocast gradient error {auto_error:.2e}")


torch.set_num_threads(1)
for seed, (name, model) in enumerate(MODELS.items(), start=40):
    if not sys.argv[1:] or name in sys.argv[1:]:
        golden(name, model, seed)
