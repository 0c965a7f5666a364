"""Packed rows against padded ones: how much of the padding that a skewed batch would need is saved as time.

Two benches in turn: one with rows of the given lengths, one with as many rows, all as long as the longest of their step, which is
what a padding program computes. The pad factor is the tokens of the second over those of the first; the figure is the median over
rounds of the second's time over the first's, as a share of that factor.

    python tests/bench/skew.py --kvfold build/kvfold --lengths lengths.txt --shape gpt2 --precision bf16

--lengths: a file with one number of tokens per line, as for `kvfold bench --lengths`. Needs no package.
"""
import argparse
import json
import statistics
import subprocess


class Bench:
    def __init__(self, args, lengths):
        self.process = subprocess.Popen(
            [args.kvfold, "bench", "--interactive", "--json", "--warmup", "0", "--shape", args.shape, "--precision", args.precision,
             "--batch", str(args.batch), "--lengths", ",".join(map(str, lengths))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def step(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())["seconds"]

    def close(self):
        self.process.communicate()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kvfold", default="build/kvfold")
    parser.add_argument("--lengths", required=True)
    parser.add_argument("--shape", default="gpt2")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=4, help="different steps, all of which a round has")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with open(args.lengths, encoding="utf-8") as file:
        lengths = [int(word) for word in file.read().split()][:args.batch * args.steps]
    steps = [lengths[i:i + args.batch] for i in range(0, len(lengths), args.batch)]
    longest = [max(step) for step in steps for _ in step]
    packed, padded = Bench(args, lengths), Bench(args, longest)
    for _ in steps:
        packed.step(), padded.step()
    ratios = []
    for _ in range(args.rounds):
        times = [(packed.step(), padded.step()) for _ in steps]
        ratios.append(sum(b for _, b in times) / sum(a for a, _ in times))
    packed.close(), padded.close()
    factor, ratio = sum(longest) / sum(lengths), statistics.median(ratios)
    print(f"{args.shape} {args.precision}: pad factor {factor:.3f}, padded over packed {ratio:.3f} "
          f"({min(ratios):.3f} to {max(ratios):.3f}), {ratio / factor:.1%} of it")


if __name__ == "__main__":
    main()
