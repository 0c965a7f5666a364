#!/usr/bin/env python3
"""Many tenants on one server: time until ready, memory, cold and warm first tokens, lists, mixed prefixes, and common text.

  tenants.py --kvfold build/kvfold --base MODEL --from prefix.h5 [--work DIR]

Makes N prefixes from one file with noise in --work, starts `kvfold serve --prefix-dir` on them, and prints the tables of
docs/measured.md, "Many tenants". Needs h5py and N times the size of the file in --work. Standard library otherwise.
"""
import argparse
import http.client
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time


def make_prefixes(args):
    """Adds noise of 0.05 to the values of each copy."""
    import h5py
    import numpy as np
    rng = np.random.default_rng(1)
    for i in range(args.prefixes):
        path = os.path.join(args.work, f"{i % 100:02d}", f"t{i:05d}.h5")
        if os.path.exists(path):
            continue
        os.makedirs(os.path.dirname(path), exist_ok=True)
        shutil.copyfile(args.source, path)
        with h5py.File(path, "r+") as file:
            data = file["prefix/past_key_values"]
            data[...] = data[...] + rng.normal(0, 0.05, data.shape).astype(data.dtype)


def name_of(i):
    return f"{i % 100:02d}/t{i:05d}"


class Server:
    def __init__(self, args, *options):
        begin = time.monotonic()
        self.process = subprocess.Popen(
            [args.kvfold, "serve", "--base", args.base, "--base-name", "bare", "--port", "0", "--precision", args.precision,
             "--quiet", *options], stdout=subprocess.PIPE, text=True)
        found = re.match(r"listening on http://([\d.]+):(\d+)", self.process.stdout.readline())
        if not found:
            sys.exit("tenants: the server does not start")
        self.seconds = time.monotonic() - begin
        self.host, self.port = found[1], int(found[2])

    def connect(self):
        return http.client.HTTPConnection(self.host, self.port, timeout=600)

    def resident(self):
        with open(f"/proc/{self.process.pid}/smaps_rollup") as file:
            return int(re.search(r"Anonymous: *(\d+) kB", file.read())[1]) / 1024

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(120)


