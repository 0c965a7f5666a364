"""node-llama-cpp (npm) with an exported prefix, against `kvfold generate`: prompts, and a chat with the exported template.
--node: the folder where `npm install node-llama-cpp` was run."""
import json
import os
import shutil
import subprocess

import engine
import program

SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"  # of the model's own template
TURN = 1  # <|im_start|>
SCRIPT = "node_llama_cpp.mjs"


class Node:
    name = "node-llama-cpp"

    def __init__(self, args):
        self.args = args
        shutil.copy(os.path.join(os.path.dirname(os.path.abspath(__file__)), SCRIPT), args.node)

    def call(self, model, folder, prompts, **more):
        work = os.path.abspath(self.args.work)
        request, out = os.path.join(work, "node_request.json"), os.path.join(work, "node_answers.json")
        with open(request, "w", encoding="utf-8") as file:
            json.dump({"model": model, "folder": folder, "prompts": prompts, "new": engine.NEW, "threads": self.args.threads, "out": out,
                       **more}, file)
        subprocess.run(["node", SCRIPT, request], cwd=self.args.node, check=True)
        with open(out, encoding="utf-8") as file:
            return json.load(file)

    def ask(self, model, folder, prompts):
        answers = self.call(model, folder, prompts)
        if folder:
            sizes = [len(self.tokens[prompt]) for prompt in prompts]
            program.report("node-llama-cpp: tokens read beyond the prompts' own", sum(a["read"] - n for a, n in zip(answers, sizes)), 0)
        return [(answer["ids"], answer["text"]) for answer in answers]

    def bare(self, model, prompts):
        found = self.call(model, None, prompts, likeliest=10 * engine.LIKELIEST)
        self.tokens = {prompt: answer["ids"] for prompt, answer in zip(prompts, found)}
        return [(answer["ids"], {token: p for token, p in answer["logprobs"]}) for answer in found]


def chats(args, node, model, largest):
    question = "What is the internet?"
    folder = engine.export(args, model, node.name)
    (found,) = node.call(model, folder, [question], system=SYSTEM)
    ours = engine.generate(args, model, [{"messages": [{"role": "user", "content": question}]}], True)
    begins = len(found["chat"]) - found["chat"][::-1].index(TURN) + 2  # behind "<|im_start|>assistant\n"
    prompt, answer = found["chat"][:begins], found["chat"][begins:]
    engine.compare(args, "node-llama-cpp, f32, chat", model, engine.prefix_of(args, model, folder), [prompt], [(answer, found["text"])], ours,
                   largest, 0)


args = engine.parse(__doc__, ("--node", {"required": True}))
node = Node(args)
largest = engine.compare_engine(args, node)
chats(args, node, engine.f32_model(args), largest["f32"])
program.finish()
