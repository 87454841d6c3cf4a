"""What a page asks of the store does not grow with the repository; `benchmarks/dashboard_scale.py` has the times."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from dashboard.conftest import TOKEN, Client, Serving
from dashboard.sample import make_many
from holdfast.dashboard import fleet, overview, pipeline
from holdfast.store import open_store
from holdfast.testing.faults import CountingStore

ROOT = Path(__file__).resolve().parents[2]
NOW = time.time_ns() // 1_000_000
ROWS, COLUMNS = 5, 10
SIZES = [(6, 25), (24, 100)]
"""Both beyond what one page shows here."""


class Served(NamedTuple):
    client: Client
    store: CountingStore

    def asked(self, path: str) -> int:
        """How many requests a page makes."""
        self.store.reset()
        assert self.client.get(path, authorization=f"Bearer {TOKEN}").status == 200
        return self.store.total


@pytest.fixture(scope="module")
def served(serving: Serving) -> Iterator[list[Served]]:
    """Two dashboards with short pages that have seen all their pipelines, and look for nothing by themselves."""
    stores = [CountingStore(open_store("memory://")) for _ in SIZES]
    small, large = (make_many(store, *size, NOW) for store, size in zip(stores, SIZES, strict=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overview, "PAGE", ROWS)
        patch.setattr(pipeline, "PAGE", COLUMNS)
        patch.setattr(fleet, "FRESH_SECONDS", 1e9)
        patch.setattr(fleet, "SWEEP_SECONDS", 1e9)
        with serving(small, token=TOKEN) as first, serving(large, token=TOKEN) as second:
            both = [Served(first, stores[0]), Served(second, stores[1])]
            for each in both:
                each.client.wait_for_the_sweep()
            yield both


@pytest.mark.parametrize(
    "path",
    [
        "/pipelines/pipeline-0000",
        "/pipelines/pipeline-0001?page=1",
        "/pipelines/pipeline-0002/checkpoints/0-5",
        "/pipelines/pipeline-0003/checkpoints/0-5/diff?with=slot:0-1",
        "/api/pipelines/pipeline-0004/checkpoints?size=20",
        "/api/pipelines/pipeline-0005/courses?size=20",
        "/api/pipelines/pipeline-0005/generations",
        "/api/pipelines",
        "/metrics",
        "/healthz",
        "/openapi.json",
    ],
)
def test_a_page_asks_the_same_of_a_small_and_of_a_large_repository(served: list[Served], path: str) -> None:
    small, large = (each.asked(path) for each in served)
    assert small == large


def test_the_overview_asks_for_names_and_for_one_hint_of_each_pipeline_that_it_shows(
    served: list[Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "FRESH_SECONDS", 0.0)
    assert [each.asked("/") for each in served] == [1 + ROWS, 1 + ROWS]


def test_a_page_that_renews_itself_asks_nothing_more_while_nothing_moves(
    served: list[Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in served:
        path = "/pipelines/pipeline-0003"
        page = each.client.get(path).text
        monkeypatch.setattr(fleet, "FRESH_SECONDS", 0.0)
        each.store.reset()
        assert each.client.get(path, x_holdfast_renew="1").text.count("column") == page.count("column")
        monkeypatch.setattr(fleet, "FRESH_SECONDS", 1e9)
        assert each.store.counts == {"get": 1}
        assert each.asked(path) > 1


def test_a_second_look_reads_no_head_and_no_manifest_for_the_plot_again(served: list[Served]) -> None:
    for each in served:
        first, second = each.asked("/pipelines/pipeline-0004?page=1"), each.asked("/pipelines/pipeline-0004?page=1")
        assert each.store.counts["get_ranges"] == 0
        assert second < first


@pytest.mark.parametrize(
    ("harm", "code"),
    [("", 0), ("scale.compare = lambda *_: False", 1), ("scale.FLAT_MIB = -1000", 1)],
)
def test_the_benchmark_fails_when_a_goal_is_missed(harm: str, code: int) -> None:
    size = ["--rounds", "1", "--pipelines", "12", "--checkpoints", "12"]
    program = f"from benchmarks import dashboard_scale as scale\n{harm}\nscale.main()"
    words = [sys.executable, "-c", program, *size]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == code, ended.stderr
    assert ("MISSED" in ended.stdout) == bool(code)
