"""Virtual tokens at the input, in kvfold and in PEFT: runs of `prompt` and `p-tuning` exported as PROMPT_TUNING adapters, what PEFT
saves imported, and both sides' losses on the same rows; the prefix that a run folds to beside them. Random models; no other
file is needed (--model is not read)."""
import os

import torch
from peft import PeftModel, PromptEncoderConfig, PromptTuningConfig, get_peft_model
from transformers import AutoModelForCausalLM

import peer

P = 6


def peft_loss(model, rows):
    """Mean over the labels that kvfold counts: the first token of a row is not predicted."""
    total, n = 0.0, 0
    for ids, labels in rows:
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids])).logits[0, -len(ids):]
        at = [i for i in range(1, len(ids)) if labels[i] != -100]
        total += torch.nn.functional.cross_entropy(logits[[i - 1 for i in at]], torch.tensor([labels[i] for i in at]),
                                                   reduction="sum").item()
        n += len(at)
    return total / n


def kvfold_loss(args, base, prefix, data):
    return peer.kvfold(args, "eval", "--base", base, "--prefix", prefix, "--data", data, "--precision", "f32")["loss"]


def exported(args, base, model, rows, data, name, options):
    run, folded, folder = (os.path.join(args.work, f"{name}{end}") for end in (".h5", "_prefix.h5", "_peft"))
    peer.kvfold(args, "train", "--base", base, "--data", data, "--out", run, "--force", "--steps", 4, "--prefix-length", P,
                "--precision", "f32", *options)
    loss = kvfold_loss(args, base, run, data)
    peer.kvfold(args, "merge", run, "--out", folded, "--base", base, "--force")
    peer.report(f"{name}: loss of the folded prefix", abs(kvfold_loss(args, base, folded, data) - loss), 1e-4)
    peer.kvfold(args, "export", run, "--format", "peft", "--out", folder, "--force")
    tuned = PeftModel.from_pretrained(model, folder)
    peer.report(f"{name}: loss in PeftModel", abs(peft_loss(tuned, rows) - loss), 1e-4)


def imported(args, base, model, rows, data, name, config):
    folder, file = (os.path.join(args.work, f"{name}{end}") for end in ("_saved", ".h5"))
    torch.manual_seed(5)
    tuned = get_peft_model(model, config).eval()
    tuned.save_pretrained(folder)
    peer.kvfold(args, "import", folder, "--base", base, "--out", file, "--force")
    peer.report(f"{name}: loss of PEFT's", abs(peft_loss(tuned, rows) - kvfold_loss(args, base, file, data)), 1e-4)


def main():
    args = peer.parse(__doc__)
    for name in ("gpt2-4x256", "llama-untied-f32", "qwen3"):
        base, model = peer.random_model(name, args.work)
        fresh = lambda: AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()
        rows = peer.random_rows(model.config.vocab_size, [9, 17, 5, 12])
        data = peer.write_rows(os.path.join(args.work, f"{name}_prompt.jsonl"), rows)
        exported(args, base, fresh(), rows, data, f"{name} prompt", ["--method", "prompt"])
        for form in ("lstm", "mlp"):
            exported(args, base, fresh(), rows, data, f"{name} p-tuning {form}",
                     ["--method", "p-tuning", "--p-encoder", form, "--encoder-hidden", 32])
        imported(args, base, fresh(), rows, data, f"{name} PROMPT_TUNING",
                 PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=P))
        imported(args, base, fresh(), rows, data, f"{name} P_TUNING",
                 PromptEncoderConfig(task_type="CAUSAL_LM", num_virtual_tokens=P, encoder_hidden_size=32))
    peer.finish()


main()
