"""Methods shared by a base and a prefix: completions, log-likelihoods, metrics, predictions, logits."""
from __future__ import annotations

import ctypes
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence

import numpy as np

from . import _structs as c
from ._library import Handle, callback, lib
from ._numbers import array, real, whole
from ._options import EvalOptions, GenerateOptions, RowOptions, fill, texts
from ._rows import Data, Source

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .base import Base


@dataclass(frozen=True, eq=False)
class Score:
    """Log-likelihood of a row's completion."""

    loglikelihood: Optional[float]  #: sum of logprobs, natural logarithm; None: the row was left out (overlong="skip")
    ids: np.ndarray  #: [n] int32: scored tokens
    logprobs: np.ndarray  #: [n] float32: of each token, given all tokens before it
    greedy: np.ndarray  #: [n] bool: whether the token is the likeliest


@dataclass(frozen=True)
class Evaluation:
    """Loss and metrics on data, the same as those of `kvfold eval --json`."""

    task: str
    loss: float  #: nats per label token
    perplexity: float  #: exp(loss); NaN where the task has none
    scores: Dict[str, float]  #: metrics of the task by name; NaN: not defined on this data
    label_tokens: int
    examples: int
    skipped: int
    truncated: int
    without_label: int  #: truncated rows that lost all labels
    seconds: float
    #: with per_class: {name: {"precision", "recall", "f1", "support"}}
    classes: Dict[str, Dict[str, float]] = field(default_factory=dict)
    entity_types: Dict[str, Dict[str, float]] = field(default_factory=dict)


class Model:
    """A base, bare or with a prefix."""

    @property
    def _numbers(self) -> Mapping[str, int]:
        """Labels that are whole numbers, by their names."""
        return {}

    def _base_and_prefix(self) -> "tuple[Base, Optional[Handle]]":
        raise NotImplementedError

    def generate(self, prompts: Sequence[str], max_tokens: int = 64, **options: "Unpack[GenerateOptions]") -> List[str]:
        """Returns the completion of each prompt, without the prompt; greedy unless a temperature is given.

        A completion does not depend on the other prompts.
        """
        base, prefix = self._base_and_prefix()
        how = lib.kvf_generate_defaults()
        fill(how, GenerateOptions, options)
        how.max_tokens = whole("max_tokens", max_tokens)
        stop = texts(options.get("stop"))
        bias = [c.kvf_token_bias(whole("logit_bias", id, ctypes.c_int32), real("logit_bias", value, ctypes.c_float))
                for id, value in (options.get("logit_bias") or {}).items()]
        biases = (c.kvf_token_bias * len(bias))(*bias)
        how.stop, how.n_stop = ctypes.cast(stop, ctypes.POINTER(c.TEXT)), len(stop)
        how.logit_bias, how.n_logit_bias = ctypes.cast(biases, ctypes.POINTER(c.kvf_token_bias)), len(biases)
        asked = texts(prompts)
        answers = (ctypes.c_void_p * len(asked))()
        try:
            base._call(lib.kvf_generate, prefix, asked, len(asked), ctypes.byref(how), answers, None)
            return [ctypes.string_at(answer or 0, lib.kvf_text_bytes(answer)).decode("utf-8", "replace") for answer in answers]
        finally:
            lib.kvf_texts_free(answers, len(answers))

    def score(self, rows: Data, **options: "Unpack[RowOptions]") -> List[Score]:
        """Returns log-likelihoods of the completions of rows: pairs (prompt, completion), texts, dicts of any lm row, or a path.

        Each row is computed alone, so its bits do not depend on the others.
        """
        base, prefix = self._base_and_prefix()
        source = Source(base._context, rows)
        how, result = c.kvf_score_options(), c.kvf_score_result()
        fill(how.eval, RowOptions, options)
        how.eval.data = source.path
        try:
            base._call(lib.kvf_score, prefix, ctypes.byref(how), ctypes.byref(result))
            return [_score(result.rows[i]) for i in range(result.n)]
        finally:
            lib.kvf_score_result_done(ctypes.byref(result))

    def eval(self, data: Data, **options: "Unpack[EvalOptions]") -> Evaluation:
        """Returns loss and metrics on rows or a data file, by the task of the prefix."""
        base, prefix = self._base_and_prefix()
        source = Source(base._context, data)
        how, result = c.kvf_eval_options(), c.kvf_eval_result()
        fill(how, EvalOptions, options)
        how.data = source.path
        prefixes = _list_of(prefix)
        try:
            base._call(lib.kvf_eval, prefixes, len(prefixes), ctypes.byref(how), ctypes.byref(result))
            return _evaluation(result)
        finally:
            lib.kvf_eval_result_done(ctypes.byref(result))

    def predict(self, data: Data, **options: "Unpack[EvalOptions]") -> List[Dict[str, Any]]:
        """Returns predictions of a head with their probabilities, a dict for each row with the keys of `kvfold predict`.

        Rows may lack their labels. A row that overlong="skip" leaves out has None for an answer. Where all labels are whole numbers,
        they are int here.
        """
        base, prefix = self._base_and_prefix()
        source = Source(base._context, data)
        written: List[bytes] = []

        @callback(c.WRITE)
        def write(user: Any, at: int, n: int) -> None:
            written.append(ctypes.string_at(at, n))

        how = c.kvf_predict_options(out=b"predictions", out_format=c.PREDICT_JSONL, write=write)
        fill(how.eval, EvalOptions, options)
        how.eval.data = source.path
        prefixes = _list_of(prefix)
        base._call(lib.kvf_predict, prefixes, len(prefixes), ctypes.byref(how), None)
        return [_with_numbers(json.loads(line), self._numbers) for line in b"".join(written).splitlines()]

    def logits(self, ids: Sequence[int]) -> np.ndarray:
        """Returns logits [n, V] float32 after each of a row's n tokens. The tokens follow the prefix; none is added."""
        base, prefix = self._base_and_prefix()
        row = array("ids", ids, np.int32, "[n]")
        out = np.empty((len(row), base.shape.V), dtype=np.float32)
        base._call(lib.kvf_logits, prefix, row.ctypes.data, len(row), out.ctypes.data)
        return out


