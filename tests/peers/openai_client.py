"""The real OpenAI client (PyPI openai) against `kvfold serve`: completions, chats, streams, models, errors, tokens."""
import json
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor

import openai

import program
import served
from program import expect
from served import PROMPT


def generate(args, prompt, prefix=None, seed=0, temperature=0, chat=None):
    more = ["--prefix", prefix] if prefix else []
    more += ["--chat-template", chat] if chat else []
    return program.kvfold(args, "generate", "--base", args.model, "--prompt", prompt, "--max-tokens", 24, "--precision", "f32", "--seed",
                          seed, "--temperature", temperature, "--threads", args.threads, "--quiet", *more)["text"]


def refused(what, kind, call):
    try:
        call()
    except kind as error:
        expect(what, type(error), kind)
        return error
    raise SystemExit(f"openai_client: {what}: nothing was raised")


def check_completions(args, client, names):
    for name, path in names.items():
        got = client.completions.create(model=name, prompt=PROMPT, max_tokens=24, temperature=0)
        expect(f"completion by {name}", got.choices[0].text, generate(args, PROMPT, path))
        expect(f"usage of {name}", got.usage.total_tokens, got.usage.prompt_tokens + got.usage.completion_tokens)
    name, path = list(names.items())[-1]
    drawn = client.completions.create(model=name, prompt=PROMPT, max_tokens=24, temperature=0.8, seed=5)
    want = generate(args, PROMPT, path, 5, 0.8)
    expect("a drawn completion", drawn.choices[0].text, want)
    pieces = list(client.completions.create(model=name, prompt=PROMPT, max_tokens=24, temperature=0.8, seed=5,
                                            stream=True))
    expect("the same as a stream", "".join(p.choices[0].text for p in pieces), want)
    expect("its end", pieces[-1].choices[0].finish_reason, drawn.choices[0].finish_reason)


def check_choices(args, client, names):
    """Choice i is what the i-th of n like prompts is answered."""
    name, path = list(names.items())[-1]
    want = [generate(args, PROMPT, path, 5, 0.8), *generate_choices(args, path)]
    got = client.completions.create(model=name, prompt=PROMPT, max_tokens=24, temperature=0.8, seed=5, n=3)
    expect("three choices", [c.text for c in got.choices], want)
    expect("their numbers", [c.index for c in got.choices], [0, 1, 2])
    texts, ends, usage = ["", "", ""], [None] * 3, None
    for piece in client.completions.create(model=name, prompt=PROMPT, max_tokens=24, temperature=0.8, seed=5, n=3,
                                           stream=True, stream_options={"include_usage": True}):
        usage = piece.usage or usage
        for choice in piece.choices:
            texts[choice.index] += choice.text
            ends[choice.index] = choice.finish_reason or ends[choice.index]
    expect("three choices in a stream", texts, want)
    expect("their ends", ends, [c.finish_reason for c in got.choices])
    expect("their usage", usage.completion_tokens, got.usage.completion_tokens)


def check_prompts(args, client, names):
    """Several prompts in one request, as texts, and during more choices than there are rows."""
    name, path = list(names.items())[-1]
    asked = [PROMPT, "Winter, noun:", "Garden, noun:"]
    want = [generate(args, prompt, path) for prompt in asked]
    got = client.completions.create(model=name, prompt=asked, max_tokens=24, temperature=0)
    expect("three prompts", [c.text for c in got.choices], want)
    got = client.completions.create(model=name, prompt=asked, max_tokens=24, temperature=0, n=8)
    expect("eight answers to each", [c.text for c in got.choices], [text for text in want for _ in range(8)])


