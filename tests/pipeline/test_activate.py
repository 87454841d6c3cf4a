"""`holdfast standby SRC DST --activate MODULE:ATTR`, as a user runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import holdfast
from cli.sample_repository import Answer, invoke
from holdfast.events import CheckpointTaken
from holdfast.store import open_store
from pipeline.place import NOW, Place
from servers import MortalS3, S3Server

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


def with_job(root: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, files: int = 6) -> Place:
    """A pipeline over some files, and its module in the folder that commands are run in."""
    place = Place(root, spark)
    (root / "job.py").write_text(MODULE)
    monkeypatch.chdir(root)
    sys.modules.pop("job", None)
    place.inputs(files)
    return place


@pytest.fixture
def place(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A pipeline that ran into `primary` for six files, and a copy that was last brought up in the midst of that."""
    place = with_job(tmp_path, spark, monkeypatch)
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


def test_with_the_newest_checkpoint_damaged_at_the_source_it_says_so_and_goes_on_from_the_one_before(
    place: Place,
) -> None:
    primary = holdfast.open("primary").pipeline("sums")
    before, newest = primary.checkpoints()[-2:]
    rows = place.rows("log")
    manifest = Path("primary") / newest.pipeline.records.keys.manifest(newest.slot)
    manifest.write_bytes(manifest.read_bytes()[:-1])
    told = lines(done(invoke(*ACTIVATE, "job:pipeline", "--json")).out)
    assert (told[0]["epoch"], [lost["slot"] for lost in told[0]["damaged"]]) == (before.epoch, [str(newest.slot)])
    [started] = [line for line in told if line["event"] == "started"]
    assert started["checkpoint"] == str(before.slot)
    assert place.rows("log") == place.rows("table") == rows
    assert is_whole("copy")


# ---- with a server that was killed ----


class Elsewhere:
    """A pipeline that ran into a repository in an S3 server, and a copy that was last brought up in the midst of it."""

    def __init__(self, place: Place, server: S3Server) -> None:
        self.place = place
        self.url = server.url("primary")
        self.options = [word for name, value in server.options.items() for word in ("--from-option", f"{name}={value}")]
        primary, copied = holdfast.open(self.url, create=True, options=server.options), list[Answer]()

        def copy_once(event: object) -> None:
            if isinstance(event, CheckpointTaken) and not copied:
                copied.append(invoke("standby", self.url, "copy", "--init", "--once", *self.options))

        run = place.pipeline().start(primary, checkpoint_dir="home", every="1 batch", trigger=NOW, listener=copy_once)
        run.await_termination()
        done(*copied)
        newest, here = primary.pipeline("sums").latest(), holdfast.open("copy").pipeline("sums").latest()
        assert newest is not None
        assert here is not None
        assert here.epoch < newest.epoch
        self.here = here

    def words(self) -> list[str]:
        end = ["--trigger", "now", "--checkpoint-dir", "elsewhere", "--activate", "job:pipeline"]
        return ["standby", self.url, "copy", *self.options, *end]


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[MortalS3]:
    server = MortalS3(tmp_path / "seaweedfs")
    # It makes a bucket with the first object in it.
    open_store(server.server.url(), server.server.options).put("made", b"")
    yield server
    server.kill()


def run_alone(words: Sequence[str]) -> Answer:
    """Run a command in a process of its own, with a Spark of its own."""
    known = os.environ.get("PYTHONPATH")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*([known] if known else []), str(TESTS)])}
    command = [sys.executable, "-m", "holdfast", *words]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=240)
    return Answer(ended.returncode, ended.stdout, ended.stderr)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("alone", [False, pytest.param(True, marks=pytest.mark.soak)], ids=["here", "alone"])
def test_with_the_server_of_the_source_killed_it_runs_from_the_copy_to_the_same_rows(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, mortal: MortalS3, alone: bool
) -> None:
    place = with_job(tmp_path, spark, monkeypatch, files=4)
    elsewhere = Elsewhere(place, mortal.server)
    here, rows = elsewhere.here, place.rows("log")
    mortal.kill()
    place.inputs(5)
    answer = done((run_alone if alone else lambda words: invoke(*words))(elsewhere.words()))
    assert f"sums: the newest checkpoint here: {here.slot}, epoch {here.epoch}, taken " in answer.out
    assert "that the source holds is here" not in answer.out
    # A server that is gone refuses, or does not answer in time: on a busy machine the wait may be over first.
    assert "sums: the source was not asked for more: " in answer.err
    assert "kept failing for " in answer.err or "it did not answer within 5 s" in answer.err
    assert "is taken back in the sinks, and run again from here" in answer.err
    after = place.rows("log")
    assert after == place.rows("table")
    assert sums(after) == sums(place.plain([(5, 1)]))
    assert len(after) > len(rows)
    assert is_whole("copy")

    mortal.start()
    old = invoke(*RUN, elsewhere.url, *repository_options(mortal.server), "--checkpoint-dir", "home")
    assert (old.code, "HF-4030" in old.err) == (5, True), old.err
    assert place.rows("log") == place.rows("table") == after


def sums(rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Rows without their windows, which each store writes in words of its own."""
    return sorted(row[1:] for row in rows)


def repository_options(server: S3Server) -> list[str]:
    return [word for name, value in server.options.items() for word in ("--repo-option", f"{name}={value}")]


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
