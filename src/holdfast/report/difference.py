"""What changed from one checkpoint to another."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

import msgspec

from holdfast.checkpoint import Checkpoint
from holdfast.manifest import ConnectorOffset, Manifest
from holdfast.spark.describe import ENGINE as SPARK

__all__ = ["ArtifactChange", "Change", "Difference", "StateChange", "compare"]

NUMBER = re.compile(r"-?[0-9]{1,30}")


class Change(msgspec.Struct, kw_only=True, frozen=True):
    """A value that is not the same in both; `advanced` is the difference where both are numbers."""

    name: str
    before: str | None
    after: str | None
    advanced: int | None = None


class ArtifactChange(msgspec.Struct, kw_only=True, frozen=True):
    what: Literal["operator", "driver state", "file"]
    name: str
    partition: int | None
    change: Literal["added", "removed", "changed"]
    bytes_before: int
    bytes_after: int


class StateChange(msgspec.Struct, kw_only=True, frozen=True):
    """The files of one operator of a Spark query, or (`operator` None) its logs."""

    operator: int | None
    added: int
    bytes_added: int
    removed: int
    bytes_removed: int
    same: int
    bytes_same: int


class Difference(msgspec.Struct, kw_only=True, frozen=True):
    """Two checkpoints side by side. Bytes are those of the artifacts, each content counted once.

    `totals` is by how much the partitions of a source advanced in all; `settings` are what either's
    metadata says otherwise; `state` has an entry for each operator if both are of Spark.
    """

    before: str
    after: str
    engine: str
    epochs: int
    milliseconds: int
    records: int
    watermark: Change | None
    sources: dict[str, list[Change]]
    totals: dict[str, int]
    tables: dict[str, list[Change]]
    source_watermarks: list[Change]
    sink_epochs: list[Change]
    fingerprint: list[Change]
    settings: list[Change]
    state: list[StateChange]
    artifacts: list[ArtifactChange]
    bytes_same: int
    bytes_removed: int
    bytes_added: int


def compare(a: Checkpoint, b: Checkpoint) -> Difference:
    """From `a` to `b`, by what their manifests say; no data is read."""
    old, new = a.manifest, b.manifest
    watermark = _changes({"watermark": old.watermark}, {"watermark": new.watermark})
    before, after = _contents(old), _contents(new)
    sources = _offsets(old.source_offsets, new.source_offsets)
    return Difference(
        before=f"{a.pipeline.name}@slot:{a.slot}",
        after=f"{b.pipeline.name}@slot:{b.slot}",
        engine=new.engine,
        epochs=new.epoch - old.epoch,
        milliseconds=new.timestamp_ms - old.timestamp_ms,
        records=new.processed_records - old.processed_records,
        watermark=watermark[0] if watermark else None,
        sources=sources,
        totals={name: total for name, changes in sources.items() if (total := _total(changes)) is not None},
        tables=_offsets(old.table_offsets, new.table_offsets),
        source_watermarks=_changes(old.source_watermarks, new.source_watermarks),
        sink_epochs=_changes(old.sink_epochs, new.sink_epochs),
        fingerprint=_changes(old.fingerprint, new.fingerprint),
        settings=_changes(old.metadata, new.metadata),
        state=_state(old, new) if old.engine == new.engine == SPARK else [],
        artifacts=_artifacts(old, new),
        bytes_same=sum(size for sha256, size in after.items() if sha256 in before),
        bytes_removed=sum(size for sha256, size in before.items() if sha256 not in after),
        bytes_added=sum(size for sha256, size in after.items() if sha256 not in before),
    )


def _offsets(old: Mapping[str, ConnectorOffset], new: Mapping[str, ConnectorOffset]) -> dict[str, list[Change]]:
    found: dict[str, list[Change]] = {}
    for name in sorted({*old, *new}):
        before = old[name].offsets if name in old else {}
        after = new[name].offsets if name in new else {}
        if changes := _changes(before, after):
            found[name] = changes
    return found


def _changes(old: Mapping[str, str | int | None], new: Mapping[str, str | int | None]) -> list[Change]:
    found: list[Change] = []
    for name in sorted({*old, *new}, key=_natural):
        before, after = old.get(name), new.get(name)
        if before != after:
            found.append(Change(name=name, before=_text(before), after=_text(after), advanced=_advanced(before, after)))
    return found


def _natural(name: str) -> list[tuple[int, str]]:
    """partition-2 before partition-10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]+)", name)]


