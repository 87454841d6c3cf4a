"""Rows as Kafka records: which column is the key, the value, the headers and the partition of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from holdfast.sinks.json_text import json_text

__all__ = ["ANY_PARTITION", "JSON", "Record", "Shape"]

JSON = "json"
"""In place of a column: the whole row, as a JSON object."""
ANY_PARTITION = -1
"""What a producer takes for "wherever the key belongs"."""

PART_BYTES = 8 << 20
"""About how much is turned into records at a time."""
FRAME_BYTES, HEADER_BYTES = 128, 16
"""More than a record, and each of its headers, ever takes up beside what is in it."""

Headers: TypeAlias = list[tuple[str, str | bytes | None]]


class Record(NamedTuple):
    """As a producer takes it."""

    key: bytes | None
    value: bytes | None
    partition: int = ANY_PARTITION
    headers: Headers | None = None

    @property
    def size_bytes(self) -> int:
        """At least as much as a broker counts for it when it is alone in its batch."""
        headers = sum(len(name.encode()) + len(value or b"") + HEADER_BYTES for name, value in self.headers or [])
        return len(self.key or b"") + len(self.value or b"") + headers + FRAME_BYTES


@dataclass(frozen=True)
class Shape:
    """Which columns make a record; see `Kafka` for what they may hold."""

    key: str | None
    value: str
    headers: str | None
    partition: str | None

    def why_not(self, schema: pa.Schema) -> str | None:
        """Why rows of this schema make no records; None if they do."""
        if twice := {name for name in schema.names if schema.names.count(name) > 1}:
            return f"the rows have two columns {min(twice)}"
        places = {"value": None if self.value == JSON else self.value, "key": self.key}
        places |= {"headers": self.headers, "partition": self.partition}
        kinds = {}
        for place, column in places.items():
            if column is not None:
                if column not in schema.names:
                    return f"its {place} is the column {column}, and the rows have {', '.join(schema.names)}"
                kinds[place] = schema.field(column).type
        for place, fits, wanted in _FITTING:
            if place in kinds and not fits(kinds[place]):
                return f"its {place}, the column {places[place]}, is a {kinds[place]}, not {wanted}"
        return None

    def records(self, batch: pa.RecordBatch) -> Iterator[Record]:
        """A record for each row. Raises ValueError or TypeError for one that can't be written."""
        for part in _parts(batch):
            columns = (self._keys(part), self._values(part), self._partitions(part), self._headers(part))
            yield from map(Record._make, zip(*columns, strict=True))

    def _keys(self, part: pa.RecordBatch) -> list[bytes | None]:
        if self.key is None:
            return [None] * part.num_rows
        column = part.column(self.key)
        return _bytes(column if _is_bytes(column.type) else json_text(column))

    def _values(self, part: pa.RecordBatch) -> list[bytes | None]:
        if self.value != JSON:
            return _bytes(part.column(self.value))
        written = [name for name in part.schema.names if name not in (self.headers, self.partition)]
        rows = part.select(written).to_struct_array()
        # Spark lets strings pass that are no UTF-8; nobody could read the JSON of them.
        rows.validate(full=True)
        return _bytes(json_text(rows))

    def _partitions(self, part: pa.RecordBatch) -> list[int]:
        if self.partition is None:
            return [ANY_PARTITION] * part.num_rows
        return [ANY_PARTITION if number is None else number for number in part.column(self.partition).to_pylist()]

    def _headers(self, part: pa.RecordBatch) -> list[Headers | None]:
        if self.headers is None:
            return [None] * part.num_rows
        return [
            None if row is None else [_header(each) for each in row] for row in part.column(self.headers).to_pylist()
        ]


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in slices that stay small, however wide its rows are."""
    size = max(1, batch.num_rows * PART_BYTES // max(batch.nbytes, 1))
    for start in range(0, batch.num_rows, size):
        yield batch.slice(start, size)


def _bytes(column: pa.Array) -> list[Any]:
    return column.cast(pa.binary()).to_pylist()  # type: ignore[no-any-return]


def _header(each: Any) -> tuple[str, str | bytes | None]:
    name, value = each.values() if isinstance(each, dict) else each
    if name is None:
        raise ValueError("a header has no name")
    return name, value.encode() if isinstance(value, str) else value


def _is_bytes(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(test(kind) for test in tests)


def _is_headers(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        pair = [kind.key_type, kind.item_type]
    elif pa.types.is_list(kind) and pa.types.is_struct(kind.value_type) and kind.value_type.num_fields == 2:
        pair = [kind.value_type.field(place).type for place in range(2)]
    else:
        return False
    return bool(pa.types.is_string(pair[0])) and _is_bytes(pair[1])


_FITTING: list[tuple[str, Callable[[pa.DataType], bool], str]] = [
    ("value", _is_bytes, "a string or binary"),
    ("headers", _is_headers, "a map, or an array of structs, of a string and a binary"),
    ("partition", pa.types.is_integer, "an integer"),
]
