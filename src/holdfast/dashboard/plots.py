"""Plots as geometry: what to draw where. Templates write it as SVG, the script adds the mouse and the keyboard."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from holdfast.decide.branches import Stretch
from holdfast.layout import Slot

__all__ = ["Bar", "Bars", "Cell", "Line", "Mark", "Strand", "Tree", "bars", "heat", "line", "nice_ceiling", "tree"]

WIDTH = 1000
LANE = 48
STEPS = 8
"""How many shades a heat map has."""

MOST_STRETCHES = 80
MOST_MARKS = 60


@dataclass(frozen=True)
class Bar:
    x: float
    width: float
    y: float
    height: float


@dataclass(frozen=True)
class Bars:
    """One strip of bars, in a box of its height; `top` is the value that the upper edge stands for."""

    bars: tuple[Bar, ...]
    height: float
    top: float


def bars(values: Sequence[float], height: float, step: float, start: float = 0) -> Bars:
    """One bar for each value, on a common baseline; a value above 0 is always to be seen."""
    top = nice_ceiling(max(values, default=0))
    gap = min(4.0, step * 0.25)

    def bar(index: int, value: float) -> Bar:
        tall = 0.0 if value <= 0 else max(1.5, value / top * height)
        return Bar(
            round(start + index * step + gap / 2, 2), round(step - gap, 2), round(height - tall, 2), round(tall, 2)
        )

    return Bars(tuple(bar(index, value) for index, value in enumerate(values)), height, top)


@dataclass(frozen=True)
class Line:
    """A line through known values; where one is not known it is broken. `lowest` and `highest` are its range."""

    points: tuple[tuple[float, float] | None, ...]
    height: float
    lowest: float
    highest: float

    @property
    def path(self) -> str:
        words: list[str] = []
        pen_down = False
        for point in self.points:
            if point is not None:
                words.append(f"{'L' if pen_down else 'M'}{point[0]:g} {point[1]:g}")
            pen_down = point is not None
        return " ".join(words)

    @property
    def area(self) -> str:
        known = [point for point in self.points if point is not None]
        if len(known) < len(self.points) or len(known) < 2:
            return ""
        return f"{self.path} L{known[-1][0]:g} {self.height:g} L{known[0][0]:g} {self.height:g} Z"


def line(values: Sequence[float | None], height: float, width: float = WIDTH, *, from_zero: bool = False) -> Line:
    """A line over evenly spread values."""
    known = [value for value in values if value is not None]
    lowest = 0.0 if from_zero else float(min(known, default=0))
    highest = max(float(max(known, default=0)), lowest)
    span = highest - lowest or 1.0
    step = width / max(1, len(values))

    def point(index: int, value: float | None) -> tuple[float, float] | None:
        if value is None:
            return None
        return round((index + 0.5) * step, 2), round(height - 3 - (value - lowest) / span * (height - 6), 2)

    return Line(tuple(point(i, value) for i, value in enumerate(values)), height, lowest, highest)


def nice_ceiling(value: float) -> float:
    """The next round number above: 1, 2, 2.5 or 5 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 1.0
    while power * 10 <= value:
        power *= 10
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= value)


@dataclass(frozen=True)
class Cell:
    """One cell of a heat map: `shade` from 0 (nothing) to 8, by the root of its share of the largest."""

    key: object
    value: int
    shade: int


def heat(values: Iterable[tuple[object, int]], largest: int) -> list[Cell]:
    """Shades for values; by the square root, or one large partition would leave all others blank."""

    def shade(value: int) -> int:
        return 0 if value <= 0 or largest <= 0 else max(1, round((value / largest) ** 0.5 * STEPS))

    return [Cell(key, value, shade(value)) for key, value in values]


@dataclass(frozen=True)
class Strand:
    """One stretch of the tree: from `x` to `end` in its lane, and the way there from where it grew."""

    generation: int
    x: float
    end: float
    y: float
    counts: bool
    is_empty: bool
    join: str


@dataclass(frozen=True)
class Mark:
    """A checkpoint that stands out on the tree."""

    x: float
    y: float
    slot: Slot
    label: str
    kind: str
    counts: bool


@dataclass(frozen=True)
class Tree:
    strands: tuple[Strand, ...]
    marks: tuple[Mark, ...]
    height: float
    left_out: int


def tree(stretches: Sequence[Stretch], named: Sequence[tuple[Slot, str, str]]) -> Tree:
    """The tree of a pipeline. `named` are checkpoints that stand out, each with its label and kind.

    Of a very long history only the newest stretches are drawn.
    """
    shown = sorted(stretches, key=lambda each: each.generation)[-MOST_STRETCHES:]
    if not shown:
        return Tree((), (), 0, 0)
    first = min(each.column for each in shown)
    last = max(each.end for each in shown)
    scale = (WIDTH - 60) / max(1, last - first)
    lanes = {lane: index for index, lane in enumerate(sorted({each.lane for each in shown}))}

    def x(column: int) -> float:
        return round(30 + (column - first) * scale, 2)

    def y(lane: int) -> float:
        return 30.0 + lanes[lane] * LANE

    strands: list[Strand] = []
    for each in shown:
        begin, height = x(each.column), y(each.lane)
        join = ""
        if each.parent is not None and each.parent_lane in lanes and each.column > first:
            from_x, from_y = x(each.column - 1), y(each.parent_lane)
            bend = (from_x + begin) / 2
            join = f"M{from_x:g} {from_y:g} C{bend:g} {from_y:g} {bend:g} {height:g} {begin:g} {height:g}"
        strands.append(
            Strand(each.generation, begin, x(each.end), height, each.counts, is_empty=each.last < each.first, join=join)
        )
    marks = [
        Mark(x(each.column + slot.number - each.first), y(each.lane), slot, label, kind, each.counts)
        for slot, label, kind in named
        for each in shown
        if each.generation == slot.generation and each.first <= slot.number <= each.last
    ]
    return Tree(tuple(strands), tuple(marks[-MOST_MARKS:]), 64.0 + (len(lanes) - 1) * LANE, len(stretches) - len(shown))
