"""`holdfast standby`: what it says, and how it ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import holdfast
from cli.sample_repository import invoke, take_checkpoints
from holdfast import Repository


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_one_round_copies_and_says_how_far_behind_the_copy_is(orders: Repository, tmp_path: Path) -> None:
    copy = str(tmp_path / "copy")
    first = invoke("standby", orders.url, copy, "--init", "--once")
    assert (first.code, first.err) == (0, "")
    assert "orders  epoch 5 is here (1-1), " in first.out
    assert "s after it was taken: 6 checkpoints, " in first.out
    assert "; lag 0 s, 0 B" in first.out
    assert holdfast.open(copy).pipeline("orders").check(read_percent=100).damaged == []
    [told] = lines(invoke("standby", orders.url, copy, "--once", "--json").out)
    assert (told["event"], told["pipeline"], told["checkpoints"], told["bytes"]) == ("followed", "orders", 0, 0)
    assert told["source"] == told["here"]
    assert (told["here"]["epoch"], told["lag_seconds"], told["lag_bytes"]) == (5, 0, 0)


def test_a_copy_that_was_activated_ends_it_with_5_and_is_told_once(orders: Repository, tmp_path: Path) -> None:
    copy = str(tmp_path / "copy")
    invoke("standby", orders.url, copy, "--init", "--once")
    holdfast.open(copy).pipeline("orders").recover(
        activate=True, demands=holdfast.Demands(accept_duplicates=True)
    ).close()
    for more in ((), ("--once",)):
        answer = invoke("standby", orders.url, copy, *more)
        assert answer.code == 5
        assert answer.err.count("HF-4004") == 1
    [told] = lines(invoke("standby", orders.url, copy, "--json").out)
    assert (told["event"], told["error"]["code"]) == ("ended", "HF-4004")


def test_what_is_said_wrongly_ends_it_at_once(orders: Repository, tmp_path: Path) -> None:
    assert invoke("standby", orders.url, str(tmp_path / "nowhere")).code == 4
    assert invoke("standby", orders.url, orders.url).code == 2
    assert invoke("standby", orders.url, str(tmp_path / "copy"), "--init", "--every", "often").code == 2
    assert invoke("standby", orders.url, str(tmp_path / "copy"), "--activate", "a:b", "--once").code == 2
    invoke("standby", orders.url, str(tmp_path / "copy"), "--init", "--once")
    assert "HF-6008" in invoke("standby", orders.url, str(tmp_path / "copy"), "--activate", "nothing:here").err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_follows_until_it_is_told_to_stop(orders: Repository, tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "holdfast", "standby", orders.url, str(tmp_path / "copy"), "--init"]
    process = subprocess.Popen([*command, "--every", "50ms", "--json"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        told = json.loads(line)
        if told["here"]["epoch"] == 5 and not told["checkpoints"]:
            take_checkpoints(orders.pipeline("orders"), 6, 6)
        if told["here"]["epoch"] == 6:
            break
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    last = lines(out)[-1]
    assert (last["event"], last["checkpoints"], last["failures"]) == ("stopped", 7, 0)
