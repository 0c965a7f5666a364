"""Prefixes as other programs save them: what python/kvfold/from_pickle.py converts and tests compare with.

Writes foreign_prefixes/<case>: checkpoints of P-tuning v2, PrefixTuning (Li & Liang) and cartridges made of modules with the names and
the arithmetic of those programs, and an adapter of PEFT's kind CARTRIDGE saved by PEFT itself; and foreign_prefixes/want.safetensors:
<case>.prefix [L, 2, G, P, D], what torch emits, and <case>.out, logits (causal) or final hidden states (encoders) under it at
the labelled positions of the model of make_model_golden.py or make_encoder_golden.py that it is for.
make_adapterhub_golden.py adds its own: it needs another release of transformers.
foreign_prefixes/peft/<case> is made by `python -m kvfold.from_pickle foreign_prefixes/<case> foreign_prefixes/peft/<case>`.

Run: python make_foreign_golden.py   (torch 2.13, transformers 5.23, PEFT 0.21.2; stored in the file)
"""
import json
import os
import shutil

import peft
import torch
import transformers
from make_model_golden import HERE, prefix_cache
from peft import CartridgeConfig, get_peft_model
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

P = 5
OUT = os.path.join(HERE, "foreign_prefixes")
want = {}


def base(name):
    folder = os.path.join(HERE, "model_" + name)
    stored = load_file(os.path.join(folder, "model.safetensors"))
    with open(os.path.join(folder, "config.json")) as file:
        config = AutoConfig.for_model(**json.load(file))
    kind = AutoModel if config.model_type in ("bert", "roberta") else AutoModelForCausalLM
    model = kind.from_config(config).eval()
    strip = config.model_type + "."
    weights = {k.removeprefix(strip) if kind is AutoModel else k: v.float() for k, v in stored.items()
               if not k.startswith("golden.")}
    model.load_state_dict(weights, strict=False)
    return model, stored


def rows(stored):
    start = 0
    for n in stored["golden.lengths"].tolist():
        at = stored["golden.label_at"].long()
        at = at[(at >= start) & (at < start + n)] - start
        types = stored.get("golden.types")
        yield (stored["golden.ids"][start:start + n].long(),
               None if types is None else types[start:start + n].long(), at)
        start += n


@torch.no_grad()
def outputs(name, prefix):
    """Under prefix [L, 2, G, P, D], rows from position P on."""
    model, stored = base(name)
    out = []
    for ids, types, at in rows(stored):
        if "golden.hidden" in stored:
            types = torch.zeros_like(ids) if types is None else types
            mask = torch.ones(1, P + len(ids), dtype=torch.long)
            out.append(model(input_ids=ids[None], token_type_ids=types[None], attention_mask=mask,
                             past_key_values=prefix_cache(model, prefix)).last_hidden_state[0][at])
        else:
            out.append(model(input_ids=ids[None], past_key_values=prefix_cache(model, prefix)).logits[0][at])
    return torch.cat(out).contiguous()


def pairs(flat, L, H, D):
    """The view, permute and split that all of them do, for a batch of one; then the batch is dropped."""
    past = flat.view(1, -1, 2 * L, H, D).permute(2, 0, 3, 1, 4).split(2)
    return torch.stack(past)[:, :, 0].contiguous()


def keep(case, name, prefix):
    want[case + ".prefix"] = prefix.detach().clone().contiguous()
    want[case + ".out"] = outputs(name, prefix.detach())


def save(case, tensors, config=None):
    tensors = {k: v.detach().clone().contiguous() for k, v in tensors.items()}
    if config is None:
        save_file(tensors, os.path.join(OUT, case + ".safetensors"), metadata={"format": "pt"})
        return
    os.makedirs(os.path.join(OUT, case), exist_ok=True)
    save_file(tensors, os.path.join(OUT, case, "model.safetensors"), metadata={"format": "pt"})
    with open(os.path.join(OUT, case, "config.json"), "w") as file:
        json.dump(config, file, indent=2)


class PrefixEncoder(nn.Module):
    """P-tuning v2: names embedding and trans."""

    def __init__(self, C, L, hidden=None):
        super().__init__()
        self.embedding = nn.Embedding(P, C if hidden else 2 * L * C)
        if hidden:
            self.trans = nn.Sequential(nn.Linear(C, hidden), nn.Tanh(), nn.Linear(hidden, 2 * L * C))

    def forward(self):
        rows = self.embedding(torch.arange(P)[None])
        return self.trans(rows) if hasattr(self, "trans") else rows


