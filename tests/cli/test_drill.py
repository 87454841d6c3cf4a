"""`holdfast drill`: what it proves, what it finds, and that it leaves everything as it was."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

import holdfast
from cli.sample_repository import invoke, take_checkpoints
from holdfast import Repository
from spark.directories import MadeDirectory


@pytest.fixture
def clicks(orders: Repository, tmp_path: Path) -> Repository:
    """The sample repository with a Spark query beside the loop, captured twice."""
    made = MadeDirectory(tmp_path / "ck", operators=0)
    for batches in (3, 2):
        for _ in range(batches):
            made.batch()
        assert invoke("capture", str(made.root), "-p", "clicks", "--stopped").code == 0
    return orders


def objects(repository: Repository) -> dict[str, bytes]:
    return {info.key: repository.store.get(info.key) for info in repository.store.list("")}


def flip_newest(repository: Repository, pipeline: str) -> None:
    """Turn over a bit of what only the newest checkpoint of a pipeline has."""
    newest, before = repository.pipeline(pipeline).checkpoints()[:-3:-1]
    shared = {artifact.sha256 for _, artifact in before.manifest.artifacts()}
    own = next(a for _, a in newest.manifest.artifacts() if a.sha256 not in shared and a.size_bytes and a.path)
    key = f"{newest.pipeline.records.keys.prefix}{own.path}"
    data = bytearray(repository.store.get(key))
    data[(own.offset or 0) + own.size_bytes // 2] ^= 1
    repository.store.delete([key])
    repository.store.create(key, bytes(data))


def test_all_that_is_good_is_said_to_be_and_nothing_is_touched(clicks: Repository, tmp_path: Path) -> None:
    before = objects(clicks)
    answer = invoke("drill", "--scratch", str(tmp_path / "scratch"))
    assert (answer.code, answer.err) == (0, "")
    assert "clicks: good 0-1, epoch 4, taken " in answer.out
    assert "orders: good " in answer.out
    assert "a restart goes on after batch 4" in answer.out
    assert "all verified" in answer.out
    assert objects(clicks) == before
    assert [*(tmp_path / "scratch").iterdir()] == []


def test_what_was_restored_can_be_kept(clicks: Repository, tmp_path: Path) -> None:
    assert invoke("drill", "clicks", "--scratch", str(tmp_path / "scratch"), "--keep").code == 0
    assert (tmp_path / "scratch/clicks/metadata").exists()


@pytest.mark.parametrize("pipeline", ["clicks", "orders"])
def test_a_flipped_bit_is_found_and_the_others_have_their_turn(
    clicks: Repository, tmp_path: Path, pipeline: str
) -> None:
    flip_newest(clicks, pipeline)
    before = objects(clicks)
    reports = [str(tmp_path / f"drill.{kind}") for kind in ("xml", "json", "txt")]
    answer = invoke("drill", *(word for report in reports for word in ("--report", report)))
    assert answer.code == 3
    assert f"{pipeline}: FAILED" in answer.out
    assert f"{'orders' if pipeline == 'clicks' else 'clicks'}: good" in answer.out
    assert "HF-2002" in answer.out
    assert "a start would fall back to " in answer.out
    assert objects(clicks) == before

    suites = {suite.get("name"): suite for suite in ElementTree.parse(reports[0]).getroot()}
    assert suites[pipeline].get("failures") == "1"
    [failure] = suites[pipeline].iter("failure")
    assert failure.get("type") == "HF-2002"
    document = json.loads(Path(reports[1]).read_text())
    assert document["ok"] is False
    assert {each["pipeline"]: each["ok"] for each in document["pipelines"]}[pipeline] is False
    assert f"{pipeline}: FAILED" in Path(reports[2]).read_text()


def test_what_was_damaged_before_it_was_captured_is_found_where_the_directory_is_read_back(
    orders: Repository, tmp_path: Path
) -> None:
    made = MadeDirectory(tmp_path / "ck")
    made.batch()
    assert invoke("capture", str(made.root), "-p", "clicks", "--stopped").code == 0
    answer = invoke("drill", "clicks", "--json")
    assert answer.code == 3
    [drilled] = answer.document["pipelines"]
    assert [step["name"] for step in drilled["steps"] if step["error"]] == ["read back"]


def test_a_newest_checkpoint_whose_record_is_damaged_is_found(clicks: Repository) -> None:
    latest = clicks.pipeline("clicks").latest()
    assert latest is not None
    key = latest.pipeline.records.keys.manifest(latest.slot)
    data = clicks.store.get(key)
    clicks.store.delete([key])
    clicks.store.create(key, data[:-20])
    answer = invoke("drill", "clicks", "--json")
    assert answer.code == 3
    [drilled] = answer.document["pipelines"]
    assert [step["name"] for step in drilled["steps"] if step["error"]] == ["restore"]
    assert drilled["steps"][-1]["said"] == "a start would fall back to 0-0, epoch 2"


def test_a_pipeline_without_a_checkpoint_proves_nothing(orders: Repository) -> None:
    orders.pipeline("empty").records.ensure_identity()
    answer = invoke("drill", "--json")
    assert answer.code == 4
    assert [each["ok"] for each in answer.document["pipelines"]] == [False, True]
    assert invoke("drill", "nobody").code == 4


def test_a_copy_can_be_drilled(clicks: Repository, tmp_path: Path) -> None:
    copy = str(tmp_path / "copy")
    assert invoke("copy", clicks.url, copy, "--init").code == 0
    assert invoke("drill", "--repo", copy).code == 0


def test_a_repository_without_pipelines_is_told(tmp_path: Path) -> None:
    holdfast.open(str(tmp_path / "empty"), create=True)
    answer = invoke("drill", "--repo", str(tmp_path / "empty"))
    assert (answer.code, "no pipelines yet" in answer.out) == (0, True)


def test_checkpoints_taken_meanwhile_do_not_disturb_it(orders: Repository) -> None:
    take_checkpoints(orders.pipeline("orders"), 6, 8)
    assert "epoch 8" in invoke("drill").out
