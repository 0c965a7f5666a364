"""Files in and out: a prefix file in a transformers cache, an exported adapter in PEFT, PEFT's adapters and encoders in kvfold, and
what HDF5's own tools see."""
import os
import subprocess

import h5py
import torch
from peft import PeftModel, PrefixTuningConfig, get_peft_model
from safetensors.torch import load_file

import peer

LABELS = ["layer", "key_value", "batch", "head", "position", "head_dim"]


def logits_alone(model, rows, **more):
    """Logits at the labelled positions; `more` makes the arguments of each call."""
    out = []
    with torch.no_grad():
        for ids, labels in rows:
            at = [i - 1 for i in range(1, len(ids)) if labels[i] != -100]
            out.append(model(torch.tensor([ids]), **{k: v() for k, v in more.items()}).logits[0, at])
    return torch.cat(out)


def largest(a, b):
    return (a - b).abs().max().item()


def expect(what, good):
    peer.report(what, 0 if good else 1, 0)


def train_and_merge(args, data):
    run, prefix = (os.path.join(args.work, name) for name in ("interop_run.h5", "interop_prefix.h5"))
    peer.kvfold(args, "train", "--base", args.model, "--data", data, "--out", run, "--force", "--steps", 20, "--precision", "f32")
    merged = peer.kvfold(args, "merge", run, "--out", prefix, "--force")
    expect("merge: values read back equal the encoder's", merged["max_abs_diff"] == 0)
    losses = [peer.kvfold(args, "eval", "--base", args.model, "--prefix", path, "--data", data, "--precision", "f32")["loss"]
              for path in (run, prefix)]
    expect("eval of run and of prefix file: equal bits", losses[0] == losses[1])
    return run, prefix, losses[0]


def into_transformers(args, prefix, model, rows, loss):
    with h5py.File(prefix) as file:
        kept = file["prefix/past_key_values"]
        expect("h5py: dimension labels", [d.label for d in kept.dims] == LABELS)
        expect("h5py: kind and features", file.attrs["kvfold_kind"] == "prefix" and "features" not in file)
        expect("h5py: position_start is P", kept.attrs["position_start"] == kept.shape[4] == peer.P)
        values = torch.from_numpy(kept[:])
    got = peer.dump(args, args.model, rows, prefix=prefix)
    want = logits_alone(model, rows, past_key_values=lambda: peer.cache_of(values, 1))
    peer.report("prefix file in DynamicCache: largest difference of logits", largest(got["logits"], want), 2e-3)
    peer.report("the same, relative difference of the loss",
                abs(torch.nn.functional.cross_entropy(want, got["label_id"].long()).item() / got["loss"].item() - 1), 1e-5)
    peer.report("kvfold eval against dump_pass, relative", abs(loss / got["loss"].item() - 1), 1e-5)
    return values, got["logits"]


def into_peft(args, run, prefix, model, rows, values, want):
    folder, tensors = os.path.join(args.work, "exported"), os.path.join(args.work, "exported.safetensors")
    for source in (prefix, run):
        peer.kvfold(args, "export", source, "--format", "peft", "--out", folder, "--force")
        tuned = PeftModel.from_pretrained(model, folder)
        peer.report(f"{os.path.basename(source)} exported, in PeftModel: largest difference of logits",
                    largest(logits_alone(tuned, rows), want), 2e-3)
        expect("    and its values are the file's", torch.equal(tuned.prompt_encoder["default"].embedding.weight, peer.flat(values)))
    peer.kvfold(args, "export", prefix, "--format", "safetensors", "--out", tensors, "--force")
    expect("exported safetensors: equal bits", torch.equal(load_file(tensors)["past_key_values"], values))


