"""State and real sinks taken back together: to an older checkpoint since the newest is damaged, and by rewinds."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from holdfast import KeepPolicy
from holdfast.errors import SinksAhead
from holdfast.pipeline.pipeline import Pipeline
from pipeline.proof import CROWDS, Proof, Prove, Truth, die_at


def run(proof: Proof, spark: SparkSession, files: int, per_batch: int = 1, every: str = "1 batch") -> None:
    proof.inputs(files)
    proof.run(proof.pipeline(spark, per_batch=per_batch), every=every)


def cut_manifest(proof: Proof) -> None:
    """Cut the record of the newest checkpoint short."""
    latest = proof.stored.latest()
    assert latest is not None
    proof.damage_checkpoints(after=latest.epoch - 1)


def flip_bytes(proof: Proof) -> None:
    """Flip a bit in all that the newest checkpoint has brought."""
    newest = max((proof.root / "repository").glob("pipelines/*/data/*"), key=lambda path: path.stat().st_mtime)
    for path in newest.rglob("*"):
        if path.is_file():
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.write_bytes(data)


# ---- to an older checkpoint ----


@pytest.mark.parametrize("damage", [cut_manifest, flip_bytes])
def test_from_an_older_checkpoint_epochs_run_again_as_they_were_and_sinks_that_hold_them_skip_them(
    spark: SparkSession, prove: Prove, truth: Truth, damage: Callable[[Proof], None]
) -> None:
    proof = prove("iceberg", "sqlite")
    run(proof, spark, 8, every="3 batches")
    damage(proof)
    proof.lose_home()
    proof.inputs(12)
    recovered = proof.run(proof.pipeline(spark, per_batch=4)).recovery
    assert len(recovered.skipped) == 1
    assert len(recovered.replays) >= 1
    assert recovered.rolled_back == ()
    assert proof.differing(truth.cut((8, 1), (12, 4))) == {}


def lose_ledgers(proof: Proof) -> None:
    proof.lose_home()
    shutil.rmtree(proof.root / "repository/pipelines/sums/ledger")


def test_a_table_does_not_skip_epochs_that_it_only_seems_to_have(
    spark: SparkSession, prove: Prove, truth: Truth
) -> None:
    """Nobody knows any more how the epochs after the checkpoint were cut. By their numbers the table has them, but the
    new ones hold other rows: skipped they would be lost, as Flink with Iceberg lost them.
    """
    proof = prove("iceberg", "delta")
    run(proof, spark, 8, every="3 batches")
    proof.damage_checkpoints(after=4)
    lose_ledgers(proof)
    proof.inputs(12)
    recovered = proof.run(proof.pipeline(spark, per_batch=3)).recovery
    assert set(recovered.rolled_back) == {"iceberg", "delta"}
    assert proof.differing(truth.cut((recovered.epoch + 1, 1), (12, 3))) == {}


def test_a_topic_that_holds_epochs_which_nobody_knows_is_refused_unless_it_may_get_rows_twice(
    spark: SparkSession, prove: Prove, truth: Truth
) -> None:
    proof = prove("delta", "kafka")
    run(proof, spark, 8, every="3 batches")
    proof.damage_checkpoints(after=4)
    lose_ledgers(proof)
    claims, rows = len(proof.stored.world().claims), proof.rows()
    proof.inputs(12)
    with pytest.raises(SinksAhead, match="kafka"):
        proof.run(proof.pipeline(spark, per_batch=3))
    assert (len(proof.stored.world().claims), proof.rows()) == (claims, rows), "nothing was touched"
    recovered = proof.run(proof.pipeline(spark, per_batch=3), accept=["duplicates:kafka"]).recovery
    wrong = proof.differing(truth.cut((recovered.epoch + 1, 1), (12, 3)))
    assert wrong.keys() == {"kafka"}
    assert wrong["kafka"][0] == set(), "twice, and nothing lost"


def own_table(proof: Proof) -> None:
    """A table of the user's own, which does not tell the epochs of its rows: nothing can be taken back from it."""
    with closing(sqlite3.connect(proof.targets["sqlite"].place)) as db:
        db.execute('CREATE TABLE sums (start INTEGER, "key" TEXT, n INTEGER, total INTEGER)')


