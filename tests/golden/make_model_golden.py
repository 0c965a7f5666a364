"""Tiny models with random weights, run by transformers: what tests/pass/test_pass_golden.c compares with.

Writes model_<name>/config.json and model_<name>/model.safetensors, the weights in f16, and tensors
golden.*: token ids of rows of different lengths, labelled positions (unshifted ids of the next tokens), logits at
them without and with a random prefix, losses, and the gradient of the summed loss with respect to the prefix, all
computed in f32 row by row without padding. golden.autocast_error is the relative L2 error of that gradient under
torch.autocast(bfloat16). Weights are f16 so that f32 holds them exactly and bf16 rounds them, as it does real ones.

Where the heads of layers differ (Gemma 4, and hybrids, whose layers without attention have none), golden.prefix, golden.gradient and golden.kv are the layers one after the other.

The families of FAMILIES have a prefix of 20 and two things more: golden.kv, the keys and values of the last row behind the
prefix, [L, 2, G, T, D], and model.gguf, the same weights by the names, in the order and with the keys that llama.cpp's converter
gives them. Their rows are run once more padded on either side: the logits must not change, but for a window, in which padding
between prefix and tokens counts as tokens.

Those of NEURAL and HYBRID have a prefix of 13, and virtual neurons: golden.neurons [3, L, N, C] (gate, up, value), the logits and the loss with
them and the prefix, and the gradient of that loss with respect to them.

Run: python make_model_golden.py [NAME ...]   (torch 2.13, transformers 5.24, gguf 0.19; the versions used are stored in the files)
"""
import json
import math
import os
import sys
from importlib.metadata import version

import gguf
import torch
import transformers
from safetensors.torch import save_file
from saved_tensors import saved_tensors
from transformers import (DynamicCache, Gemma2Config, Gemma2ForCausalLM, Gemma3ForCausalLM, Gemma3TextConfig, Gemma4ForCausalLM, Gemma4TextConfig, GPT2Config, GPT2LMHeadModel, GPTNeoXConfig, GPTNeoXForCausalLM, GraniteConfig, GraniteForCausalLM,
                          GraniteMoeHybridConfig, GraniteMoeHybridForCausalLM, Lfm2Config, Lfm2ForCausalLM, LlamaConfig,
                          LlamaForCausalLM, Ministral3Config, Ministral3ForCausalLM, MistralConfig, MistralForCausalLM, Olmo2Config, Olmo2ForCausalLM, Olmo3Config, Olmo3ForCausalLM, Phi3Config, Phi3ForCausalLM, Qwen3_5ForCausalLM, Qwen3_5TextConfig, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM, SmolLM3Config,
                          SmolLM3ForCausalLM)

HERE = os.path.dirname(os.path.abspath(__file__))
P, P_FAMILIES, P_NEURAL, NEURONS = 5, 20, 13, 3
LENGTHS = [17, 5, 30, 9]

LLAMA = dict(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, head_dim=16, max_position_embeddings=64, rms_norm_eps=1e-5)
GPT2 = dict(vocab_size=64, n_embd=32, n_positions=48, bos_token_id=0, eos_token_id=0)
MODELS = {
    "llama_tied": LlamaForCausalLM(LlamaConfig(**LLAMA, tie_word_embeddings=True)),
    "llama_untied": LlamaForCausalLM(LlamaConfig(**LLAMA, tie_word_embeddings=False, attention_bias=True, mlp_bias=True,
                                                 rope_parameters={"rope_type": "default", "rope_theta": 500.0})),
    "gpt2": GPT2LMHeadModel(GPT2Config(**GPT2, n_layer=2, n_head=2)),
    "gpt2_by_layer": GPT2LMHeadModel(GPT2Config(**GPT2, n_layer=3, n_head=4, n_inner=40, scale_attn_by_inverse_layer_idx=True,
                                                attn_implementation="eager")),
    "qwen2": Qwen2ForCausalLM(Qwen2Config(**{k: v for k, v in LLAMA.items() if k != "head_dim"}, tie_word_embeddings=True)),
    "qwen3": Qwen3ForCausalLM(Qwen3Config(**LLAMA, tie_word_embeddings=False)),
}


SMALL = dict(vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64)
LONGROPE = dict(rope_type="longrope", rope_theta=10000.0, partial_rotary_factor=0.75, original_max_position_embeddings=64,
                short_factor=[1.0, 1.3, 1.7], long_factor=[2.0, 3.0, 5.0])
