"""`holdfast standby`: what it says, and how it ends."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from cli.sample_repository import Answer, invoke, take_checkpoints
from holdfast import Repository
from holdfast.layout import REPOSITORY
from holdfast.records import RepositoryRecord, seal, unseal
from holdfast.store.file import FileStore


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


def test_a_record_that_is_damaged_at_the_source_is_told_and_ends_one_round_with_3(
    orders: Repository, tmp_path: Path
) -> None:
    key = orders.pipeline("orders").records.keys.savepoint("before-upgrade", 0)
    orders.store.put(key, b"nothing that can be read")
    answer = invoke("standby", orders.url, str(tmp_path / "copy"), "--init", "--once")
    assert (answer.code, f"orders  {key} was not copied: " in answer.err) == (3, True)
    answer = invoke("standby", orders.url, str(tmp_path / "copy"), "--once", "--json")
    [told] = lines(answer.out)
    assert (answer.code, told["damaged"][0]["key"], told["damaged"][0]["slot"]) == (3, key, None)


def test_what_is_not_known_of_a_lag_is_shown_as_unknown(orders: Repository, tmp_path: Path) -> None:
    newest = orders.pipeline("orders").latest()
    assert newest is not None
    orders.store.put(orders.pipeline("orders").records.keys.manifest(newest.slot), b"nothing" * 1000)
    answer = invoke("standby", orders.url, str(tmp_path / "copy"), "--init", "--once")
    assert f"s, an unknown number of bytes, newest at the source: {newest.slot}" in answer.out
    [told] = lines(invoke("standby", orders.url, str(tmp_path / "copy"), "--once", "--json").out)
    assert told["source"] == {"slot": str(newest.slot), "epoch": None, "timestamp_ms": None}
    assert told["lag_bytes"] is None


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


@pytest.mark.parametrize("more", [[], ["--once"]])
def test_rounds_without_a_pause_are_refused(orders: Repository, tmp_path: Path, more: list[str]) -> None:
    answer = invoke("standby", orders.url, str(tmp_path / "copy"), "--init", "--every", "0s", *more)
    assert (answer.code, "more than nothing" in answer.err) == (2, True)
    assert not (tmp_path / "copy").exists()


# ---- what an activation says of its source ----

JOB = """
from holdfast.pipeline.pipeline import Pipeline
from holdfast.sinks import SQLite

pipeline = Pipeline("orders", sources={"events": None}, query=lambda events: events, sinks={"log": SQLite("x.db", "t")})
"""


class Taken:
    """A copy of `orders` that is about to be activated; `runs` counts how often it came to a run."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.copy = str(root / "copy")
        self.runs = 0

    def run(self, *_: object, **__: object) -> None:
        self.runs += 1

    def damage(self, epoch: int) -> str:
        """Damage what only one checkpoint of the source has; gives its slot."""
        pipeline = holdfast.open(str(self.root / "repository")).pipeline("orders")
        found, before = pipeline[f"epoch:{epoch}"], pipeline[f"epoch:{epoch - 1}"]
        [path] = found.manifest.objects.keys() - before.manifest.objects.keys()
        victim = self.root / "repository/pipelines/orders" / path
        victim.write_bytes(victim.read_bytes()[:-1])
        return str(found.slot)

    def activate(self, *words: str, source: str = "") -> Answer:
        answer = invoke(
            "standby", source or str(self.root / "repository"), self.copy, "--activate", "standby_job:pipeline", *words
        )
        assert (answer.code, self.runs) == (0, 1), answer.err
        self.runs = 0
        return answer


@pytest.fixture
def taken(orders: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Taken]:
    """All but the run itself is as it is: tests/pipeline/test_activate.py has that too."""
    taken = Taken(tmp_path)
    (tmp_path / "standby_job.py").write_text(JOB)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr("holdfast.cli.activating.run_until_told", taken.run)
    assert invoke("standby", orders.url, taken.copy, "--init", "--once").code == 0
    take_checkpoints(orders.pipeline("orders"), 6, 7)
    yield taken
    sys.modules.pop("standby_job", None)