for _function, _options in ((Model.generate, GenerateOptions), (Model.score, RowOptions), (Model.eval, EvalOptions), (Model.predict, EvalOptions)):
    _function.__doc__ = (_function.__doc__ or "").rstrip() + f"\n\n        Options: {', '.join(_options.__annotations__)}.\n"


def _with_numbers(row: Dict[str, Any], numbers: Mapping[str, int]) -> Dict[str, Any]:
    """Replaces names of labels by their numbers."""

    def of(value: Any) -> Any:
        if isinstance(value, dict):
            return {numbers.get(name, name): share for name, share in value.items()}
        return [of(each) for each in value] if isinstance(value, list) else numbers.get(value, value)

    for name in {"label", "tags", "prediction", "probabilities"} & set(row) if numbers else ():
        row[name] = of(row[name])
    return row


def _list_of(prefix: Optional[Handle]) -> Any:
    pointers = [prefix.pointer] if prefix else []
    return (ctypes.c_void_p * len(pointers))(*pointers)


_TOKEN: Any = np.dtype(c.kvf_token_score)


def _score(row: c.kvf_row_score) -> Score:
    tokens: Any = np.zeros(row.n, _TOKEN)
    if row.n:
        ctypes.memmove(tokens.ctypes.data, row.tokens, tokens.nbytes)
    return Score(None if row.skipped else row.loglikelihood,
                 *(np.ascontiguousarray(tokens[name]) for name in ("id", "logprob", "greedy")))


def _classes(scores: c.kvf_class_scores) -> Dict[str, Dict[str, float]]:
    return {item.name.decode(): {"precision": item.precision, "recall": item.recall, "f1": item.f1, "support": item.support}
            for item in scores.item[:scores.n]}


def _evaluation(r: c.kvf_eval_result) -> Evaluation:
    return Evaluation(r.task.decode(), r.loss, r.perplexity, {m.name.decode(): m.value for m in r.scores[:r.n_scores]},
                      r.label_tokens, r.examples, r.skipped, r.truncated, r.without_label, r.seconds, _classes(r.classes),
                      _classes(r.entity_types))
