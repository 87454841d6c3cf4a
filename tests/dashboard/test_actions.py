"""Savepoints, checks and prunes from the dashboard, on a real repository, with somebody who answers."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from builders import NAME, PACKED, damage_state, filled, look, save
from dashboard.conftest import TOKEN, Client, Serving
from holdfast.dashboard import actions
from holdfast.handles import Repository
from holdfast.store import open_store


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """A pipeline on disk with twelve real checkpoints."""
    return filled(12, open_store(str(tmp_path / "repository")))


@pytest.fixture
def client(repository: Repository, serving: Serving) -> Iterator[Client]:
    with serving(repository, token=TOKEN) as client:
        client.sign_in()
        yield client


def test_a_savepoint_is_taken_by_whoever_runs_the_pipeline(client: Client, repository: Repository) -> None:
    stop = threading.Event()

    def run() -> None:
        with look(repository).recover(limits=PACKED) as running:
            epoch = 12
            while not stop.wait(0.05):
                save(running, epoch)
                epoch += 1

    thread = threading.Thread(target=run)
    thread.start()
    try:
        job = client.job(client.post(f"/pipelines/{NAME}/savepoint", {"name": "before-deploy"}))
    finally:
        stop.set()
        thread.join()
    assert job["state"] == "done"
    assert str(look(repository)["before-deploy"].slot) == job["result"]["slot"]
    shown = client.get(f"/jobs/{job['id']}").text
    assert "orders@before-deploy" in shown


@pytest.mark.parametrize("name", ["", "a b", "<script>", "now", "../x", "x" * 300])
def test_a_savepoint_with_a_bad_name_is_refused_at_once(client: Client, repository: Repository, name: str) -> None:
    assert client.post(f"/pipelines/{NAME}/savepoint", {"name": name}).status == 400
    assert client.call(f"/api/pipelines/{NAME}/savepoints", {"name": name}).status == 400
    assert look(repository).savepoints() == {}


def test_actions_on_a_pipeline_that_is_not_there_are_404(client: Client, repository: Repository) -> None:
    assert client.post("/pipelines/nope/savepoint", {"name": "x"}).status == 404
    assert client.call("/api/pipelines/nope/prune-plans", {"keep_last": 1}).status == 404
    assert client.call("/api/pipelines/nope/checks", {}).status == 404
    assert client.get("/pipelines/nope/prune").status == 404


def test_a_check_of_a_whole_pipeline_finds_nothing(client: Client) -> None:
    job = client.job(client.post(f"/pipelines/{NAME}/check", {"read": "all"}))
    assert job["result"]["ok"] is True
    assert job["result"]["bytes_read"] > 0
    assert "Everything is there" in client.get(f"/jobs/{job['id']}").text


def test_damage_that_a_check_finds_is_known_from_then_on_until_it_is_mended(
    client: Client, repository: Repository
) -> None:
    newest = look(repository).latest()
    assert newest is not None
    assert client.get(f"/api/pipelines/{NAME}").document["health"]["status"] == "good"
    damage_state(repository.store, newest.manifest)
    job = client.job(client.post(f"/pipelines/{NAME}/check", {"read": "all"}))
    assert job["result"]["damaged"] == ["0-11"]
    health = client.get(f"/api/pipelines/{NAME}").document["health"]
    assert health["status"] == "damaged"
    assert health["why"] == "a check found 1 fault; hit: 0-11"
    assert "--repair" in client.get(f"/jobs/{job['id']}").text
    damage_state(repository.store, newest.manifest)
    client.job(client.call(f"/api/pipelines/{NAME}/checks", {"read_percent": 100}))
    assert client.get(f"/api/pipelines/{NAME}").document["health"]["status"] == "good"


def test_a_prune_shows_its_plan_first_and_carries_out_that_very_plan(client: Client, repository: Repository) -> None:
    page = client.get(f"/pipelines/{NAME}/prune?keep_last=4").text
    assert "Keeps 4 checkpoints, drops 8." in page
    assert len(look(repository).checkpoints()) == 12
    plan = re.search(r'name="plan" value="([0-9a-f]+)"', page)
    assert plan is not None
    look(repository)["slot:0-2"].savepoint("kept-since")
    job = client.job(client.post(f"/pipelines/{NAME}/prune", {"plan": plan[1]}))
    assert [str(each.slot) for each in look(repository).checkpoints()] == ["0-2", "0-8", "0-9", "0-10", "0-11"]
    assert len(job["result"]["removed"]["checkpoints"]) == 7
    assert list(job["result"]["removed"]["spared"]) == ["0-2"]
    assert "0-2 was spared" in client.get(f"/jobs/{job['id']}").text
    assert client.get(f"/pipelines/{NAME}").status == 200


def test_a_prune_without_rules_or_with_an_unknown_plan_is_refused(client: Client, repository: Repository) -> None:
    assert "Carry out" not in client.get(f"/pipelines/{NAME}/prune").text
    for query in ("keep_last=0", "keep_last=x", "keep_within=soon", "keep_last=-1"):
        assert client.get(f"/pipelines/{NAME}/prune?{query}").status == 400
    assert client.post(f"/pipelines/{NAME}/prune", {"plan": "0" * 32}).status == 400
    assert len(look(repository).checkpoints()) == 12


def test_a_plan_of_one_pipeline_is_none_of_another(client: Client, repository: Repository) -> None:
    with repository.pipeline("other").recover(limits=PACKED) as run:
        save(run, 0)
    plan = client.call(f"/api/pipelines/{NAME}/prune-plans", {"keep_last": 1}).document
    assert client.call("/api/pipelines/other/prunes", {"plan_id": plan["plan_id"]}).status == 400
    assert len(look(repository).checkpoints()) == 12


def test_a_prune_through_the_api(client: Client, repository: Repository) -> None:
    answer = client.call(f"/api/pipelines/{NAME}/prune-plans", {"keep_last": 3})
    assert answer.status == 201
    assert [one["slot"] for one in answer.document["checkpoints"] if one["keep"]] == ["0-9", "0-10", "0-11"]
    job = client.job(client.call(f"/api/pipelines/{NAME}/prunes", {"plan_id": answer.document["plan_id"]}))
    assert job["state"] == "done"
    assert len(look(repository).checkpoints()) == 3


@pytest.mark.parametrize("body", ["", "[]", "{", "null", '{"read_percent": "x"}', '{"read_percent": true}'])
def test_what_the_api_does_not_understand_is_400(client: Client, body: str) -> None:
    given = {"authorization": f"Bearer {TOKEN}", "content_type": "application/json"}
    answer = client.send("POST", f"/api/pipelines/{NAME}/checks", body, **given)
    assert answer.status == (202 if body == "" else 400)
    if body:
        assert answer.document["error"]["code"] == "HF-6004"


def test_a_form_is_not_taken_for_json_nor_json_for_a_form(client: Client) -> None:
    plain = {"authorization": f"Bearer {TOKEN}"}
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        answer = client.send("POST", f"/api/pipelines/{NAME}/checks", "{}", content_type=kind, **plain)
        assert answer.status == 400
    answer = client.send("POST", f"/pipelines/{NAME}/check", "{}", content_type="application/json", **plain)
    assert answer.status == 400


def test_a_body_without_end_is_refused(client: Client) -> None:
    assert client.post("/login", {"token": "x" * 100_000}).status == 400


def test_two_of_a_kind_at_once_are_one_and_nobody_answers(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "SAVEPOINT_SECONDS", 0.5)
    first = client.post(f"/pipelines/{NAME}/savepoint", {"name": "one"})
    second = client.post(f"/pipelines/{NAME}/savepoint", {"name": "two"})
    assert first.headers["location"] == second.headers["location"]
    job = client.job(first)
    assert (job["state"], job["error"]["code"]) == ("failed", "HF-4005")
    assert "HF-4005" in client.get(f"/jobs/{job['id']}").text
