"""Attached queries in processes of their own: killed at any instant, ended without a word, in other modes of Spark."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import holdfast
from holdfast.handles import Repository
from servers import KafkaServer, kafka_conf
from spark.attaching import assert_counts, committed, until
from spark.programs import ran, running
from spark.replay import assert_all_restore
from spark.soaking import soak_chance, soak_rounds


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return holdfast.open(str(tmp_path / "repository"), create=True)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where Spark keeps its checkpoint."""
    return tmp_path / "checkpoint"


# ---- the end of the interpreter ----


def test_the_last_batch_is_captured_when_the_program_ends_right_after_its_query(
    repository: Repository, place: Path
) -> None:
    for _ in range(2):
        ran("end_without_a_word", repository=repository.url, place=place)
        latest = repository.pipeline("counts").latest()
        assert latest is not None
        assert latest.epoch == committed(place)


def test_the_last_batch_is_captured_when_the_program_ends_before_its_query(
    repository: Repository, place: Path, tmp_path: Path
) -> None:
    told = ran("end_before_the_query", repository=repository.url, place=place)
    assert assert_all_restore(repository.pipeline("counts").records, tmp_path)[-1] >= told


def test_a_store_that_hangs_does_not_keep_the_program_from_ending(repository: Repository, place: Path) -> None:
    ran("end_though_the_store_hangs", repository=repository.url, place=place)


# ---- SIGKILL ----


def kill_in_rounds(
    spark: SparkSession, repository: Repository, place: Path, folder: Path, rounds: int, chance: random.Random
) -> None:
    """Each round starts Spark where the last one was killed, and attaches anew."""
    pipeline = repository.pipeline("counts")
    for _ in range(rounds):
        before = len(pipeline.world().slots)
        with running("run_for_ever", folder / "log", repository=repository.url, place=place) as program:
            until(lambda before=before: len(pipeline.world().slots) > before + 3)
            time.sleep(chance.uniform(0, 0.5))
            program.kill()
        taken = assert_all_restore(pipeline.records, folder)
        assert taken == sorted(taken)
        assert not pipeline.check(read_percent=100).damaged
    assert pipeline.generations()[-1].number == rounds - 1
    for checkpoint in chance.sample(pipeline.checkpoints(), 2):
        assert_counts(spark, checkpoint, folder)


def test_a_driver_that_is_killed_leaves_only_checkpoints_that_restore(
    spark: SparkSession, repository: Repository, place: Path, tmp_path: Path
) -> None:
    kill_in_rounds(spark, repository, place, tmp_path, 2, random.Random(3))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_driver_that_is_killed_again_and_again_leaves_only_checkpoints_that_restore(
    spark: SparkSession, repository: Repository, place: Path, tmp_path: Path
) -> None:
    kill_in_rounds(spark, repository, place, tmp_path, soak_rounds(25), soak_chance())


# ---- other modes ----


def test_a_query_in_real_time_mode_is_captured_and_counts_on(
    kafka_server: KafkaServer, repository: Repository, place: Path
) -> None:
    kafka_server.make_topic("in")
    kafka_server.make_topic("out")
    given = {"repository": repository.url, "place": place, "bootstrap": kafka_server.bootstrap}
    told = ran("run_in_real_time", **given, conf=kafka_conf())
    assert told["found"], "at least one had records left to count"
    assert set(told["found"].values()) == {told["sent"]}
    assert told["stopped"] == committed(place)
    assert told["interrupted"]


def test_a_query_on_spark_connect_is_captured_where_its_directory_is_given(
    spark: SparkSession, repository: Repository, place: Path, tmp_path: Path
) -> None:
    told = ran("run_on_connect", repository=repository.url, place=place)
    assert "directory=" in told["refused"]
    assert told["version"] == spark.version
    assert told["asked"] <= told["stopped"] < told["last"] == committed(place)
    taken = assert_all_restore(repository.pipeline("counts").records, tmp_path)
    assert {told["asked"], told["stopped"], told["last"]} <= set(taken)
