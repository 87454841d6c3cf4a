"""Compaction of an Iceberg table as another engine does it: pyiceberg can't, and refuses to sum it up."""

from __future__ import annotations

from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _OverwriteFiles

__all__ = ["compact"]


class _Replace(_OverwriteFiles):
    """Files in the place of others, with the same rows."""

    def _summary(self, snapshot_properties: dict[str, str] = {}) -> Summary:  # noqa: B006 - never changed
        done = super()._summary(snapshot_properties)
        return Summary(Operation.REPLACE, **done.additional_properties)


def compact(table: Table) -> None:
    """Write all rows of a table into one file, which takes the place of all that there are."""
    rows, old = table.scan().to_arrow(), [task.file for task in table.scan().plan_files()]
    with table.transaction() as change, _Replace(Operation.OVERWRITE, change, table.io) as files:
        for file in old:
            files.delete_data_file(file)
        for file in _dataframe_to_data_files(table.metadata, rows, table.io):
            files.append_data_file(file)
