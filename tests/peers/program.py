"""Calls of kvfold's programs, and figures with their bounds. Needs Python alone."""
import argparse
import json
import os
import subprocess


def parse(description, *more, prefix=True):
    """Options of the scripts that setup.sh runs, then (name, keywords) of a script's own. prefix: with one that is trained."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--model", required=True, help="SmolLM2-135M-Instruct GGUF file")
    if prefix:
        parser.add_argument("--prefix", required=True, help="a prefix file trained on it")
    parser.add_argument("--build", default="build", help="build folder with kvfold and tests/dump_pass")
    parser.add_argument("--work", default="build/peers", help="folder for intermediate files")
    parser.add_argument("--threads", type=int, default=2)
    for name, keywords in more:
        parser.add_argument(name, **keywords)
    args = parser.parse_args()
    os.makedirs(args.work, exist_ok=True)
    return args


def run(*command):
    env = {**os.environ, "OMP_WAIT_POLICY": "passive"}
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, env=env)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\nexit {done.returncode}: {done.stderr}")
    return done.stdout


def kvfold(args, *command):
    """Runs kvfold COMMAND ... --json and returns the object."""
    return json.loads(run(os.path.join(args.build, "kvfold"), *command, "--json"))


# ---- figures --------------------------------------------------------------------------------------------------

FAILED = []


def report(what, value, bound):
    good = value <= bound
    print(f"{what:<66} {value:9.2e}  <= {bound:.1e}  {'ok' if good else 'FAILED'}", flush=True)
    if not good:
        FAILED.append(what)


def expect(what, got, want):
    good = got == want
    print(f"{what:<66} {'ok' if good else f'FAILED: {got!r}, want {want!r}'}", flush=True)
    if not good:
        FAILED.append(what)


def finish():
    raise SystemExit(f"{len(FAILED)} failed" if FAILED else 0)
