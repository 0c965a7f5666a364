"""Folders as transformers 5 saves them, whose names differ from those of state_dict(): Nomic's are its first ones, and save_model keeps
one of the names of a tied embedding. Run in this folder; prints the losses that tests/cli/stored_heads.sh has.

    python make_saved_golden.py     # torch 2.13, transformers 5.24
"""
import json
import os

import torch
import transformers as tf
from safetensors.torch import save_model

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "saved")
WORDS = {word: i for i, word in enumerate(["u", "[CLS]", "[SEP]", "a", "b", "c", "d", "e", "f"])}
SPECIAL = {name: {"id": name, "ids": [WORDS[name]], "tokens": [name]} for name in ("[CLS]", "[SEP]")}
ITEMS = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}}]
TOKENIZER = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
             "pre_tokenizer": {"type": "WhitespaceSplit"}, "decoder": None,
             "post_processor": {"type": "TemplateProcessing", "single": ITEMS, "pair": ITEMS, "special_tokens": SPECIAL},
             "model": {"type": "WordPiece", "unk_token": "u", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": WORDS}}
SMALL = dict(vocab_size=9, hidden_size=8, intermediate_size=12, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=16,
             pad_token_id=0, bos_token_id=1, eos_token_id=2)
IDS = torch.tensor([[1, 3, 4, 5, 2]])  # "a b c"


def save(name, model, shared):
    folder = os.path.join(HERE, name)
    for value in model.parameters():
        if value.dim() == 2:
            torch.nn.init.normal_(value, std=0.4)
    model.eval().save_pretrained(folder)
    if shared:
        save_model(model, os.path.join(folder, "model.safetensors"), {"format": "pt"})
    with open(os.path.join(folder, "tokenizer.json"), "w") as out:
        json.dump(TOKENIZER, out)


if __name__ == "__main__":
    torch.manual_seed(7)
    nomic = tf.NomicBertForSequenceClassification(tf.NomicBertConfig(**SMALL))
    save("nomic", nomic, False)
    roberta = tf.RobertaForMaskedLM(tf.RobertaConfig(**SMALL, type_vocab_size=1))
    save("roberta", roberta, True)
    t5 = tf.T5ForConditionalGeneration(tf.T5Config(vocab_size=9, d_model=8, d_kv=4, d_ff=12, num_layers=1, num_heads=2, pad_token_id=0,
                                                   eos_token_id=2, decoder_start_token_id=0))
    save("t5", t5, True)
    with torch.no_grad():
        print("nomic", sum(nomic(IDS, labels=torch.tensor([label])).loss.item() for label in (0, 1)) / 2)
        print("t5", t5(IDS, labels=torch.tensor([[1, 6, 7, 2]])).loss.item())
        logits = roberta(IDS).logits[0]
        print("roberta", logits[0].tolist())
