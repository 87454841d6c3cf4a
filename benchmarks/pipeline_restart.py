"""From a start to the first commit, in a directory that is there: a pipeline beside plain Spark.

    python -m benchmarks.pipeline_restart [--rounds N] [--keys N]

Goal: at most 10 % over plain Spark. Both count rows by key with the same state and read the same files, one more for
each start; plain Spark writes to nothing, the pipeline into a SQLite table.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.pairs import alternate, milliseconds, print_table, verdict
from benchmarks.places import scratch
from benchmarks.spark_queries import spark_session
from pyspark.sql import DataFrame, SparkSession

import holdfast
from holdfast.sinks import SQLite

GOAL = 1.1
NOW = {"availableNow": True}
ROWS = 1000
LOOK_SECONDS = 0.005


class Inputs:
    """Files of a folder, one more each time. The first holds every key."""

    def __init__(self, folder: Path, keys: int) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._next = 0
        self.add(keys)

    def add(self, rows: int = ROWS) -> None:
        lines = "".join(f"{json.dumps({'key': key})}\n" for key in range(rows))
        (self._folder / f".{self._next}").write_text(lines)
        (self._folder / f".{self._next}").rename(self._folder / f"{self._next:06}.json")
        self._next += 1


def counts(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema("key LONG").json(str(folder))


def commits(home: Path) -> int:
    return sum(not path.name.startswith(".") for path in home.glob("*/commits/*"))


def await_commit(home: Path) -> None:
    """Wait for one more commit in a directory than the inputs that were read before."""
    known = _seen.get(home, 0)
    while (now := commits(home)) <= known:
        time.sleep(LOOK_SECONDS)
    _seen[home] = now


_seen: dict[Path, int] = {}


def main() -> None:
    options = argparse.ArgumentParser(description="warm restarts beside plain Spark")
    options.add_argument("--rounds", type=int, default=15)
    options.add_argument("--keys", type=int, default=200_000)
    chosen = options.parse_args()
    with scratch() as folder, spark_session(folder) as spark:
        plain_in, ours_in = Inputs(folder / "plain-in", chosen.keys), Inputs(folder / "ours-in", chosen.keys)
        repository = holdfast.open(str(folder / "repository"), create=True)
        pipeline = holdfast.Pipeline(
            "counts",
            sources={"rows": counts(spark, folder / "ours-in")},
            query=lambda rows: rows.groupBy("key").count(),
            sinks={"table": SQLite(folder / "table.db", "counts", mode="upsert", key=["key"])},
            output_mode="update",
        )

        running: list[Callable[[], object]] = []

        def ours() -> None:
            run = pipeline.start(repository, checkpoint_dir=folder / "home", every="1 hour", trigger=NOW)
            running.append(run.await_termination)
            await_commit(folder / "home")

        def plain() -> None:
            frame = counts(spark, folder / "plain-in").groupBy("key").count()
            writer = frame.writeStream.outputMode("update").format("noop")
            query = writer.option("checkpointLocation", str(folder / "plain/run")).trigger(**NOW).start()
            running.append(query.awaitTermination)
            await_commit(folder / "plain")

        def one_more() -> None:
            while running:
                running.pop()()
            plain_in.add()
            ours_in.add()

        for first in (ours, plain):
            first()
            one_more()
        found = alternate(ours, plain, chosen.rounds, tidy=one_more)
    print_table(
        f"from start to the end of the first batch, {chosen.keys} keys, {chosen.rounds} pairs, median (quartiles)",
        ("", "wall", "ours", "plain", "goal", ""),
        [
            (
                "pipeline over plain Spark",
                found.wall,
                milliseconds(found.first),
                milliseconds(found.second),
                f"<= {GOAL}",
                verdict(found.wall.median <= GOAL),
            )
        ],
    )


if __name__ == "__main__":
    main()
