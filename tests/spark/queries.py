"""What the tests of restore have Spark do: run a workload, write through a file sink, read what was written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from spark.workloads import WORKLOADS, run

__all__ = ["file_sink", "kafka_counts", "read_sink", "workload"]


def workload(
    spark: SparkSession, name: str, store: str, inputs: str, checkpoint: str, upto: int
) -> dict[int, list[Any]]:
    """Run a workload and give the rows of each batch that it ran."""
    return run(spark, WORKLOADS[name], store, Path(inputs), checkpoint, upto=upto)


def file_sink(
    spark: SparkSession, source: str, checkpoint: str, output: str, per_batch: int = 1, keep: int = 100
) -> None:
    """Copy rows from files into a file sink, partitioned, a few input files in each batch, until no more are there.

    Its log is joined every four batches, and Spark's clean-up leaves those of the last `keep`.
    """
    spark.conf.set("spark.sql.streaming.fileSink.log.compactInterval", 4)
    spark.conf.set("spark.sql.streaming.fileSink.log.cleanupDelay", 0)
    spark.conf.set("spark.sql.streaming.minBatchesToRetain", keep)
    rows = spark.readStream.schema("n LONG").option("maxFilesPerTrigger", per_batch).json(source)
    writer = rows.selectExpr("n", "concat('part ', n % 2) AS part").writeStream.format("json").partitionBy("part")
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start(output)
    query.awaitTermination()


def read_sink(spark: SparkSession, output: str) -> list[int]:
    """The rows that a reader of the sink sees."""
    return sorted(row.n for row in spark.read.schema("n LONG, part STRING").json(output).collect())


def kafka_counts(spark: SparkSession, bootstrap: str, topic: str, checkpoint: str, fail_on: str) -> dict[str, int]:
    """Count the values of a topic, one record a batch, until all are read; one of them fails the query."""
    kafka = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    rows = spark.readStream.format("kafka").options(**kafka, maxOffsetsPerTrigger="1").load()
    counts = rows.selectExpr("CAST(value AS STRING) AS value").groupBy("value").count()
    seen: dict[str, int] = {}

    def collect(batch: DataFrame, _number: int) -> None:
        found = {row.value: row["count"] for row in batch.collect()}
        if fail_on in found:
            raise ValueError(f"{fail_on} came")
        seen.update(found)

    writer = counts.writeStream.outputMode("update").foreachBatch(collect)
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    return seen
