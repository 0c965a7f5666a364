"""Task heads of transformers on tiny random models: what tests/pass/test_head_task_golden.c compares with.

Writes heads.safetensors. Per case (architecture.task): the final hidden states of the positions that the head reads and
where those are, targets, the head's parameters under their names, logits, mean loss, and the gradients of that loss
with respect to parameters and hidden states, all in f32 and evaluation mode. qa_context cases read only some positions
of rows of different lengths; their loss is torch's own over those, as transformers has no such mask. mean-... cases have
ModernBERT's classifier_pooling "mean": every token of a row is read, and logits are of rows.

Run: python make_head_golden.py   (torch 2.13, transformers 5.23; the versions used are stored in the file)
"""
import os

import torch
import torch.nn.functional as F
import transformers as tf
from safetensors.torch import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
LENGTHS = [6, 3, 7, 4]
BERT = dict(vocab_size=40, hidden_size=12, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
            max_position_embeddings=24, pad_token_id=0)
LLAMA = dict(vocab_size=40, hidden_size=12, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
             num_key_value_heads=1, max_position_embeddings=24, pad_token_id=0)
CONFIGS = {
    "bert": ("Bert", lambda n: tf.BertConfig(**BERT, num_labels=n)),
    "roberta": ("Roberta", lambda n: tf.RobertaConfig(**BERT, num_labels=n)),
    "gpt2": ("GPT2", lambda n: tf.GPT2Config(vocab_size=40, n_embd=12, n_layer=1, n_head=2, n_positions=24, pad_token_id=0,
                                             bos_token_id=0, eos_token_id=0, num_labels=n)),
    "llama": ("Llama", lambda n: tf.LlamaConfig(**LLAMA, num_labels=n)),
    "mistral": ("Mistral", lambda n: tf.MistralConfig(**LLAMA, num_labels=n)),
    "qwen2": ("Qwen2", lambda n: tf.Qwen2Config(**LLAMA, num_labels=n)),
    "qwen3": ("Qwen3", lambda n: tf.Qwen3Config(**LLAMA, head_dim=6, num_labels=n)),
    "electra": ("Electra", lambda n: tf.ElectraConfig(**BERT, embedding_size=8, num_labels=n)),
    "distilbert": ("DistilBert", lambda n: tf.DistilBertConfig(vocab_size=40, dim=12, hidden_dim=16, n_layers=1, n_heads=2,
                                                               max_position_embeddings=24, num_labels=n)),
    "deberta-v2": ("DebertaV2", lambda n: tf.DebertaV2Config(
        **BERT, num_labels=n, relative_attention=True, position_biased_input=False, share_att_key=True,
        pos_att_type=["p2c", "c2p"], norm_rel_ebd="layer_norm", position_buckets=8)),
    "modernbert": ("ModernBert", lambda n: tf.ModernBertConfig(**BERT, num_labels=n)),
    "nomic_bert": ("NomicBert", lambda n: tf.NomicBertConfig(**BERT, num_labels=n)),
}
DECODERS = {
    "gpt_neox": ("GPTNeoX", lambda n: tf.GPTNeoXConfig(vocab_size=40, hidden_size=12, intermediate_size=16, num_hidden_layers=1,
                                                       num_attention_heads=2, max_position_embeddings=24, pad_token_id=0, num_labels=n)),
    "gemma2": ("Gemma2", lambda n: tf.Gemma2Config(**LLAMA, head_dim=6, num_labels=n)),
    "gemma3_text": ("Gemma3Text", lambda n: tf.Gemma3TextConfig(**LLAMA, head_dim=6, num_labels=n)),
    "phi3": ("Phi3", lambda n: tf.Phi3Config(**LLAMA, bos_token_id=1, eos_token_id=2, num_labels=n)),
    "olmo2": ("Olmo2", lambda n: tf.Olmo2Config(**LLAMA, num_labels=n)),
}
ENCODERS = ("bert", "roberta", "electra", "distilbert", "deberta-v2", "modernbert", "nomic_bert")
CLASSES = {"seq-cls": "ForSequenceClassification", "regression": "ForSequenceClassification",
           "token-cls": "ForTokenClassification", "qa": "ForQuestionAnswering", "qa_context": "ForQuestionAnswering",
           "multiple-choice": "ForMultipleChoice"}
HEADS = ("classifier.", "score.", "qa_outputs.", "bert.pooler.", "roberta.pooler.", "nomic_bert.pooler.", "sequence_summary.", "pre_classifier.", "pooler.", "head.")


