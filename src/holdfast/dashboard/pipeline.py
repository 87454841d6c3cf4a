"""One pipeline: its health, its checkpoints as a plot, where its sources and sinks stand, and the tree it grew in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, get_args

from starlette.requests import Request
from starlette.responses import Response

from holdfast.checkpoint import Checkpoint
from holdfast.dashboard.fleet import Row
from holdfast.dashboard.over_time import lag, places, plot
from holdfast.dashboard.plots import WIDTH
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
from holdfast.text import moment

__all__ = ["PAGE", "courses", "pipeline"]

PAGE = 60
SAMPLES = 16
"""How many manifests are read to draw the course of the sources."""

MOST_GENERATIONS = 24
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
        # Claims are numbered from 0, and never deleted.
        "older_generations": generations[0].generation if generations else 0,
        "plot": plot(stored.name, history.rows, stories),
        "lines": [*lag(history.rows), *places(drawn)],
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
