"""Keyword arguments as members of the C structs of options."""
from __future__ import annotations

import ctypes
import difflib
import os
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Literal, Mapping, Optional, Sequence, TypedDict, Union

from . import _structs as c
from ._library import Error, text
from ._numbers import flag, real, whole

if TYPE_CHECKING:
    from ._rows import Data

Path = Union[str, "os.PathLike[str]"]
Names = Union[str, Sequence[str]]


class RowOptions(TypedDict, total=False):
    """Options of eval, predict and score for reading and rendering rows."""

    format: str  #: format of the data file: auto (by name and content), jsonl, json, tsv, csv, conll, squad, superglue, text
    columns: str  #: names of the columns of TSV, CSV or CoNLL: "a,b,c"; default: the header's
    delimiter: str  #: column separator of TSV and CSV: one character; default: tab or comma
    no_header: bool  #: TSV, CSV or CoNLL files have no header line
    map: Union[str, Mapping[str, str]]  #: names of the fields in the data: "prompt=question,completion=answer", or a dict of them
    chat_template: str  #: chat template of prompts, as --chat-template; default: the prefix's
    max_length: int  #: longest row in tokens
    overlong: str  #: action for longer rows: stop, truncate, truncate-end, skip; default: as in training
    limit: int  #: read only the first N rows
    split_text: int  #: lm: the file is plain text, cut into rows of N tokens


class EvalOptions(RowOptions, total=False):
    batch_tokens: int  #: maximum tokens of a packed batch
    generate: int  #: lm: also generate up to N tokens per prompt and report BLEU and ROUGE-L
    per_class: bool  #: seq-cls, token-cls: also report the scores of each class or tag, and of each entity type
    majority: bool  #: several prefixes: answer by the majority of their answers, instead of the mean of their probabilities
    no_answer_above: float  #: qa: threshold of the log odds of no answer against the best answer; above it there is no answer
    max_answer: int  #: qa: longest answer in tokens
    n_best: int  #: qa: number of best starts and ends to pair, at most 64


class GenerateOptions(TypedDict, total=False):
    temperature: float  #: sampling temperature; 0: always the likeliest token
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Mapping[int, float]  #: added to a token's logit, by token id
    beams: int
    length_penalty: float
    seed: int
    stop: List[str]  #: texts that end a completion and are left out of it
    chat_template: str
    batch_size: int
    draft: int  #: speculative decoding: guess up to N tokens from similar earlier text and check them in one step; 0: off


class TrainOptions(TypedDict, total=False):
    """Options of train(); help(kvfold.train) describes each of them."""

    lora: Path
    resume: bool
    force: bool
    dry_run: bool
    allow_other_base: bool
    task: Union[Literal["lm", "seq-cls", "token-cls", "qa", "multiple-choice"], Mapping[str, str]]
    method: Literal["mlp", "direct", "projected", "prompt", "p-tuning", "adapter", "full", "head"]
    prefix_length: int
    encoder_hidden: int
    ffn_length: int
    ffn_lr: float
    layers: str
    places: Names
    p_encoder: Literal["lstm", "mlp"]
    unfreeze: Literal["off", "base"]
    base_lr: float
    p_template: str
    verbalizer: str
    init: Literal["vocab", "random", "zero", "text", "kv", "match", "centroids"]
    init_text: str
    init_kv: Path
    init_scheme: Literal["torch", "ptuning-v2"]
    init_encoder: Path
    init_from: Path
    approximate: bool
    log_weight: Literal["off", "fixed", "train"]
    start_mass: float
    log_weight_lr: float
    state_lr: float
    lr: float
    train_head: bool
    head_lr: float
    head_dropout: float
    lr_units: Literal["prefix", "parameter"]
    steps: int
    epochs: int
    batch_size: int
    batch_tokens: Union[int, str]
    format: Literal["auto", "jsonl", "json", "tsv", "csv", "conll", "squad", "superglue", "text"]
    no_header: bool
    columns: Names
    delimiter: str
    split_text: int
    limit: int
    rows: int
    valid_split: float
    regression: bool
    labels: Union[Sequence[str], Mapping[Any, Any], str]
    class_weights: Path
    doc_stride: int
    share_prefixes: Literal["auto", "off"]
    group_by: Literal["off", "prefix"]
    task_prefix: Literal["shared", "low-rank"]
    mix: Literal["proportional", "equal"]
    grad_accum: int
    recompute: bool
    keep_states: str
    weight_dtype: Literal["auto", "f32", "bf16", "int8"]
    stream_layers: bool
    max_length: int
    overlong: Literal["stop", "truncate", "truncate-end", "skip"]
    shuffle: bool
    schedule: Literal["linear", "cosine", "constant"]
    schedule_steps: int
    warmup: Union[int, str]
    weight_decay: float
    optimizer: Literal["natural", "adamw"]
    value_optimizer: Literal["adamw", "muon"]
    beta1: float
    beta2: float
    eps: float
    clip: float
    skip_nonfinite: int
    spike_guard: float
    prefix_dropout: float
    prefix_dropout_per_row: bool
    adapter_size: int
    adapter_activation: Literal["gelu", "relu", "tanh"]
    adapter_norms: bool
    adapter_placement: Literal["serial", "parallel", "attn", "ffn"]
    base_dropout: float
    eval_every: int
    save_every: int
    metric: str
    retain: Data
    kl_to_base: float
    early_stop: int
    position_start: Union[int, str]
    infix: bool
    chat_template: str
    map: Union[str, Mapping[str, str]]
    precision: Literal["auto", "f32", "bf16", "int8"]
    seed: int
    log: Path
    forecast: Literal["auto", "on", "off"]
    tensorboard: Path


