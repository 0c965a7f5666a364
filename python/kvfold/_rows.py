"""Data: a path, or rows as Python has them, which C gets in their JSONL form."""
from __future__ import annotations

import ctypes
import json
import os
from typing import Any, Iterable, Mapping, Tuple, Union

from ._library import Context, Error, lib, text

Row = Union[Mapping[str, Any], Tuple[str, str], str]
#: A path, rows, or what gives rows: a datasets.Dataset, a DataFrame, a generator.
Data = Union[str, "os.PathLike[str]", Iterable[Row]]


def _object(row: Row) -> Mapping[str, Any]:
    if isinstance(row, str):
        return {"text": row}
    if isinstance(row, Mapping):
        return row
    if isinstance(row, (tuple, list)) and len(row) == 2 and all(isinstance(part, str) for part in row):
        return {"prompt": row[0], "completion": row[1]}
    raise TypeError("want a dict, a pair (prompt, completion) or a text")


def _plain(value: Any) -> Any:
    """Values of numpy, torch and pyarrow, as json wants them."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def json_line(row: Row) -> bytes:
    """A row as its line of a JSONL file, without the line feed."""
    return json.dumps(_object(row), ensure_ascii=False, allow_nan=False, default=_plain).encode()


class Source:
    """What a path to data is asked for takes: `path`, as long as this lives."""

    def __init__(self, context: Context, data: Data) -> None:
        self.path = text(data) if isinstance(data, (str, os.PathLike)) else self._keep(context, data)

    def _keep(self, context: Context, data: Iterable[Row]) -> bytes:
        if hasattr(data, "to_dict") and hasattr(data, "columns"):  # a DataFrame, which iterates over names of columns
            data = data.to_dict("records")
        self._rows = context.make(lib.kvf_rows_create, lib.kvf_rows_free)
        for number, row in enumerate(data, 1):
            try:
                line = json_line(row)
            except (TypeError, ValueError) as error:
                raise Error(f"rows:{number}: {error}", "EDATA") from None
            context.call_quick(lib.kvf_rows_add_json, self._rows, ctypes.c_char_p(line), len(line))
        return lib.kvf_rows_path(self._rows)
