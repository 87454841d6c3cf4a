"""Epochs that are run a second time: as they were cut, also when that is cut off; and queries that give other rows."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from holdfast.errors import NotDeterministic
from holdfast.pipeline import staging
from holdfast.sinks.staged import StagedRows
from pipeline.proof import Proof, Prove, Truth, by_chance, die_at, summed
from spark.workloads import STORES, configured


def test_a_replay_that_is_cut_off_again_and_again_still_ends_as_it_was(
    spark: SparkSession, prove: Prove, truth: Truth
) -> None:
    proof = prove("sqlite", "delta")
    proof.inputs(8)
    proof.run(proof.pipeline(spark), every="2 batches")
    for step in ("staged", "committed"):
        lose_state(proof, after=2)
        with pytest.raises(PySparkException):
            proof.run(proof.pipeline(spark, per_batch=3, reach=die_at(step, 3)))
    proof.inputs(12)
    recovered = proof.run(proof.pipeline(spark, per_batch=3)).recovery
    assert recovered.replays, "some were left to this run"
    assert proof.differing(truth.cut((8, 1), (12, 3))) == {}


def test_a_directory_that_has_cut_an_epoch_otherwise_than_it_was_decided_elsewhere_is_left(
    spark: SparkSession, prove: Prove, truth: Truth
) -> None:
    """Spark would run what it has logged, which is not what the sinks hold, at every start."""
    proof = prove("sqlite", "parquet")
    proof.inputs(6)
    with pytest.raises(PySparkException):
        proof.run(proof.pipeline(spark, reach=die_at("staged", 4)))
    proof.run(proof.pipeline(spark, per_batch=2), home=proof.root / "elsewhere")
    proof.damage_checkpoints(after=2)
    proof.inputs(9)
    recovered = proof.run(proof.pipeline(spark, per_batch=3)).recovery
    assert (recovered.state, 3 in recovered.replays) == ("checkpoint", True)
    assert proof.differing(truth.cut((3, 1), (6, 2), (9, 3))) == {}


def test_what_a_run_that_died_has_staged_is_swept_by_the_next(
    spark: SparkSession, prove: Prove, truth: Truth, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Through Arrow an epoch without rows leaves nothing behind.
    monkeypatch.setattr(staging, "FEW_ROWS", -1)
    proof = prove("sqlite")
    proof.inputs(4)
    for step in ("staged", "prepared", "looked"):
        with pytest.raises(PySparkException):
            proof.run(proof.pipeline(spark, reach=die_at(step, 2)))
        assert any(proof.home.glob("staging/hf-*/*"))
    proof.run(proof.pipeline(spark))
    assert not any(proof.home.glob("staging/hf-*/*"))
    assert proof.differing(truth(4)) == {}


def lose_state(proof: Proof, after: int) -> None:
    """Lose Spark's directories and all checkpoints after an epoch: the epochs since are to be run again."""
    proof.damage_checkpoints(after)
    proof.lose_home()


def test_replayed_freely_late_rows_fall_elsewhere_so_epochs_are_replayed_as_they_were_cut(
    spark: SparkSession, prove: Prove, truth: Truth
) -> None:
    """The same files in batches of three give other sums: more rows come before the watermark has moved."""
    proof = prove("sqlite", "parquet")
    proof.inputs(9)
    proof.run(proof.pipeline(spark), every="2 batches")
    lose_state(proof, after=2)
    assert truth(9) != truth.cut((9, 3)), "or this shows nothing"
    recovered = proof.run(proof.pipeline(spark, per_batch=3)).recovery
    assert recovered.replays
    assert proof.differing(truth(9)) == {}


def test_who_asks_for_a_free_replay_gets_other_batches_and_every_sink_goes_along(
    spark: SparkSession, prove: Prove, truth: Truth
) -> None:
    proof = prove("sqlite", "parquet")
    proof.inputs(9)
    proof.run(proof.pipeline(spark), every="2 batches")
    lose_state(proof, after=4)
    recovered = proof.run(proof.pipeline(spark, per_batch=3), replay="free").recovery
    assert set(recovered.rolled_back) == {"sqlite", "parquet"}
    assert proof.differing(truth.cut((recovered.epoch + 1, 1), (9, 3))) == {}


# ---- other rows the second time ----


Keyed = dict[tuple[int, str], tuple[int, int]]