def test_a_table_that_can_not_give_rows_back_is_known_to_whoever_comes_next_though_the_machine_is_lost(
    spark: SparkSession, prove: Prove, truth: Truth
) -> None:
    proof = prove("sqlite")
    own_table(proof)
    proof.inputs(8)
    with pytest.raises(PySparkException):
        proof.run(proof.pipeline(spark, reach=die_at("committed sqlite", 5)), every="3 batches")
    proof.lose_home()
    proof.inputs(12)
    recovered = proof.run(proof.pipeline(spark, per_batch=4)).recovery
    assert recovered.rolled_back == ()
    assert proof.differing(truth.cut((5, 1), (12, 4))) == {}


def test_a_table_that_can_not_give_rows_back_may_get_them_twice_where_nobody_knows_its_epochs(
    spark: SparkSession, prove: Prove, truth: Truth
) -> None:
    proof = prove("sqlite", "parquet")
    own_table(proof)
    run(proof, spark, 8, every="3 batches")
    proof.damage_checkpoints(after=4)
    lose_ledgers(proof)
    claims, rows = len(proof.stored.world().claims), proof.rows()
    with pytest.raises(SinksAhead, match="sqlite"):
        proof.run(proof.pipeline(spark, per_batch=3))
    assert (len(proof.stored.world().claims), proof.rows()) == (claims, rows), "nothing was touched"
    recovered = proof.run(proof.pipeline(spark, per_batch=3), accept=["duplicates:sqlite"]).recovery
    wrong = proof.differing(truth.cut((recovered.epoch + 1, 1), (8, 3)))
    assert wrong.keys() == {"sqlite"}
    assert wrong["sqlite"][0] == set(), "twice, and nothing lost"


# ---- by rewinds ----


def test_rewound_run_and_rewound_again_to_the_same_place_all_sinks_go_along(
    spark: SparkSession, prove: Prove, truth: Truth
) -> None:
    proof = prove("delta upsert", "duckdb", "parquet")
    run(proof, spark, 6)
    proof.stored["epoch:4"].savepoint("before")
    before = truth(6)
    for files, per_batch in ((9, 3), (10, 2), (12, 1)):
        cut_manifest(proof)
        proof.rewind(proof.pipeline(spark), "before")
        back = proof.rows()
        assert back["delta-upsert"] == back["duckdb"] == back["parquet"]
        assert set(back["duckdb"]) <= set(before)
        run(proof, spark, files, per_batch)
    assert proof.differing(truth(12)) == {}


def test_a_rewind_holds_though_the_next_run_dies_before_its_first_checkpoint(
    spark: SparkSession, prove: Prove, truth: Truth
) -> None:
    """By a clock the newest checkpoint is one that was given up, and its sinks were taken back."""
    proof = prove("sqlite", "parquet")
    run(proof, spark, 6)
    proof.stored["epoch:2"].savepoint("before")
    proof.rewind(proof.pipeline(spark), "before")
    with pytest.raises(PySparkException):
        proof.run(proof.pipeline(spark, per_batch=2, reach=die_at("committed sqlite")))
    assert proof.run(proof.pipeline(spark, per_batch=3)).recovery.epoch == 2
    assert proof.differing(truth.cut((3, 1), (5, 2), (6, 3))) == {}


def test_a_pruned_checkpoint_takes_no_decision_with_it(spark: SparkSession, prove: Prove, truth: Truth) -> None:
    """From an old savepoint all epochs since run again as they were cut, though no checkpoint in between is left."""
    proof = prove("sqlite", "parquet")
    run(proof, spark, 8)
    proof.stored["epoch:1"].savepoint("early")
    proof.stored.prune(KeepPolicy(last=2), dry_run=False)
    run(proof, spark, 9)  # A run trims the ledgers by the checkpoints that there are.
    proof.stored.prune(KeepPolicy(last=2), dry_run=False)
    epochs = [checkpoint.epoch for checkpoint in proof.stored.checkpoints()]
    assert epochs == [1, *epochs[-2:]]
    assert epochs[1] > 5
    proof.damage_checkpoints(after=1)
    proof.lose_home()
    proof.inputs(12)
    assert truth.cut((9, 1), (12, 4)) != truth.cut((2, 1), (12, 4)), "or this shows nothing"
    recovered = proof.run(proof.pipeline(spark, per_batch=4)).recovery
    assert (recovered.epoch, recovered.replays) == (1, range(2, 9))
    assert proof.differing(truth.cut((9, 1), (12, 4))) == {}


