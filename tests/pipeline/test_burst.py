"""A burst of rows after small epochs: they stay with the executors, and the driver does not grow."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import holdfast
from holdfast.pipeline.pipeline import Pipeline
from holdfast.sinks import Delta, Parquet
from holdfast.sinks.parquet import files
from holdfast.sinks.staged import StagedRows
from spark.workloads import configured

TINY, BURST = 100, 5_000_000
MIB = 1024 * 1024
SLACK = 128 * MIB
"""The burst has 250 MiB as Arrow holds it, and more in Python."""


def write(spark: SparkSession, inputs: Path, number: int, rows: int) -> None:
    """One file of input; the source takes them in the order of their times."""
    draft = inputs.parent / f"draft-{number}"
    words = spark.range(rows).selectExpr("id", f"concat('a word of the batch {number}: ', id) AS word")
    words.coalesce(1).write.parquet(str(draft))
    [part] = draft.glob("*.parquet")
    inputs.mkdir(exist_ok=True)
    part.rename(inputs / f"{number:05}.parquet")
    os.utime(inputs / f"{number:05}.parquet", (number, number))


def live_heap(spark: SparkSession) -> int:
    """What the JVM of the driver holds, and can't let go of. Its executors are in the same one here."""
    jvm = spark._jvm
    assert jvm is not None
    jvm.java.lang.System.gc()
    return int(jvm.java.lang.management.ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed())


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


@contextmanager
def watching(peaks: list[int]) -> Iterator[None]:
    """Put the most memory that this process has had into the last of the peaks."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.005):
            peaks[-1] = max(peaks[-1], resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_a_burst_after_small_epochs_does_not_come_to_the_driver(spark: SparkSession, tmp_path: Path) -> None:
    inputs = tmp_path / "inputs"
    for number in range(TINY):
        write(spark, inputs, number, 10)
    write(spark, inputs, TINY, BURST)
    came_here: list[bool] = []
    peaks = [0]
    heaps: dict[int, int] = {}

    def look(epoch: int, rows: StagedRows) -> None:
        came_here.append(rows.table is not None)
        if epoch >= TINY - 5:
            heaps[epoch] = live_heap(spark)
        peaks.append(0)

    reader = spark.readStream.schema("id LONG, word STRING").option("maxFilesPerTrigger", 1)
    pipeline = Pipeline(
        "words",
        sources={"words": reader.parquet(str(inputs))},
        query=lambda words: words,
        sinks={"delta": Delta(str(tmp_path / "delta")), "parquet": Parquet(str(tmp_path / "parquet"))},
        on_epoch=look,
    )
    with watching(peaks), configured(spark, {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}):
        repository = holdfast.open(str(tmp_path / "repository"), create=True)
        run = pipeline.start(repository, checkpoint_dir=tmp_path / "home", trigger={"availableNow": True})
        run.await_termination()
    assert came_here[3:TINY] == [True] * (TINY - 3), "small ones pass through here"
    assert came_here[TINY] is False, "the burst does not"
    # The last two: while the burst was staged, and while it was prepared and committed.
    small, burst = max(peaks[TINY // 2 : TINY]), max(peaks[TINY:])
    print(f"at most {small // MIB} MiB in small epochs, {burst // MIB} MiB in the burst of {BURST} rows")
    assert burst < small + SLACK
    heaps[TINY + 1] = live_heap(spark)
    before, after = max(heaps[epoch] for epoch in heaps if epoch < TINY), max(heaps[TINY], heaps[TINY + 1])
    print(f"the JVM holds {before // MIB} MiB before the burst, {after // MIB} MiB while it is staged and after it")
    assert after < before + SLACK
    assert DeltaTable(str(tmp_path / "delta")).count() == TINY * 10 + BURST
    assert len(files(str(tmp_path / "parquet"))) > 0
