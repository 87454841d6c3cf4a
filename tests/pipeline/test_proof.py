"""Pipelines into real tables, files and topics, killed, robbed of their directories, and overtaken: at every step, and
by chance. In the end each target holds what an uninterrupted run puts out: nothing lost, nothing doubled.

`make test` has a sample, `make soak` all steps with every kind of sink, alone and with others.
"""

from __future__ import annotations

import random
import shutil

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from holdfast.errors import Fenced
from holdfast.store import open_store
from pipeline.proof import (
    BY_AN_EXECUTOR,
    CROWDS,
    FOR_EXECUTORS,
    THREES,
    Proof,
    Prove,
    Truth,
    die_at,
    steps_of,
    steps_of_a_take_over,
)
from pipeline.targets import files_in
from servers import S3Server, s3a_conf
from spark.soaking import soak_chance, soak_rounds

WALKED = [*((kinds, False) for kinds in CROWDS), *((kinds, True) for kinds in FOR_EXECUTORS)]
"""Crowds of sinks, and whether all is left to Spark's executors: else they get few rows, which pass through Arrow."""
REMOTE = [("delta", "sqlite"), ("delta in s3", "postgres"), ("parquet in s3", "iceberg in s3")]

each_crowd = pytest.mark.parametrize(
    ("kinds", "by_executors"), WALKED, ids=[" + ".join(k) + " by executors" * more for k, more in WALKED]
)


def finish(proof: Proof, spark: SparkSession, truth: Truth, batches: int, why: str = "") -> None:
    """Run to the end of the input, which every target then holds once."""
    proof.inputs(batches)
    proof.run(proof.pipeline(spark))
    assert proof.differing(truth(batches, proof.output_mode)) == {}, why
    if proof.by_executors:
        assert set(map(is_by_an_executor, proof.staged())) == {True}, "or this shows nothing of them"
        for kind, target in proof.targets.items():
            if target.kind in ("delta", "iceberg") and "in-s3" not in kind:
                assert any(map(is_by_an_executor, files_in(target))), kind


def is_by_an_executor(name: str) -> bool:
    return BY_AN_EXECUTOR.fullmatch(name) is not None


# ---- killed ----


def test_three_sinks_hold_the_truth_through_kills_before_and_after_the_decision_and_a_lost_directory(
    spark: SparkSession, prove: Prove, truth: Truth
) -> None:
    proof = prove("delta", "postgres", "kafka", by_executors=True)
    proof.inputs(10)
    assert proof.dies("prepared", 3)
    assert proof.dies("committed postgres", 2)
    proof.lose_home()
    finish(proof, spark, truth, 11)


def test_one_sink_holds_the_truth_through_a_kill_at_a_step_and_one_by_chance(
    spark: SparkSession, prove: Prove, truth: Truth
) -> None:
    proof = prove("iceberg in s3")
    proof.inputs(5)
    assert proof.dies("committed iceberg-in-s3", 2)
    proof.inputs(9)
    proof.dies_by_chance(random.Random(), 5)
    finish(proof, spark, truth, 10)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("lose", [False, True], ids=["directory kept", "directory lost"])
@each_crowd
def test_killed_at_every_step_nothing_is_lost_or_doubled(
    spark: SparkSession, prove: Prove, truth: Truth, kinds: tuple[str, ...], by_executors: bool, lose: bool
) -> None:
    proof = prove(*kinds, by_executors=by_executors)
    steps = steps_of(proof.targets)
    for number, step in enumerate(steps):
        proof.inputs(3 * number + 4)
        assert proof.dies(step, 2), step
        if lose:
            proof.lose_home()
    finish(proof, spark, truth, 3 * len(steps) + 4)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("by_executors", [False, True], ids=["through Arrow", "by executors"])
@pytest.mark.parametrize("kinds", THREES, ids=" + ".join)
def test_killed_by_chance_nothing_is_lost_or_doubled(
    spark: SparkSession, prove: Prove, truth: Truth, kinds: tuple[str, ...], by_executors: bool
) -> None:
    proof, chance, rounds = prove(*kinds, by_executors=by_executors), soak_chance(), soak_rounds(20)
    kills = losses = 0
    for number in range(rounds):
        proof.inputs(4 * number + 4)
        kills += proof.dies_by_chance(chance, 8)
        if proof.home.exists() and chance.random() < 0.25:
            proof.lose_home()
            losses += 1
    finish(proof, spark, truth, 4 * rounds + 4)
    print(f"{kills} of {rounds} were killed, and {losses} directories lost")


