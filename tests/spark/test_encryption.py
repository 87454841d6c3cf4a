"""Spark queries and an encrypted repository: captured, watched and restored, also by executors that have no key."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import holdfast
from holdfast import Key, Repository
from holdfast.encryption.keys import TEXT
from spark.attaching import assert_counts, counting, until
from spark.directories import ROCKSDB, MadeDirectory
from spark.watching import WatchProcess

KEY = Key.generate()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return holdfast.open(str(tmp_path / "repository"), create=True, key=KEY)


def nothing_can_be_read(repository: Path, *words: bytes) -> bool:
    raw = [path for path in repository.rglob("*") if path.is_file() and "pipelines" in path.parts]
    return bool(raw) and not any(word in path.read_bytes() + str(path).encode() for path in raw for word in words)


def test_a_query_is_captured_and_restored_by_executors_that_were_given_no_key(
    spark: SparkSession, repository: Repository, tmp_path: Path
) -> None:
    query = counting(spark, tmp_path / "checkpoint")
    try:
        attached = holdfast.attach(query, repository, pipeline="counts", every="1 batch", distribute=True)
        until(lambda: attached.status().captures >= 2, str(attached.status()))
        status = attached.status()
        assert (status.failures, status.movers) == (0, "the executors")
        attached.stop(savepoint="end-of-the-run")
    finally:
        query.stop()
    checkpoint = attached.pipeline["end-of-the-run"]
    assert not checkpoint.verify().faults
    assert nothing_can_be_read(tmp_path / "repository", b"counts", b"end-of-the-run", b"rowsPerBatch", b"metadata")
    laid = checkpoint.restore(tmp_path / "restored", session=spark)
    assert laid.epoch == checkpoint.epoch
    for name in checkpoint.manifest.files:
        if name != "metadata":
            assert (tmp_path / "restored" / name).read_bytes() == (tmp_path / "checkpoint" / name).read_bytes()
    assert_counts(spark, checkpoint, tmp_path)


def test_what_executors_are_sent_shows_no_key(repository: Repository) -> None:
    ring = repository.address.ring  # type: ignore[attr-defined]
    assert repr(repository.address) == f"EncryptedAddress(url='{repository.url}')"
    assert repr(ring) == "Ring()"


def test_a_sidecar_takes_its_key_from_the_environment(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TEXT, KEY.text())
    made = MadeDirectory(tmp_path / "ck", provider=ROCKSDB, partitions=2)
    for _ in range(3):
        made.batch()
    with WatchProcess(made.root, str(tmp_path / "repository"), tmp_path / "log") as watching:
        until(lambda: watching.events("captured"))
        watching.end()
    pipeline = repository.pipeline("p")
    assert pipeline.checkpoints()
    assert pipeline.check(read_percent=100).damaged == []
    assert nothing_can_be_read(tmp_path / "repository", b"batchWatermarkMs", b"stateUniqueIds")
