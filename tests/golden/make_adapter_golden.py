"""Bottleneck adapters on tiny models, by PyTorch: what tests/pass/test_adapter_golden.c compares with.

Puts a hand-written module on the models that make_model_golden.py and make_encoder_golden.py wrote, by forward hooks: on the
output layer of both sub-layers, reading their output (serial, attn) or what the sub-layer's products read (parallel). Values
are a formula of their index, so that they need not be stored: kvfold's order is layer by layer, attn before ffn, in each
down.weight, down.bias, up.weight, up.bias; value i is 0.4 sin(0.37 i + 1) / sqrt(columns), of a bias 0.2 sin(0.37 i + 1). In the
case `zero` up and both biases are 0, as training starts.

Writes adapters_<model>.safetensors: per case loss [1] (of causal models summed cross-entropy, of bert sum(hidden * weights)),
grad [all adapters' values] and norm.<name of transformers>, the gradients of all norms.

Run: python make_adapter_golden.py   (torch 2.13, transformers 5.23; the versions used are stored in the files)
"""
import math
import os

import torch
import transformers as tf
from safetensors.torch import load_file, save_file

HERE = os.path.dirname(os.path.abspath(__file__))
SIZE = 3
CASES = {"zero": ("serial", "gelu"), "serial": ("serial", "gelu"), "parallel": ("parallel", "tanh"), "attn": ("attn", "relu")}
ACTS = {"gelu": torch.nn.functional.gelu, "relu": torch.relu, "tanh": torch.tanh}
# of a layer: name of the layers, then per half where its input can be seen (its norm's output, or "" for the layer's own
# input) and its output layer
MODELS = {
    "llama_tied": (tf.LlamaForCausalLM, "model.layers", ("input_layernorm", "self_attn.o_proj"),
                   ("post_attention_layernorm", "mlp.down_proj")),
    "gpt2": (tf.GPT2LMHeadModel, "transformer.h", ("ln_1", "attn.c_proj"), ("ln_2", "mlp.c_proj")),
    "bert": (tf.BertModel, "encoder.layer", ("", "attention.output.dense"), ("attention.output.LayerNorm", "output.dense")),
}


class Adapter:
    def __init__(self, width, at, act, zero):
        def values(rows, columns):
            nonlocal at
            n = rows * max(columns, 1)
            scale = 0.4 / math.sqrt(columns) if columns else 0.2
            value = (torch.sin(0.37 * torch.arange(at, at + n, dtype=torch.float64) + 1) * scale).float()
            at += n
            return value.reshape((rows, columns) if columns else (rows,))
        self.params = [values(SIZE, width), values(SIZE, 0), values(width, SIZE), values(width, 0)]
        for value in self.params[1:] if zero else []:
            value.zero_()
        for value in self.params:
            value.requires_grad_(True)
        self.act, self.end = ACTS[act], at

    def __call__(self, x):
        down, down_bias, up, up_bias = self.params
        return self.act(x @ down.T + down_bias) @ up.T + up_bias


def attach(model, spec, place, act, zero):
    adapters, hooks, at = [], [], 0
    width = model.config.hidden_size
    for layer in model.get_submodule(spec[1]):
        for source, out in spec[2:3] if place == "attn" else spec[2:]:
            adapter = Adapter(width, at, act, zero)
            at = adapter.end
            adapters.append(adapter)
            seen = {}
            if source:
                hooks.append(layer.get_submodule(source).register_forward_hook(
                    lambda m, a, y, seen=seen: seen.update(x=y)))
            else:
                hooks.append(layer.register_forward_pre_hook(lambda m, a, seen=seen: seen.update(x=a[0])))
            hooks.append(layer.get_submodule(out).register_forward_hook(
                lambda m, a, y, f=adapter, seen=seen: y + f(seen["x"] if place == "parallel" else y)))
    return adapters, hooks


def loss_of(model, golden):
    loss, start, done = 0.0, 0, 0
    for n in golden["golden.lengths"].tolist():
        ids = golden["golden.ids"][start:start + n].long()[None]
        label_at = golden["golden.label_at"].long()
        at = label_at[(label_at >= start) & (label_at < start + n)] - start
        if "golden.weights" in golden:
            out = model(input_ids=ids, token_type_ids=golden["golden.types"][start:start + n].long()[None])
            loss = loss + (out.last_hidden_state[0][at] * golden["golden.weights"][done:done + len(at)]).sum()
        else:
            loss = loss + torch.nn.functional.cross_entropy(model(input_ids=ids).logits[0][at], ids[0][at + 1],
                                                            reduction="sum")
        start, done = start + n, done + len(at)
    return loss


def golden(name, spec):
    folder = os.path.join(HERE, "model_" + name)
    stored = load_file(os.path.join(folder, "model.safetensors"))
    model = spec[0](tf.AutoConfig.from_pretrained(folder)).eval()
    state = {k: v.float() for k, v in stored.items() if not k.startswith("golden.") and "position_ids" not in k}
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and all("lm_head" in k for k in missing), (missing, unexpected)
    model.tie_weights()
    norms = {k: v for k, v in model.named_parameters() if "norm" in k.lower() or "ln_" in k}
    for value in model.parameters():
        value.requires_grad_(False)
    out = {}
    for case, (place, act) in CASES.items():
        adapters, hooks = attach(model, spec, place, act, case == "zero")
        for value in norms.values():
            value.requires_grad_(True)
            value.grad = None
        loss = loss_of(model, stored)
        loss.backward()
        out[case + ".loss"] = loss.detach().reshape(1)
        out[case + ".grad"] = torch.cat([p.grad.flatten() for a in adapters for p in a.params])
        for key, value in norms.items():
            out[f"{case}.norm.{key}"] = value.grad
        print(name, case, loss.item(), out[case + ".grad"].norm().item())
        for hook in hooks:
            hook.remove()
    path = os.path.join(HERE, f"adapters_{name}.safetensors")
    save_file(out, path, metadata={"torch": torch.__version__, "transformers": tf.__version__})
    os.chmod(path, 0o644)
    print(os.path.getsize(path), "bytes")


torch.set_num_threads(1)
for name, spec in MODELS.items():
    golden(name, spec)
