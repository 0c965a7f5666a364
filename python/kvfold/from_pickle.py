"""Tensors that torch pickled, and prefixes of other programs, as safetensors: python -m kvfold.from_pickle IN OUT [--force]

IN is a file of torch.save, the index of a sharded model, or a folder with pytorch_model.bin (whole or sharded), pytorch_adapter.bin and
pytorch_model_head.bin (AdapterHub) or adapter_model.bin (PEFT). OUT is a file where its name ends in .safetensors. Any other OUT is a new
folder that gets each of IN's pickles under the name kvfold reads, and copies of the configs and tokenizer files beside IN.
Names, types and bits of the tensors stay. torch reads with weights_only=True, which runs nothing of a pickle.

Prefixes of P-tuning v2, PrefixTuning (Li & Liang), AdapterHub and cartridges, pickles or safetensors, become a folder in the form of PEFT,
which `kvfold import` reads: adapter_config.json, adapter_model.safetensors with the keys and values that their encoder emits, as f32, and
labels.json where their head's outputs have names. PEFT itself has no form for AdapterHub's, whose rows start at position 0.
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
_PREFIXES = ("adapter.safetensors", "model.safetensors")  # of other programs, read only where there is no pickle
_MADE = ("adapter_config.json", "adapter_model.safetensors", "labels.json")  # of a prefix
_TASKS = {"lm": None, "seq-cls": "SEQ_CLS", "token-cls": "TOKEN_CLS", "qa": "QUESTION_ANS"}
_CLASSES = {"ForSequenceClassification": "seq-cls", "ForTokenClassification": "token-cls", "ForQuestionAnswering": "qa"}
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
    """Returns names and values; tensors of a zip archive stay in the file until they are written."""
    with open(path, "rb") as file:
        head = file.read(9)
    zipped = head[:2] == b"PK"
    try:
        if head[8:] == b"{" and path.suffix == ".safetensors":
            from safetensors.torch import load_file
            return list(load_file(path).items())
        with warnings.catch_warnings(), torch.serialization.safe_globals([torch.nn.ParameterList, set]):
            warnings.simplefilter("ignore")
            return list(_entries(torch.load(str(path), map_location="cpu", weights_only=True, mmap=zipped)))
    except Exception as error:  # a damaged pickle raises anything
        code = re.search(r"GLOBAL ([\w.]+)", str(error))
        raise Error(f"{path}: names {code[1]}, which tensors have no use for: it is not read" if code else
                    f"{path}: torch.load(weights_only=True) finds no dict of tensors, or damage, or a pickle protocol above 2",
                    "EUNSUPPORTED" if code else "EFORMAT") from None


def _refusal(name: Any, value: Any) -> Optional[str]:
    """Returns why safetensors cannot hold a value; None: it can."""
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
    """Returns pickles by the names of the files that they are converted to."""
    found: Dict[str, Path] = {}
    if source.is_dir():
        for name, target in _TARGETS.items():
            if (source / name).exists():
                found.setdefault(target, source / name)
        for name in _PREFIXES:
            if not found and (source / name).exists():
                found = {t: source / t for t in (name, "model_head.safetensors") if (source / t).exists()}
        if not found:
            raise Error(f"{source}: none of {', '.join(_TARGETS)} is there", "EIO")
    else:
        found[_TARGETS.get(source.name, "model.safetensors")] = source
    return {target: _shards(path) if path.name.endswith(".index.json") else {path: None} for target, path in found.items()}


# ---- prefixes of other programs --------------------------------------------------------------------------------------------------


class _Prefix:
    """One that was found in tensors, which are taken away as they are used: rows [P, 2 * layers * heads * head_dim], PEFT's config."""

    def __init__(self, path: Path, tensors: _Tensors, folder: Path):
        self.path, self.tensors = path, tensors
        self.head: _Tensors = {}
        self.task = "lm"
        self.hub, self.config = self.read(folder / "adapter_config.json"), self.read(folder / "config.json")
        by_name = self.read(folder / "head_config.json").get("label2id") or {}
        self.labels = self.config.get("id2label") or {str(i): label for label, i in by_name.items()}
        self.said: Dict[str, Any] = {"peft_type": "PREFIX_TUNING"}

    def read(self, path: Path) -> Dict[str, Any]:
        try:
            found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
            return found if isinstance(found, dict) else {}
        except (ValueError, RecursionError):
            raise Error(f"{path}: is no JSON", "EFORMAT") from None

    def fail(self, line: str) -> NoReturn:
        raise Error(f"{self.path}: {line}", "EUNSUPPORTED")

    def take(self, name: str) -> "torch.Tensor":
        if name not in self.tensors:
            self.fail(f"tensor {name!a} is missing")
        if not self.tensors[name].is_floating_point():
            self.fail(f"{name!a} is of {self.tensors[name].dtype}, want a float type")
        return self.tensors.pop(name).double()

    def through(self, rows: "torch.Tensor", stem: str, act: str) -> "torch.Tensor":
        """Rows through the linear layers stem.0, stem.2 and so on, with the non-linearity between them."""
        acts = {"tanh": torch.tanh, "relu": torch.relu, "gelu": torch.nn.functional.gelu, "silu": torch.nn.functional.silu,
                "swish": torch.nn.functional.silu}
        if act not in acts:
            self.fail(f"the non-linearity is {act!a}; known: {', '.join(acts)}")
        i = 0
        while not i or any(name.startswith(f"{stem}.{i}.") for name in self.tensors):
            rows = acts[act](rows) if i else rows
            rows = torch.nn.functional.linear(rows, self.take(f"{stem}.{i}.weight"), self.take(f"{stem}.{i}.bias"))
            i += 2
        return rows

    def ptuning_v2(self) -> "torch.Tensor":
        if "prefix_encoder.weight" in self.tensors:
            self.fail("is a prompt at the input, which goes through the embedding's norm twice: want a prefix (--prefix)")
        rows = self.take("prefix_encoder.embedding.weight")
        if any(name.startswith("prefix_encoder.trans.") for name in self.tensors):
            rows = self.through(rows, "prefix_encoder.trans", "tanh")
        self.head = {n: self.tensors.pop(n) for n in list(self.tensors) if n.startswith(("classifier.", "qa_outputs."))}
        dense = {n[15:]: v for n, v in self.tensors.items() if n.startswith("roberta.pooler.dense.")}
        if dense and self.task == "seq-cls":  # the frozen pooler and a layer: the two layers of RoBERTa's own head
            self.head = {n.replace(".", ".out_proj."): v for n, v in self.head.items()}
            self.head.update((f"classifier.{n}", v) for n, v in dense.items())
        for name in [n for n in self.tensors if n.startswith(("bert.", "roberta."))]:
            del self.tensors[name]
        return rows

    def prefixtuning(self) -> "torch.Tensor":
        for name in self.tensors:
            if name.startswith(("wte_enc", "control_trans_enc", "control_trans2", "wte2")):
                self.fail(f"{name!a} is of an encoder-decoder model or of infix-tuning")
        if "control_trans" not in self.tensors:
            return self.through(self.take("wte.weight"), "control_trans", "tanh")
        flat = self.take("control_trans")
        if flat.dim() == 5 and flat.shape[1] == 1 and flat.shape[0] % 2 == 0:  # the shallow form from words is a cache
            return self.cache(flat.reshape(-1, 2, *flat.shape[2:]))
        return self.rows(flat, self.config.get("preseqlen"), "preseqlen of config.json")

    def rows(self, flat: "torch.Tensor", P: Any, where: str) -> "torch.Tensor":
        if type(P) is not int or P < 1 or flat.dim() != 1 or flat.numel() % P:
            self.fail(f"control_trans is {list(flat.shape)}, and {where} is {P!a}: want a vector of whole rows")
        return flat.reshape(P, -1)

    def cache(self, kv: "torch.Tensor") -> "torch.Tensor":
        """kv [L, 2, G, P, D], which has its shape."""
        L, _, G, P, D = kv.shape
        self.said.update(num_layers=L, num_attention_heads=G, token_dim=G * D)
        return kv.permute(3, 0, 1, 2, 4).reshape(P, -1)

    def cartridges(self) -> "torch.Tensor":
        kinds = [k for k in ("fixed", "frozen", "trainable") if any(n.startswith(k + "_") for n in self.tensors)]
        L = sum(n.startswith("trainable_keys.") for n in self.tensors)
        kv = [torch.cat([self.take(f"{kind}_{half}.{l}") for kind in kinds], 2) for l in range(L) for half in ("keys", "values")]
        if any(x.dim() != 4 or x.shape != kv[0].shape or x.shape[0] != 1 for x in kv):
            self.fail(f"keys and values of layers are {[list(x.shape) for x in kv][:4]}, want all alike, [1, heads, P, head_dim]")
        return self.cache(torch.cat(kv).reshape(L, 2, *kv[0].shape[1:]))

    def adapterhub(self) -> "torch.Tensor":
        how, names, layers = self.hub.get("config"), set(), set()
        if not isinstance(how, dict) or how.get("architecture") != "prefix_tuning" or how.get("use_gating"):
            self.fail("want an adapter_config.json of AdapterHub beside it, of architecture prefix_tuning without use_gating")
        for name in list(self.tensors):  # one pool, which every layer refers to
            found = re.fullmatch(r"(.*)\.prefix_tunings\.([^.]+)\.self_prefix\.(.+)", name)
            if not found:
                self.fail(f"{name!a} is no part of a prefix of a decoder or an encoder alone")
            value = self.tensors.pop(name)
            names.add(found[2])
            layers |= {found[1]} if found[1].endswith(".pool") else set()
            if not torch.equal(self.tensors.setdefault(found[3], value), value) or len(names) > 1:
                self.fail(f"{name!a} differs from its copies: want one prefix")
        rows = (self.rows(self.take("control_trans"), how.get("prefix_length"), "prefix_length of adapter_config.json") if how.get("flat")
                else self.through(self.take("wte.weight"), "control_trans", str(how.get("non_linearity")).lower()))
        out = how.get("leave_out") or []
        keep = [l for l in range(len(layers)) if l not in out]
        if len(keep) + len(out) != len(layers) or not keep or rows.shape[1] % len(keep):
            self.fail(f"leave_out of adapter_config.json, {out}, does not fit {len(layers)} layers and rows of {rows.shape[1]}")
        self.said.update(peft_type="ADAPTERHUB", leave_out=out)
        whole = rows.new_zeros(rows.shape[0], len(layers), rows.shape[1] // len(keep))
        whole[:, keep] = rows.reshape(rows.shape[0], len(keep), -1)
        return whole.flatten(1)

    def make(self, read: str, head: _Tensors, task: Optional[str]) -> Dict[str, bytes]:
        """adapter_config.json, adapter_model.safetensors, labels.json."""
        name = str(self.hub.get("model_class") or (self.config.get("architectures") or [""])[0])
        self.task = task or next((t for part, t in _CLASSES.items() if part in name),
                                 "qa" if "qa_outputs.weight" in self.tensors else "lm")
        if not task and self.task == "lm" and ("ForMultipleChoice" in name or {"classifier.weight"} & {*self.tensors, *head}):
            self.fail("has a classifier, but not for what, or one PEFT has no form for: --task seq-cls or token-cls, or lm to leave it out")
        try:
            rows = getattr(self, read)().float().contiguous()
        except RuntimeError as error:
            self.fail(f"its tensors do not fit each other: {str(error).splitlines()[0]}")
        if self.tensors:
            self.fail(f"holds {min(self.tensors)!a}, which is no part of a prefix that kvfold knows")
        head = {} if self.task == "lm" else self.head or head
        if self.task != "lm" and not head:
            self.fail(f"no head for task {self.task}; --task lm takes the prefix alone")
        self.said.update(task_type=_TASKS[self.task], num_virtual_tokens=rows.shape[0], prefix_projection=False, inference_mode=True)
        held = {"prompt_embeddings": rows, **{f"base_model.{n}": v.float() for n, v in head.items()}}
        made = {"adapter_config.json": json.dumps(self.said, indent=2).encode(), "adapter_model.safetensors": b"".join(_safetensors(held))}
        labels = [self.labels.get(str(i)) for i in range(len(self.labels))]
        if head and self.task != "qa" and labels and all(isinstance(x, str) and x and "," not in x for x in labels):
            made["labels.json"] = json.dumps({"id2label": {str(i): x for i, x in enumerate(labels)}}).encode()
        return made


def _reader(tensors: _Tensors) -> Optional[str]:
    """The method of _Prefix that reads them; None: they are no prefix."""
    marks = {"ptuning_v2": r"prefix_encoder\.(embedding\.)?weight", "prefixtuning": r"control_trans(\.0\.weight)?",
             "adapterhub": r".*\.prefix_tunings\..*", "cartridges": r"trainable_(keys|values)\.0"}
    return next((read for read, mark in marks.items() if any(re.fullmatch(mark, name) for name in tensors)), None)


# ---- writing ---------------------------------------------------------------------------------------------------------------------


def _safetensors(tensors: _Tensors) -> Iterator[Any]:
    """Yields the parts of a file with the same bytes as the reference implementation of safetensors."""
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
    strange = [] if single else sorted(set(os.listdir(out)) - {*_TARGETS.values(), *_BESIDE, *_MADE})
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
    """Replaces `out` in one step. Two folders are exchanged, so that the old one has the temporary name."""
    if temp.is_dir():
        _sync(temp)
    if force and out.exists():
        os.replace(temp, out) if temp.is_file() else _rename(temp, out, _EXCHANGE)
    else:
        _rename(temp, out, _NOREPLACE)
    _sync(out.parent)


def convert(source: Union[str, Path], out: Union[str, Path], force: bool = False, task: Optional[str] = None) -> Dict[str, int]:
    """Writes `out`, whole or not at all, as this module says. Returns the files of tensors that were made, each with their number.

    task: of a prefix whose checkpoint does not say it; lm leaves its head out.
    """
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
            read = _reader(tensors)
            if read:
                if single:
                    raise Error(f"{source}: is a prefix, of which PEFT's form is made: want a folder as OUT, which kvfold import reads")
                head = _tensors(found["model_head.safetensors"]) if "model_head.safetensors" in found and task != "lm" else {}
                made[str(shown / _MADE[1])] = len(tensors)
                for name, content in _Prefix(source, tensors, folder).make(read, head, task).items():
                    _write(temp / name, [content])
                beside = []
                break
            if task or next(iter(parts)).suffix == ".safetensors":
                raise Error(f"{source}: is no prefix of another program" + (", which --task is for" if task else " and no pickle"))
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
    parser = _Parser("kvfold.from_pickle", "python -m kvfold.from_pickle IN OUT [--task TASK] [--force]", (__doc__ or "").partition("\n\n")[2],
                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", metavar="IN", help="pickle, index of shards, or folder")
    parser.add_argument("out", metavar="OUT", help="NAME.safetensors, or a folder to make")
    parser.add_argument("--force", action="store_true", help="replaces OUT, a folder only if a conversion made all that is in it")
    parser.add_argument("--task", choices=list(_TASKS), help="of a prefix whose checkpoint does not say it; lm leaves its head out")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        for name, n in convert(options.source, options.out, options.force, options.task).items():
            print(f"{name}: {n} tensor{'s' * (n != 1)}")
        return 0
    except KeyboardInterrupt:
        return 130
    except (RuntimeError, MemoryError) as error:
        line = str(error).partition("\n")[0]
    except OSError as error:
        line = f"{error.filename or options.out}: {error.strerror or error}"
    print(f"{parser.prog}: {line}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
