"""Generation of kvfold against transformers (float32 and bfloat16, the prefix as past_key_values) and, where it is installed,
llama-cpp-python (no prefix): greedy, one row and sixteen, and the prompt of 512 tokens. Rounds are interleaved; figures are tokens
a second, ratios are medians of the rounds' ratios. All rounds of a log count, so that runs can be short and many:

    generate_race.py --model SmolLM2.gguf --prefix p.h5 --kvfold build/kvfold [--text FILE] [--rounds 7] [--log FILE]"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

NEW, ROWS, SHORT, LONG = 48, 16, 16, 512
CASES = ("1 row", f"{ROWS} rows", f"prompt of {LONG}")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--kvfold", required=True)
    parser.add_argument("--text", default=__file__, help="where prompts are cut from; default: this script")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--log", help="JSON lines, added to")
    return parser.parse_args()


class Kvfold:
    def __init__(self, args, precision, prompts):
        self.name, self.args, self.precision = f"kvfold {precision}", args, precision
        self.folder = tempfile.TemporaryDirectory()
        self.files = {}
        for case, texts in prompts.items():
            path = os.path.join(self.folder.name, f"{len(self.files)}.jsonl")
            # Long prompts one after the other: what a first one costs on top (code made, memory touched) counts a quarter.
            with open(path, "w", encoding="utf-8") as file:
                for text in texts * (4 if case == CASES[2] else 1):
                    file.write(json.dumps({"prompt": text, "completion": ""}) + "\n")
            self.files[case] = path

    def run(self, case):
        new = 1 if case == CASES[2] else NEW
        out = subprocess.run([self.args.kvfold, "generate", "--base", self.args.model, "--prefix", self.args.prefix, "--data",
                              self.files[case], "--max-tokens", str(new), "--precision", self.precision, "--threads",
                              str(self.args.threads), "--batch-size", "1" if new == 1 else str(ROWS), "--chat-template", "none",
                              "--quiet", "--json"],
                             check=True, capture_output=True)
        stats = json.loads(out.stdout)
        if new == 1:
            return stats["prompt_tokens"] / stats["prefill_seconds"]
        rows = ROWS if case == CASES[1] else 1  # a row's first token belongs to the prompt
        return (stats["new_tokens"] - rows) / stats["decode_seconds"]


class Transformers:
    def __init__(self, args, dtype, ids):
        import torch
        from transformers import AutoModelForCausalLM
        self.torch, self.name, self.ids = torch, f"transformers {dtype}", ids
        folder, file = os.path.split(os.path.abspath(args.model))
        # Read in f32 and converted: asked for anything else, transformers 5 keeps the blocks packed, which is far slower.
        self.model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32).to(getattr(torch, dtype))
        self.model.eval()
        import h5py
        with h5py.File(args.prefix) as h5:
            self.prefix = torch.from_numpy(h5["prefix/past_key_values"][:]).to(self.model.dtype)  # [L, 2, 1, G, P, D]

    def cache(self, rows):
        from transformers import DynamicCache
        cache = DynamicCache()
        for layer, kv in enumerate(self.prefix):
            cache.update(kv[0].expand(rows, -1, -1, -1), kv[1].expand(rows, -1, -1, -1), layer)
        return cache

    def run(self, case):
        torch, ids = self.torch, self.torch.tensor(self.ids[case])
        cache = self.cache(len(ids))
        with torch.inference_mode():
            start = time.perf_counter()
            out = self.model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
            if case == CASES[2]:
                return ids.numel() / (time.perf_counter() - start)
            start = time.perf_counter()
            for _ in range(NEW - 1):
                out = self.model(out.logits[:, -1:].argmax(-1), past_key_values=cache, use_cache=True)
        return len(ids) * (NEW - 1) / (time.perf_counter() - start)


class LlamaCpp:
    name = "llama.cpp"

    def __init__(self, args, ids):
        from llama_cpp import Llama
        self.ids = ids
        self.model = Llama(args.model, n_ctx=LONG + NEW, n_batch=LONG, n_threads=args.threads, n_threads_batch=args.threads,
                           verbose=False)

    def run(self, case):
        if case == CASES[1]:
            return None
        self.model.reset()
        ids = self.ids[case][0]
        start = time.perf_counter()
        self.model.eval(ids)
        if case == CASES[2]:
            return len(ids) / (time.perf_counter() - start)
        start = time.perf_counter()
        for _ in range(NEW - 1):
            self.model.eval([self.model.sample(temp=0.0)])
        return (NEW - 1) / (time.perf_counter() - start)


def prompts_of(args):
    """Ids and texts by case. The texts are decoded ids, which encode to about as many tokens again."""
    from transformers import AutoTokenizer
    folder, file = os.path.split(os.path.abspath(args.model))
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file)
    with open(args.text, encoding="utf-8") as file:
        ids = tokenizer(file.read(), add_special_tokens=False)["input_ids"]
    if len(ids) < LONG:
        raise SystemExit(f"{args.text}: {len(ids)} tokens, want {LONG}")
    step = (len(ids) - SHORT) // ROWS
    cut = {CASES[0]: [ids[:SHORT]], CASES[1]: [ids[i * step:i * step + SHORT] for i in range(ROWS)], CASES[2]: [ids[:LONG]]}
    return cut, {case: [tokenizer.decode(row) for row in rows] for case, rows in cut.items()}


def report(rows):
    """Medians of rates, and of the ratios of kvfold's better precision to each other."""
    names = list(dict.fromkeys(name for row in rows for name in row["rates"]))
    for case in CASES:
        print(case)
        for name in names:
            rates = [row["rates"][name] for row in rows if row["case"] == case and row["rates"].get(name)]
            if not rates:
                continue
            ours = [max(v for k, v in row["rates"].items() if k.startswith("kvfold")) / row["rates"][name]
                    for row in rows if row["case"] == case and row["rates"].get(name)]
            against = "" if name.startswith("kvfold") else f"   kvfold {statistics.median(ours):6.2f} x"
            print(f"  {name:24} {statistics.median(rates):9.1f} tokens/s over {len(rates)} rounds{against}")


def main():
    args = arguments()
    import torch
    import transformers
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(args.threads)
    ids, texts = prompts_of(args)
    racers = [Kvfold(args, "bf16", texts), Kvfold(args, "f32", texts), Transformers(args, "float32", ids),
              Transformers(args, "bfloat16", ids)]
    try:
        racers.append(LlamaCpp(args, ids))
    except ImportError:
        print("llama-cpp-python is not installed: not raced", file=sys.stderr)
    rows = []
    if args.log and os.path.exists(args.log):
        with open(args.log, encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
    for _ in range(args.rounds):
        for case in CASES:
            rows.append({"case": case, "rates": {racer.name: racer.run(case) for racer in racers}})
            if args.log:
                with open(args.log, "a", encoding="utf-8") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
    report(rows)


main()
