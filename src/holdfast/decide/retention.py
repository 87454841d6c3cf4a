"""Which checkpoints to keep and why: a pure function of their order, their times and the policy.

Order comes from the timeline alone. Times only sort checkpoints into hours and days, so a clock that went wrong can
keep too much or too little of the past, but never costs the newest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta

from holdfast.decide.schedule import show_duration
from holdfast.errors import BadValue
from holdfast.layout import Slot

__all__ = ["Candidate", "KeepPolicy", "Verdict", "retain"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)
FIRST_MS = (datetime.min.replace(tzinfo=UTC) - EPOCH) // MILLISECOND
LAST_MS = (datetime.max.replace(tzinfo=UTC) - EPOCH) // MILLISECOND


@dataclass(frozen=True)
class KeepPolicy:
    """How much of the past to keep; the rules add up. All zero: nobody asked to remove anything, so all is kept."""

    last: int = 0
    hourly: int = 0
    daily: int = 0
    weekly: int = 0
    monthly: int = 0
    within_ms: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            if (value := getattr(self, field.name)) < 0:
                raise BadValue(f"keep policy: {field.name}", f"must not be negative, and is {value}")

    @property
    def empty(self) -> bool:
        """Whether no rule was given."""
        return self == KeepPolicy()


@dataclass(frozen=True)
class Candidate:
    """What retention knows of a checkpoint. `savepoints` and `pins` name what holds it."""

    slot: Slot
    timestamp_ms: int
    on_timeline: bool = True
    savepoints: tuple[str, ...] = ()
    pins: tuple[str, ...] = ()
    base_of_newest: bool = False


@dataclass(frozen=True)
class Verdict:
    candidate: Candidate
    keep: bool
    reasons: tuple[str, ...]


def retain(candidates: Sequence[Candidate], policy: KeepPolicy) -> list[Verdict]:
    """Judge every checkpoint, in the order given, each with at least one reason.

    Give those on the timeline oldest first, in timeline order, never sorted by time; abandoned ones may stand
    anywhere. The last two of the timeline are kept under any policy. What was kept is judged the same when asked
    again alone, for every policy. A policy that is larger in every rule keeps at least as much, but for the empty
    one, which keeps everything: going from all zero to `last=1` drops.
    """
    newest_first = [candidate for candidate in reversed(candidates) if candidate.on_timeline]
    reasons: dict[Slot, list[str]] = {candidate.slot: list(_named(candidate)) for candidate in candidates}
    for slot, reason in _by_position(newest_first, policy):
        reasons[slot].append(reason)
    for slot, reason in _by_period(newest_first, policy):
        reasons[slot].append(reason)
    for slot, reason in _by_age(candidates, newest_first, policy):
        reasons[slot].append(reason)
    return [_verdict(candidate, reasons[candidate.slot], policy) for candidate in candidates]


def _verdict(candidate: Candidate, reasons: list[str], policy: KeepPolicy) -> Verdict:
    if policy.empty:
        return Verdict(candidate, True, (*reasons, "no rule given"))
    if reasons:
        return Verdict(candidate, True, tuple(reasons))
    return Verdict(candidate, False, ("no rule keeps it" if candidate.on_timeline else "abandoned",))


def _named(candidate: Candidate) -> Iterator[str]:
    for savepoint in candidate.savepoints:
        yield f"savepoint {savepoint}"
    for pin in candidate.pins:
        yield f"pin {pin}"
    if candidate.base_of_newest:
        yield "base of the newest generation"


def _by_position(newest_first: Sequence[Candidate], policy: KeepPolicy) -> Iterator[tuple[Slot, str]]:
    for candidate, reason in zip(newest_first, ("newest of the timeline", "last two of the timeline"), strict=False):
        yield candidate.slot, reason
    for candidate in newest_first[: policy.last]:
        yield candidate.slot, f"last {policy.last}"


def _by_period(newest_first: Sequence[Candidate], policy: KeepPolicy) -> Iterator[tuple[Slot, str]]:
    rules: list[tuple[str, int, Callable[[datetime], str]]] = [
        ("hourly", policy.hourly, lambda moment: f"{moment.date()} {moment.hour:02d}h"),
        ("daily", policy.daily, lambda moment: f"{moment.date()}"),
        ("weekly", policy.weekly, lambda moment: "{}-W{:02d}".format(*moment.isocalendar()[:2])),
        ("monthly", policy.monthly, lambda moment: f"{moment.year:04d}-{moment.month:02d}"),
    ]
    for rule, count, period_of in rules:
        seen: set[str] = set()
        for candidate in newest_first:
            if len(seen) == count:
                break
            period = period_of(_moment(candidate.timestamp_ms))
            if period not in seen:
                seen.add(period)
                yield candidate.slot, f"{rule} {period}"


def _by_age(
    candidates: Sequence[Candidate], newest_first: Sequence[Candidate], policy: KeepPolicy
) -> Iterator[tuple[Slot, str]]:
    if not policy.within_ms:
        return
    if not newest_first:
        # Without a newest there is nothing to measure from, and too old can't be told.
        yield from ((candidate.slot, "the timeline is empty") for candidate in candidates)
        return
    oldest_ms = newest_first[0].timestamp_ms - policy.within_ms
    reason = f"within {show_duration(policy.within_ms)} of the newest"
    yield from ((candidate.slot, reason) for candidate in candidates if candidate.timestamp_ms >= oldest_ms)


def _moment(timestamp_ms: int) -> datetime:
    # A broken clock can lie outside the calendar; such a checkpoint still needs a verdict.
    return EPOCH + timedelta(milliseconds=min(max(timestamp_ms, FIRST_MS), LAST_MS))
