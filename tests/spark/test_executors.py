"""SIGKILL of executors, and of the driver of a cluster: the query goes on, and whatever was captured restores."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import holdfast
from holdfast.handles import StoredPipeline
from servers import SparkCluster
from spark.attaching import assert_counts, committed, until
from spark.executors import LOCAL_CLUSTER, LOCAL_CLUSTER_CONF, executors_of, make_home
from spark.programs import Program, running
from spark.replay import assert_all_restore
from spark.soaking import soak_chance, soak_rounds

STORES = ["changelog", "changelog-2"]


@dataclass(frozen=True)
class Cluster:
    """Where a query runs: two executors take its tasks, and all see the same disk."""

    master: str
    conf: dict[str, str]
    environment: dict[str, str]


@pytest.fixture
def standalone(spark_cluster: SparkCluster) -> Cluster:
    return Cluster(spark_cluster.master, spark_cluster.conf, {})


@pytest.fixture
def local_cluster(tmp_path: Path) -> Cluster:
    return Cluster(LOCAL_CLUSTER, LOCAL_CLUSTER_CONF, {"SPARK_HOME": str(make_home(tmp_path / "home"))})


class Captured:
    """A query on a cluster with every batch captured."""

    def __init__(self, cluster: Cluster, store: str, root: Path) -> None:
        self._cluster, self._store, self._root = cluster, store, root
        self.place = root / "checkpoint"
        self.pipeline: StoredPipeline = holdfast.open(str(root / "repository"), create=True).pipeline("counts")

    def start(self) -> AbstractContextManager[Program]:
        return running(
            "run_for_ever",
            self._root / "log",
            self._cluster.environment,
            place=self.place,
            repository=self.pipeline.repository.url,
            master=self._cluster.master,
            conf=self._cluster.conf,
            store=self._store,
        )

    def await_captures(self, count: int) -> None:
        before = len(self.pipeline.world().slots)
        until(lambda: len(self.pipeline.world().slots) >= before + count, (self._root / "log").read_text()[-2000:])

    def assert_good(self, spark: SparkSession, chance: random.Random, counted: int) -> None:
        epochs = assert_all_restore(self.pipeline.records, self._root)
        assert epochs == sorted(epochs)
        assert epochs[-1] <= committed(self.place)
        assert self.pipeline.check(read_percent=100).damaged == []
        for checkpoint in chance.sample(self.pipeline.checkpoints(), counted):
            assert_counts(spark, checkpoint, self._root)


def kill_executors(captured: Captured, rounds: int, chance: random.Random) -> None:
    """Kill one executor, or both, in each round; the driver must live through all of them."""
    with captured.start() as program:
        port = program.told()
        for _ in range(rounds):
            until(lambda: len(executors_of(port)) == 2, "two executors")
            captured.await_captures(2)
            time.sleep(chance.uniform(0, 1))
            for victim in chance.sample(executors_of(port), chance.choice([1, 1, 2])):
                os.kill(victim, signal.SIGKILL)
        captured.await_captures(2)
        program.kill()


def kill_drivers(captured: Captured, rounds: int, chance: random.Random) -> None:
    """Kill the driver in each round, and start another where it was."""
    for _ in range(rounds):
        with captured.start() as program:
            captured.await_captures(3)
            time.sleep(chance.uniform(0, 1))
            program.kill()


def test_executors_of_a_cluster_that_are_killed_leave_only_checkpoints_that_restore(
    spark: SparkSession, standalone: Cluster, tmp_path: Path
) -> None:
    captured, chance = Captured(standalone, "changelog-2", tmp_path), random.Random(0)
    kill_executors(captured, 1, chance)
    captured.assert_good(spark, chance, counted=1)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("kind", ["standalone", "local_cluster"])
def test_executors_that_are_killed_again_and_again_leave_only_checkpoints_that_restore(
    spark: SparkSession, request: pytest.FixtureRequest, kind: str, store: str, tmp_path: Path
) -> None:
    captured, chance = Captured(request.getfixturevalue(kind), store, tmp_path), soak_chance()
    kill_executors(captured, soak_rounds(25), chance)
    captured.assert_good(spark, chance, counted=5)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("store", STORES)
def test_drivers_of_a_cluster_that_are_killed_again_and_again_leave_only_checkpoints_that_restore(
    spark: SparkSession, standalone: Cluster, store: str, tmp_path: Path
) -> None:
    captured, chance = Captured(standalone, store, tmp_path), soak_chance()
    kill_drivers(captured, soak_rounds(25), chance)
    captured.assert_good(spark, chance, counted=5)
