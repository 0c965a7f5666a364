"""Makes gguf_bpe.gguf, gguf_spm.gguf and gguf_neox.gguf with the reference writer: whole models of 2
or 3 layers with random weights of several types. One has a byte-level tokenizer and rope divisors, one
a SentencePiece tokenizer, a head of its own and yarn, one GPT-NeoX's blocks, whose last matrices have
blocks of 256.

    python make_gguf_model.py FOLDER
"""
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as T
from gguf import GGUFWriter
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import quantize

L, C, H, G, D, F = 2, 32, 4, 2, 8, 64
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
rng = np.random.default_rng(23)


def byte_chars():
    """GPT-2's printable character for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    chars, n = {b: chr(b) for b in plain}, 0
    for b in range(256):
        if b not in chars:
            chars[b] = chr(256 + n)
            n += 1
    return [chars[b] for b in range(256)]


def add(w, name, shape, kind=T.F32, scale=None):
    values = rng.normal(size=shape).astype(np.float32) * (scale or shape[-1] ** -0.5)
    if len(shape) == 1:
        values = 1 + values / 4
    if kind == T.F32:
        w.add_tensor(name, values)
    else:
        w.add_tensor(name, quantize(values, kind), raw_dtype=kind)


def add_model(w, vocab, tied):
    w.add_context_length(256)
    w.add_embedding_length(C)
    w.add_block_count(L)
    w.add_feed_forward_length(F)
    w.add_head_count(H)
    w.add_head_count_kv(G)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_dimension_count(D)
    w.add_vocab_size(vocab)
    add(w, "token_embd.weight", (vocab, C), T.Q8_0, 0.5)
    for l in range(L):
        add(w, f"blk.{l}.attn_norm.weight", (C,))
        add(w, f"blk.{l}.attn_q.weight", (H * D, C), T.Q8_0)
        add(w, f"blk.{l}.attn_k.weight", (G * D, C), T.F16)
        add(w, f"blk.{l}.attn_v.weight", (G * D, C), T.BF16)
        add(w, f"blk.{l}.attn_output.weight", (C, H * D), T.Q4_1)
        add(w, f"blk.{l}.ffn_norm.weight", (C,))
        add(w, f"blk.{l}.ffn_gate.weight", (F, C), T.Q8_0)
        add(w, f"blk.{l}.ffn_up.weight", (F, C), T.F16)
        add(w, f"blk.{l}.ffn_down.weight", (C, F), T.Q8_0)
    add(w, "output_norm.weight", (C,))
    if not tied:
        add(w, "output.weight", (vocab, C), T.Q8_0)


def writer(path):
    w = GGUFWriter(path, "llama")
    w.add_name(path.stem)
    w.add_string("golden.made_by", f"gguf {version('gguf')}, numpy {np.__version__}")
    return w


def close(w):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def byte_level(w):
    """Returns the size of the vocabulary."""
    tokens = byte_chars()
    types = [NORMAL] * 256
    merges = ["t h", "th e", "\u0120 the", "i n", "1 2"]
    tokens += [m.replace(" ", "") for m in merges]
    types += [NORMAL] * len(merges)
    for text, kind in (("<|im_start|>", CONTROL), ("<|im_end|>", CONTROL), ("<tool>", USER), ("[PAD0]", UNUSED)):
        tokens.append(text)
        types.append(kind)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("smollm")
    w.add_token_list(tokens)
    w.add_token_types(types)
    w.add_token_merges(merges)
    w.add_bos_token_id(261)
    w.add_eos_token_id(262)
    w.add_add_bos_token(False)
    w.add_chat_template(
        "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + "
        "'\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )
    return len(tokens)


def bpe(path):
    w = writer(path)
    w.add_rope_freq_base(5000.0)
    vocab = byte_level(w)
    add_model(w, vocab, True)
    w.add_tensor("rope_freqs.weight", np.array([1, 1, 2.7182817, 8], dtype=np.float32))
    close(w)


def add_blocks(w, name, rows, kind, halves):
    """Random blocks of a type that the package does not write, one a row."""
    blocks = rng.integers(0, 256, (rows, GGML_QUANT_SIZES[kind][1]), dtype=np.uint8)
    for at, scale in halves.items():
        blocks[:, at:at + 2] = np.full((rows, 1), scale, np.float16).view(np.uint8)
    w.add_tensor(name, blocks, raw_dtype=kind)


def neox(path):
    wide, kinds = 256, [(T.Q4_0, T.Q6_K, {208: 2e-5}), (T.Q5_1, T.Q5_K, {0: 1e-4, 2: 1e-3}), (T.Q4_1, T.Q4_K, {0: 2e-4, 2: 1e-3})]
    w = GGUFWriter(path, "gptneox")
    w.add_name(path.stem)
    w.add_string("golden.made_by", f"gguf {version('gguf')}, numpy {np.__version__}")
    vocab = byte_level(w)
    w.add_context_length(128)
    w.add_embedding_length(C)
    w.add_block_count(len(kinds))
    w.add_feed_forward_length(wide)
    w.add_head_count(H)
    w.add_layer_norm_eps(1e-5)
    w.add_rope_dimension_count(D)
    w.add_parallel_residual(True)
    add(w, "token_embd.weight", (vocab, C), T.Q8_0, 0.5)
    add(w, "output.weight", (vocab, C), T.Q8_0)
    for l, (up, down, halves) in enumerate(kinds):
        for name, rows, kind in (("attn_qkv", 3 * C, T.Q8_0), ("attn_output", C, T.Q8_0), ("ffn_up", wide, up)):
            add(w, f"blk.{l}.{name}.weight", (rows, C), kind)
            add(w, f"blk.{l}.{name}.bias", (rows,))
        add_blocks(w, f"blk.{l}.ffn_down.weight", C, down, halves)
        add(w, f"blk.{l}.ffn_down.bias", (C,))
        for name in ("attn_norm", "ffn_norm"):
            add(w, f"blk.{l}.{name}.weight", (C,))
            add(w, f"blk.{l}.{name}.bias", (C,))
    add(w, "output_norm.weight", (C,))
    add(w, "output_norm.bias", (C,))
    close(w)


def spm(path):
    tokens, types, scores = ["<unk>", "<s>", "</s>"], [UNKNOWN, CONTROL, CONTROL], [0.0, 0.0, 0.0]
    for b in range(256):
        tokens.append(f"<0x{b:02X}>")
        types.append(BYTE)
        scores.append(0.0)
    pieces = ["\u2581th", "e", "\u2581the", "in", "\u2581in", "er", *"\u2581tahnirseo.,0123"]
    for i, piece in enumerate(pieces):
        tokens.append(piece)
        types.append(NORMAL)
        scores.append(-1.0 - i / 7)
    w = writer(path)
    w.add_rope_freq_base(10000.0)
    w.add_string("llama.rope.scaling.type", "yarn")
    w.add_float32("llama.rope.scaling.factor", 4.0)
    w.add_uint32("llama.rope.scaling.original_context_length", 64)
    w.add_tokenizer_model("llama")
    w.add_token_list(tokens)
    w.add_token_scores(scores)
    w.add_token_types(types)
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_unk_token_id(0)
    add_model(w, len(tokens), False)
    close(w)


folder = Path(sys.argv[1])
bpe(folder / "gguf_bpe.gguf")
spm(folder / "gguf_spm.gguf")
neox(folder / "gguf_neox.gguf")
