"""SIGKILL of a real process at random moments, on real files: what it was told is durable is there and whole."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import holdfast

VICTIM = Path(__file__).with_name("victim.py")


def run_and_kill(root: Path, seed: str, seconds: float) -> None:
    begun = (root / "journal").read_text().count("begun") if (root / "journal").exists() else 0
    process = subprocess.Popen([sys.executable, str(VICTIM), str(root), seed], stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while not (root / "journal").exists() or (root / "journal").read_text().count("begun") == begun:
        assert process.poll() is None, process.stderr.read().decode()
        assert time.monotonic() < deadline, "the process does not begin"
        time.sleep(0.002)
    time.sleep(seconds)
    assert process.poll() is None, process.stderr.read().decode()
    process.send_signal(signal.SIGKILL)
    process.communicate()


def look(root: Path) -> int:
    """What must hold after any kill; gives how many checkpoints were acknowledged so far."""
    journal = [line.split() for line in (root / "journal").read_text().split("\n")[:-1]]
    acked = [(int(g), int(n), int(epoch)) for word, g, n, epoch in (line for line in journal if line[0] == "acked")]
    repo = holdfast.open(str(root / "repo"))
    pipeline = repo.pipeline("p")
    if acked:
        report = pipeline.check(read_percent=100)
        assert report.damaged == [], report.damaged
        newest = pipeline.latest()
        assert newest is not None
        assert newest.epoch >= acked[-1][2], "a checkpoint that was reported durable is lost"
        names = pipeline.savepoints()
        assert {line[1] for line in journal if line[0] == "named"} <= set(names), "an acknowledged savepoint is lost"
        rows = (root / "rows").read_text().split("\n")[:-1]
        epochs = [int(row.removeprefix("row-")) for row in rows]
        assert epochs == list(range(len(epochs))), f"rows are lost or doubled: {epochs}"
        assert len(epochs) in (newest.epoch, newest.epoch + 1), "the sink is not where the state is"
    if (root / "copy" / "holdfast.json").exists():
        copied = holdfast.open(str(root / "copy")).pipeline("p")
        if copied.exists():
            assert [fault for fault in copied.check(read_percent=100).damaged if fault.checkpoints] == []
    return len(acked)


def kill_again_and_again(root: Path, rounds: int, seed: int) -> int:
    draw = random.Random(seed)
    acked = 0
    for number in range(rounds):
        run_and_kill(root, f"{seed}/{number}", draw.uniform(0, 0.4))
        acked = look(root)
    return acked


def test_a_process_killed_at_random_loses_nothing_it_was_told_is_durable(tmp_path: Path) -> None:
    assert kill_again_and_again(tmp_path, 24, seed=7) > 24


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_a_process_killed_hundreds_of_times_loses_nothing(tmp_path: Path) -> None:
    rounds = int(os.environ.get("HOLDFAST_SOAK_ROUNDS", "300"))
    acked = kill_again_and_again(tmp_path, rounds, seed=int(os.environ.get("HOLDFAST_SOAK_SEED", "1")))
    assert acked > rounds
