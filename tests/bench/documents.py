"""Documents as prefixes: what matching and training put into P virtual tokens, on questions held out.

Makes the documents in the folder --work: two articles of XQuAD (paragraphs joined by an empty line), the FAQ of Debian's base-files,
the manual page of xargs, the GPL. Then runs `kvfold distill` once for each document, length and way, and prints one row of
docs/measured.md for each document and length: loss, share of the way from the bare base to the one with the document, KL, processor
seconds. What is in --work already is not run again.

    python tests/bench/documents.py --kvfold build/kvfold --base MODEL.gguf --xquad xquad.en.json --work WORK

With --composed the documents are distilled apart, each alone and with a KL that keeps it out of the text of the others, and joined by
`kvfold compose`. The table has the loss of each document's questions, and in brackets the share of the gain of its own prefix alone.

Needs no package.
"""
import argparse
import json
import os
import re
import resource
import subprocess

QUESTIONS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "documents")
ARTICLES = {"bowl": "Super_Bowl_50", "law": "European_Union_law", "yuan": "Yuan_dynasty", "cteno": "Ctenophora"}
FILES = {"faq": "cp /usr/share/doc/base-files/FAQ {}", "gpl": "cp /usr/share/common-licenses/GPL-3 {}",
         "xargs": "MANWIDTH=1000 man xargs | col -bx | tr -s ' ' >{}"}
MATCH = ["--init", "match", "--self-study", "0", "--steps", "0"]
STEPS = ["--self-study", "48", "--steps", "60", "--eval-every", "60"]
WAYS = {"match": MATCH + ["--log-weight", "fixed"], "match, log-weights off": MATCH + ["--log-weight", "off"],
        "match, 60 steps": ["--init", "match", "--log-weight", "fixed"] + STEPS, "first tokens, 60 steps": STEPS}


def make(name, xquad, work):
    """Text and questions of a document."""
    text = os.path.join(work, name + ".txt")
    if name in FILES:
        if not os.path.exists(text):
            subprocess.run(FILES[name].format(text), shell=True, check=True)
        return text, os.path.join(QUESTIONS, name + ".jsonl")
    with open(xquad, encoding="utf-8") as file:
        article = next(a for a in json.load(file)["data"] if a["title"] == ARTICLES[name])
    with open(text, "w", encoding="utf-8") as file:
        file.write("\n\n".join(p["context"] for p in article["paragraphs"]) + "\n")
    questions = os.path.join(work, name + ".jsonl")
    with open(questions, "w", encoding="utf-8") as file:
        for qa in (qa for p in article["paragraphs"] for qa in p["qas"]):
            row = {"prompt": f"Question: {qa['question']}\nAnswer:", "completion": " " + qa["answers"][0]["text"]}
            file.write(json.dumps(row) + "\n")
    return text, questions


def cell(args, name, length, way):
    """What a run said, with its processor seconds at the end."""
    text, questions = make(name, args.xquad, args.work)
    log = os.path.join(args.work, f"{name}-{length}-{way.replace(', ', '-').replace(' ', '-')}.log")
    if not os.path.exists(log):
        run = log[:-3] + "h5"
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        said = subprocess.run([args.kvfold, "distill", "--base", args.base, "--document", text, "--valid", questions, "--force",
                               "--prefix-length", str(length), "--out", run] + WAYS[way]
                              + (["--window", "2048"] if name == "gpl" else []) + args.more.split(),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True).stdout
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        os.remove(run)
        with open(log, "w", encoding="utf-8") as file:
            file.write(f"{said}processor seconds: {after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime:.0f}\n")
    with open(log, encoding="utf-8") as file:
        return file.read()


def figures(said):
    bare, prefix, document = map(float, re.search(r"held-out loss: (\S+) bare, (\S+) with the prefix, (\S+) with", said).groups())
    kl = re.search(r"KL to the base that reads the document: (\S+) bare, (\S+) with", said).groups()
    tokens = re.search(r"document of (\d+) tokens", said).group(1)
    seconds = re.search(r"processor seconds: (\d+)", said).group(1)
    return tokens, bare, document, kl[0], f"{prefix:.3f}, {100 * (bare - prefix) / (bare - document):.0f} %, {float(kl[1]):.3f}, {seconds} s"


