"""What is left without its threads, in a forked child or once it is closed, refuses at once and never hangs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from builders import PACKED, epochs, look, make_repo, save, start
from holdfast.errors import BadValue
from holdfast.repository.uploads import Limits

PARENT = """
import os, signal, sys
import holdfast
from holdfast.draft import PartitionState
from holdfast.repository.uploads import Limits

repository = holdfast.open(sys.argv[1], create=True)
run = repository.pipeline("orders").recover(limits=Limits(inline=0, single=1))
draft = run.begin(0)
run.save_snapshot(draft, "count", 0, b"first")
run.save_manifest(draft)
begun = run.begin(1)

managers = {}
for name in ("plain", "background"):
    manager = managers[name] = holdfast.CheckpointManager(repository, every=1, background=name == "background")
    manager.register(name, "seen", [])
    manager.recover(name)
    manager.on_event(name, 0)
    manager.wait()
plain, background = managers.values()

class Broken(holdfast.LoopSink):
    def prepare(self, sequence):
        return sequence

    def commit(self, token):
        raise ConnectionError("no route")

failed = holdfast.CheckpointManager(repository, every=1, background=True)
failed.register_sink("failed", "table", Broken())
failed.recover("failed")
assert failed.on_event("failed", 0).exception() is not None

def own():
    with holdfast.open(sys.argv[1]).pipeline("other").recover(limits=Limits(inline=0)) as mine:
        draft = mine.begin(0)
        mine.save_snapshot(draft, "count", 0, b"of the child")
        mine.save_manifest(draft)
    with holdfast.CheckpointManager(sys.argv[1], every=1, background=True) as manager:
        manager.recover("child")
        manager.on_event("child", 0)
        manager.wait()

def leave_with():
    with run, plain, background:
        pass

def child(act):
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)  # ends it if it hangs
        outcome = "nothing"
        try:
            act()
        except BaseException as error:
            outcome = type(error).__name__
        print(outcome, flush=True)
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGALRM:
        print("hung", flush=True)

child(eval("lambda: " + sys.argv[2]))

# The parent goes on as if nothing had happened.
run.save_snapshot(begun, "count", 0, b"second")
run.save_manifest(begun)
for name, manager in managers.items():
    manager.on_event(name, 1)
    manager.close()
run.close()
try:
    failed.close()
    sys.exit("the failure was lost")
except holdfast.errors.BackgroundFailed:
    pass
assert [c.epoch for c in repository.pipeline("orders")] == [0, 1]
"""


def outcome(place: Path, act: str) -> str:
    command = [sys.executable, "-W", "ignore", "-c", PARENT, str(place), act]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    "act",
    [
        "run.begin(1)",
        "run.save_manifest(begun)",
        "run.save_snapshot(begun, 'count', 0, b'large')",
        "run.save_partitions(begun, [PartitionState('count', 0, b'large')])",
        "run.settle()",
        "plain.on_event('plain', 1)",
        "plain.checkpoint('plain')",
        "plain.wait()",
        "plain.recover('plain')",
        "background.on_event('background', 1)",
        "background.checkpoint('background')",
        "background.wait()",
        "background.recover('background')",
        "background.register('new', 'seen', [])",
    ],
)
def test_what_a_child_inherits_is_refused_at_once(tmp_path: Path, act: str) -> None:
    assert outcome(tmp_path / "r", act) == "ForkedProcess"


@pytest.mark.parametrize(
    "act", ["run.close()", "plain.close()", "background.close()", "failed.close()", "leave_with()"]
)
def test_closing_in_a_child_does_nothing(tmp_path: Path, act: str) -> None:
    assert outcome(tmp_path / "r", act) == "nothing"


def test_a_child_with_a_repository_of_its_own_runs(tmp_path: Path) -> None:
    assert outcome(tmp_path / "r", "own()") == "nothing"


def test_a_child_may_take_the_pipeline_over_from_a_folder(tmp_path: Path) -> None:
    assert outcome(tmp_path / "r", "repository.pipeline('new').recover().close()") == "nothing"


def test_a_closed_checkpointer_refuses_to_save() -> None:
    repo = make_repo()
    run = start(repo, limits=Limits(inline=0, single=1))
    save(run, 0)
    begun = run.begin(1)
    run.close()
    run.close()
    for act in (
        lambda: run.begin(1),
        lambda: run.save_snapshot(begun, "count", 0, b"an object of its own"),
        lambda: run.save_manifest(begun),
        run.settle,
    ):
        with pytest.raises(BadValue, match="checkpointer: it was closed"):
            act()
    assert epochs(look(repo)) == [0]


def test_what_a_closed_checkpointer_had_gathered_is_not_published() -> None:
    repo = make_repo()
    run = start(repo, limits=PACKED)
    begun = run.begin(0)
    run.save_snapshot(begun, "count", 0, b"in a pack")
    run.close()
    with pytest.raises(BadValue, match="it was closed"):
        run.save_manifest(begun)
    assert epochs(look(repo)) == []
