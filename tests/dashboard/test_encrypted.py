"""The dashboard of an encrypted repository: with the key that was given it shows what that of a plain one shows."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from dashboard.conftest import TOKEN, Client, Serving
from dashboard.sample import Writer
from holdfast.handles import Repository

NOW = time.time_ns() // 1_000_000
CHANGING = re.compile(r"holdfast_last_\w+_age_seconds\{.*|\d+ (?:s|ms)\b")


def written(path: Path, key: holdfast.Key | None) -> Repository:
    """One pipeline, the same in every repository but for what is drawn by chance."""
    repository = holdfast.open(str(path), create=True, key=key)
    it = Writer(repository, "orders", NOW, partitions=2)
    it.claim(0, age_ms=60_000)
    it.hint(it.run(0, range(5), 60_000, 1_000))
    return repository


@pytest.fixture
def both(tmp_path: Path, serving: Serving) -> Iterator[tuple[Client, Client]]:
    """A dashboard of a plain repository and one of an encrypted one, with the key given outright."""
    plain, vault = written(tmp_path / "plain", None), written(tmp_path / "vault", holdfast.Key.generate())
    with serving(plain, token=TOKEN) as first, serving(vault, token=TOKEN) as second:
        first.wait_for_the_sweep()
        second.wait_for_the_sweep()
        yield first, second


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/", "/pipelines/orders"),
        ("/pipelines/orders", "/pipelines/orders/checkpoints/0-4"),
        ("/pipelines/orders/checkpoints/0-4", "window by hour"),
        ("/pipelines/orders/checkpoints/0-4/diff", "orders:0"),
    ],
)
def test_a_page_of_an_encrypted_repository_shows_what_it_holds(
    both: tuple[Client, Client], path: str, shown: str
) -> None:
    for client in both:
        answer = client.get(path)
        assert answer.status == 200
        assert shown in answer.text


def test_the_api_and_the_figures_of_an_encrypted_repository_are_those_of_a_plain_one(
    both: tuple[Client, Client],
) -> None:
    plain, vault = (client.get("/api/pipelines").document for client in both)
    assert vault["counts"] == plain["counts"]
    assert [one["seen"]["newest"] for one in vault["pipelines"]] == ["0-4"]
    plain, vault = (client.get("/api/pipelines/orders/checkpoints").document for client in both)
    assert [(row["slot"], row["epoch"]) for row in vault["rows"]] == [
        (row["slot"], row["epoch"]) for row in plain["rows"]
    ]
    first, second = (CHANGING.sub("", client.get("/metrics").text) for client in both)
    assert 'holdfast_checkpoint_epoch{pipeline="orders"} 4.0' in second
    assert first == second


def test_a_check_of_an_encrypted_pipeline_acts_with_its_key(both: tuple[Client, Client]) -> None:
    job = both[1].job(both[1].call("/api/pipelines/orders/checks", {}))
    assert job["state"] == "done"
