"""Attention matching by numpy in f64: what tests/distill/test_match.c compares with.

For the tiny Llama that make_model_golden.py made (4 query heads on 2 key heads, rope) writes match.safetensors: a document
`ids` [T], rows that are read behind it `rows` [R, N], and the prefixes that stand for it, with keys at their own positions (`kept`)
and turned to the P positions before the rows (`turned`), both [L, 2, G, P, D]; and with log-weights (`weighed`, keys as in
`kept`, and `log_weight` [L, G, P]). Nothing here is shared with the C code: the whole
transformer is a few lines below.

Run: python make_match_golden.py   (numpy 2, safetensors)
"""
import json
import os

import numpy as np
from safetensors.numpy import load_file, save_file

HERE = os.path.dirname(os.path.abspath(__file__))
T, P, R, N = 30, 6, 4, 9
RIDGE = 1e-4  # of the mean of the Gram matrix's diagonal
MOST = 7  # largest absolute log-weight

folder = os.path.join(HERE, "model_llama_tied")
W = {k: v.astype(np.float64) for k, v in load_file(os.path.join(folder, "model.safetensors")).items()}
with open(os.path.join(folder, "config.json")) as file:
    C = json.load(file)
L, H, G, D = C["num_hidden_layers"], C["num_attention_heads"], C["num_key_value_heads"], C["head_dim"]
THETA = C["rope_parameters"]["rope_theta"]


def norm(x, gamma):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + C["rms_norm_eps"]) * gamma


def turn(x, position):
    """x [..., n, D] as at positions [n]."""
    angle = np.asarray(position)[:, None] * THETA ** (-np.arange(0, D, 2) / D)[None, :]
    cos, sin = np.cos(angle), np.sin(angle)
    a, b = x[..., : D // 2], x[..., D // 2:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def projections(x, l, first):
    """q [H, n, D], k, v [G, n, D] of tokens at positions first, first + 1, ..."""
    y = norm(x, W[f"model.layers.{l}.input_layernorm.weight"])
    q, k, v = (np.stack(np.split(y @ W[f"model.layers.{l}.self_attn.{name}_proj.weight"].T, n, -1))
               for name, n in (("q", H), ("k", G), ("v", G)))
    at = first + np.arange(len(x))
    return turn(q, at), turn(k, at), v


def attend(q, k, v, before, w=1):
    """Softmax attention of q [n, D] over `before` keys, which count w times, and then causally over the n last ones."""
    score = q @ k.T / np.sqrt(D)
    n = len(q)
    score[:, before:][np.triu_indices(n, 1)] = -np.inf
    e = np.exp(score)
    e[:, :before] *= w
    return e @ v / e.sum(-1, keepdims=True), e


def rest(x, att, l):
    x = x + np.concatenate(list(att), -1) @ W[f"model.layers.{l}.self_attn.o_proj.weight"].T
    y = norm(x, W[f"model.layers.{l}.post_attention_layernorm.weight"])
    gate, up = (y @ W[f"model.layers.{l}.mlp.{name}_proj.weight"].T for name in ("gate", "up"))
    return x + (gate / (1 + np.exp(-gate)) * up) @ W[f"model.layers.{l}.mlp.down_proj.weight"].T


def weights(masses, of_document):
    """w within the bounds with least |masses w - of_document|^2 + ridge |w|^2, by projected gradients."""
    gram = masses.T @ masses
    gram += RIDGE * np.trace(gram) / P * np.eye(P)
    right, step, w = masses.T @ of_document, 1 / np.linalg.eigvalsh(gram)[-1], np.ones(P)
    for _ in range(200000):
        w = np.clip(w - step * (gram @ w - right), np.exp(-MOST), np.exp(MOST))
    return w


def match(queries, key, value, turned, weighs):
    """queries: (q, k, v) of each row and head of the group. The chosen keys, their values and their log-weights."""
    attention, kept, masses, of_document = np.zeros(T), [], [], []
    for q, k, v in queries:
        out, e = attend(q, np.concatenate([key, k]), np.concatenate([value, v]), T)
        share = e[:-1] / e[:-1].sum(-1, keepdims=True)  # the last token predicts nothing
        masses.append(share[:, :T])
        of_document.append(share[:, :T].sum(-1))
        attention += ((e[:-1, :T] / e[:-1].sum(-1, keepdims=True)) ** 2).sum(0)  # the last token predicts nothing
        kept.append(out)
    chosen = np.sort(np.argsort(-attention, kind="stable")[:P])
    keys = key[chosen]
    if turned:
        keys = np.stack([turn(keys[p:p + 1], [T - P + p - chosen[p]])[0] for p in range(P)])
    w = weights(np.concatenate(masses)[:, chosen], np.concatenate(of_document)) if weighs else np.ones(P)
    A, Y = [], []
    for (q, k, v), out in zip(queries, kept):
        _, e = attend(q, np.concatenate([keys, k]), np.concatenate([np.zeros((P, D)), v]), P, w)
        share = e / e.sum(-1, keepdims=True)
        A.append(share[:-1, :P])
        Y.append((out - share[:, P:] @ v)[:-1])
    A, Y = np.concatenate(A), np.concatenate(Y)
    gram = A.T @ A
    return keys, np.linalg.solve(gram + RIDGE * np.trace(gram) / P * np.eye(P), A.T @ Y), w


def prefix(ids, rows, turned, weighs=False):
    log_weight = []
    x, streams, layers = W["model.embed_tokens.weight"][ids], [W["model.embed_tokens.weight"][r] for r in rows], []
    for l in range(L):
        q, k, v = projections(x, l, 0)
        x = rest(x, [attend(q[h], k[h * G // H], v[h * G // H], 0)[0] for h in range(H)], l)
        asked = [projections(s, l, T) for s in streams]
        made = [match([(a[0][h], a[1][g], a[2][g]) for a in asked for h in range(g * H // G, (g + 1) * H // G)],
                      k[g], v[g], turned, weighs) for g in range(G)]
        layers.append(np.stack([np.stack([m[i] for m in made]) for i in range(2)]))
        log_weight.append(np.log(np.stack([m[2] for m in made])))
        for r, (q, k, v) in enumerate(asked):
            att = [attend(q[h], np.concatenate([made[g][0], k[g]]), np.concatenate([made[g][1], v[g]]), P,
                          made[g][2])[0]
                   for h in range(H) for g in [h * G // H]]
            streams[r] = rest(streams[r], att, l)
    return np.stack(layers).astype(np.float32), np.stack(log_weight).astype(np.float32)


random = np.random.default_rng(7)
vocab = len(W["model.embed_tokens.weight"])
ids = random.integers(0, vocab, T)
rows = np.concatenate([ids[None, :N], ids[None, N:2 * N], random.integers(0, vocab, (R - 2, N))])
weighed, log_weight = prefix(ids, rows, False, True)
save_file({"ids": ids.astype(np.int32), "rows": rows.astype(np.int32), "kept": prefix(ids, rows, False)[0],
           "turned": prefix(ids, rows, True)[0], "weighed": weighed, "log_weight": log_weight},
          os.path.join(HERE, "match.safetensors"))
