"""A base: a frozen pretrained transformer with its tokenizer."""
from __future__ import annotations

import ctypes
import os
from typing import Any, Callable, NamedTuple, Optional, Sequence, Union

import numpy as np

from . import _structs as c
from ._library import Context, Error, Handle, lib, optional, text
from ._numbers import array
from ._options import choice
from .model import Model

Path = Union[str, "os.PathLike[str]"]


class Shape(NamedTuple):
    """Sizes of a base, named by the letters that all shapes use."""

    L: int  #: layers
    H: int  #: query heads
    G: int  #: key/value heads
    D: int  #: size of a head
    C: int  #: width
    F: int  #: width of the feed-forward part
    V: int  #: vocabulary
    max_positions: int


class Base(Model):
    """A model from a Hugging Face folder, a GGUF or base file, or a Hub id ("org/name") that is in the local cache.

    precision: "f32", "bf16", "int8" (products of the layers in eight bits), or "auto", bf16 where that is faster. weight_dtype:
    "f32", "bf16" or "int8" keeps one copy of each weight, for less memory and more time. stream_layers: weights are read from
    the file layer by layer.
    lora: folder of a LoRA of PEFT that is folded into the weights; that is another base than the bare one, of another hash.

    One thread at a time uses a base; others wait. The same prefix may be used with several bases at once. `with Base(path) as base:`
    closes it at the end.
    """

    def __init__(self, path: Path, *, precision: str = "auto", weight_dtype: str = "auto", stream_layers: bool = False,
                 lora: Optional[Path] = None) -> None:
        self.path = os.fspath(path)
        self._how = c.kvf_base_options(precision=choice("precision", precision, c.PRECISIONS),
                                       weight_dtype=choice("weight_dtype", weight_dtype, c.WEIGHT_DTYPES),
                                       stream_layers=stream_layers, lora=optional(lora))
        self._context = Context()
        self._carried: Optional[Handle] = None
        self._again = os.path.abspath(self.path) if os.path.exists(self.path) else self.path  # os.chdir() may come; or a Hub id
        self._open()

    def _open(self) -> None:
        self._held = self._context.make(lib.kvf_base_open_for, lib.kvf_base_free, text(self.path), ctypes.byref(self._how),
                                          self._carried, keeps=(self._carried,))

    @property
    def _handle(self) -> Handle:
        if self._held.pointer is None:
            raise Error("the base is closed")
        return self._held

    def close(self) -> None:
        """Frees the weights now, rather than with the last reference. Every later use is an Error."""
        with self._context.lock:
            self._context.check_idle()
            self._held.close()

    def __enter__(self) -> Base:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def _carrying(self, prefix: Handle) -> Base:
        """Opens the same base again, with the weights that a prefix (an adapter) changes."""
        other = object.__new__(Base)
        other.path = other._again = self._again
        other._how, other._context, other._carried = self._how, Context(), prefix
        other._open()
        if other.hash != self.hash:
            raise Error(f"{self.path}: holds other weights now than when it was opened", "EMISMATCH")
        return other

    def _call(self, function: Callable, *arguments: Any) -> None:
        self._context.call(function, self._handle, *arguments)

    def _base_and_prefix(self) -> "tuple[Base, Optional[Handle]]":
        return self, None

    def __repr__(self) -> str:
        return f"<kvfold.Base {self.name}, {self.architecture}, {self.precision}>"

    @property
    def name(self) -> str:
        return lib.kvf_base_name(self._handle).decode("utf-8", "replace")

    @property
    def architecture(self) -> str:
        """ "llama", "gpt2", "bert", ..."""
        return lib.kvf_base_architecture(self._handle).decode()

    @property
    def hash(self) -> str:
        """Hash of the weights, 32 hex digits. Prefixes store it to identify their base."""
        return lib.kvf_base_hash(self._handle).decode()

    @property
    def precision(self) -> str:
        """Precision of matrix products: "f32", "bf16" or "int8"."""
        return next(name for name, value in c.PRECISIONS.items() if value == lib.kvf_base_precision(self._handle))

    @property
    def shape(self) -> Shape:
        shape = lib.kvf_base_shape(self._handle)
        return Shape(*(getattr(shape, name) for name in Shape._fields))

    def tokenize(self, string: str, *, special: bool = True) -> np.ndarray:
        """Returns the ids [n] int32 of a text; special: with the special tokens that the tokenizer adds."""
        coded = string.encode("utf-8", "surrogatepass")
        ids, n = ctypes.POINTER(ctypes.c_int32)(), c.SIZE()
        self._context.call_quick(lib.kvf_tokenize, self._handle, ctypes.c_char_p(coded), len(coded), special, ctypes.byref(ids), ctypes.byref(n))
        try:
            return np.array(ids[:n.value], dtype=np.int32)
        finally:
            lib.kvf_ids_free(ids)

    def detokenize(self, ids: Sequence[int], *, special: bool = False) -> str:
        """Returns the text of ids [n]; special: with special tokens written out."""
        row = array("ids", ids, np.int32, "[n]")
        string, n = ctypes.c_void_p(), c.SIZE()
        self._context.call_quick(lib.kvf_detokenize, self._handle, row.ctypes.data, len(row), special, ctypes.byref(string), ctypes.byref(n))
        try:
            return ctypes.string_at(string, n.value).decode("utf-8", "replace")
        finally:
            lib.kvf_string_free(string)


def opened(base: Union[Base, Path, None]) -> Optional[Base]:
    """Opens a base that is given by path or Hub id; returns an open one unchanged."""
    return base if base is None or isinstance(base, Base) else Base(base)
