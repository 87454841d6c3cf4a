"""State by key beside reading all of it, and its export to Parquet beside Spark's own reader writing the same.

    python -m benchmarks.state_read [--rounds N] [--keys N] [--partitions N]

Goals: a key in a third of the time of everything or less; an export in 1.5 times that of Spark's reader on the same
files, though every byte is fetched from the repository and verified first. Spark is running in all of them.
"""

from __future__ import annotations

import argparse
import random
import shutil
from pathlib import Path

from benchmarks.pairs import alternate, milliseconds, print_table, verdict
from benchmarks.places import scratch
from benchmarks.spark_queries import CountingQuery, spark_session
from pyspark.sql import SparkSession

import holdfast
from holdfast.checkpoint import Checkpoint
from holdfast.state import export, open_state

BY_KEY = 1 / 3
EXPORT = 1.5


def make(spark: SparkSession, folder: Path, keys: int, partitions: int) -> tuple[Path, Checkpoint]:
    """The checkpoint of a query that has counted so many keys, and the directory as it stood when it was taken.

    Not the query's own: what Spark's upkeep adds to that later, as snapshots in the place of changes, reads faster.
    """
    spark.conf.set("spark.sql.shuffle.partitions", partitions)
    directory = CountingQuery(spark, folder / "checkpoint", keys).directory
    repository = holdfast.open(str(folder / "repository"), create=True)
    checkpoint = holdfast.capture(directory, repository, pipeline="counts", stopped=True)
    checkpoint.restore(folder / "as-it-stood")
    return folder / "as-it-stood", checkpoint


def by_key(spark: SparkSession, checkpoint: Checkpoint, keys: int, rounds: int) -> tuple[object, ...]:
    chance = random.Random(8)

    def one() -> None:
        key = chance.randrange(keys)
        with open_state(checkpoint, spark) as state:
            assert len(state.rows(where={"key": key}).collect()) == 1

    def everything() -> None:
        with open_state(checkpoint, spark) as state:
            assert state.rows().where(f"key.key = {chance.randrange(keys)}").count() == 1

    found = alternate(one, everything, rounds)
    met = verdict(found.wall.median <= BY_KEY)
    return "by key over all", found.wall, milliseconds(found.first), milliseconds(found.second), f"<= {BY_KEY:.2f}", met


def to_parquet(
    spark: SparkSession, directory: Path, checkpoint: Checkpoint, folder: Path, rounds: int
) -> tuple[object, ...]:
    place = folder / "rows"

    def ours() -> None:
        export(checkpoint, place, spark=spark)

    def theirs() -> None:
        spark.read.format("statestore").load(str(directory)).write.parquet(str(place))

    found = alternate(ours, theirs, rounds, tidy=lambda: shutil.rmtree(place))
    met = verdict(found.wall.median <= EXPORT)
    return "export over Spark", found.wall, milliseconds(found.first), milliseconds(found.second), f"<= {EXPORT}", met


def main() -> None:
    options = argparse.ArgumentParser(description="state by key and as Parquet")
    options.add_argument("--rounds", type=int, default=10)
    options.add_argument("--keys", type=int, default=5_000_000)
    options.add_argument("--partitions", type=int, default=16)
    chosen = options.parse_args()
    with scratch() as folder, spark_session(folder) as spark:
        directory, checkpoint = make(spark, folder, chosen.keys, chosen.partitions)
        size = f"{chosen.keys:,} keys in {chosen.partitions} partitions, {checkpoint.bytes / 1e6:.0f} MB"
        print_table(
            f"state of {size}; {chosen.rounds} pairs",
            ("what", "wall, median (quartiles)", "ours", "theirs", "goal", ""),
            [
                by_key(spark, checkpoint, chosen.keys, chosen.rounds),
                to_parquet(spark, directory, checkpoint, folder, chosen.rounds),
            ],
        )


if __name__ == "__main__":
    main()
