"""The rows of one epoch, run once and encoded once as Parquet, in a folder that only one attempt writes."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.epochs import Staged, StagedFile
from holdfast.errors import DamagedArtifact
from holdfast.store import Address

__all__ = ["Staged", "StagedFile", "StagedRows", "decode_schema", "encode_schema"]

BATCH_ROWS = 65_536


def encode_schema(schema: pa.Schema) -> str:
    return base64.b64encode(schema.remove_metadata().serialize().to_pybytes()).decode()


def decode_schema(encoded: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(encoded)))


@dataclass(frozen=True)
class StagedRows:
    """Staged files that can be read here, as often as there are sinks. `table` has them in memory if they are few."""

    staged: Staged
    place: Address
    table: pa.Table | None = None

    @cached_property
    def schema(self) -> pa.Schema:
        return decode_schema(self.staged.arrow_schema)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows, a bounded number at a time. Raises DamagedArtifact for a file that is not what was staged."""
        if self.table is not None:
            yield from self.table.to_batches(BATCH_ROWS)
            return
        for file in self.staged.files:
            yield from self._read(file)

    def reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.schema, self.batches())

    def _read(self, file: StagedFile) -> Iterator[pa.RecordBatch]:
        url, rows = f"{self.place.url.rstrip('/')}/{file.name}", 0
        try:
            data = pa.BufferReader(self.place.store().get(file.name))
            for batch in pq.ParquetFile(data).iter_batches(BATCH_ROWS):
                rows += batch.num_rows
                yield pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)
        except (pa.ArrowInvalid, OSError) as error:
            raise DamagedArtifact(url, f"it is no Parquet file that could be read: {error}") from error
        if rows != file.rows:
            raise DamagedArtifact(url, f"it has {rows} rows where {file.rows} were staged")
