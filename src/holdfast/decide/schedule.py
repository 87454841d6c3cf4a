"""When the next checkpoint of a stream is due: a decision on numbers; whoever asks brings the clock."""

from __future__ import annotations

import re
from dataclasses import dataclass

from holdfast.errors import BadValue

__all__ = ["Schedule", "ScheduleState", "due", "parse_duration", "parse_every", "show_duration"]

UNITS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
LONG_NAMES = {"week": "w", "day": "d", "hour": "h", "minute": "m", "min": "m", "second": "s", "sec": "s"}
AMOUNT = re.compile(r"\s*([0-9]{1,15})\s*([a-z]+)\s*", re.IGNORECASE | re.ASCII)
COUNTED = ("event", "events", "batch", "batches")
NANOSECONDS_PER_MS = 1_000_000


@dataclass(frozen=True)
class Schedule:
    """A checkpoint every so many events, every so many milliseconds, or whichever comes first; neither: never."""

    every_events: int | None = None
    every_ms: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("every_events", self.every_events), ("every_ms", self.every_ms)):
            if value is not None and value < 1:
                raise BadValue(name, f"must be at least 1, not {value}")


@dataclass(frozen=True)
class ScheduleState:
    """What one stream remembers of its last checkpoint. Each stream has its own; begin anew after recovery."""

    events_since: int
    last_ns: int


def due(schedule: Schedule, state: ScheduleState, now_ns: int) -> bool:
    """Whether to take a checkpoint now.

    Count the event first, then ask; after the checkpoint start again with `ScheduleState(0, now_ns)`. A last
    checkpoint in the future means that the clock went back: it counts as due, since waiting for that moment could
    take for ever, and starting again puts it right.
    """
    if schedule.every_events is not None and state.events_since >= schedule.every_events:
        return True
    if schedule.every_ms is None:
        return False
    passed_ns = now_ns - state.last_ns
    return passed_ns < 0 or passed_ns >= schedule.every_ms * NANOSECONDS_PER_MS


def _unit(word: str) -> str:
    lower = word.lower()
    return LONG_NAMES.get(lower.removesuffix("s"), lower)


def parse_duration(text: str) -> int:
    """Read "36h", "7d", "90s", "250ms" or "30 seconds" as milliseconds. Whole numbers with a unit; m is minutes."""
    found = AMOUNT.fullmatch(text)
    if not found or (unit := _unit(found[2])) not in UNITS:
        raise BadValue(f"duration {text!r}", "write a whole number and a unit, such as 90s, 5m, 36h or 7 days")
    return int(found[1]) * UNITS[unit]


def show_duration(milliseconds: int) -> str:
    """Write a duration in the largest unit that divides it; `parse_duration` reads it back."""
    unit = next(unit for unit, size in UNITS.items() if milliseconds % size == 0 and (milliseconds or unit == "s"))
    return f"{milliseconds // UNITS[unit]}{unit}"


def parse_every(every: str | int) -> Schedule:
    """Read a schedule: "30 seconds", "30s", "1000 events", "10 batches" (which are events here), or a plain number."""
    if isinstance(every, int):
        return Schedule(every_events=every)
    found = AMOUNT.fullmatch(every)
    if found and found[2].lower() in COUNTED:
        return Schedule(every_events=int(found[1]))
    return Schedule(every_ms=parse_duration(every))
