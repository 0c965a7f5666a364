"""A folder of BART as transformers writes it, tiny and trained for a moment, and what transformers and PEFT say of it: what
tests/cli/bart.sh compares with.

bart/ holds config, generation config (forced_bos_token_id), weights in f16 and a byte-level BPE tokenizer whose post-processor puts
<s> and </s> around a text. bart/peft is a PREFIX_TUNING adapter of PEFT for SEQ_2_SEQ_LM, trained for some steps so that it matters.
prompts.jsonl has rows with completions; <bare|peft>_<greedy|beams>.txt what `generate` answers to them, a text a line, and losses.txt
the mean loss of the completions without and with the adapter: sources and labels are tokenizer(text), the decoder reads the labels
shifted right.

Run: python make_bart_golden.py   (torch 2.13, transformers 5.23, peft 0.21.2)
"""
import json
import os
import shutil

import torch
from peft import PeftModel, PrefixTuningConfig, get_peft_model
from tokenizers import Tokenizer, models, pre_tokenizers, decoders, processors, trainers
from transformers import BartConfig, BartForConditionalGeneration, GenerationConfig, PreTrainedTokenizerFast

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bart")
P, NEW, BEAMS = 6, 12, 3
PROMPTS = ["a cold wind over the hill", "the old man and the sea", "rain", "two birds in one tree, and no cat", "how far is it?", "nine"]
COMPLETIONS = ["wind, cold wind", "a man at sea", "it rains again", "birds and no cat", "how far it is", "9 of 19"]

def loss(model, targets):
    total, n = 0, 0
    for prompt, completion in zip(PROMPTS, targets):
        labels = torch.tensor([fast(completion)["input_ids"]])
        out = model(input_ids=torch.tensor([fast(prompt)["input_ids"]]), labels=labels)
        total, n = total + out.loss * labels.numel(), n + labels.numel()
    return total / n


def train(model, steps, lr, targets):
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=lr)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(model, targets).backward()
        optimizer.step()


torch.manual_seed(5)
torch.set_num_threads(1)
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
letters = [c for c, _ in pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str("abcdefghijklmnopqrstuvwxyz 0123456789,.?")]
tokenizer.train_from_iterator(PROMPTS + COMPLETIONS, trainers.BpeTrainer(
    vocab_size=96, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"], initial_alphabet=sorted(set("".join(letters)))))
tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True, add_prefix_space=False)
fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="<pad>",
                               cls_token="<s>", sep_token="</s>", mask_token="<mask>")
config = BartConfig(vocab_size=tokenizer.get_vocab_size(), d_model=24, encoder_layers=2, decoder_layers=3, encoder_attention_heads=3,
                    decoder_attention_heads=3, encoder_ffn_dim=40, decoder_ffn_dim=40, max_position_embeddings=64, init_std=0.1,
                    forced_eos_token_id=None)
model = BartForConditionalGeneration(config)
for name, value in model.named_parameters():
    value.data.copy_(value + 0.1 * torch.randn_like(value))
model.final_logits_bias.copy_((0.5 * torch.randn_like(model.final_logits_bias)).half().float())
ids = dict(bos_token_id=0, pad_token_id=1, eos_token_id=2, decoder_start_token_id=2, forced_bos_token_id=0)
model.generation_config = GenerationConfig(**ids)
model.eval()
train(model, 80, 5e-3, COMPLETIONS)
for value in model.parameters():
    value.data.copy_(value.half().float())

shutil.rmtree(HERE, ignore_errors=True)
model.half().save_pretrained(HERE)
model.float()
fast.save_pretrained(HERE)


def answers(model, beams):
    lines = []
    for prompt in PROMPTS:
        out = model.generate(**{k: v for k, v in fast(prompt, return_tensors="pt").items() if k != "token_type_ids"},
                             max_new_tokens=NEW, num_beams=beams, do_sample=False)
        assert out[0, 1] == 0 and out.shape[1] <= NEW + 1
        lines.append(fast.decode(out[0], skip_special_tokens=True, clean_up_tokenization_spaces=False))
    return lines


def write(name, lines):
    with open(os.path.join(HERE, name), "w") as file:
        file.writelines(line + "\n" for line in lines)


write("prompts.jsonl", [json.dumps({"prompt": p, "completion": c}) for p, c in zip(PROMPTS, COMPLETIONS)])
losses = []
with torch.no_grad():
    losses.append(loss(model, COMPLETIONS).item())
    write("bare_greedy.txt", answers(model, 1))
    write("bare_beams.txt", answers(model, BEAMS))
peft = get_peft_model(model, PrefixTuningConfig(task_type="SEQ_2_SEQ_LM", num_virtual_tokens=P, num_layers=config.decoder_layers))
peft.eval()
train(peft, 25, 0.05, PROMPTS)
with torch.no_grad():
    losses.append(loss(peft, COMPLETIONS).item())
    write("peft_greedy.txt", answers(peft, 1))
    write("peft_beams.txt", answers(peft, BEAMS))
peft.save_pretrained(os.path.join(HERE, "peft"))
path = os.path.join(HERE, "peft", "adapter_config.json")
with open(path) as file:
    adapter = json.load(file)
adapter["base_model_name_or_path"] = "bart"
with open(path, "w") as file:
    json.dump(adapter, file, indent=2, sort_keys=True)
os.remove(os.path.join(HERE, "peft", "README.md"))
write("losses.txt", [f"{x:.6f}" for x in losses])
print(losses)
for kind in "bare_greedy", "bare_beams", "peft_greedy", "peft_beams":
    print(kind, open(os.path.join(HERE, kind + ".txt")).read().splitlines())
