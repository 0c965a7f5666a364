"""A PREFIX_TUNING adapter of PEFT on model_t5, and what transformers and PEFT compute with it: what tests/pass/test_pass_source.c compares with.

t5_peft/ holds adapter_config.json and adapter_model.safetensors as PEFT writes them, with random values, and want.safetensors: the
logits of the rows of model_t5 (golden.ids, golden.source_ids, ...) and the gradient of their mean loss in the values of the adapter.
In T5's decoder the relative bias counts the tokens of a cache, and PEFT's prefix is one. Computed in f32, row by row.

Run: python make_t5_peft_golden.py   (torch 2.13, transformers 5.23, peft 0.21.2)
"""
import json
import os

import torch
from peft import PrefixTuningConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import T5Config, T5ForConditionalGeneration

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "t5_peft")
P = 5

stored = load_file(os.path.join(HERE, "model_t5", "model.safetensors"))
config = T5Config.from_pretrained(os.path.join(HERE, "model_t5"))
model = T5ForConditionalGeneration(config)
missing, unexpected = model.load_state_dict({k: v.float() for k, v in stored.items() if not k.startswith("golden.")}, strict=False)
assert not unexpected and all(k.endswith("embed_tokens.weight") or k == "lm_head.weight" for k in missing)
model.tie_weights()
model.eval()
golden = {k[len("golden."):]: v for k, v in stored.items() if k.startswith("golden.")}
torch.manual_seed(3)
peft = get_peft_model(model, PrefixTuningConfig(
    task_type="SEQ_2_SEQ_LM", num_virtual_tokens=P, num_layers=config.num_decoder_layers, token_dim=config.num_heads * config.d_kv,
    num_attention_heads=config.num_heads))
values = peft.prompt_encoder["default"].embedding.weight
values.data.normal_()
peft.eval()

def split(values, lengths):
    return torch.split(values.long(), golden[lengths].tolist())


rows = list(zip(split(golden["source_ids"], "source_lengths"), split(golden["ids"], "lengths")))
logits = lambda run: torch.cat([run(input_ids=source[None], decoder_input_ids=ids[None]).logits[0] for source, ids in rows])
with torch.no_grad():
    assert (logits(model) - golden["bare_logits"]).abs().max() < 1e-4
out = logits(peft)
loss = torch.nn.functional.cross_entropy(out[golden["label_at"].long()], golden["label_id"].long())
loss.backward()
peft.save_pretrained(OUT)
path = os.path.join(OUT, "adapter_config.json")
with open(path) as file:
    adapter = json.load(file)
adapter["base_model_name_or_path"] = "model_t5"
with open(path, "w") as file:
    json.dump(adapter, file, indent=2, sort_keys=True)
os.remove(os.path.join(OUT, "README.md"))
save_file({"logits": out.detach().contiguous(), "gradient": values.grad.contiguous()}, os.path.join(OUT, "want.safetensors"))
print(loss.item(), [(k, tuple(v.shape)) for k, v in golden.items()])
