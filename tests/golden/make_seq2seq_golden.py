"""Tiny encoder-decoders with random weights, run by transformers: what tests/pass/test_pass_source.c compares with.

Writes model_<name> as make_model_golden.py writes the causal models. ids, lengths, label_at and label_id are the decoder's, which
begin with its start token; source_ids and source_lengths the encoder's. The prefix and its gradient, of the mean loss of the labels,
are [L, 2, G, P, D] over the layers in the order in which they are computed: the encoder's, then self-attention and cross-attention of
each block of the decoder. Attention is patched to put keys and values in front, which have no relative-position term. steps holds the
loss before each of five steps of AdamW on the prefix, stepped the prefix after them. BART's decoder begins at position P behind a
prefix (golden.position_start), its encoder at 0; logits_<place> have the prefix in one place alone. All is computed in f32 row by row; the script
checks that transformers' padded batch gives the same.

Run: python make_seq2seq_golden.py [NAME ...]
"""
import json
import os
import sys

import torch
import transformers
from make_model_golden import HERE, randomise
from safetensors.torch import save_file
from saved_tensors import saved_tensors
from transformers import AttentionInterface, AttentionMaskInterface, BartConfig, BartForConditionalGeneration, T5Config, T5ForConditionalGeneration
from transformers.masking_utils import eager_mask

P, P_BART = 7, 20
SOURCES, TARGETS = [17, 3, 40, 9], [6, 11, 2, 5]
T5 = dict(vocab_size=48, d_model=24, d_kv=8, num_heads=2, d_ff=40, num_layers=2, num_decoder_layers=3,
          relative_attention_num_buckets=8, relative_attention_max_distance=20, pad_token_id=0, eos_token_id=1, decoder_start_token_id=0)
BART = dict(vocab_size=48, d_model=24, encoder_attention_heads=3, decoder_attention_heads=3, encoder_ffn_dim=40, decoder_ffn_dim=40,
            max_position_embeddings=64, init_std=0.3)
MODELS = {
    "t5": T5ForConditionalGeneration(T5Config(**T5)),
    "t5_gated": T5ForConditionalGeneration(T5Config(**T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False)),
    "bart": BartForConditionalGeneration(BartConfig(**BART, encoder_layers=2, decoder_layers=3)),
    "bart_scaled": BartForConditionalGeneration(BartConfig(**BART, encoder_layers=3, decoder_layers=1, scale_embedding=True,
                                                           activation_function="gelu_new")),
}


def attention(module, query, key, value, mask, scaling=None, position_bias=None, **kwargs):
    """Eager attention with module.prefix, keys and values [G, P, D], in front of all others."""
    if module.prefix is not None:
        front = module.prefix[0].shape[1]
        key, value = (torch.cat([p.to(x.dtype).expand(len(x), -1, -1, -1), x], 2) for p, x in zip(module.prefix, (key, value)))
        mask, position_bias = (None if x is None else torch.nn.functional.pad(x, (front, 0)) for x in (mask, position_bias))
    scores = query @ key.transpose(2, 3) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    for term in (position_bias, mask):
        scores = scores if term is None else scores + term
    shares = torch.softmax(scores, -1)
    return (shares @ value).transpose(1, 2), shares


AttentionInterface.register("prefixed", attention)
AttentionMaskInterface.register("prefixed", eager_mask)


def is_bart(model):
    return model.config.model_type == "bart"


def attentions(model):
    """The attention modules in the order in which they are computed."""
    if is_bart(model):
        return [layer.self_attn for layer in model.model.encoder.layers] + [
            at for layer in model.model.decoder.layers for at in (layer.self_attn, layer.encoder_attn)]
    stacks = model.encoder.block, model.decoder.block
    return [layer.SelfAttention if hasattr(layer, "SelfAttention") else layer.EncDecAttention
            for stack in stacks for block in stack for layer in list(block.layer)[:-1]]


def set_prefix(model, prefix):
    for l, layer in enumerate(attentions(model)):
        layer.prefix = None if prefix is None or prefix[l] is None else prefix[l]
    if is_bart(model):
        model.model.decoder.embed_positions.offset = 2 if prefix is None else 2 + P_BART


def in_place(model, prefix, place):
    """The prefix of the layers of one place, of all three in turn."""
    encoder = len(attentions(model)) - 2 * model.config.decoder_layers
    places = [0] * encoder + [1, 2] * model.config.decoder_layers
    return [p if place == at else None for p, at in zip(prefix, places)]


def logits(model, rows, prefix=None):
    set_prefix(model, prefix)
    return torch.cat([model(input_ids=source[None], decoder_input_ids=ids[None]).logits[0].float() for source, ids, _ in rows])


