"""`holdfast watch` beside a real query at full speed: whatever it publishes restores, whoever is killed."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import holdfast
from holdfast.handles import Repository
from spark.attaching import assert_counts, counting, until
from spark.programs import running
from spark.replay import assert_all_restore
from spark.soaking import soak_chance, soak_rounds
from spark.watching import WatchProcess


@pytest.fixture(autouse=True)
def _no_query_is_left(spark: SparkSession) -> Iterator[None]:
    yield
    for query in spark.streams.active:
        query.stop()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return holdfast.open(str(tmp_path / "repository"), create=True)


def retaining(batches: int) -> dict[str, str]:
    return {"spark.sql.streaming.minBatchesToRetain": str(batches)}


def watch_at_full_speed(
    spark: SparkSession, repository: Repository, root: Path, retain: int, captures: int, chance: random.Random
) -> None:
    query = counting(spark, root / "live", conf=retaining(retain))
    with WatchProcess(root / "live", repository.url, root / "log") as watch:
        for count in range(captures):
            until(lambda count=count: len(watch.events("captured")) > count, "a capture")
            time.sleep(0.1)
        watch.end()
    assert query.isActive
    query.stop()
    assert watch.events("failed", "ended") == []
    pipeline = repository.pipeline("p")
    told = [event["epoch"] for event in watch.events("captured")]
    assert assert_all_restore(pipeline.records, root) == told
    for checkpoint in chance.sample(pipeline.checkpoints(), 3):
        assert_counts(spark, checkpoint, root)


@pytest.mark.parametrize("retain", [2, 100])
def test_whatever_is_watched_at_full_speed_restores(
    spark: SparkSession, repository: Repository, tmp_path: Path, retain: int
) -> None:
    watch_at_full_speed(spark, repository, tmp_path, retain, 30, random.Random(retain))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("retain", [2, 100])
def test_hundreds_of_captures_by_a_watch_at_full_speed_restore(
    spark: SparkSession, repository: Repository, tmp_path: Path, retain: int
) -> None:
    watch_at_full_speed(spark, repository, tmp_path, retain, soak_rounds(500), soak_chance())


def kill_watches(spark: SparkSession, repository: Repository, root: Path, rounds: int, chance: random.Random) -> None:
    """Kill a watch again and again; the query runs all the while, and each time all that is published is whole."""
    pipeline = repository.pipeline("p")
    query = counting(spark, root / "live", conf=retaining(3))
    for _ in range(rounds):
        published = len(pipeline.world().slots)
        with WatchProcess(root / "live", repository.url, root / "log") as watch:
            until(lambda published=published: len(pipeline.world().slots) > published)
            time.sleep(chance.uniform(0, 0.5))
            watch.kill()
        assert watch.events("failed", "ended") == []
        assert repository.pipeline("p").check(read_percent=100).damaged == []
    assert query.isActive
    query.stop()
    epochs = assert_all_restore(pipeline.records, root)
    assert epochs == sorted(epochs)
    assert len(epochs) >= rounds
    for checkpoint in chance.sample(pipeline.checkpoints(), 2):
        assert_counts(spark, checkpoint, root)


def test_a_watch_that_is_killed_beside_a_real_query_leaves_only_checkpoints_that_restore(
    spark: SparkSession, repository: Repository, tmp_path: Path
) -> None:
    kill_watches(spark, repository, tmp_path, 3, random.Random(7))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_watch_that_is_killed_again_and_again_beside_a_real_query_leaves_only_checkpoints_that_restore(
    spark: SparkSession, repository: Repository, tmp_path: Path
) -> None:
    kill_watches(spark, repository, tmp_path, soak_rounds(100), soak_chance())


def kill_drivers(spark: SparkSession, repository: Repository, root: Path, rounds: int, chance: random.Random) -> None:
    """Kill the driver again and again, and at times the watch before it; each is started again where it was."""
    pipeline = repository.pipeline("p")
    with ExitStack() as watches:

        def start_watch() -> WatchProcess:
            return watches.enter_context(WatchProcess(root / "live", repository.url, root / "log"))

        watch = start_watch()
        for _ in range(rounds):
            published = len(pipeline.world().slots)
            with running("run_for_ever", root / "driver-log", place=root / "live", conf=retaining(3)) as driver:
                if chance.random() < 0.3:
                    watch.kill()
                    watch = start_watch()
                until(lambda published=published: len(pipeline.world().slots) > published + 2)
                time.sleep(chance.uniform(0, 0.5))
                driver.kill()
            assert watch.events("failed", "ended") == []
            assert repository.pipeline("p").check(read_percent=100).damaged == []
        watch.end()
    assert len(pipeline.generations()) == 1, "it is one query, and one watch after the other went on with it"
    epochs = assert_all_restore(pipeline.records, root)
    assert epochs == sorted(epochs)
    for checkpoint in chance.sample(pipeline.checkpoints(), 3):
        assert_counts(spark, checkpoint, root)


def test_a_query_whose_driver_is_killed_is_followed_and_all_that_is_captured_restores(
    spark: SparkSession, repository: Repository, tmp_path: Path
) -> None:
    kill_drivers(spark, repository, tmp_path, 2, random.Random(1))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_query_whose_driver_is_killed_again_and_again_is_followed_and_all_that_is_captured_restores(
    spark: SparkSession, repository: Repository, tmp_path: Path
) -> None:
    kill_drivers(spark, repository, tmp_path, soak_rounds(25), soak_chance())
