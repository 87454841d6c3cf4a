"""The Spark session that all tests share, a checkpoint directory that it wrote, and a folder for each page."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from servers import S3Server, kafka_conf, seaweedfs
from spark.session import start_session
from spark.workloads import configured

INPUTS = 6


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one session of this process, as the tests of `spark` and `pipeline` want it too."""
    session = start_session(kafka_conf())
    yield session
    session.stop()


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A server for all buckets that the pages name."""
    with seaweedfs(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="session")
def written(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint directory of a real query of six batches that has stopped."""
    place = tmp_path_factory.mktemp("written")
    (place / "in").mkdir()
    for number in range(INPUTS):
        (place / f"in/{number}.json").write_text(f'{{"sku": "s{number % 2}", "amount": {number}}}')
    rows = spark.readStream.schema("sku STRING, amount LONG").option("maxFilesPerTrigger", 1).json(str(place / "in"))
    writer = (
        rows.groupBy("sku")
        .count()
        .writeStream.outputMode("update")
        .foreachBatch(lambda batch, _: batch.count() and None)
    )
    # Without snapshots every delta is needed.
    with configured(spark, {"spark.sql.streaming.stateStore.minDeltasForSnapshot": "100"}):
        query = writer.option("checkpointLocation", str(place / "ck")).trigger(availableNow=True).start()
        query.awaitTermination()
    return place / "ck"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder of a page. What it imports, exports and sets in Spark goes with it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setenv("PWD", str(tmp_path))
    monkeypatch.setenv("TZ", "UTC")
    before, environment = set(sys.modules), dict(os.environ)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("documents", "jobs", "main", "orders"):
            del sys.modules[name]
    os.environ.clear()
    os.environ.update(environment)