def test_all_that_a_whole_source_holds_is_said_to_be_here(taken: Taken) -> None:
    answer = taken.activate()
    assert "orders: the newest checkpoint here: 2-1, epoch 7, taken " in answer.out
    assert "orders: all that the source holds is here" in answer.out
    assert answer.err == ""


def test_a_newest_checkpoint_that_is_damaged_at_the_source_is_said_to_be_lacking(taken: Taken) -> None:
    slot = taken.damage(7)
    answer = taken.activate()
    assert "orders: the newest checkpoint here: 2-0, epoch 6, taken " in answer.out
    assert "that the source holds is here" not in answer.out
    assert f"orders: {slot} is damaged at the source, and is not here: " in answer.err
    assert "is taken back in the sinks, and run again from here" in answer.err
    [told] = lines(taken.activate("--json").out)
    assert (told["epoch"], told["source_error"]) == (6, None)
    assert [lost["slot"] for lost in told["damaged"]] == [slot]
    assert told["damaged"][0]["why"]


def test_an_older_checkpoint_that_is_damaged_at_the_source_is_said_too_and_loses_nothing_newer(taken: Taken) -> None:
    found = holdfast.open(str(taken.root / "repository")).pipeline("orders")["epoch:6"]
    manifest = taken.root / "repository" / found.pipeline.records.keys.manifest(found.slot)
    manifest.write_bytes(manifest.read_bytes()[:-1])
    answer = taken.activate()
    assert "orders: the newest checkpoint here: 2-1, epoch 7, taken " in answer.out
    assert f"orders: {found.slot} is damaged at the source, and is not here: " in answer.err
    assert "orders: all else that the source holds is here" in answer.out
    assert "run again from here" not in answer.err


def test_a_key_that_can_not_be_had_for_the_source_is_told_and_stops_nothing(taken: Taken) -> None:
    answer = taken.activate("--from-key-file", "nope")
    assert "orders: the source was not asked for more: nope: the key can't be read" in answer.err
    assert "that the source holds is here" not in answer.out
    [told] = lines(taken.activate("--from-key-file", "nope", "--json").out)
    assert "the key can't be read" in told["source_error"]


def test_a_source_that_does_not_open_with_the_key_is_told_and_stops_nothing(taken: Taken, key_files: list[str]) -> None:
    vault = str(taken.root / "vault")
    assert invoke("copy", str(taken.root / "repository"), vault, "--init", "--to-key-file", key_files[0]).code == 0
    assert "does not open" in taken.activate("--from-key-file", key_files[1], source=vault).err
    assert "no key was given" in taken.activate(source=vault).err
    laid_open = taken.activate("--from-key-file", key_files[0], source=vault)
    assert "a copy would lay everything open" in laid_open.err
    plain = taken.activate("--from-key-file", key_files[0])
    assert "is not encrypted" in plain.err


