"""One pipeline: its health, its checkpoints as a plot, where its sources and sinks stand, and the tree it grew in."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, get_args

from starlette.requests import Request
from starlette.responses import Response

from holdfast.checkpoint import Checkpoint
from holdfast.dashboard.fleet import Row
from holdfast.dashboard.plots import WIDTH, Line, bars, line, tree
from holdfast.dashboard.render import version_of
from holdfast.dashboard.site import Site, of, read_number, renews_itself
from holdfast.errors import Damage, FormatTooNew, HoldfastError, ObjectMissing, PipelineMissing
from holdfast.handles import StoredPipeline
from holdfast.layout import Slot
from holdfast.report import CheckpointRow, Course, Glance, Which, course_at, list_generations, read_history, sample
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
        "jobs": site.jobs.of(stored.name)[:5],
        "glance_version": version_of(it, rows[0].health),
        "damage": None,
    }
    try:
        values |= _kept_history(request, site, stored, rows[0])
    except (Damage, FormatTooNew) as damage:
        values["damage"] = damage
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
    named = [(slot, name, "savepoint") for name, slot in history.savepoints.items()]
    named += [(newest.slot, "newest", "newest")] if newest else []
    return {
        "history": history,
        "generations": generations[::-1],
        "plot": _plot(stored.name, history.rows),
        "lines": [*_lag(history.rows), *_places(drawn)],
        "tree": tree(history.stretches, named),
        "sources": _sources(newest),
        "sinks": _sinks(newest),
        "forks": _forks(site, stored.name),
        "WIDTH": WIDTH,
        "history_version": version_of(history, generations),
    }


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


def _plot(name: str, rows: list[CheckpointRow]) -> dict[str, Any]:
    """One column a checkpoint, the same one in every strip; the newest is at the right edge."""
    step = min(WIDTH / max(1, len(rows)), WIDEST_STEP)
    start = WIDTH - step * len(rows)
    return {
        "step": round(step, 2),
        "columns": [
            Column(round(start + index * step, 2), f"/pipelines/{name}/checkpoints/{row.slot}", _tip(row), row)
            for index, row in enumerate(rows)
        ],
        "new": bars([row.bytes_new for row in rows], STRIP, step, start),
        "state": bars([row.bytes_new + row.bytes_shared for row in rows], STRIP, step, start),
        "took": bars([row.took_ms for row in rows], STRIP * 0.6, step, start),
    }


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


def _forks(site: Site, name: str) -> list[str]:
    """Pipelines that began from one of this one's checkpoints, as far as they were seen yet."""
    return [row.name for row in site.fleet.rows() if row.seen and row.seen.origin.startswith(f"fork of {name}@")]


def _sources(newest: Checkpoint | None) -> list[tuple[str, Mapping[str, str], str]]:
    """(name, offsets, kind) of each source at the newest checkpoint."""
    if newest is None:
        return []
    with suppress(HoldfastError):
        found = sorted(newest.manifest.source_offsets.items())
        return [(name, offset.offsets, offset.metadata.get("kind", "")) for name, offset in found]
    return []


def _sinks(newest: Checkpoint | None) -> list[tuple[str, str, int | None, str]]:
    """(name, status, epoch, position) of each sink at the newest checkpoint, as it stands now."""
    if newest is None:
        return []
    with suppress(Damage, ObjectMissing, FormatTooNew):
        epochs = newest.manifest.sink_epochs
        return [
            (name, status.status, epochs.get(name), _place(newest, name))
            for name, status in sorted(newest.sinks.items())
        ]
    return []


def _place(checkpoint: Checkpoint, sink: str) -> str:
    place = checkpoint.sink_position(sink)
    return "" if place is None else worded(place)