def first_token(connection, name, prompt="Internet, noun:"):
    """Seconds until the first byte of the answer's text."""
    begin = time.monotonic()
    connection.request("POST", "/v1/completions", json.dumps({
        "model": name, "prompt": prompt, "max_tokens": 1, "temperature": 0, "stream": True}),
        {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        sys.exit(f"tenants: {name}: {response.read().decode()}")
    response.readline()
    seconds = time.monotonic() - begin
    response.read()
    return seconds


def quantiles(values):
    values = sorted(values)
    return f"{1000 * statistics.median(values):.1f} ms, p99 {1000 * values[int(0.99 * (len(values) - 1))]:.1f} ms"


def measure_folder(args):
    base = Server(args)
    base_seconds, connection = base.seconds, base.connect()
    for _ in range(20):
        first_token(connection, "bare")
    base_memory = base.resident()
    base.stop()
    server = Server(args, "--prefix-dir", args.work, "--prefix-memory", f"{args.memory}M")
    connection = server.connect()
    chosen = random.Random(2).sample(range(args.prefixes), 50)
    for i in chosen:  # into the page cache
        with open(os.path.join(args.work, name_of(i) + ".h5"), "rb") as file:
            file.read()
    first_token(connection, "bare")
    cold, warm = [], []
    for i in chosen:
        cold.append(first_token(connection, name_of(i)))
        warm.append(first_token(connection, name_of(i)))
    for i in random.Random(3).sample(range(args.prefixes), min(args.prefixes, 1000)):
        first_token(connection, name_of(i))
    begin = time.monotonic()
    connection.request("GET", "/v1/models")
    body = connection.getresponse().read()
    whole = time.monotonic() - begin
    pages, after = [], ""
    while True:
        begin = time.monotonic()
        connection.request("GET", f"/v1/models?limit=100{after}")
        page = json.loads(connection.getresponse().read())
        pages.append(time.monotonic() - begin)
        if not page["has_more"]:
            break
        after = "&after=" + page["data"][-1]["id"]
    rows = [
        ("ready, base alone", f"{base_seconds:.2f} s"),
        (f"ready, {args.prefixes} prefixes", f"{server.seconds:.2f} s"),
        ("first token, warm", quantiles(warm)),
        ("first token, cold", quantiles(cold)),
        ("cold minus warm, median", f"{1000 * (statistics.median(cold) - statistics.median(warm)):.1f} ms"),
        ("memory of the base alone", f"{base_memory:.0f} MiB"),
        (f"memory after 1,050 prefixes, --prefix-memory {args.memory}M", f"{server.resident():.0f} MiB"),
        ("more than base and --prefix-memory", f"{server.resident() - base_memory - args.memory:.0f} MiB"),
        (f"/v1/models, all {len(json.loads(body)['data'])}", f"{1000 * whole:.0f} ms, {len(body) / 2**20:.1f} MiB"),
        ("/v1/models?limit=100, slowest page", f"{1000 * max(pages):.1f} ms"),
    ]
    server.stop()
    print("| what | measured |\n|---|---|")
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)


def rate(server, names, requests, tokens):
    """Tokens a second of 64 clients, client k on names[k % len(names)], and seconds to each first token."""
    firsts, written, lock = [], [0], threading.Lock()

    def client(k):
        connection = server.connect()
        for _ in range(requests):
            begin = time.monotonic()
            connection.request("POST", "/v1/completions", json.dumps({
                "model": names[k % len(names)], "prompt": "Internet, noun:", "max_tokens": tokens, "temperature": 1,
                "seed": k, "logit_bias": {"0": -100, "2": -100}, "stream": True, "stream_options": {"include_usage": True}}),
                {"Content-Type": "application/json"})
            response = connection.getresponse()
            response.readline()
            first = time.monotonic() - begin
            usage = json.loads(response.read().decode().split("data: ")[-2])["usage"]
            with lock:
                firsts.append(first)
                written[0] += usage["completion_tokens"]

    threads = [threading.Thread(target=client, args=(k,)) for k in range(64)]
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return written[0] / (time.monotonic() - begin), firsts


def measure_mixed(args):
    print("| --max-rows | tokens/s, one prefix | 64 prefixes | ratio | first token, one prefix | 64 prefixes |\n|---|---|---|---|---|---|")
    for rows in 16, 64:
        server = Server(args, "--prefix-dir", args.work, "--prefix-memory", f"{args.memory}M", "--max-rows", str(rows))
        one, many, times = [], [], ([], [])
        rate(server, [name_of(i) for i in range(64)], 1, 4)
        for _ in range(args.repeats):
            for names, rates, firsts in (([name_of(0)], one, times[0]), ([name_of(i) for i in range(64)], many, times[1])):
                speed, some = rate(server, names, 2, 32)
                rates.append(speed)
                firsts.extend(some)
        server.stop()
        print(f"| {rows} | {statistics.median(one):.0f} | {statistics.median(many):.0f} | "
              f"{statistics.median(many) / statistics.median(one):.2f} | {quantiles(times[0])} | {quantiles(times[1])} |", flush=True)


def measure_common(args):
    """A text of 850 words or so in front of a short question, ten times, with and without --cache-memory."""
    words = "The rules of this library are simple and old: return every book in time and speak softly near the windows".split()
    text = " ".join(random.Random(4).choice(words) for _ in range(850))
    print("| common text | first token |\n|---|---|")
    for name, options in ("read each time", []), ("`--cache-memory 1G`", ["--cache-memory", "1G"]):
        server = Server(args, *options)
        connection = server.connect()
        times = [first_token(connection, "bare", f"{text} Question {i}: may I sing?") for i in range(11)]
        server.stop()
        print(f"| {name} | {quantiles(times[1:])} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kvfold", required=True)
    parser.add_argument("--base", required=True)
    parser.add_argument("--from", dest="source", required=True, help="prefix file for the base")
    parser.add_argument("--work", help="folder of the prefixes, kept; default: a temporary one")
    parser.add_argument("--prefixes", type=int, default=10000)
    parser.add_argument("--memory", type=int, default=256, help="--prefix-memory in MiB")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--only", choices=["folder", "mixed", "common"])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        args.work = args.work or temporary
        if args.only != "common":
            make_prefixes(args)
        for name, measure in ("folder", measure_folder), ("mixed", measure_mixed), ("common", measure_common):
            if args.only in (None, name):
                measure(args)


if __name__ == "__main__":
    main()