def _text(value: str | int | None) -> str | None:
    return None if value is None else str(value)


def _advanced(before: str | int | None, after: str | int | None) -> int | None:
    if before is None or after is None or not (NUMBER.fullmatch(str(before)) and NUMBER.fullmatch(str(after))):
        return None
    return int(after) - int(before)


def _total(changes: list[Change]) -> int | None:
    """The sum of what partitions advanced, where all that moved are partitions: their names end in a number.

    None if one of them is no number in both. One that is new began at 0.
    """
    total = 0
    for change in changes:
        if not change.name[-1:].isdecimal():
            return None
        advanced = _advanced(change.before or "0", change.after)
        if advanced is None:
            return None
        total += advanced
    return total


def _state(old: Manifest, new: Manifest) -> list[StateChange]:
    before, after = _by_operator(old), _by_operator(new)
    found: list[StateChange] = []
    for operator in sorted({*before, *after}, key=lambda number: -1 if number is None else number):
        was, now = before.get(operator, {}), after.get(operator, {})
        added = [size for file, size in now.items() if file not in was]
        removed = [size for file, size in was.items() if file not in now]
        same = [size for file, size in now.items() if file in was]
        found.append(
            StateChange(
                operator=operator,
                added=len(added),
                bytes_added=sum(added),
                removed=len(removed),
                bytes_removed=sum(removed),
                same=len(same),
                bytes_same=sum(same),
            )
        )
    return found


def _by_operator(manifest: Manifest) -> dict[int | None, dict[tuple[str, str], int]]:
    """Files by name and content: what was overwritten counts as removed and added."""
    found: dict[int | None, dict[tuple[str, str], int]] = {}
    for name, artifact in manifest.files.items():
        parts = name.split("/")
        operator = int(parts[1]) if parts[0] == "state" and parts[1].isdecimal() else None
        found.setdefault(operator, {})[name, artifact.sha256] = artifact.size_bytes
    return found


def _contents(manifest: Manifest) -> dict[str, int]:
    return {artifact.sha256: artifact.size_bytes for _, artifact in manifest.artifacts()}


_Key = tuple[Literal["operator", "driver state", "file"], str, int | None]


def _artifacts(old: Manifest, new: Manifest) -> list[ArtifactChange]:
    before, after = _chains(old), _chains(new)
    found: list[ArtifactChange] = []
    for key in sorted({*before, *after}, key=lambda k: (k[0], k[1], -1 if k[2] is None else k[2])):
        was, now = before.get(key), after.get(key)
        if was == now:
            continue
        what, name, partition = key
        found.append(
            ArtifactChange(
                what=what,
                name=name,
                partition=partition,
                change="added" if was is None else "removed" if now is None else "changed",
                bytes_before=sum(size for _, size in was or ()),
                bytes_after=sum(size for _, size in now or ()),
            )
        )
    return found


def _chains(manifest: Manifest) -> dict[_Key, list[tuple[str, int]]]:
    chains: dict[_Key, list[tuple[str, int]]] = {}
    for name, partitions in manifest.operators.items():
        for partition, chain in partitions.items():
            chains["operator", name, partition] = [(a.sha256, a.size_bytes) for a in chain]
    for name, artifact in manifest.driver_states.items():
        chains["driver state", name, None] = [(artifact.sha256, artifact.size_bytes)]
    for name, artifact in manifest.files.items():
        chains["file", name, None] = [(artifact.sha256, artifact.size_bytes)]
    return chains