def ptuning_v2():
    encoder = PrefixEncoder(32, 3)
    head = nn.Linear(32, 3)
    save("pt2_flat", {"prefix_encoder." + k: v for k, v in encoder.state_dict().items()} |
         {"classifier." + k: v for k, v in head.state_dict().items()} |
         {"bert.embeddings.LayerNorm.weight": torch.ones(32)},
         {"architectures": ["BertPrefixForTokenClassification"], "model_type": "bert", "pre_seq_len": P,
          "prefix_projection": False, "id2label": {"0": "O", "1": "B-X", "2": "I-X"}})
    keep("pt2_flat", "bert", pairs(encoder(), 3, 4, 8))
    want["pt2_flat.head"] = head.weight.detach().clone()

    encoder = PrefixEncoder(32, 3, hidden=7)
    head, pooler = nn.Linear(32, 2), nn.Linear(32, 32)
    save("pt2_mlp", {"prefix_encoder." + k: v for k, v in encoder.state_dict().items()} |
         {"classifier." + k: v for k, v in head.state_dict().items()} |
         {"roberta.pooler.dense." + k: v for k, v in pooler.state_dict().items()},
         {"architectures": ["RobertaPrefixForSequenceClassification"], "model_type": "roberta", "pre_seq_len": P,
          "prefix_projection": True, "prefix_hidden_size": 7, "id2label": {"0": "no", "1": "yes"}})
    keep("pt2_mlp", "roberta", pairs(encoder(), 3, 4, 8))
    want["pt2_mlp.head"] = pooler.weight.detach().clone()


def prefix_tuning():
    C, L = 32, 2
    for case, hidden in ("li_liang", 1), ("li_deep", 2):
        wte = nn.Embedding(P, C)
        layers = [nn.Linear(C, 9), nn.Tanh()]
        if hidden == 2:
            layers += [nn.Linear(9, 9), nn.Tanh()]
        control = nn.Sequential(*layers, nn.Linear(9, 2 * L * C))
        save(case, {"wte.weight": wte.weight} | {"control_trans." + k: v for k, v in control.state_dict().items()})
        keep(case, "gpt2", pairs(control(wte(torch.arange(P)[None])), L, 2, 16))
    flat = torch.randn(P * L * 2 * C)
    save("li_flat", {"control_trans": flat})
    keep("li_flat", "gpt2", pairs(flat, L, 2, 16))
    cache = torch.randn(2 * L, 1, 2, P, 16)  # the shallow form from words: a cache as it lies
    save("li_cache", {"control_trans": cache})
    keep("li_cache", "gpt2", torch.stack(cache.split(2))[:, :, 0])


@torch.no_grad()
def cartridges():
    model, _ = base("llama_tied")
    cache = model(input_ids=torch.tensor([[3, 14, 15, 9, 26]]), use_cache=True).past_key_values
    prefix = torch.stack([torch.stack([layer.keys[0], layer.values[0]]) for layer in cache.layers])
    prefix = prefix + 0.01 * torch.randn(prefix.shape)
    for case, fixed in ("cartridge", 2), ("cartridge_all", 0):
        tensors = {}
        for layer in range(3):
            for half, word in enumerate(("keys", "values")):
                value = prefix[layer, half][None]
                if fixed:
                    tensors[f"fixed_{word}.{layer}"] = value[:, :, :fixed]
                tensors[f"trainable_{word}.{layer}"] = value[:, :, fixed:]
        save(case, tensors)
        keep(case, "llama_tied", prefix)


def peft_cartridge():
    model, _ = base("llama_tied")
    wrapped = get_peft_model(model, CartridgeConfig(task_type="CAUSAL_LM", num_virtual_tokens=P, num_frozen_tokens=2))
    folder = os.path.join(OUT, "peft_cartridge")
    wrapped.save_pretrained(folder)
    os.remove(os.path.join(folder, "README.md"))
    flat = wrapped.prompt_encoder["default"].weight.detach()
    keep("peft_cartridge", "llama_tied", pairs(flat, 3, 2, 16))


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(8)
    shutil.rmtree(OUT, ignore_errors=True)
    os.makedirs(OUT)
    ptuning_v2()
    prefix_tuning()
    cartridges()
    peft_cartridge()
    save_file(want, os.path.join(OUT, "want.safetensors"),
              metadata={"torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__})
    for folder, _, files in os.walk(OUT):
        for name in files:
            os.chmod(os.path.join(folder, name), 0o644)
            print(name, os.path.getsize(os.path.join(folder, name)))
