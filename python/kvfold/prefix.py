"""A prefix: trained keys and values for the layers of a base, with a head where the task has one."""
from __future__ import annotations

import ctypes
import functools
import json
import os
import re
import tempfile
from pathlib import Path as _Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple, Union

import numpy as np

from . import _structs as c
from ._library import Context, Error, Handle, lib, optional, text, thread_context
from ._numbers import array, whole
from ._options import EvalOptions, choice
from ._rows import Data
from .base import Base, Path, opened
from .model import Model

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._transformers import Inputs


def inspect(path: Path) -> Dict[str, Any]:
    """Returns the contents of a kvfold, safetensors or GGUF file, or of a Hugging Face or PEFT folder, as `kvfold inspect --json`."""
    tree = thread_context().make(lib.kvf_inspect, lib.kvf_json_free, text(path))
    string = lib.kvf_json_text(tree, 0)
    try:
        return json.loads(ctypes.string_at(string))
    finally:
        lib.kvf_json_text_free(string)


class _Array:
    """Memory of C for numpy. An array made of it holds a reference to this object, which holds the memory."""

    def __init__(self, owner: Handle, address: int, shape: Iterable[int]) -> None:
        self._owner = owner
        self.__array_interface__ = {"data": (address, True), "shape": tuple(shape), "typestr": "<f4", "version": 3}


