"""mlx-lm with an exported prompt cache, against transformers with the same prefix in its cache: logits, in f32, in both layouts of the
file; and `mlx_lm.generate --prompt-cache-file` against `kvfold generate`. --old: a folder with mlx-lm 0.31.3."""
import json
import os
import subprocess
import sys

import numpy as np
import torch
from safetensors.numpy import load_file
from transformers import DynamicCache

import engine
import peer
import program

NEW = 24
# Logits after each row of ids, as mlx computes them behind the cache; run with either mlx-lm.
LOGITS = """
import json, sys
import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import load_prompt_cache
from mlx_lm.utils import load_model
from pathlib import Path
folder, cache, rows, out = sys.argv[1:]
model, _ = load_model(Path(folder))
logits = [np.array(model(mx.array([ids]), cache=load_prompt_cache(cache))[0, -1]) for ids in json.loads(rows)]
np.save(out, np.stack(logits))
"""


def export(args, name, folder, *more):
    """The cache as a file; --base-id is what mlx_lm.generate compares with its --model."""
    path = os.path.abspath(os.path.join(args.work, name))
    program.run(os.path.join(args.build, "kvfold"), "export", args.prefix, "--format", "mlx", "--base-id", folder, "--out", path, "--force",
                *more)
    return path


def past(args):
    """[L, 2, 1, G, P, D]"""
    path = os.path.join(args.work, "past.safetensors")
    program.run(os.path.join(args.build, "kvfold"), "export", args.prefix, "--format", "safetensors", "--out", path, "--force")
    return torch.from_numpy(load_file(path)["past_key_values"])


def reference(model, kv, rows):
    out = []
    for ids in rows:
        with torch.no_grad():
            cache = DynamicCache([(key, value) for key, value in kv])
            out.append(model(torch.tensor([ids]), past_key_values=cache).logits[0, -1].numpy())
    return np.stack(out)


def difference(args, folder, cache, rows, want, where):
    out = os.path.join(args.work, "mlx.npy")
    env = {**os.environ, **({"PYTHONPATH": os.path.abspath(where)} if where else {})}
    subprocess.run([sys.executable, "-c", LOGITS, folder, cache, str(rows), out], check=True, env=env)
    return float(np.abs(np.load(out) - want).max())


def generates(args, folder, cache):
    """The first prompt through mlx-lm's own command, and as kvfold answers it."""
    command = [sys.executable, "-m", "mlx_lm", "generate", "--model", folder, "--prompt-cache-file", cache, "--prompt", engine.PROMPTS[0],
               "--ignore-chat-template", "--max-tokens", str(NEW), "--temp", "0", "--verbose", "False"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    ours = engine.generate(args, args.model, [{"prompt": engine.PROMPTS[0], "completion": ""}], True)[0]
    print(f"    mlx-lm {text.strip()!r}\n    kvfold {ours.strip()!r}")
    program.report("mlx_lm.generate: answers that differ", text.strip() != ours.strip(), 0)


args = engine.parse(__doc__, ("--old", {"default": None}))
torch.set_num_threads(args.threads)
folder, model, tokenizer = peer.f32_folder(args)
rows = [tokenizer(prompt, add_special_tokens=False)["input_ids"] for prompt in engine.PROMPTS]
want = reference(model, past(args), rows)
cache = export(args, "cache.safetensors", folder)
program.report("mlx-lm 0.32.2: logits and those of transformers", difference(args, folder, cache, rows, want, None), 1e-3)
if args.old:
    old = export(args, "cache-0.31.3.safetensors", folder, "--engine", "mlx-lm-0.31.3")
    program.report("mlx-lm 0.31.3: logits and those of transformers", difference(args, folder, old, rows, want, args.old), 1e-3)
generates(args, folder, cache)
program.finish()
