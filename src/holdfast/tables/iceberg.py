"""An Iceberg table as a reference table: executors read the files that a snapshot names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError

from holdfast.errors import BadValue, VersionGone
from holdfast.sinks.iceberg_files import load_catalog_of
from holdfast.sinks.read_spark import read_files
from holdfast.tables.contract import Table

if TYPE_CHECKING:
    from pyiceberg.table import Table as IcebergTable
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Iceberg"]

EMPTY = "empty"


class Iceberg(Table):
    """An Iceberg table by its catalog, which is a name, properties, or one of pyiceberg's own."""

    def __init__(self, catalog: Catalog | Mapping[str, str] | str, table: str) -> None:
        self._catalog = load_catalog_of(catalog)
        self._table = table

    def version(self) -> str:
        snapshot = self._load().current_snapshot()
        return str(snapshot.snapshot_id) if snapshot else EMPTY

    def read(self, session: SparkSession, version: str) -> DataFrame:
        table = self._load()
        schema = table.schema()
        files: list[str] = []
        if version != EMPTY:
            if table.snapshot_by_id(int(version)) is None:
                raise VersionGone(self.name, version, "its snapshot has expired, or the table is another")
            scan = table.scan(snapshot_id=int(version))
            schema = scan.projection()
            tasks = list(scan.plan_files())
            if any(task.delete_files for task in tasks) or _renames(table):
                raise BadValue(
                    f"table {self.name!r}", "columns were renamed, or rows deleted beside their files: rewrite it first"
                )
            files = [task.file.file_path for task in tasks]
        return read_files(session, files, pa.schema(schema.as_arrow()))

    def _load(self) -> IcebergTable:
        try:
            return self._catalog.load_table(self._table)
        except NoSuchTableError as error:
            raise VersionGone(self.name, "any", str(error)) from error


def _renames(table: IcebergTable) -> bool:
    """Whether a column ever had another name: files name it as it was when they were written."""
    names: dict[int, str] = {}
    return any(
        names.setdefault(field.field_id, field.name) != field.name
        for schema in table.metadata.schemas
        for field in schema.fields
    )
