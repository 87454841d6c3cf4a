"""What a running pipeline, or the captures of a query, tell whoever listens."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from holdfast.layout import Slot

__all__ = [
    "CaptureFailed",
    "CheckpointTaken",
    "EpochCommitted",
    "EpochFailed",
    "Event",
    "Listener",
    "TakenOver",
    "nobody",
    "teller",
]


@dataclass(frozen=True)
class EpochCommitted:
    """Every sink has an epoch. `seconds` is from the batch's beginning on, `steps` how long each part of it took."""

    epoch: int
    rows: int
    bytes: int
    seconds: float
    steps: Mapping[str, float]


@dataclass(frozen=True)
class EpochFailed:
    """An epoch was not committed in every sink, and the query ends with it; the next start drives it on or anew."""

    epoch: int
    error: Exception


@dataclass(frozen=True)
class CheckpointTaken:
    """A checkpoint is durable. Of its `bytes`, `bytes_read` had to be read; the repository had the others."""

    slot: Slot
    epoch: int
    bytes: int
    files_read: int
    bytes_read: int
    seconds: float


@dataclass(frozen=True)
class CaptureFailed:
    """A capture failed, and is tried again."""

    error: Exception


@dataclass(frozen=True)
class TakenOver:
    """Another has taken the pipeline over, and nothing of this run counts any more."""

    by: str


Event: TypeAlias = EpochCommitted | EpochFailed | CheckpointTaken | CaptureFailed | TakenOver
Listener: TypeAlias = Callable[[Event], None]
"""Called from the thread in which it happens, so it should be quick. What it raises is logged, and stops nothing."""


def nobody(_event: Event) -> None:
    """The listener of what nobody listens to."""


def teller(*listeners: Listener) -> Listener:
    """One listener that tells them all. Both who commits and who captures may find a take-over: it is told once."""
    taken_over = threading.Lock()

    def tell(event: Event) -> None:
        if isinstance(event, TakenOver) and not taken_over.acquire(blocking=False):
            return
        for listener in listeners:
            try:
                listener(event)
            except Exception:
                logging.getLogger("holdfast").exception("a listener failed at %r", event)

    return tell
