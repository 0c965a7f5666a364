"""Metrics of kvfold against the libraries that define them, on random, odd and real cases.

    python tests/peers/metrics.py --build build --squad EVALUATE/metrics [--shared ../shared] [--cases 1000]

--squad is the folder `metrics` of the sources of the Python package `evaluate` (its squad/compute_score.py and
squad_v2/compute_score.py are the official SQuAD scripts, which the installed package fetches when asked). Further packages:
scikit-learn, scipy, seqeval, sacrebleu, rouge_score. Real cases come from the shared data: WNUT17's tags, SST-2's labels and
lengths, XQuAD's answers, E2E's references, each with predictions that are partly wrong; without that folder only the others run.

A case that the reference refuses must be refused by kvfold too. Prints a line per metric and exits with 1 if any differs by more
than 1e-9 (percentages: 1e-9 of a hundred)."""
import argparse
import csv
import importlib.util
import json
import math
import os
import random
import subprocess
import sys
import warnings

warnings.simplefilter("ignore")

BOUND = 1e-9
SCHEMES = {"IOB1": "BIO", "IOB2": "BIO", "IOE1": "IEO", "IOE2": "IEO", "IOBES": "BIESO", "BILOU": "BILUO"}


# ---- references: a case to the numbers of metric_case.h

def ref_classes(case):
    from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef, precision_recall_fscore_support, precision_score
    from sklearn.metrics import recall_score
    g, p, n = case["gold"], case["predicted"], case["labels"]
    v = [accuracy_score(g, p)]
    for average in ("micro", "macro"):
        v += [s(g, p, average=average, zero_division=0) for s in (precision_score, recall_score, f1_score)] + [len(g)]
    v.append(matthews_corrcoef(g, p))
    for row in zip(*precision_recall_fscore_support(g, p, labels=range(n), zero_division=0)):
        v += row
    return v, []


def ref_numbers(case):
    from scipy.stats import pearsonr, spearmanr
    return [pearsonr(case["gold"], case["predicted"])[0], spearmanr(case["gold"], case["predicted"])[0]], []


def ref_tags(case):
    import seqeval.scheme as schemes
    from seqeval.metrics import accuracy_score
    from seqeval.metrics.sequence_labeling import get_entities, precision_recall_fscore_support
    from seqeval.metrics.v1 import precision_recall_fscore_support as strict
    g, p = case["gold"], case["predicted"]
    v = [accuracy_score(g, p)]
    if case["scheme"] == "mixed":
        def score(average):
            return precision_recall_fscore_support(g, p, average=average)
        names = sorted({t for t, _, _ in get_entities(g) + get_entities(p)})
    else:
        scheme = schemes.auto_detect(g) if case["scheme"] == "auto" else getattr(schemes, case["scheme"])
        def score(average):
            return strict(g, p, average=average, scheme=scheme)
        names = sorted(schemes.Entities(g, scheme).unique_tags | schemes.Entities(p, scheme).unique_tags)
    for average in ("micro", "macro"):
        v += score(average)
    for row in zip(*score(None)):
        v += row
    return v, names


