"""T5 in GGUF: model.gguf beside the weights of model_t5 and model_t5_gated, by the names and with the keys that llama.cpp's converter gives
them, and tokenizer.model, a small Unigram model with a table of characters of its own, whose vocabulary the GGUF holds.

A GGUF has no key for the farthest distance, which is 128 then: tests/pass/test_pass_source.c compares with the config's set so.

Run: python make_t5_gguf.py   (gguf 0.19, sentencepiece 0.2; the version of gguf is stored in the files)
"""
import json
import os
import random
import struct
import tempfile
from importlib.metadata import version

import gguf
import sentencepiece
from safetensors import safe_open

HERE = os.path.dirname(os.path.abspath(__file__))
NORMAL, UNKNOWN, CONTROL = 1, 2, 3


def train_vocabulary(size):
    """A Unigram model of so many pieces, which knows full-width A as a and sharp s as ss."""
    random.seed(3)
    words = ["".join(random.choice("abcdeins") for _ in range(random.randint(1, 5))) for _ in range(60)]
    with tempfile.TemporaryDirectory() as folder:
        text, rules, model = (os.path.join(folder, name) for name in ("text", "rules.tsv", "m"))
        with open(text, "w", encoding="utf-8") as file:
            for _ in range(300):
                file.write(" ".join(random.choice(words) for _ in range(8)) + "\n")
        with open(rules, "w", encoding="utf-8") as file:
            file.write("FF21\t61\nDF\t73 73\n")
        sentencepiece.SentencePieceTrainer.train(input=text, model_prefix=model, vocab_size=size, model_type="unigram", pad_id=0, eos_id=1, unk_id=2,
                                                 bos_id=-1, normalization_rule_tsv=rules, minloglevel=2)
        with open(model + ".model", "rb") as file:
            return file.read()


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return value, at


def fields(data):
    """Pairs of number and value of a protobuf message, whose texts and messages are bytes."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        elif key & 7 == 2:
            n, at = varint(data, at)
            value, at = data[at:at + n], at + n
        else:  # floats
            value, at = struct.unpack("<f", data[at:at + 4])[0], at + 4
        yield key >> 3, value


def add_vocabulary(writer, model):
    pieces = [dict(fields(value)) for number, value in fields(model) if number == 1]
    normalizer = dict(fields(next(value for number, value in fields(model) if number == 3)))
    kinds = {1: NORMAL, 2: UNKNOWN, 3: CONTROL}
    writer.add_tokenizer_model("t5")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([p[1] for p in pieces])
    writer.add_token_scores([p.get(2, 0.0) for p in pieces])
    writer.add_token_types([kinds[p.get(3, 1)] for p in pieces])
    writer.add_add_space_prefix(bool(normalizer.get(3, 1)))
    writer.add_remove_extra_whitespaces(bool(normalizer.get(4, 1)))
    writer.add_precompiled_charsmap(normalizer[2])
    writer.add_eos_token_id(1)
    writer.add_unk_token_id(2)
    writer.add_pad_token_id(0)


def write(folder, pieces):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        c = json.load(file)
    writer = gguf.GGUFWriter(os.path.join(folder, "model.gguf"), "t5")
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.T5, max(c["num_layers"], c["num_decoder_layers"]))
    writer.add_string("golden.made_by", f"gguf {version('gguf')}")
    writer.add_context_length(512)
    writer.add_embedding_length(c["d_model"])
    writer.add_feed_forward_length(c["d_ff"])
    writer.add_block_count(c["num_layers"])
    writer.add_decoder_block_count(c["num_decoder_layers"])
    writer.add_head_count(c["num_heads"])
    writer.add_key_length(c["d_kv"])
    writer.add_value_length(c["d_kv"])
    writer.add_layer_norm_eps(c["layer_norm_epsilon"])
    writer.add_relative_attn_buckets_count(c["relative_attention_num_buckets"])
    writer.add_layer_norm_rms_eps(c["layer_norm_epsilon"])
    writer.add_decoder_start_token_id(c["decoder_start_token_id"])
    add_vocabulary(writer, pieces)
    with safe_open(os.path.join(folder, "model.safetensors"), "numpy") as file:
        for name in file.keys():
            value = file.get_tensor(name)
            if name.startswith("golden.") or name.endswith("embed_tokens.weight"):
                continue
            own = names.get_name(name, try_suffixes=(".weight",))
            assert own, name
            writer.add_tensor(own, value.astype("float32") if value.ndim == 1 else value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    pieces = train_vocabulary(48)
    for name in ("t5", "t5_gated"):
        write(os.path.join(HERE, "model_" + name), pieces)
    with open(os.path.join(HERE, "model_t5", "tokenizer.model"), "wb") as file:
        file.write(pieces)


if __name__ == "__main__":
    main()
