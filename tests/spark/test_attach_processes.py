"""Attached queries in processes of their own: killed at any instant, ended without a word, in other modes of Spark."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import holdfast
from holdfast.handles import Repository
from servers import KafkaServer, kafka_conf
from spark.attaching import assert_counts, committed, until
from spark.replay import assert_all_restore

TESTS = Path(__file__).resolve().parents[1]


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return holdfast.open(str(tmp_path / "repository"), create=True)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where Spark keeps its checkpoint."""
    return tmp_path / "checkpoint"


def program(name: str, repository: Repository, place: Path, **more: object) -> list[str]:
    given = {"repository": repository.url, "place": str(place), **more}
    return [sys.executable, "-m", "spark.attach_programs", name, json.dumps(given)]


def ran(name: str, repository: Repository, place: Path, **more: object) -> Any:
    """What a program told, having ended well."""
    command = program(name, repository, place, **more)
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    lines = done.stdout.splitlines()
    return json.loads(lines[-1]) if lines else None


# ---- the end of the interpreter ----


def test_the_last_batch_is_captured_when_the_program_ends_right_after_its_query(
    repository: Repository, place: Path
) -> None:
    for _ in range(2):
        ran("end_without_a_word", repository, place)
        latest = repository.pipeline("counts").latest()
        assert latest is not None
        assert latest.epoch == committed(place)


def test_the_last_batch_is_captured_when_the_program_ends_before_its_query(
    repository: Repository, place: Path, tmp_path: Path
) -> None:
    told = ran("end_before_the_query", repository, place)
    assert assert_all_restore(repository.pipeline("counts").records, tmp_path)[-1] >= told


def test_a_store_that_hangs_does_not_keep_the_program_from_ending(repository: Repository, place: Path) -> None:
    ran("end_though_the_store_hangs", repository, place)


# ---- SIGKILL ----


def kill_in_rounds(spark: SparkSession, repository: Repository, place: Path, folder: Path, rounds: int) -> None:
    """Each round starts Spark where the last one was killed, and attaches anew."""
    pipeline = repository.pipeline("counts")
    for _ in range(rounds):
        before = len(pipeline.checkpoints()) if pipeline.exists() else 0
        with (folder / "log").open("ab") as log:
            process = subprocess.Popen(
                program("run_for_ever", repository, place),
                env={**os.environ, "PYTHONPATH": str(TESTS)},
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        try:
            until(lambda before=before: pipeline.exists() and len(pipeline.checkpoints()) > before + 3)
            time.sleep(random.uniform(0, 0.5))
        finally:
            process.kill()
            process.wait()
        taken = assert_all_restore(pipeline.records, folder)
        assert taken == sorted(taken)
        assert not pipeline.check(read_percent=100).damaged
    assert pipeline.generations()[-1].number == rounds - 1
    for checkpoint in random.sample(pipeline.checkpoints(), 2):
        assert_counts(spark, checkpoint, folder)


def test_a_driver_that_is_killed_leaves_only_checkpoints_that_restore(
    spark: SparkSession, repository: Repository, place: Path, tmp_path: Path
) -> None:
    kill_in_rounds(spark, repository, place, tmp_path, rounds=2)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_driver_that_is_killed_again_and_again_leaves_only_checkpoints_that_restore(
    spark: SparkSession, repository: Repository, place: Path, tmp_path: Path
) -> None:
    kill_in_rounds(spark, repository, place, tmp_path, rounds=25)


# ---- other modes ----


def test_a_query_in_real_time_mode_is_captured_and_counts_on(
    kafka_server: KafkaServer, repository: Repository, place: Path
) -> None:
    kafka_server.make_topic("in")
    kafka_server.make_topic("out")
    told = ran("run_in_real_time", repository, place, bootstrap=kafka_server.bootstrap, conf=kafka_conf())
    assert told["found"], "at least one had records left to count"
    assert set(told["found"].values()) == {told["sent"]}
    assert told["stopped"] == committed(place)
    assert told["interrupted"]


def test_a_query_on_spark_connect_is_captured_where_its_directory_is_given(
    spark: SparkSession, repository: Repository, place: Path, tmp_path: Path
) -> None:
    told = ran("run_on_connect", repository, place)
    assert "directory=" in told["refused"]
    assert told["version"] == spark.version
    assert told["asked"] <= told["stopped"] < told["last"] == committed(place)
    taken = assert_all_restore(repository.pipeline("counts").records, tmp_path)
    assert {told["asked"], told["stopped"], told["last"]} <= set(taken)