class Prefix(Model):
    """A prefix made by Prefix.load, .from_numpy, .from_peft or Run.merge. `base` is the base that it is used with, or None."""

    def __init__(self, handle: Handle, context: Context, base: Optional[Base], path: Optional[Path] = None) -> None:
        self._handle, self._context, self.base, self._path = handle, context, base, path

    @classmethod
    def load(cls, path: Path, base: Union[Base, Path, None] = None, *, checkpoint: Optional[str] = None, head: Optional[str] = None,
             allow_other_base: bool = False) -> Prefix:
        """Opens a prefix or adapter file, a base file with a head, or a run file, whose encoder is run now.

        base: an open base or its path, for methods that compute and for runs whose encoder reads it. A prefix that changes the base
        itself (an adapter) opens it once more. checkpoint: "best" or "last" state of a run; None: the best, or else the last. head:
        the task to use, in a file of several; without it only `heads` and the values can be read. allow_other_base: accept a base
        with other weights than those of the training, but of the same shape.
        """
        base = opened(base)
        context = base._context if base else thread_context()
        handle = context.make(lib.kvf_prefix_open_on, lib.kvf_prefix_free, text(path), base and base._handle,
                              choice("checkpoint", checkpoint, c.CHECKPOINTS))
        if head is not None:
            context.call(lib.kvf_prefix_use_head, handle, text(head))
        if base and lib.kvf_prefix_changes_base(handle):
            base = base._carrying(handle)
            context = base._context
        if base and not lib.kvf_prefix_head(handle, 0):
            context.call(lib.kvf_prefix_check, handle, base._handle, allow_other_base)
        return cls(handle, context, base, path)

    @classmethod
    def from_numpy(cls, base: Base, values: Any, *, position_start: Optional[int] = None, log_weights: Any = None,
                   layer_mask: Any = None, relative_bias: bool = False) -> Prefix:
        """Makes a prefix of values [L, 2, 1, G, P, D], keys before values, in the layout of a cache of transformers (keys after rope).
        The values are copied.

        position_start: position of a text's first token; None: P. log_weights [L, G, P]: added to the scores of its keys.
        layer_mask [L]: which layers have the prefix; None: all. relative_bias: keys of T5's decoder take its bias, as PEFT's do.
        """
        kv = array("values", values, np.float32, "[L, 2, 1, G, P, D]")
        start = -1 if position_start is None else whole("position_start", position_start, least=0)
        handle = base._context.make(lib.kvf_prefix_from_array, lib.kvf_prefix_free, base._handle, kv.ctypes.data,
                                    (c.INT * 6)(*kv.shape), start)
        if layer_mask is not None:
            mask = array("layer_mask", layer_mask, np.uint8, "[L]")
            base._context.call(lib.kvf_prefix_set_layer_mask, handle, mask.ctypes.data, mask.size)
        if relative_bias:
            base._context.call(lib.kvf_prefix_set_relative_bias, handle, True)
        if log_weights is not None:
            weights = array("log_weights", log_weights, np.float32, "[L, G, P]")
            base._context.call(lib.kvf_prefix_set_log_weights, handle, weights.ctypes.data, (c.INT * 3)(*weights.shape))
        return cls(handle, base._context, base)

    @classmethod
    def from_peft(cls, folder: Path, base: Union[Base, Path, None] = None) -> Prefix:
        """Reads a PEFT folder of PREFIX_TUNING or CARTRIDGE, or one that kvfold.from_pickle made."""
        base = opened(base)
        with tempfile.TemporaryDirectory() as place:
            out = _Path(place) / "prefix.h5"
            options = c.kvf_import_options(path=text(folder), out=text(out), base=optional(base and base._again),
                                           lora=base and base._how.lora)
            setattr(options, "from", b"peft")
            kind = ctypes.create_string_buffer(16)
            thread_context().call(lib.kvf_import, ctypes.byref(options), kind)
            prefix = cls.load(out, base)
            prefix._path = None
            return prefix

    def _base_and_prefix(self) -> "tuple[Base, Optional[Handle]]":
        if self.base is None:
            raise Error("the prefix has no base: Prefix.load(path, base)")
        if self.heads:
            raise Error(f"the prefix has the heads {', '.join(self.heads)}: open one with Prefix.load(path, base, head=NAME)")
        return self.base, self._handle

    def __repr__(self) -> str:
        return f"<kvfold.Prefix P={self.length}{f' of {self._path}' if self._path else ''}>"

    @property
    def task(self) -> str:
        """ "lm", "seq-cls", "token-cls", "qa", "multiple-choice"; "multi-task": one of `heads` is to be opened."""
        return lib.kvf_prefix_task(self._handle).decode()

    @functools.cached_property
    def heads(self) -> List[str]:
        """Names of the tasks of a file that holds several heads, Prefix.load(path, base, head=NAME) opens one; else []."""
        return self._listed(lib.kvf_prefix_head)

    @functools.cached_property
    def labels(self) -> List[Any]:
        """Classes or tags in the order of the head's outputs, as predict() gives them: int where all are whole numbers, else str."""
        return [self._numbers.get(name, name) for name in self._listed(lib.kvf_prefix_label)]

    @property
    def _numbers(self) -> Dict[str, int]:
        names = self._listed(lib.kvf_prefix_label)
        return {name: int(name) for name in names} if all(re.fullmatch("0|-?[1-9][0-9]{0,17}", name) for name in names) else {}

    def _listed(self, function: Callable) -> List[str]:
        names: List[str] = []
        while name := function(self._handle, len(names)):
            names.append(name.decode())
        return names

    def probabilities(self, data: Data, **options: "Unpack[EvalOptions]") -> np.ndarray:
        """[rows, classes] float64 of a classifier (seq-cls), columns in the order of `labels`; NaN: a row that was left out."""
        if self.task != "seq-cls" or not self.labels:
            raise Error(f"probabilities() is for classes: predict() has the answers of {self.task}", "EUNSUPPORTED")
        rows = [row.get("probabilities") or {} for row in self.predict(data, **options)]
        return np.array([[row.get(label, np.nan) for label in self.labels] for row in rows]).reshape(len(rows), -1)

    @property
    def length(self) -> int:
        """P, the number of virtual tokens."""
        return lib.kvf_prefix_length(self._handle)

    @property
    def position_start(self) -> int:
        """Position of a text's first token."""
        return lib.kvf_prefix_position_start(self._handle)

    @property
    def base_hash(self) -> str:
        """Hash of the prefix's base; "" if it is not known."""
        return lib.kvf_prefix_base_hash(self._handle).decode()

    def numpy(self) -> np.ndarray:
        """Returns [L, 2, 1, G, P, D] float32, keys before values, in the layout of a cache of transformers; read-only, not copied.

        The array may outlive the prefix. If heads differ by layer, use layers().
        """
        shape = (c.INT * 6)()
        address = lib.kvf_prefix_kv(self._handle, shape)
        if not address and lib.kvf_prefix_layer(self._handle, 0, None):
            raise Error("the prefix has heads that differ by layer: layers() gives an array for each", "EUNSUPPORTED")
        if not address:
            raise Error("the prefix has no keys and values, but virtual tokens at the input, or values of the base itself",
                        "EUNSUPPORTED")
        return np.asarray(_Array(self._handle, address, shape))

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> np.ndarray:
        """numpy.asarray(prefix) is numpy()."""
        array = self.numpy()
        if copy is False and dtype not in (None, array.dtype):
            raise Error(f"the prefix is {array.dtype}: as {dtype} it has to be copied")
        return array.astype(dtype or array.dtype, copy=bool(copy))

    @property
    def shape(self) -> Tuple[int, ...]:
        """(L, 2, 1, G, P, D), as numpy() has it."""
        return self.numpy().shape

    @property
    def dtype(self) -> np.dtype:
        """float32, as numpy() has it; a file may hold another."""
        return self.numpy().dtype

    def layers(self) -> List[np.ndarray]:
        """Returns [2, 1, G, P, D] float32 for each layer, as in numpy(). Layers that share keys and values with another are left out.
        The list is empty for a prefix without keys and values."""
        arrays: List[np.ndarray] = []
        shape = (c.INT * 5)()
        while address := lib.kvf_prefix_layer(self._handle, len(arrays), shape):
            arrays.append(np.asarray(_Array(self._handle, address, shape)))
            shape = (c.INT * 5)()
        return arrays

    @property
    def log_weights(self) -> Optional[np.ndarray]:
        """[L, G, P] float32: numbers that attention adds to the scores of the keys; read-only, not copied. None: there are none."""
        shape = (c.INT * 3)()
        address = lib.kvf_prefix_log_weights(self._handle, shape)
        return np.asarray(_Array(self._handle, address, shape)) if address else None

    def neurons(self) -> Dict[str, np.ndarray]:
        """Virtual neurons (ffn_length of train()), float32, read-only, not copied; {}: there are none.

        "key" [L, N, C] of plain feed-forward blocks, "gate" and "up" of gated ones, "value", and "bias" [L, N] where the block has one.
        """
        found: Dict[str, np.ndarray] = {}
        for name in ("gate", "up", "key", "value", "bias"):
            shape = (c.INT * 3)()
            if address := lib.kvf_prefix_neurons(self._handle, name.encode(), shape):
                array = np.asarray(_Array(self._handle, address, shape))
                found[name] = array[:, :, 0] if name == "bias" else array
        return found

    @property
    def layer_mask(self) -> Optional[np.ndarray]:
        """[L] bool: layers with the prefix; a copy. None: the prefix has no keys and values."""
        layers = c.INT()
        address = lib.kvf_prefix_layer_mask(self._handle, ctypes.byref(layers))
        return np.frombuffer(ctypes.string_at(address, layers.value), dtype=bool) if address else None

    @property
    def relative_bias(self) -> bool:
        """Whether the keys get the relative bias of T5's decoder, as in PEFT."""
        return lib.kvf_prefix_relative_bias(self._handle)

    def save(self, path: Path, *, dtype: str = "f32", force: bool = False) -> None:
        """Writes a prefix file. dtype: "f32", "f16", "bf16", "int8". force: replace an existing file."""
        self._context.call(lib.kvf_prefix_save, self._handle, text(path), choice("dtype", dtype, c.DTYPES), force)

    @functools.cached_property
    def _attributes(self) -> Dict[str, Any]:
        """Attributes of the file of a prefix with keys and values."""
        with tempfile.TemporaryDirectory() as place:
            self.save(_Path(place) / "prefix.h5")
            return inspect(_Path(place) / "prefix.h5")["attributes"]

    def to_peft(self, folder: Path, base_id: Optional[str] = None, *, force: bool = False) -> None:
        """Writes a folder for PeftModel.from_pretrained; with base_id, a Hub id or folder of the base, also for AutoPeftModelFor...."""
        options = c.kvf_export_options(out=text(folder), format=c.EXPORT_PEFT, base_id=optional(base_id), force=force)
        self._context.call(lib.kvf_prefix_export, self._handle, ctypes.byref(options))

    def inputs(self, tokenizer: Any, texts: Sequence[str], *, forward: Optional[bool] = None) -> Inputs:
        """Arguments for one call of a model of transformers that continues these texts after this prefix; see docs/python.md.

        model.generate(**prefix.inputs(tokenizer, texts)) for a causal base: input_ids, attention_mask and position_ids
        [B, P + T], int64, rows padded at the left; input_ids begin with P placeholders, and completions with column P + T.
        cache (past_key_values before transformers 5.24) holds the prefix for all rows, in the model's type and on its device.
        It grows, so a second call with the same inputs is refused. inputs.to(device) moves the rest.

        forward=True: for model(**inputs), input_ids and position_ids without placeholders, [B, T]. That is always so on
        encoder bases (BERT, RoBERTa), whose rows are padded at the right.
        """
        if self.log_weights is not None:
            raise Error("the prefix has log-weights, which a cache of transformers does not hold", "EUNSUPPORTED")
        if self.neurons():
            raise Error("the prefix has virtual neurons, which a cache of transformers does not hold", "EUNSUPPORTED")
        from ._transformers import inputs

        return inputs(self, tokenizer, texts, forward)
