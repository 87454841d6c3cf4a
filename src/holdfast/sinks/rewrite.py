"""Rows of a table written anew: split by partition, or kept but for those whose key comes again.

Small ones are done here, with pyarrow, a bounded number of rows at a time; the rest is a Spark job, since rows are not
to pass through the driver.
"""

from __future__ import annotations

import datetime
import re
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path as LocalPath
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from holdfast.errors import SinkUnfit
from holdfast.sinks.footers import Path, Range, StoreFile
from holdfast.sinks.staged import BATCH_ROWS, StagedRows
from holdfast.sinks.table_files import DataFile
from holdfast.store import CHUNK, Address, Store

__all__ = [
    "InProcess",
    "Part",
    "Rewriter",
    "Source",
    "key_leaves",
    "partition_column",
    "read_staged",
    "refuse_parts",
    "refuse_reserved",
]

ROW = "row"
RESERVED = re.compile(r"hf_([pk]\d+|file)")
"""Columns that stand beside those of the rows while they are written anew."""


class Part(NamedTuple):
    """What rows are partitioned by: a column, or the year, month, day or hour of it."""

    column: str
    unit: str = ""

    def holds(self, found: Range) -> bool:
        """Whether all rows of such a range are known to be in one partition."""
        if not self.unit or found.is_empty:
            return found.is_one_value
        return found.nulls == 0 and found.low is not None and self._cut(found.low) == self._cut(found.high)

    def _cut(self, value: datetime.date) -> tuple[int, ...]:
        parts = value.timetuple()[:4]
        return tuple(parts[: ("year", "month", "day", "hour").index(self.unit) + 1])


class Source(NamedTuple):
    """A file of the table, with the values of columns that it does not hold itself."""

    key: str
    size_bytes: int
    constants: Mapping[str, Any]
    deletes: Sequence[str] = ()
    """Files that take rows out of it, where a table has such."""
    is_split: bool = True
    """Whether its rows are of one partition, as the table is partitioned now."""

    @property
    def identity(self) -> str:
        """What tells it from a file of the same name of which other files are to be made."""
        return "\t".join([self.key, *sorted(self.deletes), *([] if self.is_split else [""])])


class Rewriter(ABC):
    """Reads and writes files below the root of one table."""

    @abstractmethod
    def bad_keys(self, rows: StagedRows, key: Sequence[str]) -> str | None:
        """Why rows can't be told apart by their key: one has none, or two have the same. None if they can."""

    @abstractmethod
    def touched(self, sources: Sequence[Source], rows: StagedRows, key: Sequence[str]) -> list[Source]:
        """Those files in which a row has the key of a staged one."""

    @abstractmethod
    def without(
        self,
        sources: Sequence[Source],
        rows: StagedRows,
        key: Sequence[str],
        schema: pa.Schema,
        parts: Sequence[Part],
        folder: str,
    ) -> list[DataFile]:
        """Write the rows of files that have no key of a staged one into a folder, each partition by itself."""

    @abstractmethod
    def split(self, rows: StagedRows, parts: Sequence[Part], folder: str) -> list[DataFile]:
        """Write staged rows into a folder, each partition by itself."""


def partition_column(number: int) -> str:
    """The name of a copy of a column that rows are split by; the column itself stays in the files."""
    return f"hf_p{number}"


def refuse_reserved(sink: str, schema: pa.Schema) -> None:
    """Raise SinkUnfit for a column whose name is needed to write rows anew."""
    if taken := [name for name in schema.names if RESERVED.fullmatch(name)]:
        raise SinkUnfit(sink, f"a column can't be called {taken[0]}: the name is used while rows are written anew")


def refuse_parts(sink: str, schema: pa.Schema, parts: Sequence[Part]) -> None:
    """Raise SinkUnfit for columns that the rows do not have, or that they can't be split by.

    A fraction is none to split by: one that is no number hides in the range of those beside it.
    """
    for part in parts:
        if part.column not in schema.names:
            raise SinkUnfit(sink, f"it is partitioned by {part.column}, which the rows do not have")
        kind = schema.field(part.column).type
        if pa.types.is_nested(kind) or pa.types.is_floating(kind) or (part.unit and not pa.types.is_temporal(kind)):
            by = f"{part.unit} {part.column}".strip()
            raise SinkUnfit(sink, f"it can't be partitioned by {by}, which is a {kind}")


