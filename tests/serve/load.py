#!/usr/bin/env python3
"""Load on `kvfold serve`: many clients at once over many prefixes, answers compared with `kvfold generate`.

Starts the server itself, on a free port. During the storm, connections that send half a request, a byte now and then or
far too much are there all the time. Standard library only, but --from needs h5py.

  load.py --kvfold build/kvfold --base MODEL            64 clients, 32 prefixes, 4 requests each; every answer checked
  load.py --kvfold build/kvfold --base MODEL --measure  tokens a second with 1, 16 and 64 clients, 48 requests or more, nothing checked
  load.py --kvfold build/kvfold --base MODEL --long N   how long 8 streams stand still when a prompt of N tokens arrives

Prefixes are made by `train --method direct --steps 1`, of unequal length, and kept in --work; with --from FILE they are
noisy copies of one file, cut to unequal lengths, which takes no time.
"""
import argparse
import http.client
import json
import os
import queue
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

WORDS = ["Internet", "Meeting", "Software", "Dictionary", "Politics", "Garden", "Winter", "Patience"]


def run(args, *rest):
    done = subprocess.run([args.kvfold, *rest], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"load: {' '.join(rest)}: {done.stderr.strip()}")
    return done.stdout


def copy_prefix(source, path, i):
    import h5py
    import numpy as np
    shutil.copyfile(source, path)
    with h5py.File(path, "r+") as file:
        group, name = file["prefix"], "past_key_values"
        kv, attrs = group[name][...], dict(group[name].attrs)
        kv = kv[..., :1 + i * 7 % kv.shape[4], :] + np.random.default_rng(i).normal(0, 0.3, kv.shape[-1]).astype(kv.dtype)
        del group[name]
        group.create_dataset(name, data=kv)
        for key, value in attrs.items():
            group[name].attrs[key] = value
        group[name].attrs["position_start"] = np.int64(kv.shape[4])


def make_prefixes(args):
    data = os.path.join(args.work, "rows.jsonl")
    with open(data, "w") as out:
        for i, word in enumerate(WORDS):
            out.write(json.dumps({"prompt": f"{word}, noun:", "completion": f" a thing numbered {i}."}) + "\n")
    paths = {}
    for i in range(args.prefixes):
        name, path = f"p{i}", os.path.join(args.work, f"p{i}.h5")
        if args.source:
            copy_prefix(args.source, path, i)
        elif not os.path.exists(path):
            start = os.path.join(args.work, "run.h5")
            run(args, "train", "--base", args.base, "--data", data, "--out", start, "--method", "direct", "--force",
                "--prefix-length", str(1 + i * 7 % 23), "--steps", "1", "--batch-size", "1", "--lr", "0.3",
                "--seed", str(i), "--quiet")
            run(args, "merge", start, "--out", path, "--quiet")
        paths[name] = path
    return paths


