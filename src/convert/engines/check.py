"""Checks that a llama-server answers with the prefix: check.py [URL [SLOT [PROMPT]]]. Exit status 0: it does."""
import json
import sys
import urllib.error
import urllib.request

IDS = [@ids@]
URL, SLOT, PROMPT = (sys.argv[1:] + ["http://127.0.0.1:8080", "0", "Internet, noun:"][len(sys.argv) - 1:])[:3]


def fail(line):
    sys.exit(f"check.py: {line}")


def post(path, body):
    request = urllib.request.Request(URL + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        return json.load(urllib.request.urlopen(request))
    except urllib.error.HTTPError as error:
        fail(f"{path}: {error.code} {error.read().decode()}")
    except OSError as error:
        fail(f"{URL}: {error}")


def restore():
    n = post(f"/slots/{SLOT}?action=restore", {"filename": "prefix.state"})["n_restored"]
    if n != @P@:
        fail(f"slot {SLOT} restored {n} tokens, want @P@: is this folder the server's --slot-save-path?")


def ask(prompt):
    answer = post("/completion", {"prompt": prompt, "n_predict": 16, "temperature": 0, "id_slot": int(SLOT)})
    return answer["content"], answer["timings"]["cache_n"]


restore()
text, cached = ask([*IDS, PROMPT])
post(f"/slots/{SLOT}?action=erase", {})
plain, bare = ask([*IDS, PROMPT])[0], ask(PROMPT)[0]
restore()
print(f"with the prefix:        {text!r}\nids as ordinary tokens: {plain!r}\nbare:                   {bare!r}")
if cached < @P@:
    fail(f"the server computed the ids as ordinary tokens (cache_n {cached}, want at least @P@)@window?: start it with --swa-full@")
if text in (plain, bare):
    fail("the answer is the same without the prefix: it is not in use, or this prompt does not show it; give another PROMPT")
print("the prefix is in use")
