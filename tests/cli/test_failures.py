"""How commands end: exit codes, messages, JSON errors, interrupts and closed pipes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli.sample_repository import invoke
from holdfast import Repository

HOLDFAST = [sys.executable, "-m", "holdfast"]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*HOLDFAST, *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["list"], 0),
        (["list", "nothing"], 4),
        (["show", "orders@nothing"], 4),
        (["show", "orders@what:1"], 2),
        (["frobnicate"], 2),
        (["list", "--frobnicate"], 2),
        (["forget", "orders", "--yes"], 6),
        (["savepoint", "orders", "before-upgrade"], 5),
        (["list", "--repo", "nowhere/at/all"], 4),
        (["list", "--repo", "gopher://x/y"], 2),
    ],
)
def test_each_kind_of_end_has_its_exit_code_and_its_json(orders: Repository, words: list[str], code: int) -> None:
    done = run(*words, "--json")
    assert done.returncode == code, done.stderr
    document = json.loads(done.stdout)
    assert ("error" in document) == (code != 0)
    if code:
        assert document["error"].keys() == {"code", "message", "hint", "fields"}
        assert document["error"]["code"].startswith("HF-")
    plain = run(*words)
    assert plain.returncode == code
    assert "Traceback" not in plain.stderr


def test_damage_ends_with_three(orders: Repository) -> None:
    identity = Path(orders.url.removeprefix("file://")) / orders.pipeline("orders").records.keys.identity
    identity.write_bytes(b"{}")
    assert run("show", "orders").returncode == 3
    assert run("check").returncode == 3


def test_an_error_is_one_block_with_message_code_and_hint(orders: Repository) -> None:
    answer = invoke("show", "orders@nothing")
    first, second = answer.err.splitlines()
    assert first.startswith("Error: no checkpoint 'orders@nothing'")
    assert first.endswith("[HF-3004]")
    assert second.startswith("Hint: ")
    assert answer.out == ""


def test_debug_shows_the_traceback(orders: Repository) -> None:
    answer = invoke("show", "orders@nothing", "--debug")
    assert "Traceback" in answer.err
    assert answer.code == 4


def test_a_repository_must_be_named() -> None:
    answer = invoke("list")
    assert answer.code == 2
    assert "HOLDFAST_REPO" in answer.err


def test_an_unexpected_error_is_told_as_a_mistake_of_ours(orders: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr("holdfast.handles.open_url", fail)
    answer = invoke("list", "--json")
    assert answer.code == 1
    assert answer.document["error"]["message"] == "unexpected RuntimeError: boom"


def test_a_place_that_can_not_be_written_is_an_error_without_a_traceback(orders: Repository) -> None:
    answer = invoke("restore", "orders", "/proc/nowhere/restored")
    assert answer.code == 1
    assert "/proc/nowhere" in answer.err
    assert "mistake" not in answer.err


@pytest.mark.parametrize("value", ["secret-without-a-key", "key=env:NOT_SET_ANYWHERE", "key=file:/not/there", "=x"])
def test_a_bad_store_option_is_a_usage_error_that_does_not_repeat_it(value: str) -> None:
    answer = invoke("list", "--repo", "s3://bucket/x", "--repo-option", value)
    assert answer.code == 2
    assert "secret-without-a-key" not in answer.out + answer.err


def test_ctrl_c_ends_quietly_with_130(orders: Repository) -> None:
    waiting = subprocess.Popen(
        [*HOLDFAST, "savepoint", "orders@now", "never", "--timeout", "60"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # What a shell runs in the background ignores Ctrl-C, and so would all that it starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    requests = orders.pipeline("orders").records
    while not requests.listed(requests.keys.requests, "request"):
        assert waiting.poll() is None
        time.sleep(0.02)
    waiting.send_signal(signal.SIGINT)
    out, err = waiting.communicate(timeout=60)
    assert (waiting.returncode, out, err.strip()) == (130, "", "")


def test_a_closed_pipe_ends_quietly(orders: Repository) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed:
        done = subprocess.run(
            [*HOLDFAST, "show", "orders"], stdout=closed, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (141, "")
