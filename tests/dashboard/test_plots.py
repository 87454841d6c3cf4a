"""Plots as geometry: axes that end at round numbers, words that do not touch."""

from __future__ import annotations

import re
from itertools import combinations, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import world_of
from dashboard.sample import HOSTILE
from holdfast.dashboard.over_time import WIDEST_STEP, plot
from holdfast.dashboard.plots import LETTER, WIDTH, bars, line, nice_bytes, nice_duration, ticks
from holdfast.dashboard.trees import Label, Named, Story, Tree, tree
from holdfast.decide.branches import branches
from holdfast.layout import Slot
from holdfast.report import CheckpointRow
from holdfast.text import duration, size

CSS = Path(__file__).resolve().parents[2] / "src/holdfast/dashboard/static/style.css"


@given(st.integers(0, 2**50))
def test_an_axis_of_bytes_ends_at_a_round_number_of_its_unit(value: int) -> None:
    top = nice_bytes(value)
    assert value <= top <= max(1, 2.5 * value)
    assert re.fullmatch(r"[125]0{0,2}(\.0)? (B|KiB|MiB|GiB|TiB|PiB)", size(top))


@given(st.integers(0, 10**10))
def test_an_axis_of_time_ends_at_a_round_number_of_its_unit(value: int) -> None:
    top = nice_duration(value)
    assert value <= top <= max(1, 2.5 * value)
    assert re.fullmatch(r"\d+ (ms|s|min|h|d)", duration(top))


def test_the_top_of_bars_is_where_their_axis_ends() -> None:
    found = bars([0, 512 * 1024, 1024 * 1024], 80, 10, 0, nice_bytes)
    assert found.top == 1024 * 1024
    assert [bar.height for bar in found.bars] == [0, 40, 80]


@given(
    st.integers(1, 80),
    st.floats(2, WIDEST_STEP),
    st.sampled_from(["20:04", "11-17 20:04", "11-17 20:04:59"]),
)
def test_ticks_never_touch_and_the_last_column_has_one(count: int, step: float, word: str) -> None:
    step = min(step, WIDTH / count)
    found = ticks([word] * count, step, WIDTH - count * step)
    wide = len(word) * LETTER
    assert found[0].x > WIDTH - wide - step
    assert all(later.x - earlier.x >= wide for later, earlier in pairwise(found))
    assert all(wide / 2 <= tick.x <= WIDTH - wide / 2 for tick in found)


def test_a_pause_in_a_line_is_as_wide_as_it_was_long() -> None:
    minute = 60_000
    found = line([1, 2, 3, 4], [0, minute, 9 * minute, 10 * minute], 80)
    x = [point[0] for point in found.points if point is not None]
    assert x[2] - x[1] == pytest.approx(8 * (x[1] - x[0]))
    assert x[3] - x[2] == pytest.approx(x[1] - x[0])


@given(st.lists(st.tuples(st.none() | st.integers(-9, 9), st.integers(0, 10**13)), min_size=1, max_size=60))
def test_points_never_go_back_whatever_the_clocks_did_and_all_of_a_line_can_be_pointed_at(
    made: list[tuple[int | None, int]],
) -> None:
    found = line([value for value, _ in made], [taken for _, taken in made], 80)
    known = [(point, hit) for point, hit in zip(found.points, found.hits, strict=True) if point is not None]
    assert [point is None for point in found.points] == [value is None for value, _ in made]
    assert [point[0] for point, _ in known] == sorted(point[0] for point, _ in known)
    assert all(0 < point[0] < WIDTH and 0 <= point[1] <= 80 for point, _ in known)
    assert sum(hit[1] for _, hit in known) == pytest.approx(WIDTH if known else 0, abs=1)
    assert all(hit[0] - 0.02 <= point[0] <= hit[0] + hit[1] + 0.02 for point, hit in known)


def row(number: int) -> CheckpointRow:
    return CheckpointRow(slot=f"0-{number}", on_timeline=True, epoch=number, timestamp_ms=number * 60_000, bytes_new=9)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 14, 60])
