"""The running query of the Spark benchmarks: rows counted by key, kept by RocksDB with changelogs."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.spark.java import use_java

__all__ = ["CountingQuery", "cpu_seconds", "jvm_of", "spark_session"]

PARTITIONS = 2
LOAD_ROWS = 250_000
LOOK_SECONDS = 0.02
SNAPSHOT_EVERY = 10
"""Versions between two snapshots of a store, as Spark has it."""

_STREAMING = "spark.sql.streaming"
_ENGINE = "org.apache.spark.sql.execution.streaming"
_CONF = {
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": str(PARTITIONS),
    f"{_STREAMING}.stateStore.providerClass": f"{_ENGINE}.state.RocksDBStateStoreProvider",
    f"{_STREAMING}.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # A minute, as Spark has it, is too long to be seen here. Snapshots that come more often make captures dearer.
    f"{_STREAMING}.stateStore.maintenanceInterval": "5s",
    f"{_STREAMING}.checkpointFileManagerClass": f"{_ENGINE}.checkpointing.FileSystemBasedCheckpointFileManager",
}


@contextlib.contextmanager
def spark_session(folder: Path) -> Iterator[SparkSession]:
    """Spark on two cores. Once in a process: it does not come back reliably after it was stopped."""
    use_java()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{PARTITIONS}]").appName("holdfast-benchmarks")
    for key, value in {**_CONF, "spark.local.dir": str(folder / "local")}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark
    finally:
        spark.stop()


def jvm_of(spark: SparkSession) -> int:
    """The process that Spark runs in."""
    return int(spark._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]


def cpu_seconds(process: int) -> float:
    """What a process has used of the processors so far, in all its threads."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class CountingQuery:
    """A query that counts rows by a long key, drawn at random among `keys`; its state holds all of them.

    Looking at it costs next to nothing: which batch is committed is read from the directory.
    """

    def __init__(self, spark: SparkSession, directory: Path, keys: int) -> None:
        self.directory = directory
        self.keys = keys
        self._spark = spark
        self.query = self._start(LOAD_ROWS, None)
        self.await_batch(-(-keys // LOAD_ROWS))
        self.stop()

    def start(self, rows: int, every: str | None = None) -> None:
        """Run batches of so many rows, at once or every so often; returns when there is a snapshot of this run."""
        self.query = self._start(rows, every)
        begun = self.last_batch
        self.await_batch(begun + SNAPSHOT_EVERY)
        while not self._has_snapshots(begun + 1):
            time.sleep(0.1)

    def stop(self) -> None:
        self.query.stop()

    @property
    def last_batch(self) -> int:
        """The newest batch that is committed."""
        names = (path.name for path in (self.directory / "commits").iterdir())
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def await_batch(self, batch: int) -> None:
        """Wait until a batch is committed."""
        path = str(self.directory / f"commits/{batch}")
        while not os.path.exists(path):  # noqa: PTH110 - the wait is part of what is measured
            time.sleep(LOOK_SECONDS)

    def _start(self, rows: int, every: str | None) -> StreamingQuery:
        source = self._spark.readStream.format("rate-micro-batch").option("numPartitions", PARTITIONS)
        keys = F.expr(f"if(value < {self.keys}, value, pmod(xxhash64(value), {self.keys}L))").alias("key")
        counts = source.option("rowsPerBatch", rows).load().select(keys).groupBy("key").count()
        writer = counts.writeStream.format("noop").outputMode("update")
        if every is not None:
            writer = writer.trigger(processingTime=every)
        return writer.option("checkpointLocation", str(self.directory)).start()

    def _has_snapshots(self, version: int) -> bool:
        """Whether every store has a snapshot of this version or a later one."""
        for partition in range(PARTITIONS):
            zips = (self.directory / f"state/0/{partition}").glob("*.zip")
            if version > max((int(path.stem.partition("_")[0]) for path in zips), default=0):
                return False
        return True
