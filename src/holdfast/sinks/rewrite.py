"""Rows of a table written anew: split by partition, or kept but for those whose key comes again.

Small ones are done here, with pyarrow, a bounded number of rows at a time; the rest is a Spark job, since rows are not
to pass through the driver.
"""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path as LocalPath
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from holdfast.errors import SinkUnfit
from holdfast.sinks.footers import Path, StoreFile
from holdfast.sinks.staged import BATCH_ROWS, StagedRows
from holdfast.sinks.table_files import DataFile
from holdfast.store import CHUNK, Address, Store

__all__ = ["InProcess", "Rewriter", "Source", "key_leaves", "partition_column"]

ROW = "row"


class Source(NamedTuple):
    """A file of the table, with the values of columns that it does not hold itself."""

    key: str
    size_bytes: int
    constants: Mapping[str, Any]


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
        self, sources: Sequence[Source], rows: StagedRows, key: Sequence[str], schema: pa.Schema, folder: str
    ) -> list[DataFile]:
        """Write the rows of files that have no key of a staged one into a folder.

        Those of a file have the same values in the columns that are constants of its sources.
        """

    @abstractmethod
    def split(self, rows: StagedRows, by: Sequence[str], folder: str) -> list[DataFile]:
        """Write staged rows into a folder, so that those of a file have the same values in these columns."""


def partition_column(number: int) -> str:
    """The name of a copy of a column that rows are split by; the column itself stays in the files."""
    return f"hf_p{number}"


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
    """The small ones, here. The keys of an epoch are held in memory, and of everything else a batch at a time."""

    def __init__(self, root: Address) -> None:
        self._store = root.store()

    def bad_keys(self, rows: StagedRows, key: Sequence[str]) -> str | None:
        keys = _keys(_staged(rows, key), key_leaves(rows.schema, key))
        empty = sum(column.null_count for column in keys.columns)
        if empty:
            return f"{empty} rows have no value in a column of the key {', '.join(key)}"
        counted = keys.group_by(keys.column_names).aggregate([([], "count_all")])
        twice = counted.filter(pc.greater(counted["count_all"], 1)).slice(0, 1).drop_columns("count_all").to_pylist()
        if twice:
            shown = ", ".join(repr(value) for value in twice[0].values())
            return f"two rows of an epoch have the key {shown}: which one counts can't be told"
        return None

    def touched(self, sources: Sequence[Source], rows: StagedRows, key: Sequence[str]) -> list[Source]:
        leaves = key_leaves(rows.schema, key)
        keys = _keys(_staged(rows, key), leaves)
        schema = pa.schema([rows.schema.field(name) for name in key])
        return [
            source
            for source in sources
            if any(_join(batch, keys, leaves, "left semi").num_rows for batch in _read(self._store, source, schema))
        ]

    def without(
        self, sources: Sequence[Source], rows: StagedRows, key: Sequence[str], schema: pa.Schema, folder: str
    ) -> list[DataFile]:
        leaves = key_leaves(rows.schema, key)
        keys = _keys(_staged(rows, key), leaves)
        written = []
        for number, source in enumerate(sources):
            kept = (_kept(batch, keys, leaves) for batch in _read(self._store, source, schema))
            with tempfile.TemporaryDirectory(prefix="holdfast-") as scratch:
                path = LocalPath(scratch) / "kept.parquet"
                count = _write(path, kept, schema)
                if count:
                    written.append(self._upload(path, f"{folder}/kept-{number:05}.parquet", count))
        return written

    def split(self, rows: StagedRows, by: Sequence[str], folder: str) -> list[DataFile]:
        copies = pa.schema([pa.field(partition_column(n), rows.schema.field(c).type) for n, c in enumerate(by)])
        whole = pa.schema([*rows.schema, *copies])

        def doubled() -> Iterator[pa.RecordBatch]:
            for batch in rows.batches():
                yield pa.RecordBatch.from_arrays([*batch.columns, *(batch.column(name) for name in by)], schema=whole)

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
            except OSError as error:
                raise SinkUnfit("rows", f"they can't be split by {', '.join(by)}: {error}") from error
            paths = sorted(LocalPath(scratch).rglob("*.parquet"))
            return [
                self._upload(path, f"{folder}/part-{number:05}.parquet", pq.read_metadata(path).num_rows)
                for number, path in enumerate(paths)
            ]

    def _upload(self, path: LocalPath, key: str, rows: int) -> DataFile:
        with path.open("rb") as file:
            size = self._store.write(key, iter(lambda: file.read(CHUNK), b""))
        return DataFile(key, size, rows)


def _staged(rows: StagedRows, columns: Sequence[str]) -> Iterator[pa.Table]:
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


def _join(batch: pa.Table, keys: pa.Table, leaves: Sequence[Path], how: str) -> pa.Table:
    """The numbers of the rows that have, or have not, one of the keys; the rows themselves may be of any type."""
    if not keys.num_rows:
        return pa.table({ROW: pa.array([] if how == "left semi" else range(batch.num_rows), pa.int64())})
    flat = _flat(batch, leaves)
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
