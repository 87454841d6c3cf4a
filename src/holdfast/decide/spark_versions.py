"""Which Spark can start from what another Spark wrote: what it would reject, or read wrongly, is known beforehand."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from holdfast.decide.column_order import in_scala_set
from holdfast.errors import BadValue

__all__ = ["Formats", "Version", "parse_version", "rejects", "snapshots_differ", "written_by"]

Version: TypeAlias = tuple[int, int]

PREFIX = "spark.sql.streaming."
SNAPSHOTS_OWN = (4, 0)
SCALA_2_13 = (4, 0)
STABLE = (4, 3)
"""Queries that begin with this version or a newer one keep the columns of dropDuplicates in the query's own order."""
STABLE_ORDER = "spark.sql.dropDuplicates.deterministicKeyOrder.enabled"


@dataclass(frozen=True)
class Formats:
    """What decides whether a Spark can read a checkpoint.

    `settings` are those that the offset log pins. `schemas_apart` says that an operator keeps its schemas beside its
    partitions, as transformWithState and the newer joins do; `join` is the state format of a join among those, and
    `lists` that a transformWithState keeps lists.
    `snapshots` is the version that RocksDB snapshots give themselves, 0 if there are none, and `deduplicated` has the
    columns of each dropDuplicates, in the order of its state.
    """

    state_checkpoint: int = 1
    join: int = 1
    offset_log: int = 1
    commit_log: int = 1
    schemas_apart: bool = False
    lists: bool = False
    snapshots: int = 0
    deduplicated: Sequence[tuple[str, ...]] = ()
    settings: Mapping[str, str] = field(default_factory=dict)

    def setting(self, name: str) -> str:
        return self.settings.get(PREFIX + name, "")


class _Need(NamedTuple):
    what: str
    holds: bool
    since: Version


def parse_version(text: str) -> Version:
    """`4.3.0`, `4.0`, `3.5.1.dev0`: what counts are the first two numbers."""
    found = re.match(r"(\d+)\.(\d+)", text)
    if found is None:
        raise BadValue(f"Spark version {text!r}", "write it as 4.3 or 4.3.0")
    return int(found[1]), int(found[2])


def written_by(settings: Mapping[str, str], checksums: bool | None = None) -> str:
    """The Spark that wrote an offset log, by the settings that it pins; as exactly as they tell.

    In state checkpoint format 2 `checksums` says whether its files have some beside them: only 4.0 has none.
    """
    for name, version in _PINNED_SINCE.items():
        if name in settings:
            if version != "4.0":
                return version
            return "4.0 or 4.1" if checksums is None else "4.1" if checksums else "4.0"
    return "3.5 or older"


_PINNED_SINCE = {
    STABLE_ORDER: "4.3",
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "4.2",
    "spark.sql.streaming.stateStore.encodingFormat": "4.0",
}


def rejects(formats: Formats, target: str, captured: str | None = None) -> str | None:
    """Why Spark `target` can't go on from a checkpoint, or None; `captured` is the version that wrote it, if known."""
    version = parse_version(target)
    unmet = [need for need in _needs(formats) if need.holds and version < need.since]
    if unmet:
        need = max(unmet, key=lambda need: need.since)
        return f"{need.what} needs Spark {_shown(need.since)} or newer"
    writer = parse_version(captured or written_by(formats.settings))
    return _snapshots_unread(formats, version, writer) or _columns_mixed(formats, version, writer)


def snapshots_differ(settings: Mapping[str, str]) -> bool:
    """Whether the Spark that pinned these may have written RocksDB snapshots of a version that others do not read."""
    return parse_version(written_by(settings)) == SNAPSHOTS_OWN


def _snapshots_unread(formats: Formats, version: Version, writer: Version) -> str | None:
    """Spark 4.0 gives RocksDB snapshots the version of the checkpoint format, all others 1; each reads only its own."""
    if formats.snapshots > 1 and version != SNAPSHOTS_OWN:
        return f"only Spark 4.0 reads RocksDB snapshots of version {formats.snapshots}, as it writes them in format 2"
    if formats.state_checkpoint > formats.snapshots > 0 and version == SNAPSHOTS_OWN < writer:
        return "Spark 4.0 does not read the RocksDB snapshots of newer ones in state checkpoint format 2"
    return None


def _columns_mixed(formats: Formats, version: Version, writer: Version) -> str | None:
    for columns in formats.deduplicated:
        order = _order(columns, version, formats.settings)
        # What the writer's own order does not explain is not understood, and proves nothing.
        if order != columns == _order(columns, writer, formats.settings):
            return (
                f"dropDuplicates has its {len(columns)} columns in the order {', '.join(columns)} in the state, there "
                f"it would take them for {', '.join(order)}, and let duplicates through"
            )
    return None


def _order(columns: tuple[str, ...], version: Version, settings: Mapping[str, str]) -> tuple[str, ...]:
    """The order in which a Spark keeps these columns of dropDuplicates."""
    if version >= STABLE and settings.get(STABLE_ORDER) == "true":
        return columns
    return in_scala_set(columns, nested_last=version >= SCALA_2_13)


def _needs(formats: Formats) -> tuple[_Need, ...]:
    merged = formats.setting("stateStore.rocksdb.mergeOperatorVersion")
    # Spark refuses a setting that it does not know the value of, join or no join.
    pinned = formats.setting("join.stateFormatVersion")
    return (
        _Need("state checkpoint format 2", formats.state_checkpoint >= 2, (4, 0)),
        _Need("an operator with schemas of its own (transformWithState, join)", formats.schemas_apart, (4, 0)),
        _Need("state in Avro", formats.setting("stateStore.encodingFormat") == "avro", (4, 0)),
        _Need("state with row checksums", formats.setting("stateStore.rowChecksum.enabled") == "true", (4, 2)),
        _Need("join state format 3", pinned == "3", (4, 1)),
        _Need("the setting of join state format 4", pinned == "4", (4, 2)),
        _Need("join state format 4", formats.join >= 4, (4, 3)),
        _Need("offset log version 2", formats.offset_log >= 2, (4, 2)),
        _Need("commit log version 3", formats.commit_log >= 3, (4, 2)),
        # An older Spark would start, and take the values of a list apart by another rule.
        _Need("a list state with RocksDB merge operator 2", formats.lists and merged == "2", (4, 2)),
    )


def _shown(version: Version) -> str:
    return ".".join(map(str, version))
