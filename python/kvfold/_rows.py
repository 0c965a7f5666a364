"""Data: a path, or rows of Python. C gets each row as a line of JSONL."""
from __future__ import annotations

import ctypes
import json
import os
import re
from typing import Any, Dict, Iterable, List, Mapping, Tuple, Union

from ._library import Context, Error, lib, text

Row = Union[Mapping[str, Any], Tuple[str, str], str]
#: A path, rows, or an object that gives rows: a datasets.Dataset, a table of pandas, polars or pyarrow, a dict of columns, a generator.
Data = Union[str, "os.PathLike[str]", Iterable[Row], Mapping[str, Any]]

_PATH = re.compile(r"\S+\.(jsonl?|ndjson|[ct]sv|txt|conll\w*|parquet|arrow|gz)", re.IGNORECASE)


# ---- a row -----------------------------------------------------------------------------------------------------------------------


def _object(row: Row) -> Mapping[str, Any]:
    if isinstance(row, str):
        return {"text": row}
    if isinstance(row, Mapping):
        return row
    if isinstance(row, tuple) and hasattr(row, "_asdict"):  # DataFrame.itertuples()
        return getattr(row, "_asdict")()
    if isinstance(row, (tuple, list)) and len(row) == 2 and all(isinstance(part, str) for part in row):
        return {"prompt": row[0], "completion": row[1]}
    raise TypeError("want a dict, a pair (prompt, completion) or a text")


def _plain(value: Any) -> Any:
    """Converts a value of numpy, torch, pandas or datetime to a type that json writes."""
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if type(value).__module__ in ("decimal", "uuid"):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _without_nan(value: Any) -> Any:
    """Replaces NaN, which tables use for a missing value, by None."""
    if isinstance(value, Mapping):
        return {key: _without_nan(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(each) for each in value]
    if isinstance(value, float):
        return None if value != value else value
    return value if isinstance(value, (str, int, type(None))) else _without_nan(_plain(value))


def json_line(row: Row) -> bytes:
    """Returns the row's line of a JSONL file, without the line feed."""
    fields = _object(row)
    for each in (lambda: fields, lambda: _without_nan(fields)):
        try:
            return json.dumps(each(), ensure_ascii=False, allow_nan=False, default=_plain).encode()
        except ValueError as error:
            wrong = error
    raise wrong


# ---- objects that give rows ------------------------------------------------------------------------------------------------------


def _gives_rows(value: Any) -> bool:
    """Whether a value of a dict holds the rows of a task, rather than a column."""
    if isinstance(value, (list, tuple)):
        return bool(value) and isinstance(value[0], (Mapping, tuple))
    return isinstance(value, (str, os.PathLike)) or hasattr(value, "columns") or hasattr(value, "column_names") or not hasattr(value, "__len__")


def is_tasks(data: Any) -> bool:
    """Whether a dict holds the rows of several tasks by name, rather than columns. Raises Error for a dict of neither."""
    if not isinstance(data, Mapping):
        return False
    names, values = ", ".join(map(str, data)), list(data.values())
    if data and set(data) <= {"train", "validation", "valid", "dev", "test"}:
        split = "train" if "train" in data else next(iter(data))
        raise Error(f'the data has the splits {names}: choose one, data["{split}"]')
    if not data or any(map(_gives_rows, values)) != all(map(_gives_rows, values)) or any(isinstance(v, (int, float)) for v in values):
        raise Error(f"the data is a dict of {names or 'nothing'}: want columns, or rows of several tasks; one row goes into a list, [row]")
    if all(isinstance(value, str) and not os.path.exists(value) for value in values):
        raise Error(f"the data is a dict of the texts {names}, none of which is a file: one row goes into a list, [row]")
    return _gives_rows(values[0])


def _transposed(columns: Mapping[str, Any]) -> Iterable[Row]:
    if len({len(column) for column in columns.values()}) > 1:
        raise Error("the columns differ in length: " + ", ".join(f"{name} {len(column)}" for name, column in columns.items()))
    return (dict(zip(columns, values)) for values in zip(*columns.values()))


def _frame_rows(frame: Any) -> List[Dict[str, Any]]:
    """Rows of a pandas frame. pandas makes floats of whole numbers where some are missing; here they are whole again."""
    if not frame.columns.is_unique:
        raise Error("two columns of the data frame have one name")
    frame = frame.copy(deep=False)
    for name in frame.columns:
        column = frame[name]
        if column.dtype.kind == "f" and column.isna().any() and (column.dropna() % 1 == 0).all():
            frame[name] = column.astype("Int64")
    return frame.to_dict("records")


def _names(feature: Any) -> Any:
    """Class names of a ClassLabel, or of a list of ClassLabels."""
    feature = feature[0] if isinstance(feature, (list, tuple)) and feature else feature
    return getattr(getattr(feature, "feature", feature), "names", None)


def _named(value: Any, names: List[str]) -> Any:
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, (list, tuple)):
        return [_named(each, names) for each in value]
    return names[value] if isinstance(value, int) and 0 <= value < len(names) else None if value == -1 else value


def _rows_of(data: Any) -> Iterable[Row]:
    """Rows of a table, of a dict of columns, or of any iterable. Numbers of a ClassLabel become its names."""
    if isinstance(data, Mapping):
        if is_tasks(data):
            raise Error(f"the data is a dict of {', '.join(map(str, data))}: want the rows of one task, or columns")
        return _transposed(data)
    if hasattr(data, "collect_schema") and hasattr(data, "collect"):  # a LazyFrame of polars
        data = data.collect()
    for method in ("to_table", "read_all", "to_dicts", "to_pylist"):  # pyarrow and polars
        data = getattr(data, method)() if hasattr(data, method) else data
    if hasattr(data, "to_dict") and hasattr(data, "columns"):
        return _frame_rows(data)
    if not hasattr(data, "__iter__") and not hasattr(data, "__getitem__"):
        raise Error(f"the data is of type {type(data).__name__}: want a path or rows")
    features = getattr(data, "features", None)
    names = {name: _names(each) for name, each in features.items() if _names(each)} if isinstance(features, Mapping) else {}
    if not names:
        return data
    return ({name: _named(value, names[name]) if name in names else value for name, value in row.items()} for row in data)


def _refuse_path(row: Any) -> None:
    if isinstance(row, os.PathLike) or isinstance(row, str) and len(row) < 1024 and (_PATH.fullmatch(row) or os.path.isfile(row)):
        raise TypeError(f'"{os.fspath(row)}" is a path, where rows are wanted: give one path, or {{"text": ...}} for such a text')


class Source:
    """Data for C: `path` is valid as long as this object lives."""

    def __init__(self, context: Context, data: Data) -> None:
        self.path = text(data) if isinstance(data, (str, os.PathLike)) else self._keep(context, data)

    def _keep(self, context: Context, data: Any) -> bytes:
        self._rows = context.make(lib.kvf_rows_create, lib.kvf_rows_free)
        for number, row in enumerate(_rows_of(data), 1):
            try:
                if number == 1:
                    _refuse_path(row)
                line = json_line(row)
            except (TypeError, ValueError, RecursionError) as error:
                raise Error(f"rows:{number}: {error}", "EDATA") from None
            context.call_quick(lib.kvf_rows_add_json, self._rows, ctypes.c_char_p(line), len(line))
        return lib.kvf_rows_path(self._rows)
