"""Bases of several sizes, in memory and streamed: time of a training step and most memory, against what `kvfold help scaling` predicts.

Makes Llamas of random bf16 weights (safetensors) in --folder, once, with the tokenizer that make_tiny writes, and runs `kvfold bench`
on each of them.

    python tests/bench/sizes.py --kvfold build/kvfold --make-tiny build/tests/make_tiny --folder /tmp/sizes [--size 0.5 --mode streamed]

Needs numpy.
"""
import argparse
import json
import os
import struct
import subprocess

import numpy

SIZES = {  # GB, or the shape of a known model: C, F, L, heads, heads of keys, D, V
    "0.1": (512, 1408, 8, 8, 8, 64, 32000),
    "0.5": (1024, 2816, 16, 16, 16, 64, 32000),
    "1.5": (1536, 4224, 22, 24, 24, 64, 32000),
    "3": (2048, 5632, 28, 32, 32, 64, 32000),
    "135M": (576, 1536, 30, 9, 3, 64, 49152),
    "1B": (2048, 8192, 16, 32, 8, 64, 128256),
    "7B": (4096, 11008, 32, 32, 32, 128, 32000),
}
TIED = ("135M", "1B")
MODES = {
    "packed": [],
    "f32": ["--weight-dtype", "f32"],
    "bf16": ["--weight-dtype", "bf16"],
    "int8": ["--weight-dtype", "int8"],
    "streamed": ["--stream-layers", "on", "--recompute", "on"],
}


def shapes(size):
    C, F, L, H, G, D, V = SIZES[size]
    yield "model.embed_tokens.weight", (V, C)
    for l in range(L):
        stem = f"model.layers.{l}."
        yield stem + "input_layernorm.weight", (C,)
        yield stem + "post_attention_layernorm.weight", (C,)
        for name in "qkvo":
            yield stem + f"self_attn.{name}_proj.weight", ((G if name in "kv" else H) * D, C) if name != "o" else (C, C)
        yield stem + "mlp.gate_proj.weight", (F, C)
        yield stem + "mlp.up_proj.weight", (F, C)
        yield stem + "mlp.down_proj.weight", (C, F)
    yield "model.norm.weight", (C,)
    if size not in TIED:
        yield "lm_head.weight", (V, C)


def make(args, size):
    folder = os.path.join(args.folder, size)
    if os.path.exists(os.path.join(folder, "done")):
        return folder
    C, F, L, H, G, D, V = SIZES[size]
    os.makedirs(args.folder, exist_ok=True)
    subprocess.run([args.make_tiny, folder], check=True)
    config = {"model_type": "llama", "vocab_size": V, "hidden_size": C, "intermediate_size": F, "num_hidden_layers": L,
              "num_attention_heads": H, "num_key_value_heads": G, "head_dim": D, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
              "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": size in TIED, "bos_token_id": 256, "eos_token_id": 257}
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    header, at = {}, 0
    for name, shape in shapes(size):
        n = 2 * int(numpy.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + n]}
        at += n
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    random = numpy.random.default_rng(1)
    pool = (random.standard_normal(1 << 24).astype(numpy.float32) * 0.02).view(numpy.uint32) >> 16
    pool = pool.astype(numpy.uint16)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape in shapes(size):
            n, k = int(numpy.prod(shape)), int(random.integers(1 << 16))
            if len(shape) == 1:
                file.write(numpy.full(n, 0x3F80, numpy.uint16).tobytes())
                continue
            while n:
                part = pool[k:k + n]
                file.write(part.tobytes())
                n, k = n - len(part), 0
    open(os.path.join(folder, "done"), "w").close()
    return folder


# The model on paper of `kvfold help scaling`: share of oneDNN's rate that a step reaches, seconds to pack a weight for a step, bytes that
# do not depend on the base.
SHARE, PACK, FIXED = 0.95, 2.0e-9, 68 * 2**20
PREFIX, HIDDEN = 20, 16


def foretell(size, mode, tokens, labels, rate):
    """Seconds of a step and bytes of memory, in f32."""
    C, F, L, H, G, D, V = SIZES[size]
    layer, head = 2 * C * (H + G) * D + 3 * C * F, V * C
    flops = 4 * layer * L * tokens + 4 * head * labels
    weights = layer * L + head
    again = mode == "streamed"
    seconds = (flops + (2 * layer * L * tokens if again else 0)) / (SHARE * rate)
    seconds += 0 if mode == "packed" else weights * PACK
    kept = 4 * tokens * (6 * C + 2 * F)
    activations = kept * (1 if again else L) + (4 * tokens * C * L if again else 0) + 4 * tokens * (11 * C + 4 * 1536)
    encoder = 16 * (PREFIX * C + C * HIDDEN + 2 * L * G * D * HIDDEN) + 16 * 2 * L * G * D * PREFIX
    plane, workspace = 1536 * C, 4 * 3 * C * C
    shared = 8 * (layer + plane) + workspace
    held = {"packed": 8 * weights, "f32": 4 * weights + shared, "bf16": 2 * weights + shared, "int8": 34 / 32 * weights + shared,
            "streamed": shared + 2 * (2 * layer + head)}[mode]  # of the file: two layers and the head
    return seconds, FIXED + held + activations + encoder


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kvfold", default="build/kvfold")
    parser.add_argument("--make-tiny", default="build/tests/make_tiny")
    parser.add_argument("--folder", required=True)
    parser.add_argument("--size", action="append", choices=SIZES)
    parser.add_argument("--mode", action="append", choices=MODES)
    parser.add_argument("--make", action="store_true", help="only make the bases")
    parser.add_argument("--batch", default="2")
    parser.add_argument("--length", default="128")
    parser.add_argument("--prefix-length", default=str(PREFIX))
    parser.add_argument("--precision", default="f32")
    parser.add_argument("--steps", default="3")
    parser.add_argument("--warmup", default="1")
    args = parser.parse_args()
    for size in args.size or SIZES:
        folder = make(args, size)
        for mode in [] if args.make else args.mode or MODES:
            command = [args.kvfold, "bench", "--base", folder, "--batch", args.batch, "--length", args.length, "--prefix-length", args.prefix_length, "--steps", args.steps,
                       "--warmup", args.warmup, "--encoder-hidden", "16", "--precision", args.precision, "--json", "--quiet"] + MODES[mode]
            result = subprocess.run(command, capture_output=True, text=True)
            if result.returncode:
                print(f"{size:>4} {mode:9} failed: {result.stderr.strip()}", flush=True)
                continue
            r = json.loads(result.stdout)
            parts = r["components"]
            seconds, memory = foretell(size, mode, r["tokens"] / r["steps"], r["label_tokens"] / r["steps"], r["matmul_rate"])
            print(f"{size:>4} {mode:9} {r['seconds_per_step']:7.2f} s/step (foretold {seconds:6.2f}: {seconds / r['seconds_per_step'] - 1:+4.0%}), "
                  f"pack {parts['pack']:5.2f}, recompute {parts['recompute']:5.2f}, rate {1e-9 * r['matmul_rate']:4.0f} GFLOP/s, "
                  f"{r['peak_rss_bytes'] / 2**20:6.0f} MiB (foretold {memory / 2**20:6.0f}: {memory / r['peak_rss_bytes'] - 1:+4.0%})", flush=True)


if __name__ == "__main__":
    main()
