"""The table of what each sink can do says what the sinks say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast import sinks
from holdfast.decide.modes import OUTPUT_MODES, why_not
from holdfast.sinks.contract import Sink

PAGE = (Path(__file__).resolve().parents[2] / "docs/reference/sinks.md").read_text(encoding="utf-8")
ROWS = {
    cells[0].strip("`"): cells[1:] for line in PAGE.splitlines() if (cells := re.findall(r"\| ([^|]*?) (?=\|)", line))
}
MODES = ("append", "upsert", "overwrite")
KINDS = [name for name in sinks.__all__ if isinstance(kind := getattr(sinks, name), type) and issubclass(kind, Sink)]


@pytest.mark.parametrize("name", [name for name in KINDS if name != "Sink"])
def test_a_sink_can_do_what_the_page_says(name: str) -> None:
    kind: type[Sink] = getattr(sinks, name)
    said = ROWS[name]
    assert [cell == "yes" for cell in said[:3]] == [mode in kind.modes for mode in MODES]
    assert (said[3] == "yes") == (kind.roll_back is not Sink.roll_back)
    assert (said[4] == "yes") == kind.can_jump


@pytest.mark.parametrize("output", OUTPUT_MODES)
def test_what_may_go_where_is_what_the_page_says(output: str) -> None:
    words = {"yes": True, "no": False, "with `changelog=True`": None}
    for mode, said in zip(MODES, [cells for name, cells in ROWS.items() if name == output][-1], strict=True):
        plain, changelog = why_not(output, mode) is None, why_not(output, mode, changelog=True) is None
        assert words[said] is (plain if plain == changelog else None)
