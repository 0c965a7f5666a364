"""kvfold and PEFT, step by step in turn: ratios that a machine with a moving clock cannot spoil.

Every contestant is a process that stays open and runs one step when told to. A round is one step of each; a ratio is the median
over rounds of the ratio within a round. Before a round the machine must be idle; each round begins with the next contestant.

    python tests/bench/race.py --kvfold build/kvfold                 # the whole table, an hour on two slow cores
    python tests/bench/race.py --kvfold build/kvfold --work gpt2:8x128 --rounds 9
    python tests/bench/race.py --kvfold build/kvfold --work smollm2-135m:8@lengths.txt   # rows of these lengths, 8 a step
    python tests/bench/race.py --kvfold build/kvfold --work bert-base:8x128 --work deberta-base:8x128 --work t5-small:8x128
    python tests/bench/race.py --kvfold build/kvfold --other old/kvfold --contestants kvfold,other   # two builds

The last three are shapes of train_step.py, whose turn of kvfold is a short run of `train`. With --cpu, which these alone have, ratios
are of processor time, for a machine that others use; with --threads 1, as threads that wait for each other count. Needs what peft_step.py needs, for the
contestants that are PEFT.
"""
import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import time

from train_step import SHAPES as TRAINED

WORK = ["gpt2:8x128", "gpt2:16x64", "gpt2:4x512", "smollm2-135m:8x128", "smollm2-135m:4x512"]
FOLDER = os.path.dirname(os.path.abspath(__file__))
CONTESTANTS = ["kvfold", "kvfold-f32", "peft-f32", "peft-autocast", "peft-bf16"]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kvfold", default="build/kvfold")
    parser.add_argument("--other", help="another build, as contestants `other` and `other-f32`")
    parser.add_argument("--contestants", default=",".join(CONTESTANTS), help="kvfold|other|peft, with -f32, -bf16, -autocast")
    parser.add_argument("--work", action="append", help="SHAPE:BATCHxLENGTH or SHAPE:BATCH@FILE of lengths")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--idle", type=float, default=120, help="most seconds to wait for an idle machine before a round")
    parser.add_argument("--cpu", action="store_true", help="ratios of processor time")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


# ---- contestants ---------------------------------------------------------------------------------------------

def size_options(work):
    shape, size = work.split(":")
    if "@" in size:
        batch, path = size.split("@")
        return ["--shape", shape, "--batch", batch, "--lengths", path]
    batch, length = size.split("x")
    return ["--shape", shape, "--batch", batch, "--length", length]


def command(args, name, work):
    program, _, mode = name.partition("-")
    options = size_options(work) + ["--threads", str(args.threads)]
    if program == "peft":
        return [sys.executable, os.path.join(FOLDER, "peft_step.py"), "--mode", mode or "f32"] + options
    path = {"kvfold": args.kvfold, "other": args.other}[program]
    if work.split(":")[0] in TRAINED:
        return [sys.executable, os.path.join(FOLDER, "train_step.py"), "--kvfold", path, "--mode", mode or "auto"] + options
    return [path, "bench", "--interactive", "--json", "--warmup", "0", "--precision", mode or "auto"] + options


class Contestant:
    def __init__(self, args, name, work):
        self.name = name
        self.steps = []
        self.process = subprocess.Popen(command(args, name, work), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, "PYTHONWARNINGS": "ignore"})

    def step(self, measured):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.name} ended: exit status {self.process.wait()}")
        if measured:
            self.steps.append(json.loads(line))

    def close(self):
        """What is left on standard output: kvfold's summary."""
        rest = self.process.communicate()[0]
        if self.process.returncode:
            sys.exit(f"{self.name}: exit status {self.process.returncode}")
        return json.loads(rest) if rest else {}


def busy_share(seconds=0.4):
    def read():
        with open("/proc/stat") as file:
            numbers = [int(word) for word in file.readline().split()[1:9]]
        return sum(numbers), numbers[3] + numbers[4]
    total, idle = read()
    time.sleep(seconds)
    total_now, idle_now = read()
    return 1 - (idle_now - idle) / max(total_now - total, 1)


def wait_until_idle(most):
    """True if the machine was idle; after `most` seconds the round goes on all the same, and is counted as disturbed."""
    begin = time.time()
    while busy_share() > 0.15:
        if time.time() - begin > most:
            return False
    return True


def spin(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def wake(threads, seconds=0.5):
    """The first half second after a pause is up to a tenth slower; it must not fall on the contestant that begins."""
    spinners = [multiprocessing.Process(target=spin, args=(seconds,)) for _ in range(threads)]
    for spinner in spinners:
        spinner.start()
    for spinner in spinners:
        spinner.join()


# ---- figures -------------------------------------------------------------------------------------------------

def median(values):
    return statistics.median(values)


def summarise(contestants, summaries, disturbed, key):
    first = contestants[0]
    rows = {}
    for c, summary in zip(contestants, summaries):
        row = {
            "tokens_per_second": median([s["tokens_per_second"] for s in c.steps]),
            "seconds": median([s[key] for s in c.steps]),
            "ratio": median([s[key] / f[key] for s, f in zip(c.steps, first.steps)]),
            "peak_rss_bytes": summary.get("peak_rss_bytes") or c.steps[-1]["peak_rss_bytes"],
        }
        if summary:
            row.update(precision=summary["precision"], components=summary["components"],
                       matmul_share=median([s["matmul_share"] for s in c.steps]),
                       reference_share=median([s["matmul_share"] * s["matmul_rate"] / s["reference_rate"] for s in c.steps]),
                       matmul_rate=median([s["matmul_rate"] for s in c.steps]))
        rows[c.name] = row
    return {"rounds": len(first.steps), "disturbed": disturbed, "contestants": rows}


def print_table(work, result):
    print(f"\n{work}, {result['rounds']} rounds ({result['disturbed']} disturbed by other work)")
    print(f"{'':14} {'tokens/s':>9} {'s/step':>8} {'ratio':>6} {'peak MB':>8} {'share':>6} {'of ref.':>7} {'GFLOP/s':>8}")
    for name, row in result["contestants"].items():
        share = ""
        if "matmul_share" in row:
            share = f"{row['matmul_share']:6.1%} {row['reference_share']:7.1%} {row['matmul_rate'] / 1e9:8.1f} {row['precision']}"
        print(f"{name:14} {row['tokens_per_second']:9.0f} {row['seconds']:8.3f} {row['ratio']:6.2f} "
              f"{row['peak_rss_bytes'] / 1e6:8.0f} {share}", flush=True)


def race(args, work):
    contestants = [Contestant(args, name, work) for name in args.contestants.split(",")]
    disturbed = 0
    for round_number in range(-args.warmup, args.rounds):
        quiet = wait_until_idle(args.idle if round_number >= 0 else 0)
        disturbed += round_number >= 0 and not quiet
        wake(args.threads)
        turn = round_number % len(contestants)
        for c in contestants[turn:] + contestants[:turn]:
            c.step(round_number >= 0)
            time.sleep(0.05)  # threads that spin after their work come to rest
    return summarise(contestants, [c.close() for c in contestants], disturbed, "cpu_seconds" if args.cpu else "seconds")


def main():
    args = parse()
    results = {}
    for work in args.work or WORK:
        results[work] = race(args, work)
        if not args.json:
            print_table(work, results[work])
    if args.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
