"""The shared library: its path, functions, contexts, errors, and the objects that it owns.

ctypes.CDLL releases the GIL while C computes, and takes it again for callbacks. Layouts of structs are in _structs.py.
"""
from __future__ import annotations

import ctypes
import logging
import os
import re
import shutil
import threading
from pathlib import Path
from typing import Any, Callable, Dict, Optional

from . import _structs as c
from ._interrupt import Interrupts

_PACKAGE = Path(__file__).parent
_LOG = logging.getLogger("kvfold")
_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)


class Error(RuntimeError):
    """One line that names file and place. `status` is the C name of the reason ("EDATA", "EMISMATCH").

    It is also a FileNotFoundError, FileExistsError or ValueError where one of them applies.
    """

    def __new__(cls, line: str, status: str = "EUSAGE") -> Error:
        kind: Any = _KINDS.get("missing" if status == "EIO" and _MISSING.search(line) else status, cls)
        return (RuntimeError if kind is cls else kind.__base__).__new__(kind, line)

    def __init__(self, line: str, status: str = "EUSAGE") -> None:
        super().__init__(line)
        self.status = status

    def __reduce__(self) -> Any:
        return Error, (str(self), self.status)


Error.__module__ = "kvfold"
_MISSING = re.compile("No such file|nor is it in the Hugging Face cache")


def _also(kind: type) -> type:
    """A class of errors that is an Error and a `kind`; tracebacks call it kvfold.Error."""
    return type("Error", (kind, Error), {"__module__": "kvfold", "__init__": Error.__init__, "__reduce__": Error.__reduce__})


_KINDS: Dict[str, type] = {"missing": _also(FileNotFoundError), "EEXIST": _also(FileExistsError)}
_KINDS.update(dict.fromkeys(("EUSAGE", "EDATA", "EFORMAT", "ESHAPE"), _also(ValueError)))

_OPTION = re.compile(r"(`[^`]*`|kvfold [a-z]+(?:-[a-z]+)* .*)|(?<![\w-])--([a-z][a-z0-9]*(?:-[a-z0-9]+)*)")
_FLAGS = {"allow-other-base", "approximate", "dry-run", "force", "resume", "train-head"}


def in_python(line: str) -> str:
    """Names options in a line of the C library as arguments of Python. Commands stay as they are."""

    def name(match: re.Match) -> str:
        option = match[2]
        return match[1] or option.replace("-", "_") + "=True" * (option in _FLAGS)

    return _OPTION.sub(name, line)


# ---- loading ---------------------------------------------------------------------------------------------------------------------


def _library_path() -> str:
    """Returns KVFOLD_LIBRARY, else the library inside the package, else the name of the system's."""
    inside = _PACKAGE / "lib" / "libkvfold.so.0"
    return os.environ.get("KVFOLD_LIBRARY") or (str(inside) if inside.exists() else "libkvfold.so.0")


def _load(path: str) -> ctypes.CDLL:
    """Loads the library. OpenMP reads at load time how its threads wait. kvfold's threads sleep, because threads that spin would slow
    down another OpenMP in the process, such as that of torch. Settings of the user stay."""
    ours = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "2000"}
    if "OMP_WAIT_POLICY" in os.environ or "GOMP_SPINCOUNT" in os.environ:
        ours = {}
    os.environ.update(ours)
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"kvfold: the library cannot be loaded: {error}") from None
    finally:
        for name in ours:
            del os.environ[name]


