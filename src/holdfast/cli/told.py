"""Being told to stop, or to read a file again: for verbs that run until then."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

__all__ = ["outcome_of", "told_to_read_again", "told_to_stop"]

T = TypeVar("T")

LOOK_UP = 0.5


def outcome_of(running: Future[T]) -> T:
    """What another thread ends with, waited for in the main one so that signals are always seen.

    Python handles them in the main thread alone, and the system may give one to any other: a wait without an end would
    then sleep through it.
    """
    while not wait([running], LOOK_UP).done:
        pass
    return running.result()


@contextmanager
def told_to_stop() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set. More of them change nothing: many senders send each signal twice."""
    stop = threading.Event()

    def handle(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def told_to_read_again() -> Iterator[threading.Event]:
    """An event that SIGHUP sets; whoever has seen it clears it."""
    again = threading.Event()

    def handle(_number: int, _frame: FrameType | None) -> None:
        again.set()

    before = signal.signal(signal.SIGHUP, handle)
    try:
        yield again
    finally:
        signal.signal(signal.SIGHUP, before)
