"""Logits and log-likelihoods that a program gets from the library (kvf_logits, kvf_score, through python/) against transformers.

SmolLM2 in f32, bare and with a prefix: the base's own keys and values on some ids, with noise, because a random prefix alone makes this model
ill-conditioned. Rows: three prompts with completions, and 300 tokens of a text.

Run: KVFOLD_LIBRARY=build/libkvfold.so.0 PYTHONPATH=python python tests/peers/scores.py --model MODEL.gguf --text README.md
"""
import kvfold
import numpy as np
import peer
import torch

BOUND = 2e-3
TEXTS = [("Internet, noun:", " A device that lets everyone be wrong at once."), ("Water boils at", " 100 degrees Celsius."),
         ("def add(a, b):\n", "    return a + b\n")]
PREFIX_IDS = list(range(1000, 1000 + 37 * peer.P, 37))


def make_rows(tokenizer, text):
    def ids(part):
        return tokenizer(part, add_special_tokens=False)["input_ids"]

    rows = [(ids(prompt) + ids(rest), [-100] * len(ids(prompt)) + ids(rest)) for prompt, rest in TEXTS]
    whole = ids(text)[:300]
    return rows + [(whole, [-100] + whole[1:])]


def make_prefix(model):
    """[L, 2, 1, G, P, D]"""
    with torch.no_grad():
        cache = model(torch.tensor([PREFIX_IDS]), use_cache=True).past_key_values
    kv = torch.stack([torch.stack([layer.keys, layer.values]) for layer in cache.layers])
    return kv + (torch.rand(kv.shape, generator=torch.Generator().manual_seed(1)) - 0.5) / 4


def main():
    args = peer.parse(__doc__, ("--text", {"required": True}))
    model = peer.load_gguf(args.model, args.work)
    with open(args.text, encoding="utf-8") as file:
        rows = make_rows(peer.gguf_tokenizer(args.model), file.read())
    kv, base = make_prefix(model), kvfold.Base(args.model, precision="f32")
    prefix = kvfold.Prefix.from_numpy(base, kv.numpy())
    for name, ours, past in ("bare", base, None), ("with a prefix", prefix, kv):
        scores = ours.score([{"input_ids": ids, "labels": labels} for ids, labels in rows])
        logits = tokens = sums = 0.0
        for (ids, labels), score in zip(rows, scores):
            cache = {} if past is None else {"past_key_values": peer.cache_of(past, 1)}
            with torch.no_grad():
                want = model(torch.tensor([ids]), **cache).logits[0]
            logits = max(logits, np.abs(ours.logits(ids) - want.numpy()).max())
            each = torch.log_softmax(want.double(), -1).numpy()
            each = np.array([each[i - 1, label] for i, label in enumerate(labels) if label != -100])
            tokens = max(tokens, np.abs(score.logprobs - each).max())
            sums = max(sums, abs(score.loglikelihood - each.sum()))
        peer.report(f"{name}: logits", logits, BOUND)
        peer.report(f"{name}: log-likelihood of a token", tokens, BOUND)
        peer.report(f"{name}: log-likelihood of a row", sums, BOUND)
    peer.finish()


main()
