"""Being told to stop, or to read a file again: for verbs that run until then."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from queue import SimpleQueue
from types import FrameType
from typing import TypeVar

__all__ = ["run_beside_signals", "told_to_read_again", "told_to_stop"]

T = TypeVar("T")

LOOK_UP = 0.5


def run_beside_signals(run: Callable[[threading.Event], T]) -> T:
    """Run something that ends when its event is set, which SIGTERM and SIGINT do, and give what it ends with.

    It has a thread of its own. Python handles signals in the main thread alone, and the system may give one to another:
    a long wait in the main thread would sleep through it.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="holdfast-beside-signals") as pool, told_to_stop() as stop:
        running = pool.submit(run, stop)
        while not wait([running], LOOK_UP).done:
            pass
        return running.result()


@contextmanager
def told_to_stop() -> Iterator[threading.Event]:
    """An event that SIGTERM, SIGINT and the end of the block set.

    More of them change nothing: many senders send each signal twice.
    """
    with _set_by(signal.SIGTERM, signal.SIGINT) as stop:
        try:
            yield stop
        finally:
            stop.set()


@contextmanager
def told_to_read_again() -> Iterator[threading.Event]:
    """An event that SIGHUP sets; whoever has seen it clears it."""
    with _set_by(signal.SIGHUP) as again:
        yield again


@contextmanager
def _set_by(*numbers: signal.Signals) -> Iterator[threading.Event]:
    """An event that signals set, through a queue and a thread.

    A handler interrupts anything, also the event's own code: it would wait for a lock that the interrupted one holds.
    Only the queue may be used from within itself.
    """
    event, came = threading.Event(), SimpleQueue[bool]()

    def handle(_number: int, _frame: FrameType | None) -> None:
        came.put(True)

    def pass_on() -> None:
        while came.get():
            event.set()

    passing = threading.Thread(target=pass_on, name="holdfast-signals", daemon=True)
    passing.start()
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        came.put(False)
        passing.join()
