"""Folders that `save_pretrained` writes, of every family with every class that transformers has for it (tiny random models). Whatever another
class of the family opens from such a folder without a missing key, kvfold opens too: the loss of language models, of heads on sequences,
tokens, answers and choices, and the final hidden states of encoders are those of that class. (--model and --prefix are not read.)"""
import json
import os
import shutil
import subprocess

import torch
import transformers as tf
from safetensors.torch import load_file, save_file

import program

WORDS = {word: i for i, word in enumerate(["[PAD]", "[CLS]", "[SEP]", *"abcdefgh"])}
SIZES = dict(vocab_size=len(WORDS), hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=40)
IDS = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)
USUAL = SIZES | IDS
GROUPED = USUAL | dict(num_key_value_heads=1, head_dim=8)
MULTIPLIERS = dict(embedding_multiplier=3.0, residual_multiplier=0.5, attention_multiplier=0.3, logits_scaling=1.5)
GPT = dict(vocab_size=len(WORDS), n_embd=16, n_layer=2, n_head=2, n_positions=40, **IDS)
T5 = dict(vocab_size=len(WORDS), d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2, pad_token_id=0, eos_token_id=2, decoder_start_token_id=0)
BART = dict(vocab_size=len(WORDS), d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2,
            encoder_ffn_dim=24, decoder_ffn_dim=24, max_position_embeddings=40, decoder_start_token_id=2, forced_eos_token_id=None, **IDS)
FAMILIES = {  # stem of the classes: configuration
    "Llama": tf.LlamaConfig(**USUAL, num_key_value_heads=1), "Mistral": tf.MistralConfig(**GROUPED), "Qwen2": tf.Qwen2Config(**USUAL, num_key_value_heads=1),
    "Qwen3": tf.Qwen3Config(**GROUPED), "Phi3": tf.Phi3Config(**USUAL), "Olmo2": tf.Olmo2Config(**USUAL), "SmolLM3": tf.SmolLM3Config(**USUAL | dict(num_hidden_layers=4), num_key_value_heads=1),
    "Olmo3": tf.Olmo3Config(**USUAL | dict(num_hidden_layers=4, sliding_window=4)), "Ministral3": tf.Ministral3Config(**GROUPED),
    "Granite": tf.GraniteConfig(**USUAL, **MULTIPLIERS),
    "GraniteMoeHybrid": tf.GraniteMoeHybridConfig(**USUAL, **MULTIPLIERS, shared_intermediate_size=24, num_local_experts=0,
                                                  layer_types=["full_attention"] * 2, mamba_n_heads=2),
    "Gemma2": tf.Gemma2Config(**GROUPED),
    "Gemma3": tf.Gemma3TextConfig(**GROUPED), "Gemma3Text": tf.Gemma3TextConfig(**GROUPED), "GPT2": tf.GPT2Config(**GPT),
    "OpenAIGPT": tf.OpenAIGPTConfig(**GPT), "GPTNeoX": tf.GPTNeoXConfig(**USUAL), "Bert": tf.BertConfig(**USUAL),
    "Roberta": tf.RobertaConfig(**USUAL), "XLMRoberta": tf.XLMRobertaConfig(**USUAL), "Electra": tf.ElectraConfig(**USUAL, embedding_size=8),
    "DistilBert": tf.DistilBertConfig(vocab_size=len(WORDS), dim=16, hidden_dim=24, n_layers=2, n_heads=2, max_position_embeddings=40, pad_token_id=0),
    "NomicBert": tf.NomicBertConfig(**USUAL), "ModernBert": tf.ModernBertConfig(**USUAL, cls_token_id=1, sep_token_id=2),
    "DebertaV2": tf.DebertaV2Config(**USUAL, relative_attention=True, position_biased_input=False, share_att_key=True, pos_att_type=["p2c", "c2p"],
                                    norm_rel_ebd="layer_norm", position_buckets=8),
    "T5": tf.T5Config(**T5), "Bart": tf.BartConfig(**BART),
}
CAUSAL = ("Llama", "Mistral", "Qwen2", "Qwen3", "Phi3", "Olmo2", "SmolLM3", "Olmo3", "Ministral3", "Granite", "GraniteMoeHybrid", "Gemma2", "Gemma3", "Gemma3Text", "GPT2", "OpenAIGPT", "GPTNeoX")
TWO_STACKS = ("T5", "Bart")
ENCODERS = ("Bert", "Roberta", "XLMRoberta", "Electra", "DistilBert", "NomicBert", "ModernBert", "DebertaV2")
LM, HEADS = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration"), {
    "ForSequenceClassification": "seq-cls", "ForTokenClassification": "token-cls", "ForQuestionAnswering": "qa", "ForMultipleChoice": "multiple-choice"}
