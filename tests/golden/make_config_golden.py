"""Writes configs.json: configurations of known models in the form of transformers 4 and 5, what transformers reads out of
them, and the rotary frequencies it computes. Run with transformers 5 and torch; the seed plays no part."""

import json
import os

import torch
import transformers
from transformers import (BertConfig, GPT2Config, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config, RobertaConfig,
                          XLMRobertaConfig)
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.mistral.modeling_mistral import MistralRotaryEmbedding
from transformers.models.qwen2.modeling_qwen2 import Qwen2RotaryEmbedding
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

SMOLLM2 = dict(
    architectures=["LlamaForCausalLM"], attention_bias=False, attention_dropout=0.0, bos_token_id=1, eos_token_id=2,
    hidden_act="silu", hidden_size=576, initializer_range=0.041666666666666664, intermediate_size=1536,
    is_llama_config=True, max_position_embeddings=8192, mlp_bias=False, model_type="llama", num_attention_heads=9,
    num_hidden_layers=30, num_key_value_heads=3, pad_token_id=2, pretraining_tp=1, rms_norm_eps=1e-05,
    rope_interleaved=False, rope_scaling=None, rope_theta=100000, tie_word_embeddings=True, torch_dtype="bfloat16",
    use_cache=True, vocab_size=49152)
LLAMA2 = dict(
    architectures=["LlamaForCausalLM"], bos_token_id=1, eos_token_id=2, hidden_act="silu", hidden_size=4096,
    initializer_range=0.02, intermediate_size=11008, max_position_embeddings=4096, model_type="llama",
    num_attention_heads=32, num_hidden_layers=32, num_key_value_heads=32, pretraining_tp=1, rms_norm_eps=1e-05,
    rope_scaling=None, tie_word_embeddings=False, torch_dtype="float16", use_cache=True, vocab_size=32000)
LLAMA3 = dict(
    architectures=["LlamaForCausalLM"], attention_bias=False, bos_token_id=128000, eos_token_id=[128001, 128008, 128009],
    head_dim=64, hidden_act="silu", hidden_size=2048, intermediate_size=8192, max_position_embeddings=131072,
    mlp_bias=False, model_type="llama", num_attention_heads=32, num_hidden_layers=16, num_key_value_heads=8,
    pretraining_tp=1, rms_norm_eps=1e-05,
    rope_scaling=dict(factor=32.0, high_freq_factor=4.0, low_freq_factor=1.0, original_max_position_embeddings=8192,
                      rope_type="llama3"),
    rope_theta=500000.0, tie_word_embeddings=True, torch_dtype="bfloat16", vocab_size=128256)
MISTRAL = dict(
    architectures=["MistralForCausalLM"], bos_token_id=1, eos_token_id=2, hidden_act="silu", hidden_size=4096,
    intermediate_size=14336, max_position_embeddings=32768, model_type="mistral", num_attention_heads=32,
    num_hidden_layers=32, num_key_value_heads=8, rms_norm_eps=1e-05, rope_theta=10000.0, sliding_window=4096,
    tie_word_embeddings=False, torch_dtype="bfloat16", vocab_size=32000)
GPT2 = dict(
    activation_function="gelu_new", architectures=["GPT2LMHeadModel"], attn_pdrop=0.1, bos_token_id=50256, embd_pdrop=0.1,
    eos_token_id=50256, initializer_range=0.02, layer_norm_epsilon=1e-05, model_type="gpt2", n_ctx=1024, n_embd=768,
    n_head=12, n_layer=12, n_positions=1024, resid_pdrop=0.1, vocab_size=50257)

QWEN2 = dict(
    architectures=["Qwen2ForCausalLM"], attention_dropout=0.0, bos_token_id=151643, eos_token_id=151645, hidden_act="silu",
    hidden_size=896, initializer_range=0.02, intermediate_size=4864, max_position_embeddings=32768, max_window_layers=21,
    model_type="qwen2", num_attention_heads=14, num_hidden_layers=24, num_key_value_heads=2, rms_norm_eps=1e-06,
    rope_theta=1000000.0, sliding_window=32768, tie_word_embeddings=True, torch_dtype="bfloat16", use_cache=True,
    use_sliding_window=False, vocab_size=151936)