def killed_after_its_decision(proof: Proof, spark: SparkSession, step: str) -> Keyed:
    """Killed in its third epoch, the last; gives the rows that this run had for it."""
    proof.inputs(3)
    first: Keyed = {}

    def note(epoch: int, rows: StagedRows) -> None:
        if epoch == 2:
            first.update(keyed(tuple(row.values()) for batch in rows.batches() for row in batch.to_pylist()))

    more: dict[str, Any] = {"query": by_chance, "output_mode": "update", "changelog": True}
    with pytest.raises(PySparkException):
        proof.run(proof.pipeline(spark, reach=die_at(step, 3), on_epoch=note, **more))
    assert first
    return first


def keyed(rows: Iterable[tuple[Any, ...]]) -> Keyed:
    return {(start, key): (n, total) for start, key, n, total in rows}


def state_of(proof: Proof, spark: SparkSession) -> Keyed:
    """What the query has in its state."""
    columns = ("CAST(key.window.start AS LONG)", "key.key", "value.count", "value.sum")
    with configured(spark, STORES["changelog-2"]):
        rows = spark.read.format("statestore").load(str(max(proof.home.glob("run-*"))))
        return keyed(tuple(row) for row in rows.selectExpr(*columns).collect())


def check_rows_are_those_of_the_state(proof: Proof, spark: SparkSession, first: Keyed) -> None:
    """Each sink holds what is in the state, and nothing that the first run had for its last epoch."""
    state = state_of(proof, spark)
    assert first.keys() <= state.keys(), "or this shows nothing"
    for name, rows in proof.rows().items():
        held = keyed(rows)
        assert {key: held[key] for key in first} == {key: state[key] for key in first}, name
        assert not set(held.items()) & set(first.items()), name


@pytest.mark.parametrize("step", ["looked", "committed duckdb-upsert"])
def test_rows_of_another_run_take_the_place_of_the_first_in_all_sinks(
    spark: SparkSession, prove: Prove, step: str
) -> None:
    proof = prove("delta upsert", "duckdb upsert")
    first = killed_after_its_decision(proof, spark, step)
    proof.run(proof.pipeline(spark, query=by_chance, output_mode="update"))
    check_rows_are_those_of_the_state(proof, spark, first)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("kinds", [("delta upsert", "duckdb upsert"), ("postgres upsert", "iceberg upsert")])
def test_killed_while_the_rows_of_the_first_run_are_taken_back_the_next_start_takes_them_all_back(
    spark: SparkSession, prove: Prove, kinds: tuple[str, ...]
) -> None:
    proof = prove(*kinds)
    first = killed_after_its_decision(proof, spark, f"committed {list(proof.targets)[-1]}")
    proof.query, proof.output_mode = by_chance, "update"
    for name in proof.targets:
        # Rows of a second run that was killed before its own decision are in no sink, and in no state.
        assert proof.dies(f"taken back {name}", 1), name
    proof.run(proof.pipeline(spark))
    check_rows_are_those_of_the_state(proof, spark, first)


def by_a_die(events: DataFrame) -> DataFrame:
    """Sums that every run of a batch gives otherwise. What comes before a shuffle Spark would not run twice."""
    cast = F.udf(lambda total: total + secrets.randbelow(1_000_000), "long").asNondeterministic()
    return summed(events).withColumn("total", cast("total"))


def test_an_epoch_that_turns_out_large_and_gives_other_rows_when_it_runs_again_is_found_out_and_then_runs_once(
    spark: SparkSession, prove: Prove, truth: Truth, monkeypatch: pytest.MonkeyPatch
) -> None:
    proof = prove("duckdb upsert")
    proof.inputs(3)
    more: dict[str, Any] = {"query": by_a_die, "output_mode": "update"}
    proof.run(proof.pipeline(spark, **more))
    monkeypatch.setattr(staging, "FEW_ROWS", 2 * max(decision.staged.rows for decision in proof.decisions()))
    before = proof.rows()
    proof.inputs(30)
    with pytest.raises(NotDeterministic, match="run twice"):
        proof.run(proof.pipeline(spark, per_batch=27, **more))
    assert proof.rows() == before
    proof.run(proof.pipeline(spark, per_batch=27, **more))
    expected = truth.cut((3, 1), (30, 27), output_mode="update")
    assert [row[:3] for row in proof.rows()["duckdb-upsert"]] == [row[:3] for row in expected]


def test_rows_of_another_run_are_found_out_where_a_sink_can_not_go_back(spark: SparkSession, prove: Prove) -> None:
    proof = prove("kafka", "duckdb upsert")
    killed_after_its_decision(proof, spark, "committed kafka")
    before = proof.rows()
    with pytest.raises(NotDeterministic, match="kafka"):
        proof.run(proof.pipeline(spark, query=by_chance, output_mode="update", changelog=True))
    assert proof.rows() == before