_STATUS, _P, _NOTHING = ctypes.c_int, ctypes.c_void_p, None
_FUNCTIONS = {
    "kvf_base_architecture": (c.TEXT, [_P]),
    "kvf_base_free": (_NOTHING, [_P]),
    "kvf_base_hash": (c.TEXT, [_P]),
    "kvf_base_name": (c.TEXT, [_P]),
    "kvf_base_open_for": (_STATUS, [_P, c.TEXT, _P, _P, _P]),
    "kvf_base_precision": (c.ENUM, [_P]),
    "kvf_base_shape": (c.kvf_shape, [_P]),
    "kvf_ctx_create": (_STATUS, [_P, _P]),
    "kvf_ctx_error": (c.TEXT, [_P]),
    "kvf_ctx_free": (_NOTHING, [_P]),
    "kvf_ctx_set_stop": (_NOTHING, [_P, _P]),
    "kvf_ctx_threads": (ctypes.c_int, [_P]),
    "kvf_detokenize": (_STATUS, [_P, _P, _P, c.SIZE, c.BOOL, _P, _P]),
    "kvf_eval": (_STATUS, [_P, _P, _P, c.SIZE, _P, _P]),
    "kvf_eval_result_done": (_NOTHING, [_P]),
    "kvf_export": (_STATUS, [_P, _P]),
    "kvf_generate": (_STATUS, [_P, _P, _P, _P, c.SIZE, _P, _P, _P]),
    "kvf_generate_defaults": (c.kvf_generate_options, []),
    "kvf_history_column": (c.TEXT, [_P, c.SIZE, _P]),
    "kvf_history_free": (_NOTHING, [_P]),
    "kvf_history_open": (_STATUS, [_P, c.TEXT, _P]),
    "kvf_history_steps": (c.INT, [_P]),
    "kvf_ids_free": (_NOTHING, [_P]),
    "kvf_import": (_STATUS, [_P, _P, _P]),
    "kvf_inspect": (_STATUS, [_P, c.TEXT, _P]),
    "kvf_json_free": (_NOTHING, [_P]),
    "kvf_json_text": (_P, [_P, ctypes.c_uint]),
    "kvf_json_text_free": (_NOTHING, [_P]),
    "kvf_library_versions": (_STATUS, [_P, c.SIZE]),
    "kvf_logits": (_STATUS, [_P, _P, _P, _P, c.SIZE, _P]),
    "kvf_merge": (_STATUS, [_P, _P, _P]),
    "kvf_predict": (_STATUS, [_P, _P, _P, c.SIZE, _P, _P]),
    "kvf_prefix_base_hash": (c.TEXT, [_P]),
    "kvf_prefix_changes_base": (c.BOOL, [_P]),
    "kvf_prefix_check": (_STATUS, [_P, _P, _P, c.BOOL]),
    "kvf_prefix_export": (_STATUS, [_P, _P, _P]),
    "kvf_prefix_free": (_NOTHING, [_P]),
    "kvf_prefix_from_array": (_STATUS, [_P, _P, _P, _P, c.INT, _P]),
    "kvf_prefix_head": (c.TEXT, [_P, c.SIZE]),
    "kvf_prefix_kv": (_P, [_P, _P]),
    "kvf_prefix_label": (c.TEXT, [_P, c.SIZE]),
    "kvf_prefix_layer": (_P, [_P, c.INT, _P]),
    "kvf_prefix_layer_mask": (_P, [_P, _P]),
    "kvf_prefix_length": (c.INT, [_P]),
    "kvf_prefix_log_weights": (_P, [_P, _P]),
    "kvf_prefix_neurons": (_P, [_P, c.TEXT, _P]),
    "kvf_prefix_open_on": (_STATUS, [_P, c.TEXT, _P, c.ENUM, _P]),
    "kvf_prefix_position_start": (c.INT, [_P]),
    "kvf_prefix_relative_bias": (c.BOOL, [_P]),
    "kvf_prefix_save": (_STATUS, [_P, _P, c.TEXT, c.ENUM, c.BOOL]),
    "kvf_prefix_set_layer_mask": (_STATUS, [_P, _P, _P, c.INT]),
    "kvf_prefix_set_log_weights": (_STATUS, [_P, _P, _P, _P]),
    "kvf_prefix_set_relative_bias": (_STATUS, [_P, _P, c.BOOL]),
    "kvf_prefix_task": (c.TEXT, [_P]),
    "kvf_prefix_use_head": (_STATUS, [_P, _P, c.TEXT]),
    "kvf_rows_add_json": (_STATUS, [_P, _P, ctypes.c_char_p, c.SIZE]),
    "kvf_rows_create": (_STATUS, [_P, _P]),
    "kvf_rows_free": (_NOTHING, [_P]),
    "kvf_rows_path": (c.TEXT, [_P]),
    "kvf_score": (_STATUS, [_P, _P, _P, _P, _P]),
    "kvf_score_result_done": (_NOTHING, [_P]),
    "kvf_status_name": (c.TEXT, [_STATUS]),
    "kvf_string_free": (_NOTHING, [_P]),
    "kvf_text_bytes": (c.SIZE, [_P]),
    "kvf_texts_free": (_NOTHING, [_P, c.SIZE]),
    "kvf_tokenize": (_STATUS, [_P, _P, ctypes.c_char_p, c.SIZE, c.BOOL, _P, _P]),
    "kvf_train": (_STATUS, [_P, _P, _P]),
    "kvf_train_option": (c.BOOL, [c.SIZE, _P]),
    "kvf_train_options_create": (_STATUS, [_P, _P]),
    "kvf_train_options_free": (_NOTHING, [_P]),
    "kvf_train_set": (_STATUS, [_P, _P, c.TEXT, c.TEXT]),
    "kvf_train_set_base": (_NOTHING, [_P, _P]),
    "kvf_train_set_event": (_NOTHING, [_P, c.EVENT, _P]),
    "kvf_version_string": (c.TEXT, []),
}


