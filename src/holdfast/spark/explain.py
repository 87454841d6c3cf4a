"""What a Spark checkpoint holds, as people ask for it: sources and offsets, operators and their state, settings.

All from the manifest, but for the names of the operators: those stand in small files of the checkpoint.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from holdfast.errors import DamagedArtifact
from holdfast.layout import Slot
from holdfast.manifest import ConnectorOffset, Manifest
from holdfast.repository.artifacts import load_artifact
from holdfast.repository.pipeline import PipelineRecords
from holdfast.spark.describe import DIRECTORY, QUERY_ID
from holdfast.spark.logs import CODEC, PROVIDER, Malformed, parse_operator
from holdfast.spark.state import StateFile, parse_state_file, provider_of
from holdfast.text import amount, size

__all__ = [
    "OperatorExplained",
    "Position",
    "SourceExplained",
    "SparkExplained",
    "StoreExplained",
    "StoreSummary",
    "explain",
    "kept",
    "settings",
]

FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"

KINDS_OF_OPERATORS = {
    "stateStoreSave": "aggregation",
    "sessionWindowStateStoreSaveExec": "session windows",
    "symmetricHashJoin": "stream-stream join",
    "dedupe": "deduplication",
    "dedupeWithinWatermark": "deduplication within the watermark",
    "globalLimit": "limit",
    "flatMapGroupsWithState": "groups with state",
    "applyInPandasWithState": "groups with state, in pandas",
    "transformWithStateExec": "transformWithState",
    "transformWithStateInPandasExec": "transformWithState, in pandas",
    "transformWithStateInPySparkExec": "transformWithState, in Python",
}


@dataclass(frozen=True)
class Position:
    """Where one partition of a topic stands: the next offset that is read."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True)
class SourceExplained:
    """One source: `positions` for Kafka, `offsets` as they are for any other."""

    name: str
    kind: str
    positions: tuple[Position, ...]
    offsets: Mapping[str, str]


@dataclass(frozen=True)
class StoreExplained:
    """One store of one partition: the version that it is at, and the files that make it up."""

    partition: int
    store: str
    version: int
    base: int
    snapshots: int
    deltas: int
    tables: int
    """Files that snapshots share: RocksDB's tables and logs."""
    files: int
    bytes: int


@dataclass(frozen=True)
class StoreSummary:
    """One store over all partitions: the highest version, and how many files of each sort there are."""

    store: str
    version: int
    snapshots: int
    deltas: int
    tables: int
    bytes: int


@dataclass(frozen=True)
class OperatorExplained:
    """A stateful operator. `name` is Spark's, `kind` says what it does; both are empty where nothing tells them."""

    number: int
    name: str
    kind: str
    partitions: int
    stores: tuple[StoreExplained, ...]
    files: int
    bytes: int
    problem: str | None = None

    @property
    def sizes(self) -> dict[int, int]:
        """The bytes of each partition, over all its stores."""
        found: Counter[int] = Counter()
        for store in self.stores:
            found[store.partition] += store.bytes
        return dict(found)

    @property
    def summaries(self) -> list[StoreSummary]:
        """Its stores by name."""
        at: dict[str, list[StoreExplained]] = {}
        for each in self.stores:
            at.setdefault(each.store, []).append(each)
        return [
            StoreSummary(
                store=store,
                version=max(each.version for each in found),
                snapshots=sum(each.snapshots for each in found),
                deltas=sum(each.deltas for each in found),
                tables=sum(each.tables for each in found),
                bytes=sum(each.bytes for each in found),
            )
            for store, found in sorted(at.items())
        ]


@dataclass(frozen=True)
class SparkExplained:
    """Everything about a Spark checkpoint that is not common to all checkpoints."""

    query_id: str
    directory: str
    spark_version: str | None
    sources: tuple[SourceExplained, ...]
    operators: tuple[OperatorExplained, ...]
    provider: str | None
    changelog: bool
    checkpoint_format: int | None
    codec: str | None
    settings: Mapping[str, str]
    remarks: Mapping[str, str]
    restored_from: str | None
    """The checkpoint that the directory was restored from before this one was captured there."""
    logs: tuple[int, int]
    """How many files of logs there are, and their bytes: metadata, offsets, commits and what sources keep."""

    @property
    def state_in_words(self) -> str:
        """How the state is stored."""
        if not self.operators:
            return "none: the query has no stateful operator"
        words = [self.provider or "a store provider that is not Spark's own"]
        if self.provider == "RocksDB":
            words[0] += " with changelogs" if self.changelog else " without changelogs"
        format_2 = "2 (every version under a name of its own)"
        words.append(f"checkpoint format {format_2 if self.checkpoint_format == 2 else 1}")
        return ", ".join([*words, f"compressed with {self.codec}"])

    @property
    def files_in_words(self) -> str:
        """How many files of logs and of state there are, and their bytes."""
        logs, log_bytes = self.logs
        state, state_bytes = sum(o.files for o in self.operators), sum(o.bytes for o in self.operators)
        return f"{amount(logs, 'log')}, {size(log_bytes)}; {state:,} of state, {size(state_bytes)}"


