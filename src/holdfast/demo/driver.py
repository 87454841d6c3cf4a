"""The demo's query, in a process of its own that can be killed: plain PySpark, which knows nothing of Holdfast.

Says on its standard output, a JSON object a line, when a batch begins and what came of it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["main"]

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def main(inputs: str, checkpoint: str, outputs: str) -> None:
    """Sum up orders by minute and article until the input ends; every batch leaves a file of the totals it changed."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as f

    spark = (
        SparkSession.builder.master("local[2]")
        .appName("holdfast-demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.streaming.checkpointFileManagerClass", file_manager())
        .config("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    say({"session": spark.version})

    orders = (
        spark.readStream.schema("id LONG, ts LONG, sku STRING, cents LONG").option("maxFilesPerTrigger", 1).json(inputs)
    )
    totals = (
        orders.withColumn("at", f.timestamp_seconds("ts"))
        .withWatermark("at", "2 minutes")
        .groupBy(f.window("at", "1 minute"), "sku")
        .agg(f.count("*").alias("orders"), f.sum("cents").alias("cents"))
        .select(f.col("window.start").cast("string").alias("minute"), "sku", "orders", "cents")
    )
    query = (
        totals.writeStream.outputMode("update")
        .foreachBatch(writer(Path(outputs)))
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    say({"end": True})
    spark.stop()


def file_manager() -> str:
    """Spark's own manager for local files that forks no process for each of them: some 40 ms a file less."""
    from pyspark import __version__ as version

    moved = tuple(int(part) for part in version.split(".")[:2]) >= (4, 1)
    package = "org.apache.spark.sql.execution.streaming" + (".checkpointing" if moved else "")
    return f"{package}.FileSystemBasedCheckpointFileManager"


def writer(folder: Path) -> Callable[[Any, int], None]:
    """Write a batch under its number, so that one that is run again takes the place of its first run."""
    folder.mkdir(parents=True, exist_ok=True)

    def write(batch: Any, number: int) -> None:
        say({"begin": number})
        rows = [row.asDict() for row in batch.collect()]
        path = folder / f"batch-{number:06d}.json"
        temporary = path.with_suffix(".tmp")
        temporary.write_text("".join(json.dumps(row) + "\n" for row in rows))
        temporary.rename(path)
        say({"batch": number, "totals": len(rows), "orders": sum(row["orders"] for row in rows)})

    return write


def say(what: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:4])