def _declared(library: ctypes.CDLL) -> ctypes.CDLL:
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


lib = _declared(_load(_library_path()))


def check_program() -> Optional[bytes]:
    """Path of the command: inside the package, beside the library, or with the system's library the one on PATH. It checks HDF5 files
    in a process of its own."""
    system = shutil.which("kvfold") if os.sep not in lib._name else None
    for path in (_PACKAGE / "bin" / "kvfold", Path(system or lib._name).with_name("kvfold")):
        if path.is_absolute() and path.is_file() and os.access(path, os.X_OK):
            return os.fsencode(path)
    return None


# ---- objects of the library ------------------------------------------------------------------------------------------------------


def optional(value: Any) -> Optional[bytes]:
    return None if value is None else text(value)


def text(value: Any) -> bytes:
    """Encodes a text or path for C."""
    value = os.fspath(value)
    try:
        coded = value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise Error("a text has a lone surrogate in it, which UTF-8 has no form for") from None
    if b"\0" in coded:
        raise Error("a text has U+0000 in it, which ends texts of C")
    return coded


class Handle:
    """An object that C made. It is freed with its last reference, and before the objects in `keeps`."""

    def __init__(self, pointer: Any, free: Callable, *keeps: Any) -> None:
        self.pointer, self._free, self._keeps = pointer, free, keeps

    @property
    def _as_parameter_(self) -> Any:
        return self.pointer

    def close(self) -> None:
        pointer, self.pointer = self.pointer, None
        if pointer:
            self._free(pointer)

    def __reduce__(self) -> Any:
        raise TypeError("an object of kvfold is not copied or pickled: save it to a file")

    def __del__(self) -> None:
        self.close()


_threads = 0
_local = threading.local()


class _Call:
    """A call of C in this thread. Setting `flag` ends the call; `error` is raised after it."""

    def __init__(self, context: Context) -> None:
        self._context, self.flag = context, ctypes.c_int(0)
        self.error: Optional[BaseException] = None

    def __enter__(self) -> _Call:
        self._outer = getattr(_local, "call", None)
        lib.kvf_ctx_set_stop(self._context.handle, ctypes.byref(self.flag))
        _local.call, self._context._busy = self, True
        return self

    def __exit__(self, *error: Any) -> None:
        lib.kvf_ctx_set_stop(self._context.handle, None)
        _local.call, self._context._busy = self._outer, False


def callback(kind: Any) -> Callable:
    """Makes a function that C can call. An exception in it ends the call of C, and is raised after it."""

    def wrap(function: Callable) -> Any:
        def guarded(*arguments: Any) -> None:
            try:
                function(*arguments)
            except BaseException as error:
                call = getattr(_local, "call", None)
                if call is None:
                    raise
                call.error, call.flag.value = call.error or error, 1

        return kind(guarded)

    return wrap


