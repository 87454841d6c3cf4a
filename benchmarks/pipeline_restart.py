"""From a start to the first commit, in a directory that is there: a pipeline beside plain Spark.

    python -m benchmarks.pipeline_restart [--rounds N] [--keys N]

Goal: at most 10 % over plain Spark. Both count rows by key with the same state, read the same files, one more for each
start, and replace the counts in a SQLite table; plain Spark does so in foreachBatch, without any protocol. A driver
that is started again is one row, with its Python and its JVM; a query that is started again in a session is another.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from benchmarks.pairs import Comparison, alternate, milliseconds, print_table, verdict
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


class Side:
    """One of the two, with its inputs, its directory and its table below a folder."""

    def __init__(self, folder: Path, start: Callable[[SparkSession, Path], Callable[[], object]]) -> None:
        self.folder = folder
        self.start = start
        self._seen = 0

    def await_commit(self) -> None:
        """Wait for one more commit in its directory than there were."""
        while (now := self._commits()) <= self._seen:
            time.sleep(LOOK_SECONDS)
        self._seen = now

    def _commits(self) -> int:
        return sum(not path.name.startswith(".") for path in self.folder.glob("home/*/commits/*"))


def counted(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema("key LONG").json(str(folder / "in"))


def start_pipeline(spark: SparkSession, folder: Path) -> Callable[[], object]:
    pipeline = holdfast.Pipeline(
        "counts",
        sources={"rows": counted(spark, folder)},
        query=lambda rows: rows.groupBy("key").count(),
        sinks={"table": SQLite(folder / "table.db", "counts", mode="upsert", key=["key"])},
        output_mode="update",
    )
    repository = holdfast.open(str(folder / "repository"), create=True)
    run = pipeline.start(repository, checkpoint_dir=folder / "home", every="1 hour", trigger=NOW)
    return run.await_termination


def start_plain(spark: SparkSession, folder: Path) -> Callable[[], object]:
    def replace(batch: DataFrame, _epoch: int) -> None:
        columns = batch.toArrow().to_pydict()
        with closing(sqlite3.connect(folder / "table.db")) as db, db:
            db.execute("CREATE TABLE IF NOT EXISTS counts (key INTEGER PRIMARY KEY, count INTEGER)")
            db.executemany("INSERT OR REPLACE INTO counts VALUES (?, ?)", zip(*columns.values(), strict=True))

    writer = counted(spark, folder).groupBy("key").count().writeStream.outputMode("update").foreachBatch(replace)
    query = writer.option("checkpointLocation", str(folder / "home/run")).trigger(**NOW).start()
    return query.awaitTermination


STARTS = {"pipeline": start_pipeline, "plain": start_plain}


def in_a_session(folder: Path, keys: int, rounds: int) -> Comparison:
    with spark_session(folder) as spark:

        def restart(side: Side) -> Callable[[], object]:
            end = side.start(spark, side.folder)
            side.await_commit()
            return end

        return compare(folder, keys, rounds, restart)


def of_a_driver(folder: Path, keys: int, rounds: int) -> Comparison:
    def restart(side: Side) -> Callable[[], object]:
        [name] = [name for name, start in STARTS.items() if start is side.start]
        command = [sys.executable, "-m", "benchmarks.pipeline_restart", "--drive", name, str(side.folder)]
        # A package that is installed has its bytecode: some machines say that none is to be written.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        driver = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        side.await_commit()
        return driver.wait

    return compare(folder, keys, rounds, restart)


def compare(folder: Path, keys: int, rounds: int, restart: Callable[[Side], Callable[[], object]]) -> Comparison:
    sides = {name: Side(folder / name, start) for name, start in STARTS.items()}
    inputs = [Inputs(side.folder / "in", keys) for side in sides.values()]
    running: list[Callable[[], object]] = []

    def run(name: str) -> Callable[[], object]:
        return lambda: running.append(restart(sides[name]))

    def one_more() -> None:
        while running:
            running.pop()()
        for each in inputs:
            each.add()

    for name in sides:
        run(name)()
        one_more()
    return alternate(run("pipeline"), run("plain"), rounds, tidy=one_more)


def drive(name: str, folder: Path) -> None:
    """One driver, from its start to the end of its input."""
    with spark_session(folder) as spark:
        STARTS[name](spark, folder)()


def main() -> None:
    options = argparse.ArgumentParser(description="warm restarts beside plain Spark")
    options.add_argument("--rounds", type=int, default=11)
    options.add_argument("--keys", type=int, default=200_000)
    options.add_argument("--drive", nargs=2, metavar=("SIDE", "FOLDER"), help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.drive:
        drive(chosen.drive[0], Path(chosen.drive[1]))
        return
    rows = []
    for name, measure in {"a driver": of_a_driver, "a query, in a session": in_a_session}.items():
        with scratch() as folder:
            found = measure(folder, chosen.keys, chosen.rounds)
        times = (milliseconds(found.first), milliseconds(found.second))
        rows.append((name, found.wall, *times, f"<= {GOAL}", verdict(found.wall.median <= GOAL)))
    print_table(
        f"from start to the first commit, {chosen.keys} keys, {chosen.rounds} pairs, median (quartiles)",
        ("started again", "pipeline over plain", "pipeline", "plain", "goal", ""),
        rows,
    )


if __name__ == "__main__":
    main()
