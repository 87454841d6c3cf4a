"""What there is: pipelines, the checkpoints of one, and the claims on it. Only heads of manifests are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import msgspec

from holdfast.checkpoint import Checkpoint
from holdfast.decide.timeline import abandoned, current, timeline
from holdfast.errors import Damage, DamagedRecord, FormatTooNew, ObjectMissing
from holdfast.handles import Repository, StoredPipeline
from holdfast.layout import Slot
from holdfast.manifest import Head
from holdfast.report.plain import iso_time

__all__ = [
    "CheckpointRow",
    "GenerationRow",
    "PipelineRow",
    "blame",
    "describe_checkpoints",
    "in_parallel",
    "list_checkpoints",
    "list_generations",
    "list_pipelines",
]

CONCURRENCY = 8

S = TypeVar("S")
T = TypeVar("T")


class PipelineRow(msgspec.Struct, kw_only=True, frozen=True):
    """One pipeline. `bytes` is all that it takes in the store; `problem` says why the rest could not be told."""

    name: str
    pipeline_id: str | None = None
    checkpoints: int = 0
    abandoned: int = 0
    generation: int | None = None
    newest: str | None = None
    epoch: int | None = None
    timestamp_ms: int | None = None
    time: str | None = None
    bytes: int = 0
    savepoints: list[str] = []
    is_copy: bool = False
    problem: str | None = None


class CheckpointRow(msgspec.Struct, kw_only=True, frozen=True):
    """One checkpoint as its summary tells it; `sinks` holds as many as fit there, of `sinks_total`.

    `problem` says why the rest could not be told, `problem_key` which object of the store is to blame.
    """

    slot: str
    on_timeline: bool
    checkpoint_id: str | None = None
    epoch: int | None = None
    timestamp_ms: int | None = None
    time: str | None = None
    bytes_new: int = 0
    bytes_shared: int = 0
    artifacts: int = 0
    sinks: dict[str, str] = {}
    sinks_total: int = 0
    savepoints: list[str] = []
    pins: list[str] = []
    parent: str | None = None
    watermark: int | None = None
    processed_records: int = 0
    took_ms: int = 0
    problem: str | None = None
    problem_key: str | None = None


class GenerationRow(msgspec.Struct, kw_only=True, frozen=True):
    """One claim: who took the pipeline, what for, and where it began (`at G-N`, `fresh`, `void` or `not yet`)."""

    generation: int
    why: str
    who: str
    began: str
    adopted_epoch: int | None
    timestamp_ms: int
    time: str | None
    is_current: bool
    repository_id: str
    query_id: str | None
    directory: str | None


def list_pipelines(repository: Repository) -> list[PipelineRow]:
    """All pipelines by name; one whose records are damaged is listed with its problem."""
    return in_parallel(_pipeline_row, repository.pipelines())


def list_checkpoints(pipeline: StoredPipeline, *, with_abandoned: bool = False) -> list[CheckpointRow]:
    """The checkpoints of a pipeline, oldest first, abandoned ones before the others.

    Where records are missing this shows what there is: ask `StoredPipeline.missing` too, and with something missing
    for the abandoned ones, since what lost its beginning passes for abandoned.
    """
    pipeline.require()
    return describe_checkpoints(pipeline, pipeline.checkpoints(with_abandoned=with_abandoned))


def describe_checkpoints(pipeline: StoredPipeline, found: Sequence[Checkpoint]) -> list[CheckpointRow]:
    """Some checkpoints of a pipeline, in the order given; those that were pruned meanwhile are left out."""
    savepoints: dict[Slot, list[str]] = {}
    for name, savepoint in sorted(pipeline.savepoints().items()):
        savepoints.setdefault(savepoint.at, []).append(name)
    pins: dict[Slot, list[str]] = {}
    for pin in pipeline.pins():
        pins.setdefault(pin.at, []).append(pin.why)
    settled, failed = _settled(pipeline)

    def row(checkpoint: Checkpoint) -> CheckpointRow | None:
        slot = checkpoint.slot
        try:
            head = checkpoint.head
        except ObjectMissing:
            return None  # pruned since it was listed
        except (Damage, FormatTooNew) as error:
            why, key = blame(error)
            return CheckpointRow(slot=str(slot), on_timeline=checkpoint.counts, problem=why, problem_key=key)
        return CheckpointRow(
            slot=str(slot),
            on_timeline=checkpoint.counts,
            checkpoint_id=head.checkpoint_id,
            epoch=head.epoch,
            timestamp_ms=head.timestamp_ms,
            time=iso_time(head.timestamp_ms),
            bytes_new=head.bytes_new,
            bytes_shared=head.bytes_shared,
            artifacts=head.artifacts,
            sinks=_sinks_now(checkpoint, head, settled=slot in settled, failed=slot in failed),
            sinks_total=head.sinks_total,
            savepoints=savepoints.get(slot, []),
            pins=pins.get(slot, []),
            parent=head.parent,
            watermark=head.watermark,
            processed_records=head.processed_records,
            took_ms=head.took_ms,
        )

    return [found_row for found_row in in_parallel(row, found) if found_row is not None]


def list_generations(pipeline: StoredPipeline, newest: int | None = None) -> list[GenerationRow]:
    """The claims on a pipeline, oldest first: all of them, or only so many of the newest."""
    pipeline.require()
    found = pipeline.generations(newest)
    begun = max((g.number for g in found if g.base is not None and not g.base.void), default=None)
    return [
        GenerationRow(
            generation=info.number,
            why=info.claim.why,
            who=info.claim.who,
            began=info.began,
            adopted_epoch=info.base.adopted_epoch if info.base else None,
            timestamp_ms=info.claim.created_ms,
            time=iso_time(info.claim.created_ms),
            is_current=info.number == begun,
            repository_id=info.claim.repository_id,
            query_id=info.claim.query_id,
            directory=info.claim.directory,
        )
        for info in found
    ]


def blame(error: Damage | FormatTooNew) -> tuple[str, str | None]:
    """Why a checkpoint can't be read, in words that go on after its name, and the object that is to blame."""
    return (error.why, error.key) if isinstance(error, DamagedRecord) else (error.message, None)


