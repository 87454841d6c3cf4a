"""The snippets that readers copy run as they stand, against a real folder in place of the address."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import holdfast
from spark.directories import MadeDirectory

ROOT = Path(__file__).resolve().parent.parent
PAGES = ["README.md", "docs/how-to/python-loop.md", "docs/how-to/sidecar.md"]
ADDRESS = re.compile(r'"(?:file|s3|az|gs)://[^"]*"')
ORDERS = [SimpleNamespace(customer="ann", amount=2), SimpleNamespace(customer="bob", amount=3)]


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def run(code: str, place: Path, names: dict[str, Any]) -> None:
    exec(compile(ADDRESS.sub(repr(place.as_uri()), code), "snippet", "exec"), names)


def test_the_pages_have_the_snippets_that_are_tried_here() -> None:
    assert [len(blocks(page)) for page in PAGES] == [4, 1, 2]


def test_the_loop_in_the_readme_runs_twice_and_goes_on_where_it_stood(tmp_path: Path) -> None:
    loop = blocks("README.md")[2].replace("1000 events", "2 events")
    starts: list[int] = []

    def read_orders(start: int) -> list[Any]:
        starts.append(start)
        return ORDERS

    for expected in ({"ann": 2, "bob": 3}, {"ann": 4, "bob": 6}):
        names: dict[str, Any] = {"read_orders": read_orders}
        run(loop, tmp_path / "repository", names)
        assert names["totals"] == expected
    assert starts == [0, 2]


def test_the_processor_in_the_readme_runs_on_a_new_pipeline_and_on_an_old_one(tmp_path: Path) -> None:
    processor = blocks("README.md")[3]
    given = {name: name.encode() for name in re.findall(r"\b\w+_bytes\b", processor)}
    for _ in range(2):
        run(processor, tmp_path / "repository", {"holdfast": holdfast, **given})
    orders = holdfast.open(str(tmp_path / "repository")).pipeline("orders")
    newest = orders.latest()
    assert newest is not None
    assert [artifact.is_delta for artifact in newest.operators["aggregate"][1]] == [False, True]
    assert orders.check(read_percent=100).damaged == []


@pytest.mark.parametrize("code", blocks("docs/how-to/python-loop.md"))
def test_the_snippet_of_the_how_to_runs_twice_and_goes_on_where_it_stood(tmp_path: Path, code: str) -> None:
    for expected in ({"ann": 2, "bob": 3}, {"ann": 4, "bob": 6}):
        names: dict[str, Any] = {"read_orders": lambda start: enumerate(ORDERS, start)}
        run(code, tmp_path / "repository", names)
        assert names["totals"] == expected


def test_the_snippets_of_the_sidecar_capture_a_directory(tmp_path: Path) -> None:
    holdfast.open(str(tmp_path / "repository"), create=True)
    made = MadeDirectory(tmp_path / "ck")
    for code in blocks("docs/how-to/sidecar.md"):
        made.batch()
        made.batch()
        run(code.replace("/data/checkpoints/orders", str(made.root)), tmp_path / "repository", {})
    orders = holdfast.open(str(tmp_path / "repository")).pipeline("orders")
    assert orders["before-upgrade"].epoch == 0
