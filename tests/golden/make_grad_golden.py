"""Tiny models run by torch for the gradients of all their weights: what tests/pass/test_pass_weights.c compares with.

Writes model_grad_<name> as make_model_golden.py and make_encoder_golden.py write theirs, with tensors grad.<parameter>: the
gradient of the summed loss (encoders: of sum(hidden * golden.weights)) without a prefix, in f32, row by row. Token ids leave out
the padding's id, whose embedding torch does not train.

Run: python make_grad_golden.py [NAME ...]
"""
import json
import os
import sys

import torch
import transformers
from make_model_golden import HERE, randomise
from safetensors.torch import save_file
from transformers import (BertConfig, BertModel, ElectraConfig, ElectraModel, Gemma2Config, Gemma2ForCausalLM, Gemma3ForCausalLM,
                          Gemma3TextConfig, GPT2Config, GPT2LMHeadModel, GPTNeoXConfig, GPTNeoXForCausalLM, GraniteConfig, GraniteForCausalLM, LlamaConfig,
                          LlamaForCausalLM, Olmo2Config, Olmo2ForCausalLM, OpenAIGPTConfig, OpenAIGPTLMHeadModel, Phi3Config,
                          Phi3ForCausalLM, Qwen3Config, Qwen3ForCausalLM, RobertaConfig, RobertaModel)

LENGTHS = [7, 4, 9]
LLAMA = dict(vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=8, max_position_embeddings=32, rms_norm_eps=1e-5)
SMALL = dict(vocab_size=40, n_embd=16, n_positions=20, n_layer=2, n_head=2)
TINY = dict(vocab_size=24, hidden_size=8, intermediate_size=12, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=32)
GEMMA = dict(head_dim=4, query_pre_attn_scalar=6, sliding_window=3, pad_token_id=0)
BERT = dict(vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2)
MODELS = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**LLAMA, tie_word_embeddings=False, attention_bias=True, mlp_bias=True)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**LLAMA, tie_word_embeddings=True)),
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(**SMALL, bos_token_id=0, eos_token_id=0)),
    "openai_gpt": lambda: OpenAIGPTLMHeadModel(OpenAIGPTConfig(**SMALL, tie_word_embeddings=True)),
    "bert": lambda: BertModel(BertConfig(**BERT, max_position_embeddings=20, type_vocab_size=2), add_pooling_layer=False),
    "roberta": lambda: RobertaModel(RobertaConfig(**BERT, max_position_embeddings=22, type_vocab_size=1, layer_norm_eps=1e-5),
                                    add_pooling_layer=False),
    "olmo2": lambda: Olmo2ForCausalLM(Olmo2Config(**TINY, rms_norm_eps=1e-5, tie_word_embeddings=False, pad_token_id=0)),
    "electra": lambda: ElectraModel(ElectraConfig(**BERT, embedding_size=12, max_position_embeddings=20)),
    "gpt_neox": lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**{k: v for k, v in TINY.items() if k != "num_key_value_heads"} |
                                                         dict(num_attention_heads=2, rope_parameters={
                                                             "rope_type": "default", "partial_rotary_factor": 0.5}))),
    "phi3": lambda: Phi3ForCausalLM(Phi3Config(**TINY, pad_token_id=0, tie_word_embeddings=True)),
    "gemma2": lambda: Gemma2ForCausalLM(Gemma2Config(**TINY | GEMMA, attn_logit_softcapping=2.0, final_logit_softcapping=3.0,
                                                     attn_implementation="eager")),
    "gemma3": lambda: Gemma3ForCausalLM(Gemma3TextConfig(**TINY | GEMMA, layer_types=["sliding_attention", "full_attention"])),
    "granite": lambda: GraniteForCausalLM(GraniteConfig(**TINY, embedding_multiplier=12.0, residual_multiplier=0.22, attention_multiplier=0.3,
                                                        logits_scaling=1.5, rms_norm_eps=1e-5, tie_word_embeddings=False)),
}


def golden(name, model, seed):
    generator = torch.Generator().manual_seed(seed)
    model.eval()
    randomise(model, generator)
    c = model.config
    encoder = name in ("bert", "roberta", "electra")
    rows, weights, at_all, start = [], [], [], 0
    for n in LENGTHS:
        ids = torch.randint(2, c.vocab_size, (n,), generator=generator)
        types = (torch.arange(n) > n // 2).long() * (getattr(c, "type_vocab_size", 1) - 1)
        at = torch.arange(n // 2, n - (0 if encoder else 1))
        rows.append((ids, types, at))
        at_all.append(at + start)
        weights.append(torch.randn(len(at), c.hidden_size, generator=generator))
        start += n

    loss = 0.0
    for (ids, types, at), w in zip(rows, weights):
        if encoder:
            out = model(input_ids=ids[None], token_type_ids=types[None]).last_hidden_state[0][at]
            loss = loss + (out * w).sum()
        else:
            logits = model(input_ids=ids[None]).logits[0][at]
            loss = loss + torch.nn.functional.cross_entropy(logits, ids[at + 1], reduction="sum")
    loss.backward()

    state = {k: v for k, v in model.named_parameters()}
    tensors = {k: v.detach().to(torch.float16).contiguous() for k, v in state.items()}
    tensors |= {"grad." + k: v.grad.contiguous() for k, v in state.items()}
    tensors |= {
        "golden.ids": torch.cat([ids for ids, _, _ in rows]).to(torch.int32),
        "golden.types": torch.cat([types for _, types, _ in rows]).to(torch.int32),
        "golden.lengths": torch.tensor(LENGTHS, dtype=torch.int32),
        "golden.label_at": torch.cat(at_all).to(torch.int32),
        "golden.prefix": torch.zeros(c.num_hidden_layers, 2, getattr(c, "num_key_value_heads", None) or c.num_attention_heads, 1,
                                     getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads),
        "golden.weights": torch.cat(weights), "golden.loss": loss.detach()[None],
    }
    if not encoder:
        tensors["golden.label_id"] = torch.cat([ids[at + 1] for ids, _, at in rows]).to(torch.int32)
    folder = os.path.join(HERE, "model_grad_" + name)
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "model.safetensors")
    save_file(tensors, path, metadata={"format": "pt", "seed": str(seed), "torch": torch.__version__,
                                       "transformers": transformers.__version__})
    os.chmod(path, 0o644)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(c.to_dict(), file, indent=2, sort_keys=True)
        file.write("\n")
    print(f"{name}: {os.path.getsize(path)} bytes, loss {loss.item():.6f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for seed, (name, model) in enumerate(MODELS.items(), start=60):
        if not sys.argv[1:] or name in sys.argv[1:]:
            golden(name, model(), seed)
