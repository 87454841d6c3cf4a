"""`holdfast watch --config` as a process, and what a file means before it is run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import holdfast
from cli.sample_repository import invoke
from holdfast import Key, Repository
from sidecar.receiving import receiving, until
from spark.directories import MadeDirectory

FILE = """
[repository]
url = "repository"
[watch]
every = "1 batch"
[pipelines.orders]
directory = "ck/orders"
keep = {{ last = 3 }}
[roots.team]
directory = "ck/team"
[alerts]
checkpoint_age = "1h"
look = "100ms"
[alerts.to.chat]
webhook = "{url}/{{env:TOKEN}}"
[alerts.to.pager]
command = ["page", "--secret", "{{env:TOKEN}}"]
{more}
"""


@pytest.fixture(autouse=True)
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    monkeypatch.setenv("TOKEN", "s3cret")
    return holdfast.open(str(tmp_path / "repository"), create=True)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "holdfast.toml").write_text(FILE.format(url="https://hooks.example.com:8443", more=""))
    return tmp_path / "holdfast.toml"


def ran(root: Path) -> MadeDirectory:
    made = MadeDirectory(root)
    for _ in range(3):
        made.batch()
    return made


# ---- what a file means ----


def test_a_file_is_told_in_plain_words_without_its_secrets(file: Path) -> None:
    answer = invoke("watch", "--config", str(file), "--check")
    assert (answer.code, answer.err) == (0, "")
    for said in (
        f"repository  {file.parent}/repository",
        f"state       {file.parent}/holdfast.state.json",
        "check       never",
        "1 batches",
        "last 3",
        "all of team",
        "checkpoint-age  over 1h",
        "to chat   https://hooks.example.com:8443\n",
        "to pager  page\n",
        "not available: way-back of orders, all of team: only `code` can ask",
        "not available: damage beyond what a look",
    ):
        assert said in answer.out, said
    assert "s3cret" not in answer.out
    assert not (file.parent / "holdfast.state.json").exists()


def test_the_same_in_json(file: Path) -> None:
    document = invoke("watch", "--config", str(file), "--check", "--json").document
    assert document["receivers"] == {"chat": "https://hooks.example.com:8443", "pager": "page"}
    assert document["pipelines"]["orders"]["keep"] == "last 3"
    assert document["alerts"]["retention"] == "off"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ck/orders", "--config", "{file}"], "neither DIR nor its options"),
        (["--config", "{file}", "--every", "30s"], "neither DIR nor its options"),
        (["--check"], "--check goes with --config"),
        (["--every", "30s", "-p", "orders"], "Give DIR and --every WHEN, or --config FILE"),
        (["--config", "{file}", "--repo", "elsewhere"], "The file names the repository"),
        (["--config", "{file}.none"], "HF-6030"),
    ],
)
def test_what_does_not_go_together_is_2(file: Path, words: list[str], said: str) -> None:
    answer = invoke("watch", *(word.format(file=file) for word in words))
    assert answer.code == 2
    assert said in answer.err


def test_a_mistake_in_the_file_is_told_with_its_place(file: Path) -> None:
    file.write_text("[pipelines.orders]\ndirectry = 'x'")
    answer = invoke("watch", "--config", str(file), "--json")
    assert answer.code == 2
    error = answer.document["error"]
    assert (error["code"], error["fields"]["place"]) == ("HF-6030", "pipelines.orders.directry")
    assert "did you mean directory?" in error["message"]


def test_every_command_finds_the_repository_of_the_file_that_the_environment_names(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_CONFIG", str(file))
    monkeypatch.delenv("TOKEN")
    assert invoke("list", "--json").document["url"] == (tmp_path / "repository").as_uri()
    holdfast.open(str(tmp_path / "other"), create=True)
    assert invoke("list", "--repo", str(tmp_path / "other"), "--json").document["url"].endswith("/other")
    file.write_text("[watch]")
    answer = invoke("list")
    assert (answer.code, "HOLDFAST_CONFIG" in answer.err) == (2, True)


# ---- running ----


class Running:
    """The command as a process; its events are read from the file that it writes to."""

    def __init__(self, file: Path, *words: str) -> None:
        self.log = file.with_suffix(".log")
        with self.log.open("wb") as log:
            command = [sys.executable, "-m", "holdfast", "watch", "--config", str(file), "--json", *words]
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def events(self, kind: str) -> list[dict[str, Any]]:
        lines = self.log.read_text().splitlines(keepends=True)
        return [event for line in lines if line.endswith("\n") and (event := json.loads(line))["event"] == kind]

    def captured(self) -> set[str]:
        return {event["pipeline"] for event in self.events("captured")}

    def until(self, holds: Callable[[], object]) -> None:
        until(lambda: holds() or self.process.poll() is not None, self.log.read_text)
        assert holds(), self.log.read_text()

    def end(self) -> int:
        self.process.terminate()
        return self.process.wait(60)


@contextmanager
def running(file: Path, *words: str) -> Iterator[Running]:
    it = Running(file, *words)
    try:
        yield it
    finally:
        if it.process.poll() is None:
            it.process.kill()
            it.process.wait()


def test_one_process_captures_all_tells_and_takes_up_a_changed_file(file: Path, tmp_path: Path) -> None:
    for name in ("orders", "team/a"):
        ran(tmp_path / "ck" / name)
    with receiving() as inbox:
        file.write_text(FILE.format(url=inbox.url, more="").replace('["page"', f'["{sys.executable}", "-c", "1"'))
        with running(file) as sidecar:
            sidecar.until(lambda: sidecar.captured() == {"orders", "a"})

            file.write_text("[pipelines.orders")
            sidecar.process.send_signal(signal.SIGHUP)
            sidecar.until(lambda: sidecar.events("refused"))
            assert "no TOML" in sidecar.events("refused")[0]["why"]

            ran(tmp_path / "ck" / "clicks")
            more = '[pipelines.clicks]\ndirectory = "ck/clicks"\ncheckpoint_age = "1ms"'
            file.write_text(FILE.format(url=inbox.url, more=more))
            sidecar.process.send_signal(signal.SIGHUP)
            sidecar.until(lambda: "clicks" in sidecar.captured())
            sidecar.until(lambda: inbox.told() == ["firing checkpoint-age/clicks"])
            sidecar.until(lambda: sidecar.events("untold"))
            assert sidecar.end() == 0
        assert "s3cret" not in sidecar.log.read_text()
        assert [event["receiver"] for event in sidecar.events("untold")][:1] == ["pager"]
        assert sidecar.events("stopped")[0]["captures"] == 3


VAULT = """
[repository]
url = "vault"
{key}
[pipelines.orders]
directory = "ck/orders"
every = "1 batch"
code = "jobs:pipeline"
"""
JOBS = """
from holdfast import Pipeline

