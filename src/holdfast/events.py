"""What a running pipeline, or the captures of a query, tell whoever listens."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from holdfast.layout import Slot

__all__ = ["CaptureFailed", "CheckpointTaken", "EpochCommitted", "Event", "Listener", "TakenOver", "nobody", "teller"]


@dataclass(frozen=True)
class EpochCommitted:
    """Every sink has an epoch. `seconds` is from the batch's beginning on, `steps` how long each part of it took."""

    epoch: int
    rows: int
    bytes: int
    seconds: float
    steps: Mapping[str, float]


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


Event: TypeAlias = EpochCommitted | CheckpointTaken | CaptureFailed | TakenOver
Listener: TypeAlias = Callable[[Event], None]
"""Called from the thread in which it happens, so it should be quick. What it raises is logged, and stops nothing."""


def nobody(_event: Event) -> None:
    """The listener of what nobody listens to."""


def teller(*listeners: Listener) -> Listener:
    """One listener that tells them all."""

    def tell(event: Event) -> None:
        for listener in listeners:
            try:
                listener(event)
            except Exception:
                logging.getLogger("holdfast").exception("a listener failed at %r", event)

    return tell
