"""A job on a schedule: each run takes what is there and ends, and its last batch is captured and goes on."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import holdfast
from holdfast.checkpoint import Checkpoint
from holdfast.spark.lay import lay_down
from spark.attaching import committed
from spark.replay import assert_all_restore
from spark.soaking import soak_chance, soak_rounds
from spark.workloads import STORES, WORKLOADS, Outputs, run


@dataclass(frozen=True)
class Run:
    """One run of the job, on the input up to a batch of events."""

    upto: int
    outputs: Outputs
    checkpoint: Checkpoint


class Job:
    """A query under AvailableNow, which is run again whenever more input has come."""

    def __init__(self, spark: SparkSession, name: str, store: str, root: Path) -> None:
        self._spark, self._workload, self._store = spark, WORKLOADS[name], store
        self._root = root
        self._repository = holdfast.open(str(root / "repository"), create=True)
        self.runs: list[Run] = []

    def run_once(self, more: int) -> None:
        """Run on so many more batches of events, to the end, and capture the last batch."""
        live = self._root / "live"
        upto = more + (self.runs[-1].upto if self.runs else 0)
        outputs = self._run(str(live), upto)
        checkpoint = holdfast.capture(live, self._repository, pipeline="job", stopped=True)
        assert checkpoint.epoch == committed(live) == max(outputs)
        self.runs.append(Run(upto, outputs, checkpoint))

    def go_on_from(self, number: int) -> None:
        """Restore what one run left: the runs after it, on the input that each of them had, put out the same."""
        checkpoint = self.runs[number].checkpoint
        laid = lay_down(checkpoint.pipeline.records, checkpoint.manifest, str(self._root / f"from-{checkpoint.epoch}"))
        for file in self._root.glob("inputs/*/*.json"):
            if int(file.stem) >= self.runs[number].upto:
                file.unlink()
        for later in self.runs[number + 1 :]:
            outputs = self._run(laid.destination, later.upto)
            assert outputs == later.outputs, f"from epoch {checkpoint.epoch} on, the run up to {later.upto}"

    def _run(self, place: str, upto: int) -> Outputs:
        return run(self._spark, self._workload, self._store, self._root / "inputs", place, upto=upto)


def run_in_a_row(job: Job, root: Path, runs: int, chance: random.Random, gone_on: int) -> None:
    for _ in range(runs):
        job.run_once(chance.randint(1, 3))
    epochs = [each.checkpoint.epoch for each in job.runs]
    assert assert_all_restore(job.runs[0].checkpoint.pipeline.records, root) == epochs
    for number in chance.sample(range(runs - 1), gone_on):
        job.go_on_from(number)


def test_the_last_batch_of_each_run_is_captured_and_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    run_in_a_row(Job(spark, "window", "changelog-2", tmp_path), tmp_path, 3, random.Random(5), gone_on=1)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("name", "store"),
    [*(("window", store) for store in STORES), ("join-left-2", "hdfs"), ("tws-pandas", "changelog-2")],
)
def test_the_last_batch_of_each_of_many_runs_is_captured_and_goes_on(
    spark: SparkSession, name: str, store: str, tmp_path: Path
) -> None:
    run_in_a_row(Job(spark, name, store, tmp_path), tmp_path, soak_rounds(20), soak_chance(), gone_on=3)
