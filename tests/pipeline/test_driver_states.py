"""What the driver keeps in Python goes with each epoch: through a crash, a replay, a rewind and a fork."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from holdfast.pipeline.pipeline import Pipeline
from holdfast.sinks.sql import EPOCH
from holdfast.sinks.staged import StagedRows
from pipeline.proof import CONF, NOW, Proof, Prove, die_at, read_events, summed
from pipeline.targets import TABLE, Target, open_sink
from spark.workloads import configured


class Driver:
    """A driver that counts in Python what each epoch put out, and how often it was asked to."""

    def __init__(self) -> None:
        self.rows: Counter[int] = Counter()
        self.times: Counter[int] = Counter()
        self.asked: list[int] = []
        """By this very driver."""

    @property
    def kept(self) -> dict[str, Any]:
        return {"states": {"rows": self.rows, "times": self.times}, "on_epoch": self.count}

    def count(self, epoch: int, rows: StagedRows) -> None:
        self.asked.append(epoch)
        self.times[epoch] += 1
        self.rows[epoch] += rows.staged.rows


def run(proof: Proof, spark: SparkSession, **more: Any) -> Driver:
    """Run to the end of the input with a new driver, which knows nothing of those before it."""
    driver = Driver()
    proof.run(proof.pipeline(spark, **driver.kept, **more), every="1 batch")
    return driver


def put_out(path: str) -> Counter[int]:
    """How many rows of each epoch the table has."""
    with closing(sqlite3.connect(path)) as db:
        return Counter(dict(db.execute(f"SELECT {EPOCH}, COUNT(*) FROM {TABLE} GROUP BY 1")))


def check(proof: Proof, driver: Driver, epochs: int) -> None:
    """Each epoch was counted once, and as the sink has it."""
    assert driver.times == dict.fromkeys(range(epochs), 1)
    assert +driver.rows == put_out(proof.targets["sqlite"].place)


@pytest.fixture
def proof(prove: Prove) -> Proof:
    return prove("sqlite")


def test_after_a_crash_an_epoch_is_counted_once_whether_it_was_decided_or_not(
    spark: SparkSession, proof: Proof
) -> None:
    proof.inputs(6)
    for step in ("prepared", "looked", "committed"):
        with pytest.raises(PySparkException):
            run(proof, spark, reach=die_at(step, 2))
    check(proof, run(proof, spark), 6)


def test_an_epoch_that_is_run_again_for_its_state_is_not_counted_again(spark: SparkSession, proof: Proof) -> None:
    proof.inputs(6)
    run(proof, spark)
    proof.damage_checkpoints(after=2)
    proof.lose_home()
    proof.inputs(8)
    driver = run(proof, spark)
    assert driver.asked == [6, 7], "epochs 3 to 5 were run again, and their states were recorded"
    check(proof, driver, 8)


def test_a_rewind_takes_them_back_with_the_sinks_and_a_fork_begins_with_them(
    spark: SparkSession, proof: Proof, tmp_path: Path
) -> None:
    proof.inputs(6)
    run(proof, spark)
    next(each for each in proof.stored.checkpoints() if each.epoch == 3).savepoint("before")
    rewound = Driver()
    proof.rewind(proof.pipeline(spark, **rewound.kept), "before")
    assert rewound.asked == []
    check(proof, rewound, 4)

    table = Target("sqlite", "append", str(tmp_path / "forked.db"))
    forked = Driver()
    fork = Pipeline(
        "fork",
        sources={"events": read_events(spark, proof.root, 1)},
        query=summed,
        sinks={"sqlite": open_sink(table)},
        **forked.kept,
    )
    fork.fork(proof.repository, of="sums@before", checkpoint_dir=tmp_path / "fork")
    assert (forked.rows, forked.times) == (rewound.rows, rewound.times)
    with configured(spark, CONF):
        fork.start(proof.repository, checkpoint_dir=tmp_path / "fork", trigger=NOW).await_termination()
    assert forked.asked == [4, 5]
    assert forked.times == dict.fromkeys(range(6), 1)

    check(proof, run(proof, spark), 6)
    after = {epoch: rows for epoch, rows in put_out(proof.targets["sqlite"].place).items() if epoch > 3}
    assert put_out(table.place) == after, "its own table has only what came after the savepoint"
