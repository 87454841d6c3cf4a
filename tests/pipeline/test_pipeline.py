"""Pipelines in a real Spark: what every sink holds equals the truth, through restarts, loss, and rewinds."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import holdfast
from holdfast.errors import BadValue
from holdfast.pipeline.pipeline import Pipeline
from holdfast.sinks import SQLite
from holdfast.sinks.contract import Sink
from spark.events import files_of
from spark.workloads import STORES, configured

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
        with configured(self.spark, STORES["changelog-2"]):
            run = (pipeline or self.pipeline()).start(
                self.repository, checkpoint_dir=home or self.home, every=every, trigger=NOW
            )
            run.await_termination()
        return run.generation

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
        return sorted((json.dumps({"end": f"{w.end}+00:00", "start": f"{w.start}+00:00"}), *more) for w, *more in found)

    def rows(self, name: str = "log", suffix: str = "") -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(self.root / f"{name}{suffix}.db")) as db:
            return sorted(db.execute("SELECT window, key, n, total FROM sums").fetchall())


@pytest.fixture
def place(tmp_path: Path, spark: SparkSession) -> Place:
    return Place(tmp_path, spark)


def test_both_sinks_hold_what_a_plain_query_puts_out_through_restarts(place: Place) -> None:
    for upto in (3, 4, 8, 12):
        place.inputs(upto)
        place.run()
    assert [g.number for g in place.repository.pipeline("sums").generations()] == [0, 1, 2, 3]
    assert place.rows("log") == place.rows("table") == place.plain([(3, 1), (4, 1), (8, 1), (12, 1)])


def test_a_lost_directory_is_restored_and_what_was_decided_is_run_again_as_it_was(place: Place) -> None:
    """Were batches cut anew, late rows would be dropped elsewhere, and the sinks' rows not be those of the state."""
    place.inputs(7)
    place.run(every="3 batches")
    shutil.rmtree(place.home)
    place.inputs(12)
    place.run(place.pipeline(per_batch=2))
    assert place.rows("log") == place.rows("table") == place.plain([(7, 1), (12, 2)])


def test_a_rewind_takes_the_state_and_both_sinks_back(place: Place) -> None:
    place.inputs(6)
    place.run(every="1 batch")
    stored = place.repository.pipeline("sums")
    checkpoint = next(c for c in stored.checkpoints() if c.epoch == 3)
    checkpoint.savepoint("before")
    place.inputs(12)
    place.run(every="1 batch")
    whole = place.rows()
    place.pipeline().rewind(place.repository, to="before", checkpoint_dir=place.home)
    back = place.rows("log")
    assert back == place.rows("table")
    assert len(back) < len(whole)
    place.run()
    assert place.rows("log") == place.rows("table") == place.plain([(12, 1)])


def test_modes_that_do_not_fit_are_refused_before_anything_runs(place: Place) -> None:
    place.inputs(1)
    with pytest.raises(BadValue, match="overwrite"):
        place.pipeline({"all": SQLite(place.root / "x.db", "t", mode="overwrite")})
