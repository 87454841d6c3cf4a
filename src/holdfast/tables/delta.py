"""A Delta table as a reference table: executors read the files that a version names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from holdfast.errors import VersionGone
from holdfast.sinks.delta_files import active_files, refuse_unread
from holdfast.sinks.delta_log import DeltaLog
from holdfast.sinks.read_spark import read_sources
from holdfast.sinks.rewrite import Source
from holdfast.store.between import tidy
from holdfast.tables.contract import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Delta"]


class Delta(Table):
    """A Delta table on disk or in an object store. No JVM connector is needed."""

    def __init__(self, url: str, *, options: Mapping[str, str] | None = None) -> None:
        self._root = tidy(url, options)

    def version(self) -> str:
        log = DeltaLog(self._root)
        try:
            return str(DeltaTable(log.url, storage_options=log.options).version())
        except DeltaError as error:
            raise VersionGone(self.name, "any", str(error)) from error

    def read(self, session: SparkSession, version: str) -> DataFrame:
        table = DeltaLog(self._root).at(int(version))
        if table is None:
            raise VersionGone(self.name, version, "its log was cleaned up, or the table is another")
        files = active_files(table)
        refuse_unread(self.name, files)
        there = {info.key for info in self._root.store().list("")} if files else set()
        if gone := sorted(file.key for file in files if file.key not in there):
            raise VersionGone(self.name, version, f"{len(gone)} files of it were vacuumed, such as {gone[0]}")
        schema = pa.schema(table.schema().to_arrow())
        return read_sources(
            session, self._root, [Source(file.key, file.size_bytes, file.partition) for file in files], schema
        )