class Orders(Pipeline):
    name = "orders"
    def __init__(self):
        pass
    def reach(self, repository):
        return []

pipeline = Orders()
"""


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ('key_file = "key"', []),
        ("key_command = \"cat '{key}'\"", []),
        ("", ["--key-file", "{key}"]),
        ('key_file = "of another repository"', ["--key-command", "cat '{key}'"]),
    ],
)
def test_an_encrypted_repository_is_watched_and_its_code_asked_with_the_key_that_was_given(
    key: str, words: list[str], file: Path, tmp_path: Path
) -> None:
    secret = Key.generate()
    secret.save(tmp_path / "key")
    vault = holdfast.open(str(tmp_path / "vault"), create=True, key=secret)
    made = ran(tmp_path / "ck" / "orders")
    # Where nothing is stored yet, the code is asked a minute later.
    holdfast.capture(made.root, vault, pipeline="orders")
    made.batch()
    (tmp_path / "jobs.py").write_text(JOBS)
    file.write_text(VAULT.format(key=key.format(key=tmp_path / "key")))
    with running(file, *(word.format(key=tmp_path / "key") for word in words)) as sidecar:
        sidecar.until(lambda: sidecar.captured() == {"orders"})
        sidecar.until(lambda: sidecar.events("done") + sidecar.events("undone"))
        assert [event["kind"] for event in sidecar.events("done")] == ["way back"]
        assert sidecar.end() == 0
    assert secret.text().partition(":")[2] not in sidecar.log.read_text()


def test_without_its_key_an_encrypted_repository_is_not_watched_and_a_key_too_many_is_not_ignored(
    file: Path, tmp_path: Path
) -> None:
    Key.generate().save(tmp_path / "key")
    holdfast.open(str(tmp_path / "vault"), create=True, key=Key.from_file(tmp_path / "key"))
    assert "HF-5042" in invoke("watch", "--config", str(file), "--key-file", str(tmp_path / "key")).err
    file.write_text(VAULT.format(key=""))
    assert "HF-5040" in invoke("watch", "--config", str(file)).err


def test_every_command_opens_the_repository_with_the_key_of_the_file_that_the_environment_names(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Key.generate().save(tmp_path / "key")
    holdfast.open(str(tmp_path / "vault"), create=True, key=Key.from_file(tmp_path / "key"))
    file.write_text(VAULT.format(key='key_file = "key"'))
    monkeypatch.setenv("HOLDFAST_CONFIG", str(file))
    assert invoke("list").code == 0
    assert "HF-5040" in invoke("list", "--repo", str(tmp_path / "vault")).err, "the key goes with its repository"
    found = invoke("doctor", "--config", str(file), "--json").document
    assert [row["status"] for row in found["results"] if row["what"] == "repository"] == ["ok"]


def test_a_state_that_can_not_be_kept_ends_it_at_once(file: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    file.write_text(f'state = "taken/state.json"\n{file.read_text()}')
    answer = invoke("watch", "--config", str(file))
    assert answer.code == 1
    assert "HF-1150" in answer.err


def test_people_read_a_line_for_each_event(file: Path, tmp_path: Path) -> None:
    file.write_text(
        '[repository]\nurl = "repository"\n[alerts]\nlook = "100ms"\ncheckpoint_age = "1ms"\n[pipelines.orders]'
    )
    command = [sys.executable, "-m", "holdfast", "watch", "--config", str(file)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert "orders  firing checkpoint-age/orders: orders has no checkpoint" in line
    assert process.returncode == 0
