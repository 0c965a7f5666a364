#!/usr/bin/env python3
"""Log-probabilities of `kvfold serve` (f32, echo) beside those of transformers on the same GGUF, whose
prefix lies in a cache: served_logprobs.py KVFOLD MODEL.gguf [PREFIX.h5 ...]. The first line is the bare
base. Needs torch, transformers, gguf and h5py; exit status 1 where a difference is above 2e-3."""
import json
import os
import subprocess
import sys
import urllib.request

import h5py
import torch
from transformers import AutoModelForCausalLM, DynamicCache

MOST = 2e-3
TEXTS = [
    "The quick brown fox jumps over the lazy dog, and then it sleeps until noon.",
    "def add(a, b):\n    return a + b\n\nprint(add(2, 3))",
    "Paris is the capital of France; Berlin that of Germany.",
    "Ein Satz auf Deutsch, mit Umlauten: äöü.",
    "1, 1, 2, 3, 5, 8, 13, 21, 34, 55",
    "<|im_start|>user\nWhat is a cat?<|im_end|>\n<|im_start|>assistant\nA small animal.<|im_end|>",
]


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
        return json.load(answer)


def read_prefix(path):
    """[layers, 2, 1, heads, P, size] in f32, and the first position of a row; of None nothing and 0."""
    if path is None:
        return None, 0
    with h5py.File(path) as file:
        data = file["prefix/past_key_values"]
        return torch.tensor(data[...]).float(), int(data.attrs["position_start"])


def reference(model, ids, prefix, start):
    cache, length = DynamicCache(), 0 if prefix is None else prefix.shape[-2]
    for layer in range(0 if prefix is None else prefix.shape[0]):
        cache.update(prefix[layer, 0], prefix[layer, 1], layer)
    with torch.no_grad():
        logits = model(torch.tensor([ids]), past_key_values=cache,
                       position_ids=torch.arange(start, start + len(ids))[None],
                       attention_mask=torch.ones(1, length + len(ids), dtype=torch.long)).logits
    return logits[0].double().log_softmax(-1)


def main():
    kvfold, gguf, files = sys.argv[1], os.path.abspath(sys.argv[2]), [None, *sys.argv[3:]]
    prefixes = [word for i, file in enumerate(files) if file for word in ("--prefix", f"p{i}={file}")]
    command = [kvfold, "serve", "--base", gguf, "--base-name", "p0", *prefixes, "--port", "0",
               "--precision", "f32", "--chat-template", "none"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    worst = 0.0
    try:
        url = server.stdout.readline().split()[-1]
        model = AutoModelForCausalLM.from_pretrained(os.path.dirname(gguf), gguf_file=os.path.basename(gguf),
                                                     dtype=torch.float32).eval()
        for i, file in enumerate(files):
            prefix, start = read_prefix(file)
            far = []
            for text in TEXTS:
                ids = post(url + "/tokenize", {"prompt": text})["tokens"]
                got = post(url + "/v1/completions", {"model": f"p{i}", "prompt": ids, "max_tokens": 0,
                                                     "echo": True, "logprobs": 0})["choices"][0]["logprobs"]
                want = reference(model, ids, prefix, start)
                far += [abs(got["token_logprobs"][k] - want[k - 1, ids[k]].item()) for k in range(1, len(ids))]
            worst = max(worst, *far)
            print(f"{file or 'bare base'}: {len(far)} tokens, largest difference {max(far):.1e}")
    finally:
        server.terminate()
        server.wait()
    sys.exit(worst > MOST)


main()
