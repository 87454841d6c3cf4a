"""What the pages on sidecars and alerts show is read, parsed and run as it stands."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast.config import read_config
from holdfast.decide.alerts import Alert, Message, Rules
from holdfast.sidecar.telling import document_of
from sidecar.receiving import until
from spark.directories import MadeDirectory

DOCS = Path(__file__).resolve().parents[2] / "docs" / "how-to"
CLUSTER, ALERTS = DOCS / "sidecar-for-a-cluster.md", DOCS / "alerts.md"


def blocks(page: Path, kind: str) -> list[str]:
    every = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [text for each, text in every if each == kind]


FILES = [*blocks(CLUSTER, "toml"), *blocks(ALERTS, "toml")]


@pytest.fixture(autouse=True)
def _references(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("S3_KEY", "CHAT_TOKEN"):
        monkeypatch.setenv(name, "x")
    (tmp_path / "s3").write_text("secret")


def written(text: str, folder: Path) -> Path:
    file = folder / "holdfast.toml"
    file.write_text(text.replace("/run/secrets/s3", str(folder / "s3")))
    return file


def test_the_pages_have_the_blocks_that_are_tried_here() -> None:
    kinds = ("toml", "python", "json")
    assert [[len(blocks(page, kind)) for kind in kinds] for page in (CLUSTER, ALERTS)] == [[1, 1, 0], [2, 0, 1]]


@pytest.mark.parametrize("text", FILES)
def test_every_file_that_is_shown_can_be_read(text: str, tmp_path: Path) -> None:
    config = read_config(written(text, tmp_path))
    assert config.alerts.to


def test_the_message_that_is_shown_has_the_fields_of_a_message() -> None:
    [shown] = map(json.loads, blocks(ALERTS, "json"))
    alert = Alert(shown["rule"], shown["pipeline"], shown["summary"], shown["hint"], shown["subject"])
    real = document_of(Message(shown["status"], alert, 0, 1), shown["repository"], 0)
    assert [*real] == [*shown]
    assert {**real, "since": shown["since"], "time": shown["time"]} == shown


def test_every_rule_stands_in_the_table() -> None:
    asked = Rules(checkpoint_age_ms=1, retention_ms=1).asked()
    assert set(re.findall(r"^\| `([a-z-]+)` \|", ALERTS.read_text(), re.MULTILINE)) == asked


def test_the_snippet_runs_a_sidecar(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = MadeDirectory(tmp_path / "ck")
    made.batch()
    made.batch()
    file = written(f'[watch]\nevery = "1 batch"\n[pipelines.orders]\ndirectory = "{made.root}"', tmp_path)
    holdfast.open(str(tmp_path / "repository"), create=True)
    [code] = blocks(CLUSTER, "python")
    begin, end = code.split("\nstop.set()")
    names: dict[str, object] = {}
    begin = begin.replace("/etc/holdfast.toml", str(file))
    exec(begin.replace("s3://bucket/holdfast", str(tmp_path / "repository")), names)
    try:
        until(lambda: holdfast.open(str(tmp_path / "repository")).pipeline("orders").latest())
    finally:
        exec(f"stop.set(){end}", names)
    assert "orders Captured(" in capsys.readouterr().out


def test_the_page_on_alerts_can_be_tried(tmp_path: Path) -> None:
    file = written(blocks(ALERTS, "toml")[1].replace("/tmp/holdfast-alerts", str(tmp_path / "try")), tmp_path)
    holdfast.open(str(tmp_path / "try"), create=True)
    command = [sys.executable, "-m", "holdfast", "watch", "--config", str(file)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("firing: orders has no checkpoint")
    finally:
        process.terminate()
        process.communicate(timeout=60)