QWEN3 = dict(
    architectures=["Qwen3ForCausalLM"], attention_bias=False, attention_dropout=0.0, bos_token_id=151643, eos_token_id=151645,
    head_dim=128, hidden_act="silu", hidden_size=1024, initializer_range=0.02, intermediate_size=3072,
    max_position_embeddings=40960, max_window_layers=28, model_type="qwen3", num_attention_heads=16, num_hidden_layers=28,
    num_key_value_heads=8, rms_norm_eps=1e-06, rope_scaling=None, rope_theta=1000000, sliding_window=None,
    tie_word_embeddings=True, torch_dtype="bfloat16", use_cache=True, use_sliding_window=False, vocab_size=151936)
MINILM = dict(
    architectures=["BertModel"], attention_probs_dropout_prob=0.1, gradient_checkpointing=False, hidden_act="gelu",
    hidden_dropout_prob=0.1, hidden_size=384, initializer_range=0.02, intermediate_size=1536, layer_norm_eps=1e-12,
    max_position_embeddings=512, model_type="bert", num_attention_heads=12, num_hidden_layers=6, pad_token_id=0,
    position_embedding_type="absolute", transformers_version="4.8.2", type_vocab_size=2, use_cache=True, vocab_size=30522)
ROBERTA = dict(
    architectures=["RobertaForMaskedLM"], attention_probs_dropout_prob=0.1, bos_token_id=0, eos_token_id=2, hidden_act="gelu",
    hidden_dropout_prob=0.1, hidden_size=768, initializer_range=0.02, intermediate_size=3072, layer_norm_eps=1e-05,
    max_position_embeddings=514, model_type="roberta", num_attention_heads=12, num_hidden_layers=12, pad_token_id=1,
    type_vocab_size=1, vocab_size=50265)


def scaled(base, **scaling):
    return dict(base, rope_scaling=scaling)


CASES = {
    "smollm2": SMOLLM2,
    "llama2": LLAMA2,
    "llama3": LLAMA3,
    "llama3_8b": dict(LLAMA3, head_dim=None, hidden_size=4096, num_hidden_layers=32, tie_word_embeddings=False,
                      rope_scaling=dict(LLAMA3["rope_scaling"], factor=8.0)),
    "llama_biases": dict(LLAMA2, attention_bias=True, mlp_bias=True, num_key_value_heads=None, hidden_act="gelu"),
    "linear_legacy": scaled(LLAMA2, type="linear", factor=4.0),
    "linear": scaled(SMOLLM2, rope_type="linear", factor=2.5),
    "yarn": scaled(LLAMA2, rope_type="yarn", factor=16.0, original_max_position_embeddings=4096),
    "yarn_untruncated": scaled(SMOLLM2, rope_type="yarn", factor=4.0, original_max_position_embeddings=2048,
                               truncate=False, beta_fast=16, beta_slow=2),
    "yarn_mscale": scaled(SMOLLM2, rope_type="yarn", factor=40.0, original_max_position_embeddings=1024, mscale=1.0,
                          mscale_all_dim=0.5),
    "yarn_attention": scaled(LLAMA2, rope_type="yarn", factor=8.0, original_max_position_embeddings=512,
                             attention_factor=1.25),
    "mistral_v01": MISTRAL,
    "mistral_v03": dict(MISTRAL, sliding_window=None, rope_theta=1000000.0, vocab_size=32768),
    "mistral_nemo": dict(MISTRAL, sliding_window=None, rope_theta=1000000.0, vocab_size=131072, hidden_size=5120,
                         head_dim=128, num_hidden_layers=40, max_position_embeddings=131072),
    "gpt2": GPT2,
    "gpt2_flags": dict(GPT2, scale_attn_weights=False, scale_attn_by_inverse_layer_idx=True, reorder_and_upcast_attn=True,
                       n_inner=2000, activation_function="relu", tie_word_embeddings=False),
    "qwen2": QWEN2,
    "qwen3": QWEN3,
    "qwen3_biases": dict(QWEN3, attention_bias=True, tie_word_embeddings=False),
    "minilm": MINILM,
    "roberta": ROBERTA,
    "xlm_roberta": dict(ROBERTA, architectures=["XLMRobertaForMaskedLM"], model_type="xlm-roberta", vocab_size=250002),
}
CLASSES = {"llama": LlamaConfig, "mistral": MistralConfig, "gpt2": GPT2Config, "qwen2": Qwen2Config, "qwen3": Qwen3Config,
           "bert": BertConfig, "roberta": RobertaConfig, "xlm-roberta": XLMRobertaConfig}