def case(arch, task, generator, mean=False):
    stem, make = {**CONFIGS, **DECODERS}[arch]
    labels = {"regression": 1, "seq-cls": 3, "token-cls": 5}.get(task, 2)
    config = make(labels)
    if mean:
        config.classifier_pooling = "mean"
    model = getattr(tf, stem + CLASSES[task])(config).eval()
    for value in model.parameters():
        value.data.copy_(torch.randn(value.shape, generator=generator) * (0.4 if value.dim() > 1 else 0.2))
    seen = {}
    model.base_model.register_forward_hook(lambda m, a, out: (out.last_hidden_state.retain_grad(), seen.update(out=out))[0])

    causal = arch not in ENCODERS
    lengths = [5] * 4 if task == "qa" else LENGTHS
    rows, width = len(lengths), max(lengths)
    ids = torch.randint(1, 40, (rows, width), generator=generator)
    mask = (torch.arange(width)[None] < torch.tensor(lengths)[:, None]).long()
    ids = ids * mask
    args, at, values, spans = dict(input_ids=ids, attention_mask=mask), [], None, None
    target = None
    if task in ("seq-cls", "regression", "multiple-choice"):
        at = [(r, p) for r in range(rows) for p in (range(lengths[r]) if mean else [lengths[r] - 1 if causal else 0])]
    if task == "seq-cls":
        target = torch.randint(0, labels, (rows,), generator=generator)
        args["labels"] = target
    elif task == "regression":
        values = torch.randn(rows, generator=generator)
        args["labels"] = values
    elif task == "multiple-choice":  # two questions of two choices
        args = {k: v.reshape(2, 2, width) for k, v in args.items()}
        args["labels"] = torch.tensor([1, 0])
        target = torch.tensor([0, 1, 1, 0])
    elif task == "token-cls":
        full = torch.full((rows, width), -100)
        for r in range(rows):
            for p in range(0, lengths[r], 2):
                full[r, p] = int(torch.randint(0, labels, (1,), generator=generator))
                at.append((r, p))
        target = torch.tensor([full[r, p] for r, p in at])
        args["labels"] = full
    elif task == "qa":
        at = [(r, p) for r in range(rows) for p in range(width)]
        spans = torch.tensor([[1, 3], [0, 0], [2, 2], [4, 4]])
        args.update(start_positions=spans[:, 0], end_positions=spans[:, 1])
    else:  # the first token stands for no answer, then the context
        at = [(r, p) for r in range(rows) for p in [0] + list(range(2, lengths[r]))]
        spans = torch.tensor([[2, 4], [0, 0], [6, 6], [3, 3]])
    out = model(**args)
    hidden = seen["out"].last_hidden_state
    if task.startswith("qa"):
        logits = torch.stack([torch.stack([out.start_logits[r, p], out.end_logits[r, p]]) for r, p in at])
        if task == "qa_context":
            loss = 0
            for r in range(rows):
                own = [j for j in range(len(at)) if at[j][0] == r]
                for side in range(2):
                    right = own.index(at.index((r, int(spans[r, side]))))
                    loss = loss + F.cross_entropy(logits[own, side][None], torch.tensor([right])) / 2 / rows
        else:
            loss = out.loss
    else:
        logits = torch.stack([out.logits[r, p] for r, p in at]) if task == "token-cls" else out.logits.reshape(rows, -1)
        loss = out.loss
    loss.backward()
    used = torch.zeros_like(hidden)
    for r, p in at:
        used[r, p] = 1
    assert (hidden.grad * (1 - used)).abs().max() == 0, (arch, task)

    start = [sum(lengths[:r]) for r in range(rows + 1)]
    name = f"{arch}.{'mean-' if mean else ''}{task}."
    if mean and target is not None:
        target = torch.tensor([target[r] for r, _ in at])
    tensors = {
        "start": torch.tensor(start), "at": torch.tensor([start[r] + p for r, p in at], dtype=torch.int32),
        "id": (torch.zeros(len(at)) if target is None else target).to(torch.int32),
        "hidden": torch.stack([hidden[r, p] for r, p in at]), "dhidden": torch.stack([hidden.grad[r, p] for r, p in at]),
        "logits": logits, "loss": loss.reshape(1),
    }
    if values is not None:
        tensors["values"] = values
    if spans is not None:
        tensors["spans"] = spans.to(torch.int32)
    for key, value in model.named_parameters():
        if key.startswith(HEADS):
            tensors["param." + key] = value
            tensors["grad." + key] = value.grad
    return {name + key: value.detach().clone().contiguous() for key, value in tensors.items()}


def main():
    generator = torch.Generator().manual_seed(20)
    tensors = {}
    for arch in CONFIGS:
        for task in CLASSES:
            small = arch in ("mistral", "qwen2", "qwen3")  # the same classes: one case of each task
            if arch == "nomic_bert" and task in ("qa", "qa_context", "multiple-choice"):
                continue
            if (task == "multiple-choice" and arch not in ENCODERS) or (small and task in ("regression", "qa")):
                continue
            tensors.update(case(arch, task, generator))
    for task in ("seq-cls", "regression", "multiple-choice"):
        tensors.update(case("modernbert", task, generator, mean=True))
    generator = torch.Generator().manual_seed(21)
    for arch, (stem, _) in DECODERS.items():
        for task in ("seq-cls", "token-cls", "qa"):
            if hasattr(tf, stem + CLASSES[task]):
                tensors.update(case(arch, task, generator))
    path = os.path.join(HERE, "heads.safetensors")
    save_file(tensors, path, {"torch": torch.__version__, "transformers": tf.__version__, "seed": "20"})
    print(os.path.getsize(path), len(tensors))


if __name__ == "__main__":
    main()
