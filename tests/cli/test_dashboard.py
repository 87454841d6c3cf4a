"""`holdfast dashboard`: as a process of its own, as users start and stop it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

import holdfast
from cli.sample_repository import invoke, take_checkpoints
from holdfast import Repository


def start(*words: str, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "holdfast", "dashboard", "--port", "0", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_it_says_where_it_listens_serves_and_ends_well_when_told(orders: Repository, ending: signal.Signals) -> None:
    process = start("--max-age", "10m")
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        url = line.split()[0]
        assert "(read only)" in line
        with urllib.request.urlopen(f"{url}pipelines/orders", timeout=30) as answer:
            assert b"before-upgrade" in answer.read()
        process.send_signal(ending)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("way", ["--key-file", "HOLDFAST_KEY_FILE"])
def test_an_encrypted_repository_is_shown_however_its_key_is_given(tmp_path: Path, way: str) -> None:
    url, file = str(tmp_path / "vault"), str(tmp_path / "key")
    key = holdfast.Key.generate()
    key.save(file)
    take_checkpoints(holdfast.open(url, create=True, key=key).pipeline("orders"), 1, 3)
    words, environment = (["--key-file", file], {}) if way == "--key-file" else ([], {way: file})
    process = start("--repo", url, *words, **environment)
    try:
        assert process.stdout is not None
        at = process.stdout.readline().split()[0]
        with urllib.request.urlopen(f"{at}api/pipelines", timeout=30) as answer:
            assert [one["name"] for one in json.load(answer)["pipelines"]] == ["orders"]
    finally:
        process.kill()
        process.communicate()


def test_as_json_it_says_where_it_listens_and_never_the_token(orders: Repository) -> None:
    process = start("--json", HOLDFAST_DASHBOARD_TOKEN="a-token-that-nobody-knows")
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        while lines[-1].strip() != "}":
            lines.append(process.stdout.readline())
        document = json.loads("".join(lines))
        assert document["read_only"] is False
        assert document["url"].startswith("http://127.0.0.1:")
        assert "nobody-knows" not in "".join(lines)
    finally:
        process.kill()
        process.communicate()


def test_an_address_that_others_reach_is_refused_without_a_token(orders: Repository) -> None:
    answer = invoke("dashboard", "--host", "0.0.0.0", "--port", "0")
    assert answer.code == 2
    assert "an address that others can reach needs one" in answer.err
    for way in ("HOLDFAST_DASHBOARD_TOKEN", "--token", "openssl rand -hex 16"):
        assert way in answer.err


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_an_empty_token_is_none_and_said_to_be_none(orders: Repository, words: list[str]) -> None:
    process = start("--token", "", *words)
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        while words and not said.endswith("}\n"):
            said += process.stdout.readline()
        assert ('"read_only": true' if words else "(read only)") in said
    finally:
        process.kill()
        process.communicate()


def test_a_short_token_is_refused_and_not_repeated(orders: Repository) -> None:
    answer = invoke("dashboard", "--port", "0", "--token", "hunter2")
    assert answer.code == 2
    assert "hunter2" not in answer.err


def test_a_port_that_is_taken_is_told(orders: Repository) -> None:
    first = start()
    try:
        assert first.stdout is not None
        port = first.stdout.readline().split()[0].rstrip("/").rpartition(":")[2]
        answer = invoke("dashboard", "--port", port)
        assert answer.code == 2
        assert "in use" in answer.err
    finally:
        first.kill()
        first.communicate()


@pytest.mark.parametrize("words", [["--max-age", "soon"], ["--port", "x"], ["--port", "70000"]])
def test_bad_words_are_usage_errors(orders: Repository, words: list[str]) -> None:
    assert invoke("dashboard", *words).code == 2


def test_without_a_repository_there_is_nothing_to_show(tmp_path: Path) -> None:
    assert invoke("dashboard", "--repo", str(tmp_path / "none"), "--port", "0").code == 4


def test_without_the_extra_it_says_what_to_install(orders: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("holdfast.dashboard")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "starlette.requests", None)
    monkeypatch.setitem(sys.modules, "starlette.datastructures", None)
    answer = invoke("dashboard", "--port", "0")
    assert answer.code == 1
    assert "pip install 'holdfast[dashboard]'" in answer.err