class Server:
    def __init__(self, args, prefixes):
        command = [args.kvfold, "serve", "--base", args.base, "--base-name", "bare", "--port", "0", "--precision", args.precision,
                   "--max-rows", str(args.rows)]
        for name, path in prefixes.items():
            command += ["--prefix", f"{name}={path}"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        found = re.match(r"listening on http://([\d.]+):(\d+)", line)
        if not found:
            sys.exit("load: the server does not start")
        self.host, self.port = found[1], int(found[2])

    def get(self, path):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=600)
        connection.request("GET", path)
        return connection.getresponse().read().decode()

    def cpu_seconds(self):
        with open(f"/proc/{self.process.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


class Client(threading.Thread):
    """Takes bodies off a queue until it is empty, over one connection."""

    def __init__(self, server, work, answers):
        super().__init__()
        self.server, self.work, self.answers = server, work, answers

    def run(self):
        connection = http.client.HTTPConnection(self.server.host, self.server.port, timeout=600)
        while True:
            try:
                key, body = self.work.get_nowait()
            except queue.Empty:
                return
            begin = time.monotonic()
            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read().decode()
            self.answers.append((key, response.status, text, time.monotonic() - begin))


class Vandals(threading.Thread):
    """Connections nobody should have to care about, until stop is set; a lap of them is counted when it went as it should."""
    HEAD = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "

    def __init__(self, server):
        super().__init__()
        self.server, self.stop, self.laps, self.odd = server, threading.Event(), 0, []

    def dial(self, text):
        connection = socket.create_connection((self.server.host, self.server.port), timeout=60)
        connection.sendall(text.encode())
        return connection

    def run(self):
        half = [self.dial("POST /v1/comp") for _ in range(20)] + [self.dial(self.HEAD + '80\r\n\r\n{"mod') for _ in range(20)]
        drip = self.dial("GET /health HTTP/1.1\r\nX: ")
        while not self.stop.wait(0.2):
            try:
                drip.sendall(b"x")
            except OSError:
                drip = self.dial("GET /health HTTP/1.1\r\nX: ")
            big = self.dial(self.HEAD + "99999999\r\n\r\n")
            status = big.recv(100).split(b" ")[1:2]
            big.close()
            if status != [b"413"]:
                self.odd.append(status)
            self.laps += 1
        for connection in [*half, drip]:
            connection.close()


def storm(server, clients, bodies):
    work, answers = queue.Queue(), []
    for item in bodies:
        work.put(item)
    threads = [Client(server, work, answers) for _ in range(clients)]
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - begin
    bad = [a for a in answers if a[1] != 200]
    if bad or len(answers) != len(bodies):
        sys.exit(f"load: {len(bad)} of {len(bodies)} requests failed, the first: {bad[:1]}")
    return answers, seconds


def body_of(args, model, prompt, seed, temperature):
    return {"model": model, "prompt": prompt, "max_tokens": args.tokens, "temperature": temperature, "seed": seed}


def check(args, prefixes, answers, bodies):
    """Every answer against generate's for the same prompt, prefix and seed."""
    asked, wrong, said = dict(bodies), 0, {}
    for key, _, text, _ in answers:
        body, choice = asked[key], json.loads(text)["choices"][0]
        same = (body["model"], body["prompt"], body["seed"], body["temperature"])
        if same not in said:
            said[same] = json.loads(run(args, "generate", "--base", args.base, *(
                ["--prefix", prefixes[body["model"]]] if body["model"] in prefixes else []), "--prompt", body["prompt"],
                "--seed", str(body["seed"]), "--temperature", str(body["temperature"]), "--max-tokens",
                str(args.tokens), "--precision", args.precision, "--json", "--quiet"))["text"]
        if said[same] != choice["text"]:
            wrong += 1
            print(f"load: {same}: {choice['text']!r}, generate says {said[same]!r}")
    print(f"{len(answers)} answers, {len(said)} different ones, {wrong} not as generate's")
    return wrong


def loaded(args, prefixes):
    names = [*prefixes, "bare"]
    bodies = []
    for i in range(args.clients * args.requests):
        seed = i % 2 * (i + 1)
        bodies.append((i, body_of(args, names[i % len(names)], f"{WORDS[i // len(names) % len(WORDS)]}, noun:", seed,
                                  0.8 if seed else 0)))
    server = Server(args, prefixes)
    vandals = Vandals(server)
    vandals.start()
    try:
        answers, seconds = storm(server, args.clients, bodies)
        figures = server.get("/metrics")
    finally:
        vandals.stop.set()
        vandals.join()
        code = server.stop()
    print(f"beside them 41 half-open connections and {vandals.laps} oversized requests, {len(vandals.odd)} not refused with 413")
    tokens = sum(json.loads(a[2])["usage"]["completion_tokens"] for a in answers)
    times = sorted(a[3] for a in answers)
    steps = re.search(r"kvfold_batch_rows_sum (\S+)\nkvfold_batch_rows_count (\S+)", figures)
    print(f"{args.clients} clients, {len(prefixes)} prefixes: {len(answers)} requests in {seconds:.1f} s, "
          f"{tokens / seconds:.0f} tokens/s, {float(steps[1]) / float(steps[2]):.1f} rows a step, median "
          f"{times[len(times) // 2]:.2f} s, slowest {times[-1]:.2f} s, exit status {code}")
    return check(args, prefixes, answers, bodies) + (code != 143) + len(vandals.odd)


def measured(args, prefixes):
    names = list(prefixes) or ["bare"]
    server = Server(args, prefixes)
    try:
        measure_with(args, names, server)
    finally:
        server.stop()
    return 0


def measure_with(args, names, server):
    for clients in (1, 16, 64):
        bodies = [(i, body_of(args, names[i % len(names)], f"{WORDS[i % len(WORDS)]}, noun:", i, 0.8))
                  for i in range(max(clients * args.requests, 48))]
        cpu = server.cpu_seconds()
        answers, seconds = storm(server, clients, bodies)
        cpu = server.cpu_seconds() - cpu
        tokens = sum(json.loads(a[2])["usage"]["completion_tokens"] for a in answers)
        print(f"{clients} clients: {tokens} tokens in {seconds:.1f} s, {tokens / seconds:.0f} tokens/s, "
              f"{tokens / cpu:.0f} per second of the server's CPU time", flush=True)


class Stream(threading.Thread):
    """One streamed completion, and when its events came."""

    def __init__(self, server, body):
        super().__init__()
        self.server, self.body, self.times = server, body, []

    def run(self):
        connection = http.client.HTTPConnection(self.server.host, self.server.port, timeout=600)
        self.begin = time.monotonic()
        connection.request("POST", "/v1/completions", json.dumps(self.body | {"stream": True}),
                           {"Content-Type": "application/json"})
        for line in connection.getresponse():
            if line.startswith(b"data: {"):
                self.times.append(time.monotonic())

    def first(self):
        return self.times[0] - self.begin

    def gaps(self, since):
        return [b - a for a, b in zip(self.times, self.times[1:]) if b > since]


def stalled(args, prefixes):
    """Streams go on, a long prompt arrives, and a short one after it."""
    names = list(prefixes) or ["bare"]
    server = Server(args, prefixes)
    try:
        others = [Stream(server, body_of(args, names[i % len(names)], f"{WORDS[i]}, noun:", i + 1, 0.8) | {"max_tokens": 200})
                  for i in range(8)]
        late = [Stream(server, body_of(args, names[0], prompt, 1, 0.8) | {"max_tokens": 4})
                for prompt in ([1000 + i * 7919 % 40000 for i in range(args.long)], "Late, noun:")]
        for stream in others:
            stream.start()
        while min(len(stream.times) for stream in others) < 10 and any(stream.is_alive() for stream in others):
            time.sleep(0.01)
        for stream in late:
            stream.start()
            time.sleep(0.05)
        for stream in [*others, *late]:
            stream.join()
    finally:
        server.stop()
    gaps = sorted(gap for stream in others for gap in stream.gaps(late[0].begin) if gap)
    print(f"{args.long} tokens arrive beside 8 streams: their first answer after {late[0].first():.2f} s, that of a short prompt "
          f"behind them after {late[1].first():.2f} s; between two tokens of the 8 at most {gaps[-1]:.2f} s, "
          f"median {gaps[len(gaps) // 2]:.3f} s", flush=True)
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kvfold", required=True)
    parser.add_argument("--base", required=True)
    parser.add_argument("--work", default=None)
    parser.add_argument("--from", dest="source", metavar="FILE", help="prefix file to make all of")
    parser.add_argument("--prefixes", type=int, default=32)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--requests", type=int, default=4, help="of each client")
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--precision", default="f32", help="of server and generate alike (f32)")
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--long", type=int, metavar="N", help="tokens of a prompt that arrives beside 8 streams")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        args.work = args.work or folder
        os.makedirs(args.work, exist_ok=True)
        prefixes = make_prefixes(args)
        what = stalled if args.long else measured if args.measure else loaded
        wrong = what(args, prefixes)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