def _pipeline_row(pipeline: StoredPipeline) -> PipelineRow:
    records = pipeline.records
    stored = sum(info.size for info in records.store.list(records.keys.prefix))
    try:
        identity = records.identity()
        world = pipeline.world()
        standing = timeline(world)
        head = records.head(standing[-1]) if standing else None
        missing = pipeline.missing()
        return PipelineRow(
            name=pipeline.name,
            pipeline_id=identity.pipeline_id,
            checkpoints=len(standing),
            abandoned=len(abandoned(world)),
            generation=current(world),
            newest=str(standing[-1]) if standing else None,
            epoch=head.epoch if head else None,
            timestamp_ms=head.timestamp_ms if head else None,
            time=iso_time(head.timestamp_ms) if head else None,
            bytes=stored,
            savepoints=sorted(pipeline.savepoints()),
            is_copy=pipeline.is_copy(),
            problem=f"missing: {'; '.join(missing)}" if missing else None,
        )
    except (Damage, FormatTooNew, ObjectMissing) as error:
        return PipelineRow(name=pipeline.name, bytes=stored, problem=error.message)


def _settled(pipeline: StoredPipeline) -> tuple[set[Slot], set[Slot]]:
    """Slots whose sinks are all committed, and slots with an attempt that failed: one listing for all of them."""
    records = pipeline.records
    listed = [(name.what, name.slot) for _, name, _ in records.listed(records.keys.all_settled, "settled", "failed")]
    done = {slot for what, slot in listed if what == "settled" and slot is not None}
    return done, {slot for what, slot in listed if what == "failed" and slot is not None} - done


def _sinks_now(checkpoint: Checkpoint, head: Head, *, settled: bool, failed: bool) -> dict[str, str]:
    if settled:
        return dict.fromkeys(head.sinks, "committed")
    if failed:
        # Seldom, and at most the newest of a run: worth reading what became of each sink.
        return {name: status.status for name, status in checkpoint.sinks.items()}
    return head.sinks


def in_parallel(call: Callable[[S], T], over: Iterable[S]) -> list[T]:
    """Ask for many things at a time; the answers come in the order of what was asked."""
    with ThreadPoolExecutor(CONCURRENCY, thread_name_prefix="holdfast-report") as pool:
        return list(pool.map(call, over))
