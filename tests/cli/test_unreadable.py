"""One pipeline that can't be read is told of, and keeps no other from its turn."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.sample_repository import Answer, invoke, take_checkpoints
from holdfast import Repository
from holdfast.records import seal

TOLD = "pipelines/aged/pipeline.json has format 99.0"


@pytest.fixture
def aged(orders: Repository, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """`orders`, and beside it a pipeline of a format that is yet to come, which sorts before it."""
    take_checkpoints(orders.pipeline("aged"), 0, 1)
    records = orders.pipeline("aged").records
    identity = records.identity()
    with monkeypatch.context() as newer:
        newer.setattr("holdfast.records.FORMAT", "99.0")
        orders.store.put(records.keys.identity, seal(identity))
    return orders


def objects(repository: Repository, pipeline: str) -> dict[str, bytes]:
    return {i.key: repository.store.get(i.key) for i in repository.store.list(f"pipelines/{pipeline}/")}


def test_it_is_listed_with_its_problem(aged: Repository) -> None:
    answer = invoke("list", "--json")
    assert [row["name"] for row in answer.document["pipelines"]] == ["aged", "orders"]
    assert TOLD in answer.document["pipelines"][0]["problem"]
    assert answer.document["pipelines"][1]["checkpoints"] == 6


@pytest.mark.parametrize("words", [["du"], ["check"], ["check", "--repair"], ["prune", "--keep-last", "2"]])
def test_the_others_are_weighed_checked_and_pruned(aged: Repository, words: list[str]) -> None:
    before = objects(aged, "aged")
    answer = invoke(*words)
    assert (answer.code, TOLD in answer.err, "Upgrade Holdfast" in answer.err) == (6, True, True)
    assert "orders" in answer.out
    document = invoke(*words, "--json").document
    failed = [each for each in document["pipelines"] if "error" in each]
    assert [(each["pipeline"], each["error"]["code"]) for each in failed] == [("aged", "HF-5004")]
    assert [each["pipeline"] for each in document["pipelines"] if "error" not in each] == ["orders"]
    assert objects(aged, "aged") == before


def test_damage_in_another_one_is_still_told_as_damage(aged: Repository) -> None:
    records = aged.pipeline("orders").records
    aged.store.put(records.keys.claim(0), b"nothing")
    answer = invoke("check")
    assert (answer.code, TOLD in answer.err) == (3, True)


@pytest.mark.parametrize("verb", [["copy"], ["standby", "--once"]])
def test_the_others_are_copied(aged: Repository, tmp_path: Path, verb: list[str]) -> None:
    copy = str(tmp_path / "copy")
    answer = invoke(*verb, aged.url, copy, "--init")
    assert (answer.code, TOLD in answer.err) == (6, True)
    assert "6 checkpoints" in answer.out
    assert invoke("check", "orders", "--repo", copy, "--read-data").code == 0


def test_the_others_are_drilled_and_a_report_is_written(aged: Repository, tmp_path: Path) -> None:
    report = tmp_path / "drill.txt"
    answer = invoke("drill", "--report", str(report))
    assert answer.code == 6
    assert "aged: FAILED" in report.read_text()
    assert TOLD in report.read_text()
    assert "orders: " in report.read_text()


def results(answer: Answer) -> dict[str, dict[str, str]]:
    return {each["what"]: each for each in answer.document["results"]}


def test_the_doctor_shows_it_beside_all_else(aged: Repository) -> None:
    found = results(invoke("doctor", "--json"))
    assert (found["repository"]["status"], found["store: create"]["status"]) == ("ok", "ok")
    assert "2 pipelines" in found["repository"]["found"]
    assert TOLD in found["pipeline aged"]["found"]


@pytest.mark.parametrize("text", ["[repository\nurl = 1", "[repository]\nurl = 7\n", None])
def test_a_config_that_can_not_be_read_is_a_finding_beside_all_others(
    orders: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    file = tmp_path / "holdfast.toml"
    if text is not None:
        file.write_text(text)
    answer = invoke("doctor", "--config", str(file), "--json")
    found = results(answer)
    assert (answer.code, found["config"]["status"], found["python"]["status"]) == (1, "failed", "ok")
    assert found["config"]["found"]
    # HOLDFAST_REPO names one, and it is looked at.
    assert found["repository"]["status"] == "ok"
    monkeypatch.delenv("HOLDFAST_REPO")
    monkeypatch.setenv("HOLDFAST_CONFIG", str(file))
    answer = invoke("doctor")
    assert (answer.code, "config" in answer.out, "python" in answer.out) == (1, True, True)
