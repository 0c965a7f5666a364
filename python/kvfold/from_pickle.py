"""Tensors that torch pickled, as safetensors: python -m kvfold.from_pickle IN OUT [--force]

IN is a file of torch.save, the index of a sharded model, or a folder with pytorch_model.bin (whole or sharded), pytorch_adapter.bin and
pytorch_model_head.bin (AdapterHub) or adapter_model.bin (PEFT). OUT is a file where its name ends in .safetensors. Any other OUT is a new
folder that gets each of IN's pickles under the name kvfold reads, and copies of the configs and tokenizer files beside IN.

torch reads with weights_only=True, which runs nothing of a pickle. Names, types and bits of the tensors stay, and the lists of
a cartridge become trainable_keys.0, trainable_keys.1 and so on.
"""
from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import secrets
import shutil
import signal
import sys
import warnings
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, NoReturn, Optional, Set, Tuple, Union

from ._library import Error

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

# Pickles by the names that programs give them, and what kvfold reads instead. A whole model comes before its shards.
_TARGETS = {"adapter_model.bin": "adapter_model.safetensors", "pytorch_adapter.bin": "adapter.safetensors",
            "pytorch_model.bin": "model.safetensors", "pytorch_model.bin.index.json": "model.safetensors",
            "pytorch_model_head.bin": "model_head.safetensors"}
_BESIDE = ("adapter_config.json", "added_tokens.json", "chat_template.jinja", "config.json", "generation_config.json", "head_config.json",
           "merges.txt", "special_tokens_map.json", "spiece.model", "tokenizer.json", "tokenizer.model", "tokenizer_config.json",
           "vocab.json", "vocab.txt")
_LISTS = tuple(f"{kind}_{half}" for kind in ("trainable", "frozen", "fixed") for half in ("keys", "values"))
_TYPES = {"int64": "I64", "float64": "F64", "float32": "F32", "int32": "I32", "bfloat16": "BF16", "float16": "F16", "int16": "I16",
          "int8": "I8", "uint8": "U8", "bool": "BOOL"}  # in the order of the reference writer, by which each tensor is aligned
_NOREPLACE, _EXCHANGE = 1, 2  # of renameat2

_Tensors = Dict[str, "torch.Tensor"]
_Parts = Dict[Path, Optional[Set[str]]]  # pickles of one file, and the tensors each must hold; None: any


# ---- reading ---------------------------------------------------------------------------------------------------------------------


def _entries(held: Any) -> Iterator[Tuple[Any, Any]]:
    for name, value in held.items():
        if name in _LISTS and isinstance(value, (list, tuple, torch.nn.ParameterList, type(None))):
            yield from ((f"{name}.{i}", item) for i, item in enumerate(value or ()))
        else:
            yield name, value


def _load(path: Path) -> List[Tuple[Any, Any]]:
    """Names and values; tensors of a zip archive stay in the file until they are written."""
    with open(path, "rb") as file:
        zipped = file.read(2) == b"PK"
    try:
        with warnings.catch_warnings(), torch.serialization.safe_globals([torch.nn.ParameterList, set]):
            warnings.simplefilter("ignore")
            return list(_entries(torch.load(str(path), map_location="cpu", weights_only=True, mmap=zipped)))
    except Exception as error:  # a damaged pickle raises anything
        code = re.search(r"GLOBAL ([\w.]+)", str(error))
        raise Error(f"{path}: names {code[1]}, which tensors have no use for: it is not read" if code else
                    f"{path}: torch.load(weights_only=True) finds no dict of tensors, or damage, or a pickle protocol above 2",
                    "EUNSUPPORTED" if code else "EFORMAT") from None


def _refusal(name: Any, value: Any) -> Optional[str]:
    """Why safetensors has no place for it; None: it has."""
    if not isinstance(name, str) or name == "__metadata__" or not name.isprintable():
        return "is no name of a tensor"
    if not torch.is_tensor(value):
        return "is no tensor: want the dict of a model's tensors"
    if value.layout is not torch.strided or value.device.type != "cpu" or str(value.dtype)[6:] not in _TYPES:
        return f"is of {value.dtype}, {value.layout} on {value.device.type}: want plain {', '.join(_TYPES)}"
    if value.numel() * value.element_size() > value.untyped_storage().nbytes():
        return "repeats its values, which would fill the disk"
    return None


def _tensors(parts: _Parts) -> _Tensors:
    out: _Tensors = {}
    for path, names in parts.items():
        before = len(out)
        for name, value in _load(path):
            why = "occurs twice" if name in out else _refusal(name, value)
            if why:
                raise Error(f"{path}: {str(name)[:80]!a} {why}", "EUNSUPPORTED")
            out[name] = value.detach()
        if len(out) == before:
            raise Error(f"{path}: holds no tensor", "EUNSUPPORTED")
        if names is not None and names != set(list(out)[before:]):
            raise Error(f"{path}: holds other tensors than the index says", "EFORMAT")
    return out


def _shards(index: Path) -> _Parts:
    out: Dict[Path, Set[str]] = {}
    try:
        weight_map = list(json.loads(index.read_text(encoding="utf-8"))["weight_map"].items())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        weight_map = []
    for tensor, name in weight_map:
        if not isinstance(name, str) or os.path.basename(name) != name or not name.endswith(".bin"):
            raise Error(f"{index}: weight_map: {str(name)[:80]!a} is no bare name that ends in .bin", "EFORMAT")
        out.setdefault(index.parent / name, set()).add(tensor)
    if not out:
        raise Error(f"{index}: has no weight_map, or an empty one", "EFORMAT")
    return dict(out)


