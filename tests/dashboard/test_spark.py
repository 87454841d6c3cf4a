"""Checkpoints that were captured from Spark: their state by operator and partition, and how they are brought back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from dashboard.conftest import Client, Serving
from dashboard.views import make_spark
from holdfast.report import describe
from holdfast.spark.lay import lay_down
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


def test_it_says_what_show_says_of_its_state(tmp_path: Path, serving: Serving) -> None:
    repository = make_spark(tmp_path)
    with serving(repository) as client:
        text = " ".join(re.sub(r"<[^>]*>", " ", client.get("/pipelines/sessions/checkpoints/0-2").text).split())
    details = describe(repository.pipeline("sessions")["slot:0-2"])
    assert details.spark is not None
    assert f"state {details.spark.state_in_words}" in text
    assert details.spark.state_in_words.startswith("RocksDB with changelogs, checkpoint format 1")
    assert details.spark.files_in_words in text
    assert f"query {details.spark.query_id}" in text
    for operator in details.spark.operators:
        [store] = operator.summaries
        assert (store.version, store.deltas) == (3, 24)
        assert f"{store.store} {store.version} {store.snapshots} {store.deltas} {store.tables}" in text
    assert "Settings that a restart keeps" in text
    assert "A restart goes on with batch 3" in text


def test_a_damaged_operator_is_the_first_thing_that_is_said(tmp_path: Path, serving: Serving) -> None:
    with serving(make_spark(tmp_path)) as client:
        page = client.get("/pipelines/clicks/checkpoints/0-1").text
    text = " ".join(re.sub(r"<[^>]*>", " ", page).split())
    assert re.search(r"operator 0 is damaged: state/0/_metadata/metadata: .* do not match its digest", text)
    assert "holdfast check clicks --read-data --repo" in text
    assert page.index("is damaged:") < page.index('class="facts"')


def test_a_directory_that_was_restored_says_from_which_checkpoint(tmp_path: Path, serving: Serving) -> None:
    repository = holdfast.open(str(tmp_path / "repository"), create=True)
    pipeline = repository.pipeline("clicks")
    made = MadeDirectory(tmp_path / "directory")
    made.batch()
    lay_down(pipeline.records, capture(pipeline, LocalDirectory(made.root)), str(tmp_path / "restored"))
    again = MadeDirectory(tmp_path / "restored", query_id=made.query_id, next_batch=1)
    again.batch()
    at = capture(pipeline, LocalDirectory(again.root)).at
    with serving(repository) as client:
        assert "<dd>clicks@slot:0-0</dd>" in client.get(f"/pipelines/clicks/checkpoints/{at}").text


def test_with_sinks_the_pipeline_is_rewound_first_and_its_state_alone_comes_second(
    tmp_path: Path, serving: Serving
) -> None:
    with serving(make_spark(tmp_path)) as client:
        page = client.get("/pipelines/totals/checkpoints/0-0").text
    rewind, restore = re.findall(r'data-copy="holdfast ([^"]*)"', page)[:2]
    url = f"--repo file://{tmp_path}/repository"
    assert rewind == f"rewind MODULE:ATTR --to totals@slot:0-0 {url}"
    assert restore == f"restore totals@slot:0-0 ./totals-restored --state-only {url}"


def test_its_pipeline_names_the_engine_and_the_directory(client: Client, tmp_path: Path) -> None:
    assert str(tmp_path / "clicks") in client.get("/pipelines/clicks").text
    seen = client.get("/api/pipelines/clicks").document["seen"]
    assert (seen["engine"], seen["epoch"]) == ("spark", 1)


def test_two_of_them_side_by_side(client: Client) -> None:
    assert client.get("/pipelines/clicks/checkpoints/0-1/diff").status == 200
    assert client.get("/api/pipelines/clicks/checkpoints/0-1/diff").document["state"]
