"""Rows of an epoch staged by Spark's executors: run once, written once as Parquet, with a digest of all rows.

The digest counts and sums hashes, so it does not depend on the order of rows, and it is made in the same run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from holdfast.epochs import Staged, StagedFile
from holdfast.pipeline.epoch import Staging
from holdfast.pipeline.schemas import arrow_schema
from holdfast.sinks.staged import StagedRows, encode_schema
from holdfast.store import Address
from holdfast.store.address import LocalAddress, read_address
from holdfast.store.disk import sync_below

__all__ = ["FolderStaging"]

MICROSECONDS = "TIMESTAMP_MICROS"
"""Older readers write times as INT96, which table formats refuse."""


class FolderStaging(Staging):
    """A folder, on a disk or in a store, with one in it for each attempt. `spelled` is how Spark is given it."""

    def __init__(self, place: Address, spelled: str) -> None:
        self._place = place
        self._spelled = spelled.rstrip("/")

    def stage(self, frame: DataFrame, folder: str) -> StagedRows:
        """Run a batch and write its rows. Raises what Spark raises; what was written by then is swept later."""
        observed = Observation(f"holdfast-{folder}")
        hashes = (
            F.xxhash64(*(_comparable(F.col(_name(f.name)), f.dataType) for f in frame.schema))
            if frame.columns
            else F.lit(0)
        )
        watched = frame.observe(
            observed,
            F.count(F.lit(1)).alias("rows"),
            F.sum(hashes.cast("decimal(20,0)")).alias("sum"),
            F.bit_xor(hashes).alias("xor"),
        )
        session = frame.sparkSession
        before = session.conf.get("spark.sql.parquet.outputTimestampType", None)
        session.conf.set("spark.sql.parquet.outputTimestampType", MICROSECONDS)
        try:
            watched.write.mode("error").parquet(f"{self._spelled}/{folder}")
        finally:
            if before is None:
                session.conf.unset("spark.sql.parquet.outputTimestampType")
            else:
                session.conf.set("spark.sql.parquet.outputTimestampType", before)
        found: Mapping[str, Any] = observed.get
        place = Address(f"{self._place.url.rstrip('/')}/{folder}", self._place.options)
        files = self._files(place)
        digest = f"{found['rows']}:{found['sum'] or 0}:{found['xor'] or 0}"
        schema = encode_schema(arrow_schema(frame.schema))
        return StagedRows(Staged(place.url, files, schema, digest), place)

    def open(self, staged: Staged) -> StagedRows | None:
        place = Address(staged.url, self._place.options)
        there = {info.key: info.size for info in place.store().list("")}
        if any(there.get(file.name) != file.size_bytes for file in staged.files):
            return None
        return StagedRows(staged, place)

    def remove(self, staged: Staged) -> None:
        store = Address(staged.url, self._place.options).store()
        store.delete([info.key for info in store.list("")])

    def sweep(self, generation: int) -> None:
        """Take away what attempts of older generations left. Only once no decision of theirs needs it any more."""
        store = self._place.store()
        for folder in store.folders(""):
            parts = folder.split("-")
            if parts[0] == "hf" and len(parts) == 4 and parts[1].isdecimal() and int(parts[1]) < generation:
                store.delete([info.key for info in store.list(f"{folder}/")])

    def _files(self, place: Address) -> list[StagedFile]:
        """What Spark has written, with the rows of each file by its footer; on a disk it is synced first."""
        address = read_address(place.url, place.options)
        store = place.store()
        if isinstance(address, LocalAddress):
            sync_below(address.path)
        found = []
        for info in store.list(""):
            if not info.key.endswith(".parquet"):
                continue
            if isinstance(address, LocalAddress):
                rows = pq.read_metadata(address.path / info.key).num_rows
            else:
                rows = pq.read_metadata(pa.BufferReader(store.get(info.key))).num_rows
            found.append(StagedFile(info.key, info.size, rows))
        return found


def _name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _comparable(column: Column, kind: DataType) -> Column:
    """A column that can be hashed: maps have no order of their own, so they are hashed as sorted entries."""
    return F.to_json(F.struct(column)) if _has_map(kind) else column


def _has_map(kind: DataType) -> bool:
    if isinstance(kind, MapType):
        return True
    if isinstance(kind, ArrayType):
        return _has_map(kind.elementType)
    return isinstance(kind, StructType) and any(_has_map(field.dataType) for field in kind.fields)
