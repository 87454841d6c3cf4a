"""What a sidecar tells of itself, besides what its watches tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from holdfast.decide.alerts import Alert
from holdfast.spark.watch import Event as WatchEvent

__all__ = ["AlertChanged", "Done", "Event", "Listener", "NotTaken", "NotYetOurs", "Taken", "Undone"]


@dataclass(frozen=True)
class Done:
    """A check, a prune, a copy, a drill or a look at the way back was carried out, with what came of it."""

    kind: str
    found: str
    details: Mapping[str, Any]


@dataclass(frozen=True)
class Undone:
    """One could not be carried out, and is tried again after so many seconds."""

    kind: str
    error: str
    retry_seconds: float


@dataclass(frozen=True)
class AlertChanged:
    """An alert began to hold, or is over."""

    status: Literal["firing", "resolved"]
    alert: Alert


@dataclass(frozen=True)
class Taken:
    """A receiver took a message."""

    receiver: str
    status: str
    key: str


@dataclass(frozen=True)
class NotTaken:
    """A receiver did not take a message, and gets it again after so many seconds."""

    receiver: str
    status: str
    key: str
    why: str
    retry_seconds: float


@dataclass(frozen=True)
class NotYetOurs:
    """Another sidecar holds the state file: it looks after everything but the captures."""

    file: str


Event: TypeAlias = WatchEvent | Done | Undone | AlertChanged | Taken | NotTaken | NotYetOurs
Listener: TypeAlias = Callable[[str, Event], None]
"""Called with the name of the pipeline, empty if it is about none or all. It must not raise."""
