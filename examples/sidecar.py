"""A plain PySpark query that loses its checkpoint directory, and goes on from what a sidecar took of it.

    make setup                                # once; or: pip install '.[spark,java]'
    .venv/bin/python examples/sidecar.py

The query sums up orders and knows nothing of Holdfast. Beside it runs `holdfast watch`, a process of its own that reads
the files of the checkpoint directory and nothing else. Then the directory is deleted; `holdfast restore` lays a
savepoint down as a new one, and the same query goes on in it. Ends with 1 if a single order is lost or counted twice.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

import holdfast
from holdfast.spark.java import use_java

PIPELINE = "orders"
SKUS = 25
ROWS = 200
SECONDS = 120
"""How long a sidecar is waited for."""


def sum_up(spark: SparkSession, work: Path, checkpoint: Path) -> StreamingQuery:
    """The query, as anyone would write it."""
    orders = (
        spark.readStream.schema("sku STRING, cents LONG").option("maxFilesPerTrigger", 1).json(str(work / "orders"))
    )
    totals = orders.groupBy("sku").agg(f.sum("cents").alias("cents"))
    writer = totals.writeStream.outputMode("update").foreachBatch(into(work / "totals"))
    return writer.option("checkpointLocation", str(checkpoint)).start()


def into(folder: Path) -> Callable[[DataFrame, int], None]:
    """Write a batch under its number: one that is run again takes the place of its first run."""
    folder.mkdir(exist_ok=True)

    def write(batch: DataFrame, number: int) -> None:
        rows = {row.sku: row.cents for row in batch.collect()}
        (folder / f"{number:05d}.json").write_text(json.dumps(rows))

    return write


def lay_orders(work: Path, first: int, last: int) -> None:
    """The input: the file of a number is always the same."""
    (work / "orders").mkdir(exist_ok=True)
    for number in range(first, last):
        hidden = work / "orders" / f".{number:05d}.json"
        hidden.write_text("".join(json.dumps(order) + "\n" for order in orders_of(number)))
        hidden.rename(work / "orders" / hidden.name[1:])


def orders_of(number: int) -> list[dict[str, object]]:
    return [{"sku": f"sku-{row * 7 % SKUS}", "cents": number * ROWS + row} for row in range(ROWS)]


def totals_of(work: Path) -> dict[str, int]:
    """What the query has put out: the last word on every article."""
    totals: dict[str, int] = {}
    for path in sorted((work / "totals").iterdir()):
        totals.update(json.loads(path.read_text()))
    return totals


def expected(files: int) -> Counter[str]:
    totals: Counter[str] = Counter()
    for number in range(files):
        for order in orders_of(number):
            totals[str(order["sku"])] += int(str(order["cents"]))
    return totals


def call(*words: str) -> None:
    """A command, as it would be typed."""
    print("$ holdfast", *words)
    subprocess.run([sys.executable, "-m", "holdfast", *words], check=True)


def watched(repository: Path, epoch: int) -> None:
    """Wait until the sidecar has taken this batch or a later one."""
    pipeline, end = holdfast.open(str(repository)).pipeline(PIPELINE), time.monotonic() + SECONDS
    while time.monotonic() < end:
        newest = pipeline.latest()
        if newest is not None and newest.epoch >= epoch:
            return
        time.sleep(0.1)
    sys.exit(f"the sidecar has not taken batch {epoch} within {SECONDS} s")


def run(spark: SparkSession, work: Path) -> int:
    repository, checkpoint, restored = work / "repository", work / "checkpoint", work / "restored"
    repo = ("--repo", str(repository))
    call("init", *repo)
    lay_orders(work, 0, 8)
    query = sum_up(spark, work, checkpoint)
    watch = ["watch", str(checkpoint), "-p", PIPELINE, "--every", "1s", *repo]
    print("$ holdfast", *watch, "&")
    sidecar = subprocess.Popen([sys.executable, "-m", "holdfast", *watch])
    try:
        watched(repository, 5)
        call("savepoint", f"{PIPELINE}@now", "before-the-loss", *repo)
    finally:
        sidecar.terminate()
        sidecar.wait()
    query.stop()
    shutil.rmtree(checkpoint)
    print(f"$ rm -r {checkpoint}")

    call("restore", f"{PIPELINE}@before-the-loss", str(restored), *repo)
    lay_orders(work, 8, 12)
    query = sum_up(spark, work, restored)
    query.processAllAvailable()
    query.stop()

    good = totals_of(work) == expected(12)
    print("every order is counted once" if good else "BAD: the totals are not those of the orders")
    return 0 if good else 1


def main() -> int:
    parser = argparse.ArgumentParser(description="A plain query, its sidecar, a lost directory and a restore.")
    parser.add_argument("--work", type=Path, help="an empty folder for all of it; one of its own if not given")
    given = parser.parse_args()
    use_java()
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "4").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory(prefix="holdfast-example-", ignore_cleanup_errors=True) as scratch:
        try:
            return run(spark, given.work or Path(scratch))
        finally:
            spark.stop()


if __name__ == "__main__":
    sys.exit(main())
