"""Rows of an epoch staged once: by Spark's executors, or in one file through Arrow where epochs are small.

They are run once and encoded once as Parquet, with a digest of all rows that is made in the same run: it counts and
sums hashes, so it does not depend on their order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from holdfast.epochs import Staged, StagedFile
from holdfast.pipeline.epoch import Staging
from holdfast.pipeline.home import Home
from holdfast.pipeline.schemas import arrow_schema
from holdfast.sinks.contract import Sink
from holdfast.sinks.footers import read_footers
from holdfast.sinks.staged import StagedRows, encode_schema
from holdfast.spark.places import SparkPlace
from holdfast.store import Address
from holdfast.store.address import LocalAddress, read_address
from holdfast.store.disk import sync_below

__all__ = ["FolderStaging", "StagingPlace", "choose_place", "sweep"]

SETTINGS = {
    # Older ways of writing times are refused by table formats.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
FEW_ROWS = 20_000
FEW_BYTES = 4 * 1024 * 1024
"""Up to so many rows, and bytes as Parquet, pass through this process: a job of its own costs more than they do."""
LOOK_BACK = 3
"""So many epochs must have been small for the next to be taken for one."""


@dataclass(frozen=True)
class StagingPlace:
    """Where rows are staged, as Holdfast opens it and as Spark is given it."""

    address: Address
    spelled: str


def choose_place(home: Home, sinks: Sequence[Sink]) -> tuple[StagingPlace, Sink | None]:
    """Below a sink that adopts files, if Spark surely gets there as it gets to its own directory; else at home."""
    for sink in sinks:
        root = sink.adopts_below
        if root is not None and root.is_everywhere != home.is_local:
            return StagingPlace(root, SparkPlace(root.url, root.options).spelled(home.url)), sink
    return StagingPlace(home.address("staging"), home.spelled("staging")), None


def sweep(place: Address, generation: int) -> None:
    """Take away what attempts of older generations left at a place that no table owns.

    Only once every epoch that they decided is in every sink, and while nobody else is at work there.
    """
    store = place.store()
    for folder in store.folders(""):
        parts = folder.split("-")
        if parts[0] == "hf" and len(parts) == 4 and parts[1].isdecimal() and int(parts[1]) < generation:
            store.delete([info.key for info in store.list(f"{folder}/")])


class FolderStaging(Staging):
    """A folder, on a disk or in a store, with one in it for each attempt. Not for several threads.

    `others` are places that rows of an earlier run may have been staged at; `sizes` those of the epochs before.
    """

    def __init__(
        self, place: StagingPlace, others: Sequence[Address] = (), sizes: Sequence[tuple[int, int]] = ()
    ) -> None:
        self._place = place
        self._others = (place.address, *others)
        self._sizes = deque(sizes, maxlen=LOOK_BACK)

    def stage(self, frame: DataFrame, folder: str) -> StagedRows:
        """Run a batch and write its rows. Raises what Spark raises; what was written by then is swept later."""
        place = Address(f"{self._place.address.url.rstrip('/')}/{folder}", self._place.address.options)
        with _settings(frame.sparkSession):
            rows = self._through_arrow(frame, folder, place) if self._is_small() else None
            rows = rows or self._by_executors(frame, folder, place)
        self._sizes.append((rows.staged.rows, rows.staged.size_bytes))
        return rows

    def open(self, staged: Staged) -> StagedRows | None:
        place = self._address(staged)
        there = {info.key: info.size for info in place.store().list("")}
        if any(there.get(file.name) != file.size_bytes for file in staged.files):
            return None
        return StagedRows(staged, place)

    def remove(self, staged: Staged) -> None:
        store = self._address(staged).store()
        store.delete([info.key for info in store.list("")])

    def _address(self, staged: Staged) -> Address:
        """Where rows were staged, with what opens it."""
        known = (other for other in self._others if staged.url.startswith(f"{other.url.rstrip('/')}/"))
        return Address(staged.url, next(known, self._place.address).options)

    # ---- one file through here ----

    def _is_small(self) -> bool:
        recent = [rows <= FEW_ROWS // 2 and size <= FEW_BYTES // 2 for rows, size in self._sizes]
        # Spark 3.5 gives no rows as Arrow.
        return len(recent) == LOOK_BACK and all(recent) and hasattr(DataFrame, "toArrow")

    def _through_arrow(self, frame: DataFrame, folder: str, place: Address) -> StagedRows | None:
        """The rows as one file; None if they are more than was thought, and the executors must run them after all.

        More than the limit are never fetched, so a burst of rows does not come here.
        """
        watched, observed = _watched(frame, folder)
        try:
            table = watched.limit(FEW_ROWS + 1).toArrow()
        except PySparkException:
            return None  # Too much for one answer. If it is something else, the executors will say so too.
        if table.num_rows > FEW_ROWS:
            return None
        schema = arrow_schema(frame.schema)
        table = table.cast(schema)
        files = []
        if table.num_rows:
            sink = pa.BufferOutputStream()
            pq.write_table(table, sink)
            data = sink.getvalue()
            name = f"part-00000-{folder}.parquet"
            place.store().write(name, [memoryview(data)])
            files = [StagedFile(name, data.size, table.num_rows)]
        return StagedRows(Staged(place.url, files, encode_schema(schema), _digest(observed)), place, table)

    # ---- by the executors ----

    def _by_executors(self, frame: DataFrame, folder: str, place: Address) -> StagedRows:
        watched, observed = _watched(frame, folder)
        watched.write.mode("error").parquet(f"{self._place.spelled.rstrip('/')}/{folder}")
        address = read_address(place.url, place.options)
        if isinstance(address, LocalAddress):
            sync_below(address.path)
        store = place.store()
        found = [info for info in store.list("") if info.key.endswith(".parquet")]
        footers = zip(found, read_footers(store, found), strict=True)
        files = [StagedFile(info.key, info.size, footer.num_rows) for info, footer in footers]
        return StagedRows(Staged(place.url, files, encode_schema(arrow_schema(frame.schema)), _digest(observed)), place)


@contextmanager
def _settings(session: SparkSession) -> Iterator[None]:
    """Files come out the same whatever the query's session says."""
    before = {name: session.conf.get(name, None) for name in SETTINGS}
    for name, value in SETTINGS.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, old)


def _watched(frame: DataFrame, folder: str) -> tuple[DataFrame, Observation]:
    """A batch whose rows are counted and summed as they pass."""
    observed = Observation(f"holdfast-{folder}")
    columns = [_comparable(F.col(_quoted(field.name)), field.dataType) for field in frame.schema]
    hashes = F.xxhash64(*columns) if columns else F.lit(0)
    watched = frame.observe(
        observed,
        F.count(F.lit(1)).alias("rows"),
        F.sum(hashes.cast("decimal(20,0)")).alias("sum"),
        F.bit_xor(hashes).alias("xor"),
    )
    return watched, observed


def _digest(observed: Observation) -> str:
    found: Mapping[str, Any] = observed.get
    return f"{found['rows']}:{found['sum'] or 0}:{found['xor'] or 0}"


def _quoted(name: str) -> str:
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
