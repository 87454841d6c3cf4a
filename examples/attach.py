"""A plain PySpark query with savepoints: one line attaches Holdfast to it, from its own driver.

    make setup                                # once; or: pip install '.[spark,java]'
    .venv/bin/python examples/attach.py

Words are counted as they come. A savepoint is taken while the query runs, another when it is stopped. Then the first
one is laid down as a new directory, and the same query goes on from there: it reads only what came after, and ends with
the same counts. Ends with 1 if it does not.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

import holdfast
from holdfast.spark.java import use_java

TEXTS = ["the kelp holds fast", "the stream pulls and the kelp holds", "fast is the stream", "the rock holds the kelp"]


def count_words(spark: SparkSession, work: Path, checkpoint: Path, counts: dict[str, int]) -> StreamingQuery:
    """The query; what it puts out goes into `counts`."""

    def keep(batch: DataFrame, _number: int) -> None:
        counts.update({row.word: row.n for row in batch.collect()})

    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(work / "lines"))
    words = lines.select(f.explode(f.split("value", " ")).alias("word")).groupBy("word").agg(f.count("*").alias("n"))
    writer = words.writeStream.outputMode("update").foreachBatch(keep)
    return writer.option("checkpointLocation", str(checkpoint)).start()


def lay(work: Path, number: int, text: str) -> None:
    (work / "lines").mkdir(exist_ok=True)
    (work / "lines" / f"{number}.txt").write_text(text)


def run(spark: SparkSession, work: Path) -> int:
    repository = holdfast.open(str(work / "repository"), create=True)
    counts: dict[str, int] = {}
    for number, text in enumerate(TEXTS[:2]):
        lay(work, number, text)
    query = count_words(spark, work, work / "checkpoint", counts)
    attached = holdfast.attach(query, repository, pipeline="words", every="30 seconds")
    query.processAllAvailable()
    saved = attached.checkpoint(savepoint="before-upgrade")
    print(f"savepoint before-upgrade: batch {saved.epoch}, {saved.bytes:,} bytes, {len(counts)} words")

    for number, text in enumerate(TEXTS[2:], 2):
        lay(work, number, text)
    query.processAllAvailable()
    stopped = attached.stop(savepoint="v1")
    print(f"stopped after batch {stopped.epoch}, with the savepoint v1: {len(counts)} words")

    repository.pipeline("words")["before-upgrade"].restore(str(work / "again"))
    others: dict[str, int] = {}
    query = count_words(spark, work, work / "again", others)
    query.processAllAvailable()
    query.stop()
    # Words that came only before the savepoint are in the state, and are not put out again.
    good = bool(others) and all(counts[word] == count for word, count in others.items())
    print(f"restored and run on: {len(others)} words were put out, each with {'the same' if good else 'ANOTHER'} count")
    return 0 if good and counts["the"] == others["the"] == 6 else 1


def main() -> int:
    parser = argparse.ArgumentParser(description="Savepoints of a plain query, and a second run from one of them.")
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