@callback(c.LOG)
def _log(user, level, line):
    _last_line.text = in_python(line.decode("utf-8", "replace"))
    _LOG.log(_LEVELS[level], "%s", _last_line.text)


_last_line = threading.local()


class Context:
    """A kvf_ctx with a lock: one thread at a time uses the context and the objects made with it."""

    def __init__(self) -> None:
        options = c.kvf_ctx_options(threads=_threads, log=_log, check_program=check_program())
        pointer = ctypes.c_void_p()
        if status := lib.kvf_ctx_create(ctypes.byref(options), ctypes.byref(pointer)):
            raise Error(getattr(_last_line, "text", "no context"), _status_name(status))
        self.handle = Handle(pointer, lib.kvf_ctx_free)
        self.lock = threading.RLock()
        self._busy, self._pid = False, os.getpid()

    def check_idle(self) -> None:
        """Raises Error in a callback of a call that uses this context."""
        if self._busy:
            raise Error("the base is in use by the call that this callback was called from")

    def call(self, function: Callable, *arguments: Any, allow: int = 0) -> int:
        """Calls function(ctx, *arguments) and returns its status, KVF_OK or `allow`. Ctrl-C ends the call, and is raised after it."""
        call = _Call(self)
        interrupts = Interrupts(call.flag)
        self._check_process()
        with self.lock:
            self.check_idle()
            thread_context()  # OpenMP's number of threads is that of the calling thread
            with interrupts, call:
                status = function(self.handle, *arguments)
            if call.error:
                raise call.error
            if interrupts.came and status == c.STATUS_STOPPED:  # by a handler that does not raise
                raise KeyboardInterrupt
            self._check(status, allow)
        return status

    def call_quick(self, function: Callable, *arguments: Any) -> None:
        """The same for short functions without callbacks, which are called for each row."""
        self._check_process()
        with self.lock:
            self.check_idle()
            self._check(function(self.handle, *arguments))

    def _check_process(self) -> None:
        """Replaces the lock in a child of fork(), where a thread of the parent may have held it."""
        if self._pid != os.getpid():
            if self._busy:
                raise Error("this process was forked while a call used the base")
            self.lock, self._pid = threading.RLock(), os.getpid()

    def _check(self, status: int, allow: int = 0) -> None:
        if status and status != allow:
            raise Error(in_python(lib.kvf_ctx_error(self.handle).decode("utf-8", "replace")), _status_name(status))

    def make(self, function: Callable, free: Callable, *arguments: Any, keeps: tuple = ()) -> Handle:
        """Returns the object that function(ctx, *arguments, &out) makes."""
        made = Handle(ctypes.c_void_p(), free, self, *keeps)  # freed if Ctrl-C comes when it is there
        self.call(function, *arguments, ctypes.byref(made.pointer))
        return made


def _status_name(status: int) -> str:
    return lib.kvf_status_name(status).decode()


def thread_context() -> Context:
    """The context of the calling thread, for functions without a base."""
    if not hasattr(_local, "context"):
        _local.context = Context()
        global _used
        _used = True
    return _local.context


_used = False


def set_threads(n: int) -> None:
    """Sets the number of threads that compute; 0, the default: one for each core that the process may use.

    Call it before any other function of kvfold. Results depend on the number in their last bits.
    """
    global _threads
    if _used:
        raise Error("set_threads() comes before the first use of kvfold")
    from ._numbers import whole

    _threads = whole("threads", n, ctypes.c_int)


def versions() -> str:
    """Versions of the library and of its dependencies that affect results and files: "kvfold 0.1.0, oneDNN 3.2.0, HDF5 1.14.5"."""
    line = ctypes.create_string_buffer(96)
    lib.kvf_library_versions(line, len(line))
    return f"kvfold {lib.kvf_version_string().decode()}, {line.value.decode()}"
