"""Writes metrics.json: cases and what the reference libraries make of them, as tests/peers/metrics.py computes it.

    python tests/golden/make_metric_golden.py --squad EVALUATE/metrics > tests/golden/metrics.json

Made with scikit-learn 1.9.1, scipy 1.17.1, seqeval 1.2.2, sacrebleu 2.6.0, rouge_score 0.1.2 and the SQuAD scripts of evaluate
(2026). `want` is null where the reference refuses; NaN is written as null inside it."""
import json
import math
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../peers"))
import metrics  # noqa: E402

LONGEST = 1000  # bytes of a case


def line(case, want):
    if want is not None:
        want = {"v": [None if math.isnan(x) else x for x in want[0]], "names": want[1]}
    return json.dumps({**case, "want": want}, ensure_ascii=False, separators=(",", ":"))


def main():
    args = metrics.options(("--each", {"type": int, "default": 10}))
    args.cases = 60
    compute = metrics.references(args)
    kept = {}
    for origin, kind, case in metrics.all_cases(args):
        case = {"kind": kind, **case}
        if len(json.dumps(case)) < LONGEST:
            kept.setdefault((origin, kind), []).append(case)
    rng = random.Random(1)
    chosen = []
    for (origin, kind), cases in kept.items():
        chosen += cases if origin == "odd" else rng.sample(cases, min(len(cases), args.each * (3 if kind == "tags" else 1)))
    lines = [line(case, metrics.expected(compute[case["kind"]], case)) for case in chosen]
    print("[\n" + ",\n".join(lines) + "\n]")


if __name__ == "__main__":
    main()