def sideways(proof: Proof, spark: SparkSession) -> None:
    """Run to a savepoint, and leave the timeline that it is on."""
    run(proof, spark, 6)
    proof.stored["epoch:2"].savepoint("early")
    proof.stored["epoch:5"].savepoint("late")
    proof.rewind(proof.pipeline(spark), "early")
    run(proof, spark, 9, per_batch=2)


def test_tables_with_versions_jump_to_a_savepoint_of_a_timeline_that_was_left(
    spark: SparkSession, prove: Prove, truth: Truth
) -> None:
    proof = prove("delta", "iceberg", "parquet")
    sideways(proof, spark)
    proof.rewind(proof.pipeline(spark), "late")
    run(proof, spark, 12)
    assert proof.differing(truth(12)) == {}


def test_a_database_among_them_refuses_to_jump_before_anything_is_touched(
    spark: SparkSession, prove: Prove, truth: Truth
) -> None:
    proof = prove("delta", "duckdb")
    sideways(proof, spark)
    claims, rows = len(proof.stored.world().claims), proof.rows()
    with pytest.raises(SinksAhead, match=r"duckdb: .*only go back the way that it came"):
        proof.rewind(proof.pipeline(spark), "late")
    assert (len(proof.stored.world().claims), proof.rows()) == (claims, rows)
    run(proof, spark, 12)
    assert proof.differing(truth.cut((3, 1), (9, 2), (12, 1))) == {}


def forked(proof: Proof, beside: Proof, spark: SparkSession, of: str) -> Pipeline:
    """The same pipeline under another name, with targets and directories of its own, begun with a checkpoint."""
    beside.inputs(1)
    beside.repository = proof.repository
    pipeline = beside.pipeline(spark)
    pipeline.name, pipeline.sources = "fork", proof.pipeline(spark).sources
    pipeline.fork(proof.repository, of=of, checkpoint_dir=beside.home)
    return pipeline


def test_a_fork_goes_on_beside_the_pipeline_that_it_was_made_from(
    spark: SparkSession, prove: Prove, truth: Truth, tmp_path: Path
) -> None:
    proof = prove("delta", "duckdb")
    run(proof, spark, 6)
    before = proof.rows()["delta"]
    beside = Proof.of(("delta", "duckdb"), tmp_path / "beside", lambda _name: None)
    pipeline = forked(proof, beside, spark, of="sums")
    run(proof, spark, 12)
    beside.run(pipeline)
    assert proof.differing(truth(12)) == {}
    for rows in beside.rows().values():
        assert sorted(before + rows) == truth(12)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("kinds", CROWDS, ids=" + ".join)
def test_every_kind_of_sink_goes_back_and_on_again_and_has_forks(
    spark: SparkSession, prove: Prove, truth: Truth, tmp_path: Path, request: pytest.FixtureRequest, kinds: tuple[str]
) -> None:
    proof = prove(*kinds)
    mode = proof.output_mode
    run(proof, spark, 6)
    proof.stored["epoch:4"].savepoint("before")
    # An older checkpoint, with the sinks ahead of it: epochs run again as they were cut, though batches are larger now.
    run(proof, spark, 9, every="100 batches")
    proof.damage_checkpoints(after=6)
    proof.lose_home()
    proof.inputs(12)
    recovered = proof.run(proof.pipeline(spark, per_batch=3)).recovery
    assert recovered.replays
    assert proof.differing(truth.cut((9, 1), (12, 3), output_mode=mode)) == {}
    # Back, on, and back to the same place; a topic can't.
    for files in (13, 15):
        if "kafka" in proof.targets:
            with pytest.raises(SinksAhead, match="kafka"):
                proof.rewind(proof.pipeline(spark), "before")
            assert proof.differing(truth.cut((9, 1), (12, 3), output_mode=mode)) == {}
        else:
            proof.rewind(proof.pipeline(spark), "before")
            run(proof, spark, files)
            assert proof.differing(truth(files, mode)) == {}
    beside = Proof.of(kinds, tmp_path / "beside", request.getfixturevalue)
    pipeline = forked(proof, beside, spark, of="sums@before")
    proof.inputs(15)
    beside.run(pipeline)
    for rows in beside.rows().values():
        assert sorted((truth(5) if mode == "append" else []) + rows) == truth(15, mode)