def generate_choices(args, path):
    """The second and third of three like prompts, each computed alone."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as rows:
        rows.write((json.dumps({"prompt": PROMPT, "completion": ""}) + "\n") * 3)
        rows.flush()
        more = ["--prefix", path] if path else []
        return program.kvfold(args, "generate", "--base", args.model, "--data", rows.name, "--max-tokens", 24, "--seed", 5, "--precision",
                              "f32", "--temperature", 0.8, "--batch-size", 1, "--threads", args.threads, "--quiet", *more)["texts"][1:]


def check_chats(args, client):
    messages = [{"role": "user", "content": "Name three colours."}]
    want = generate(args, messages[0]["content"], chat="chatml")
    got = client.chat.completions.create(model="bare", messages=messages, max_tokens=24, temperature=0)
    expect("a chat", got.choices[0].message.content, want)
    pieces = list(client.chat.completions.create(model="bare", messages=messages, max_completion_tokens=24,
                                                 temperature=0, stream=True, stream_options={"include_usage": True}))
    expect("the role in a stream", pieces[0].choices[0].delta.role, "assistant")
    expect("a streamed chat", "".join(p.choices[0].delta.content or "" for p in pieces if p.choices), want)
    expect("its usage", pieces[-1].usage.completion_tokens, got.usage.completion_tokens)
    stopped = client.chat.completions.create(model="bare", messages=messages, max_tokens=24, temperature=0,
                                             stop=[want[5:9]])
    expect("a stop text", (stopped.choices[0].message.content, stopped.choices[0].finish_reason),
           (want[:want.index(want[5:9])], "stop"))
    parts = [{"role": "user", "content": [{"type": "text", "text": messages[0]["content"]}]}]
    got = client.chat.completions.create(model="bare", messages=parts, max_tokens=24, temperature=0)
    expect("content in parts", got.choices[0].message.content, want)


def check_refusals(args, client):
    error = refused("a model that is not there", openai.NotFoundError,
                    lambda: client.completions.create(model="nobody", prompt="x"))
    expect("its code", error.code, "model_not_found")
    error = refused("too many choices", openai.BadRequestError,
                    lambda: client.completions.create(model="bare", prompt="x", n=129))
    expect("its field", error.param, "n")
    error = refused("too many log-probabilities", openai.BadRequestError,
                    lambda: client.completions.create(model="bare", prompt="x", logprobs=21))
    expect("their field", error.param, "logprobs")
    refused("tools", openai.BadRequestError, lambda: client.chat.completions.create(
        model="bare", messages=[{"role": "user", "content": "x"}],
        tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}]))
    refused("no tokens", openai.BadRequestError,
            lambda: client.completions.create(model="bare", prompt="x", max_tokens=-1))
    other = openai.OpenAI(base_url=client.base_url, api_key="wrong", max_retries=0)
    refused("a wrong token", openai.AuthenticationError, other.models.list)


def check_many(args, client, names):
    """All at once, none of which may change another."""
    asked = [(name, path, f"{word}, noun:", seed) for seed, word in enumerate(["Winter", "Garden", "Music"])
             for name, path in names.items()]
    with ThreadPoolExecutor(len(asked)) as pool:
        got = list(pool.map(lambda a: client.completions.create(model=a[0], prompt=a[2], seed=a[3], temperature=0.9,
                                                                max_tokens=24).choices[0].text, asked))
    for text, (name, path, prompt, seed) in zip(got, asked):
        expect(f"{prompt} by {name}, among {len(asked)}", text, generate(args, prompt, path, seed, 0.9))


def main():
    args = program.parse(__doc__)
    names = {"bare": None, "p": args.prefix}
    token = os.path.join(args.work, "token")
    with open(token, "w", encoding="utf-8") as out:
        out.write("s3cret\n")
    with served.serve(args, "--token-file", token) as url:
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="s3cret", max_retries=0)
        expect("models", sorted(m.id for m in client.models.list()), sorted(names))
        expect("one model", client.models.retrieve("bare").owned_by, "kvfold")
        check_completions(args, client, names)
        check_choices(args, client, names)
        check_prompts(args, client, names)
        check_chats(args, client)
        check_refusals(args, client)
        check_many(args, client, names)
    program.finish()


main()