def logits_padded(model, rows, prefix):
    set_prefix(model, prefix)
    pad = model.config.pad_token_id
    fill = lambda x, n, value: torch.nn.functional.pad(x, (0, n - len(x)), value=value)
    source = torch.stack([fill(s, max(SOURCES), pad) for s, _, _ in rows])
    mask = torch.stack([fill(torch.ones_like(s), max(SOURCES), 0) for s, _, _ in rows])
    ids = torch.stack([fill(i, max(TARGETS), pad) for _, i, _ in rows])
    out = model(input_ids=source, attention_mask=mask, decoder_input_ids=ids).logits
    return torch.cat([out[r, :n] for r, n in enumerate(TARGETS)])


def loss_of(model, rows, prefix):
    return torch.nn.functional.cross_entropy(logits(model, rows, prefix), torch.cat([labels for _, _, labels in rows]))


def gradient(model, rows, prefix):
    leaf = prefix.clone().requires_grad_(True)
    loss = loss_of(model, rows, leaf)
    loss.backward()
    return loss.detach(), leaf.grad


def five_steps(model, rows, prefix):
    leaf, losses = prefix.clone().requires_grad_(True), []
    optimizer = torch.optim.AdamW([leaf], lr=0.05, weight_decay=0)
    for _ in range(5):
        optimizer.zero_grad()
        losses.append(loss_of(model, rows, leaf))
        losses[-1].backward()
        optimizer.step()
    return torch.stack(losses).detach(), leaf.detach()


def golden(name, model, seed):
    generator = torch.Generator().manual_seed(seed)
    model.eval()
    model.set_attn_implementation("prefixed")
    c = model.config
    if name == "t5_gated":
        model.lm_head.weight = torch.nn.Parameter(torch.empty(c.vocab_size, c.d_model))
    randomise(model, generator)
    for layer in [] if is_bart(model) else attentions(model):  # T5 trains what others divide scores by
        layer.q.weight.data.copy_((layer.q.weight * c.d_kv ** -0.5).half().float())
    if is_bart(model):
        model.final_logits_bias.copy_((torch.randn(1, c.vocab_size, generator=generator) * 0.5).half().float())
    for value in model.parameters():
        value.requires_grad_(False)
    front = P_BART if is_bart(model) else P
    prefix = torch.randn(len(attentions(model)), 2, c.num_attention_heads, front, c.d_model // c.num_attention_heads
                         if is_bart(model) else c.d_kv, generator=generator)
    rows = []
    for source, target in zip(SOURCES, TARGETS):
        labels = torch.randint(2, c.vocab_size, (target,), generator=generator)
        ids = torch.cat([torch.tensor([c.decoder_start_token_id]), labels[:-1]])
        rows.append((torch.randint(2, c.vocab_size, (source,), generator=generator), ids, labels))
    with torch.no_grad():
        bare, with_prefix = logits(model, rows), logits(model, rows, prefix)
        alone = {f"golden.logits_{place}": logits(model, rows, in_place(model, prefix, i))
                 for i, place in enumerate(["encoder", "decoder", "cross"])} if is_bart(model) else {}
        assert (bare - logits_padded(model, rows, None)).abs().max() < 1e-4
        assert (with_prefix - logits_padded(model, rows, prefix)).abs().max() < 1e-4
    loss, grad = gradient(model, rows, prefix)
    steps, stepped = five_steps(model, rows, prefix)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        _, auto_grad = gradient(model, rows, prefix)
    auto_error = ((auto_grad - grad).norm() / grad.norm()).item()

    join = lambda i: torch.cat([row[i] for row in rows]).to(torch.int32)
    state = saved_tensors(model)
    if is_bart(model):
        alone["golden.position_start"] = torch.tensor([front], dtype=torch.int32)
    tensors = state | alone | {
        "golden.ids": join(1), "golden.label_id": join(2), "golden.label_at": torch.arange(sum(TARGETS), dtype=torch.int32),
        "golden.lengths": torch.tensor(TARGETS, dtype=torch.int32),
        "golden.source_ids": join(0), "golden.source_lengths": torch.tensor(SOURCES, dtype=torch.int32),
        "golden.prefix": prefix, "golden.gradient": grad, "golden.bare_logits": bare, "golden.logits": with_prefix,
        "golden.losses": loss[None], "golden.steps": steps, "golden.stepped": stepped, "golden.autocast_error": torch.tensor([auto_error]),
    }
    folder = os.path.join(HERE, "model_" + name)
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "model.safetensors")
    save_file(tensors, path, metadata={"format": "pt", "seed": str(seed), "torch": torch.__version__,
                                       "transformers": transformers.__version__})
    os.chmod(path, 0o644)
    config = c.to_dict()
    if name == "t5_gated":  # as the published ones say it; transformers 5 rewrites it
        config["tie_word_embeddings"] = config.pop("scale_decoder_outputs")
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file, indent=2, sort_keys=True)
        file.write("\n")
    print(f"{name}: {os.path.getsize(path)} bytes, loss {loss:.4f}, steps {steps.tolist()}, autocast gradient error {auto_error:.2e}")


torch.set_num_threads(1)
for seed, (name, model) in enumerate(MODELS.items(), start=70):
    if not sys.argv[1:] or name in sys.argv[1:]:
        golden(name, model, seed)