def key_leaves(schema: pa.Schema, key: Sequence[str]) -> list[Path]:
    """The plain columns that a key is made of: those of a struct, such as a window, one by one."""

    def walk(path: Path, kind: pa.DataType) -> Iterator[Path]:
        if pa.types.is_struct(kind):
            for field in kind:
                yield from walk((*path, field.name), field.type)
        else:
            yield path

    return [leaf for name in key for leaf in walk((name,), schema.field(name).type)]


class InProcess(Rewriter):
    """The small ones, here. The keys of an epoch are held in memory, and of everything else a batch at a time.

    `read` is how a table reads its files, where names alone do not say what is in them.
    """

    def __init__(
        self, sink: str, root: Address, read: Callable[[Source, pa.Schema], Iterator[pa.Table]] | None = None
    ) -> None:
        self._sink = sink
        self._store = root.store()
        self._read = read or self._by_name

    def bad_keys(self, rows: StagedRows, key: Sequence[str]) -> str | None:
        keys = _keys(read_staged(rows, key), key_leaves(rows.schema, key))
        empty = sum(column.null_count for column in keys.columns)
        if empty:
            return f"{empty} rows have no value in a column of the key {', '.join(key)}"
        counted = keys.group_by(keys.column_names).aggregate([([], "count_all")])
        twice = counted.filter(pc.greater(counted["count_all"], 1)).slice(0, 1).drop_columns("count_all")
        if twice.num_rows:
            shown = ", ".join(_shown(column[0]) for column in twice.columns)
            return f"two rows of an epoch have the key {shown}: which one counts can't be told"
        return None

    def touched(self, sources: Sequence[Source], rows: StagedRows, key: Sequence[str]) -> list[Source]:
        leaves = key_leaves(rows.schema, key)
        keys = _keys(read_staged(rows, key), leaves)
        schema = pa.schema([rows.schema.field(name) for name in key])
        return [
            source
            for source in sources
            if any(_join(batch, keys, leaves, "left semi").num_rows for batch in self._read(source, schema))
        ]

    def without(
        self,
        sources: Sequence[Source],
        rows: StagedRows,
        key: Sequence[str],
        schema: pa.Schema,
        parts: Sequence[Part],
        folder: str,
    ) -> list[DataFile]:
        leaves = key_leaves(rows.schema, key)
        keys = _keys(read_staged(rows, key), leaves)
        written = []
        for number, source in enumerate(sources):
            kept = (_kept(batch, keys, leaves) for batch in self._read(source, schema))
            if parts and not source.is_split:
                batches = (batch for table in kept for batch in table.to_batches())
                written += self._write_split(batches, schema, parts, f"{folder}/kept-{number:05}")
                continue
            with tempfile.TemporaryDirectory(prefix="holdfast-") as scratch:
                path = LocalPath(scratch) / "kept.parquet"
                count = _write(path, kept, schema)
                if count:
                    written.append(self._upload(path, f"{folder}/kept-{number:05}.parquet", count))
        return written

    def split(self, rows: StagedRows, parts: Sequence[Part], folder: str) -> list[DataFile]:
        return self._write_split(rows.batches(), rows.schema, parts, f"{folder}/part")

    def _write_split(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, parts: Sequence[Part], prefix: str
    ) -> list[DataFile]:
        names = [partition_column(number) for number in range(len(parts))]
        kinds = [schema.field(part.column).type for part in parts]
        copies = pa.schema([pa.field(name, kind) for name, kind in zip(names, kinds, strict=True)])
        whole = pa.schema([*schema, *copies])

        def doubled() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                values = [_part(batch.column(part.column), part.unit) for part in parts]
                yield pa.RecordBatch.from_arrays([*batch.columns, *values], schema=whole)

        with tempfile.TemporaryDirectory(prefix="holdfast-") as scratch:
            try:
                ds.write_dataset(
                    pa.RecordBatchReader.from_batches(whole, doubled()),
                    scratch,
                    format="parquet",
                    file_options=ds.ParquetFileFormat().make_write_options(store_schema=False),
                    partitioning=ds.partitioning(copies, flavor="hive"),
                    max_partitions=100_000,
                    max_open_files=200,
                )
            except (OSError, pa.ArrowException) as error:
                by = ", ".join(part.column for part in parts)
                raise SinkUnfit(self._sink, f"rows can't be split by {by}: {error}") from error
            paths = sorted(LocalPath(scratch).rglob("*.parquet"))
            return [
                self._upload(path, f"{prefix}-{number:05}.parquet", pq.read_metadata(path).num_rows)
                for number, path in enumerate(paths)
            ]

    def _by_name(self, source: Source, schema: pa.Schema) -> Iterator[pa.Table]:
        return _read(self._store, source, schema)

    def _upload(self, path: LocalPath, key: str, rows: int) -> DataFile:
        with path.open("rb") as file:
            size = self._store.write(key, iter(lambda: file.read(CHUNK), b""))
        return DataFile(key, size, rows)


