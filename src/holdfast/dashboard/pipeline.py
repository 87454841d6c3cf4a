"""One pipeline: its health, its checkpoints as a plot, where its sources and sinks stand, and the tree it grew in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args

from starlette.requests import Request
from starlette.responses import Response

from holdfast.checkpoint import Checkpoint
from holdfast.dashboard.fleet import Row
from holdfast.dashboard.plots import LETTER, WIDTH, Line, bars, line, nice_bytes, nice_duration, ticks
from holdfast.dashboard.render import version_of
from holdfast.dashboard.site import Site, of, read_number, renews_itself
from holdfast.dashboard.trees import Named, Story, tree
from holdfast.errors import Damage, FormatTooNew, HoldfastError, ObjectMissing, PipelineMissing
from holdfast.handles import StoredPipeline
from holdfast.layout import Slot
from holdfast.report import (
    CheckpointRow,
    Course,
    GenerationRow,
    Glance,
    History,
    Which,
    course_at,
    list_generations,
    read_history,
    sample,
)
from holdfast.report.lists import in_parallel
from holdfast.report.positions import worded
from holdfast.text import duration, moment, size

__all__ = ["PAGE", "courses", "pipeline"]

PAGE = 60
SAMPLES = 16
"""How many manifests are read to draw the course of the sources."""

MOST_GENERATIONS = 24
STRIP = 84
WIDEST_STEP = 42.0
DAY_MS = 86_400_000
FORK = re.compile(r"fork of ([^@\s]+)@slot:([0-9]{1,10}-[0-9]{1,10})")
"""How the origin of a fork is told."""


def pipeline(request: Request) -> Response:
    site = of(request)
    stored = site.pipeline(request)
    rows = site.fleet.look([stored.name])
    if not rows:
        raise PipelineMissing(stored.name, site.fleet.names())
    it = rows[0].seen
    values: dict[str, Any] = {
        "row": rows[0],
        "it": it,
        "jobs": (jobs := site.jobs.of(stored.name)[:5]),
        "jobs_version": version_of([(job.id, job.state) for job in jobs]),
        "glance_version": version_of(it, rows[0].health),
        "damage": None,
        "history": None,
    }
    try:
        values |= _kept_history(request, site, stored, rows[0])
    except (Damage, FormatTooNew) as damage:
        values |= {"damage": damage, "history_version": version_of(damage)}
    trail = [("Pipelines", "/"), (stored.name, f"/pipelines/{stored.name}")]
    return site.page(request, "pipeline.html", trail, values)


def _kept_history(request: Request, site: Site, stored: StoredPipeline, row: Row) -> dict[str, Any]:
    key = (stored.name, request.query_params.get("which", ""), request.query_params.get("page", ""))
    kept = site.histories.get(key) if renews_itself(request) else None
    if kept is not None and kept[0] == row.looked:
        return kept[1]
    found = _history(request, site, stored, row.seen)
    site.histories.put(key, (row.looked, found))
    return found


def _history(request: Request, site: Site, stored: StoredPipeline, it: Glance | None) -> dict[str, Any]:
    asked = request.query_params.get("which", "timeline")
    which: Which = asked if asked in get_args(Which) else "timeline"  # type: ignore[assignment]
    history = read_history(stored, which, read_number(request, "page"), PAGE)
    generations = list_generations(stored, newest=MOST_GENERATIONS)
    newest = Checkpoint(stored, Slot.read(it.newest)) if it and it.newest else None
    drawn = courses(site, stored, history.rows)
    stand = _standing(stored, history)
    forks, origin = _forks(site, stored.name), _origin(site, it.origin) if it else None
    stories = _stories(generations, origin)
    return {
        "history": history,
        "generations": generations[::-1],
        "plot": _plot(stored.name, history.rows, stories),
        "lines": [*_lag(history.rows), *_places(drawn)],
        "tree": tree(history.stretches, stories, _named(stored.name, history.savepoints, forks, newest)),
        "stand": stand,
        "sources": _sources(stand.checkpoint if stand else None),
        "sinks": _sinks(stand.checkpoint if stand else None),
        "forks": forks,
        "origin": origin,
        "WIDTH": WIDTH,
        "history_version": version_of(history, generations, forks, origin),
    }


class Standing(NamedTuple):
    """The checkpoint at which the sources and sinks below the plot stand, and which one that is in words."""

    checkpoint: Checkpoint
    what: str

    @property
    def slot(self) -> Slot:
        return self.checkpoint.slot


LAST = {"timeline": "the newest", "abandoned": "the last that was abandoned", "savepoints": "the last savepoint"}


def _standing(stored: StoredPipeline, history: History) -> Standing | None:
    """The last of those in the plot that can be read: one page tells of one branch, also of one that was abandoned."""
    readable = [row for row in history.rows if row.checkpoint_id]
    if not readable:
        return None
    last = readable[-1]
    what = LAST[history.which] if history.page == 0 else "the last of this page"
    if last is not history.rows[-1]:
        what = "the last that can be read"
    return Standing(Checkpoint(stored, Slot.read(last.slot), counts=last.on_timeline), what)


def courses(site: Site, stored: StoredPipeline, rows: list[CheckpointRow]) -> list[Course]:
    """Where the sources stood at some of the checkpoints; read once, and kept."""

    def course(row: CheckpointRow) -> Course | None:
        key = (stored.name, row.checkpoint_id or "")
        kept = site.courses.get(key)
        if kept is None:
            with suppress(ObjectMissing, Damage, FormatTooNew):
                kept = course_at(Checkpoint(stored, Slot.read(row.slot)))
                site.courses.put(key, kept)
        return kept

    readable = [row for row in rows if row.checkpoint_id]
    return [found for found in in_parallel(course, sample(readable, SAMPLES)) if found is not None]


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


def _plot(name: str, rows: list[CheckpointRow], stories: Mapping[int, Story]) -> dict[str, Any]:
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
        "ticks": ticks(_clock(rows), step, start),
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


def _clock(rows: list[CheckpointRow]) -> list[str]:
    """The time of each checkpoint, with its day if they are of several days."""
    known = _times(rows)
    has_days = bool(known) and max(known) // DAY_MS != min(known) // DAY_MS
    # "2026-11-15 10:00:00 UTC" holds both.
    shown = slice(5 if has_days else 11, 16)
    return ["" if row.timestamp_ms is None else moment(row.timestamp_ms, utc=True)[shown] for row in rows]


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
    """A line over time with what is said at each of its points."""

    name: str
    what: str
    line: Line
    now: str
    tips: list[str]


def _lag(rows: list[CheckpointRow]) -> list[Drawn]:
    """How far the watermark was behind the clock."""
    known = [row for row in rows if row.timestamp_ms is not None]
    lags = [
        None if row.watermark is None or row.timestamp_ms is None else row.timestamp_ms - row.watermark for row in known
    ]
    told = [lag for lag in lags if lag is not None]
    if not told:
        return []
    tips = [
        f"{row.slot}, epoch {row.epoch}\nwatermark {moment(row.watermark, utc=True)}\nbehind by {duration(lag)}"
        for row, lag in zip(known, lags, strict=True)
    ]
    return [Drawn("Watermark", "behind the clock", line(lags, STRIP, from_zero=True), duration(told[-1]), tips)]


def _places(drawn: list[Course]) -> list[Drawn]:
    """Each source whose place is a number."""
    found: list[Drawn] = []
    for name in sorted({name for course in drawn for name in course.sources}):
        places = [course.sources.get(name) for course in drawn]
        told = [place for place in places if place is not None]
        if told:
            tips = [
                f"{course.slot}, epoch {course.epoch}\n{name} at {place:,}" if place is not None else course.slot
                for course, place in zip(drawn, places, strict=True)
            ]
            found.append(Drawn(name, "position", line(places, STRIP), f"{told[-1]:,}", tips))
    return found


class Elsewhere(NamedTuple):
    """A pipeline and a checkpoint: where another one came from, or what left from there."""

    name: str
    slot: Slot


def _fork_of(origin: str) -> Elsewhere | None:
    found = FORK.fullmatch(origin)
    return Elsewhere(found[1], Slot.read(found[2])) if found else None


def _origin(site: Site, origin: str) -> Elsewhere | None:
    """The checkpoint that a pipeline was forked from, if its pipeline is in this repository."""
    found = _fork_of(origin)
    return found if found and found.name in site.fleet.names() else None


def _forks(site: Site, name: str) -> list[Elsewhere]:
    """Pipelines that began from one of this one's checkpoints, as far as they were seen yet."""
    seen = [(row.name, _fork_of(row.seen.origin)) for row in site.fleet.rows() if row.seen]
    return [Elsewhere(fork, at.slot) for fork, at in seen if at and at.name == name]


