"""What the records say of each source: where it stood, how far it was read, which files, and what it was."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.epochs import EpochDecision
from holdfast.manifest import Manifest
from holdfast.pipeline.sources.contract import LogEntry, Past, Source
from holdfast.pipeline.sources.files import read_log
from holdfast.repository.artifacts import load_artifact
from holdfast.repository.pipeline import PipelineRecords
from holdfast.spark.logs import parse_offsets, parse_source_offset

__all__ = ["Stand", "key_of", "logged_by", "logged_in", "pasts_of", "stand_of_manifest", "stand_of_offsets"]

SOURCES = "sources/"
LOG_OFFSET = "logOffset"


@dataclass(frozen=True)
class Stand:
    """Where all sources of a query stood after an epoch, by their keys in Spark's offset log; their ids, if known."""

    epoch: int
    offsets: Mapping[str, Mapping[str, str]]
    identities: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def stand_of_manifest(manifest: Manifest) -> Stand:
    offsets = {key: offset.offsets for key, offset in manifest.source_offsets.items()}
    return Stand(manifest.epoch, offsets, {key: offset.metadata for key, offset in manifest.source_offsets.items()})


def stand_of_offsets(epoch: int, data: bytes) -> Stand:
    """From the bytes of Spark's `offsets/<epoch>`."""
    sources = parse_offsets(data).sources
    return Stand(epoch, {key: parse_source_offset(offset, epoch).offsets for key, offset in sources.items()})


def logged_by(decisions: Iterable[EpochDecision]) -> dict[str, list[LogEntry]]:
    """The files that these epochs read, of each source."""
    return _read((name, data) for decision in decisions for name, data in decision.sources.items())


def logged_in(records: PipelineRecords, manifest: Manifest) -> dict[str, list[LogEntry]]:
    """The files that were read up to a checkpoint, of each file source, as far as Spark's own log of them goes back."""
    logs = {
        name: artifact
        for name, artifact in manifest.files.items()
        if name.startswith(SOURCES) and LOG_OFFSET in _offsets(manifest, _key(name))
    }
    return _read((name, load_artifact(records.store, records.keys, artifact)) for name, artifact in logs.items())


def pasts_of(
    sources: Sequence[Source], begin: Stand, furthest: Stand, logged: Mapping[str, Sequence[LogEntry]]
) -> list[tuple[Source, Past]]:
    """What is recorded of each source for going on from a stand; one that is new has nothing."""
    found = []
    for number, source in enumerate(sources):
        key = key_of(number, source, begin.offsets)
        if key is not None:
            offsets = begin.offsets[key]
            last = int(offsets.get(LOG_OFFSET, -1))
            files = tuple(entry for entry in logged.get(key, ()) if entry.number > last)
            past = Past(offsets, furthest.offsets.get(key, {}), begin.identities.get(key, {}), files)
            found.append((source, past))
    return found


def key_of(number: int, source: Source, offsets: Mapping[str, object]) -> str | None:
    """Under which key the offset log has a source: its number, or its name where Spark was told of it."""
    return next((key for key in (str(number), source.name) if key in offsets), None)


def _read(logs: Iterable[tuple[str, bytes]]) -> dict[str, list[LogEntry]]:
    found: dict[str, list[LogEntry]] = {}
    for name, data in logs:
        found.setdefault(_key(name), []).extend(read_log(data))
    return found


def _key(name: str) -> str:
    return name.removeprefix(SOURCES).partition("/")[0]


def _offsets(manifest: Manifest, key: str) -> Mapping[str, str]:
    return manifest.source_offsets[key].offsets if key in manifest.source_offsets else {}
