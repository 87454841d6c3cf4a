"""`holdfast standby`: what it says, and how it ends."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import holdfast
from cli.sample_repository import invoke, take_checkpoints
from holdfast import Repository
from holdfast.layout import REPOSITORY
from holdfast.records import RepositoryRecord, seal, unseal


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_one_round_copies_and_says_how_far_behind_the_copy_is(orders: Repository, tmp_path: Path) -> None:
    copy = str(tmp_path / "copy")
    first = invoke("standby", orders.url, copy, "--init", "--once")
    assert (first.code, first.err) == (0, "")
    assert "orders  epoch 5 is here (1-1), " in first.out
    assert "s after it was taken: 6 checkpoints, " in first.out
    assert re.search(r"; lag \d+ s, 0 B$", first.out.strip())
    assert holdfast.open(copy).pipeline("orders").check(read_percent=100).damaged == []
    [told] = lines(invoke("standby", orders.url, copy, "--once", "--json").out)
    assert (told["event"], told["pipeline"], told["checkpoints"], told["bytes"]) == ("followed", "orders", 0, 0)
    assert told["source"] == told["here"]
    assert (told["here"]["epoch"], told["lag_bytes"]) == (5, 0)
    assert told["lag_seconds"] > 0


def test_what_is_damaged_at_the_source_is_behind_and_ends_one_round_with_3(orders: Repository, tmp_path: Path) -> None:
    copy = str(tmp_path / "copy")
    newest = orders.pipeline("orders").latest()
    assert newest is not None
    [path] = newest.manifest.objects.keys() - orders.pipeline("orders")["epoch:4"].manifest.objects.keys()
    victim = tmp_path / "repository" / "pipelines" / "orders" / path
    victim.write_bytes(victim.read_bytes()[:-1])
    for words in (["--init"], []):
        answer = invoke("standby", orders.url, copy, "--once", *words)
        assert answer.code == 3
        assert f"{newest.slot} was not copied: " in answer.err
        assert "epoch 4 is here (1-0)" in answer.out
        assert re.search(r"lag \d+ s, .*iB, newest at the source: epoch 5", answer.out)
    answer = invoke("standby", orders.url, copy, "--once", "--json")
    assert answer.code == 3
    [told] = lines(answer.out)
    assert (told["source"]["epoch"], told["here"]["epoch"]) == (5, 4)
    assert told["lag_bytes"] == newest.head.bytes_new
    assert told["lag_seconds"] > 0


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


def test_a_round_that_takes_long_shows_how_far_it_is(
    orders: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.standby.TELL_SECONDS", 0)
    answer = invoke("standby", orders.url, str(tmp_path / "copy"), "--init", "--once")
    assert re.search(r"orders  2 of 6 checkpoints; lag \d+ s, [\d.]+ KiB, newest at the source: epoch 5", answer.out)
    told = lines(invoke("standby", orders.url, str(tmp_path / "again"), "--init", "--once", "--json").out)
    behind = [line for line in told if line["event"] == "behind"]
    assert [line["done"] for line in behind] == sorted({line["done"] for line in behind} | {6})
    assert all(line["total"] == 6 and line["source"]["epoch"] == 5 for line in behind[:-1])
    assert behind[0]["lag_bytes"] > behind[-1]["lag_bytes"] == 0


# ---- encryption ----


@pytest.fixture
def key_files(tmp_path: Path) -> list[str]:
    files = [str(tmp_path / name) for name in ("one.key", "other.key")]
    for file in files:
        assert invoke("key", "new", file).code == 0
    return files


def test_each_end_has_a_key_of_its_own(orders: Repository, tmp_path: Path, key_files: list[str]) -> None:
    vault, copy = str(tmp_path / "vault"), str(tmp_path / "copy")
    first = invoke("standby", orders.url, vault, "--init", "--once", "--to-key-file", key_files[0])
    assert first.code == 0, first.err
    keys = ["--from-key-file", key_files[0], "--to-key-file", key_files[1]]
    second = invoke("standby", vault, copy, "--init", "--once", *keys)
    assert second.code == 0, second.err
    assert invoke("check", "--repo", copy, "--key-file", key_files[1], "--read-data").code == 0
    assert not [path for path in Path(copy).rglob("*") if path.is_file() and b"orders" in path.read_bytes()]


@pytest.mark.parametrize("more", [["--once"], []])
def test_an_encrypted_source_is_not_followed_by_a_plain_copy_and_none_is_made(
    orders: Repository, tmp_path: Path, key_files: list[str], more: list[str]
) -> None:
    vault, copy = str(tmp_path / "vault"), tmp_path / "copy"
    assert invoke("copy", orders.url, vault, "--init", "--to-key-file", key_files[0]).code == 0
    words = ["standby", vault, str(copy), "--init", "--from-key-file", key_files[0], *more]
    answer = invoke(*words)
    assert (answer.code, "HF-5043" in answer.err) == (6, True), answer.err
    assert not copy.exists()
    if more:
        assert invoke(*words, "--decrypt").code == 0
        assert invoke("list", "orders", "--repo", str(copy)).code == 0


@pytest.mark.parametrize("more", [["--once"], [], ["--activate", "job:pipeline"]])
def test_a_copy_whose_root_record_was_changed_is_not_written_to_for_all_to_read(
    orders: Repository, tmp_path: Path, key_files: list[str], monkeypatch: pytest.MonkeyPatch, more: list[str]
) -> None:
    vault = tmp_path / "vault"
    monkeypatch.setenv("HOLDFAST_KEY_FILE", key_files[0])
    assert invoke("standby", orders.url, str(vault), "--init", "--once").code == 0
    record = unseal(REPOSITORY, (vault / REPOSITORY).read_bytes(), RepositoryRecord)
    plain = RepositoryRecord(token=record.token, repository_id=record.repository_id, created_ms=record.created_ms)
    (vault / REPOSITORY).write_bytes(seal(plain))
    before = {path for path in vault.rglob("*") if path.is_file()}
    take_checkpoints(holdfast.open(orders.url, key=None).pipeline("orders"), 6, 6)
    answer = invoke("standby", orders.url, str(vault), *more)
    assert (answer.code, "HF-5042" in answer.err) == (6, True), answer.err
    assert {path for path in vault.rglob("*") if path.is_file()} == before


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