SAVED = (*LM, *HEADS, "Model", "ForMaskedLM", "ForPreTraining", "ForNextSentencePrediction", "DoubleHeadsModel", "EncoderModel")
TEXT = [WORDS[word] for word in "abcde"]


def tokenizer(bidirectional):
    parts = [{"Sequence": {"id": "A", "type_id": 0}}]
    special = {name: {"id": name, "ids": [WORDS[name]], "tokens": [name]} for name in ("[CLS]", "[SEP]")}
    if bidirectional:
        parts = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, *parts, {"SpecialToken": {"id": "[SEP]", "type_id": 0}}]
    pair = [*parts, {"Sequence": {"id": "B", "type_id": 0}}, *parts[2:]]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "decoder": None,
            "pre_tokenizer": {"type": "WhitespaceSplit"},
            "post_processor": {"type": "TemplateProcessing", "single": parts, "pair": pair, "special_tokens": special},
            "model": {"type": "WordPiece", "unk_token": "[PAD]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 9, "vocab": WORDS}}


def classes(stem, endings):
    """Those of the family's configuration: others have towers besides."""
    return [stem + end for end in endings if getattr(getattr(tf, stem + end, None), "config_class", None) is type(FAMILIES[stem])]


def save(args, stem, name):
    folder = os.path.join(args.work, "saved", name)
    shutil.rmtree(folder, ignore_errors=True)
    torch.manual_seed(7)
    config = FAMILIES[stem].__class__.from_dict(FAMILIES[stem].to_dict())
    config.num_labels = 2
    model = getattr(tf, name)(config)
    for value in model.parameters():
        value.data += torch.randn(value.shape) * (0.3 if value.dim() == 2 else 0.1)
    model.eval().save_pretrained(folder)
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as file:
        json.dump(tokenizer(stem not in CAUSAL), file)
    return folder


def opened(folder, name):
    """The model of a class, None where the folder lacks a tensor of it."""
    try:
        model, info = getattr(tf, name).from_pretrained(folder, output_loading_info=True, dtype=torch.float32)
    except (ValueError, RuntimeError, OSError):
        return None
    return None if info["missing_keys"] or info["mismatched_keys"] else model.eval()


class Refused(Exception):
    pass


def kvfold(args, *command):
    done = subprocess.run([os.path.join(args.build, "kvfold"), *map(str, command), "--json"], capture_output=True, text=True)
    if done.returncode:
        raise Refused(done.stderr.strip().split("\n")[-1])
    return json.loads(done.stdout)


def rows_file(args, rows):
    path = os.path.join(args.work, "saved.jsonl")
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return path


# ---- each gives kvfold's figure and that of the class -----------------------------------------------------------

def language_model(args, stem, folder, model):
    if stem in TWO_STACKS:
        rows, kwargs = [{"prompt": "a b c", "completion": "d e"}], {"input_ids": [[1, 3, 4, 5, 2]], "labels": [[1, 6, 7, 2]]}
    else:
        rows, kwargs = [{"input_ids": TEXT, "labels": TEXT}], {"input_ids": [TEXT], "labels": [TEXT]}
    got = kvfold(args, "eval", "--base", folder, "--data", rows_file(args, rows), "--precision", "f32")["loss"]
    return got, model(**{key: torch.tensor(value) for key, value in kwargs.items()}).loss.item()


def around(stem, ids):
    return ids if stem in CAUSAL else [1, *ids, 2]


def head(args, stem, folder, model, task):
    ids = torch.tensor([around(stem, TEXT)])
    text = "a b c d e"
    if task == "seq-cls":
        rows = [{"text": text, "label": label} for label in (0, 1)]
        want = [model(ids, labels=torch.tensor([label])).loss.item() for label in (0, 1)]
    elif task == "token-cls":
        tags = [0, 1, 1, 0, 1]
        rows = [{"tokens": text.split(), "tags": tags}]
        want = [model(ids, labels=torch.tensor([tags if stem in CAUSAL else [-100, *tags, -100]])).loss.item()]
    elif task == "qa":
        rows = [{"question": "a b", "context": "c d e", "answers": {"text": ["d e"], "answer_start": [2]}}]
        ids = [*TEXT, 2] if stem in CAUSAL else [1, *TEXT[:2], 2, *TEXT[2:], 2]  # causal rows end in EOS
        start, end = (torch.tensor([ids.index(WORDS[word])]) for word in "de")
        want = [model(torch.tensor([ids]), start_positions=start, end_positions=end).loss.item()]
    else:
        rows = [{"text": "a b", "choices": ["c d", "e f"], "label": label} for label in (0, 1)]
        ids = [[1, 3, 4, 2, 5, 6, 2], [1, 3, 4, 2, 7, 8, 2]]
        want = [model(torch.tensor([ids]), labels=torch.tensor([label])).loss.item() for label in (0, 1)]
    data, run = rows_file(args, rows), os.path.join(args.work, "saved.h5")
    kvfold(args, "train", "--base", folder, "--data", data, "--task", task, "--method", "head", "--head-lr", 1e-12, "--steps", 1, "--precision", "f32",
           "--out", run, "--force")
    got = kvfold(args, "eval", "--base", folder, "--prefix", run, "--data", data, "--precision", "f32")["loss"]
    return got, sum(want) / len(want)


def hidden(args, folder, model):
    """Distance of the final states."""
    ids = around("Bert", TEXT)
    rows, path, out = rows_file(args, [{"input_ids": ids, "labels": ids}]), os.path.join(args.work, "saved.safetensors"), os.path.join(args.work, "saved_out.safetensors")
    want = model(torch.tensor([ids])).last_hidden_state[0, :-1]
    save_file({"weights": torch.ones_like(want)}, path)
    done = subprocess.run([os.path.join(args.build, "tests/dump_pass"), "--base", folder, "--data", rows, "--hidden", path, "--out", out],
                          capture_output=True, text=True)
    if done.returncode:
        raise Refused(done.stderr.strip().split("\n")[-1])
    return (load_file(out)["hidden"] - want).abs().max().item(), 0.0


def compare(args, stem, folder, target):
    model = opened(folder, target)
    suffix = target[len(stem):]
    if model is None or suffix in HEADS and not folder.endswith(target):  # a new head stands in the place of another task's
        return None
    with torch.no_grad():
        if suffix in LM and stem not in ENCODERS:
            return language_model(args, stem, folder, model)
        if suffix in HEADS and (stem not in TWO_STACKS or HEADS[suffix] == "token-cls"):  # heads of these: tests/cli/stored_heads.sh
            return head(args, stem, folder, model, HEADS[suffix])
        return hidden(args, folder, model) if stem in ENCODERS and suffix == "Model" else None


def main():
    args = program.parse(__doc__, ("--only", {"nargs": "*", "help": "families"}))
    tf.logging.set_verbosity_error()
    tf.utils.logging.disable_progress_bar()
    torch.set_num_threads(args.threads)
    for stem in args.only or FAMILIES:
        for name in classes(stem, SAVED):
            folder = save(args, stem, name)
            for target in classes(stem, (*LM, *HEADS, "Model")):
                try:
                    figures = compare(args, stem, folder, target)
                except Refused as why:
                    one_of_two = stem in TWO_STACKS and "kvfold needs both stacks" in str(why)
                    program.expect(f"{name} as {target}{', refused' if one_of_two else ''}", "" if one_of_two else str(why), "")
                else:
                    if figures:
                        program.report(f"{name} as {target}", abs(figures[0] - figures[1]), 1e-5)
    program.finish()


main()
