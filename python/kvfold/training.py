"""Training of a prefix, and run files."""
from __future__ import annotations

import ctypes
import math
import os
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Union

import numpy as np

from . import _structs as c
from ._library import Context, Error, callback, in_python, lib, optional, text, thread_context
from ._options import TrainOptions, check_known, choice, joined
from ._progress import Bar
from ._rows import Data, Source, is_tasks
from .base import Base, Path, opened
from .prefix import Prefix, inspect

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Option(NamedTuple):
    """An option of training, by its name in `kvfold train`."""

    name: str
    argument: Optional[str]  #: "FILE", "N", "on|off"; None: a flag
    initial: str
    help: str


def train_options() -> List[Option]:
    """Options of training as the command names them; "prefix-length" is the argument prefix_length of train()."""
    options: List[Option] = []
    row = c.kvf_option()
    while lib.kvf_train_option(len(options), ctypes.byref(row)):
        options.append(Option(row.name.decode(), row.argument and row.argument.decode(), row.initial.decode(), row.help.decode()))
    return options


@dataclass(frozen=True)
class Event:
    """A report of a run. Numbers are NaN and texts empty in events of another kind than the one that has them."""

    kind: str  #: start, step, eval, save, note, retention, forecast
    step: int  #: steps done
    steps: int  #: in all
    train_loss: float  #: step: nats per label token
    valid_loss: float  #: eval
    metric: str  #: eval: the metric that selects the best checkpoint
    metric_value: float  #: eval
    best: bool  #: eval: the best so far
    retention_loss: float  #: retention: under the prefix
    retention_base_loss: float  #: retention: of the bare base
    lr: float  #: step
    grad_norm: float  #: step
    prefix_norm: float  #: step
    tokens: int  #: trained on so far
    tokens_per_second: float  #: step
    seconds: float  #: since the start of this call
    seconds_left: float  #: estimate; NaN: not known
    text: str  #: note; save: the path


@dataclass(frozen=True)
class Result:
    """Result of train(). Losses of the validation are NaN without one."""

    steps: int
    train_loss: float  #: of the last step
    valid_loss: float  #: of the last state
    best_valid_loss: float
    best_metric: str
    best_value: float
    best_step: int  #: 0: no validation ran
    stopped_early: bool
    tokens: int
    tokens_per_second: float
    seconds: float
    peak_rss_bytes: int
    trainable_parameters: int
    label_tokens: int
    examples: int
    precision: str
    finished_before: bool  #: resume of a run that was complete
    forecast: Optional[Dict[str, float]]  #: where one was asked for, as with dry_run
    parameters: int  #: all: the base's and the trainable ones that are not among them
    bare_loss: float  #: of the bare base on the validation; NaN where it was not measured
    start_loss: float  #: before the first step, the same
    largest_class: float  #: metric of always giving the training data's largest class, the same
    truncated: int  #: training rows that were cut to max_length


class History(Mapping[str, np.ndarray]):
    """Measurements of a run: columns [n] of float64 by name ("step", "train_loss", "valid_loss", "lr", ...), a value for each step.

    NaN where a step has no such number, as most have no validation loss.
    """

    def __init__(self, path: Path) -> None:
        history = thread_context().make(lib.kvf_history_open, lib.kvf_history_free, text(path))
        values, n = ctypes.POINTER(ctypes.c_double)(), lib.kvf_history_steps(history)
        self._columns: Dict[str, np.ndarray] = {}
        while name := lib.kvf_history_column(history, len(self._columns), ctypes.byref(values)):
            self._columns[name.decode()] = np.ctypeslib.as_array(values, (n,)).copy() if n else np.empty(0)

    def __getitem__(self, name: str) -> np.ndarray:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def to_pandas(self) -> Any:
        """A DataFrame with a row for each step."""
        import pandas

        return pandas.DataFrame(self._columns)


