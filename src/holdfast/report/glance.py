"""One pipeline at a glance, in a constant number of requests however many checkpoints it has."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import msgspec

from holdfast.checkpoint import Checkpoint
from holdfast.decide.health import Vitals, usual_interval
from holdfast.errors import Damage, FormatTooNew, ObjectMissing, PipelineMissing
from holdfast.handles import StoredPipeline
from holdfast.layout import Slot
from holdfast.manifest import Head
from holdfast.pipeline.ledger import Ledger
from holdfast.records import Claim
from holdfast.report.lists import blame
from holdfast.report.plain import iso_time
from holdfast.repository.pipeline import Generations

__all__ = ["Glance", "glance"]

LOOK_BACK = 8
"""From how many checkpoints the usual interval is told, and how far back one that can be read is looked for."""

GENERATIONS_BACK = 3
"""In how many generations, so that a glance at a pipeline that is all damage ends as well."""


class Glance(msgspec.Struct, kw_only=True, frozen=True):
    """A pipeline as it stands. `problem` says why the rest could not be told, `problem_key` which object is to blame.

    All figures are those of the checkpoint `figures_of`: the newest, or where that can't be read the last before it
    that can be.
    `committed_ms` is the last commit that the repository knows of: that of the newest checkpoint, or of an epoch that
    was decided after it and has arrived in the ledger. `lag_ms` is how far the watermark was behind the clock when the
    checkpoint was taken, not how far it is now. `given_up` are slots near the newest that hold no checkpoint and never
    will. `outlived` is the generation before the newest claim if it took a checkpoint after it, and so was still
    running: by the clocks of those who wrote them.
    """

    name: str
    pipeline_id: str | None = None
    identifier: str | None = None
    engine: str | None = None
    generation: int | None = None
    claimed: int | None = None
    claimed_ms: int = 0
    claimed_by: str = ""
    claimed_why: str = ""
    directory: str | None = None
    origin: str = ""
    is_copy: bool = False
    newest: str | None = None
    figures_of: str | None = None
    checkpoint_id: str | None = None
    epoch: int | None = None
    timestamp_ms: int | None = None
    time: str | None = None
    usual_interval_ms: int | None = None
    took_ms: int = 0
    watermark: int | None = None
    lag_ms: int | None = None
    bytes: int = 0
    bytes_new: int = 0
    processed_records: int = 0
    sinks: dict[str, str] = {}
    sinks_total: int = 0
    committed_ms: int | None = None
    committed_epoch: int | None = None
    given_up: list[str] = []
    outlived: list[int] = []
    problem: str | None = None
    problem_key: str | None = None

    def vitals(self, max_age_ms: int | None = None) -> Vitals:
        return Vitals(
            checkpoint_ms=self.timestamp_ms,
            usual_ms=self.usual_interval_ms,
            max_age_ms=max_age_ms,
            generation=self.generation,
            claimed=self.claimed,
            claimed_ms=self.claimed_ms,
            sinks=self.sinks,
            problem=self.problem,
            is_copy=self.is_copy,
        )


def glance(pipeline: StoredPipeline) -> Glance | None:
    """Look at a pipeline; None if there is none of this name. Damage is told, not raised."""
    try:
        identity = pipeline.records.identity()
        known = pipeline.records.generations()
        latest = pipeline.latest()
        return _glance(pipeline, identity.pipeline_id, known, latest)
    except PipelineMissing:
        return None
    except (Damage, FormatTooNew, ObjectMissing) as error:
        return Glance(name=pipeline.name, problem=error.message)


def _glance(pipeline: StoredPipeline, pipeline_id: str, known: Generations, latest: Checkpoint | None) -> Glance:
    records = pipeline.records
    claim = records.claim(known.top) if known.claims else None
    begun = max((g for g, base in known.bases.items() if not base.void), default=None)
    problem, key = _problem(latest) if latest else (None, None)
    held, void = _around(pipeline, latest.slot) if latest else ([], [])
    told = _last_readable(pipeline, known, latest.slot, held) if latest and problem else latest
    head = told.head if told else None
    committed_ms, committed_epoch = _last_commit(pipeline, begun, head)
    return Glance(
        name=pipeline.name,
        pipeline_id=pipeline_id,
        identifier=head.identifier if head else None,
        engine=head.engine if head else None,
        generation=begun,
        claimed=known.top if known.claims else None,
        claimed_ms=claim.created_ms if claim else 0,
        claimed_by=claim.who if claim else "",
        claimed_why=claim.why if claim else "",
        directory=claim.directory if claim else None,
        origin=known.bases[0].origin if 0 in known.bases else "",
        is_copy=not records.newest_is_local(known),
        newest=str(latest.slot) if latest else None,
        figures_of=str(told.slot) if told else None,
        checkpoint_id=head.checkpoint_id if head else None,
        epoch=head.epoch if head else None,
        timestamp_ms=head.timestamp_ms if head else None,
        time=iso_time(head.timestamp_ms) if head else None,
        usual_interval_ms=_usual_interval(pipeline, held),
        took_ms=head.took_ms if head else 0,
        watermark=head.watermark if head else None,
        lag_ms=head.timestamp_ms - head.watermark if head and head.watermark is not None else None,
        bytes=head.bytes_new + head.bytes_shared if head else 0,
        bytes_new=head.bytes_new if head else 0,
        processed_records=head.processed_records if head else 0,
        sinks=_sinks(told) if told else {},
        sinks_total=head.sinks_total if head else 0,
        committed_ms=committed_ms,
        committed_epoch=committed_epoch,
        given_up=list(map(str, void)),
        outlived=_outlived(pipeline, known, claim, latest) if claim else [],
        problem=problem,
        problem_key=key,
    )


def _problem(newest: Checkpoint) -> tuple[str | None, str | None]:
    """Why the newest checkpoint can't be read and what is to blame, if so: the rest is told all the same."""
    try:
        _ = newest.head
    except (Damage, FormatTooNew) as error:
        why, key = blame(error)
        return f"checkpoint {newest.slot} is damaged: {why}" if key else why, key
    return None, None


