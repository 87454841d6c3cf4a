"""The marker of a sink in a database: one row of a table beside the sink's own, moved in the sink's transactions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from holdfast.epochs import Holder, Link, Marker
from holdfast.errors import DamagedRecord

__all__ = ["MARKERS", "Database", "Standing", "create_markers", "read_marker", "write_marker"]

MARKERS = "holdfast_sinks"

_COLUMNS = {
    "pipeline_id": "VARCHAR(64)",
    "generation": "BIGINT",
    "token": "VARCHAR(64)",
    "epoch": "BIGINT",
    "offsets": "TEXT",
    "decided": "BIGINT",
    "kept_from": "BIGINT",
    "made_here": "BIGINT",
    "way": "TEXT",
    "way_from": "BIGINT",
}


class Database(Protocol):
    """A connection that runs statements; parameters stand as ?1, ?2 or as the database writes them."""

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> list[tuple[Any, ...]]: ...


class Standing(NamedTuple):
    """The marker, and what going back depends on.

    Replaced rows are kept from the epoch `kept_from` on; `made_here` says whether a sink made the table. All epochs
    after `way_from` were written in one `way`, a mode and its key; it is empty before the first.
    """

    marker: Marker
    kept_from: int
    made_here: bool
    way: str
    way_from: int


def create_markers(db: Database, table: str) -> None:
    """Make the table of markers; `table` is its name as it stands in a statement."""
    columns = ", ".join(f"{name} {kind}" for name, kind in _COLUMNS.items())
    db.execute(f"CREATE TABLE {table} (target VARCHAR(512) PRIMARY KEY, {columns})")


def read_marker(db: Database, table: str, entry: str, where: str) -> Standing | None:
    """What a sink knows of itself, by its entry; `where` names it in errors. Raises DamagedRecord."""
    found = db.execute(f"SELECT {', '.join(_COLUMNS)} FROM {table} WHERE target = ?1", (entry,))
    if not found:
        return None
    if None in found[0]:
        raise DamagedRecord(where, "the marker has an empty column")
    pipeline_id, generation, token, epoch, offsets, decided, kept_from, made_here, way, way_from = found[0]
    holder = Holder(str(pipeline_id), int(generation), str(token))
    marker = Marker(holder, Link(int(epoch), str(offsets)), int(decided))
    return Standing(marker, int(kept_from), bool(made_here), str(way), int(way_from))


def write_marker(db: Database, table: str, entry: str, standing: Standing, *, first: bool) -> None:
    """Write what a sink knows of itself, in the transaction of its rows; `first` for one that has no marker yet."""
    marker, kept_from, made_here, way, way_from = standing
    held, at = marker.holder, marker.at
    values = (held.pipeline_id, held.generation, held.token, at.epoch, at.offsets, marker.decided)
    if first:
        places = ", ".join(f"?{number + 1}" for number in range(len(_COLUMNS) + 1))
        statement = f"INSERT INTO {table} (target, {', '.join(_COLUMNS)}) VALUES ({places})"
    else:
        changed = ", ".join(f"{name} = ?{number + 2}" for number, name in enumerate(_COLUMNS))
        statement = f"UPDATE {table} SET {changed} WHERE target = ?1"
    db.execute(statement, (entry, *values, kept_from, int(made_here), way, way_from))
