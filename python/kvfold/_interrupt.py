"""Ctrl-C during a call of C.

Python runs the handler of SIGINT in the main thread between two Python instructions, so not while that thread is in C. Python also
writes the signal to a descriptor (signal.set_wakeup_fd). A thread here reads it and sets the flag that ends the call of C.
"""
from __future__ import annotations

import ctypes
import os
import select
import signal
import socket
import threading
from typing import Any, Optional

_lock = threading.Lock()  # of what follows
_ends: Any = None  # [reader, writer] of the numbers of signals
_flag: Optional[ctypes.c_int] = None  # of the innermost call of the main thread
_former_fd = -1  # descriptor that gets the numbers when no call runs, and from here while one does


def _read() -> None:
    try:
        numbers = _ends[0].recv(64)
    except BlockingIOError:
        return
    if _flag is not None and signal.SIGINT in numbers:
        _flag.value = 1
    if _former_fd >= 0:
        try:
            os.write(_former_fd, numbers)
        except OSError:
            pass


def _watch(reader: socket.socket) -> None:
    while True:
        select.select([reader], [], [])
        with _lock:
            _read()


def _start() -> None:
    global _ends
    if _ends is None:
        _ends = socket.socketpair()
        for end in _ends:
            end.setblocking(False)
        threading.Thread(target=_watch, args=(_ends[0],), daemon=True, name="kvfold SIGINT").start()


def _forget() -> None:
    """Resets the state in a child of fork(), which does not inherit the watching thread."""
    global _lock, _ends, _flag, _former_fd
    _lock, _ends, _flag, _former_fd = threading.Lock(), None, None, -1


os.register_at_fork(after_in_child=_forget)


class Interrupts:
    """`with Interrupts(flag):` sets the flag at SIGINT. On leaving, the previous handler is called, which may raise."""

    def __init__(self, flag: ctypes.c_int) -> None:
        self.came, self._own, self._handler, self._frame = False, flag, None, None

    def _note(self, number: int, frame: Any) -> None:
        self.came, self._frame, self._own.value = True, frame, 1

    def __enter__(self) -> Interrupts:
        global _flag, _former_fd
        if threading.current_thread() is not threading.main_thread() or not callable(signal.getsignal(signal.SIGINT)):
            return self
        self._handler = signal.signal(signal.SIGINT, self._note)  # nothing below is cut off
        _start()
        with _lock:
            _read()  # signals of an earlier call
            self._outer_flag, _flag = _flag, self._own
            self._outer_fd = _former_fd
            fd = signal.set_wakeup_fd(_ends[1].fileno(), warn_on_full_buffer=False)
            if fd != _ends[1].fileno():
                _former_fd = fd
        return self

    def __exit__(self, *error: Any) -> None:
        global _flag, _former_fd
        if self._handler is None:
            return
        with _lock:
            _flag = self._outer_flag
            if _flag is None:
                signal.set_wakeup_fd(_former_fd, warn_on_full_buffer=False)
            _former_fd = self._outer_fd
        signal.signal(signal.SIGINT, self._handler)
        if self.came:
            self._handler(signal.SIGINT, self._frame)
