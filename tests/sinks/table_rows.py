"""Rows for tables, staged as a pipeline stages them."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.epochs import Staged, StagedFile, Step, Target
from holdfast.sinks.contract import Sink
from holdfast.sinks.staged import StagedRows, encode_schema
from holdfast.store import Address
from holdfast.testing.sinks import SCHEMA, Row, stage, step, words

__all__ = [
    "KINDS",
    "PARTITIONED",
    "below",
    "each_in_a_file",
    "folders",
    "in_places",
    "kinds",
    "put",
    "put_rows",
    "staged_table",
]

KINDS = pa.schema(
    [
        ("small", pa.int8()),
        ("whole", pa.int32()),
        ("real", pa.float64()),
        ("yes", pa.bool_()),
        ("exact", pa.decimal128(20, 4)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("data", pa.binary()),
        ("window", pa.struct([("start", pa.timestamp("us", tz="UTC")), ("end", pa.timestamp("us", tz="UTC"))])),
        ("tags", pa.list_(pa.string())),
        ("counts", pa.map_(pa.string(), pa.int64())),
    ]
)


def kinds() -> list[dict[str, Any]]:
    """A row with a value of each kind, and one without any."""
    at = datetime.datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=datetime.UTC)
    row = {
        "small": -7,
        "whole": 7,
        "real": 0.5,
        "yes": True,
        "exact": decimal.Decimal("1234567890.1234"),
        "day": datetime.date(2026, 2, 3),
        "at": at,
        "data": b"\x00\xff",
        "window": {"start": at, "end": at},
        "tags": ["a", "b"],
        "counts": [("a", 1)],
    }
    return [row, dict.fromkeys(row)]


PARTITIONED = pa.schema([("id", pa.int64()), ("place", pa.string()), ("day", pa.date32()), ("hot", pa.bool_())])


def in_places(*places: str | None) -> list[dict[str, Any]]:
    """A row in each place, numbered."""
    day = datetime.date(2026, 1, 1)
    return [{"id": number, "place": place, "day": day, "hot": None} for number, place in enumerate(places)]


def put(sink: Sink, folder: Path, epoch: int, *ids: int, decided: int = 0, word: str = "w", **how: Any) -> Target:
    """Commit an epoch of words; gives the way back to here."""
    return put_rows(sink, step(epoch, decided, **how), stage(folder, words(*ids, word=word)))


def put_rows(sink: Sink, to: Step, rows: StagedRows) -> Target:
    return Target(to.after, to.decided, sink.commit(to, sink.prepare(to, rows), rows))


def below(root: Path, rows: StagedRows, name: str) -> StagedRows:
    """The same rows, staged in the folder of an attempt below a root."""
    place = root / name
    place.mkdir(parents=True)
    for file in rows.staged.files:
        (place / file.name).write_bytes(rows.place.store().get(file.name))
    return StagedRows(rows.staged, Address(str(place)))


def each_in_a_file(place: Path, rows: Sequence[Row], schema: pa.Schema = SCHEMA) -> StagedRows:
    """Rows staged so that each has a file of its own."""
    place.mkdir(parents=True)
    files = []
    for number, row in enumerate(rows):
        path = place / f"part-{number}.parquet"
        pq.write_table(pa.Table.from_pylist([dict(row)], schema=schema), path)
        files.append(StagedFile(path.name, path.stat().st_size, 1))
    return StagedRows(Staged(str(place), files, encode_schema(schema)), Address(str(place)))


def staged_table(place: Path, table: pa.Table) -> StagedRows:
    """Rows staged as Arrow has them: with values that Python does not have, too."""
    place.mkdir(parents=True)
    pq.write_table(table, place / "part.parquet")
    file = StagedFile("part.parquet", (place / "part.parquet").stat().st_size, table.num_rows)
    return StagedRows(Staged(str(place), [file], encode_schema(table.schema)), Address(str(place)))


def folders(root: Path) -> list[str]:
    return sorted(path.name for path in root.glob("hf-*"))
