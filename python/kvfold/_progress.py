"""Progress of a run: a line in a terminal or below a notebook's cell, which each drawing replaces."""
from __future__ import annotations

import math
import shutil
import sys
import time
from typing import Any, Optional

_BETWEEN = 0.1  # seconds from one drawing to the next
_BAR = 20


def _notebook_display() -> Any:
    """Returns a display below the cell that can be updated; None outside notebooks."""
    shell = sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()
    if not shell or type(shell).__name__ != "ZMQInteractiveShell":
        return None
    from IPython.display import display

    return display({"text/plain": ""}, raw=True, display_id=True)


class Bar:
    """The line of progress. on: whether to draw it; None: in a terminal or a notebook."""

    def __init__(self, on: Optional[bool] = None) -> None:
        terminal = sys.stderr is not None and sys.stderr.isatty()
        self._cell = None if on is False else _notebook_display()
        self._on = bool(self._cell) or (terminal if on is None else on)
        self._drawn, self._train, self._valid = 0.0, math.nan, math.nan

    def event(self, event: Any) -> None:
        if event.kind == "step":
            self._train = event.train_loss
        if event.kind == "eval":
            self._valid = event.valid_loss
        if self._on and event.kind in ("step", "eval") and (
                time.monotonic() - self._drawn > _BETWEEN or event.step == event.steps or event.kind == "eval"):
            self._draw(_line(event, self._train, self._valid))
            self._drawn = time.monotonic()

    def _draw(self, line: str) -> None:
        if self._cell:
            self._cell.update({"text/plain": line}, raw=True)
        else:
            sys.stderr.write("\r\033[K" + line[:shutil.get_terminal_size().columns - 1])
            sys.stderr.flush()

    def close(self) -> None:
        """Ends the line, which stays on the screen."""
        if self._on and self._drawn and not self._cell:
            sys.stderr.write("\n")


def _clock(seconds: float) -> str:
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def _line(event: Any, train: float, valid: float) -> str:
    done = round(_BAR * event.step / event.steps) if event.steps else 0
    line = f"{'█' * done}{'░' * (_BAR - done)} {event.step}/{event.steps}  loss {train:.4f}"
    if not math.isnan(valid):
        line += f"  valid {valid:.4f}"
    if event.kind == "step":
        line += f"  {event.tokens_per_second:.0f} tokens/s"
    if not math.isnan(event.seconds_left):
        line += f"  {_clock(event.seconds_left)} left"
    return line
