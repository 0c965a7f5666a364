"""A `kvfold serve` for clients: the base as `bare` and the prefix as `p`, in f32, on a free port of this machine."""
import json
import os
import re
import signal
import subprocess
import urllib.request
from contextlib import contextmanager

import program

os.environ["no_proxy"] = "127.0.0.1"
PROMPT, QUESTION, NEW = "Internet, noun:", "Name three colours.", 16


@contextmanager
def serve(args, *more):
    """The server's address; its end is that of a server that was asked to stop."""
    command = [os.path.join(args.build, "kvfold"), "serve", "--base", args.model, "--base-name", "bare", "--prefix", f"p={args.prefix}",
               "--port", "0", "--precision", "f32", "--threads", str(args.threads), *more]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_WAIT_POLICY": "passive"})
    try:
        started = re.match(r"listening on (\S+)", server.stdout.readline())
        if not started:
            raise SystemExit("kvfold serve did not start")
        yield started[1]
    finally:
        server.send_signal(signal.SIGTERM)
        code = server.wait(60)
    program.expect("exit status of the server", code, 128 + signal.SIGTERM)


def ask(url, path, **body):
    """The first choice of a greedy answer with the prefix, by plain HTTP."""
    body = {"model": "p", "max_tokens": NEW, "temperature": 0, **body}
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["choices"][0]


def answers(url):
    """What a client must get: (completion of PROMPT, answer to QUESTION)."""
    chat = ask(url, "/v1/chat/completions", messages=[{"role": "user", "content": QUESTION}])
    return ask(url, "/v1/completions", prompt=PROMPT)["text"], chat["message"]["content"]