def _stories(generations: Sequence[GenerationRow], origin: Elsewhere | None) -> dict[int, Story]:
    stories: dict[int, Story] = {}
    for row in generations:
        word = (row.why.split() or [""])[0][:12]
        sentence = f"{row.why}, {row.began}, by {row.who}, {moment(row.timestamp_ms, utc=True)}"
        stories[row.generation] = Story(word, sentence)
        if origin and row.generation == 0:
            parent, href = f"{origin.name}@{origin.slot}", f"/pipelines/{origin.name}/checkpoints/{origin.slot}"
            stories[0] = Story(word, f"fork of {parent}; {sentence}", parent, href)
    return stories


def _named(
    name: str, savepoints: Mapping[str, Slot], forks: Sequence[Elsewhere], newest: Checkpoint | None
) -> list[Named]:
    """What stands out on the tree, the least of it first: of too much the beginning is left out."""
    here = f"/pipelines/{name}/checkpoints/"
    found = [
        Named(slot, label, "savepoint", f"{here}{slot}", f"savepoint {label}: {slot}")
        for label, slot in savepoints.items()
    ]
    found += [
        Named(at.slot, f"↳ {at.name}", "fork", f"/pipelines/{at.name}", f"{at.name} was forked from {at.slot}")
        for at in forks
    ]
    if newest:
        found.append(Named(newest.slot, "", "newest", f"{here}{newest.slot}", f"newest: {newest.slot}"))
    return found


def _sources(checkpoint: Checkpoint | None) -> list[tuple[str, Mapping[str, str], str]]:
    """(name, offsets, kind) of each source at a checkpoint."""
    if checkpoint is None:
        return []
    with suppress(HoldfastError):
        found = sorted(checkpoint.manifest.source_offsets.items())
        return [(name, offset.offsets, offset.metadata.get("kind", "")) for name, offset in found]
    return []


def _sinks(checkpoint: Checkpoint | None) -> list[tuple[str, str, str | None, int | None, str]]:
    """(name, status, why, epoch, position) of each sink at a checkpoint, as it stands now."""
    if checkpoint is None:
        return []
    with suppress(Damage, ObjectMissing, FormatTooNew):
        epochs = checkpoint.manifest.sink_epochs
        return [
            (name, status.status, status.why, epochs.get(name), _place(checkpoint, name))
            for name, status in sorted(checkpoint.sinks.items())
        ]
    return []


def _place(checkpoint: Checkpoint, sink: str) -> str:
    place = checkpoint.sink_position(sink)
    return "" if place is None else worded(place)
