"""`holdfast standby SRC DST --activate MODULE:ATTR`, as a user runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import holdfast
from cli.sample_repository import Answer, invoke
from holdfast.events import CheckpointTaken
from pipeline.place import NOW, Place

TESTS = Path(__file__).resolve().parents[1]
MODULE = """
import os
import signal
from pathlib import Path
from pipeline.place import Place
from spark.session import start_session


def pipeline():
    return Place(Path(__file__).parent, start_session()).pipeline()


def dying():
    made = pipeline()
    made.sinks["table"].fence = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    return made
"""
RUN = ["run", "job:pipeline", "--trigger", "now", "--repo"]
ACTIVATE = ["standby", "primary", "copy", "--trigger", "now", "--checkpoint-dir", "elsewhere", "--activate"]


@pytest.fixture
def place(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A pipeline that ran into `primary` for six files, and a copy that was last brought up in the midst of that."""
    place = Place(tmp_path, spark)
    (tmp_path / "job.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    sys.modules.pop("job", None)
    place.inputs(6)
    copied: list[Answer] = []

    def copy_once(event: object) -> None:
        if isinstance(event, CheckpointTaken) and not copied:
            copied.append(invoke("standby", "primary", "copy", "--init", "--once"))

    primary = holdfast.open("primary", create=True)
    run = place.pipeline().start(primary, checkpoint_dir="home", every="1 batch", trigger=NOW, listener=copy_once)
    run.await_termination()
    done(*copied)
    return place


def done(answer: Answer) -> Answer:
    assert answer.code == 0, answer.err
    return answer


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def is_whole(repository: str) -> bool:
    return holdfast.open(repository).pipeline("sums").check(read_percent=100).damaged == []


def test_what_the_source_still_has_is_fetched_and_gone_on_from(place: Place) -> None:
    latest = holdfast.open("primary").pipeline("sums").latest()
    rows = place.rows("log")
    assert latest is not None
    told = lines(done(invoke(*ACTIVATE, "job:pipeline", "--json")).out)
    assert [line["event"] for line in told[:2]] == ["activating", "started"]
    assert (told[0]["epoch"], told[0]["source_error"]) == (latest.epoch, None)
    assert told[0]["age_seconds"] > 0
    assert (told[1]["checkpoint"], told[1]["rolled_back"]) == (str(latest.slot), [])
    assert told[-1]["event"] == "ended"
    assert place.rows("log") == place.rows("table") == rows
    assert is_whole("copy")

    again = invoke(*ACTIVATE, "job:pipeline")
    assert (again.code, "HF-5060" in again.err) == (6, True), again.err
    old = invoke(*RUN, "primary", "--checkpoint-dir", "home")
    assert (old.code, "HF-4030" in old.err) == (5, True), old.err

    place.inputs(8)
    done(invoke(*RUN, "copy", "--checkpoint-dir", "elsewhere"))
    assert place.rows("log") == place.rows("table") == place.plain([(8, 1)])


def test_with_the_source_gone_it_says_what_may_be_lost_and_takes_the_sinks_back_to_what_is_here(place: Place) -> None:
    copied, newest = (holdfast.open(name).pipeline("sums").latest() for name in ("copy", "primary"))
    rows = place.rows("log")
    assert copied is not None
    assert newest is not None
    assert copied.epoch < newest.epoch
    Path("primary").rename("lost")
    answer = done(invoke(*ACTIVATE, "job:pipeline"))
    assert f"sums: the newest checkpoint here: {copied.slot}, epoch {copied.epoch}, taken " in answer.out
    assert "all that the source holds is here" not in answer.out
    assert "sums: the source was not asked for more: " in answer.err
    assert "primary is not a Holdfast repository" in answer.err
    assert "is taken back in the sinks, and run again from here" in answer.err
    assert place.rows("log") == place.rows("table") == rows
    assert is_whole("copy")


@pytest.mark.timeout(300)
def test_one_that_was_killed_before_it_began_is_taken_up_by_the_same_command(place: Place) -> None:
    rows = place.rows("log")
    known = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([*([known] if known else []), str(TESTS)])
    words = [sys.executable, "-m", "holdfast", *ACTIVATE, "job:dying", "--json"]
    environment = {**os.environ, "PYTHONPATH": path}
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True) as killed:
        out, _ = killed.communicate(timeout=120)
        with suppress(ProcessLookupError):
            os.killpg(killed.pid, signal.SIGKILL)
    assert killed.returncode == -signal.SIGKILL
    assert [line["event"] for line in lines(out)] == ["activating"]
    # Its claim stands, and has not begun.
    assert [info.began for info in holdfast.open("copy").pipeline("sums").generations()][-1] == "not yet"
    told = lines(done(invoke(*ACTIVATE, "job:pipeline", "--json")).out)
    assert "taken over from here before" in told[0]["source_error"]
    assert told[-1]["event"] == "ended"
    assert place.rows("log") == place.rows("table") == rows
    assert is_whole("copy")
