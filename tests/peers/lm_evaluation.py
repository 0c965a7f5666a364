"""EleutherAI's lm-evaluation-harness (PyPI lm-eval) on `kvfold serve`, against its own `hf` model with the same prefix in a cache.

The tasks of lm_tasks/ (multiple_choice, loglikelihood_rolling, generate_until) with the prefix: as ids, as texts, and with the
tokenizer that the server answers; as ids on the bare base. Per row: log-likelihoods, whether they are those of greedy tokens, the
choice unless the best two are a tie, the text. Run from the top of the tree, where the paths in the yaml files begin."""
import os

os.environ["HF_HUB_OFFLINE"] = "1"

import h5py
import lm_eval
import torch
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from transformers import AutoTokenizer

import peer
import program
import served

CHOICE, ROLLING, GENERATE = "kvfold_choice", "kvfold_rolling", "kvfold_generate"
BOUND = 2e-3
LENGTH = 64  # of a window: the last of the texts needs two


class PrefixLM(HFLM):
    """The harness's model of transformers, with keys and values [L, 2, 1, G, P, D] before every row, or none."""

    def __init__(self, model, tokenizer, kv=None, start=0):
        super().__init__(pretrained=model, tokenizer=tokenizer, batch_size=1, backend="causal", max_length=LENGTH)
        self.kv, self.start = kv, start

    def behind(self, inps):
        """What puts rows of ids behind the prefix."""
        rows, n = inps.shape
        if self.kv is None:
            return {}
        return {"past_key_values": peer.cache_of(self.kv, rows), "attention_mask": torch.ones(rows, self.kv.shape[4] + n),
                "position_ids": torch.arange(self.start, self.start + n)[None].expand(rows, -1)}

    def _model_call(self, inps, attn_mask=None, labels=None):
        with torch.no_grad():
            return self.model(inps, **self.behind(inps)).logits

    def _model_generate(self, context, max_length, stop, **kwargs):
        return self.model.generate(context, max_new_tokens=max_length - context.shape[1], do_sample=False, **self.behind(context))


def evaluate(model, **more):
    manager = TaskManager(include_path="tests/peers/lm_tasks", include_defaults=False)
    done = lm_eval.simple_evaluate(model, tasks=[CHOICE, ROLLING, GENERATE], task_manager=manager, log_samples=True, bootstrap_iters=0, **more)
    return {task: sorted(rows, key=lambda row: row["doc_id"]) for task, rows in done["samples"].items()}


def likelihoods(rows):
    """Of each row a list: of its choices, or of its text."""
    return [[value[0] if isinstance(value, (list, tuple)) else value for value in row["filtered_resps"]] for row in rows]


def best(values):
    return values.index(max(values))


def other_choices(got, want):
    """Where the harness's model has no tie."""
    pairs = zip(likelihoods(got[CHOICE]), likelihoods(want[CHOICE]), strict=True)
    return sum(best(a) != best(b) and max(b) - sorted(b)[-2] > BOUND for a, b in pairs)


def difference(got, want, task):
    return max(abs(x - y) for a, b in zip(likelihoods(got[task]), likelihoods(want[task]), strict=True) for x, y in zip(a, b, strict=True))


def greedy(rows):
    return [[flag for _, flag in row["filtered_resps"]] for row in rows]


def texts(rows):
    return [row["filtered_resps"] for row in rows]


def compare(how, got, want):
    for task in (CHOICE, ROLLING):
        program.report(f"{how}: {task}: log-likelihoods", difference(got, want, task), BOUND)
    program.report(f"{how}: other choices among {len(want[CHOICE])} rows", other_choices(got, want), 0)
    program.expect(f"{how}: greedy or not", greedy(got[CHOICE]), greedy(want[CHOICE]))
    program.expect(f"{how}: generated texts", texts(got[GENERATE]), texts(want[GENERATE]))


def references(args, folder):
    """{name of the served model: what the harness's own model of it answers}"""
    with h5py.File(args.prefix) as file:
        data = file["prefix/past_key_values"]
        kv, start = torch.from_numpy(data[:].astype("float32")), int(data.attrs["position_start"])
    model, tokenizer = peer.load_gguf(args.model, args.work), AutoTokenizer.from_pretrained(folder)
    return {"p": evaluate(PrefixLM(model, tokenizer, kv, start)), "bare": evaluate(PrefixLM(model, tokenizer))}


args = program.parse(__doc__)
torch.set_num_threads(args.threads)
folder = os.path.join(args.work, "tokenizer")
program.run(os.path.join(args.build, "kvfold"), "export", args.model, "--format", "tokenizer", "--out", folder, "--force")
want = references(args, folder)
program.expect("the prefix changes every row", min(abs(a[0] - b[0]) for a, b in zip(likelihoods(want["p"][ROLLING]), likelihoods(want["bare"][ROLLING]))) > 1, True)
with served.serve(args) as url:
    common = {"base_url": url + "/v1/completions", "num_concurrent": 2, "batch_size": 4, "max_retries": 1, "max_length": LENGTH + 2}
    local = {"tokenizer": folder, "tokenizer_backend": "huggingface"}
    for how, name, options in [("ids", "p", local), ("texts", "p", {**local, "tokenized_requests": False}),
                               ("the server's tokenizer", "p", {"tokenizer_backend": "remote"}), ("ids, bare", "bare", local)]:
        compare(how, evaluate("local-completions", model_args={**common, **options, "model": name}), want[name])
program.finish()