class Run:
    """A run file: train() returns one; Run(path, base) opens an existing one."""

    def __init__(self, path: Path, base: Union[Base, Path, None] = None, result: Optional[Result] = None) -> None:
        self.path, self.base, self.result = os.fspath(path), opened(base), result

    def __repr__(self) -> str:
        return f"<kvfold.Run {self.path}>"

    @property
    def history(self) -> History:
        """Measurements that the file holds now."""
        return History(self.path)

    def prefix(self, checkpoint: Optional[str] = None, *, head: Optional[str] = None) -> Prefix:
        """The prefix that the run's encoder emits, without a file. checkpoint: "best" or "last"; None: the best, or else the last.
        head: the task to use, in a run of several."""
        return Prefix.load(self.path, self.base, checkpoint=checkpoint, head=head)

    def merge(self, out: Path, *, dtype: str = "f32", checkpoint: Optional[str] = None, head: Optional[str] = None,
              out_base: Optional[Path] = None, force: bool = False) -> Prefix:
        """Runs the encoder once and writes its prefix to a file, which is read back and compared.

        dtype: "f32", "f16", "bf16", "int8". head: the task to keep, in a run of several. Without it the file has all of them, and
        Prefix.load(out, base, head=NAME) opens one of the prefix's `heads`. out_base: path for the base that p-tuning trained with
        the prefix. force: replace an existing file.
        """
        if self._is_full():
            raise Error(f"{self.path}: method full trained a base: merge_base() writes it")
        self._fold(out, checkpoint, force, dtype=choice("dtype", dtype, c.DTYPES), head=optional(head), out_base=optional(out_base))
        return Prefix.load(out, self.base)

    def merge_base(self, out: Path, *, checkpoint: Optional[str] = None, force: bool = False) -> Base:
        """Writes the base that a run of method full trained to a base file, and opens it. Prefix.load(out, base) opens its head."""
        if not self._is_full():
            raise Error(f"{self.path}: not of method full: merge() writes its prefix")
        self._fold(out, checkpoint, force)
        return Base(out)

    def _is_full(self) -> bool:
        return inspect(self.path)["attributes"].get("method") == "full"

    def _fold(self, out: Path, checkpoint: Optional[str], force: bool, **more: Any) -> None:
        options = c.kvf_merge_options(run=text(self.path), out=text(out), base=optional(self.base and self.base._again), force=force,
                                      lora=self.base and self.base._how.lora,
                                      checkpoint=choice("checkpoint", checkpoint, c.CHECKPOINTS), **more)
        context = self.base._context if self.base else thread_context()
        context.call(lib.kvf_merge, ctypes.byref(options), ctypes.byref(c.kvf_merge_result()))


# ---- training --------------------------------------------------------------------------------------------------------------------


_DATA = ("data", "valid", "retain")


def _is_whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _names_by_id(labels: Mapping[Any, Any]) -> List[str]:
    """Names of id2label or label2id in the order of their ids."""
    pairs = dict(labels) if all(map(_is_whole, labels)) else {number: name for name, number in labels.items()}
    if not all(map(_is_whole, pairs)) or sorted(pairs) != list(range(len(labels))):
        raise Error(f"labels: want names by the numbers 0 to {len(labels) - 1}, or these numbers by name")
    return [str(pairs[i]) for i in range(len(labels))]


