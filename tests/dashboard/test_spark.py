"""Checkpoints that were captured from Spark: their state by operator and partition, and how they are brought back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from dashboard.conftest import Client, Serving
from holdfast.store.local_directory import LocalDirectory
from spark.directories import MadeDirectory
from spark.samples import capture


@pytest.fixture
def client(tmp_path: Path, serving: Serving) -> Iterator[Client]:
    repository = holdfast.open(str(tmp_path / "repository"), create=True)
    made = MadeDirectory(tmp_path / "clicks")
    for _ in range(2):
        made.start()
        made.batch()
        capture(repository.pipeline("clicks"), LocalDirectory(made.root))
    with serving(repository) as client:
        yield client


def test_a_checkpoint_of_spark_shows_its_operators_settings_and_restore(client: Client, tmp_path: Path) -> None:
    page = client.get("/pipelines/clicks/checkpoints/0-1").text
    assert 'class="heat"' in page
    assert "A directory that Spark starts from:" in page
    assert f"holdfast restore clicks@slot:0-1 ./clicks-restored --repo file://{tmp_path}/repository" in page
    assert "spark.sql.shuffle.partitions" in page


def test_its_pipeline_names_the_engine_and_the_directory(client: Client, tmp_path: Path) -> None:
    assert str(tmp_path / "clicks") in client.get("/pipelines/clicks").text
    seen = client.get("/api/pipelines/clicks").document["seen"]
    assert (seen["engine"], seen["epoch"]) == ("spark", 1)


def test_two_of_them_side_by_side(client: Client) -> None:
    assert client.get("/pipelines/clicks/checkpoints/0-1/diff").status == 200
    assert client.get("/api/pipelines/clicks/checkpoints/0-1/diff").document["state"]