def put_in_s3(proof: Proof, server: S3Server, url: str) -> None:
    """Have Spark's directories there, where only a program of its own gets to."""
    proof.remotely = f"{url.replace('s3://', 's3a://')}/home"
    proof.options, proof.conf = server.options, s3a_conf(server)


def test_with_sparks_directory_and_a_table_in_s3_executors_write_the_files_of_the_table(
    prove: Prove, truth: Truth, s3_server: S3Server, s3_url: str
) -> None:
    proof = prove("delta in s3", "sqlite", by_executors=True)
    put_in_s3(proof, s3_server, s3_url)
    proof.inputs(8)
    assert proof.dies("committed sqlite", 5)
    assert proof.race(1) == [0]
    assert proof.differing(truth(8)) == {}
    names = files_in(proof.targets["delta-in-s3"])
    assert names
    assert [name for name in names if not is_by_an_executor(name)] == [], "staged in the table, and not copied to it"


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("kinds", REMOTE, ids=" + ".join)
def test_with_sparks_directory_in_s3_nothing_is_lost_or_doubled(
    prove: Prove, truth: Truth, s3_server: S3Server, s3_url: str, kinds: tuple[str, ...]
) -> None:
    proof = prove(*kinds)
    put_in_s3(proof, s3_server, s3_url)
    steps = steps_of(proof.targets)
    for number, step in enumerate(steps):
        proof.inputs(3 * number + 4)
        assert proof.dies(step, 2), step
    proof.inputs(3 * len(steps) + 4)
    assert proof.race(1) == [0]
    assert proof.differing(truth(3 * len(steps) + 4)) == {}
    assert len(left_in(proof, s3_url)) == 2, "the last directory, and the one before it"


def left_in(proof: Proof, s3_url: str) -> set[str]:
    """The folders of Spark's that hold something, and what is staged."""
    keys = [info.key for info in open_store(f"{s3_url}/home", proof.options).list("")]
    return {"/".join(key.split("/")[: 1 + key.startswith("staging")]) for key in keys if key[:4] in ("run-", "stag")}


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("step", ["begin", "staged", "prepared", "looked"])
def test_one_that_slept_beside_another_in_s3_is_fenced_though_its_staged_rows_were_swept(
    prove: Prove, truth: Truth, s3_server: S3Server, s3_url: str, step: str
) -> None:
    proof = prove("duckdb", "sqlite")
    put_in_s3(proof, s3_server, s3_url)
    proof.inputs(6)
    with proof.asleep(step, 3) as wake:
        assert proof.race(1) == [0]
        assert {name for name in left_in(proof, s3_url) if name.startswith("staging")} == set()
        assert proof.differing(truth(6)) == {}
        assert wake() == Fenced.exit_code
    assert proof.differing(truth(6)) == {}


# ---- overtaken ----


def overtake(
    proof: Proof, spark: SparkSession, truth: Truth, step: str, batches: int, elsewhere: bool = False, times: int = 2
) -> None:
    """One falls asleep at a step, another takes over and runs to the end, and the first goes on where it was."""
    proof.inputs(batches)
    with proof.asleep(step, times) as wake:
        home, asleep_in = proof.root / f"home-{batches}" if elsewhere else proof.home, {*proof.home.glob("run-*")}
        proof.run(proof.pipeline(spark), home=home)
        assert {*home.glob("run-*")} - asleep_in, "never two Sparks in one directory"
        assert proof.differing(truth(batches, proof.output_mode)) == {}, f"asleep at {step}"
        assert wake() == Fenced.exit_code, f"asleep at {step}"
    assert proof.differing(truth(batches, proof.output_mode)) == {}, f"asleep at {step}"


def test_one_that_slept_at_a_step_and_was_overtaken_is_fenced_by_every_sink(
    spark: SparkSession, prove: Prove, truth: Truth
) -> None:
    proof = prove("iceberg", "duckdb", "postgres upsert", by_executors=True)
    overtake(proof, spark, truth, "looked", 6)
    finish(proof, spark, truth, 8)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("elsewhere", [False, True], ids=["same folder", "another folder"])