ROTARY = {"llama": LlamaRotaryEmbedding, "mistral": MistralRotaryEmbedding, "qwen2": Qwen2RotaryEmbedding,
          "qwen3": Qwen3RotaryEmbedding}


def numbers(cfg):
    heads = cfg.num_attention_heads
    kind = cfg.model_type
    gpt2, encoder, qwen2 = kind == "gpt2", "bert" in kind, kind == "qwen2"
    ffn = (cfg.n_inner or 4 * cfg.n_embd) if gpt2 else cfg.intermediate_size
    D = getattr(cfg, "head_dim", None) or cfg.hidden_size // heads
    eps = cfg.layer_norm_epsilon if gpt2 else cfg.layer_norm_eps if encoder else cfg.rms_norm_eps
    bias = gpt2 or encoder or getattr(cfg, "attention_bias", False)
    pad = cfg.pad_token_id if "roberta" in kind else -1
    return dict(
        L=cfg.num_hidden_layers, H=heads, G=heads if gpt2 or encoder else cfg.num_key_value_heads, D=D, C=cfg.hidden_size,
        F=ffn, V=cfg.vocab_size, max_positions=cfg.max_position_embeddings - pad - 1, eps=eps,
        tied=cfg.tie_word_embeddings, window=getattr(cfg, "sliding_window", None) or 0, attention_bias=bias or qwen2,
        out_bias=bias, mlp_bias=gpt2 or encoder or getattr(cfg, "mlp_bias", False),
        act=cfg.activation_function if gpt2 else cfg.hidden_act, score=1.0 if gpt2 and not cfg.scale_attn_weights else D ** -0.5,
        by_layer=gpt2 and cfg.scale_attn_by_inverse_layer_idx, types=cfg.type_vocab_size if encoder else 0,
        position_pad=pad + 1, post_norm=encoder, qk_norm=kind == "qwen3", causal=not encoder)


def main():
    out = {"transformers": transformers.__version__, "torch": torch.__version__, "cases": []}
    for name, old in CASES.items():
        cfg = CLASSES[old["model_type"]](**json.loads(json.dumps(old)))
        new = json.loads(cfg.to_json_string(use_diff=True))
        case = {"name": name, "v4": old, "v5": new, "want": numbers(cfg)}
        if old["model_type"] in ROTARY:
            rotary = ROTARY[old["model_type"]](cfg)
            case["inv_freq"] = [float(x) for x in rotary.inv_freq]
            case["rope_scale"] = float(rotary.attention_scaling)
            if name in ("smollm2", "llama3", "yarn"):
                at = torch.tensor([[0, 1, 7, 4000]])
                cos, sin = rotary(torch.zeros(1), at)
                half = cos.shape[-1] // 2
                case["cos"] = [[float(x) for x in row[:half]] for row in cos[0]]
                case["sin"] = [[float(x) for x in row[:half]] for row in sin[0]]
        out["cases"].append(case)
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "configs.json"), "w") as f:
        json.dump(out, f, separators=(",", ":"))
        f.write("\n")


main()
