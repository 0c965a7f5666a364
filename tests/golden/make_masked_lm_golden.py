"""Masked-language-model heads of transformers on tiny random models: what tests/pass/test_head_words.c compares with.

Writes masked_lm_<name>.safetensors: the model's weights under their names, and under
"case." the final hidden states of [MASK], the words that stand for the classes, their logits, targets, and the mean
cross-entropy over those words with its gradient with respect to the hidden states, all in f32 and evaluation mode.
The heads of BERT, DistilBERT, Nomic BERT and DeBERTa take the config's activation, RoBERTa's, ELECTRA's and ModernBERT's are gelu whatever the
config has: all configs name another.

Run: python make_masked_lm_golden.py   (torch 2.13, transformers 5.23; the versions used are stored in the files)
"""
import os

import torch
import torch.nn.functional as F
import transformers as tf
from safetensors.torch import save_file
from saved_tensors import saved_tensors

HERE = os.path.dirname(os.path.abspath(__file__))
SHAPE = dict(vocab_size=40, hidden_size=12, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
             max_position_embeddings=24, pad_token_id=0)
WORDS = [7, 31, 12]


def write(name, model):
    generator = torch.Generator().manual_seed(5)
    model.eval()
    for key, value in model.named_parameters():
        value.data.copy_(torch.randn(value.shape, generator=generator) * (0.4 if value.dim() > 1 else 0.2))
        if key.endswith(("LayerNorm.weight", "norm.weight")):
            value.data += 1
    seen = {}
    model.base_model.register_forward_hook(lambda m, a, out: (out.last_hidden_state.retain_grad(), seen.update(out=out))[0])
    ids = torch.randint(1, 40, (5, 6), generator=generator)
    at, target = torch.tensor([1, 4, 2, 5, 3]), torch.tensor([0, 2, 1, 1, 0])
    rows = torch.arange(5)
    logits = model(input_ids=ids).logits[rows, at][:, WORDS]
    loss = F.cross_entropy(logits, target)
    loss.backward()
    hidden = seen["out"].last_hidden_state
    tensors = saved_tensors(model, torch.float32)
    tensors |= {"case.hidden": hidden[rows, at], "case.dhidden": hidden.grad[rows, at], "case.logits": logits,
                "case.loss": loss.reshape(1), "case.id": target.to(torch.int32),
                "case.words": torch.tensor(WORDS, dtype=torch.int32)}
    save_file({k: v.detach().contiguous() for k, v in tensors.items()},
              os.path.join(HERE, f"masked_lm_{name}.safetensors"),
              {"torch": torch.__version__, "transformers": tf.__version__})


write("bert", tf.BertForMaskedLM(tf.BertConfig(**SHAPE, hidden_act="gelu_new", layer_norm_eps=1e-12)))
write("roberta", tf.RobertaForMaskedLM(tf.RobertaConfig(**SHAPE, hidden_act="relu", layer_norm_eps=1e-5)))
write("electra", tf.ElectraForMaskedLM(tf.ElectraConfig(**SHAPE, embedding_size=8, hidden_act="relu")))
write("distilbert", tf.DistilBertForMaskedLM(tf.DistilBertConfig(
    vocab_size=40, dim=12, hidden_dim=16, n_layers=1, n_heads=2, max_position_embeddings=24, activation="relu")))
write("modernbert", tf.ModernBertForMaskedLM(tf.ModernBertConfig(**SHAPE, hidden_activation="relu")))
write("nomic", tf.NomicBertForMaskedLM(tf.NomicBertConfig(**SHAPE, hidden_act="relu")))
write("deberta", tf.DebertaV2ForMaskedLM(tf.DebertaV2Config(
    **SHAPE, hidden_act="relu", relative_attention=True, position_biased_input=False, share_att_key=True, pos_att_type=["p2c", "c2p"],
    norm_rel_ebd="layer_norm", position_buckets=8, legacy=False)))
