"""llama-server, as PyPI's xllamacpp has it, with an exported prefix, against `kvfold generate`: /completion with one slot and with
four, whose cache is unified or not, /v1/chat/completions, and what loses a prefix without a word."""
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import xllamacpp

import engine
import program

QUESTIONS = ["What is the internet?", "Define: Meeting", "Say something about marriage."]


class Server:
    """One server in this process; the prefix is restored into all of its slots."""

    def __init__(self, args, model, folder, slots=1, unified=True, restored=True, clears_idle=False, swa_full=True):
        params = xllamacpp.CommonParams()
        params.model.path, params.port, params.verbosity = model, 0, 0
        params.n_parallel, params.n_ctx, params.kv_unified = slots, 1024 * slots, unified
        params.cache_idle_slots, params.swa_full = clears_idle, swa_full
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = args.threads
        if folder:
            params.slot_save_path = folder + "/"
            template = os.path.join(folder, "chat_template.jinja")
            if os.path.exists(template):
                with open(template, encoding="utf-8") as file:
                    params.chat_template = file.read()
        self.server, self.slots = xllamacpp.Server(params), slots
        self.ids = engine.placeholders(folder) if folder else []
        self.begin = self.ids and self.ids + self.tokens("")
        for slot in range(slots if folder and restored else 0):
            self.restore(slot)

    def post(self, path, body):
        request = urllib.request.Request(self.server.listening_address + path, json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        try:
            return json.load(urllib.request.urlopen(request))
        except urllib.error.HTTPError as error:
            raise SystemExit(f"{path}: {error.code} {error.read().decode()}")

    def tokens(self, text):
        """With BOS where the model has it."""
        return self.post("/tokenize", {"content": text, "add_special": True})["tokens"]

    def restore(self, slot):
        self.post(f"/slots/{slot}?action=restore", {"filename": "prefix.state"})

    def complete(self, prompt, slot=0, **more):
        return self.post("/completion", {"prompt": self.begin + [prompt] if self.begin else prompt, "n_predict": engine.NEW, "temperature": 0,
                                         "id_slot": slot, "return_tokens": True, **more})

    def chat(self, text, slot=0):
        body = {"messages": [{"role": "user", "content": text}], "max_tokens": engine.NEW, "temperature": 0, "id_slot": slot}
        return self.post("/v1/chat/completions", body)

    def all(self, call, prompts):
        """Answers of as many clients as there are slots."""
        with ThreadPoolExecutor(self.slots) as pool:
            return list(pool.map(lambda pair: call(pair[1], pair[0] % self.slots), enumerate(prompts)))


class LlamaServer:
    name = "llama-server"

    def __init__(self, args, slots=1, unified=True):
        self.args, self.slots, self.unified = args, slots, unified

    def ask(self, model, folder, prompts):
        server = Server(self.args, model, folder, self.slots, self.unified)
        answers = server.all(server.complete, prompts)
        missing = sum(answer["timings"]["cache_n"] < len(server.ids) for answer in answers)
        if folder:
            program.report(f"llama-server, {self.slots} slots: answers with cache_n below P", missing, 0)
        return [(answer["tokens"], answer["content"]) for answer in answers]

    def bare(self, model, prompts):
        server, found = Server(self.args, model, None), []
        for prompt in prompts:
            ids = server.tokens(prompt)
            answer = server.complete(prompt, n_predict=1, n_probs=10 * engine.LIKELIEST)
            likeliest = answer["completion_probabilities"][0]["top_logprobs"]
            found.append((ids, {item["id"]: item["logprob"] for item in likeliest}))
        return found


def chats(args, model, slots, largest):
    """The template begins with the ids: a chat is read behind the restored prefix."""
    folder = engine.export(args, model, "llama-server")
    server = Server(args, model, folder, slots)
    answers = server.all(server.chat, QUESTIONS)
    ours = engine.generate(args, model, [{"messages": [{"role": "user", "content": text}]} for text in QUESTIONS], True)
    texts = [answer["choices"][0]["message"]["content"] for answer in answers]
    program.report(f"llama-server, {slots} slots: chats with cache_n below P",
                   sum(answer["timings"]["cache_n"] < len(server.ids) for answer in answers), 0)
    ids, tokens = [], []
    for question, text in zip(QUESTIONS, texts):
        prompt = server.post("/apply-template", {"messages": [{"role": "user", "content": question}]})["prompt"]
        ids.append(server.post("/tokenize", {"content": prompt})["tokens"][len(server.ids):])
        tokens.append((server.post("/tokenize", {"content": text})["tokens"], text))
    engine.compare(args, f"llama-server, f32, {slots} slots, chats", model, engine.prefix_of(args, model, folder), ids, tokens, ours, largest,
                   0)


def losses(args, model):
    """Each of these computes the ids as tokens, says so in cache_n alone, and answers something else."""
    folder = engine.export(args, model, "llama-server")
    prompt = engine.PROMPTS[0]

    def lost(what, server, answer):
        program.report(f"llama-server: {what}: tokens of the prefix in use", answer["timings"]["cache_n"] >= len(server.ids), 0)
        program.report(f"llama-server: {what}: the same answer", answer["content"] == right, 0)

    server = Server(args, model, folder)
    right = server.complete(prompt)["content"]
    lost("cache_prompt false", server, server.complete(prompt, cache_prompt=False))
    program.report("llama-server: after cache_prompt false: the same answer", server.complete(prompt)["content"] == right, 0)
    server.restore(0)
    program.report("llama-server: restored again: another answer", server.complete(prompt)["content"] != right, 0)
    server.post("/slots/0?action=erase", {})
    lost("an erased slot", server, server.complete(prompt))
    server.restore(0)
    only = server.post("/completion", {"prompt": server.ids, "n_predict": 1, "id_slot": 0})
    program.report("llama-server: a prompt of the ids alone: all of them in use", only["timings"]["cache_n"] >= len(server.ids), 0)
    server = Server(args, model, folder, 4, restored=False)
    server.restore(2)
    lost("a slot that was not restored", server, server.complete(prompt, 1))
    server = Server(args, model, folder, 4, clears_idle=True)
    server.complete(prompt)
    lost("an idle slot that was cleared", server, server.complete(prompt, 1))


def checks(args, model, slots, unified, *more):
    """The exit status of the exported check.py for the last slot, which is not restored yet."""
    folder = engine.export(args, model, "llama-server", *more)
    server = Server(args, model, folder, slots, unified, restored=False)
    command = [sys.executable, os.path.join(folder, "check.py"), server.server.listening_address, str(slots - 1)]
    program.report(f"llama-server, {slots} slots: check.py fails", subprocess.run(command).returncode, 0)


def main():
    args = engine.parse(__doc__)
    largest = engine.compare_engine(args, LlamaServer(args))
    engine.compare_engine(args, LlamaServer(args, 4))
    engine.compare_engine(args, LlamaServer(args, 4, False), ["--streams", "4"])
    f32 = engine.f32_model(args)
    for slots in (1, 4):
        chats(args, f32, slots, largest["f32"])
    losses(args, f32)
    checks(args, f32, 1, True)
    checks(args, f32, 4, True)
    checks(args, f32, 4, False, "--streams", "4")
    program.finish()


if __name__ == "__main__":
    main()
