"""The directory of a plain query, gone on from as a pipeline: nothing is read twice, and it stays as it was."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from holdfast.errors import BrokenBatch, MissingRecords, NoWholeBatch, StillRunning
from holdfast.pipeline.pipeline import Pipeline
from holdfast.pipeline.run import Run
from pipeline.place import NOW, Place
from pipeline.proof import Died, die_at
from spark.workloads import STORES, configured

OTHERS = [store for store in STORES if store != "changelog-2"]
STEPS = ["claimed", "fenced", "begun", "drafted", "laid", "noted"]


class Plain:
    """A query without Holdfast that has read so much, and the pipeline that it is to become."""

    def __init__(self, place: Place, store: str = "changelog-2") -> None:
        self.place = place
        self.directory = place.root / "plain-checkpoint"
        self.rows: list[tuple[object, ...]] = []
        self._store = store

    def run(self, upto: int) -> None:
        self.place.inputs(upto)
        pipeline = self.place.pipeline()

        def collect(batch: DataFrame, _epoch: int) -> None:
            self.rows.extend(batch.collect())

        with configured(self.place.spark, STORES[self._store]):
            writer = pipeline.query(**pipeline.sources).writeStream.foreachBatch(collect)
            writer = writer.option("checkpointLocation", str(self.directory))
            writer.trigger(availableNow=True).start().awaitTermination()

    def adopt(self, pipeline: Pipeline | None = None, **more: Any) -> Run:
        """Start the pipeline from its directory, and run to the end of what there is."""
        with configured(self.place.spark, STORES[self._store]):
            start: Callable[..., Run] = (pipeline or self.place.pipeline()).start
            given = {"adopt": self.directory, "trigger": NOW, **more}
            run = start(self.place.repository, checkpoint_dir=self.place.home, **given)
            run.await_termination()
        return run

    def logs(self) -> dict[str, bytes]:
        """What a query changes when it goes on. State files may still be written after its stop, by maintenance."""
        names = ("metadata", "offsets/*", "commits/*", "sources/*/*")
        return {str(path): path.read_bytes() for name in names for path in self.directory.glob(name)}

    def has_claimed_nothing(self) -> bool:
        stored = self.place.repository.pipeline("sums")
        return not stored.exists() or not stored.records.world().claims

    def require_once(self, *parts: int) -> None:
        """Both sinks hold just what the plain query has not put out."""
        truth = self.place.plain([(upto, 1) for upto in parts])
        log = self.place.rows("log")
        assert len(self.rows) + len(log) == len(truth)
        assert set(log) < set(truth)
        assert log == self.place.rows("table")


@pytest.fixture
def place(tmp_path: Path, spark: SparkSession) -> Place:
    return Place(tmp_path, spark)


@pytest.fixture
def _without_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its query has surely stopped."""
    monkeypatch.setattr("holdfast.pipeline.origins.STILL_SECONDS", 0.0)


@pytest.mark.parametrize("store", ["changelog-2", *(pytest.param(other, marks=pytest.mark.soak) for other in OTHERS)])
def test_a_plain_query_goes_on_as_a_pipeline_without_reading_anything_twice(place: Place, store: str) -> None:
    """The first start takes its directory over; later ones pass over what they are still told."""
    plain = Plain(place, store)
    plain.run(5)
    seen = plain.logs()
    for upto in (8, 12):
        place.inputs(upto)
        run = plain.adopt()
        assert run.recovery.state == ("origin" if upto == 8 else "warm")
    assert plain.logs() == seen
    plain.require_once(5, 8, 12)


@pytest.mark.usefixtures("_without_a_wait")
def test_an_adoption_that_is_cut_off_at_one_step_after_the_other_is_done_once(place: Place) -> None:
    plain = Plain(place)
    plain.run(5)
    place.inputs(8)
    for step in STEPS:
        pipeline = place.pipeline()
        pipeline._reach = die_at(step)
        with pytest.raises(Died):
            plain.adopt(pipeline)
        if step == "begun":
            with pytest.raises(MissingRecords, match="adopted from"):
                plain.adopt(adopt=None)
    plain.adopt()
    plain.require_once(5, 8)


def test_a_query_that_still_runs_is_not_adopted(place: Place) -> None:
    plain = Plain(place)
    plain.run(5)
    over = threading.Event()

    def go_on() -> None:
        epoch = 5
        while not over.wait(0.3):
            (plain.directory / "offsets" / str(epoch)).write_text("v1\n")
            epoch += 1

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        with pytest.raises(StillRunning):
            plain.adopt()
    finally:
        over.set()
        thread.join()
    assert plain.has_claimed_nothing()


@pytest.mark.usefixtures("_without_a_wait")
def test_a_directory_that_lacks_state_is_not_adopted(place: Place) -> None:
    plain = Plain(place)
    plain.run(3)
    shutil.rmtree(plain.directory / "state" / "0" / "1")
    with pytest.raises(BrokenBatch, match="state/0/1"):
        plain.adopt()
    assert plain.has_claimed_nothing()


@pytest.mark.usefixtures("_without_a_wait")
def test_a_directory_without_a_committed_batch_is_not_adopted(place: Place) -> None:
    place.inputs(1)
    with pytest.raises(NoWholeBatch, match="no batch is committed"):
        Plain(place).adopt()
    assert Plain(place).has_claimed_nothing()