def _find(source: Path) -> Dict[str, _Parts]:
    """Pickles by the name of the file that they become."""
    found: Dict[str, Path] = {}
    if source.is_dir():
        for name, target in _TARGETS.items():
            if (source / name).exists():
                found.setdefault(target, source / name)
        if not found:
            raise Error(f"{source}: none of {', '.join(_TARGETS)} is there", "EIO")
    else:
        found[_TARGETS.get(source.name, "model.safetensors")] = source
    return {target: _shards(path) if path.name.endswith(".index.json") else {path: None} for target, path in found.items()}


# ---- writing ---------------------------------------------------------------------------------------------------------------------


def _safetensors(tensors: _Tensors) -> Iterator[Any]:
    """The bytes of a file: those of the reference writer."""
    header: Dict[str, Any] = {"__metadata__": {"format": "pt"}}
    types, at = list(_TYPES), 0
    order = sorted(tensors, key=lambda name: (types.index(str(tensors[name].dtype)[6:]), name))
    for name in order:
        value = tensors[name]
        end = at + value.numel() * value.element_size()
        header[name] = {"dtype": _TYPES[str(value.dtype)[6:]], "shape": list(value.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in order:
        yield tensors[name].contiguous().reshape(-1).view(torch.uint8).numpy().data


def _write(path: Path, chunks: Iterable[Any]) -> None:
    with open(path, "xb") as file:
        for chunk in chunks:
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())


def _check_out(out: Path, inputs: Iterable[Path], single: bool, force: bool) -> None:
    if not os.path.lexists(out):
        return
    if any(os.path.samefile(out, path) for path in inputs):
        raise Error(f"{out}: is read here, it will not be replaced")
    if not force:
        raise Error(f"{out}: exists (use --force to replace it)", "EEXIST")
    if out.is_symlink() or not (out.is_file() if single else out.is_dir()):
        raise Error(f"{out}: is no {'regular file' if single else 'folder'}, it will not be replaced", "EIO")
    strange = [] if single else sorted(set(os.listdir(out)) - {*_TARGETS.values(), *_BESIDE})
    if strange:
        raise Error(f"{out}: holds {strange[0]!a}, which no conversion writes: it will not be replaced")


def _rename(temp: Path, out: Path, flags: int) -> None:
    if ctypes.CDLL(None, use_errno=True).renameat2(-100, os.fsencode(temp), -100, os.fsencode(out), flags):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(out))


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def _put(temp: Path, out: Path, force: bool) -> None:
    """In one step; of two folders the old one is then the temporary."""
    if temp.is_dir():
        _sync(temp)
    if force and out.exists():
        os.replace(temp, out) if temp.is_file() else _rename(temp, out, _EXCHANGE)
    else:
        _rename(temp, out, _NOREPLACE)
    _sync(out.parent)


def convert(source: Union[str, Path], out: Union[str, Path], force: bool = False) -> Dict[str, int]:
    """Writes `out`, whole or not at all, as this module says. Returns the files that were made of pickles, each with its tensors' number."""
    if not hasattr(torch, "serialization") or not hasattr(torch.serialization, "safe_globals"):
        raise Error("needs torch 2.5 or later, which reads pickles: pip install torch", "EUNSUPPORTED")
    source, shown, out = Path(source), Path(out), Path(os.path.abspath(out))
    found, folder = _find(source), source if source.is_dir() else source.parent
    single = out.suffix == ".safetensors"
    if single and len(found) > 1:
        raise Error(f"{source}: holds pickles of {', '.join(found)}: want a folder as OUT")
    beside = [] if single else [folder / name for name in _BESIDE if (folder / name).is_file()]
    _check_out(out, [source, *beside, *(path for parts in found.values() for path in parts)], single, force)
    temp = out.with_name(f"{out.name}.tmp.{secrets.token_hex(4)}")
    made = {}
    try:
        if not single:
            temp.mkdir()
        for target, parts in found.items():
            tensors = _tensors(parts)
            _write(temp if single else temp / target, _safetensors(tensors))
            made[str(shown if single else shown / target)] = len(tensors)
        for path in beside:
            _write(temp / path.name, [path.read_bytes()])
        _put(temp, out, force)
    finally:
        shutil.rmtree(temp) if temp.is_dir() else temp.unlink(missing_ok=True)
    return made


# ---- the command -----------------------------------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; try --help\n")


def main(arguments: Optional[List[str]] = None) -> int:
    parser = _Parser("kvfold.from_pickle", "python -m kvfold.from_pickle IN OUT [--force]", (__doc__ or "").partition("\n\n")[2],
                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", metavar="IN", help="pickle, index of shards, or folder")
    parser.add_argument("out", metavar="OUT", help="NAME.safetensors, or a folder to make")
    parser.add_argument("--force", action="store_true", help="replaces OUT, a folder only if a conversion made all that is in it")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        for name, n in convert(options.source, options.out, options.force).items():
            print(f"{name}: {n} tensor{'s' * (n != 1)}")
        return 0
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        line = f"{error.filename or options.out}: {error.strerror or error}"
    except (Error, RuntimeError, MemoryError) as error:
        line = str(error).partition("\n")[0]
    print(f"{parser.prog}: {line}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
