"""What the comparisons with engines share: a GGUF in f32 and as it is, a prefix exported for the engine, ten prompts.

An engine is an object with
  name                         of kvfold export --engine
  ask(model, folder, prompts)  [(ids, text)] of NEW greedy tokens each; with the exported prefix, or without (None)
  bare(model, prompts)         [(ids of the prompt, {id: log-probability of the next token})]

Answers must be those of `kvfold generate` word for word. Where one is not, what the engine chose is held to be a near-tie if
kvfold's logit of it is nearer to that of its own choice than the two programs' log-probabilities are on the bare base."""
import json
import os

import numpy as np
from gguf import GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import dequantize
from safetensors.numpy import load_file

import program
from program import parse  # noqa: F401, of the scripts too

NEW = 24
LIKELIEST = 50
PROMPTS = ["Internet, noun:", "Meeting, noun:", "Software, noun:", "Marriage, noun:", "Honest, adjective:", "The capital of France is",
           "Once upon a time", "Water boils at", "List three colours:\n1.", "She opened the door and"]


def f32_model(args):
    """The same model as a GGUF of f32 tensors."""
    path = os.path.abspath(os.path.join(args.work, os.path.basename(args.model) + "-f32.gguf"))
    if os.path.exists(path):
        return path
    reader = GGUFReader(args.model)
    writer = GGUFWriter(path + ".part", reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.file_type"):
            continue
        kind = field.types[0]
        writer.add_key_value(field.name, field.contents(), kind, field.types[-1] if kind == GGUFValueType.ARRAY else None)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, np.ascontiguousarray(dequantize(tensor.data, tensor.tensor_type), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.rename(path + ".part", path)
    return path


def models(args):
    """(name, path, bound or None: reported)"""
    return [("f32", f32_model(args), 0), ("as it is", os.path.abspath(args.model), None)]


def export(args, model, engine, *more):
    """The folder for an engine; more: further options."""
    folder = os.path.abspath(os.path.join(args.work, "-".join([engine, os.path.basename(model), *more]).replace("--", "")))
    program.run(os.path.join(args.build, "kvfold"), "export", args.prefix, "--format", "llamacpp", "--base", model, "--engine", engine,
                "--out", folder, "--force", *more)
    return folder


def placeholders(folder):
    with open(os.path.join(folder, "placeholders.json"), encoding="utf-8") as file:
        return json.load(file)["ids"]


# ---- kvfold ---------------------------------------------------------------------------------------------------

def prefix_of(args, model, folder):
    """Of the state itself, on this model."""
    path = os.path.join(args.work, "imported.h5")
    program.kvfold(args, "import", os.path.join(folder, "prefix.state"), "--base", model, "--out", path, "--force")
    return path


def generate(args, model, rows, prefix):
    data = os.path.join(args.work, "prompts.jsonl")
    with open(data, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    more = ["--prefix", args.prefix, "--allow-other-base"] if prefix else []
    return program.kvfold(args, "generate", "--base", model, "--data", data, "--max-tokens", NEW, "--precision", "f32", "--threads",
                          args.threads, *more)["texts"]


def logits_after(args, model, prefix, rows):
    """kvfold's [n, V] for the last n of each row's ids; rows: (ids, n)."""
    data, out = os.path.join(args.work, "rows.jsonl"), os.path.join(args.work, "rows.safetensors")
    with open(data, "w", encoding="utf-8") as file:
        for ids, n in rows:
            file.write(json.dumps({"input_ids": ids, "labels": [-100] * (len(ids) - n) + ids[len(ids) - n:]}) + "\n")
    more = ["--prefix", prefix] if prefix else []
    program.run(os.path.join(args.build, "tests/dump_pass"), "--base", model, "--data", data, "--out", out, "--threads", args.threads, *more)
    return np.split(load_file(out)["logits"], np.cumsum([n for _, n in rows])[:-1])


def log_probabilities(logits):
    high = logits.max()
    return logits - high - np.log(np.exp(logits - high).sum())


# ---- comparing ------------------------------------------------------------------------------------------------

def bare_difference(args, model, found):
    """The largest difference of log-probabilities among the likeliest tokens after each prompt."""
    worst = 0.0
    for logits, (_, theirs) in zip(logits_after(args, model, None, [(ids + [0], 1) for ids, _ in found]), found):
        ours = log_probabilities(logits[0].astype(np.float64))
        worst = max([worst] + [abs(theirs[int(t)] - ours[t]) for t in np.argsort(ours)[-LIKELIEST:] if int(t) in theirs])
    return worst


def gaps_where_they_part(args, model, prefix, rows):
    """Of each row (ids of the prompt, ids of the engine): number of the token, kvfold's logit of its own choice less that of the engine's."""
    eos = int(GGUFReader(model).fields["tokenizer.ggml.eos_token_id"].contents())
    rows = [(prompt, ids + [eos] * (len(ids) < NEW)) for prompt, ids in rows]
    gaps = []
    for logits, (_, ids) in zip(logits_after(args, model, prefix, [(prompt + ids, len(ids)) for prompt, ids in rows]), rows):
        gaps.append(next(((i, float(row.max() - row[t])) for i, (row, t) in enumerate(zip(logits, ids)) if row.argmax() != t), (len(ids), 0.0)))
    return gaps


def compare(args, what, model, prefix, prompt_ids, answers, ours, largest, bound):
    """answers: [(ids, text)] of the engine, ours: texts. bound None: nothing fails."""
    differ = [i for i, (answer, want) in enumerate(zip(answers, ours)) if answer[1] != want]
    ties = 0
    rows = [(prompt_ids[i], answers[i][0]) for i in differ]
    for i, (at, gap) in zip(differ, gaps_where_they_part(args, model, prefix, rows) if rows else []):
        ties += gap < largest
        print(f"    number {i}: token {at}, gap {gap:.1e}\n      engine {answers[i][1]!r}\n      kvfold {ours[i]!r}")
    print(f"    {what}: {len(ours) - len(differ)} of {len(ours)} equal, {ties} near-ties (bare log-probabilities differ by up to {largest:.1e})")
    program.report(f"{what}: answers that differ without a near-tie", len(differ) - ties, len(ours) if bound is None else bound)


def compare_engine(args, engine, more=()):
    """Bare and with the prefix, on both models; returns {model name: largest difference}."""
    largest = {}
    for name, model, bound in models(args):
        found = engine.bare(model, PROMPTS)
        prompt_ids = [ids for ids, _ in found]
        largest[name] = bare_difference(args, model, found)
        rows = [{"prompt": prompt, "completion": ""} for prompt in PROMPTS]
        folder = export(args, model, engine.name, *more)
        for title, where, prefix in (("bare", None, None), ("with the prefix", folder, prefix_of(args, model, folder))):
            compare(args, f"{engine.name}, {name}, {title}", model, prefix, prompt_ids, engine.ask(model, where, PROMPTS),
                    generate(args, model, rows, prefix), largest[name], bound)
    return largest
