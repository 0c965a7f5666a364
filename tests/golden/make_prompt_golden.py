"""PEFT's PromptEncoder in both forms, run by torch: what tests/encoder/test_enc_ptuning.c compares with.

Writes prompt.safetensors with tensors lstm.* and mlp.*: the parameters by PEFT's names, `emitted` [P, C], `weights` [P, C], and
grad.<parameter>, the gradients of sum(emitted * weights).

Run: python make_prompt_golden.py   (torch 2.13, PEFT 0.21; the versions used are stored in the file)
"""
import os

import peft
import torch
from peft import PromptEncoder, PromptEncoderConfig
from safetensors.torch import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
P, C, M = 6, 20, 11

tensors = {}
for seed, form in enumerate(["lstm", "mlp"], start=7):
    torch.manual_seed(seed)
    config = PromptEncoderConfig(task_type="CAUSAL_LM", num_virtual_tokens=P, token_dim=C, num_transformer_submodules=1,
                                 num_attention_heads=2, num_layers=2, encoder_reparameterization_type=form.upper(),
                                 encoder_hidden_size=M)
    encoder = PromptEncoder(config)
    emitted = encoder(torch.arange(P)[None])[0]
    weights = torch.randn(P, C)
    (emitted * weights).sum().backward()
    tensors |= {f"{form}.{name}": value.detach().contiguous() for name, value in encoder.named_parameters()}
    tensors |= {f"{form}.grad.{name}": value.grad.contiguous() for name, value in encoder.named_parameters()}
    tensors |= {f"{form}.emitted": emitted.detach().contiguous(), f"{form}.weights": weights}
path = os.path.join(HERE, "prompt.safetensors")
save_file(tensors, path, metadata={"format": "pt", "torch": torch.__version__, "peft": peft.__version__})
os.chmod(path, 0o644)
print(os.path.getsize(path), "bytes")