#: Option names of PEFT and transformers, with the kvfold option of the same purpose.
_ELSEWHERE = {
    "dataset_text_field": "map", "do_sample": "temperature", "encoder_hidden_size": "encoder_hidden", "eval_dataset": "valid",
    "eval_steps": "eval_every", "gradient_accumulation_steps": "grad_accum", "gradient_checkpointing": "recompute",
    "early_stopping_patience": "early_stop", "learning_rate": "lr", "logging_dir": "tensorboard", "lr_scheduler_type": "schedule",
    "max_grad_norm": "clip", "max_new_tokens": "max_tokens", "max_seq_length": "max_length", "max_steps": "steps",
    "metric_for_best_model": "metric", "num_beams": "beams", "num_epochs": "epochs", "num_train_epochs": "epochs",
    "num_virtual_tokens": "prefix_length", "optim": "optimizer", "output_dir": "out", "overwrite_output_dir": "force",
    "peft_type": "method", "per_device_train_batch_size": "batch_size", "prefix_projection": "method",
    "prompt_tuning_init": "init", "prompt_tuning_init_text": "init_text", "resume_from_checkpoint": "resume",
    "save_steps": "save_every", "stop_strings": "stop", "task_type": "task", "train_dataset": "data", "warmup_ratio": "warmup",
    "warmup_steps": "warmup",
}


def check_known(name: str, known: Iterable[str]) -> None:
    """Raises Error for an unknown option, and names the nearest one."""
    known = list(known)
    if name in known:
        return
    near = [_ELSEWHERE[name]] if _ELSEWHERE.get(name) in known else difflib.get_close_matches(name, known, 1)
    raise Error(f"option {name} is not known" + (f", the nearest is {near[0]}" if near else ""))


def choice(name: str, value: Any, table: Mapping[Any, int]) -> int:
    if value not in table:
        raise Error(f"{name} {value!r}: want {', '.join(str(key) for key in table if key)}")
    return table[value]


_CHOICES: Dict[str, Mapping[Any, int]] = {"overlong": c.OVERLONG}
_LISTS = {"stop", "logit_bias"}


def fill(struct: c.Struct, known: type, options: Mapping[str, Any]) -> None:
    """Sets members of `struct` by name; `known` is the TypedDict that lists them. None leaves a default."""
    types = {row[0]: row[1] for row in struct._fields_}
    for name, value in options.items():
        check_known(name, [*known.__annotations__, *(["max_tokens"] if known is GenerateOptions else [])])
        if value is None or name in _LISTS:
            continue
        setattr(struct, name, _value(name, value, types[name]))


def _value(name: str, value: Any, kind: Any) -> Any:
    if name in _CHOICES:
        return choice(name, value, _CHOICES[name])
    if kind is c.TEXT:
        return text(joined(name, value))
    if kind is c.REAL:
        return real(name, value)
    return flag(name, value) if kind is c.BOOL else whole(name, value, kind)


def joined(name: str, value: Any) -> Any:
    """Returns a list as "a,b", a dict as "a=x,b=y", and any other value unchanged."""
    if isinstance(value, Mapping):
        value = [f"{ours}={theirs}" for ours, theirs in value.items()]
    if not isinstance(value, (list, tuple)):
        return value
    parts = [str(part) for part in value]
    for part in parts:
        if "," in part:
            raise Error(f'{name}: "{part}" has a comma in it, which separates entries')
    return ",".join(parts)


def texts(values: Optional[Sequence[str]]) -> Any:
    """Returns an array of n C strings."""
    if isinstance(values, str):
        raise Error("want a list of texts, not one text")
    coded = [text(value) for value in values or ()]
    return (ctypes.c_char_p * len(coded))(*coded)
