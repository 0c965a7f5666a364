"""Calls of kvfold's programs, and figures with their bounds. Needs Python alone."""
import json
import os
import subprocess


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


def finish():
    raise SystemExit(f"{len(FAILED)} failed" if FAILED else 0)
