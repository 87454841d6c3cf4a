"""A thread stopped at a line of somebody's code, so that another gets in between there."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import TraceFunction

__all__ = ["Pause"]

PATIENCE_SECONDS = 0.1
"""How long one that is paused keeps the other waiting."""

T = TypeVar("T")


class Pause:
    """Stops a thread at a line of an object's own code, counted as they are run, until it may go on.

    Not for ever: what it holds may be what the other one waits for.
    """

    def __init__(self, of: object, at: int) -> None:
        self.arrived, self.go_on = threading.Event(), threading.Event()
        self.lines = 0
        self.where = "no line"
        self._at = at
        self._below = str(Path(inspect.getfile(type(of))).parent)

    def within(self, act: Callable[[], T]) -> T:
        """Do something in this thread, and be stopped there."""
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            return act()
        finally:
            sys.settrace(before)
            self.arrived.set()

    def _enter(self, frame: FrameType, _event: str, _given: Any) -> TraceFunction | None:
        return self._line if frame.f_code.co_filename.startswith(self._below) else None

    def _line(self, frame: FrameType, event: str, _given: Any) -> TraceFunction:
        if event == "line":
            if self.lines == self._at:
                self.where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
                self.arrived.set()
                self.go_on.wait(PATIENCE_SECONDS)
            self.lines += 1
        return self._line
