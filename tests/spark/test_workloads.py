"""The workloads are deterministic: two runs on the same input give the same rows, batch by batch."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.workloads import BATCHES, STORES, WORKLOADS, run


@pytest.mark.parametrize(
    ("name", "store"), [("window", "hdfs"), pytest.param("rate", "rocksdb", marks=pytest.mark.soak)]
)
def test_two_runs_give_the_same_rows_batch_by_batch(spark: SparkSession, tmp_path: Path, name: str, store: str) -> None:
    first, second = (
        run(spark, WORKLOADS[name], store, tmp_path / "in", str(tmp_path / place)) for place in ("first", "second")
    )
    assert first == second
    assert set(range(BATCHES)) <= set(first)
    assert sum(map(bool, first.values())) > 2


def test_more_input_is_taken_where_the_last_run_ended(spark: SparkSession, tmp_path: Path) -> None:
    workload = WORKLOADS["by-key-complete"]
    whole = run(spark, workload, "hdfs", tmp_path / "whole", str(tmp_path / "once"))
    parts = run(spark, workload, "hdfs", tmp_path / "parts", str(tmp_path / "twice"), upto=5)
    assert set(parts) == set(range(5))
    assert parts | run(spark, workload, "hdfs", tmp_path / "parts", str(tmp_path / "twice")) == whole


def test_what_a_batch_raises_ends_the_query_and_is_raised(spark: SparkSession, tmp_path: Path) -> None:
    workload, rows = WORKLOADS["stateless"], {}

    def stop_at_the_fourth(batch: int) -> None:
        if batch == 3:
            raise LookupError("no further")

    with pytest.raises(LookupError, match="no further"):
        run(spark, workload, "hdfs", tmp_path / "in", str(tmp_path / "c"), on_batch=stop_at_the_fourth, into=rows)
    assert set(rows) == {0, 1, 2}
    assert not spark.streams.active


def test_a_run_leaves_the_configuration_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    keys = [*STORES["changelog"], *WORKLOADS["join-inner-2"].conf]
    before = [spark.conf.get(key, None) for key in keys]
    run(spark, WORKLOADS["join-inner-2"], "changelog", tmp_path / "in", str(tmp_path / "c"), upto=1)
    assert [spark.conf.get(key, None) for key in keys] == before
