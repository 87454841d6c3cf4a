"""Drivers of a table that are killed, or paused and overtaken."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sinks.table_driver import FENCED

__all__ = ["kill_at_each_step", "kill_at_random", "overtake_at_each_step"]

PROGRAM = Path(__file__).with_name("table_driver.py")


@contextmanager
def driver(
    spec: dict[str, Any], ledger: Path, generation: int, epochs: int, *stop: str
) -> Iterator[subprocess.Popen[str]]:
    ledger.mkdir(exist_ok=True)
    command = [sys.executable, str(PROGRAM), json.dumps(spec), str(ledger), str(generation), str(epochs), *stop]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def wait_for(process: subprocess.Popen[str], point: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline().strip() == point


def finish(spec: dict[str, Any], ledger: Path, generation: int, epochs: int) -> None:
    with driver(spec, ledger, generation, epochs) as process:
        assert process.wait() == 0


def kill_at_each_step(spec: dict[str, Any], ledger: Path, epochs: int = 5) -> None:
    """A kill after each step of an epoch in turn, each in an epoch of its own; then a run to the end."""
    for generation, point in enumerate(("1:staged", "2:prepared", "3:decided")):
        with driver(spec, ledger, generation, epochs, point) as process:
            wait_for(process, point)
    finish(spec, ledger, 3, epochs)


def kill_at_random(spec: dict[str, Any], ledger: Path, seed: int, epochs: int = 25, rounds: int = 6) -> None:
    """Kills at any instant; then a run to the end."""
    chance = random.Random(seed)
    for generation in range(rounds):
        with driver(spec, ledger, generation, epochs, "0:prepared" if generation == 0 else "") as process:
            if generation == 0:
                # So that the others are not all killed before they have imported what they need.
                began = time.monotonic()
                wait_for(process, "0:prepared")
                first = time.monotonic() - began
                continue
            try:
                process.wait(chance.uniform(0.8, 2.0) * first)
            except subprocess.TimeoutExpired:
                process.kill()
    finish(spec, ledger, rounds, epochs)


def overtake_at_each_step(spec: dict[str, Any], ledger: Path, epochs: int = 6) -> None:
    """A driver is paused after a step, another takes over and commits, the first wakes up and tries to go on."""
    generation = 0
    for epoch, point in enumerate(("1:staged", "2:prepared", "3:decided"), 2):
        (ledger / "go").unlink(missing_ok=True)
        with driver(spec, ledger, generation, epochs, point) as zombie:
            wait_for(zombie, point)
            zombie.send_signal(signal.SIGSTOP)
            finish(spec, ledger, generation + 1, epoch)
            (ledger / "go").touch()
            zombie.send_signal(signal.SIGCONT)
            assert zombie.wait() == FENCED
        # What a zombie decides after the take-over does not count; a ledger of our own would know by the claim.
        for stale in [path for path in ledger.glob("*.json") if int(path.stem) >= epoch]:
            stale.unlink()
        generation += 2
    finish(spec, ledger, generation, epochs)
