"""A query whose state after each batch is known beforehand, to attach to; and what a checkpoint of it counts to."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from holdfast.checkpoint import Checkpoint
from holdfast.spark.lay import lay_down
from spark.workloads import STORES, configured

__all__ = ["KEYS", "ROWS", "assert_counts", "committed", "counting", "until"]

KEYS, ROWS = 10, 100
SECONDS = 120


def counting(
    spark: SparkSession,
    place: Path | str,
    each: Callable[[DataFrame, int], None] | None = None,
    *,
    store: str = "changelog",
    conf: Mapping[str, str] | None = None,
    **trigger: object,
) -> StreamingQuery:
    """Count rows by key, as many of each in every batch, at full speed; `each` is its foreachBatch."""
    with configured(spark, {**STORES[store], **(conf or {})}):
        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load()
        counts = rows.groupBy((rows.value % KEYS).alias("key")).count()
        writer = counts.writeStream.outputMode("update").option("checkpointLocation", str(place))
        writer = writer.format("noop") if each is None else writer.foreachBatch(each)
        return (writer.trigger(**trigger) if trigger else writer).start()  # type: ignore[arg-type]


def assert_counts(spark: SparkSession, checkpoint: Checkpoint, folder: Path) -> None:
    """Restored, the next batch counts on from where the checkpoint stood."""
    place = folder / f"counts-{checkpoint.slot}-{time.monotonic_ns()}"
    lay_down(checkpoint.pipeline.records, checkpoint.manifest, str(place))
    seen: dict[int, dict[int, int]] = {}

    def collect(batch: DataFrame, number: int) -> None:
        seen[number] = {row.key: row["count"] for row in batch.collect()}

    counting(spark, place, collect, availableNow=True).awaitTermination()
    after = checkpoint.epoch + 1
    assert seen == {after: dict.fromkeys(range(KEYS), ROWS // KEYS * (after + 1))}
    # The maintenance thread may still write there.
    shutil.rmtree(place, ignore_errors=True)


def committed(place: Path) -> int:
    """The last batch that Spark has committed; -1 if none is."""
    return max((int(path.name) for path in (place / "commits").glob("[0-9]*")), default=-1)


def until(condition: Callable[[], object], what: str = "") -> None:
    """Wait for something that must come."""
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, f"it never came: {what}"
        time.sleep(0.01)
