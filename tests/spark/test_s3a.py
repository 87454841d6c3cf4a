"""A query whose checkpointLocation is in S3: captured there while it runs, into S3, restored to S3, and run on."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import holdfast
from holdfast.handles import Repository
from servers import S3Server, s3a_conf
from spark.attaching import assert_counts, until
from spark.programs import running
from spark.remote import remote_spark
from spark.replay import assert_all_restore
from spark.soaking import soak_chance, soak_rounds
from spark.watching import WatchProcess


@pytest.fixture
def repository(s3_server: S3Server, s3_url: str) -> Repository:
    return holdfast.open(f"{s3_url}/repository", create=True, options=s3_server.options)


@pytest.fixture
def s3a(s3_url: str) -> str:
    return s3_url.replace("s3://", "s3a://")


def retaining(server: S3Server, batches: int) -> dict[str, str]:
    return {**s3a_conf(server), "spark.sql.streaming.minBatchesToRetain": str(batches)}


# ---- by watch ----


def watch_in_s3(
    repository: Repository,
    server: S3Server,
    s3a: str,
    root: Path,
    batches: int,
    retain: int,
    cuts: int,
    chance: random.Random,
) -> int:
    """Watch a query from its first batch to its last, run on from some captures, and give how many there were."""
    options = [word for name, value in server.options.items() for word in ("--repo-option", f"{name}={value}")]
    options += [word.replace("--repo-option", "--dir-option") for word in options]
    given = {"name": "window", "store": "changelog-2", "inputs": root / "inputs", "upto": batches}
    pipeline = repository.pipeline("p")
    with remote_spark(root, retaining(server, retain)) as spark:
        with WatchProcess(f"{s3a}/live", repository.url, root / "log", "--quiet", "5s", *options) as watch:
            truth = {int(batch): rows for batch, rows in spark("workload", **given, checkpoint=f"{s3a}/live").items()}
            until(lambda: (latest := pipeline.latest()) is not None and latest.epoch == max(truth), "the last batch")
            watch.end()
        assert watch.events("failed", "ended") == []
        epochs = assert_all_restore(pipeline.records, root)
        assert epochs[-1] == max(truth)
        # After a restart a batch without data, as the last one may be, waits for more.
        for cut in chance.sample([epoch for epoch in epochs if epoch < max(truth) - 2][-30:], cuts):
            laid = pipeline[f"epoch:{cut}"].restore(f"{s3a}/from-{cut}", options=server.options)
            rest = spark("workload", **given, checkpoint=laid.destination)
            assert {int(batch): rows for batch, rows in rest.items()} == {n: truth[n] for n in truth if n > cut}
    return len(epochs)


def test_a_query_in_s3_is_watched_and_runs_on_there(
    repository: Repository, s3_server: S3Server, s3a: str, tmp_path: Path
) -> None:
    watch_in_s3(repository, s3_server, s3a, tmp_path, 8, 100, 1, random.Random(3))


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("retain", [2, 100])
def test_hundreds_of_captures_of_a_query_in_s3_restore(
    repository: Repository, s3_server: S3Server, s3a: str, tmp_path: Path, retain: int
) -> None:
    batches = soak_rounds(200)
    captures = watch_in_s3(repository, s3_server, s3a, tmp_path, batches, retain, 4, soak_chance())
    print(f"{captures} captures of {batches} batches")


# ---- by attach ----


def attach_in_s3(
    spark: SparkSession,
    repository: Repository,
    server: S3Server,
    s3a: str,
    root: Path,
    captures: int,
    retain: int,
    chance: random.Random,
) -> None:
    """Kill a driver that has captured every batch so far, and count on from some of them."""
    pipeline = repository.pipeline("counts")
    given = {"repository": repository.url, "options": server.options, "conf": retaining(server, retain)}
    with running("run_for_ever", root / "log", **given, place=f"{s3a}/live", store="changelog-2") as program:
        for count in range(captures):
            until(lambda count=count: len(pipeline.world().slots) > count, (root / "log").read_text()[-2000:])
            time.sleep(0.1)
        program.kill()
    epochs = assert_all_restore(pipeline.records, root)
    assert epochs == sorted(epochs)
    assert pipeline.check(read_percent=100).damaged == []
    for checkpoint in chance.sample(pipeline.checkpoints(), 2):
        assert_counts(spark, checkpoint, root)


def test_a_query_in_s3_is_attached_to_and_counts_on(
    spark: SparkSession, repository: Repository, s3_server: S3Server, s3a: str, tmp_path: Path
) -> None:
    attach_in_s3(spark, repository, s3_server, s3a, tmp_path, 4, 100, random.Random(3))


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("retain", [2, 100])
def test_hundreds_of_captures_by_attach_of_a_query_in_s3_restore(
    spark: SparkSession, repository: Repository, s3_server: S3Server, s3a: str, tmp_path: Path, retain: int
) -> None:
    attach_in_s3(spark, repository, s3_server, s3a, tmp_path, soak_rounds(200), retain, soak_chance())