@each_crowd
def test_one_that_slept_at_any_step_and_was_overtaken_is_fenced(
    spark: SparkSession, prove: Prove, truth: Truth, kinds: tuple[str, ...], by_executors: bool, elsewhere: bool
) -> None:
    proof = prove(*kinds, by_executors=by_executors)
    steps = steps_of(proof.targets)
    for number, step in enumerate(steps):
        overtake(proof, spark, truth, step, 5 * number + 5, elsewhere)
    finish(proof, spark, truth, 5 * len(steps) + 5)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("kinds", THREES, ids=" + ".join)
def test_of_several_drivers_at_once_the_last_to_claim_goes_on_and_the_others_are_fenced(
    spark: SparkSession, prove: Prove, truth: Truth, kinds: tuple[str, ...]
) -> None:
    proof, rounds = prove(*kinds), soak_rounds(10)
    codes: list[int] = []
    for number in range(rounds):
        proof.inputs(8 * number + 8)
        codes += proof.race(3)
    assert set(codes) <= {0, Fenced.exit_code}
    finish(proof, spark, truth, 8 * rounds + 8)
    print(f"{codes.count(Fenced.exit_code)} of {len(codes)} were fenced")


# ---- while they take over ----


def leave_off(proof: Proof, spark: SparkSession, *, lose: bool) -> None:
    """Have a run die amid the commits of its second epoch; then lose its directory, if asked to.

    Where all sinks can go back the ledger and what it captured are lost as well: each stands beyond all that is known.
    """
    records = proof.root / "repository/pipelines/sums"
    known, middle = {*records.glob("checkpoints/*/*")}, list(proof.targets)[1]
    with pytest.raises(PySparkException):
        proof.run(proof.pipeline(spark, reach=die_at(f"committed {middle}", 2)))
    if lose:
        proof.lose_home()
    if lose and "kafka" not in proof.targets:
        shutil.rmtree(records / "ledger")
        for lost in ({*records.glob("checkpoints/*/*")} - known, {records / "latest"}):
            for path in lost:
                path.unlink()


def test_a_start_killed_between_two_fences_and_one_asleep_between_two_sinks_that_go_back_change_nothing(
    spark: SparkSession, prove: Prove, truth: Truth
) -> None:
    proof = prove("sqlite", "duckdb", "parquet")
    finish(proof, spark, truth, 3)
    proof.inputs(6)
    leave_off(proof, spark, lose=True)
    assert proof.dies("fenced duckdb", 1)
    overtake(proof, spark, truth, "rolled back duckdb", 6, times=1)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("lose", [False, True], ids=["directory kept", "all lost"])
@pytest.mark.parametrize("kinds", THREES, ids=" + ".join)
def test_a_start_killed_at_any_step_of_its_take_over_leaves_it_to_the_next(
    spark: SparkSession, prove: Prove, truth: Truth, kinds: tuple[str, ...], lose: bool
) -> None:
    proof = prove(*kinds)
    proof.inputs(4)
    for step in steps_of_a_take_over(proof.targets):
        assert proof.dies(step, 1), f"the first of all, {step}"
    finish(proof, spark, truth, 4)
    steps = steps_of_a_take_over(proof.targets, goes_back=lose and "kafka" not in kinds)
    for number, step in enumerate(steps):
        proof.inputs(4 * number + 8)
        leave_off(proof, spark, lose=lose)
        assert proof.dies(step, 1), step
    finish(proof, spark, truth, 4 * len(steps) + 8)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("lose", [False, True], ids=["directory kept", "all lost"])
@pytest.mark.parametrize("kinds", THREES, ids=" + ".join)
def test_a_start_that_slept_at_any_step_of_its_take_over_and_was_overtaken_is_fenced(
    spark: SparkSession, prove: Prove, truth: Truth, kinds: tuple[str, ...], lose: bool
) -> None:
    proof = prove(*kinds)
    finish(proof, spark, truth, 4)
    steps = steps_of_a_take_over(proof.targets, goes_back=lose and "kafka" not in kinds)
    for number, step in enumerate(steps):
        proof.inputs(5 * number + 9)
        leave_off(proof, spark, lose=lose)
        overtake(proof, spark, truth, step, 5 * number + 9, times=1)
    finish(proof, spark, truth, 5 * len(steps) + 9)
