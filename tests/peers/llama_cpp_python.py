"""llama-cpp-python with an exported prefix, against `kvfold generate`; its state is loaded as README.md of the folder says."""
import ctypes
import os

import llama_cpp
import numpy as np

import engine
import program


class Python:
    name = "llama-cpp-python"

    def __init__(self, args):
        self.args = args

    def open(self, model):
        return llama_cpp.Llama(model, n_ctx=1024, n_threads=self.args.threads, verbose=False)

    def ask(self, model, folder, prompts):
        llm, ids, answers = self.open(model), engine.placeholders(folder) if folder else [], []
        state = os.path.join(folder, "prefix.state").encode() if folder else None

        def restore():
            llm.reset()
            if not folder:
                return
            room, n = (llama_cpp.llama_token * len(ids))(), ctypes.c_size_t()
            if not llama_cpp.llama_state_seq_load_file(llm.ctx, state, 0, room, len(ids), n):
                raise SystemExit("llama-cpp-python refuses the state")
            llm.input_ids[:len(ids)] = ids
            llm.n_tokens = len(ids)

        for prompt in prompts:
            restore()
            tokens = ids + llm.tokenize(prompt.encode(), add_bos=False, special=True)
            text = llm.create_completion(tokens, max_tokens=engine.NEW, temperature=0)["choices"][0]["text"]
            answers.append((llm.tokenize(text.encode(), add_bos=False, special=True), text))
        return answers

    def bare(self, model, prompts):
        llm = llama_cpp.Llama(model, n_ctx=1024, n_threads=self.args.threads, logits_all=True, verbose=False)
        found = []
        for prompt in prompts:
            ids = llm.tokenize(prompt.encode(), add_bos=False, special=True)
            llm.reset()
            llm.eval(ids)
            row = engine.log_probabilities(np.array(llm.scores[len(ids) - 1], np.float64))
            found.append((ids, dict(enumerate(row.tolist()))))
        return found


args = engine.parse(__doc__)
engine.compare_engine(args, Python(args))
program.finish()
