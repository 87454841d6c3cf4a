"""Rows of an Iceberg table deleted as other engines do it: by a file that names them, with the data left as it is."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import Record

__all__ = ["delete_row"]

PATH, POSITION = 2147483546, 2147483545
"""The numbers of the two columns of such a file, for every table."""


class _DeletesWriter(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _Deletes(_FastAppendFiles):
    """A snapshot that adds one file of deletes."""

    file: DataFile

    def _manifests(self) -> list[ManifestFile]:
        metadata = self._transaction.table_metadata
        output = self.new_manifest_output()
        with _DeletesWriter(metadata.spec(), metadata.schema(), output, self._snapshot_id, self._compression) as writer:
            entry = ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED,
                snapshot_id=self._snapshot_id,
                sequence_number=None,
                file_sequence_number=None,
                data_file=self.file,
            )
            writer.add_entry(entry)
        return [writer.to_manifest_file(), *self._existing_manifests()]


def delete_row(
    catalog: Catalog, table: str, number: int, content: DataFileContent = DataFileContent.POSITION_DELETES
) -> None:
    """Delete the row with an id, merge-on-read; by equality it is the kind of file alone that is made."""
    loaded = catalog.load_table(table)
    found = [(task.file.file_path, _position(task.file.file_path, number)) for task in loaded.scan().plan_files()]
    [(path, position)] = [(path, position) for path, position in found if position is not None]
    place = Path(loaded.location().removeprefix("file://")) / f"deletes-{number}-{len(found)}.parquet"
    fields = [("file_path", pa.string(), PATH), ("pos", pa.int64(), POSITION)]
    schema = pa.schema([pa.field(n, kind, metadata={"PARQUET:field_id": str(i)}) for n, kind, i in fields])
    pq.write_table(pa.Table.from_pylist([{"file_path": path, "pos": position}], schema=schema), place)
    transaction = loaded.transaction()
    producer = transaction.update_snapshot().fast_append()
    producer.__class__ = _Deletes
    assert isinstance(producer, _Deletes)
    producer.file = DataFile.from_args(
        content=content,
        file_path=place.as_uri(),
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=place.stat().st_size,
        spec_id=loaded.metadata.default_spec_id,
        equality_ids=[1] if content is DataFileContent.EQUALITY_DELETES else None,
        column_sizes={},
        value_counts={},
        null_value_counts={},
        nan_value_counts={},
        lower_bounds={PATH: path.encode()},
        upper_bounds={PATH: path.encode()},
    )
    producer.commit()
    transaction.commit_transaction()


def _position(path: str, number: int) -> int | None:
    ids = pq.read_table(path.removeprefix("file://"))["id"].to_pylist()
    return ids.index(number) if number in ids else None
