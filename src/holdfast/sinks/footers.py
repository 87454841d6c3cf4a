"""What Parquet files say of themselves at their end: how many rows, which columns, and the range of each."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.errors import DamagedArtifact, ObjectMissing, SinkUnfit
from holdfast.sinks.staged import StagedRows
from holdfast.store import ObjectInfo, Store

__all__ = [
    "Path",
    "Range",
    "StoreFile",
    "leaves",
    "null_counts",
    "ranges",
    "read_footers",
    "staged_footers",
    "type_name",
]

TAIL = 64 * 1024
"""How much of a file's end is read at first: most footers are shorter."""
AT_ONCE = 16

Path: TypeAlias = tuple[str, ...]
"""The names that lead to a column inside of structs."""


class Range(NamedTuple):
    """What a column of a file holds: from where to where, if that is known, and how many have no value."""

    low: Any
    high: Any
    nulls: int | None
    rows: int
    kind: pa.DataType

    @property
    def is_empty(self) -> bool:
        return self.nulls == self.rows

    @property
    def is_one_value(self) -> bool:
        """Whether all rows are known to have the same value here; none at all counts as one."""
        return self.is_empty or (self.nulls == 0 and self.low is not None and bool(self.low == self.high))


class StoreFile(io.RawIOBase):
    """An object of a store as a file to read from, a range at a time; its end may be at hand already."""

    def __init__(self, store: Store, key: str, size: int, tail: bytes = b"") -> None:
        self._store, self._key, self._size, self._tail = store, key, size, tail
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        length = self._size - self._at if size < 0 else min(size, self._size - self._at)
        if length <= 0:
            return b""
        known = self._size - len(self._tail)
        if self._at >= known:
            data = self._tail[self._at - known :][:length]
        else:
            [data] = self._store.get_ranges(self._key, [(self._at, length)])
        self._at += len(data)
        return data


def read_footers(store: Store, files: Sequence[ObjectInfo]) -> list[pq.FileMetaData]:
    """The footers of files, in their order. Raises ObjectMissing, and DamagedArtifact for what is no such file."""

    def read(file: ObjectInfo) -> pq.FileMetaData:
        start = max(0, file.size - TAIL)
        [tail] = store.get_ranges(file.key, [(start, file.size - start)])
        url = f"{store.url.rstrip('/')}/{file.key}"
        if len(tail) != file.size - start:
            raise DamagedArtifact(url, f"it is shorter than the {file.size} bytes that were staged")
        try:
            return pq.read_metadata(pa.PythonFile(StoreFile(store, file.key, file.size, tail), mode="r"))
        except (pa.ArrowInvalid, OSError) as error:
            raise DamagedArtifact(url, f"it is no Parquet file that could be read: {error}") from error

    if len(files) < 2:
        return [read(file) for file in files]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(read, files))


def staged_footers(sink: str, rows: StagedRows) -> dict[str, pq.FileMetaData]:
    """The footers of the staged files that hold rows, by name; each has the rows and the columns that it should."""
    wanted = {field.name: type_name(field.type) for field in rows.schema}
    files = [file for file in rows.staged.files if file.rows]
    store = rows.place.store()
    try:
        footers = read_footers(store, [ObjectInfo(file.name, file.size_bytes) for file in files])
    except ObjectMissing as error:
        raise DamagedArtifact(f"{store.url.rstrip('/')}/{error.key}", "it was staged and is gone") from error
    for file, footer in zip(files, footers, strict=True):
        url = f"{store.url.rstrip('/')}/{file.name}"
        if footer.num_rows != file.rows:
            raise DamagedArtifact(url, f"it has {footer.num_rows} rows where {file.rows} were staged")
        found = {field.name: type_name(field.type) for field in footer.schema.to_arrow_schema()}
        if found != wanted:
            other = [f"{name} is {found.get(name, 'missing')}" for name in wanted if found.get(name) != wanted[name]]
            other += [f"{name} is not of the query" for name in found if name not in wanted]
            raise SinkUnfit(sink, f"{file.name} was not staged as the query says: {'; '.join(other)}")
    return {file.name: footer for file, footer in zip(files, footers, strict=True)}


def ranges(footer: pq.FileMetaData) -> dict[Path, Range]:
    """What is known of each column outside of lists and maps."""
    found: dict[Path, Range] = {}
    for number, (path, repeated, kind) in enumerate(leaves(footer.schema.to_arrow_schema())):
        if repeated:
            continue
        low = high = None
        nulls: int | None = 0
        known = True
        for group in range(footer.num_row_groups):
            column = footer.row_group(group).column(number)
            statistics = column.statistics if column.is_stats_set else None
            if statistics is None or not statistics.has_null_count:
                nulls, known = None, False
                break
            nulls = None if nulls is None else nulls + statistics.null_count
            if statistics.has_min_max and (bounds := _bounds(statistics)) is not None:
                low = bounds[0] if low is None else min(low, bounds[0])
                high = bounds[1] if high is None else max(high, bounds[1])
            elif statistics.null_count < column.num_values:
                known = False
        found[path] = Range(low if known else None, high if known else None, nulls, footer.num_rows, kind)
    return found


def null_counts(footer: pq.FileMetaData) -> dict[Path, int | None]:
    """How often each column has no value, also inside of lists and maps; None where that is not known.

    One that is missing because a list or a struct around it is, or because a list is empty, counts too.
    """
    found: dict[Path, int | None] = {}
    for number, (path, _, _) in enumerate(leaves(footer.schema.to_arrow_schema())):
        columns = [footer.row_group(group).column(number) for group in range(footer.num_row_groups)]
        known = [column.statistics for column in columns if column.is_stats_set]
        told = len(known) == len(columns) and all(statistics.has_null_count for statistics in known)
        found[path] = sum(statistics.null_count for statistics in known) if told else None
    return found


def _bounds(statistics: pq.Statistics) -> tuple[Any, Any] | None:
    try:
        return statistics.min, statistics.max
    except (OverflowError, ValueError):
        # Spark has years before 1 and after 9999, Python has not.
        return None


def leaves(schema: pa.Schema) -> list[tuple[Path, bool, pa.DataType]]:
    """The columns of a Parquet file in their order, whether each lies in a list or a map, and its type."""

    def walk(path: Path, kind: pa.DataType, repeated: bool) -> Iterator[tuple[Path, bool, pa.DataType]]:
        if pa.types.is_struct(kind):
            for field in kind:
                yield from walk((*path, field.name), field.type, repeated)
        elif pa.types.is_map(kind):
            yield from walk((*path, "key"), kind.key_type, True)
            yield from walk((*path, "value"), kind.item_type, True)
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
            yield from walk((*path, "element"), kind.value_type, True)
        else:
            yield path, repeated, kind

    return [leaf for field in schema for leaf in walk((field.name,), field.type, False)]


def type_name(kind: pa.DataType) -> str:
    """A type by what it holds: the same whether Spark or Arrow wrote it down."""
    if pa.types.is_dictionary(kind):
        return type_name(kind.value_type)
    if pa.types.is_timestamp(kind):
        return f"timestamp[{kind.unit}{', UTC' if kind.tz else ''}]"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{field.name}: {type_name(field.type)}' for field in kind)}>"
    if pa.types.is_map(kind):
        return f"map<{type_name(kind.key_type)}, {type_name(kind.item_type)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"list<{type_name(kind.value_type)}>"
    return str(kind).removeprefix("large_").removesuffix("_view")
