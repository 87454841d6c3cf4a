"""Everything that a person asks of one checkpoint."""

from __future__ import annotations

from reprlib import Repr
from typing import Any

import msgspec

from holdfast.checkpoint import Checkpoint
from holdfast.codec import CheckpointState, decode_state, decode_value
from holdfast.decide.timeline import timeline
from holdfast.errors import HoldfastError, LibraryMissing
from holdfast.manifest import Artifact, Manifest
from holdfast.report.plain import iso_time
from holdfast.spark.describe import ENGINE as SPARK
from holdfast.spark.explain import SparkExplained, explain

__all__ = [
    "CheckpointDetails",
    "DriverState",
    "FindingRow",
    "OperatorView",
    "PartitionView",
    "PinView",
    "SinkView",
    "SourceView",
    "StateRecord",
    "StateValue",
    "describe",
]

LARGEST_STATE = 8 * 1024 * 1024
"""A driver state above this is not read only to be shown."""

LARGEST_VALUE = 256 * 1024

_STATE_MAGIC, _VALUE_MAGIC = b"HFSTATE\n", b"HFv"

_short = Repr()
_short.maxdict = _short.maxlist = _short.maxtuple = _short.maxset = 4
_short.maxlevel = 2
_short.maxstring = _short.maxother = 48


class SourceView(msgspec.Struct, kw_only=True, frozen=True):
    name: str
    offsets: dict[str, str] = {}
    epoch: int | None = None
    metadata: dict[str, str] = {}
    watermark: int | None = None


class PartitionView(msgspec.Struct, kw_only=True, frozen=True):
    partition: int
    snapshots: int
    deltas: int
    bytes: int


class OperatorView(msgspec.Struct, kw_only=True, frozen=True):
    name: str
    partitions: list[PartitionView]
    snapshots: int
    deltas: int
    bytes: int


class StateValue(msgspec.Struct, kw_only=True, frozen=True):
    """One registered state: `value` is a short form for the eye, None if it can't be given."""

    name: str
    bytes: int
    value: str | None = None


class StateRecord(msgspec.Struct, kw_only=True, frozen=True):
    """The record that a plain loop saves: its position and its states."""

    stream: str
    sequence: int
    event_count: int
    created_ns: int
    created: str | None
    watermark_ns: int | None
    watermark: str | None
    states: list[StateValue]
    source_offsets: dict[str, dict[str, str]]
    metadata: dict[str, str]


class DriverState(msgspec.Struct, kw_only=True, frozen=True):
    name: str
    bytes: int
    record: StateRecord | None = None
    value: str | None = None
    problem: str | None = None


class SinkView(msgspec.Struct, kw_only=True, frozen=True):
    """A sink as it stands now."""

    name: str
    status: str
    why: str | None = None
    epoch: int | None = None
    position: Any = None


class PinView(msgspec.Struct, kw_only=True, frozen=True):
    why: str
    who: str
    time: str | None
    timestamp_ms: int
    by_claim: int | None


class FindingRow(msgspec.Struct, kw_only=True, frozen=True):
    """What a manifest says against itself: an error, or a note, as `check` calls it too."""

    severity: str
    where: str
    message: str


class CheckpointDetails(msgspec.Struct, kw_only=True, frozen=True):
    """One checkpoint, whole. Commit tokens of sinks are left out: they are for the sinks alone.

    `spark` says more of one that was captured from Spark, None of any other.
    """

    pipeline: str
    pipeline_id: str
    checkpoint_id: str
    slot: str
    on_timeline: bool
    epoch: int
    timestamp_ms: int
    time: str | None
    parent: str | None
    engine: str
    spark_version: str | None
    bytes_new: int
    bytes_shared: int
    artifacts: int
    objects: int
    watermark: int | None
    processed_records: int
    steps: int
    took_ms: int
    vnode_count: int
    sources: list[SourceView]
    tables: list[SourceView]
    operators: list[OperatorView]
    driver_states: list[DriverState]
    files: dict[str, int]
    sinks: list[SinkView]
    pipeline_hash: str
    fingerprint: dict[str, str]
    metadata: dict[str, str]
    findings: list[FindingRow]
    savepoints: list[str]
    pins: list[PinView]
    spark: SparkExplained | None = None