def _last_readable(
    pipeline: StoredPipeline, known: Generations, newest: Slot, held: Sequence[Slot]
) -> Checkpoint | None:
    """The last checkpoint before the newest that can be read: among those around it, or around where it began."""
    for _ in range(GENERATIONS_BACK):
        for slot in reversed(held):
            with suppress(ObjectMissing, Damage, FormatTooNew):
                pipeline.records.head(slot)
                return Checkpoint(pipeline, slot)
        base = known.bases.get(newest.generation)
        if base is None or base.slot is None:
            return None
        newest = base.slot
        held = _around(pipeline, newest)[0]
    return None


def _outlived(pipeline: StoredPipeline, known: Generations, claim: Claim, latest: Checkpoint | None) -> list[int]:
    """A publisher writes, then looks for a claim: one that was alive leaves a checkpoint that nobody goes on from."""
    before = max((g for g, base in known.bases.items() if not base.void and g < known.top), default=None)
    if before is None:
        return []
    base = known.bases.get(known.top)
    reached = base.slot if base else latest.slot if latest else None
    after = reached.number + 1 if reached and reached.generation == before else 0
    held, void = pipeline.records.slots(before, after)
    last = max(held - void, default=None)
    if last is None:
        return []
    try:
        return [before] if pipeline.records.head(last).timestamp_ms > claim.created_ms else []
    except (ObjectMissing, Damage, FormatTooNew):
        return []  # What can't be read proves nothing.


def _sinks(newest: Checkpoint) -> dict[str, str]:
    """As they stand now; only sinks that were pending when the checkpoint was written are asked for."""
    written = newest.head.sinks
    if all(status == "committed" for status in written.values()):
        return written
    return {name: status.status for name, status in newest.sinks.items()}


def _around(pipeline: StoredPipeline, newest: Slot) -> tuple[list[Slot], list[Slot]]:
    """The last few slots that hold a checkpoint, and those that were given up."""
    held, void = pipeline.records.slots(newest.generation, max(0, newest.number - LOOK_BACK))
    return sorted(slot for slot in held - void if slot <= newest), sorted(void)


def _usual_interval(pipeline: StoredPipeline, slots: list[Slot]) -> int | None:
    """From checkpoints of one generation: the pause before a take-over is no interval."""
    times: list[int] = []
    for slot in slots:
        try:
            times.append(pipeline.records.head(slot).timestamp_ms)
        except (ObjectMissing, Damage, FormatTooNew):
            continue  # An old one that is pruned or damaged says nothing of the newest.
    return usual_interval(times)


def _last_commit(pipeline: StoredPipeline, generation: int | None, head: Head | None) -> tuple[int | None, int | None]:
    if head is None or generation is None:
        return None, None
    prefix = f"{pipeline.records.keys.ledger}{generation:010}/"
    newest = Ledger(pipeline.records.store, prefix).last_decided(head.epoch)
    if newest is None or newest.epoch <= head.epoch:
        return head.timestamp_ms, head.epoch
    return newest.created_ms or head.timestamp_ms, newest.epoch