def from_peft(args, model, rows):
    for projection in (True, False):
        torch.manual_seed(5)
        tuned = get_peft_model(model, PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=peer.P,
                                                         prefix_projection=projection, encoder_hidden_size=512))
        optimizer = torch.optim.AdamW(tuned.prompt_encoder.parameters(), lr=1e-3)
        for _ in range(3):
            ids, mask, labels = peer.padded(rows[:2], "right")
            tuned(input_ids=ids, attention_mask=mask, labels=labels).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        tuned.eval()
        folder, file = os.path.join(args.work, f"peft_{projection}"), os.path.join(args.work, f"peft_{projection}.h5")
        tuned.save_pretrained(folder)
        what = f"PEFT adapter, prefix_projection={projection}, imported"
        expect(what, peer.kvfold(args, "import", folder, "--base", args.model, "--out", file, "--force")["kind"] == "prefix")
        want, got = logits_alone(tuned, rows), peer.dump(args, args.model, rows, prefix=file)["logits"]
        scale = logits_alone(peer.exact(tuned), rows)
        peer.report(f"{what}: largest difference of logits (torch from f64: {largest(want, scale):.1e})", largest(got, want),
                    max(2e-3, 2 * largest(want, scale)))
        if projection:
            state, file = peer.save_encoder(args, tuned, "peft_encoder.safetensors"), os.path.join(args.work, "peft_run.h5")
            peer.kvfold(args, "import", state, "--base", args.model, "--out", file, "--force")
            got = peer.dump(args, args.model, rows, run=file)
            peer.report("PEFT encoder as a run: emitted prefix", peer.error(
                got["prefix"].permute(3, 0, 1, 2, 4).reshape(peer.P, -1), tuned.get_prompt_embedding_to_save("default")), 1e-5)


def quantized(args, prefix, data, values, loss):
    """int8 as h5py sees it: i8 values times one f32 scale for each head."""
    narrow = os.path.join(args.work, "interop_int8.h5")
    said = peer.kvfold(args, "quantize", prefix, "--out", narrow, "--dtype", "int8", "--force", "--base", args.model, "--data", data)
    with h5py.File(narrow) as file:
        kept, scale = file["prefix/past_key_values"], file["prefix/scale"]
        expect("int8: types, shapes and labels", (kept.dtype, scale.dtype, kept.attrs["dtype"]) == ("int8", "float32", "int8")
               and kept.shape == tuple(values.shape) and scale.shape == kept.shape[:4]
               and [d.label for d in scale.dims] == LABELS[:4] and [d.label for d in kept.dims] == LABELS)
        steps = torch.from_numpy(scale[:])[..., None, None]
        back = torch.from_numpy(kept[:]).float() * steps
        most = torch.from_numpy(kept[:]).abs().amax(dim=(4, 5))
    expect("int8: symmetric, the largest value of a head at 127", bool((most == 127).all()))
    peer.report("int8: largest error in steps of its head (1/2)", ((back - values).abs() / steps).max().item(), 0.5001)
    expect("int8: equals rounding to nearest even in torch", torch.equal(back, torch.round(values / steps) * steps))
    peer.report("int8: quantize's largest difference is h5py's", abs(largest(back, values) - said["max_abs_diff"]), 0)
    expect("int8: the loss before is eval's", said["loss_before"] == loss)
    folder = os.path.join(args.work, "exported_int8")
    peer.kvfold(args, "export", narrow, "--format", "peft", "--out", folder, "--force")
    weight = load_file(os.path.join(folder, "adapter_model.safetensors"))["prompt_embeddings"]
    expect("int8 exported to PEFT: floats, the same values", torch.equal(weight, peer.flat(back)))


def tools(prefix):
    listing = subprocess.run(["h5ls", "-r", "-v", prefix], capture_output=True, text=True, check=True).stdout
    dumped = subprocess.run(["h5dump", "-A", prefix], capture_output=True, text=True, check=True).stdout
    for name, text in (("h5ls -r -v", listing), ("h5dump -A", dumped)):
        expect(f"{name}: dataset, labels, attributes", all(w in text for w in ["past_key_values", "position_start", "DIMENSION_LABELS"]))
    expect("h5dump -A: names of the dimensions, base hash", all(w in dumped for w in LABELS + ["base_hash", "lineage"]))


def main():
    args = peer.parse(__doc__, ("--data", {"required": True, "help": "prompt/completion JSONL"}))
    model = peer.load_gguf(args.model, args.work)
    rows = peer.text_rows(args.data, peer.gguf_tokenizer(args.model), longest=48)[:8]
    data = peer.write_rows(os.path.join(args.work, "interop.jsonl"), rows)
    run, prefix, loss = train_and_merge(args, data)
    values, logits = into_transformers(args, prefix, model, rows, loss)
    into_peft(args, run, prefix, model, rows, values, logits)
    from_peft(args, model, rows)
    quantized(args, prefix, data, values, loss)
    tools(prefix)
    peer.finish()


main()