def run(args, *words):
    return subprocess.run([args.kvfold, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True).stdout


def others_of(args, name):
    """Writes the text of the other documents as rows of 80 words, and returns the path."""
    path = os.path.join(args.work, name + "-others.jsonl")
    with open(path, "w", encoding="utf-8") as file:
        for other in (o for o in args.documents if o != name):
            with open(make(other, args.xquad, args.work)[0], encoding="utf-8") as text:
                words = text.read().split()
            for at in range(0, len(words), 80):
                file.write(json.dumps({"text": " ".join(words[at:at + 80])}) + "\n")
    return path


def distilled(args, name, length, kept_out):
    """Path of a prefix of the document. kept_out: with the KL on the other documents."""
    stem = os.path.join(args.work, f"{name}-{length}" + ("-kept-out" if kept_out else ""))
    if not os.path.exists(stem + "-prefix.h5"):
        run(args, "distill", "--base", args.base, "--document", make(name, args.xquad, args.work)[0], "--force",
            "--prefix-length", str(length), "--out", stem + ".h5", *WAYS["match, 60 steps"],
            *(["--retain", others_of(args, name), "--kl-to-base", "1"] if kept_out else []), *args.more.split())
        run(args, "merge", stem + ".h5", "--out", stem + "-prefix.h5", "--force")
        os.remove(stem + ".h5")
    return stem + "-prefix.h5"


def loss_of(args, name, *prefix):
    questions = make(name, args.xquad, args.work)[1]
    said = run(args, "eval", "--base", args.base, "--data", questions, "--json", "--quiet", *(["--prefix", *prefix] if prefix else []))
    return json.loads(said.splitlines()[-1])["loss"]


def composed(args, length):
    losses = {name: [loss_of(args, name)] for name in args.documents}
    for kept_out in (False, True):
        prefixes = {name: distilled(args, name, length, kept_out) for name in args.documents}
        joined = {mode: os.path.join(args.work, mode + ".h5") for mode in ("parallel", "concatenate")}
        for mode, out in joined.items():
            run(args, "compose", *prefixes.values(), "--base", args.base, "--mode", mode, "--out", out, "--force")
        for name, row in losses.items():
            row += [loss_of(args, name, path) for path in (prefixes[name], *joined.values())]
    print("| document | bare | alone | parallel | one after the other | alone, KL | parallel | one after the other |")
    for name, (bare, alone, *more) in losses.items():
        cells = (f"{loss:.3f} ({100 * (bare - loss) / (bare - alone):.0f} %)" for loss in more)
        print(f"| {name} | {bare:.3f} | {alone:.3f} | {' | '.join(cells)} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kvfold", default="kvfold")
    parser.add_argument("--base", required=True, help="a causal base")
    parser.add_argument("--xquad", required=True, help="xquad.en.json")
    parser.add_argument("--work", required=True, help="folder for documents, questions and what runs say")
    parser.add_argument("--documents", nargs="+", default=["bowl", "faq", "law", "xargs", "gpl"], choices=[*ARTICLES, *FILES])
    parser.add_argument("--lengths", nargs="+", type=int, default=[16, 64, 256])
    parser.add_argument("--more", default="", help="options for every run")
    parser.add_argument("--composed", action="store_true", help="join the documents, at the first of --lengths")
    args = parser.parse_args()
    os.makedirs(args.work, exist_ok=True)
    if args.composed:
        composed(args, args.lengths[0])
        return
    print("| document, tokens | P | bare | " + " | ".join(WAYS) + " | with the document |")
    for name in args.documents:
        for length in args.lengths:
            said = [figures(cell(args, name, length, way)) for way in WAYS]
            tokens, bare, document, kl, _ = said[0]
            print(f"| {name}, {tokens} | {length} | {bare:.3f}, KL {float(kl):.3f} | " + " | ".join(f[4] for f in said)
                  + f" | {document:.3f} |", flush=True)


if __name__ == "__main__":
    main()