def module(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


class Squad:
    def __init__(self, folder):
        self.one = module(os.path.join(folder, "squad/compute_score.py"), "squad_one")
        self.two = module(os.path.join(folder, "squad_v2/compute_score.py"), "squad_two")

    @staticmethod
    def parts(exact, f1, has):
        v = []
        for which in (None, True, False):
            keys = [i for i in range(len(has)) if which is None or has[i] == which]
            v += [100.0 * sum(s[i] for i in keys) / len(keys) if keys else math.nan for s in (exact, f1)]
        return v

    def v1(self, case):
        exact, f1, best = [], [], self.one.metric_max_over_ground_truths
        for said, want in zip(case["predicted"], case["references"]):
            exact.append(best(self.one.exact_match_score, said, want))
            f1.append(best(self.one.f1_score, said, want))
        qas = [{"id": i, "answers": [{"text": t} for t in want]} for i, want in enumerate(case["references"])]
        whole = self.one.compute_score([{"paragraphs": [{"qas": qas}]}], dict(enumerate(case["predicted"])))
        v = self.parts(exact, f1, [True] * len(exact))
        assert v[:2] == [whole["exact_match"], whole["f1"]]
        return v, []

    def v2(self, case):
        qas = [{"id": i, "answers": {"text": want}} for i, want in enumerate(case["references"])]
        data, said = [{"paragraphs": [{"qas": qas}]}], dict(enumerate(case["predicted"]))
        exact, f1 = self.two.get_raw_scores(data, said)
        whole = self.two.make_eval_dict(exact, f1)
        v = self.parts(exact, f1, [bool(want) for want in case["references"]])
        assert v[:2] == [whole["exact"], whole["f1"]]
        return v, []


def ref_bleu(case):
    from sacrebleu.metrics import BLEU
    if any(not refs for refs in case["references"]):
        raise ValueError("no reference")
    most = max(len(refs) for refs in case["references"])
    streams = [[refs[i] if i < len(refs) else None for refs in case["references"]] for i in range(most)]
    s = BLEU().corpus_score(case["predicted"], streams)
    return [s.score, *s.precisions, s.bp, s.sys_len, s.ref_len, *s.counts, *s.totals], []


def ref_rouge(case):
    from rouge_score.rouge_scorer import RougeScorer
    scorer = RougeScorer(["rougeL"], use_stemmer=False)
    scores = [scorer.score_multi(want, said)["rougeL"] for said, want in zip(case["predicted"], case["references"])]
    n = len(scores)
    return [sum(s.precision for s in scores) / n, sum(s.recall for s in scores) / n, sum(s.fmeasure for s in scores) / n, n], []


# ---- random and odd cases

def random_classes(rng):
    n, labels = rng.choice([1, 2, 3, 10, 50, 300]), rng.choice([1, 2, 2, 3, 7, 20])
    used = rng.randint(1, labels)
    gold = [rng.randrange(used) for _ in range(n)]
    right = rng.random()
    return {"gold": gold, "predicted": [g if rng.random() < right else rng.randrange(labels) for g in gold], "labels": labels}


def random_numbers(rng):
    n, kind = rng.choice([2, 3, 5, 20, 200]), rng.randrange(5)
    x = [rng.gauss(0, 1) if kind < 3 else rng.randrange(4) for _ in range(n)]
    y = [a * rng.choice([1, 1, -1]) + rng.gauss(0, 0.3) if kind in (0, 3) else rng.randrange(5) for a in x]
    if kind == 2:
        x = [1e6 + a for a in x]
    if kind == 4 and rng.random() < 0.2:
        y = [3.5] * n
    return {"gold": x, "predicted": y}


ODD_TAGS = ["O", "B", "I", "E", "S", "B-", "I-", "-X", "BX", "B--X", "B-X-", "I-X-Y", "O-X", ".", ".-X", "L-X", "U-X", "Q-X", "é-X", "X"]


def random_tags(rng):
    scheme = rng.choice(["mixed", "mixed", "auto", *SCHEMES])
    letters = SCHEMES.get(scheme) or rng.choice(["BIO", "IEO", "BIESO", "BILUO", "BIO", "BIOESUL"])
    types = ["X", "Y", "LOC", "X-Y", "Ä"][:rng.randint(1, 5)]

    def tag():
        if rng.random() < 0.004 or (scheme == "mixed" and rng.random() < 0.03):
            return rng.choice(ODD_TAGS)
        c = rng.choice(letters)
        return c if c == "O" or rng.random() < 0.02 else f"{c}-{rng.choice(types)}"
    gold = [[tag() for _ in range(rng.choice([0, 1, 2, 5, 12]))] for _ in range(rng.choice([1, 1, 2, 6]))]
    right = rng.random()
    return {"scheme": scheme, "gold": gold, "predicted": [[t if rng.random() < right else tag() for t in s] for s in gold]}


WORDS = ("the The a an A AN THE an. the, of in Paris paris PARIS 1,000 1.5 3-4 -5 5- U.S. U.S.A. it's don't 'quoted' \"q\" (x) [y] {z} "
         "a-b a_b _a_ x/y & &amp; &lt; &gt; &quot; &amp;lt; <skipped> ... .. . , ,, -- - ! ? ?! $5.00 10% #1 @me ~ ^ ` | \\ ; : * + = < > "
         "é éa aé naïve Zürich ÉCOLE İstanbul ΟΔΟΣ ΣΑΣ Σ ΑΣ. ΑΣ'Β ß ẞ K Å ǅ 北京 東京都 한국 العربية हिन्दी ½ ² Ⅷ 𝟙𝟚 👍🏽 the北京 aु e\u0301a a\u0301").split(" ")
SPACES = [" "] * 30 + ["  ", "\n", "-\n", "\t", "\u00a0", "\u2003", "\u3000", "\x1c", "\x85", "\u200b", "\u2028", ""]


def random_text(rng, longest=14):
    n = rng.choice([0, 1, 1, 2, 3, 5, longest])
    return "".join(rng.choice(WORDS) + rng.choice(SPACES) for _ in range(n)) + rng.choice(["", "", " ", "."])


def altered(rng, text):
    words = text.split(" ")
    for _ in range(rng.randint(0, 3)):
        at = rng.randrange(len(words) + 1)
        kind = rng.randrange(3)
        if kind == 0:
            words.insert(at, rng.choice(WORDS))
        elif kind == 1 and len(words) > 1:
            del words[min(at, len(words) - 1)]
        else:
            words[min(at, len(words) - 1)] = rng.choice(WORDS)
    return " ".join(words)


def random_texts(rng, fewest):
    predicted, references = [], []
    for _ in range(rng.choice([1, 1, 2, 5])):
        refs = [random_text(rng) for _ in range(rng.randint(fewest, 3))]
        if len(refs) > 1 and rng.random() < 0.3:
            refs[1] = altered(rng, refs[0])
        predicted.append(altered(rng, rng.choice(refs)) if refs and rng.random() < 0.7 else random_text(rng))
        references.append(refs)
    return {"predicted": predicted, "references": references}


def odd_cases():
    yield "classes", {"gold": [], "predicted": [], "labels": 2}
    for g, p in (([0], [0]), ([0, 0], [0, 0]), ([0, 0], [1, 1]), ([0, 1], [1, 0]), ([0, 0, 1], [0, 0, 0])):
        yield "classes", {"gold": g, "predicted": p, "labels": 2}
    for g, p in (([], []), ([1], [1]), ([1, 2], [2, 1]), ([1, 1], [1, 2]), ([1, 1, 1], [0.1] * 3), ([1e-9, 2e-9], [1e9, 2e9])):
        yield "numbers", {"gold": g, "predicted": p}
    for scheme in ("mixed", "auto", *SCHEMES):
        for g, p in (([[]], [[]]), ([["O"]], [["O"]]), ([["O"]], [["B-X"]]), ([[], ["B-X"], []], [[], ["B-X"], []]), ([["I-X"], ["I-X"]],) * 2,
                     ([[""]], [["O"]]), ([["B-X"]], [["b-X"]])):
            yield "tags", {"scheme": scheme, "gold": g, "predicted": p}
    for kind in ("squad", "squad2", "bleu", "rouge"):
        for p, r in ((["a"], [[""]]), ([""], [[""]]), ([""], [["x"]]), (["x"], [["", "x"]]), (["the"], [["a"]]), (["."], [["the", "x"]]), ([""], [[]]),
                     (["x"], [[]]), (["a b c d"], [["a b c d"]]), (["a b c"], [["a b c"]]), ([""] * 3, [["x"]] * 3), (["x y"], [["y x"]])):
            yield kind, {"predicted": p, "references": r}


# ---- real cases

def conll(path):
    rows, tags = [], []
    for line in open(path, encoding="utf-8"):
        if line.strip():
            tags.append(line.rstrip("\n").split("\t")[-1].strip())
        elif tags:
            rows.append(tags)
            tags = []
    return rows + ([tags] if tags else [])


def in_scheme(tags, letters, scheme):
    """IOB2 tags in another scheme: the letters for first, inner, last and single word."""
    first, inner, last, single = {"IOB1": "IIII", "IOB2": "BIIB", "IOE1": "IIII", "IOE2": "IIEE", "IOBES": "BIES", "BILOU": "BILU"}[scheme]
    out = []
    for i, t in enumerate(tags):
        if t == "O":
            out.append(t)
            continue
        ends = i + 1 == len(tags) or tags[i + 1][0] != "I"
        begins = t[0] == "B"
        again = begins and i and tags[i - 1] != "O" and tags[i - 1][2:] == t[2:]
        letter = single if begins and ends else first if begins else last if ends else inner
        if scheme == "IOB1" and again:
            letter = "B"
        out.append(letter + t[1:])
    return out


def real_tags(rng, shared, n):
    rows = conll(os.path.join(shared, "data/wnut17/emerging.test.annotated")) + conll(os.path.join(shared, "data/wnut17/emerging.dev.conll"))
    for i in range(n):
        scheme = rng.choice(["mixed", "auto", *SCHEMES])
        real = scheme if scheme in SCHEMES else "IOB2"
        gold = [in_scheme(t, None, real) for t in rng.sample(rows, rng.choice([1, 4, 30]))]
        pool = sorted({t for s in gold for t in s}) or ["O"]
        yield {"scheme": scheme, "gold": gold, "predicted": [[t if rng.random() < 0.9 else rng.choice(pool) for t in s] for s in gold]}
    for scheme in ("mixed", "auto", "IOB2"):
        yield {"scheme": scheme, "gold": rows, "predicted": [[t if rng.random() < 0.95 else "B-person" for t in s] for s in rows]}


def real_classes(rng, shared, n):
    labels = [int(line.rstrip("\n").rsplit("\t", 1)[1]) for line in open(os.path.join(shared, "data/sst2/dev.tsv"), encoding="utf-8")]
    for i in range(n):
        gold = rng.sample(labels, rng.choice([8, 100, 872]))
        yield {"gold": gold, "predicted": [g if rng.random() < 0.85 else 1 - g for g in gold], "labels": 2}


def real_numbers(rng, shared, n):
    lines = [line.split("\t")[0] for line in open(os.path.join(shared, "data/sst2/dev.tsv"), encoding="utf-8")]
    for i in range(n):
        some = rng.sample(lines, rng.choice([8, 100, 872]))
        yield {"gold": [len(t) for t in some], "predicted": [len(t.split()) + rng.choice([0, 0, 1]) for t in some]}


def real_answers(rng, shared, n, none):
    data = json.load(open(os.path.join(shared, "data/xquad_en/xquad.en.json"), encoding="utf-8"))["data"]
    asked = [(p["context"], qa["answers"]) for a in data for p in a["paragraphs"] for qa in p["qas"]]
    for i in range(n):
        predicted, references = [], []
        for context, answers in [asked[i % len(asked)]] + rng.sample(asked, rng.choice([0, 0, 20])):
            at, size = answers[0]["answer_start"], len(answers[0]["text"])
            first = max(0, at + rng.choice([0, 0, 0, -4, 3, -20]))
            said = context[first:at + size + rng.choice([0, 0, 0, 1, 9, -2])]
            absent = none and rng.random() < 0.3
            predicted.append("" if none and rng.random() < 0.3 else said)
            references.append([] if absent else [a["text"] for a in answers])
        yield {"predicted": predicted, "references": references}


def real_texts(rng, shared, n):
    meant = {}
    for row in csv.DictReader(open(os.path.join(shared, "data/e2e/testset_w_refs.csv"), encoding="utf-8")):
        meant.setdefault(row["mr"], []).append(row["ref"])
    groups = [refs for refs in meant.values() if len(refs) > 1]
    for i in range(n):
        predicted, references = [], []
        for refs in [groups[i % len(groups)]] + rng.sample(groups, rng.choice([0, 0, 5])):
            predicted.append(altered(rng, refs[0]))
            references.append(refs[1:])
        yield {"predicted": predicted, "references": references}


# ---- comparison

def all_cases(args):
    rng = random.Random(args.seed)
    for kind, case in odd_cases():
        yield "odd", kind, case
    made = {"classes": random_classes, "numbers": random_numbers, "tags": random_tags, "squad": lambda r: random_texts(r, 1),
            "squad2": lambda r: random_texts(r, 0), "bleu": lambda r: random_texts(r, 1), "rouge": lambda r: random_texts(r, 1)}
    for kind, make in made.items():
        for _ in range(args.cases * (3 if kind == "tags" else 1)):
            yield "random", kind, make(rng)
    if not os.path.isdir(os.path.join(args.shared, "data")):
        return
    real = {"classes": real_classes, "numbers": real_numbers, "tags": real_tags, "squad": lambda *a: real_answers(*a, False), "squad2": lambda *a: real_answers(*a, True),
            "bleu": real_texts, "rouge": real_texts}
    for kind, make in real.items():
        for case in make(rng, args.shared, args.cases):
            yield "real", kind, case


def references(args):
    squad = Squad(args.squad)
    return {"classes": ref_classes, "numbers": ref_numbers, "tags": ref_tags, "squad": squad.v1, "squad2": squad.v2, "bleu": ref_bleu,
            "rouge": ref_rouge}


def expected(reference, case):
    """(numbers, names), or None where the reference refuses."""
    try:
        v, names = reference(case)
        return [float(x) for x in v], names
    except (ValueError, KeyError, IndexError, ZeroDivisionError):
        return None


def difference(want, got):
    if want is None or "error" in got:
        return 0.0 if want is None and "error" in got else math.inf
    v, names = want
    if names != got["names"] or len(v) != len(got["v"]):
        return math.inf
    worst = 0.0
    for a, b in zip(v, got["v"]):
        worst = max(worst, (0.0 if b is None else math.inf) if math.isnan(a) else math.inf if b is None else abs(a - b) / max(1.0, abs(a)))
    return worst


def answers(args, cases):
    text = "".join(json.dumps({"kind": kind, **case}) + "\n" for _, kind, case in cases)
    done = subprocess.run([os.path.join(args.build, "tests/dump_metrics")], input=text.encode(), stdout=subprocess.PIPE, check=True)
    return [json.loads(line) for line in done.stdout.decode().splitlines()]


def options(*more):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--squad", required=True)
    parser.add_argument("--shared", default="../shared")
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=5)
    for name, keywords in more:
        parser.add_argument(name, **keywords)
    return parser.parse_args()


def main():
    args = options()
    cases = list(all_cases(args))
    compute, table, failed = references(args), {}, 0
    for (origin, kind, case), got in zip(cases, answers(args, cases), strict=True):
        want = expected(compute[kind], case)
        d = difference(want, got)
        row = table.setdefault((kind, origin), [0, 0, 0.0])
        row[0] += 1
        row[1] += want is None
        row[2] = max(row[2], d)
        if d > BOUND and failed < 10:
            print("differs:", json.dumps({"kind": kind, **case})[:600], "\n  want", want, "\n  got ", got)
        failed += d > BOUND
    for (kind, origin), (n, refused, worst) in sorted(table.items()):
        print(f"{kind:8} {origin:6} {n:5} cases, {refused:4} refused by both, largest difference {worst:.1e}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
