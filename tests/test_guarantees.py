"""The page of guarantees names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", (ROOT / "docs/guarantees.md").read_text())))


def test_the_page_names_tests() -> None:
    assert any(name for _, name in NAMED)
    assert any(not name for _, name in NAMED)


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_a_test_that_is_named_exists(file: str, name: str) -> None:
    assert (ROOT / file).is_file()
    assert not name or re.search(rf"^ *def {name}\(", (ROOT / file).read_text(), re.MULTILINE)
