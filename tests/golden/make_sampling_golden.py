"""Penalties, min-p and beam search by transformers: what tests/infer/test_penalties.c and tests/infer/test_beam.c compare with.

Writes sampling.json:
  penalties: logits, ids of prompt and completion, settings -> logits. Biases and the repetition penalty are transformers'
      SequenceBiasLogitsProcessor and RepetitionPenaltyLogitsProcessor, the other two OpenAI's formula on what they give.
  min_p: logits, settings -> ids that may be drawn, by transformers' warpers in the order of its generate().
  beams: prompts of the models that make_model_golden.py made -> completions of generate(num_beams=...). Letters are the
      tokens of tests/toy_base.h.

Run: python make_sampling_golden.py   (torch 2.13, transformers 5.23; the versions used are stored in the file)
"""
import json
import os

import torch
import transformers
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.generation.logits_process import (MinPLogitsWarper, RepetitionPenaltyLogitsProcessor,
                                                    SequenceBiasLogitsProcessor, TemperatureLogitsWarper, TopKLogitsWarper,
                                                    TopPLogitsWarper)

from make_model_golden import HERE

LETTERS = " abcdefghijklmnopqrstuvwxyz0123456789.,:;!?-+*/()=<>[]{}_%&"
V = 40


def penalties(generator):
    for repetition, frequency, presence, biases in [(1.3, 0, 0, {}), (0.7, 0, 0, {}), (1, 0.4, 0, {}), (1, 0, 1.5, {}),
                                                    (1, -0.6, -1.1, {}), (1, 0, 0, {3: -100, 7: 2.5}),
                                                    (1.7, 0.3, -0.2, {1: 4, 39: -1.25})]:
        logits = 3 * torch.randn(V, generator=generator)
        prompt = torch.randint(V, (9,), generator=generator).tolist()
        out = torch.randint(8, (12,), generator=generator).tolist()
        ids, scores = torch.tensor([prompt + out]), logits[None]
        if biases:
            scores = SequenceBiasLogitsProcessor({(i,): float(b) for i, b in biases.items()})(ids, scores)
        if repetition != 1:
            scores = RepetitionPenaltyLogitsProcessor(repetition)(ids, scores)
        counts = torch.bincount(torch.tensor(out), minlength=V)
        scores = scores - (frequency * counts + presence * (counts > 0))
        yield {"repetition": repetition, "frequency": frequency, "presence": presence, "bias": list(biases.items()),
               "prompt": prompt, "out": out, "logits": logits.tolist(), "want": scores[0].tolist()}


def min_p(generator):
    for temperature, top_k, top_p, least in [(1, 0, 1, 0.1), (2, 0, 1, 0.3), (0.5, 0, 1, 0.02), (1, 8, 1, 0.05),
                                             (1, 0, 0.8, 0.2), (1, 0, 0.5, 0.01), (1.5, 12, 0.9, 0.15), (1, 0, 1, 1)]:
        logits = 2 * torch.randn(V, generator=generator)
        scores = TemperatureLogitsWarper(float(temperature))(None, logits[None])
        if top_k:
            scores = TopKLogitsWarper(top_k)(None, scores)
        if top_p < 1:
            scores = TopPLogitsWarper(top_p)(None, scores)
        scores = MinPLogitsWarper(float(least))(None, scores)[0]
        yield {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": least, "logits": logits.tolist(),
               "alive": torch.nonzero(scores > -float("inf")).flatten().tolist()}


def model_of(name):
    folder = os.path.join(HERE, "model_" + name)
    with open(os.path.join(folder, "config.json")) as file:
        config = AutoConfig.for_model(**json.load(file))
    model = AutoModelForCausalLM.from_config(config).eval()
    stored = load_file(os.path.join(folder, "model.safetensors"))
    model.load_state_dict({k: v.float() for k, v in stored.items() if not k.startswith("golden.")}, strict=False)
    return model


def beams():
    for name in ["llama_tied", "qwen3"]:
        model = model_of(name)
        for prompt, n, length, penalty, repetition, ends in [
                ("the answer is", 2, 12, 1.0, 1.0, [2]), ("the answer is", 5, 12, 1.0, 1.0, [2]),
                ("x", 4, 20, 1.0, 1.0, [45, 32]), ("1+1=", 3, 16, 0.0, 1.0, [46, 18]), ("1+1=", 3, 16, 2.5, 1.0, [46, 18]),
                ("1+1=", 3, 16, -2.0, 1.0, [46, 18, 28]), ("under the", 6, 10, -1.0, 1.0, [25, 32]),
                ("under the", 4, 10, 1.0, 1.0, [51, 56]), ("one of them", 4, 18, 1.0, 1.8, [28, 17]),
                ("q", 40, 3, 1.0, 1.0, [11, 25]), ("zz", 3, 1, 1.0, 1.0, [2]), ("so it was", 3, 24, 0.6, 1.0, [7, 28, 15])]:
            ids = torch.tensor([[LETTERS.index(c) for c in prompt]])
            out = model.generate(ids, num_beams=n, do_sample=False, max_new_tokens=length, length_penalty=penalty,
                                 repetition_penalty=repetition, eos_token_id=ends, pad_token_id=0, use_cache=True,
                                 attention_mask=torch.ones_like(ids))[0, ids.shape[1]:].tolist()
            ended = [i for i, token in enumerate(out) if token in ends]
            out = out[:ended[0]] if ended else out
            yield {"model": name, "prompt": prompt, "beams": n, "max_tokens": length, "length_penalty": penalty,
                   "repetition": repetition, "ends": ends, "ids": out}


if __name__ == "__main__":
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(22)
    golden = {"versions": f"torch {torch.__version__}, transformers {transformers.__version__}",
              "penalties": list(penalties(generator)), "min_p": list(min_p(generator)), "beams": list(beams())}
    with open(os.path.join(HERE, "sampling.json"), "w") as file:
        json.dump(golden, file, separators=(",", ":"))
        file.write("\n")
    for case in golden["beams"]:
        print(case)
