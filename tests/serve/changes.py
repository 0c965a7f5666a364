#!/usr/bin/env python3
"""Files of --prefix-dir are replaced, added, removed and damaged while clients ask: no wrong answer, no lost request, flat memory.

  changes.py KVFOLD MAKE_TINY [--seconds S] [--clients N] [--operations N] [--delay MS] [OPTION OF SERVE...]

An answer is wrong if its text is that of no file that had the name between the request and the answer. 404 is right only if there
was none, 500 only if there was a damaged one. --delay: every open of a prefix file takes so long, by a library that cc builds.
At the end SIGTERM comes while clients ask, and only then may a connection be refused or a request get 503. Standard library only.
"""
import argparse
import http.client
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

NAMES, VERSIONS, PROMPTS = 40, 8, ["are you", "one of the", "x" * 270]
DELAY = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>
#define DELAYED(name) \\
    int name(const char *path, int flags, ...) \\
    { \\
        va_list list; \\
        va_start(list, flags); \\
        const int mode = flags & O_CREAT ? va_arg(list, int) : 0; \\
        va_end(list); \\
        const size_t n = strlen(path); \\
        if (n > 3 && !strcmp(path + n - 3, ".h5")) usleep(DELAY_MS * 1000); \\
        return ((int (*)(const char *, int, int))dlsym(RTLD_NEXT, #name))(path, flags, mode); \\
    }
DELAYED(open)
DELAYED(open64)
"""


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def make_versions(args):
    """Prefixes with different values, as files v0.h5 to v7.h5."""
    run(args.make_tiny, "model")
    with open("rows.jsonl", "w") as file:
        file.write('{"prompt":"one of","completion":" bcdefg"}\n{"prompt":"the","completion":" answer is 7"}\n')
    for v in range(VERSIONS):
        run(args.kvfold, "train", "--base", "model", "--data", "rows.jsonl", "--method", "direct", "--init", "random", "--seed", str(v),
            "--lr", "3", "--steps", "3", "--prefix-length", str(4 + v), "--precision", "f32", "--chat-template", "none", "--quiet",
            "--threads", "1", "--out", "run.h5", "--force")
        run(args.kvfold, "merge", "run.h5", "--out", f"v{v}.h5", "--threads", "1", "--quiet")


class Server:
    def __init__(self, args, *options, environment=None):
        self.process = subprocess.Popen(
            [args.kvfold, "serve", "--base", "model", "--base-name", "bare", "--port", "0", "--precision", "f32", "--quiet", *options],
            stdout=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})})
        found = re.match(r"listening on http://([\d.]+):(\d+)", self.process.stdout.readline())
        if not found:
            sys.exit("changes: the server does not start")
        self.host, self.port = found[1], int(found[2])

    def ask(self, name, prompt):
        """Status and text of a completion; status None: the connection was refused."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=300)
        try:
            connection.connect()
        except ConnectionRefusedError:
            return None, ""
        connection.request("POST", "/v1/completions", json.dumps({
            "model": name, "prompt": prompt, "max_tokens": 12, "temperature": 0.8, "seed": 3}), {"Content-Type": "application/json"})
        response = connection.getresponse()
        body = json.loads(response.read())
        connection.close()
        return response.status, body["choices"][0]["text"] if response.status == 200 else body["error"]["message"]

    def memory(self):
        with open(f"/proc/{self.process.pid}/smaps_rollup") as file:
            return int(re.search(r"Anonymous: *(\d+) kB", file.read())[1]) / 1024

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(300)


class Files:
    """What each name has had: (from, to, version), where an operation's interval belongs to both sides; None: no file."""

    def __init__(self, chance):
        self.lock, self.chance = threading.Lock(), chance
        self.history = {f"f{n % 4}/m{n:02d}": [(0, None, None)] for n in range(NAMES)}
        for name in self.history:
            os.makedirs(os.path.dirname(f"files/{name}"), exist_ok=True)
            self.change(name, chance.randrange(VERSIONS))

    def change(self, name, version):
        path, begin = f"files/{name}.h5", time.monotonic()
        if version is None:
            if os.path.exists(path):
                os.remove(path)
        else:
            shutil.copyfile(f"v{abs(version) % VERSIONS}.h5", "new")
            if version < 0:  # damaged
                with open("new", "r+b") as file:
                    file.seek(self.chance.randrange(100, os.path.getsize("new") - 100))
                    file.write(bytes(self.chance.randrange(256) for _ in range(40)))
            os.rename("new", path)
        rows = self.history[name]
        rows[-1] = (rows[-1][0], time.monotonic(), rows[-1][2])
        rows.append((begin, None, version))

    def operate(self):
        name, lot = self.chance.choice(list(self.history)), self.chance.random()
        version = None if lot < 0.2 else -1 - self.chance.randrange(VERSIONS) if lot < 0.3 else self.chance.randrange(VERSIONS)
        with self.lock:
            self.change(name, version)

    def during(self, name, begin, end):
        with self.lock:  # an operation is recorded
            rows = list(self.history[name])
        return {version for since, until, version in rows if since <= end and (until is None or until >= begin)}


def is_right(files, wanted, name, prompt, begin, status, text):
    now = time.monotonic()
    versions = files.during(name, begin, now)
    if status == 200:
        return any(v is not None and v >= 0 and wanted[prompt][v] == text for v in versions)
    if status == 404:
        return None in versions
    return status == 500 and any(v is not None and v < 0 for v in versions)


def measure(args, chance):
    make_versions(args)
    server = Server(args, "--threads", "1", *(part for v in range(VERSIONS) for part in ("--prefix", f"v{v}=v{v}.h5")))
    wanted = {prompt: [server.ask(f"v{v}", prompt)[1] for v in range(VERSIONS)] for prompt in PROMPTS}
    server.stop()
    if any(len(set(texts)) < VERSIONS for texts in wanted.values()):
        sys.exit(f"changes: two files answer alike: {wanted}")
    files, environment = Files(chance), {}
    if args.delay:
        with open("delay.c", "w") as file:
            file.write(DELAY.replace("DELAY_MS", str(args.delay)))
        run("cc", "-shared", "-fPIC", "-o", "delay.so", "delay.c", "-ldl")
        environment = {"LD_PRELOAD": os.path.abspath("delay.so")}
    server = Server(args, "--prefix-dir", "files", "--prefix-memory", "200K", "--cache-memory", "8M", "--max-queue", "4096", *args.options,
                    environment=environment)
    answers, wrong, stops, lock = {}, [], threading.Event(), threading.Lock()

    def client(k):
        own = random.Random(1000 * args.seed + k)
        while True:
            name, prompt, begin = own.choice(list(files.history)), own.choice(PROMPTS), time.monotonic()
            try:
                status, text = server.ask(name, prompt)
            except Exception as error:  # a lost request
                status, text = 0, repr(error)
            if status in (None, 0, 503) and stops.is_set():
                break
            right = is_right(files, wanted, name, prompt, begin, status, text)
            with lock:
                answers[status] = answers.get(status, 0) + 1
                if not right:
                    wrong.append(f"{name} {status} {text[:80]!r}, files {files.during(name, begin, time.monotonic())}")

    threads = [threading.Thread(target=client, args=(k,)) for k in range(args.clients)]
    for thread in threads:
        thread.start()
    memory, begin = [], time.monotonic()
    for i in range(args.operations):
        time.sleep(max(0, begin + (i + 1) * args.seconds / args.operations - time.monotonic()))
        files.operate()
        if i % max(1, args.operations // 10) == 0:
            memory.append(server.memory())
    stops.set()
    code = server.stop()
    for thread in threads:
        thread.join()
    print(f"{args.operations} operations in {time.monotonic() - begin:.0f} s, {args.clients} clients: answers "
          f"{dict(sorted(answers.items()))}, wrong {len(wrong)}; memory " + " ".join(f"{m:.0f}" for m in memory) + " MiB")
    for line in wrong[:5]:
        print("wrong:", line)
    if code != 128 + signal.SIGTERM:
        print("the server ended with status", code)
    grew = memory[-1] - memory[len(memory) // 3]
    if args.flat and grew > args.flat:
        print(f"the server grew by {grew:.1f} MiB")
    return bool(wrong or code != 128 + signal.SIGTERM or (args.flat and grew > args.flat) or not answers.get(200))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kvfold", type=os.path.realpath)
    parser.add_argument("make_tiny", type=os.path.realpath)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--operations", type=int, default=1000)
    parser.add_argument("--delay", type=int, default=0, help="milliseconds")
    parser.add_argument("--flat", type=float, default=8, help="MiB that the server may grow by; 0: any")
    parser.add_argument("--seed", type=int, default=1)
    args, args.options = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        failed = measure(args, random.Random(args.seed))
        os.chdir("/")
    sys.exit(failed)


if __name__ == "__main__":
    main()
