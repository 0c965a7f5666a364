"""Gradients of the mean loss with respect to the prefix and to every parameter of PEFT's MLP encoder.

f32: relative L2 distance from torch f32, and from the same computation in f64, which tells whose rounding is seen. bf16: error against
f64, which must not be above that of torch.autocast(bfloat16) on the same model and rows; single figures scatter by a quarter, so
the geometric mean over the cases is held to that. At a random prefix SmolLM2 is so ill-conditioned that bf16 gives any
implementation an error of 0.1 to 1, and f32 one of 1e-4: reported for f32, bounded by twice torch's own error."""
import math

import torch
from peft import PrefixTuningConfig, get_peft_model

import peer

LENGTHS = [37, 9, 52, 24]
RATIOS = []


def prefix_gradient(model, rows, prefix):
    ids, mask, labels = peer.padded(rows, "right")
    whole = torch.cat([torch.ones(len(rows), peer.P, dtype=mask.dtype), mask], 1)
    leaf = prefix.detach().to(model.dtype).requires_grad_(True)
    loss = peer.loss_of(model(ids, attention_mask=whole, past_key_values=peer.cache_of(leaf, len(rows))).logits, labels)
    loss.backward()
    return {"loss": loss.detach(), "dprefix": leaf.grad[:, :, 0]}


def encoder_gradients(model, rows):
    ids, mask, labels = peer.padded(rows, "right")
    model.zero_grad()
    loss = peer.loss_of(model(input_ids=ids, attention_mask=mask).logits, labels)
    loss.backward()
    grads = {"grad." + k: v.grad.clone() for k, v in model.prompt_encoder["default"].named_parameters()}
    return {"loss": loss.detach(), **grads}


def compare(what, f32, bf16, torch32, torch16, torch64):
    def error(side, key):
        return peer.error(side[key].reshape(torch64[key].shape), torch64[key])

    for key, want in torch32.items():
        figures = f"from f64: kvfold {error(f32, key):.1e}, torch {error(torch32, key):.1e}"
        bound = 1e-5 if key == "loss" else max(1e-4, 2 * error(torch32, key))
        peer.report(f"{what}, {key}, f32 ({figures})", peer.error(f32[key].reshape(want.shape), want), bound)
    for key in torch32:
        if bf16 and key != "loss":
            ours, theirs = error(bf16, key), error(torch16, key)
            RATIOS.append(math.log(ours / theirs))
            peer.report(f"{what}, {key}, bf16 (bound: 1.5 x autocast, which is {theirs:.2e})", ours, 1.5 * theirs)


def peft_model(model):
    torch.manual_seed(11)
    config = PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=peer.P, prefix_projection=True, encoder_hidden_size=512)
    return get_peft_model(model, config)


def one_case(args, what, base, rows, option, function, model, double, *more):
    got = {p: peer.dump(args, base, rows, precision=p, **option) for p in ("f32", "bf16") if p == "f32" or not args.no_bf16}
    exact, plain = function(double, rows, *more), function(model, rows, *more)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = function(model, rows, *more)
    compare(what, got["f32"], got.get("bf16"), plain, half, exact)


def one_base(args, name, base, model, rows, prefix):
    double, tuned = peer.exact(model), peft_model(model)
    option = {"prefix": peer.save_prefix(args, prefix)}
    one_case(args, name + ", prefix", base, rows, option, prefix_gradient, model, double, prefix)
    peer.aim(tuned.prompt_encoder["default"], prefix)
    option = {"run": peer.save_encoder(args, tuned)}
    one_case(args, name + ", encoder", base, rows, option, encoder_gradients, tuned, peer.exact(tuned))


def shared_leads(args, name, base, model):
    """Rows that begin alike, which kvfold computes once (--share-prefixes)."""
    vocab = model.config.vocab_size
    (lead, _), (more, _) = peer.random_rows(vocab, [23, 9], seed=8)
    tails = [tail for tail, _ in peer.random_rows(vocab, [12, 5, 17, 8], seed=9)]
    begin = [lead, lead + more, lead + more, lead]
    rows = [(b + t, [-100] * len(b) + t) for b, t in zip(begin, tails)]
    prefix, double = peer.random_prefix(model), peer.exact(model)
    got = peer.dump(args, base, rows, prefix=peer.save_prefix(args, prefix), share_prefixes="on")
    peer.report(f"{name}, rows sharing prefixes: tokens computed (of {sum(len(ids) for ids, _ in rows)})", got["ids"].numel(), 120)
    want = prefix_gradient(double, rows, prefix)
    for key in ("loss", "dprefix"):
        peer.report(f"{name}, rows sharing prefixes, {key}, from f64", peer.error(got[key].reshape(want[key].shape), want[key]), 1e-5)


def smollm2(args):
    """At the base's own keys and values, where kvfold starts, and at PEFT's random start."""
    tokenizer, model = peer.gguf_tokenizer(args.model), peer.load_gguf(args.model, args.work)
    rows = peer.text_rows(args.data, tokenizer, longest=60)
    start = peer.base_prefix(model, tokenizer(peer.START)["input_ids"][:peer.P])
    for i in range(2):
        one_base(args, f"smollm2 at text, rows {i}", args.model, model, rows[4 * i:4 * i + 4], start)
    tuned = peft_model(model)
    args.no_bf16 = True
    option = {"run": peer.save_encoder(args, tuned)}
    one_case(args, "smollm2 at random", args.model, rows[:4], option, encoder_gradients, tuned, peer.exact(tuned))


def main():
    args = peer.parse(__doc__, ("--data", {"required": True, "help": "prompt/completion JSONL"}),
                      ("--no-bf16", {"action": "store_true", "help": "the CPU has none"}))
    for name in ("gpt2-4x256", "llama-untied-f32", "qwen2", "qwen3"):
        base, model = peer.random_model(name, args.work)
        one_base(args, name, base, model, peer.random_rows(model.config.vocab_size, LENGTHS), peer.random_prefix(model))
        shared_leads(args, name, base, model)
    smollm2(args)
    if RATIOS:
        peer.report(f"bf16 error over autocast's, geometric mean of {len(RATIOS)}", math.exp(sum(RATIOS) / len(RATIOS)), 1.0)
    peer.finish()


main()
