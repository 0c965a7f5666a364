"""A LoRA of PEFT, rank 8 on all linear layers, in PyTorch: the rival in keeping.py, few_rows.py and reasoning.py.

AdamW without weight decay, batches of 8, a tenth of the steps warms the rate up and it falls linearly to 0; matrix products in bf16. On a language model
the trained LoRA is saved, and kvfold measures it (--lora). On an encoder it is trained with the task head, whose rate is 0.01, and scored here.
Needs torch, transformers, peft, and seqeval for tags.
"""
import os
import random

BATCH = 8
RANK = {"r": 8, "lora_alpha": 16}
BERT_LINEAR = ["query", "key", "value", "dense"]  # all but the classifier
HEAD_RATE = 0.01


def batches(rows, steps, seed):
    """Yields `steps` batches, each pass over the rows in a new order."""
    rng, left = random.Random(seed), []
    for _ in range(steps):
        if len(left) < min(BATCH, len(rows)):
            left = rng.sample(rows, len(rows))
        yield left[:BATCH]
        left = left[BATCH:]


def padded(lists, filler):
    import torch
    longest = max(map(len, lists))
    return torch.tensor([ids + [filler] * (longest - len(ids)) for ids in lists])


def steps_of(model, batched, steps, rate, inputs_of):
    """Trains, and yields the number of each finished step."""
    import torch
    groups = {rate: [], HEAD_RATE: []}
    for name, p in model.named_parameters():
        if p.requires_grad:
            groups[HEAD_RATE if "classifier" in name else rate].append(p)
    optimizer = torch.optim.AdamW([{"params": params, "lr": lr} for lr, params in groups.items()], weight_decay=0)
    warm = max(1, steps // 10)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / warm) * (1 - step / steps))
    for step, rows in enumerate(batched):
        model.train()
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(**inputs_of(rows)).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        yield step + 1


def start(seed, threads):
    import torch
    torch.manual_seed(seed)
    torch.set_num_threads(threads)


def train_lm(base, rows, rate, steps, out, seed=0, threads=1):
    """Trains on (prompt, completion) behind a GGUF base, and saves the LoRA in the folder `out`."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer
    start(seed, threads)
    place, name = os.path.split(os.path.abspath(base))
    tokenizer = AutoTokenizer.from_pretrained(place, gguf_file=name)
    model = AutoModelForCausalLM.from_pretrained(place, gguf_file=name, dtype="float32")
    model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", target_modules="all-linear", **RANK))

    def ids_of(text):
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    def inputs_of(rows):
        parts = [(ids_of(prompt), ids_of(text) + [tokenizer.eos_token_id]) for prompt, text in rows]
        return {"input_ids": padded([prompt + text for prompt, text in parts], 0),
                "attention_mask": padded([[1] * len(prompt + text) for prompt, text in parts], 0),
                "labels": padded([[-100] * len(prompt) + text for prompt, text in parts], -100)}

    for _ in steps_of(model, batches(rows, steps, seed), steps, rate, inputs_of):
        pass
    model.save_pretrained(out)


def train_encoder(base, rows, valid, rate, steps, every, seed=0, threads=1):
    """Returns the best score on `valid`, measured every `every` steps: accuracy of (text or pair of texts, class), entity F1 of (words, tags)."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification, AutoTokenizer
    start(seed, threads)
    tags = isinstance(rows[0][1], list)
    names = sorted({name for _, gold in rows + valid for name in (gold if tags else [gold])})
    kind = AutoModelForTokenClassification if tags else AutoModelForSequenceClassification
    valid = sorted(valid, key=lambda row: len(str(row[0])))  # batches of like length
    tokenizer = AutoTokenizer.from_pretrained(base)
    model = kind.from_pretrained(base, num_labels=len(names), hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = get_peft_model(model, LoraConfig(task_type="TOKEN_CLS" if tags else "SEQ_CLS", target_modules=BERT_LINEAR, **RANK))

    def inputs_of(rows):
        texts = [text for text, _ in rows]
        pairs = {"text_pair": [text[1] for text in texts]} if isinstance(texts[0], tuple) else {}
        texts = [text[0] for text in texts] if pairs else texts
        inputs = tokenizer(texts, **pairs, is_split_into_words=tags, padding=True, truncation=True, max_length=256, return_tensors="pt")
        labels = torch.tensor([names.index(gold) for _, gold in rows]) if not tags else torch.full_like(inputs["input_ids"], -100)
        for row, (_, gold) in enumerate(rows if tags else []):
            words = inputs.word_ids(row)
            for at, word in enumerate(words):
                if word is not None and word != words[at - 1]:
                    labels[row, at] = names.index(gold[word])
        return {**inputs, "labels": labels}

    def score():
        model.eval()
        golds, found = [], []
        for at in range(0, len(valid), 32):
            inputs = inputs_of(valid[at:at + 32])
            labels = inputs.pop("labels")
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
                answers = model(**inputs).logits.argmax(-1)
            for gold, answer in zip(labels, answers):
                golds.append([names[i] for i in gold[gold >= 0]] if tags else int(gold))
                found.append([names[i] for i in answer[gold >= 0]] if tags else int(answer))
        if tags:
            from seqeval.metrics import f1_score
            return f1_score(golds, found)
        return sum(map(int.__eq__, golds, found)) / len(golds)

    return max(score() for step in steps_of(model, batches(rows, steps, seed), steps, rate, inputs_of) if step % every == 0)
