"""Rows of an epoch staged once: by Spark's executors, or in one file through Arrow where epochs are small.

They are run once and encoded once as Parquet. Where the rows of a second run could come to lie beside those of the
first, a digest of all rows is made in the same run: it counts and sums hashes, so it does not depend on their order.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from holdfast.epochs import Staged, StagedFile
from holdfast.errors import ObjectMissing, StagingFailed
from holdfast.pipeline.epoch import OtherRows, Staging
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
UNEVEN = 4
"""So many times its even share of those rows one partition may have."""
ROW_OF_PARTITION = "(monotonically_increasing_id() & 8589934591L)"
IN_SPARK = (PySparkException, Py4JJavaError)
"""What PySpark raises when something fails in Spark: not all that comes out of Java has a name there."""
FULL = tuple(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
"""What a system says that has no more room, in Java's messages as well."""
HASHERS = 4
LOOK_BACK = 3
"""All of so many epochs before, or of those that are known, must have been small for the next to be taken for one."""


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

    Only once every epoch that they decided is in every sink. Whoever of them still works there is fenced.
    """
    store = place.store()
    for folder in store.folders(""):
        parts = folder.split("-")
        if parts[0] == "hf" and len(parts) == 4 and parts[1].isdecimal() and int(parts[1]) < generation:
            store.delete([info.key for info in store.list(f"{folder}/")])


class FolderStaging(Staging):
    """A folder, on a disk or in a store, with one in it for each attempt. Not for several threads.

    `others` are places that rows of an earlier run may have been staged at; `sizes` those of the epochs before, none if
    the next one may be larger. What
    goes into one sink, and into no state, needs no digest: then a second run takes the place of the first, whatever it
    gives (`compares` is False).
    """

    def __init__(
        self,
        place: StagingPlace,
        others: Sequence[Address] = (),
        sizes: Sequence[tuple[int, int]] = (),
        *,
        compares: bool = True,
    ) -> None:
        self._place = place
        self._others = (place.address, *others)
        self._sizes = deque(sizes, maxlen=LOOK_BACK)
        self._compares = compares
        self._figures: tuple[StructType, Column] | None = None
        self._share = 0

    def stage(self, frame: DataFrame, folder: str, *, has_state: bool = True) -> StagedRows:
        """Run a batch and write its rows. Raises what Spark raises; what was written by then is swept later.

        Raises OtherRows where there is state, and a batch that turned out larger than it was thought gave other rows
        when it was run once more.
        """
        self._compares |= has_state
        place = Address(f"{self._place.address.url.rstrip('/')}/{folder}", self._place.address.options)
        with _settings(frame.sparkSession):
            is_small = self._is_small()
            first = self._through_arrow(frame, folder, place) if is_small else None
            rows = first if isinstance(first, StagedRows) else self._by_executors(frame, folder, place)
        gave_up = is_small and rows is not first
        if has_state and isinstance(first, Figures) and self._digest(first) != rows.staged.digest:
            self.remove(rows.staged)
            raise OtherRows(folder)
        # Few rows of which one partition has nearly all would be tried and given up again and again.
        self._sizes.append((max(rows.staged.rows, FEW_ROWS if gave_up else 0), rows.staged.size_bytes))
        return rows

    def open(self, staged: Staged) -> StagedRows | None:
        place = self._address(staged)
        there = {info.key: info.size for info in place.store().list("")}
        if any(there.get(file.name) != file.size_bytes for file in staged.files):
            return None
        known = [file for file in staged.files if file.sha256]
        if _digests(place, [file.name for file in known]) != [file.sha256 for file in known]:
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
        return bool(recent) and all(recent) and hasattr(DataFrame, "toArrow")

    def _through_arrow(self, frame: DataFrame, folder: str, place: Address) -> StagedRows | Figures | None:
        """The rows as one file; only their figures if they are more than was thought, and the executors must run them
        after all, or None if not even these are known.

        More than a share of each partition is never fetched, so a burst of rows does not come here. A `limit` would do
        that too, but for a shuffle, which takes longer than all the rest.
        """
        self._share = self._share or _share(frame.sparkSession)
        watched, observed = self._watched(frame, folder)
        try:
            table = watched.where(f"{ROW_OF_PARTITION} < {self._share}").toArrow()
        except IN_SPARK:
            return None  # Too much for one answer. If it is something else, the executors will say so too.
        figures = _figures(observed)
        if table.num_rows > FEW_ROWS or table.num_rows < figures.rows:
            return figures
        schema = arrow_schema(frame.schema)
        table = table.cast(schema)
        files = []
        if table.num_rows:
            sink = pa.BufferOutputStream()
            pq.write_table(table, sink)
            data = sink.getvalue()
            name = f"part-00000-{folder}.parquet"
            place.store().write(name, [memoryview(data)])
            files = [StagedFile(name, data.size, table.num_rows, hashlib.sha256(data).hexdigest())]
        return StagedRows(Staged(place.url, files, encode_schema(schema), self._digest(figures)), place, table)

    # ---- by the executors ----

    def _by_executors(self, frame: DataFrame, folder: str, place: Address) -> StagedRows:
        observed = None
        if self._compares:
            frame, observed = self._watched(frame, folder)
        with _room_at(place.url):
            frame.write.mode("error").parquet(f"{self._place.spelled.rstrip('/')}/{folder}")
            address = read_address(place.url, place.options)
            if isinstance(address, LocalAddress):
                sync_below(address.path)
        store, is_local = place.store(), isinstance(address, LocalAddress)
        found = [info for info in store.list("") if info.key.endswith(".parquet")]
        digests = _digests(place, [info.key for info in found]) if is_local else [""] * len(found)
        footers = zip(found, read_footers(store, found), digests, strict=True)
        files = [StagedFile(info.key, info.size, footer.num_rows, digest) for info, footer, digest in footers]
        digest = self._digest(_figures(observed)) if observed else ""
        return StagedRows(Staged(place.url, files, encode_schema(arrow_schema(frame.schema)), digest), place)

    # ---- rows as they pass ----

    def _watched(self, frame: DataFrame, folder: str) -> tuple[DataFrame, Observation]:
        """A batch whose rows are counted and summed as they pass."""
        schema = frame.schema
        if self._figures is None or self._figures[0] != schema:
            self._figures = schema, _expression(schema)
        observed = Observation(f"holdfast-{folder}")
        return frame.observe(observed, self._figures[1]), observed

    def _digest(self, figures: Figures) -> str:
        return f"{figures.rows}:{figures.sum or 0}:{figures.xor or 0}" if self._compares else ""


def _digests(place: Address, names: Sequence[str]) -> list[str]:
    """The SHA-256 of each file, several at once; of one that vanishes meanwhile, nothing."""
    address, store = read_address(place.url, place.options), place.store()

    def digest(name: str) -> str:
        try:
            if isinstance(address, LocalAddress):
                with (address.path / name).open("rb") as file:
                    return hashlib.file_digest(file, "sha256").hexdigest()
            return hashlib.sha256(store.get(name)).hexdigest()
        except (FileNotFoundError, ObjectMissing):
            return ""

    with ThreadPoolExecutor(max(1, min(HASHERS, len(names))), thread_name_prefix="holdfast-digest") as pool:
        return list(pool.map(digest, names))


@contextmanager
def _room_at(url: str) -> Iterator[None]:
    """What fails for a full disk is told as that. The rest is Spark's own, or the query's: they say it best."""
    try:
        yield
    except (*IN_SPARK, OSError) as error:
        full = next((words for words in FULL if words in str(error)), None)
        if full is None:
            raise
        raise StagingFailed(url, full) from error


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


class Figures(NamedTuple):
    """What was observed of rows as they passed: how many, and of their hashes the sum and the exclusive or."""

    rows: int
    sum: int | None
    xor: int | None


def _expression(schema: StructType) -> Column:
    """Made once for all batches, and of text: each call into Java takes its time."""
    columns = ", ".join(_comparable(_quoted(field.name), field.dataType) for field in schema)
    hashes = f"xxhash64({columns})" if columns else "0L"
    # Half of each hash: the sum of whole ones needs decimals, at twice the cost of all this.
    figures = ("count(1)", f"try_sum({hashes} & 4294967295L)", f"bit_xor({hashes})")
    return F.expr(f"struct({', '.join(figures)})").alias("figures")


def _figures(observed: Observation) -> Figures:
    found: Mapping[str, Any] = observed.get
    return Figures(*found["figures"])


def _share(session: SparkSession) -> int:
    """How many rows of one partition pass through here at the most."""
    partitions = max(
        int(session.conf.get("spark.sql.shuffle.partitions") or 1), session.sparkContext.defaultParallelism
    )
    return max(1, UNEVEN * FEW_ROWS // partitions)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _comparable(column: str, kind: DataType) -> str:
    """A column that can be hashed: maps can't, and are taken as text."""
    return f"to_json(struct({column}))" if _has_map(kind) else column


def _has_map(kind: DataType) -> bool:
    if isinstance(kind, MapType):
        return True
    if isinstance(kind, ArrayType):
        return _has_map(kind.elementType)
    return isinstance(kind, StructType) and any(_has_map(field.dataType) for field in kind.fields)
