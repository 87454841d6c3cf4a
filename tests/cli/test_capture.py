"""`holdfast capture` and `holdfast watch`: what they say, what they leave behind, and how they end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import holdfast
from cli.sample_repository import invoke
from holdfast import Repository
from spark.directories import MadeDirectory

TESTS = Path(__file__).resolve().parents[1]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """An empty repository on disk, which HOLDFAST_REPO names."""
    monkeypatch.setenv("HOLDFAST_REPO", str(tmp_path / "repository"))
    return holdfast.open(str(tmp_path / "repository"), create=True)


@pytest.fixture
def made(tmp_path: Path) -> MadeDirectory:
    """The directory of a query that has run three batches."""
    return ran(MadeDirectory(tmp_path / "ck"), 3)


def ran(made: MadeDirectory, batches: int) -> MadeDirectory:
    for _ in range(batches):
        made.batch()
    return made


# ---- capture ----


def test_a_capture_says_what_it_took(repository: Repository, made: MadeDirectory) -> None:
    answer = invoke("capture", str(made.root), "-p", "orders")
    assert (answer.code, answer.err) == (0, "")
    latest = repository.pipeline("orders").latest()
    assert latest is not None
    assert f"Captured epoch 1 as orders@slot:0-0 ({latest.id}): 12 files, 12 of them read (" in answer.out
    assert "0 B shared, in " in answer.out
    assert "Batch 2 is committed too" in answer.out
    assert "--stopped" in answer.out
    assert "--quiet 90s" in answer.out


def test_a_capture_with_nothing_new_names_the_checkpoint_that_holds_the_batch(
    repository: Repository, made: MadeDirectory
) -> None:
    invoke("capture", str(made.root), "-p", "orders")
    answer = invoke("capture", str(made.root), "-p", "orders", "--savepoint", "before-upgrade")
    assert answer.code == 0
    assert answer.out.startswith("Nothing new: orders@slot:0-0 (")
    assert "already holds epoch 1" in answer.out
    assert "It is the savepoint orders@before-upgrade." in answer.out
    assert repository.find("orders@before-upgrade").epoch == 1


def test_a_capture_in_json(repository: Repository, made: MadeDirectory) -> None:
    first = invoke("capture", str(made.root), "-p", "orders", "--json").document
    assert {key: first[key] for key in ("pipeline", "slot", "epoch", "new", "files", "files_read", "left_out")} == {
        "pipeline": "orders",
        "slot": "0-0",
        "epoch": 1,
        "new": True,
        "files": 12,
        "files_read": 12,
        "left_out": 2,
    }
    assert first["bytes_read"] > first["bytes_shared"] == 0
    second = invoke("capture", str(made.root), "-p", "orders", "--stopped", "--savepoint", "end", "--json").document
    assert (second["epoch"], second["left_out"], second["savepoint"]) == (2, None, "end")
    assert (second["files_read"], second["files"]) == (5, 15)
    assert second["bytes_shared"] > 0
    third = invoke("capture", str(made.root), "-p", "orders", "--json").document
    assert (third["new"], third["slot"], third["bytes_new"]) == (False, "0-1", 0)


def test_quiet_takes_the_last_batch(repository: Repository, made: MadeDirectory) -> None:
    answer = invoke("capture", str(made.root), "-p", "orders", "--quiet", "200ms")
    assert answer.code == 0
    assert "Captured epoch 2" in answer.out
    assert "committed too" not in answer.out


def test_silence_is_q_alone_where_quiet_is_a_duration(repository: Repository, made: MadeDirectory) -> None:
    assert invoke("capture", str(made.root), "-p", "orders", "-q").out == ""
    assert invoke("capture", str(made.root), "-p", "orders", "--quiet").code == 2
    assert invoke("list", "--quiet").code == 0


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["nowhere", "-p", "orders"], 4, "HF-3005"),
        (["nowhere"], 2, "--pipeline"),
        (["nowhere", "-p", "or/ders"], 2, "HF-6001"),
        (["nowhere", "-p", "orders", "--stopped", "--quiet", "1s"], 2, "--stopped or --quiet"),
        (["nowhere", "-p", "orders", "--quiet", "soon"], 4, "HF-3005"),
        (["{made}", "-p", "orders", "--quiet", "soon"], 2, "HF-6004"),
        (["hdfs://name/ck", "-p", "orders"], 2, "HF-6002"),
    ],
)
def test_what_is_wrong_is_told_with_its_exit_code(
    repository: Repository, made: MadeDirectory, words: list[str], code: int, said: str
) -> None:
    answer = invoke("capture", *(word.format(made=made.root) for word in words))
    assert (answer.code, answer.out) == (code, "")
    assert said in answer.err
    assert repository.pipelines() == []


def test_a_directory_of_another_query_is_6_unless_a_new_timeline_is_asked_for(
    repository: Repository, made: MadeDirectory, tmp_path: Path
) -> None:
    invoke("capture", str(made.root), "-p", "orders")
    other = ran(MadeDirectory(tmp_path / "other"), 2)
    answer = invoke("capture", str(other.root), "-p", "orders")
    assert answer.code == 6
    assert "HF-5010" in answer.err
    assert "--new-timeline" in answer.err
    assert invoke("capture", str(other.root), "-p", "orders", "--new-timeline").code == 0
    assert [c.epoch for c in repository.pipeline("orders").checkpoints()] == [0]


def test_a_batch_that_cannot_be_restored_is_told(repository: Repository, made: MadeDirectory) -> None:
    ran(made, 1)
    made.remove("state/0/1/3.delta")
    answer = invoke("capture", str(made.root), "-p", "orders")
    assert answer.code == 0
    assert "Captured epoch 1 " in answer.out
    assert "can't be restored, and was left out: state/0/1/3.delta: it is not there" in answer.out
    again = invoke("capture", str(made.root), "-p", "orders")
    assert (again.code, "HF-2007" in again.err) == (3, True)


def test_a_name_that_is_taken_is_5(repository: Repository, made: MadeDirectory) -> None:
    invoke("capture", str(made.root), "-p", "orders", "--savepoint", "one")
    answer = invoke("capture", str(made.root), "-p", "orders", "--savepoint", "one", "--stopped")
    assert (answer.code, "HF-4003" in answer.err) == (5, True)
    assert len(repository.pipeline("orders").checkpoints()) == 1


# ---- watch ----


class Running:
    """`holdfast watch` as a process; its lines are read as they come."""

    def __init__(self, *words: str) -> None:
        command = [sys.executable, "-m", "holdfast", "watch", *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def event(self) -> dict[str, Any]:
        return dict(json.loads(self.line()))

    def end(self, number: signal.Signals | None = None) -> tuple[int, str, str]:
        """Its exit code, and the rest of what it wrote."""
        if number is not None:
            self.process.send_signal(number)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


@contextmanager
def running(*words: str) -> Iterator[Running]:
    it = Running(*words)
    try:
        yield it
    finally:
        if it.process.poll() is None:
            it.process.kill()
            it.process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_watch_writes_a_line_for_each_capture_and_ends_well_when_told_to(
    repository: Repository, made: MadeDirectory, number: signal.Signals
) -> None:
    with running(str(made.root), "-p", "orders", "--every", "1 batch", "--utc") as watch:
        assert "UTC  orders  epoch 1 is 0-0: 12 of 12 files read (" in watch.line()
        ran(made, 1)
        assert "orders  epoch 2 is 0-1: 5 of 15 files read (" in watch.line()
        code, out, err = watch.end(number)
    assert (code, err) == (0, "")
    assert out.endswith("stopped: 2 captured, 0 failed\n")


def test_a_watch_in_json_writes_one_event_a_line(repository: Repository, tmp_path: Path) -> None:
    with running(str(tmp_path / "ck"), "-p", "orders", "--every", "100ms", "--quiet", "300ms", "--json") as watch:
        waiting = watch.event()
        assert (waiting["event"], waiting["pipeline"], waiting["why"]) == ("waiting", "orders", "no batch is committed")
        made = ran(MadeDirectory(tmp_path / "ck"), 1)
        events = [watch.event() for _ in range(2)]
        assert [event["event"] for event in events] == ["waiting", "captured"]
        assert (events[1]["epoch"], events[1]["slot"], events[1]["broken"]) == (0, "0-0", [])
        made.start()
        made.write("commits/1", 'v1\n{"nextBatchWatermarkMs":0}')  # and no state
        failed = watch.event()
        assert (failed["event"], failed["error"]["code"]) == ("failed", "HF-2007")
        code, out, _ = watch.end(signal.SIGTERM)
    stopped = json.loads(out.splitlines()[-1])
    assert (code, stopped["event"], stopped["captures"]) == (0, "stopped", 1)


def test_a_savepoint_from_another_terminal(repository: Repository, made: MadeDirectory) -> None:
    with running(str(made.root), "-p", "orders", "--every", "1h") as watch:
        assert "epoch 1 is 0-0" in watch.line()
        ran(made, 1)
        began = time.monotonic()
        answer = invoke("savepoint", "orders@now", "before-deploy", "--timeout", "60")
        assert (answer.code, answer.out) == (0, "orders@before-deploy is the checkpoint 0-1, epoch 2.\n")
        assert time.monotonic() - began < 30
        assert watch.end(signal.SIGTERM)[0] == 0


@pytest.mark.parametrize("as_json", [False, True])
def test_a_watch_of_another_query_ends_with_6(repository: Repository, tmp_path: Path, as_json: bool) -> None:
    invoke("capture", str(ran(MadeDirectory(tmp_path / "old"), 2).root), "-p", "orders")
    other = ran(MadeDirectory(tmp_path / "ck"), 2)
    words = ["--json"] if as_json else []
    with running(str(other.root), "-p", "orders", "--every", "1s", *words) as watch:
        code, out, err = watch.end()
    assert code == 6
    if as_json:
        assert json.loads(out)["event"] == "ended"
        assert json.loads(out)["error"]["code"] == "HF-5010"
    else:
        assert "[HF-5010]" in err
        assert "--new-timeline" in err


def test_a_watch_of_each_directory_below_a_root(repository: Repository, tmp_path: Path) -> None:
    for name in ("orders", "team/clicks"):
        ran(MadeDirectory(tmp_path / "root" / name), 3)
    ran(MadeDirectory(tmp_path / "root" / "a.b"), 2)
    ran(MadeDirectory(tmp_path / "root" / "a" / "b"), 2)
    with running(str(tmp_path / "root"), "--each", "--every", "1 batch") as watch:
        lines = sorted(watch.line().split("  ")[1] for _ in range(2))
        code, _, err = watch.end(signal.SIGTERM)
    assert lines == ["orders", "team.clicks"]
    assert code == 0
    assert "a.b and a/b would both be called so" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--every", "30s"], "-p NAME, or --each"),
        (["-p", "orders", "--each", "--every", "30s"], "-p NAME, or --each"),
        (["-p", "orders"], "--every"),
        (["-p", "orders", "--every", "often"], "duration 'often'"),
    ],
)
def test_what_a_watch_must_be_told(repository: Repository, tmp_path: Path, words: list[str], said: str) -> None:
    answer = invoke("watch", str(tmp_path), *words)
    assert answer.code == 2
    assert said in answer.err


def test_a_failing_store_is_told_in_one_line_on_stderr(
    repository: Repository, made: MadeDirectory, tmp_path: Path
) -> None:
    with running(str(made.root), "-p", "orders", "--every", "1 batch") as watch:
        watch.line()
        (tmp_path / "repository" / "pipelines").rename(tmp_path / "aside")
        (tmp_path / "repository" / "pipelines").write_text("no folder any more")
        ran(made, 1)
        assert watch.process.stderr is not None
        line = watch.process.stderr.readline()
        (tmp_path / "repository" / "pipelines").unlink()
        (tmp_path / "aside").rename(tmp_path / "repository" / "pipelines")
        assert "orders  failed: " in line
        assert line.rstrip().endswith("again in 1 s")
        assert "orders  epoch 2 is 0-1" in watch.line(), "and is outlasted"
        code, out, _ = watch.end(signal.SIGTERM)
    assert code == 0
    assert "2 captured" in out


def test_the_log_of_a_file_sink_is_kept_along(repository: Repository, made: MadeDirectory, tmp_path: Path) -> None:
    log = tmp_path / "table" / "_spark_metadata"
    log.mkdir(parents=True)
    for batch in range(3):
        (log / str(batch)).write_text(f'v1\n{{"path":"file:///t/{batch}","size":1,"isDir":false,"action":"add"}}')
    sink = ["--file-sink", str(tmp_path / "table")]
    assert invoke("capture", str(made.root), "-p", "orders", "--stopped", *sink).code == 0
    kept = [name for name in repository.find("orders").manifest.files if name.startswith("_holdfast/file-sink/")]
    assert len(kept) == 3
    assert invoke("watch", str(made.root), "--each", "--every", "1s", *sink).code == 2