def read_staged(rows: StagedRows, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Some columns of the staged rows, and no others."""
    if rows.table is not None:
        yield rows.table.select(list(columns))
        return
    store = rows.place.store()
    schema = pa.schema([rows.schema.field(name) for name in columns])
    for file in rows.staged.files:
        if file.rows:
            yield from _read(store, Source(file.name, file.size_bytes, {}), schema)


def _read(store: Store, source: Source, schema: pa.Schema) -> Iterator[pa.Table]:
    """A file, a batch at a time, with the columns and types of a schema; what it lacks is constant, or none."""
    with pq.ParquetFile(pa.PythonFile(StoreFile(store, source.key, source.size_bytes), mode="r")) as file:
        # By the log, not by what is in the file: readers of the table go by it too.
        held = [name for name in file.schema_arrow.names if name in schema.names and name not in source.constants]
        for batch in file.iter_batches(BATCH_ROWS, columns=held):
            columns = [_column(batch, field, source.constants) for field in schema]
            yield pa.Table.from_arrays(columns, schema=schema)


def _column(batch: pa.RecordBatch, field: pa.Field, constants: Mapping[str, Any]) -> pa.Array:
    if field.name in constants:
        return pa.repeat(pa.scalar(constants[field.name], field.type), batch.num_rows)
    if field.name not in batch.schema.names:
        return pa.nulls(batch.num_rows, field.type)
    return batch.column(field.name).cast(field.type)


def _keys(tables: Iterable[pa.Table], leaves: Sequence[Path]) -> pa.Table:
    parts = [_flat(table, leaves) for table in tables]
    return pa.concat_tables(parts) if parts else pa.table({_name(number): [] for number in range(len(leaves))})


def _flat(table: pa.Table, leaves: Sequence[Path]) -> pa.Table:
    columns = [pc.struct_field(table[path[0]], list(path[1:])) if path[1:] else table[path[0]] for path in leaves]
    return pa.table({_name(number): column for number, column in enumerate(columns)})


def _shown(value: pa.Scalar) -> str:
    try:
        return repr(value.as_py())
    except OverflowError:
        # Spark has years before 1 and after 9999, Python has not.
        return str(value.cast(pa.string()))


def _part(column: pa.Array, unit: str) -> pa.Array:
    return pc.floor_temporal(column, unit=unit).cast(column.type) if unit else column


def _join(batch: pa.Table, keys: pa.Table, leaves: Sequence[Path], how: str) -> pa.Table:
    """The numbers of the rows that have, or have not, one of the keys; the rows themselves may be of any type."""
    if not keys.num_rows:
        return pa.table({ROW: pa.array([] if how == "left semi" else range(batch.num_rows), pa.int64())})
    flat = _flat(batch, leaves).cast(keys.schema)
    numbered = flat.append_column(ROW, pa.array(range(batch.num_rows), pa.int64()))
    return numbered.join(keys, keys=flat.column_names, join_type=how)


def _kept(batch: pa.Table, keys: pa.Table, leaves: Sequence[Path]) -> pa.Table:
    return batch.take(_join(batch, keys, leaves, "left anti")[ROW].combine_chunks().sort())


def _write(path: LocalPath, tables: Iterable[pa.Table], schema: pa.Schema) -> int:
    count = 0
    with pq.ParquetWriter(path, schema, store_schema=False) as writer:
        for table in tables:
            writer.write_table(table)
            count += table.num_rows
    return count


def _name(number: int) -> str:
    return f"k{number}"
