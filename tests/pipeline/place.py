"""A pipeline over files with two tables, all below one folder; run as a program it dies at a chosen step.

`python -m pipeline.place FOLDER VERB STEP N`: run to the end, rewind or fork; or until the N-th time that the step is
reached.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import holdfast
from holdfast.checkpoint import Checkpoint
from holdfast.pipeline.pipeline import Pipeline
from holdfast.pipeline.run import Run
from holdfast.sinks import SQLite
from holdfast.sinks.contract import Sink
from spark.events import files_of
from spark.workloads import STORES, configured

__all__ = ["NOW", "Place", "killed_at"]

TESTS = Path(__file__).resolve().parents[1]
NOW = {"availableNow": True}
EVENTS = files_of("events")


class Place:
    """Inputs, a repository, Spark's directories and two tables, all below one folder."""

    def __init__(self, root: Path, spark: SparkSession) -> None:
        self.root = root
        self.spark = spark
        self.repository = holdfast.open(str(root / "repository"), create=True)
        self.home = root / "home"

    def inputs(self, batches: int) -> None:
        EVENTS(self.root / "inputs", batches)

    def sinks(self, suffix: str = "") -> dict[str, Sink]:
        return {
            "log": SQLite(self.root / f"log{suffix}.db", "sums"),
            "table": SQLite(self.root / f"table{suffix}.db", "sums", mode="upsert", key=["window", "key"]),
        }

    def pipeline(self, sinks: Mapping[str, Sink] | None = None, name: str = "sums", per_batch: int = 1) -> Pipeline:
        schema = "at LONG, key STRING, value LONG"
        reader = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", per_batch)
        return Pipeline(
            name,
            sources={"events": reader.json(str(self.root / "inputs" / "events"))},
            query=lambda events: (
                events.withColumn("time", F.timestamp_seconds("at"))
                .withWatermark("time", "20 seconds")
                .groupBy(F.window("time", "15 seconds"), "key")
                .agg(F.count("*").alias("n"), F.sum("value").alias("total"))
            ),
            sinks=sinks or self.sinks(),
        )

    def run(self, pipeline: Pipeline | None = None, home: Path | None = None, every: str = "2 batches") -> int:
        """Run to the end of what there is; gives the generation."""
        return self.start(pipeline, home, every).generation

    def start(self, pipeline: Pipeline | None = None, home: Path | None = None, every: str = "2 batches") -> Run:
        """The same; gives the run, which has ended."""
        with configured(self.spark, STORES["changelog-2"]):
            run = (pipeline or self.pipeline()).start(
                self.repository, checkpoint_dir=home or self.home, every=every, trigger=NOW
            )
            run.await_termination()
        return run

    def rewind(self, pipeline: Pipeline | None = None) -> None:
        """Back to the savepoint "before"."""
        (pipeline or self.pipeline()).rewind(self.repository, to="before", checkpoint_dir=self.home)

    def forked(self) -> Pipeline:
        """The pipeline that a fork begins, with tables of its own."""
        return self.pipeline(self.sinks("-fork"), name="fork")

    def fork(self, pipeline: Pipeline | None = None) -> Checkpoint:
        """Begin it at the savepoint "before"."""
        fork = (pipeline or self.forked()).fork
        return fork(self.repository, of="sums@before", checkpoint_dir=self.root / "forked")

    def plain(self, parts: list[tuple[int, int]]) -> list[tuple[object, ...]]:
        """The rows that Spark alone puts out, run over so many batches of input with so many files in each."""
        found: list[tuple[object, ...]] = []

        def collect(batch: DataFrame, _epoch: int) -> None:
            found.extend((row.window, row.key, row.n, row.total) for row in batch.collect())

        plain = Place(self.root / "plain", self.spark)
        for upto, per_batch in parts:
            plain.inputs(upto)
            with configured(self.spark, STORES["changelog-2"]):
                pipeline = plain.pipeline(per_batch=per_batch)
                writer = pipeline.query(**pipeline.sources).writeStream.foreachBatch(collect)
                writer = writer.option("checkpointLocation", str(plain.home)).trigger(availableNow=True)
                writer.start().awaitTermination()
        return sorted((_window(window), *more) for window, *more in found)

    def rows(self, name: str = "log", suffix: str = "") -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(self.root / f"{name}{suffix}.db")) as db:
            return sorted(db.execute("SELECT window, key, n, total FROM sums").fetchall())


def _window(window: Any) -> str:
    """A window as SQLite holds it."""
    ends = ((name, f"{getattr(window, name):%Y-%m-%dT%H:%M:%S.%fZ}") for name in ("start", "end"))
    return json.dumps(dict(ends), separators=(",", ":"))


def die_at(step: str, times: int, pipeline: Pipeline) -> None:
    """Have a pipeline's process killed where it stands when it reaches a step for so many times."""
    left = [times]

    def reach(name: str) -> None:
        left[0] -= name == step
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    pipeline._reach = reach


def killed_at(place: Place, verb: str, step: str, times: int = 1) -> bool:
    """Do it in a process of its own that dies at a step; True if it came to that."""
    known = os.environ.get("PYTHONPATH")
    done = subprocess.run(
        [sys.executable, "-m", "pipeline.place", str(place.root), verb, step, str(times)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([known, str(TESTS)] if known else [str(TESTS)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr[-4000:]
    return done.returncode != 0


def main(folder: str, verb: str, step: str, times: str) -> None:
    from spark.session import start_session

    place = Place(Path(folder), start_session())
    pipeline = place.forked() if verb == "fork" else place.pipeline()
    die_at(step, int(times), pipeline)
    if verb == "run":
        place.run(pipeline, every="3 batches")
    elif verb == "rewind":
        place.rewind(pipeline)
    else:
        place.fork(pipeline)


if __name__ == "__main__":
    main(*sys.argv[1:])
