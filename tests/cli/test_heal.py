"""`holdfast restore --heal`: what is missing or damaged in a directory comes back, and nothing else happens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import holdfast
from cli.sample_repository import invoke
from spark.directories import MadeDirectory


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeDirectory:
    """A query that has run three batches and was captured after the last."""
    monkeypatch.setenv("HOLDFAST_REPO", str(tmp_path / "repository"))
    repository = holdfast.open(str(tmp_path / "repository"), create=True)
    directory = MadeDirectory(tmp_path / "ck")
    for _ in range(3):
        directory.batch()
    holdfast.capture(directory.root, repository, pipeline="orders", stopped=True)
    return directory


LOST, ROTTEN = "state/0/1/3.delta", "state/0/0/2.delta"


def harm(made: MadeDirectory) -> dict[str, bytes]:
    before = {name: (made.root / name).read_bytes() for name in (LOST, ROTTEN)}
    made.remove(LOST)
    made.write(ROTTEN, before[ROTTEN][:-1])
    return before


def test_what_is_missing_or_damaged_comes_back_byte_for_byte(made: MadeDirectory) -> None:
    before = harm(made)
    told = invoke("restore", "orders", "--heal", str(made.root), "--stopped")
    assert told.code == 0
    assert LOST in told.out
    assert ROTTEN in told.out
    assert {name: (made.root / name).read_bytes() for name in before} == before
    again = invoke("restore", "orders", "--heal", str(made.root), "--stopped")
    assert "Nothing to heal" in again.out


def test_a_dry_run_only_tells(made: MadeDirectory) -> None:
    harm(made)
    names = made.names()
    told = invoke("restore", "orders", "--heal", str(made.root), "--dry-run", "--json")
    assert [file["name"] for file in json.loads(told.out)["plan"]["files"]] == sorted([LOST, ROTTEN])
    assert json.loads(told.out)["healed"] is None
    assert made.names() == names


def test_a_directory_of_another_query_is_not_touched(made: MadeDirectory, tmp_path: Path) -> None:
    other = MadeDirectory(tmp_path / "other")
    other.batch()
    other.remove("state/0/1/1.delta")
    names = other.names()
    assert invoke("restore", "orders", "--heal", str(other.root), "--stopped").code == 6
    assert other.names() == names


@pytest.mark.parametrize(
    "words",
    [
        ["orders"],
        ["orders", "place", "--heal", "ck"],
        ["orders", "place", "--dry-run"],
        ["orders", "place", "--stopped"],
        ["orders", "--heal", "ck", "--set-offset", "0:orders:1=2"],
    ],
)
def test_what_does_not_go_together_is_a_mistake_of_usage(made: MadeDirectory, words: list[str]) -> None:
    assert invoke("restore", *words).code == 2