def test_a_source_of_a_newer_holdfast_is_told_and_stops_nothing(taken: Taken, monkeypatch: pytest.MonkeyPatch) -> None:
    file = taken.root / "repository" / REPOSITORY
    record = unseal(REPOSITORY, file.read_bytes(), RepositoryRecord)
    with monkeypatch.context() as newer:
        newer.setattr("holdfast.records.FORMAT", "99.0")
        file.write_bytes(seal(record))
    answer = taken.activate()
    assert "newer than this Holdfast reads" in answer.err
    assert "orders: the newest checkpoint here: 1-1, epoch 5, taken " in answer.out


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_a_source_that_takes_connections_and_never_answers_is_given_up(
    taken: Taken, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.cli.activating.LAST_LOOK", 1.0)
    options = [f"endpoint={silent}", "region=us-east-1", "access_key_id=x", "secret_access_key=x"]
    words = [word for option in options for word in ("--from-option", option)]
    answer = taken.activate(*words, source="s3://bucket/holdfast")
    assert "orders: the source was not asked for more: it did not answer within 1 s" in answer.err
    assert "what it ran after that is taken back in the sinks" in answer.err
    assert "orders: the newest checkpoint here: 1-1, epoch 5, taken " in answer.out
    [told] = lines(taken.activate(*words, "--json", source="s3://bucket/holdfast").out)
    assert told["source_error"] == "it did not answer within 1 s"


class Hanging:
    """Holds up whoever gets an object of the source whose key it is told of, until it is let go."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
        self.goes_on = threading.Event()
        get = FileStore.get

        def hang(store: FileStore, key: str) -> bytes:
            if part in key and store.url == f"file://{root / 'repository'}":
                assert self.goes_on.wait(60)
            return get(store, key)

        monkeypatch.setattr(FileStore, "get", hang)


@pytest.fixture
def hangs(taken: Taken, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Hanging]]:
    made: list[Hanging] = []

    def hang(part: str) -> Hanging:
        made.append(Hanging(taken.root, monkeypatch, part))
        return made[-1]

    yield hang
    for each in made:
        each.goes_on.set()
    for thread in threading.enumerate():
        if thread.name == "holdfast-last-look":
            thread.join(60)


def test_a_share_that_hangs_is_given_up_too(
    taken: Taken, hangs: Callable[[str], Hanging], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.cli.activating.LAST_LOOK", 0.5)
    hanging = hangs(REPOSITORY)
    assert "it did not answer within 0 s" in taken.activate().err
    assert not hanging.goes_on.is_set()


def test_a_source_that_is_too_slow_tells_how_far_it_is_and_is_given_up_with_what_has_arrived(
    taken: Taken, hangs: Callable[[str], Hanging], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.cli.activating.FETCH_SECONDS", 3.0)
    monkeypatch.setattr("holdfast.cli.activating.TELL_SECONDS", 0.0)
    newest = holdfast.open(str(taken.root / "repository")).pipeline("orders")["epoch:7"]
    hangs(newest.pipeline.records.keys.manifest(newest.slot))
    answer = taken.activate()
    assert "orders: fetching what the source still has: 1 of 2 checkpoints" in answer.out
    assert "it was given up after 3 s, with 1 of 2 checkpoints fetched" in answer.err
    assert "orders: the newest checkpoint here: 2-0, epoch 6, taken " in answer.out
    assert "that the source holds is here" not in answer.out


def test_a_damaged_record_of_the_source_is_said_to_be_lacking(taken: Taken) -> None:
    records = holdfast.open(str(taken.root / "repository")).pipeline("orders").records
    records.store.put(records.keys.claim(2), b"nothing that can be read")
    answer = taken.activate()
    assert f"orders: {records.keys.claim(2)} is damaged at the source, and is not here: " in answer.err
    assert "is taken back in the sinks, and run again from here" in answer.err
    assert "orders: the newest checkpoint here: 1-1, epoch 5, taken " in answer.out


def test_a_source_that_has_diverged_stops_it(taken: Taken) -> None:
    other = holdfast.open(str(taken.root / "other"), create=True)
    take_checkpoints(other.pipeline("orders"), 0, 1)
    answer = invoke("standby", other.url, taken.copy, "--activate", "standby_job:pipeline")
    assert (answer.code, taken.runs) == (5, 0), answer.err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_follows_until_it_is_told_to_stop(orders: Repository, tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "holdfast", "standby", orders.url, str(tmp_path / "copy"), "--init"]
    process = subprocess.Popen([*command, "--every", "50ms", "--json"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    has_more = False
    for line in process.stdout:
        told = json.loads(line)
        if told["here"]["epoch"] == 5 and not told["checkpoints"] and not has_more:
            has_more = True
            take_checkpoints(orders.pipeline("orders"), 6, 6)
        if told["here"]["epoch"] == 6:
            break
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    last = lines(out)[-1]
    assert (last["event"], last["checkpoints"], last["failures"]) == ("stopped", 7, 0)
