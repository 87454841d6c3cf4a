"""Rows of a table written anew by Spark's executors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa

from holdfast.errors import SinkUnavailable
from holdfast.sinks.footers import Path, read_footers
from holdfast.sinks.read_spark import FILE, for_spark, quoted, read_files, read_sources
from holdfast.sinks.rewrite import Part, Rewriter, Source, key_leaves, partition_column
from holdfast.sinks.staged import StagedRows
from holdfast.sinks.table_files import DataFile
from holdfast.store import Address
from holdfast.store.address import LocalAddress, read_address
from holdfast.store.between import plain_url
from holdfast.store.disk import sync_below

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["BySpark"]

SETTINGS = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "true",
}
"""Of a session of our own: files come out the same whatever the query's session says."""


class BySpark(Rewriter):
    """The large ones, as Spark jobs. Executors need a way to the store, as they have for the query itself."""

    def __init__(self, sink: str, root: Address, session: SparkSession) -> None:
        self._sink = sink
        self._root = root
        self._spark = session.newSession()
        for name, value in SETTINGS.items():
            self._spark.conf.set(name, value)

    def bad_keys(self, rows: StagedRows, key: Sequence[str]) -> str | None:
        from pyspark.sql import functions as f

        leaves = key_leaves(rows.schema, key)
        names = [_name(number) for number in range(len(leaves))]
        with self._jobs("look for keys"):
            keys = self._keys(rows, leaves)
            nothing = reduce(lambda one, other: one | other, (f.col(name).isNull() for name in names))
            empty = keys.filter(nothing).count()
            if empty:
                return f"{empty} rows have no value in a column of the key {', '.join(key)}"
            twice = keys.groupBy(*names).count().filter("count > 1").limit(1)
            # As text: Python has no years before 1 and after 9999.
            found = twice.select(*(f.col(name).cast("string") for name in names)).collect()
        if found:
            shown = ", ".join(repr(value) for value in found[0])
            return f"two rows of an epoch have the key {shown}: which one counts can't be told"
        return None

    def touched(self, sources: Sequence[Source], rows: StagedRows, key: Sequence[str]) -> list[Source]:
        leaves = key_leaves(rows.schema, key)
        schema = pa.schema([rows.schema.field(name) for name in key])
        with self._jobs("look for keys"):
            found = self._joined(
                read_sources(self._spark, self._root, sources, schema, name_files=True), rows, leaves, "left_semi"
            )
            names = [unquote(row[0]) for row in found.select(FILE).distinct().collect()]
        return [source for source in sources if any(name.endswith(f"/{source.key}") for name in names)]

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
        with self._jobs("write rows anew"):
            kept = self._joined(read_sources(self._spark, self._root, sources, schema), rows, leaves, "left_anti")
            return self._write(kept.select(*map(quoted, schema.names)), parts, folder)

    def split(self, rows: StagedRows, parts: Sequence[Part], folder: str) -> list[DataFile]:
        with self._jobs("split rows"):
            return self._write(self._staged(rows), parts, folder)

    def _staged(self, rows: StagedRows) -> DataFrame:
        files = [plain_url(rows.place, file.name) for file in rows.staged.files if file.rows]
        return read_files(self._spark, files, rows.schema)

    def _keys(self, rows: StagedRows, leaves: Sequence[Path]) -> DataFrame:
        from pyspark.sql import functions as f

        columns = [f.col(quoted(*path)).alias(_name(number)) for number, path in enumerate(leaves)]
        return self._staged(rows).select(*columns)

    def _joined(self, table: DataFrame, rows: StagedRows, leaves: Sequence[Path], how: str) -> DataFrame:
        from pyspark.sql import functions as f

        for number, path in enumerate(leaves):
            table = table.withColumn(_name(number), f.col(quoted(*path)))
        return table.join(self._keys(rows, leaves), [_name(number) for number in range(len(leaves))], how)

    def _write(self, rows: DataFrame, parts: Sequence[Part], folder: str) -> list[DataFile]:
        from pyspark.sql import functions as f

        copies = [partition_column(number) for number in range(len(parts))]
        for name, part in zip(copies, parts, strict=True):
            column = f.col(quoted(part.column))
            value = f.date_trunc(part.unit, column) if part.unit else column
            if dict(rows.dtypes)[part.column] in ("string", "binary"):
                # Spark takes an empty text for none here, and both would share a file; and names have an end.
                value = f.sha2(column, 256)
            rows = rows.withColumn(name, value)
        if copies:
            rows = rows.hint("rebalance", *copies)
        writer = rows.write.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        writer.partitionBy(*copies).parquet(for_spark(plain_url(self._root, folder)))
        self._sync(folder)
        store = self._root.store()
        files = [info for info in store.list(f"{folder}/") if info.key.endswith(".parquet")]
        footers = read_footers(store, files)
        found = [DataFile(info.key, info.size, footer.num_rows) for info, footer in zip(files, footers, strict=True)]
        return [file for file in found if file.rows]

    def _sync(self, folder: str) -> None:
        """Have on disk what the executors wrote: Spark syncs nothing, and the decision will name these files."""
        root = read_address(self._root.url, self._root.options)
        if isinstance(root, LocalAddress):
            sync_below(root.path / folder)
            sync_below(root.path, deep=False)

    @contextmanager
    def _jobs(self, action: str) -> Iterator[None]:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException

        try:
            yield
        except (Py4JError, PySparkException) as error:
            why = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise SinkUnavailable(self._sink, action, f"Spark: {why}") from error


def _name(number: int) -> str:
    return f"hf_k{number}"
