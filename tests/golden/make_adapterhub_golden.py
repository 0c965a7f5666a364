"""Prefixes saved by AdapterHub's own library, as make_foreign_golden.py has them of other programs.

Writes foreign_prefixes/ah_<case>: what save_adapter() writes, with its two pickles converted to adapter.safetensors and
model_head.safetensors; and foreign_prefixes/want_ah.safetensors: <case>.prefix and <case>.out under it, run by that library, whose rows
start at position 0. ah_gpt2: tanh, which is kvfold's mlp; ah_bert: flat, a layer left out, a head; ah_llama: relu and
grouped-query attention, on the weights of model_qwen2 (a Llama with biases). Attention is eager: with sdpa this release leaves
causal models without a mask, and torch then aligns the triangle with the first keys, which are the prefix's.

Run: python make_adapterhub_golden.py   (adapters 1.3.0, transformers 4.57.6, torch 2.13; stored in the file)
"""
import json
import os
import shutil

import adapters
import torch
import transformers
from adapters import PrefixTuningConfig
from safetensors.torch import load_file, save_file
from transformers import (AutoConfig, BertForSequenceClassification, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM)

P = 5
HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "foreign_prefixes")
want = {}


def stored_base(name):
    folder = os.path.join(HERE, "model_" + name)
    with open(os.path.join(folder, "config.json")) as file:
        config = json.load(file)
    return load_file(os.path.join(folder, "model.safetensors")), config


def gpt2():
    stored, config = stored_base("gpt2")
    return stored, GPT2LMHeadModel._from_config(AutoConfig.for_model(**config), attn_implementation="eager"), ""


def bert():
    stored, config = stored_base("bert")
    return stored, BertForSequenceClassification(AutoConfig.for_model(**config)), "bert."


def llama():
    stored, config = stored_base("qwen2")
    keys = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
            "num_key_value_heads", "max_position_embeddings", "rms_norm_eps", "tie_word_embeddings")
    model = LlamaForCausalLM._from_config(LlamaConfig(**{k: config[k] for k in keys}, attention_bias=True,
                                                      rope_theta=config["rope_parameters"]["rope_theta"]),
                                          attn_implementation="eager")
    for layer in model.model.layers:
        layer.self_attn.o_proj.bias.data.zero_()
    return stored, model, ""


CASES = {
    "ah_gpt2": (gpt2, PrefixTuningConfig(prefix_length=P, bottleneck_size=6, non_linearity="tanh")),
    "ah_bert": (bert, PrefixTuningConfig(prefix_length=P, flat=True, leave_out=[1])),
    "ah_llama": (llama, PrefixTuningConfig(prefix_length=P, bottleneck_size=6, non_linearity="relu")),
}


def convert(folder, pickle, to):
    tensors = torch.load(os.path.join(folder, pickle))
    save_file({k: v.detach().clone().contiguous() for k, v in tensors.items()}, os.path.join(folder, to))
    os.remove(os.path.join(folder, pickle))


@torch.no_grad()
def golden(case):
    make, config = CASES[case]
    stored, model, stem = make()
    weights = {stem + k: v.float() for k, v in stored.items() if not k.startswith("golden.")}
    missing = model.load_state_dict(weights, strict=False).missing_keys
    assert all("classifier" in k or "lm_head" in k or "o_proj.bias" in k or "masked_bias" in k for k in missing), missing
    adapters.init(model)
    model.add_adapter("tiny", config=config)
    model.set_active_adapters("tiny")
    model.eval()

    body = getattr(model, model.base_model_prefix)
    own = body.prefix_tuning.prefix_tunings["tiny"]["self_prefix"](1)  # of each layer with a prefix [2, 1, G, P, D]
    layers = [l for l in range(model.config.num_hidden_layers) if l not in config.leave_out]
    prefix = torch.zeros(model.config.num_hidden_layers, *own[0].shape[:1], *own[0].shape[2:])
    for place, value in zip(layers, own):
        prefix[place] = value[:, 0]
    want[case + ".prefix"] = prefix

    out, start = [], 0
    for n in stored["golden.lengths"].tolist():
        at = stored["golden.label_at"].long()
        at = at[(at >= start) & (at < start + n)] - start
        ids = stored["golden.ids"][start:start + n].long()[None]
        if stem:
            types = stored["golden.types"][start:start + n].long()[None]
            out.append(body(input_ids=ids, token_type_ids=types).last_hidden_state[0][at])
        else:
            out.append(model(input_ids=ids).logits[0][at])
        start += n
    want[case + ".out"] = torch.cat(out).contiguous()

    folder = os.path.join(OUT, case)
    shutil.rmtree(folder, ignore_errors=True)
    model.save_adapter(folder, "tiny")
    convert(folder, "pytorch_adapter.bin", "adapter.safetensors")
    if stem:
        convert(folder, "pytorch_model_head.bin", "model_head.safetensors")
        want[case + ".head"] = model.classifier.weight.detach().clone()
    else:
        os.remove(os.path.join(folder, "pytorch_model_head.bin"))  # the base's own matrix


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(9)
    os.makedirs(OUT, exist_ok=True)
    for name in CASES:
        golden(name)
    save_file(want, os.path.join(OUT, "want_ah.safetensors"),
              metadata={"torch": torch.__version__, "transformers": transformers.__version__, "adapters": adapters.__version__})
    for folder, _, files in os.walk(OUT):
        for name in files:
            os.chmod(os.path.join(folder, name), 0o644)
            if "ah" in folder + name:
                print(folder, name, os.path.getsize(os.path.join(folder, name)))