class _Options:
    """kvf_train_options, set by name, with the rows and files that options name."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._keeps: List[Any] = []
        self.handle = context.make(lib.kvf_train_options_create, lib.kvf_train_options_free)
        self._arguments = {option.name: option.argument for option in train_options()}

    def set(self, name: str, value: Any) -> None:
        check_known(name, (option.replace("-", "_") for option in self._arguments if option != "base"))
        name = name.replace("_", "-")
        if value is None:
            return
        if isinstance(value, Mapping) and self._is_by_task(name, value):
            for task, each in value.items():
                self._set_text(name, text(task) + b"=" + self._text(name, each))
        else:
            self._set_text(name, self._text(name, value))

    def _is_by_task(self, name: str, value: Mapping[Any, Any]) -> bool:
        if name in _DATA:
            return is_tasks(value)
        if name == "labels":
            return not any(_is_whole(part) for pair in value.items() for part in pair)
        if name not in ("task", "map"):
            raise Error(f"{name}: want {self._arguments[name] or 'True or False'}, not a dict")
        return name != "map"

    def _set_text(self, name: str, value: bytes) -> None:
        self._context.call_quick(lib.kvf_train_set, self.handle, text(name), value)

    def _text(self, name: str, value: Any) -> bytes:
        if name in _DATA:
            self._keeps.append(Source(self._context, value))
            return self._keeps[-1].path
        if isinstance(value, (bool, np.bool_)):
            return (b"off", b"on")[bool(value)] if self._arguments.get(name) == "on|off" else (b"false", b"true")[bool(value)]
        if name == "labels" and isinstance(value, (list, tuple, Mapping)):
            names = _names_by_id(value) if isinstance(value, Mapping) else [str(part) for part in value]
            return self._file_of(names) if any(part.startswith("@") or "," in part for part in names) else text(",".join(names))
        if isinstance(value, float):
            return repr(float(value)).encode()
        value = joined(name, value)
        return text(value if isinstance(value, (str, bytes, os.PathLike)) else str(value))

    def _file_of(self, names: List[str]) -> bytes:
        """ "@FILE" with a name on each line, for names with commas."""
        if any("\n" in name or "\r" in name for name in names):
            raise Error("labels: a name has a line break in it")
        file = tempfile.NamedTemporaryFile(suffix=".labels")
        file.write("\n".join(names).encode())
        file.flush()
        self._keeps.append(file)
        return b"@" + os.fsencode(file.name)


def _event(raw: c.kvf_event) -> Event:
    kind = c.EVENTS[raw.kind]

    def of(owner: str, value: float) -> float:
        return value if kind == owner else math.nan

    return Event(kind, raw.step, raw.steps, of("step", raw.train_loss), of("eval", raw.valid_loss),
                 _string(raw.metric.name) if kind == "eval" else "", of("eval", raw.metric.value), kind == "eval" and raw.best,
                 of("retention", raw.retention_loss), of("retention", raw.retention_base_loss), of("step", raw.lr),
                 of("step", raw.grad_norm), of("step", raw.prefix_norm), raw.tokens, of("step", raw.tokens_per_second), raw.seconds,
                 raw.seconds_left, in_python(_string(raw.text)) if kind == "note" else _string(raw.text))


def _string(value: Optional[bytes]) -> str:
    return value.decode("utf-8", "replace") if value else ""


def _forecast(raw: c.kvf_forecast) -> Optional[Dict[str, float]]:
    return {row[0]: getattr(raw, row[0]) for row in raw._fields_ if row[0] != "reserved"} if raw.steps else None


def _result(r: c.kvf_train_result) -> Result:
    return Result(r.steps, r.train_loss, r.valid_loss, r.best_valid_loss, _string(r.best.name), r.best.value, r.best_step,
                  r.stopped_early, r.tokens, r.tokens_per_second, r.seconds, r.peak_rss_bytes, r.trainable_parameters,
                  r.label_tokens, r.examples, _string(r.precision), r.finished_before, _forecast(r.forecast),
                  r.parameters, r.bare_loss, r.start_loss, r.largest_class, r.truncated)


def train(base: Union[Base, Path], data: Union[Data, Mapping[str, Data]], *, out: Path, valid: Union[Data, Mapping[str, Data], None] = None,
          on_event: Optional[Callable[[Event], Any]] = None, progress: Optional[bool] = None, **options: Unpack[TrainOptions]) -> Run:
    """Trains a prefix for a base, whose weights stay as they are, and writes a run file. base: an open one, or its path.

    data, valid: a path, or rows: dicts, pairs (prompt, completion), a datasets.Dataset, a DataFrame, a dict of columns; {name:
    rows} for several tasks that share a prefix. Rows are stored and hashed as the lines of a JSONL file.

    on_event: called with an Event for every step, validation, save and note. An exception that it raises ends the run, as Ctrl-C
    does: the step is finished and the run saved, then the exception is raised here; resume=True continues. progress: whether to
    draw a line of progress; None: in a terminal and in a notebook.

    options: steps=200, lr=0.03, method="direct", task="seq-cls", prefix_length=20, seed=1, valid_split=0.1, resume=True, ...
    """
    base = base if isinstance(base, Base) else Base(base)
    made = _Options(base._context)
    for name, value in {"data": data, "valid": valid, "out": out, **options}.items():
        made.set(name, value)
    bar, result = Bar(progress), c.kvf_train_result()

    @callback(c.EVENT)
    def event(user: Any, raw: Any) -> None:
        what = _event(raw.contents)
        bar.event(what)
        if on_event:
            on_event(what)

    lib.kvf_train_set_event(made.handle, event, None)
    try:
        with base._context.lock:  # no other thread closes the base
            lib.kvf_train_set_base(made.handle, base._handle)
            base._context.call(lib.kvf_train, made.handle, ctypes.byref(result), allow=c.STATUS_STOPPED)
    finally:
        bar.close()
    return Run(out, base, _result(result))


def _help() -> str:
    """Lines of help() for the options of train()."""
    given = ("base", "data", "valid", "out")
    return "".join(f"\n        {option.name.replace('-', '_')}={option.argument or 'True'}{f' ({option.initial})' * bool(option.initial)}"
                   f"\n            {in_python(option.help)}" for option in train_options() if option.name not in given)


train.__doc__ = (train.__doc__ or "").rstrip() + "\n\n    All options, with their defaults:\n" + _help() + "\n"
