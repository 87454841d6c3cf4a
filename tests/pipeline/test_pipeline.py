"""Pipelines in a real Spark: what every sink holds equals the truth, through restarts, loss, and rewinds."""

from __future__ import annotations

import gc
import shutil
import time
import weakref
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.errors import BadValue
from holdfast.pipeline.home import Home
from holdfast.sinks import SQLite
from holdfast.spark.places import SparkPlace
from pipeline.place import Place, killed_at
from spark.workloads import STORES, configured

STEPS = ["begin", "staged", "prepared", "decided", "looked", "committed log", "committed table", "committed"]


@pytest.fixture
def place(tmp_path: Path, spark: SparkSession) -> Place:
    return Place(tmp_path, spark)


def test_both_sinks_hold_what_a_plain_query_puts_out_through_restarts(place: Place) -> None:
    for upto in (3, 4, 8, 12):
        place.inputs(upto)
        place.run()
    assert [g.number for g in place.repository.pipeline("sums").generations()] == [0, 1, 2, 3]
    assert place.rows("log") == place.rows("table") == place.plain([(3, 1), (4, 1), (8, 1), (12, 1)])


def test_a_run_tells_how_it_stands_from_its_first_epoch_on(place: Place) -> None:
    place.inputs(1)
    with configured(place.spark, {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}):
        status = place.start(every="1 batch").status()
    assert (status.generation, status.is_active, status.last_epoch) == (0, False, 0)
    assert status.sinks == {"log": {"epoch": 0}, "table": {"epoch": 0}}
    assert (status.captures.last_epoch, status.captures.failures, status.upkeep_error) == (0, 0, None)


def test_spark_keeps_nothing_of_a_run_that_is_over(place: Place) -> None:
    place.inputs(1)
    sinks = place.sinks()
    kept = [weakref.ref(sink) for sink in sinks.values()]
    place.run(place.pipeline(sinks))
    del sinks
    gc.collect()
    assert [sink() for sink in kept] == [None, None]


def test_a_run_whose_handle_nobody_keeps_goes_on_and_lets_its_folder_go_at_its_end(place: Place) -> None:
    place.inputs(1)
    settings = STORES["changelog-2"] | {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
    with configured(place.spark, settings):
        place.pipeline().start(place.repository, checkpoint_dir=place.home)
        gc.collect()
        place.inputs(3)
        [query] = place.spark.streams.active
        query.processAllAvailable()
        assert query.lastProgress is not None
        assert query.lastProgress["batchId"] >= 2
        query.stop()
    home = Home(SparkPlace(str(place.home)))
    until = time.monotonic() + 60
    while not home.is_free() and time.monotonic() < until:
        time.sleep(0.05)
    assert home.is_free()
    latest = place.repository.pipeline("sums").latest()
    assert latest is not None
    assert latest.epoch == 2


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


def kill_at_each(place: Place, steps: list[str], lose: bool) -> None:
    """Kill a run at each of these steps in turn, and have the last one go to the end."""
    place.inputs(12)
    for number, step in enumerate(steps):
        assert killed_at(place, "run", step, 2)
        if lose and number % 2:
            shutil.rmtree(place.home)
    place.run()
    assert place.rows("log") == place.rows("table") == place.plain([(12, 1)])


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("lose", [False, True], ids=["directory kept", "directory lost"])
def test_a_run_that_is_killed_at_every_step_loses_and_doubles_nothing(place: Place, lose: bool) -> None:
    kill_at_each(place, STEPS, lose)


def test_modes_that_do_not_fit_are_refused_before_anything_runs(place: Place) -> None:
    place.inputs(1)
    with pytest.raises(BadValue, match="overwrite"):
        place.pipeline({"all": SQLite(place.root / "x.db", "t", mode="overwrite")})
