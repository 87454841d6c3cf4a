"""What is drawn over time: the columns of a plot, one a checkpoint, and the lines of the watermark and the sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from holdfast.dashboard.plots import LETTER, WIDTH, Line, Tick, bars, line, nice_bytes, nice_duration, ticks
from holdfast.dashboard.trees import Story
from holdfast.layout import Slot
from holdfast.report import CheckpointRow, Course
from holdfast.text import duration, moment, size

__all__ = ["Change", "Column", "Drawn", "lag", "places", "plot"]

STRIP = 84
WIDEST_STEP = 250.0
"""A few columns lie no further apart than this: on a phone the newest ones are in sight together."""

DAY_MS = 86_400_000


@dataclass(frozen=True)
class Column:
    """One checkpoint in the plot: its place, its marks, and what is said of it when somebody points there."""

    x: float
    href: str
    tip: str
    row: CheckpointRow


@dataclass(frozen=True)
class Change:
    """Where another generation begins in the plot; the label is left out where there is no room for it."""

    x: float
    label: str
    title: str


def plot(name: str, rows: list[CheckpointRow], stories: Mapping[int, Story]) -> dict[str, Any]:
    """One column a checkpoint, the same one in every strip; the newest is at the right edge."""
    step = min(WIDTH / max(1, len(rows)), WIDEST_STEP)
    start = WIDTH - step * len(rows)
    return {
        "step": round(step, 2),
        "columns": [
            Column(round(start + index * step, 2), f"/pipelines/{name}/checkpoints/{row.slot}", _tip(row), row)
            for index, row in enumerate(rows)
        ],
        "new": bars([row.bytes_new for row in rows], STRIP, step, start, nice_bytes),
        "state": bars([row.bytes_new + row.bytes_shared for row in rows], STRIP, step, start, nice_bytes),
        "took": bars([row.took_ms for row in rows], STRIP * 0.6, step, start, nice_duration),
        "changes": _changes(rows, stories, step, start),
        "ticks": _ticks(rows, step, start),
        "times": [min(known), max(known)] if (known := _times(rows)) else None,
    }


def _changes(rows: list[CheckpointRow], stories: Mapping[int, Story], step: float, start: float) -> list[Change]:
    found: list[Change] = []
    before, free = -1, 0.0
    for index, row in enumerate(rows):
        generation, number = Slot.read(row.slot)
        if generation != before:
            before, x, story = generation, round(start + index * step, 2), stories.get(generation)
            words = [f"g{generation} {story.word}"] if story and (number == 0 or index) else []
            fits = [each for each in (*words, f"g{generation}") if x >= free and x + len(each) * LETTER <= WIDTH]
            label = fits[0] if fits else ""
            free = x + (len(label) + 1) * LETTER if label else free
            found.append(Change(x, label, f"generation {generation}" + (f": {story.sentence}" if story else "")))
    return found


def _times(rows: list[CheckpointRow]) -> list[int]:
    return [row.timestamp_ms for row in rows if row.timestamp_ms is not None]


def _ticks(rows: list[CheckpointRow], step: float, start: float) -> list[Tick]:
    """With seconds where two ticks beside each other would read the same without."""
    moments = [row.timestamp_ms for row in rows]
    found = ticks(_clock(moments), step, start)
    is_fast = any(one.word == other.word for one, other in pairwise(found))
    return ticks(_clock(moments, with_seconds=True), step, start) if is_fast else found


def _clock(moments: Sequence[int | None], *, with_seconds: bool = False) -> list[str]:
    """What a clock said at each moment, with the day if they are of several days."""
    known = [each for each in moments if each is not None]
    has_days = bool(known) and max(known) // DAY_MS != min(known) // DAY_MS
    # "2026-11-15 10:00:00 UTC" holds all of it.
    shown = slice(5 if has_days else 11, 19 if with_seconds else 16)
    return ["" if each is None else moment(each, utc=True)[shown] for each in moments]


def _tip(row: CheckpointRow) -> str:
    if row.problem:
        return f"{row.slot}\ndamaged: {row.problem}"
    lines = [
        f"{row.slot}, epoch {row.epoch}",
        moment(row.timestamp_ms, utc=True),
        f"new {size(row.bytes_new)}, shared {size(row.bytes_shared)}",
    ]
    lines += [f"took {duration(row.took_ms)}"] if row.took_ms else []
    lines += [f"savepoint {name}" for name in row.savepoints]
    lines += [f"pinned: {why}" for why in row.pins]
    lines += [f"sink {name} {status}" for name, status in row.sinks.items() if status != "committed"]
    return "\n".join(lines)


@dataclass(frozen=True)
class Drawn:
    """A line over time with what is said at each of its points. `times` are its two ends, as moments and in words;
    `span` is between which values it runs."""

    name: str
    what: str
    line: Line
    now: str
    tips: list[str]
    times: list[tuple[int, str]]
    span: str


def _ends(times_ms: Sequence[int]) -> list[tuple[int, str]]:
    """The first and the last moment, as exact as it takes to tell them apart; one alone if they are the same."""
    ends = sorted({min(times_ms), max(times_ms)})
    words = _clock(ends)
    return list(zip(ends, words if len(set(words)) == len(ends) else _clock(ends, with_seconds=True), strict=True))


def _span(lowest: str, highest: str) -> str:
    return lowest if lowest == highest else f"{lowest} to {highest}"


def lag(rows: list[CheckpointRow]) -> list[Drawn]:
    """How far the watermark was behind the clock."""
    known = [(row, row.timestamp_ms) for row in rows if row.timestamp_ms is not None]
    lags = [None if row.watermark is None else taken - row.watermark for row, taken in known]
    told = [behind for behind in lags if behind is not None]
    if not told:
        return []
    times = [taken for _, taken in known]
    tips = [
        f"{row.slot}, epoch {row.epoch}\nwatermark {moment(row.watermark, utc=True)}\nbehind by {duration(behind)}"
        for (row, _), behind in zip(known, lags, strict=True)
    ]
    drawn = line(lags, times, STRIP, from_zero=True)
    span = _span(duration(min(told)), duration(max(told)))
    return [Drawn("Watermark", "behind the clock", drawn, duration(told[-1]), tips, _ends(times), span)]


def places(drawn: list[Course]) -> list[Drawn]:
    """Each source whose place is a number."""
    found: list[Drawn] = []
    times = [course.timestamp_ms for course in drawn]
    for name in sorted({name for course in drawn for name in course.sources}):
        values = [course.sources.get(name) for course in drawn]
        told = [place for place in values if place is not None]
        if told:
            tips = [
                f"{course.slot}, epoch {course.epoch}\n{name} at {place:,}" if place is not None else course.slot
                for course, place in zip(drawn, values, strict=True)
            ]
            span = _span(f"{min(told):,}", f"{max(told):,}")
            found.append(Drawn(name, "position", line(values, times, STRIP), f"{told[-1]:,}", tips, _ends(times), span))
    return found
