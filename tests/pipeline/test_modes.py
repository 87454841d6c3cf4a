"""Pipelines in every way of writing: all of the result each time, every version of a row, and partitioned tables.

`test_proof.py` kills and overtakes them; here each ends as an uninterrupted run does.
"""

from __future__ import annotations

import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipeline.proof import Prove, Truth, die_at


def test_all_of_the_result_takes_the_place_of_what_was_there_with_each_epoch(
    spark: SparkSession, prove: Prove, truth: Truth
) -> None:
    proof = prove("delta overwrite", "duckdb overwrite")
    proof.inputs(4)
    with pytest.raises(PySparkException):
        proof.run(proof.pipeline(spark, reach=die_at("committed duckdb-overwrite", 3)))
    proof.run(proof.pipeline(spark), every="1 batch")
    assert proof.differing(truth(4, "complete")) == {}
    next(each for each in proof.stored.checkpoints() if each.epoch == 1).savepoint("before")
    proof.rewind(proof.pipeline(spark), "before")
    assert proof.differing(truth(2, "complete")) == {}, "both are taken back to what they held then"
    proof.inputs(5)
    proof.run(proof.pipeline(spark))
    assert proof.differing(truth(5, "complete")) == {}


def test_every_version_of_a_row_that_changes_is_appended_to_a_changelog(
    spark: SparkSession, prove: Prove, truth: Truth
) -> None:
    proof = prove("delta", "sqlite")
    proof.inputs(5)
    more = {"output_mode": "update", "changelog": True}
    with pytest.raises(PySparkException):
        proof.run(proof.pipeline(spark, reach=die_at("looked", 3), **more))
    proof.run(proof.pipeline(spark, **more))
    versions = truth.cut((5, 1), output_mode="update", every_version=True)
    assert len({row[:2] for row in versions}) < len(versions), "or nothing has changed"
    assert proof.differing(versions) == {}


def test_partitioned_tables_are_written_by_their_partitions(spark: SparkSession, prove: Prove, truth: Truth) -> None:
    proof = prove("delta by key", "iceberg by key")
    proof.inputs(6)
    with pytest.raises(PySparkException):
        proof.run(proof.pipeline(spark, reach=die_at("prepared", 3)))
    proof.run(proof.pipeline(spark))
    assert proof.differing(truth(6)) == {}
    table = DeltaTable(proof.targets["delta-by-key"].place)
    assert table.metadata().partition_columns == ["key"]
    assert {part["key"] for part in table.partitions()} == {row[1] for row in truth(6)}