def test_few_columns_take_up_the_plot_and_their_bars_stay_bars(count: int) -> None:
    drawn = plot("orders", [row(number) for number in range(count)], {})
    assert drawn["columns"][0].x <= max(0, WIDTH - 250 * count) + 0.5
    assert drawn["columns"][-1].x + drawn["step"] == pytest.approx(WIDTH, abs=1)
    for column, bar in zip(drawn["columns"], drawn["new"].bars, strict=True):
        assert bar.width <= 72
        assert bar.x + bar.width / 2 == pytest.approx(column.x + drawn["step"] / 2, abs=0.1)


# ---- the tree ----


def grown(*generations: tuple[int, Slot | None], named: list[Named] | None = None, **stories: Story) -> Tree:
    """A tree of generations by how many checkpoints they have and where they began; stories are given as g0, g1, …"""
    told = {int(name[1:]): story for name, story in stories.items()}
    return tree(branches(world_of(*generations)), told, named or [])


def labels(found: Tree) -> list[Label]:
    return [each.label for each in (*found.strands, *found.marks) if each.label is not None]


def test_a_strand_says_why_its_generation_began() -> None:
    found = grown((5, None), (4, Slot(0, 1)), g0=Story("start", "start"), g1=Story("rewind", "rewind to x, by ann"))
    assert [label.words for label in labels(found)] == ["g0 start", "g0 abandoned", "g1 rewind"]
    assert [strand.title for strand in found.strands] == [
        "generation 0: start",
        "the rest of generation 0, abandoned",
        "generation 1: rewind to x, by ann",
    ]


def test_a_fork_is_marked_where_it_left_and_where_it_came_from() -> None:
    fork = Named(Slot(0, 3), "↳ other", "fork", "/pipelines/other", "other was forked from 0-3")
    [mark] = grown((5, None), named=[fork]).marks
    assert 30 < mark.x < WIDTH - 30
    assert mark.label is not None
    parent = Story("fork", "fork of orders@1-9", "orders@1-9", "/pipelines/orders/checkpoints/1-9")
    [strand] = grown((5, None), g0=parent).strands
    assert (strand.label and strand.label.words, strand.href) == ("g0 fork of orders@1-9", parent.href)


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(0, 11), st.integers(0, 30), st.sampled_from(["fork", "savepoint"])), max_size=20),
)
def test_labels_never_overlap_and_stay_within(
    made: list[tuple[int, int, int]], marked: list[tuple[int, int, str]]
) -> None:
    generations: list[tuple[int, Slot | None]] = []
    for number, (count, of, at) in enumerate(made):
        parent = of % number if number else 0
        held = generations[parent][0] if number else 0
        generations.append((count, Slot(parent, at % held) if held else None))
    named = [Named(Slot(g, n), f"{HOSTILE}-{n}", kind, "/", "") for g, n, kind in marked]
    found = grown(*generations, named=named, g0=Story("start", ""), g1=Story("rewind", "", "orders@1-9", "/"))
    boxes = [(label.x, label.y, (len(label.words) + 1) * LETTER / 2) for label in labels(found)]
    assert boxes
    for (x, y, half), (other_x, other_y, other_half) in combinations(boxes, 2):
        assert abs(y - other_y) >= 13 or abs(x - other_x) >= half + other_half - 0.02
    assert all(half - 0.02 <= x <= WIDTH - half + 0.02 and 12 <= y < found.height for x, y, half in boxes)


# ---- colours ----


THEMES = ["light", "dark by the system", "dark by choice"]
"""In the order in which the style sheet has them."""


@pytest.mark.parametrize("theme", THEMES)
def test_whatever_is_drawn_stands_out_from_its_ground_in_every_theme(theme: str) -> None:
    blocks = re.findall(r":root[^{]*\{([^}]*--panel[^}]*)\}", CSS.read_text(encoding="utf-8"))
    tokens = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", blocks[THEMES.index(theme)]))
    for drawn in ("accent", "shared", "took", "off", "damaged", "waiting"):
        assert contrast(tokens[drawn], tokens["panel"]) >= 3, drawn


def contrast(one: str, other: str) -> float:
    """As WCAG counts it."""

    def light(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    darker, lighter = sorted([light(one), light(other)])
    return (lighter + 0.05) / (darker + 0.05)
