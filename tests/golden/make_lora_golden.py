"""LoRAs of PEFT on the tiny models of make_model_golden.py: what tests/convert/test_lora.c compares with.

Writes lora/NAME, adapter folders with random factors, and lora/want.safetensors: of each NAME.bare_logits and NAME.logits,
at the labelled positions of the model's rows without and with its prefix, of the model that merge_and_unload() leaves
(f32).

    llama_tied     alpha / r on two projections
    llama_untied   every linear layer and the head, rsLoRA, rank_pattern and alpha_pattern
    gpt2           Conv1D layers, fan_in_fan_out
    gpt2_body      the same of AutoModel, whose names have no "transformer."
    gpt_neox       q, k and v of each head follow each other in one matrix
    phi3           fused matrices
    embedding      a layer that is not folded

Run: python make_lora_golden.py   (torch 2.13, transformers 5.23, peft 0.21)
"""
import os
import sys

import peft
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from make_model_golden import run  # noqa: E402

ATTENTION = ["q_proj", "v_proj"]
CONV = ["c_attn", "c_proj", "c_fc"]
CASES = {
    "llama_tied": dict(model="llama_tied", r=2, lora_alpha=6, target_modules=ATTENTION),
    "llama_untied": dict(model="llama_untied", r=3, lora_alpha=4, use_rslora=True,
                         target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"],
                         rank_pattern={"model.layers.0.self_attn.q_proj": 1, r"layers\.[12]\..*up_proj": 2},
                         alpha_pattern={"down_proj": 9, "^model.layers.1.mlp.gate_proj": 2}),
    "gpt2": dict(model="gpt2", r=2, lora_alpha=3, fan_in_fan_out=True, target_modules=CONV),
    "gpt2_body": dict(model="gpt2", r=2, lora_alpha=3, fan_in_fan_out=True, target_modules=CONV),
    "gpt_neox": dict(model="gpt_neox", r=2, lora_alpha=2, target_modules=["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"]),
    "phi3": dict(model="phi3", r=2, lora_alpha=2, target_modules=["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]),
    "embedding": dict(model="llama_tied", r=1, target_modules=["embed_tokens"]),
}


def fill(model, generator):
    for name, value in model.named_parameters():
        if "lora_" in name:
            value.data.copy_(torch.randn(value.shape, generator=generator) / (2 * value.shape[-1] ** 0.5))


def logits_of(model, file):
    """Without and with the prefix."""
    rows, start, at = [], 0, file["golden.label_at"].long()
    for n in file["golden.lengths"].tolist():
        ids = file["golden.ids"][start:start + n].long()
        rows.append((ids, at[(at >= start) & (at < start + n)] - start))
        start += n
    with torch.no_grad():
        return run(model, rows)[0], run(model, rows, file["golden.prefix"])[0]


def make(name, case, want):
    folder = os.path.join(HERE, "model_" + case["model"])
    kind = AutoModel if name.endswith("_body") else AutoModelForCausalLM
    base = kind.from_pretrained(folder, dtype=torch.float32).eval()
    options = {key: value for key, value in case.items() if key != "model"}
    task = {} if name.endswith("_body") else {"task_type": "CAUSAL_LM"}
    model = get_peft_model(base, LoraConfig(**options, **task))
    fill(model, torch.Generator().manual_seed(7))
    model.base_model.model.config._name_or_path = ""
    for config in model.peft_config.values():
        config.base_model_name_or_path = case["model"]
        config.target_modules = sorted(config.target_modules)
    out = os.path.join(HERE, "lora", name)
    model.save_pretrained(out, save_embedding_layers=False)
    os.remove(os.path.join(out, "README.md"))
    os.chmod(os.path.join(out, "adapter_model.safetensors"), 0o644)
    if name == "embedding" or name.endswith("_body"):
        return
    file = load_file(os.path.join(folder, "model.safetensors"))
    want[name + ".bare_logits"], want[name + ".logits"] = logits_of(model.merge_and_unload(), file)


if __name__ == "__main__":
    torch.set_num_threads(1)
    want = {}
    for name, case in CASES.items():
        make(name, case, want)
    path = os.path.join(HERE, "lora", "want.safetensors")
    save_file(want, path, metadata={"format": "pt", "peft": peft.__version__, "torch": torch.__version__})
    os.chmod(path, 0o644)
