"""State in another number of partitions: the same rows, and every batch after that the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import holdfast
from holdfast.errors import BadValue, StateFixed, StateNotKept
from holdfast.spark.cut import Cut, cut_at
from holdfast.state import open_state, rescale, rescaling
from holdfast.store.local_directory import LocalDirectory
from spark.proof import after, run_from
from state.conftest import Tell
from state.test_editing import objects

CUT = 3
STOP = 6
RESCALED = [("window", "changelog-2", 5), ("tws-rows", "changelog-2", 2)]
MORE = [
    ("by-key", "rocksdb-2", 1),
    ("window-twice", "rocksdb", 7),
    ("join-left-3", "rocksdb", 2),
    ("dedup", "changelog", 4),
]


@pytest.mark.parametrize(
    ("name", "store", "partitions"), [*RESCALED, *(pytest.param(*m, marks=pytest.mark.soak) for m in MORE)]
)
def test_a_rescaled_query_runs_on_as_the_uninterrupted_run_through_a_second_restart(
    spark: SparkSession, tell: Tell, tmp_path: Path, name: str, store: str, partitions: int
) -> None:
    truth = tell(name, store)
    before = objects(truth)
    laid = rescale(truth.pipeline[f"epoch:{CUT}"], tmp_path / "rescaled", partitions, spark=spark)
    assert laid.epoch == CUT + 1
    assert objects(truth) == before
    assert [path.name for path in tmp_path.iterdir()] == ["rescaled"]
    directory = LocalDirectory(tmp_path / "rescaled")
    found = cut_at(directory, directory.look(), laid.epoch)
    assert isinstance(found, Cut)
    assert {operator.partitions for operator in found.operators.values()} == {partitions}
    outputs = run_from(spark, truth, laid.destination, [STOP])
    # The repartition is a batch of its own: the numbers after it are one higher.
    assert {batch - 1: rows for batch, rows in outputs.items()} == after(truth.outputs, CUT)


def test_what_was_rescaled_can_be_captured_and_read_again(spark: SparkSession, tell: Tell, tmp_path: Path) -> None:
    truth = tell("window", "changelog-2")
    checkpoint = truth.pipeline[f"epoch:{CUT}"]
    laid = rescale(checkpoint, tmp_path / "rescaled", 2, spark=spark, fork=True)
    repository = holdfast.open(str(tmp_path / "repository"), create=True)
    taken = holdfast.capture(laid.destination, repository, pipeline="two", stopped=True)
    with open_state(checkpoint, spark) as one, open_state(taken, spark) as other:
        assert other.inventory.operators[0].partitions == 2
        rows = [sorted(map(repr, state.rows().drop("partition_id").collect())) for state in (one, other)]
        assert rows[0] == rows[1]


def test_what_spark_can_not_repartition_is_refused_with_the_way_around(
    spark: SparkSession, tell: Tell, tmp_path: Path
) -> None:
    with pytest.raises(StateFixed, match=r"HDFS-backed.*The way around"):
        rescale(tell("by-key", "hdfs").pipeline[f"epoch:{CUT}"], tmp_path / "rescaled", 5, spark=spark)
    checkpoint = tell("window", "changelog-2").pipeline[f"epoch:{CUT}"]
    with pytest.raises(BadValue, match="has 3 already"):
        rescale(checkpoint, tmp_path / "rescaled", 3, spark=spark)
    with pytest.raises(BadValue):
        rescale(checkpoint, tmp_path / "rescaled", 0, spark=spark)
    assert list(tmp_path.iterdir()) == []


def test_rows_that_were_lost_on_the_way_are_found_out_and_nothing_is_left(
    spark: SparkSession, tell: Tell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = tell("window", "changelog-2").pipeline[f"epoch:{CUT}"]
    read = rescaling.read_part
    monkeypatch.setattr(rescaling, "read_part", lambda *a, **k: read(*a, **k).where("key.key <> 'k4'"))
    with pytest.raises(StateNotKept, match="rows are not the same"):
        rescale(checkpoint, tmp_path / "rescaled", 5, spark=spark)
    assert list(tmp_path.iterdir()) == []
