"""One training step of PEFT's prefix tuning at a time: the work of `kvfold bench` as a PyTorch user would do it.

Random weights in the shape of a known model, PrefixTuningConfig(prefix_projection=True), rows of random ids whose last share is
labelled, AdamW over the encoder's parameters, gradient norm clipped to 1. Rows of different lengths are padded to the longest
of their step. For each line of standard input one step runs, and one line of JSON says what it took; race.py writes them.

The shapes of train_step.py have its rows: encoders tag every token, T5 has PEFT's form, prefixes in the decoder's self-attention.
transformers' DeBERTa takes no cache, so PEFT cannot put a prefix before it: there PEFT's PrefixEncoder and the model's attention, patched
to put keys and values in front, stand in for it.

Modes: f32 (PEFT's default), autocast (torch.autocast to bf16 over an f32 model), bf16 (a base in bf16).
Needs torch, transformers, peft.
"""
import argparse
import contextlib
import json
import os
import resource
import sys
import time

os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
from peft import PrefixEncoder, PrefixTuningConfig, get_peft_model
from transformers import (AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoModelForTokenClassification, GPT2Config, LlamaConfig)
from transformers.models.deberta_v2.modeling_deberta_v2 import DisentangledSelfAttention

from train_step import SHAPES as TRAINED, TAGS

SHAPES = {
    "gpt2": GPT2Config(),
    "smollm2-135m": LlamaConfig(vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
                                num_attention_heads=9, num_key_value_heads=3, max_position_embeddings=8192, rms_norm_eps=1e-5,
                                tie_word_embeddings=True, rope_parameters={"rope_type": "default", "rope_theta": 1e5}),
    "tiny": LlamaConfig(vocab_size=1009, hidden_size=64, intermediate_size=160, num_hidden_layers=3, num_attention_heads=4,
                        num_key_value_heads=2, max_position_embeddings=512, tie_word_embeddings=True),
} | {name: AutoConfig.for_model(**config, num_labels=TAGS) for name, config in TRAINED.items()}
KINDS = {"bert": (AutoModelForTokenClassification, "TOKEN_CLS"), "deberta-v2": (AutoModelForTokenClassification, None),
         "t5": (AutoModelForSeq2SeqLM, "SEQ_2_SEQ_LM")}
DROPOUTS = ("attn_pdrop", "resid_pdrop", "embd_pdrop", "attention_dropout", "hidden_dropout_prob", "attention_probs_dropout_prob", "dropout_rate")


def disentangled(module, hidden_states, mask, *args, relative_pos=None, rel_embeddings=None, **kwargs):
    """DisentangledSelfAttention.forward with module.prefix, keys and values [H, P, D], in front, which have no relative terms."""
    heads = module.num_attention_heads
    query, key, value = (module.transpose_for_scores(p(hidden_states), heads)
                         for p in (module.query_proj, module.key_proj, module.value_proj))
    scale = (query.shape[-1] * 3) ** -0.5
    scores = torch.bmm(query, key.transpose(-1, -2) * scale) + module.disentangled_attention_bias(query, key, relative_pos, rel_embeddings, 3)
    query, scores, value = (x.view(-1, heads, *x.shape[1:]) for x in (query, scores, value))
    scores = scores.masked_fill(~mask.bool(), torch.finfo(scores.dtype).min)
    pk, pv = (p.to(query.dtype).expand(len(query), -1, -1, -1) for p in module.prefix)
    scores, value = torch.cat([query @ pk.transpose(-1, -2) * scale, scores], -1), torch.cat([pv, value], 2)
    return (torch.softmax(scores, -1) @ value).transpose(1, 2).flatten(2), None


