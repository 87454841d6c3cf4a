"""A rewind and a fork that are killed at any of their steps, and done again, or started from as they are left."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.errors import MissingRecords, PipelineExists
from pipeline.place import Place, killed_at
from pipeline.proof import Died, die_at

OF_A_REWIND = [
    "claimed",
    "fenced log",
    "fenced table",
    "fenced",
    "begun",
    "rolled back log",
    "rolled back table",
    "laid",
    "noted",
]
OF_A_FORK = ["claimed", "fenced", "fenced log", "fenced table", "begun", "drafted", "laid", "noted"]
"""Its sinks are nobody's: they are fenced once it is known where they begin."""


@pytest.fixture
def place(tmp_path: Path, spark: SparkSession) -> Place:
    """A pipeline that has run beyond a savepoint."""
    place = Place(tmp_path, spark)
    place.inputs(6)
    place.run(every="1 batch")
    place.repository.pipeline("sums")["epoch:2"].savepoint("before")
    return place


def rewound(place: Place, step: str) -> None:
    """Kill a rewind at a step, do it again, and run to the end of what there is."""
    whole = place.rows("log")
    assert killed_at(place, "rewind", step), step
    place.rewind()
    back = place.rows("log")
    assert back == place.rows("table"), step
    assert len(back) < len(whole), step
    place.run(every="1 batch")
    assert place.rows("log") == place.rows("table") == whole, step


def test_a_rewind_that_was_killed_between_two_sinks_is_done_again(place: Place) -> None:
    rewound(place, "rolled back log")
    assert place.rows("log") == place.plain([(6, 1)])


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_a_rewind_that_is_killed_at_any_step_is_done_again_to_the_same_end(place: Place) -> None:
    for step in OF_A_REWIND:
        rewound(place, step)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_a_start_after_a_rewind_that_was_killed_at_any_step_loses_and_doubles_nothing(place: Place) -> None:
    whole = place.rows("log")
    for step in OF_A_REWIND:
        assert killed_at(place, "rewind", step), step
        place.run(every="1 batch")
        assert place.rows("log") == place.rows("table") == whole, step


def finish(place: Place) -> None:
    """Run the fork to the end of what there is: it puts out what comes after the savepoint, once."""
    whole = place.rows("log")
    place.run(place.forked(), place.root / "forked")
    after = place.rows("log", "-fork")
    assert after == place.rows("table", "-fork")
    place.rewind()
    assert sorted(place.rows("log") + after) == whole


def test_a_fork_that_is_cut_off_at_one_step_after_the_other_is_done_once(place: Place) -> None:
    for step in OF_A_FORK[:-1]:
        pipeline = place.forked()
        pipeline._reach = die_at(step)
        with pytest.raises(Died):
            place.fork(pipeline)
        if step == "begun":
            with pytest.raises(MissingRecords, match="fork of sums"):
                place.run(place.forked(), place.root / "forked")
    [checkpoint] = place.repository.pipeline("fork").checkpoints()
    assert place.fork().slot == checkpoint.slot, "it stood before the last was cut off"
    with pytest.raises(PipelineExists, match=r"fork of sums@slot:0-\d"):
        place.forked().fork(place.repository, of="sums@epoch:4", checkpoint_dir=place.root / "forked")
    finish(place)
    with pytest.raises(PipelineExists):
        place.fork()


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("step", OF_A_FORK)
def test_a_fork_that_is_killed_at_any_step_is_done_again_to_the_same_end(place: Place, step: str) -> None:
    assert killed_at(place, "fork", step)
    assert place.fork().epoch == 2
    assert len(place.repository.pipeline("fork").checkpoints()) == 1
    finish(place)
