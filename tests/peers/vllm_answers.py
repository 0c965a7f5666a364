"""Answers of vLLM for vllm_connector.py, in a Python that has vLLM: reads the request that is its argument, and writes what was asked.

rows: {"ids", and "prefix", its number, or null}; as they are given, one batch after the other."""
import json
import os
import sys

os.environ.update({"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_HOST_IP": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo",
                   "VLLM_LOGGING_LEVEL": "WARNING"})

from kvfold.vllm import placeholders, transfer
from vllm import LLM, SamplingParams


def answer(said):
    out = said.outputs[0]
    likeliest = [(token, p.logprob) for token, p in out.logprobs[0].items()] if out.logprobs else []
    prompt = [None if p is None else p[t].logprob for t, p in zip(said.prompt_token_ids, said.prompt_logprobs)] if said.prompt_logprobs else []
    return {"prompt": said.prompt_token_ids, "ids": list(out.token_ids), "text": out.text, "cached": said.num_cached_tokens,
            "likeliest": likeliest, "prompt_logprobs": prompt}


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        request = json.load(file)
    llm = LLM(request["model"], dtype="float32", max_model_len=1024, max_num_batched_tokens=request["step"], enforce_eager=True, max_num_seqs=4,
              block_size=32, max_logprobs=request["likeliest"], kv_transfer_config=transfer(*request["prefixes"]))
    ids = [placeholders(path, llm.get_tokenizer()) for path in request["prefixes"]]
    batches = []
    for batch in request["batches"]:
        prompts = [{"prompt_token_ids": (ids[row["prefix"]] if row["prefix"] is not None else []) + row["ids"]} for row in batch["rows"]]
        sampling = SamplingParams(temperature=0, max_tokens=request["new"], logprobs=batch.get("likeliest"), prompt_logprobs=batch.get("prompt"))
        batches.append([answer(said) for said in llm.generate(prompts, sampling, use_tqdm=False)])
    template = llm.get_tokenizer().decode(ids[0]) + llm.get_tokenizer().chat_template
    chats = llm.chat([[{"role": "user", "content": text}] for text in request["chats"]], SamplingParams(temperature=0, max_tokens=request["new"]),
                     chat_template=template, use_tqdm=False)
    with open(request["out"], "w", encoding="utf-8") as file:
        json.dump({"ids": ids, "batches": batches, "chats": [answer(said) for said in chats]}, file)


if __name__ == "__main__":
    main()
