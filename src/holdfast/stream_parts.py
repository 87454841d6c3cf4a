"""What a stream is set to, what it has done, and what it was at one instant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from holdfast.codec import CheckpointState
from holdfast.decide.fingerprint import Fingerprint
from holdfast.decide.retention import KeepPolicy
from holdfast.decide.schedule import Schedule

__all__ = ["Captured", "Counters", "Settings"]


@dataclass(kw_only=True)
class Counters:
    """What was done since the manager was made. `bytes` are those newly stored; a prune that fails is tried again."""

    events: int = 0
    checkpoints: int = 0
    bytes: int = 0
    failures: int = 0
    skipped: int = 0
    fenced: int = 0
    backpressure_waits: int = 0
    prunes: int = 0
    prune_failures: int = 0

    def __add__(self, other: Counters) -> Counters:
        names = [f.name for f in fields(Counters)]
        return Counters(**{name: getattr(self, name) + getattr(other, name) for name in names})


@dataclass(frozen=True)
class Settings:
    """How one stream is checkpointed."""

    schedule: Schedule
    keep: KeepPolicy
    fingerprint: Fingerprint | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Captured:
    """A stream at one instant: its record, the tokens of its sinks, and which requests had been seen by then."""

    record: CheckpointState
    tokens: Mapping[str, Any]
    requests_seen: frozenset[str]