class Prefixed(torch.nn.Module):
    """A frozen DeBERTa and its trained head behind PEFT's prefix encoder."""

    def __init__(self, model, config):
        super().__init__()
        c = self.config = model.config
        self.model = model
        model.deberta.requires_grad_(False)
        config.num_layers, config.token_dim, config.num_attention_heads, config.num_transformer_submodules = (
            c.num_hidden_layers, c.hidden_size, c.num_attention_heads, 1)
        self.encoder = PrefixEncoder(config)
        DisentangledSelfAttention.forward = disentangled

    def forward(self, **batch):
        c = self.config
        flat = self.encoder(torch.arange(self.encoder.embedding.num_embeddings))
        parts = flat.view(len(flat), c.num_hidden_layers, 2, c.num_attention_heads, -1).permute(1, 2, 3, 0, 4)
        for layer, prefix in zip(self.model.deberta.encoder.layer, parts):
            layer.attention.self.prefix = prefix
        return self.model(**batch)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=list(SHAPES), default="gpt2")
    parser.add_argument("--mode", choices=["f32", "autocast", "bf16"], default="f32")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--lengths", help="file of row lengths, as kvfold bench --lengths")
    parser.add_argument("--label-fraction", type=float, default=0.25)
    parser.add_argument("--prefix-length", type=int, default=20)
    parser.add_argument("--encoder-hidden", type=int, default=512)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def make_model(args):
    """Base, prefix encoder and optimizer. The encoder stays f32 in all modes, as PEFT keeps it."""
    kind, task = KINDS.get(SHAPES[args.shape].model_type, (AutoModelForCausalLM, "CAUSAL_LM"))
    for name in DROPOUTS:  # kvfold runs the frozen base without dropout
        if hasattr(SHAPES[args.shape], name):
            setattr(SHAPES[args.shape], name, 0.0)
    model = kind.from_config(SHAPES[args.shape], dtype=torch.bfloat16 if args.mode == "bf16" else torch.float32)
    model.train()
    config = PrefixTuningConfig(task_type=task, num_virtual_tokens=args.prefix_length, prefix_projection=True,
                                encoder_hidden_size=args.encoder_hidden)
    model = get_peft_model(model, config) if task else Prefixed(model, config)
    parameters = [p for p in model.parameters() if p.requires_grad]
    return model, parameters, torch.optim.AdamW(parameters, lr=1e-3)


def labels_of(length, share):
    return min(max(round(share * length), 1), length - 1)


def make_batch(lengths, vocabulary, share):
    """Rows padded on the right; ids, mask, labels; tokens and labels that are real."""
    longest = max(lengths)
    ids = torch.randint(0, vocabulary, (len(lengths), longest))
    mask = torch.zeros_like(ids)
    labels = torch.full_like(ids, -100)
    for row, length in enumerate(lengths):
        mask[row, :length] = 1
        first = length - labels_of(length, share)
        labels[row, first:length] = ids[row, first:length]
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}, sum(lengths), int((labels >= 0).sum())


def make_trained(args):
    """train_step.py's rows, all of one length."""
    c = SHAPES[args.shape]
    ids = torch.randint(2, c.vocab_size, (args.batch, args.length))
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if c.model_type == "t5":
        batch["labels"] = torch.randint(2, c.vocab_size, (args.batch, args.length // 4))
    else:
        batch["labels"] = torch.randint(0, TAGS, ids.shape)
    return batch, ids.numel() + (batch["labels"].numel() if c.model_type == "t5" else 0), batch["labels"].numel()


def make_batches(args):
    if args.shape in TRAINED:
        return [make_trained(args)]
    lengths = [args.length] * args.batch
    if args.lengths:
        with open(args.lengths) as file:
            lengths = [int(word) for word in file.read().replace(",", " ").split()]
    vocabulary = SHAPES[args.shape].vocab_size
    return [make_batch(lengths[at:at + args.batch], vocabulary, args.label_fraction) for at in range(0, len(lengths), args.batch)]


def step(model, parameters, optimizer, batch, mode):
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cpu", torch.bfloat16) if mode == "autocast" else contextlib.nullcontext():
        loss = model(**batch).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()
    return loss.item()


def main():
    args = parse()
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    model, parameters, optimizer = make_model(args)
    batches = make_batches(args)
    done = 0
    for _ in sys.stdin:
        batch, tokens, labels = batches[done % len(batches)]
        begin, cpu = time.perf_counter(), time.process_time()
        loss = step(model, parameters, optimizer, batch, args.mode)
        seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
        done += 1
        print(json.dumps({"seconds": seconds, "cpu_seconds": cpu, "tokens": tokens, "label_tokens": labels, "tokens_per_second": tokens / seconds,
                          "loss": loss, "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}), flush=True)


if __name__ == "__main__":
    main()