GEMMA = SMALL | dict(head_dim=8, query_pre_attn_scalar=8, sliding_window=8, pad_token_id=0)
GEMMA4 = {k: v for k, v in GEMMA.items() if k not in ("num_hidden_layers", "query_pre_attn_scalar")} | dict(
    global_head_dim=16, vocab_size_per_layer_input=40, final_logit_softcapping=3.0, max_position_embeddings=64,
    rope_parameters={"full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 5000.0},
                     "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}})
YARN = dict(rope_type="yarn", rope_theta=500.0, factor=4.0, original_max_position_embeddings=32)
MULTIPLIERS = dict(embedding_multiplier=12.0, residual_multiplier=0.22, attention_multiplier=0.3, logits_scaling=1.5)
GRANITE_KEYS = {"embedding_scale": 12.0, "residual_scale": 0.22, "attention.scale": 0.3, "logit_scale": 1.5, "rope.dimension_count": 4}
TOKENS = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)
GEMMA_KEYS = {"attention.key_length": 8, "attention.value_length": 8, "attention.sliding_window": 8}
FAMILIES = {
    "olmo2": (Olmo2ForCausalLM(Olmo2Config(**SMALL, pad_token_id=0)), "olmo2", {}),
    "gpt_neox": (GPTNeoXForCausalLM(GPTNeoXConfig(**{k: v for k, v in SMALL.items() if k != "num_key_value_heads"} |
                                                  dict(num_attention_heads=2), rope_parameters={
                                                      "rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5})),
                 "gptneox", {"use_parallel_residual": True, "rope.dimension_count": 4, "rope.freq_base": 500.0,
                             "attention.layer_norm_epsilon": 1e-5}),
    "phi3": (Phi3ForCausalLM(Phi3Config(**SMALL | dict(hidden_size=32, max_position_embeddings=128), pad_token_id=0,
                                        bos_token_id=1, eos_token_id=2, rope_parameters=LONGROPE,
                                        original_max_position_embeddings=64)),
             "phi3", {"rope.dimension_count": 6, "rope.scaling.original_context_length": 64,
                      "rope.scaling.attn_factor": math.sqrt(1 + math.log(2) / math.log(64)), "attention.sliding_window": 0}),
    "gemma2": (Gemma2ForCausalLM(Gemma2Config(**GEMMA, attn_logit_softcapping=2.0, final_logit_softcapping=3.0,
                                              attn_implementation="eager")),
               "gemma2", GEMMA_KEYS | {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}),
    "gemma3": (Gemma3ForCausalLM(Gemma3TextConfig(
        **GEMMA | dict(num_hidden_layers=3), layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        rope_parameters={"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5000.0},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}})),
        "gemma3", GEMMA_KEYS | {"attention.sliding_window_pattern": 2, "rope.freq_base": 5000.0, "rope.freq_base_swa": 100.0,
                                "rope.scaling.type": "linear", "rope.scaling.factor": 8.0}),
    "mistral": (MistralForCausalLM(MistralConfig(**SMALL, sliding_window=8)), None, {}),
    # as E2B and E4B: inputs of layers, of which the last ones share keys and values and are twice as wide within
    "gemma4": (Gemma4ForCausalLM(Gemma4TextConfig(**GEMMA4, num_hidden_layers=6, num_kv_shared_layers=2, use_double_wide_mlp=True,
                                                  hidden_size_per_layer_input=16, layer_types=["sliding_attention", "full_attention"] * 3)),
               None, {}),
    # as 31B: fewer and larger heads in layers that are not local, whose values are their keys
    "gemma4_dense": (Gemma4ForCausalLM(Gemma4TextConfig(**GEMMA4, num_hidden_layers=3, hidden_size_per_layer_input=0, attention_k_eq_v=True,
                                                        num_global_key_value_heads=1,
                                                        layer_types=["sliding_attention", "sliding_attention", "full_attention"])),
                     None, {}),
}
NEURAL = {
    "smollm3": (SmolLM3ForCausalLM(SmolLM3Config(**SMALL | TOKENS | dict(num_hidden_layers=5), rope_parameters={
        "rope_type": "default", "rope_theta": 500.0})), "smollm3", {"rope.freq_base": 500.0, "rope.dimension_count": 4}),
    # three local layers, then a global one, whose rope alone is scaled
    "olmo3": (Olmo3ForCausalLM(Olmo3Config(**SMALL | TOKENS | dict(num_hidden_layers=4, sliding_window=8, max_position_embeddings=128), rope_parameters={
        "full_attention": YARN, "sliding_attention": {"rope_type": "default", "rope_theta": 500.0}})),
        "olmo2", {"attention.sliding_window": 8, "attention.sliding_window_pattern": [True, True, True, False], "rope.freq_base": 500.0,
                  "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 32}),
    "granite": (GraniteForCausalLM(GraniteConfig(**SMALL | TOKENS | MULTIPLIERS, rms_norm_eps=1e-5)), "granite", GRANITE_KEYS),
    # neither Mamba nor experts; a GGUF calls it granite
    "granite_hybrid": (GraniteMoeHybridForCausalLM(GraniteMoeHybridConfig(
        **SMALL | TOKENS | MULTIPLIERS, shared_intermediate_size=24, num_local_experts=0, layer_types=["full_attention"] * 2,
        position_embedding_type="rope", tie_word_embeddings=True, mamba_n_heads=2)), "granite", GRANITE_KEYS),
    # queries grow at positions 16 and 32
    "ministral3": (Ministral3ForCausalLM(Ministral3Config(**SMALL | TOKENS, head_dim=8, rope_parameters=YARN | dict(
        original_max_position_embeddings=16, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.7))), "mistral3",
        {"attention.key_length": 8, "attention.value_length": 8, "rope.freq_base": 500.0, "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
         "rope.scaling.original_context_length": 16, "rope.scaling.yarn_log_multiplier": 1.0, "attention.temperature_scale": 0.7}),
}
# Layers without attention, which keep no keys and values: a prefix has only those of the others.
LFM2 = {k: v for k, v in SMALL.items() if k not in ("intermediate_size", "num_hidden_layers")} | TOKENS
HYBRID = {
    "qwen3_5": (Qwen3_5ForCausalLM(Qwen3_5TextConfig(**SMALL | TOKENS | dict(num_hidden_layers=4), head_dim=8, tie_word_embeddings=True,
        layer_types=["linear_attention", "full_attention"] * 2, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=6,
        linear_value_head_dim=9, rope_parameters={"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5,
                                                  "mrope_section": [1, 1, 0]})), "qwen35",
        {"ssm.conv_kernel": 4, "ssm.group_count": 2, "ssm.time_step_rank": 4, "ssm.state_size": 6, "ssm.inner_size": 36,
         "full_attention_interval": 2, "nextn_predict_layers": 1, "attention.key_length": 8, "attention.value_length": 8,
         "rope.dimension_count": 4, "rope.freq_base": 500.0}),
    "lfm2": (Lfm2ForCausalLM(Lfm2Config(**LFM2, num_hidden_layers=4, intermediate_size=30, block_multiple_of=8, layer_types=[
        "conv", "full_attention", "conv", "full_attention"], rope_parameters={"rope_type": "default", "rope_theta": 500.0})), "lfm2",
        {"shortconv.l_cache": 3, "rope.freq_base": 500.0, "attention.layer_norm_rms_epsilon": 1e-5}),
    # more taps than some rows have tokens, and the last layer is a convolution
    "lfm2_taps": (Lfm2ForCausalLM(Lfm2Config(**LFM2, num_hidden_layers=3, intermediate_size=24, block_auto_adjust_ff_dim=False, conv_L_cache=7,
                                             layer_types=["conv", "full_attention", "conv"])), None, {}),
}
PERMUTED = ("smollm3", "granite", "mistral3")


def randomise(model, generator):
    """Weights large enough that every part of the model matters; norms off 1, biases off 0."""
    for name, value in model.named_parameters():
        noise = torch.randn(value.shape, generator=generator)
        norm = "norm" in name.lower() or "ln_" in name
        scale = 0.2 if norm or value.dim() == 1 else 1.0 / value.shape[-1] ** 0.5
        less_1 = model.config.model_type == "qwen3_5_text" and "linear_attn" not in name
        new = noise * scale + (1.0 if norm and name.endswith("weight") and not less_1 else 0.0)
        if model.config.model_type == "gemma4_text" and "q_norm" in name:  # its scores are divided by nothing
            new = new / value.shape[0] ** 0.5
        value.data.copy_(new.to(torch.float16).float())
    for name, value in model.named_buffers():
        if name.endswith("layer_scalar"):
            value.copy_((0.9 + 0.2 * torch.rand(1, generator=generator)).to(torch.float16).float())


def attention_layers(config):
    """The layers that keep keys and values."""
    types = getattr(config, "layer_types", None) or ["attention"] * config.num_hidden_layers
    return [l for l, kind in enumerate(types) if kind not in ("conv", "linear_attention")]


def prefix_cache(model, prefix):
    cache = DynamicCache(config=model.config)
    for layer, (keys, values) in zip(attention_layers(model.config), prefix):
        cache.update(keys[None], values[None], layer)
    return cache


def joined(layers):
    """[L, 2, G, P, D], or, where heads differ, the layers one after the other."""
    alike = all(layer.shape == layers[0].shape for layer in layers)
    return torch.stack(list(layers)) if alike else torch.cat([layer.reshape(-1) for layer in layers])


def padded_logits(model, rows, prefix, left):
    """Logits at the labelled positions of all rows, run as one batch."""
    longest = max(len(ids) for ids, _ in rows)
    room = [longest - len(ids) if left else 0 for ids, _ in rows]
    batch = torch.zeros(len(rows), longest, dtype=torch.long)
    before = prefix[0].shape[2]
    mask = torch.zeros(len(rows), before + longest, dtype=torch.long)
    mask[:, :before] = 1
    for i, (ids, _) in enumerate(rows):
        batch[i, room[i] : room[i] + len(ids)] = ids
        mask[i, before + room[i] : before + room[i] + len(ids)] = 1
    cache = DynamicCache(config=model.config)
    for layer, pair in zip(attention_layers(model.config), prefix):
        cache.update(*(part[None].expand(len(rows), -1, -1, -1) for part in pair), layer)
    positions = (mask.cumsum(1) - 1).clamp(min=0)[:, before:]
    out = model(input_ids=batch, attention_mask=mask, position_ids=positions, past_key_values=cache).logits
    return torch.cat([out[i, room[i] + at] for i, (_, at) in enumerate(rows)])


def keys_and_values(model, ids, prefix):
    """What a row of ids leaves in a cache that is not cut at a window."""
    own = attention_layers(model.config)
    cache = DynamicCache(config=model.config if len(own) < model.config.num_hidden_layers else None)
    for layer, (keys, values) in zip(own, prefix):
        cache.update(keys[None], values[None], layer)
    model(input_ids=ids[None], past_key_values=cache)
    return joined([torch.stack([l.keys[0], l.values[0]])[:, :, prefix[0].shape[2] :] for l in cache.layers if hasattr(l, "keys")])


def permuted(value, heads):
    """The rows of a head's first and second half in turn."""
    return value.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)


def qwen35_tensor(name, value, c):
    """Norms plus 1, the rate itself and not its logarithm, and value heads k, k + n, ... of key head k of n."""
    keys, before = c.linear_num_key_heads, 2 * c.linear_num_key_heads * c.linear_key_head_dim

    def tiled(heads):
        return heads.unflatten(0, (keys, c.linear_num_value_heads // keys, -1)).transpose(0, 1).flatten(0, 2)

    if name.endswith("norm.weight") and "linear_attn" not in name:
        return name, value + 1
    if name.endswith("A_log"):
        value = -value.exp()
    if name.endswith("out_proj.weight"):
        return name, tiled(value.T).T
    if name.endswith(("in_proj_qkv.weight", "conv1d.weight")):
        return name, torch.cat([value[:before], tiled(value[before:])])
    if "linear_attn" in name and not name.endswith("norm.weight"):
        value = tiled(value)
    return name.replace(".dt_bias", ".dt_proj.bias"), value


def gguf_tensors(name, value, config, arch):
    """What llama.cpp's converter makes of a tensor: (name, values) as it looks names up in its own table."""
    if arch in PERMUTED and name.endswith(("q_proj.weight", "k_proj.weight")):
        value = permuted(value, config.num_attention_heads if "q_proj" in name else config.num_key_value_heads)
    if config.model_type.startswith("gemma") and name.endswith("norm.weight"):
        value = value + 1
    if "conv" in name and value.dim() == 3:
        value = value.squeeze(1)
    if arch == "qwen35":
        name, value = qwen35_tensor(name, value, config)
    if "shared_mlp.input_linear" in name:
        yield from zip((name.replace("shared_mlp.input_linear", "mlp." + half) for half in ("gate_proj", "up_proj")), value.chunk(2))
        return
    name = name.replace("shared_mlp.output_linear", "mlp.down_proj")
    if "query_key_value" in name:  # from head by head to q, k and v
        value = value.unflatten(0, (config.num_attention_heads, 3, -1)).transpose(0, 1).flatten(0, 2)
    yield name, value


def write_gguf(path, model, arch, keys):
    c = model.config
    names = gguf.get_tensor_name_map(next(a for a, n in gguf.MODEL_ARCH_NAMES.items() if n == arch), c.num_hidden_layers)
    writer = gguf.GGUFWriter(path, arch)
    writer.add_context_length(c.max_position_embeddings)
    writer.add_embedding_length(c.hidden_size)
    writer.add_block_count(c.num_hidden_layers + keys.get("nextn_predict_layers", 0))
    first = model.model.layers[0] if arch == "lfm2" else None
    writer.add_feed_forward_length(first.feed_forward.w1.out_features if first else c.intermediate_size)
    writer.add_head_count(c.num_attention_heads)
    writer.add_vocab_size(c.vocab_size)
    if hasattr(c, "num_key_value_heads"):
        own = attention_layers(c)
        heads = [c.num_key_value_heads * (l in own) for l in range(c.num_hidden_layers)]
        writer.add_head_count_kv(heads if arch == "lfm2" else c.num_key_value_heads)
    if hasattr(c, "rms_norm_eps"):
        writer.add_layer_norm_rms_eps(c.rms_norm_eps)
    for key, value in keys.items():
        add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string,
               list: writer.add_array}[type(value)]
        add(f"{arch}.{key}", value)
    writer.add_string("golden.made_by", f"gguf {version('gguf')}")
    for name, value in model.state_dict().items():
        if c.tie_word_embeddings and name == "lm_head.weight":
            continue
        for own, data in gguf_tensors(name, value, c, arch):
            new = names.get_name(own, try_suffixes=(".weight", ".bias"))
            assert new, own
            kind = torch.float32 if data.dim() == 1 or "conv" in new else torch.float16
            writer.add_tensor(new, data.to(kind).contiguous().numpy())
    for which in ("short", "long") if arch == "phi3" else ():
        factors = torch.tensor(c.rope_parameters[which + "_factor"])
        writer.add_tensor(f"rope_factors_{which}.weight", factors.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.chmod(path, 0o644)


def family(name, model, arch, keys, tensors, rows, prefix, logits):
    with torch.no_grad():
        tensors["golden.kv"] = keys_and_values(model, rows[-1][0], prefix)
        windows = getattr(model.config, "sliding_window", None) is not None
        for left in (False, True):
            error = (padded_logits(model, rows, prefix, left) - logits).abs().max().item()
            assert error < 1e-5 or (windows and left), (name, left, error)
            print(f"{name}: padded {'left' if left else 'right'}, logits differ by {error:.1e}")
    if arch:
        write_gguf(os.path.join(HERE, "model_" + name, "model.gguf"), model, arch, keys)


def run(model, rows, prefix=None, start=None):
    """Logits at the labelled positions of all rows, and the summed loss."""
    logits, loss = [], 0.0
    for ids, at in rows:
        args = {}
        if prefix is not None:
            args["past_key_values"] = prefix_cache(model, prefix)
        if start is not None:
            args["position_ids"] = torch.arange(start, start + len(ids))[None]
        out = model(input_ids=ids[None], **args).logits[0]
        picked = out[at].float()
        logits.append(picked)
        loss = loss + torch.nn.functional.cross_entropy(picked, ids[at + 1], reduction="sum")
    return torch.cat(logits), loss


def gradient(model, rows, prefix):
    leaves = [layer.clone().requires_grad_(True) for layer in prefix]
    logits, loss = run(model, rows, leaves)
    loss.backward()
    return logits.detach(), loss.detach(), joined([leaf.grad for leaf in leaves])


def add_neurons(model, neurons):
    """Virtual neurons of every layer, [3, L, N, C]: added to the output of its feed-forward part."""
    def hook(module, args, output):
        gate, up, value = neurons[:, layers.index(module)]
        return output + (torch.nn.functional.silu(args[0] @ gate.T) * (args[0] @ up.T)) @ value

    layers = [getattr(layer, "shared_mlp", None) or getattr(layer, "feed_forward", None) or layer.mlp for layer in model.model.layers]
    return [layer.register_forward_hook(hook) for layer in layers]


def with_neurons(model, rows, prefix, generator):
    c = model.config
    neurons = 0.2 * torch.randn(3, c.num_hidden_layers, NEURONS, c.hidden_size, generator=generator)
    neurons.requires_grad_(True)
    hooks = add_neurons(model, neurons)
    logits, loss = run(model, rows, prefix)
    loss.backward()
    for hook in hooks:
        hook.remove()
    return {"golden.neurons": neurons.detach(), "golden.neuron_gradient": neurons.grad, "golden.neuron_logits": logits.detach()}


def golden(name, model, seed, P=P, arch=None, keys=None):
    generator = torch.Generator().manual_seed(seed)
    model.eval()
    randomise(model, generator)
    for value in model.parameters():
        value.requires_grad_(False)
    c = model.config
    if c.model_type != "gemma4_text":
        heads = getattr(c, "num_key_value_heads", None) or c.num_attention_heads
        dim = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
        prefix = torch.randn(len(attention_layers(c)), 2, heads, P, dim, generator=generator)
    else:
        own = [c.per_layer_config[l] for l in range(c.num_hidden_layers - c.num_kv_shared_layers)]
        prefix = [torch.randn(2, l.num_key_value_heads, P, l.head_dim, generator=generator) for l in own]

    rows, at_all, start = [], [], 0
    for n in LENGTHS:
        ids = torch.randint(0, c.vocab_size, (n,), generator=generator)
        at = torch.arange(n - 1 - n // 3, n - 1)  # the last third carries labels
        rows.append((ids, at))
        at_all.append(at + start)
        start += n

    with torch.no_grad():
        bare_logits, bare_loss = run(model, rows)
        _, start0_loss = run(model, rows, prefix, start=0)
    logits, loss, grad = gradient(model, rows, prefix)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        _, auto_loss, auto_grad = gradient(model, rows, prefix)
    auto_error = ((auto_grad - grad).norm() / grad.norm()).item()

    tensors = saved_tensors(model) | {
        "golden.ids": torch.cat([ids for ids, _ in rows]).to(torch.int32),
        "golden.lengths": torch.tensor(LENGTHS, dtype=torch.int32),
        "golden.label_at": torch.cat(at_all).to(torch.int32),
        "golden.label_id": torch.cat([ids[at + 1] for ids, at in rows]).to(torch.int32),
        "golden.prefix": joined(prefix), "golden.gradient": grad,
        "golden.bare_logits": bare_logits, "golden.logits": logits,
        "golden.losses": torch.tensor([bare_loss, loss, start0_loss]),
        "golden.autocast_error": torch.tensor([auto_error]),
    }
    if name in NEURAL | HYBRID:
        tensors |= with_neurons(model, rows, prefix, generator)
    folder = os.path.join(HERE, "model_" + name)
    os.makedirs(folder, exist_ok=True)
    if keys is not None:
        family(name, model, arch, keys, tensors, rows, prefix, logits)
    if name in HYBRID:  # layers without attention have heads of no number
        tensors |= {key: tensors[key].flatten() for key in ("golden.prefix", "golden.gradient", "golden.kv")}
    path = os.path.join(folder, "model.safetensors")
    save_file(tensors, path, metadata={"format": "pt", "seed": str(seed), "torch": torch.__version__,
                                       "transformers": transformers.__version__})
    os.chmod(path, 0o644)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(json.loads(c.to_json_string(use_diff=False)), file, indent=2, sort_keys=True)
        file.write("\n")
    print(f"{name}: {os.path.getsize(path)} bytes, losses {bare_loss:.6f} {loss:.6f} {start0_loss:.6f}, "
          f"autocast loss {auto_loss:.4f} gradient error {auto_error:.2e}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for seed, (name, model) in enumerate(MODELS.items(), start=20):
        if not sys.argv[1:] or name in sys.argv[1:]:
            golden(name, model, seed)
    for seed, (name, (model, arch, keys)) in enumerate(FAMILIES.items(), start=40):
        if not sys.argv[1:] or name in sys.argv[1:]:
            golden(name, model, seed, P_FAMILIES, arch, keys)
    for seed, (name, (model, arch, keys)) in [*enumerate(NEURAL.items(), start=60), *enumerate(HYBRID.items(), start=93)]:
        if not sys.argv[1:] or name in sys.argv[1:]:
            golden(name, model, seed, P_NEURAL, arch, keys)
