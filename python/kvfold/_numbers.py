"""Checks numbers and arrays before C gets them: ctypes would wrap integers, and numpy would cut off fractions."""
from __future__ import annotations

import ctypes
import math
import operator
from typing import Any, Optional

import numpy as np

from . import _structs as c
from ._library import Error


def _wrong(name: str, value: Any, want: str) -> Error:
    return Error(f"{name} {' '.join(repr(value).split())[:80]}: want {want}")


def whole(name: str, value: Any, kind: Any = c.INT, least: Optional[int] = None) -> int:
    """Returns an integer that `kind` of ctypes holds and that is at least `least`. 5.0 is an integer, True is not."""
    bits, signed = 8 * ctypes.sizeof(kind), kind(-1).value < 0
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    low = low if least is None else least
    try:
        number = operator.index(int(value) if isinstance(value, (float, np.floating)) and value == int(value) else value)
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None or isinstance(value, bool):
        raise _wrong(name, value, "a whole number")
    if not low <= number <= high:
        raise _wrong(name, value, f"{low} to {high}")
    return number


def real(name: str, value: Any, kind: Any = c.REAL) -> float:
    """Returns a float that does not overflow `kind` of ctypes."""
    try:
        number = None if isinstance(value, (bool, str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None:
        raise _wrong(name, value, "a number")
    if math.isfinite(number) and not math.isfinite(kind(number).value):
        raise _wrong(name, value, f"a number that a {8 * ctypes.sizeof(kind)}-bit float holds")
    return number


def flag(name: str, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise _wrong(name, value, "True or False")
    return bool(value)


_KINDS = {"i": "iu", "u": "biu", "f": "iuf"}  # of what an array of the type is made


def array(name: str, values: Any, dtype: Any, shape: str) -> np.ndarray:
    """Returns a contiguous array with the rank of `shape` ("[L, G, P]") and the same numbers; floats are rounded to `dtype`."""
    want = np.dtype(dtype)
    try:
        given = np.asarray(values)
    except (TypeError, ValueError, OverflowError) as error:
        raise Error(f"{name}: {error}") from None
    if given.ndim != shape.count(",") + 1:
        raise Error(f"{name} have shape {list(given.shape)}, want {shape}", "ESHAPE")
    if given.size and given.dtype.kind not in _KINDS[want.kind]:
        raise Error(f"{name} are {given.dtype}, want {'' if want.kind == 'f' else 'whole '}numbers")
    with np.errstate(over="ignore"):
        out = np.ascontiguousarray(given, want)
    if out.dtype != given.dtype and given.size:
        lost = np.isinf(out) & np.isfinite(given) if want.kind == "f" else out != given
        if lost.any():
            raise Error(f"{name}: {given[lost].flat[0]} does not fit {want}")
    return out