def explain(records: PipelineRecords, manifest: Manifest) -> SparkExplained:
    """Explain a checkpoint whose engine is Spark."""
    state = _state(manifest)
    operators = tuple(_operator(records, manifest, number, state) for number in _numbers(manifest.files))
    provider = provider_of(manifest.metadata.get(PROVIDER, "")) if operators else None
    logs = [a.size_bytes for name, a in manifest.files.items() if not name.startswith(("state/", "_holdfast/"))]
    about = {n: v for n, v in manifest.metadata.items() if n not in (QUERY_ID, DIRECTORY) and not _is_setting(n)}
    return SparkExplained(
        query_id=manifest.metadata.get(QUERY_ID, ""),
        directory=manifest.metadata.get(DIRECTORY, ""),
        spark_version=manifest.spark_version,
        sources=tuple(_source(name, offset) for name, offset in sorted(manifest.source_offsets.items())),
        operators=operators,
        provider=provider.name if provider else None,
        changelog=any(name.endswith(".changelog") for name in state),
        checkpoint_format=_format(state) if operators else None,
        codec=manifest.metadata.get(CODEC, "lz4") if operators else None,
        settings=settings(manifest),
        remarks=dict(sorted(about.items())),
        restored_from=_restored_from(records, manifest),
        logs=(len(logs), sum(logs)),
    )


def settings(manifest: Manifest) -> dict[str, str]:
    """The settings that Spark pinned in the offset log: a restart keeps them, whatever its session says."""
    return {name: value for name, value in sorted(manifest.metadata.items()) if _is_setting(name)}


def kept(manifest: Manifest) -> dict[str, str]:
    """All settings that a restart keeps: those of the offset log, and the format that the state is written in."""
    state = _state(manifest)
    return settings(manifest) | ({FORMAT: str(_format(state))} if state else {})


def _state(manifest: Manifest) -> dict[str, StateFile]:
    return {name: file for name in manifest.files if (file := parse_state_file(name)) is not None}


def _is_setting(name: str) -> bool:
    return name.startswith("spark.")


def _format(state: Mapping[str, StateFile]) -> int:
    """Checkpoint format 2 gives every version of a state file a name of its own."""
    versioned = (name.rpartition("/")[2] for name, file in state.items() if file.version is not None)
    return 2 if any("_" in plain for plain in versioned) else 1


def _restored_from(records: PipelineRecords, manifest: Manifest) -> str | None:
    if records.claim(manifest.generation).owner is None:
        return None
    base = records.generations(manifest.generation).bases.get(manifest.generation)
    slot: Slot | None = base.slot if base else None
    return f"{records.name}@slot:{slot}" if slot else "a checkpoint that was dropped since"


# ---- sources ----


def _source(name: str, offset: ConnectorOffset) -> SourceExplained:
    kind = offset.metadata.get("kind", "other")
    positions = tuple(sorted(_positions(offset.offsets), key=lambda p: (p.topic, p.partition)))
    return SourceExplained(name, kind, positions if kind == "kafka" else (), dict(offset.offsets))


def _positions(offsets: Mapping[str, str]) -> Iterable[Position]:
    for place, offset in offsets.items():
        topic, _, partition = place.rpartition(":")
        if partition.isdecimal() and offset.removeprefix("-").isdecimal():
            yield Position(topic, int(partition), int(offset))


# ---- state ----


def _numbers(names: Iterable[str]) -> list[int]:
    parts = (name.split("/", 2) for name in names if name.startswith("state/"))
    return sorted({int(part[1]) for part in parts if part[1].isdecimal()})


def _operator(
    records: PipelineRecords, manifest: Manifest, number: int, state: Mapping[str, StateFile]
) -> OperatorExplained:
    name, problem = _name(records, manifest, number)
    stores: dict[tuple[int, str], dict[str, StateFile]] = {}
    for path, file in state.items():
        if file.at.operator == number:
            stores.setdefault((file.at.partition, file.at.store), {})[path] = file
    explained = tuple(_store(manifest, *at, files) for at, files in sorted(stores.items()))
    every = [a.size_bytes for path, a in manifest.files.items() if path.startswith(f"state/{number}/")]
    partitions = len({store.partition for store in explained})
    kind = KINDS_OF_OPERATORS.get(name, "")
    return OperatorExplained(number, name, kind, partitions, explained, len(every), sum(every), problem)


def _store(manifest: Manifest, partition: int, store: str, files: Mapping[str, StateFile]) -> StoreExplained:
    # Spark's checksums lie beside their files and are named after them.
    counted = [file for path, file in files.items() if not path.endswith(".crc")]
    versions = [(file.version, file.is_delta) for file in counted if file.version is not None]
    bases = [version for version, is_delta in versions if not is_delta]
    return StoreExplained(
        partition=partition,
        store=store,
        version=max((version for version, _ in versions), default=0),
        base=max(bases, default=0),
        snapshots=len(bases),
        deltas=len(versions) - len(bases),
        tables=len(counted) - len(versions),
        files=len(files),
        bytes=sum(manifest.files[path].size_bytes for path in files),
    )


def _name(records: PipelineRecords, manifest: Manifest, number: int) -> tuple[str, str | None]:
    """The operator's name and, where it can't be read, why. Before Spark 4.0 nothing tells it."""
    folder = f"state/{number}/_metadata/"
    newer = [n for n in manifest.files if n.startswith(f"{folder}v2/") and n.rpartition("/")[2].isdecimal()]
    path = max(newer, key=lambda n: int(n.rpartition("/")[2])) if newer else f"{folder}metadata"
    artifact = manifest.files.get(path)
    if artifact is None:
        return "", None
    try:
        return parse_operator(load_artifact(records.store, records.keys, artifact)).name, None
    except (DamagedArtifact, Malformed) as error:
        # One bad file must not hide the rest from whoever looks for what is wrong with it.
        return "", f"{path}: {error}"
