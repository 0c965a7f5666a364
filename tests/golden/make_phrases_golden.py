"""Classes of several tokens, scored by the heads of transformers: what tests/pass/test_head_words.c compares with.

Reads the models of masked_lm_*.safetensors and model_llama_tied, and writes phrases.safetensors.
Per model: hidden states of 6 labelled positions, of 2 rows of data with 2 classes of 1 and 2 tokens each, the log-probability of
each token, the mean cross-entropy over the softmax of the classes' sums, and its gradient with respect to the hidden states and
to the matrix of embeddings (here that of the head alone), all in f32.

Run: python make_phrases_golden.py   (torch 2.13, transformers 5.23; the versions used are stored in the file)
"""
import os

import torch
import torch.nn.functional as F
import transformers as tf
from safetensors.torch import load_file, save_file

HERE = os.path.dirname(os.path.abspath(__file__))
SHAPE = dict(vocab_size=40, hidden_size=12, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
             max_position_embeddings=24, pad_token_id=0)
LABELS = [7, 31, 12, 7, 31, 12]  # rows: class 0, class 1, class 0, class 1
ROWS = [[0], [1, 2], [3], [4, 5]]
RIGHT = [1, 0]


def case(name, head, matrix, width):
    hidden = torch.randn(6, width, generator=torch.Generator().manual_seed(9)).requires_grad_()
    logp = F.log_softmax(head(hidden), -1)[torch.arange(6), LABELS]
    scores = torch.stack([logp[row].sum() for row in ROWS]).reshape(2, 2)
    loss = F.cross_entropy(scores, torch.tensor(RIGHT))
    loss.backward()
    return {f"{name}.hidden": hidden, f"{name}.dhidden": hidden.grad, f"{name}.logp": logp, f"{name}.loss": loss.reshape(1),
            f"{name}.dmatrix": matrix.grad}


HEADS = {
    "bert": lambda m: m.cls,
    "roberta": lambda m: m.lm_head,
    "electra": lambda m: lambda x: m.generator_lm_head(m.generator_predictions(x)),
    "distilbert": lambda m: lambda x: m.vocab_projector(m.vocab_layer_norm(m.activation(m.vocab_transform(x)))),
    "nomic": lambda m: m.cls,
    "modernbert": lambda m: lambda x: m.decoder(m.head(x)),
}


def masked(name, model):
    weights = {k: v for k, v in load_file(os.path.join(HERE, f"masked_lm_{name}.safetensors")).items() if not k.startswith("case.")}
    model.load_state_dict(weights, strict=False)
    model.tie_weights()
    return case(name, HEADS[name](model), model.get_input_embeddings().weight, 12)


tensors = masked("bert", tf.BertForMaskedLM(tf.BertConfig(**SHAPE, hidden_act="gelu_new", layer_norm_eps=1e-12)).eval())
tensors |= masked("roberta", tf.RobertaForMaskedLM(tf.RobertaConfig(**SHAPE, hidden_act="relu", layer_norm_eps=1e-5)).eval())
tensors |= masked("electra", tf.ElectraForMaskedLM(tf.ElectraConfig(**SHAPE, embedding_size=8, hidden_act="relu")).eval())
tensors |= masked("distilbert", tf.DistilBertForMaskedLM(tf.DistilBertConfig(
    vocab_size=40, dim=12, hidden_dim=16, n_layers=1, n_heads=2, max_position_embeddings=24, activation="relu")).eval())
tensors |= masked("modernbert", tf.ModernBertForMaskedLM(tf.ModernBertConfig(**SHAPE, hidden_activation="relu")).eval())
tensors |= masked("nomic", tf.NomicBertForMaskedLM(tf.NomicBertConfig(**SHAPE, hidden_act="relu")).eval())
llama = tf.AutoModelForCausalLM.from_pretrained(os.path.join(HERE, "model_llama_tied"), dtype=torch.float32)
tensors |= case("llama", llama.lm_head, llama.lm_head.weight, llama.config.hidden_size)
tensors |= {"labels": torch.tensor(LABELS, dtype=torch.int32)}
save_file({k: v.detach().contiguous() for k, v in tensors.items()}, os.path.join(HERE, "phrases.safetensors"),
          {"torch": torch.__version__, "transformers": tf.__version__})