def describe(checkpoint: Checkpoint) -> CheckpointDetails:
    """All that is known of a checkpoint. Small driver states are read, verified and decoded; others only named.

    Of one captured from Spark the names of its operators are read.
    """
    manifest, pipeline = checkpoint.manifest, checkpoint.pipeline
    new, shared = manifest.byte_counts()
    return CheckpointDetails(
        pipeline=pipeline.name,
        pipeline_id=manifest.pipeline_id,
        checkpoint_id=manifest.checkpoint_id,
        slot=str(manifest.at),
        on_timeline=checkpoint.slot in timeline(pipeline.world()),
        epoch=manifest.epoch,
        timestamp_ms=manifest.timestamp_ms,
        time=iso_time(manifest.timestamp_ms),
        parent=f"{manifest.parent.generation}-{manifest.parent.slot}" if manifest.parent else None,
        engine=manifest.engine,
        spark_version=manifest.spark_version,
        bytes_new=new,
        bytes_shared=shared,
        artifacts=sum(1 for _ in manifest.artifacts()),
        objects=len(manifest.objects),
        watermark=manifest.watermark,
        processed_records=manifest.processed_records,
        steps=manifest.steps,
        took_ms=manifest.took_ms,
        vnode_count=manifest.vnode_count,
        sources=_sources(manifest),
        tables=[
            SourceView(name=name, offsets=offset.offsets, epoch=offset.epoch, metadata=offset.metadata)
            for name, offset in sorted(manifest.table_offsets.items())
        ],
        operators=[_operator(name, partitions) for name, partitions in sorted(manifest.operators.items())],
        driver_states=[_driver_state(checkpoint, name, a) for name, a in sorted(manifest.driver_states.items())],
        files={name: artifact.size_bytes for name, artifact in sorted(manifest.files.items())},
        sinks=[
            SinkView(
                name=name,
                status=status.status,
                why=status.why,
                epoch=manifest.sink_epochs.get(name),
                position=checkpoint.sink_position(name),
            )
            for name, status in sorted(checkpoint.sinks.items())
        ],
        pipeline_hash=manifest.pipeline_hash,
        fingerprint=dict(sorted(manifest.fingerprint.items())),
        metadata=dict(sorted(manifest.metadata.items())),
        findings=_findings(manifest),
        savepoints=sorted(name for name, word in pipeline.savepoints().items() if word.at == checkpoint.slot),
        pins=[
            PinView(
                why=pin.why,
                who=pin.who,
                time=iso_time(pin.created_ms),
                timestamp_ms=pin.created_ms,
                by_claim=pin.claim,
            )
            for pin in pipeline.pins()
            if pin.at == checkpoint.slot
        ],
        spark=explain(pipeline.records, manifest) if manifest.engine == SPARK else None,
    )


def _findings(manifest: Manifest) -> list[FindingRow]:
    words = {"error": "error", "warning": "note"}
    return [FindingRow(severity=words[f.severity], where=f.where, message=f.message) for f in manifest.validate()]


def _sources(manifest: Manifest) -> list[SourceView]:
    views: list[SourceView] = []
    for name in sorted({*manifest.source_names, *manifest.source_offsets, *manifest.source_watermarks}):
        offset, watermark = manifest.source_offsets.get(name), manifest.source_watermarks.get(name)
        if offset is None:
            views.append(SourceView(name=name, watermark=watermark))
        else:
            views.append(
                SourceView(
                    name=name,
                    offsets=offset.offsets,
                    epoch=offset.epoch,
                    metadata=offset.metadata,
                    watermark=watermark,
                )
            )
    return views


def _operator(name: str, partitions: dict[int, list[Artifact]]) -> OperatorView:
    views = [
        PartitionView(
            partition=partition,
            snapshots=sum(1 for artifact in chain if not artifact.is_delta),
            deltas=sum(1 for artifact in chain if artifact.is_delta),
            bytes=sum(artifact.size_bytes for artifact in chain),
        )
        for partition, chain in sorted(partitions.items())
    ]
    return OperatorView(
        name=name,
        partitions=views,
        snapshots=sum(view.snapshots for view in views),
        deltas=sum(view.deltas for view in views),
        bytes=sum(view.bytes for view in views),
    )


def _driver_state(checkpoint: Checkpoint, name: str, artifact: Artifact) -> DriverState:
    size = artifact.size_bytes
    if size > LARGEST_STATE:
        return DriverState(name=name, bytes=size)
    try:
        data = checkpoint.load(artifact)
        if data.startswith(_STATE_MAGIC):
            return DriverState(name=name, bytes=size, record=_record(decode_state(data)))
    except HoldfastError as error:
        # One bad state must not hide the rest of the checkpoint from whoever looks for what is wrong with it.
        return DriverState(name=name, bytes=size, problem=error.message)
    return DriverState(name=name, bytes=size, value=_short_value(data))


def _record(state: CheckpointState) -> StateRecord:
    return StateRecord(
        stream=state.stream,
        sequence=state.sequence,
        event_count=state.event_count,
        created_ns=state.created_ns,
        created=iso_time(state.created_ns // 1_000_000),
        watermark_ns=state.watermark_ns,
        watermark=iso_time(None if state.watermark_ns is None else state.watermark_ns // 1_000_000),
        states=[
            StateValue(name=name, bytes=len(data), value=_short_value(bytes(data)))
            for name, data in sorted(state.operator_states.items())
        ],
        source_offsets={name: dict(offsets) for name, offsets in sorted(state.source_offsets.items())},
        metadata=dict(state.metadata),
    )


def _short_value(data: bytes) -> str | None:
    if not data.startswith(_VALUE_MAGIC) or len(data) > LARGEST_VALUE:
        return None
    try:
        return _short.repr(decode_value(data))
    except LibraryMissing as error:
        return f"(needs {error.library})"
    except HoldfastError:
        return None
