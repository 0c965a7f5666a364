"""Keyword arguments as members of the C structs of options."""
from __future__ import annotations

import ctypes
import difflib
from typing import Any, Dict, List, Mapping, Optional, Sequence, TypedDict, Union

from . import _structs as c
from ._library import Error, text
from ._numbers import flag, real, whole


class RowOptions(TypedDict, total=False):
    """How rows of data are read and rendered: eval, predict, score."""

    format: str  #: auto, jsonl, json, tsv, csv, conll, squad, superglue, text
    columns: str  #: "a,b,c": names of the columns of TSV, CSV or CoNLL; else the header's
    delimiter: str  #: of TSV and CSV: one character; else a tab, a comma
    no_header: bool  #: the first line of TSV, CSV or CoNLL is no header
    map: Union[str, Mapping[str, str]]  #: "prompt=question,completion=answer", or a dict of the same
    chat_template: str  #: as --chat-template; else the prefix's own
    max_length: int  #: longest row in tokens
    overlong: str  #: stop, truncate, truncate-end, skip; else as in training
    limit: int  #: read the first rows only
    split_text: int  #: the file is plain text, cut into rows of so many tokens


class EvalOptions(RowOptions, total=False):
    batch_tokens: int  #: rows are packed up to so many tokens
    generate: int  #: lm: also complete prompts by at most so many tokens, and compare with their references
    per_class: bool  #: seq-cls, token-cls: also the scores of each class, tag and entity type
    majority: bool  #: seq-cls, token-cls, multiple-choice: several prefixes vote, in place of the mean of their probabilities
    no_answer_above: float  #: qa: no answer where its log odds against the best one are above
    max_answer: int  #: qa: longest answer in tokens
    n_best: int  #: qa: best starts and ends that are paired


class GenerateOptions(TypedDict, total=False):
    temperature: float  #: 0: greedy
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Mapping[int, float]  #: token id: what its logit is raised by
    beams: int
    length_penalty: float
    seed: int
    stop: List[str]  #: texts that end a completion, and are left out
    chat_template: str
    batch_size: int
    draft: int  #: most tokens guessed from the text so far and checked in one step; 0: off


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
        if name not in known.__annotations__:
            near = difflib.get_close_matches(name, known.__annotations__, 1)
            raise Error(f"option {name} is not known" + (f", the nearest is {near[0]}" if near else ""))
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
    """[n] of C's texts."""
    if isinstance(values, str):
        raise Error("want a list of texts, not one text")
    coded = [text(value) for value in values or ()]
    return (ctypes.c_char_p * len(coded))(*coded)
