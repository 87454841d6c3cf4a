"""Plots as geometry: what to draw where. Templates write it as SVG, the script adds the mouse and the keyboard."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

__all__ = [
    "LETTER",
    "WIDTH",
    "Bar",
    "Bars",
    "Cell",
    "Line",
    "Tick",
    "bars",
    "heat",
    "line",
    "nice_bytes",
    "nice_duration",
    "ticks",
]

WIDTH = 1000
LETTER = 6.6
"""How wide a letter of a label is, roughly and rather too much."""

STEPS = 8
"""How many shades a heat map has."""

MOST_TICKS = 7
WIDEST_BAR = 72.0
MARGIN = 10
"""How far a line keeps from both sides."""


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
    top: int


def bars(values: Sequence[int], height: float, step: float, start: float, ceiling: Callable[[int], int]) -> Bars:
    """One bar for each value, on a common baseline; a value above 0 is always to be seen. `ceiling` rounds the top."""
    top = ceiling(max(values, default=0))
    wide = min(step - min(4.0, step * 0.25), WIDEST_BAR)

    def bar(index: int, value: float) -> Bar:
        tall = 0.0 if value <= 0 else max(1.5, value / top * height)
        x = start + index * step + (step - wide) / 2
        return Bar(round(x, 2), round(wide, 2), round(height - tall, 2), round(tall, 2))

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
    def last(self) -> int:
        """Which of the points is the last one that is known."""
        return max((index for index, point in enumerate(self.points) if point is not None), default=-1)

    @property
    def hits(self) -> list[tuple[float, float]]:
        """Where each point is pointed at, as (x, width): up to the middle between it and its neighbours."""
        known = [point[0] for point in self.points if point is not None]
        edges = [0.0, *((one + other) / 2 for one, other in pairwise(known)), float(WIDTH)]
        found = iter([(round(begin, 2), round(end - begin, 2)) for begin, end in pairwise(edges)])
        return [(0.0, 0.0) if point is None else next(found) for point in self.points]

    @property
    def area(self) -> str:
        known = [point for point in self.points if point is not None]
        if len(known) < len(self.points) or len(known) < 2:
            return ""
        return f"{self.path} L{known[-1][0]:g} {self.height:g} L{known[0][0]:g} {self.height:g} Z"


def line(values: Sequence[float | None], times_ms: Sequence[int], height: float, *, from_zero: bool = False) -> Line:
    """A line over time: a pause between two values is as wide as it was long."""
    known = [value for value in values if value is not None]
    lowest = 0.0 if from_zero else float(min(known, default=0))
    highest = max(float(max(known, default=0)), lowest)
    span = highest - lowest or 1.0

    def point(x: float, value: float | None) -> tuple[float, float] | None:
        return None if value is None else (x, round(height - 3 - (value - lowest) / span * (height - 6), 2))

    return Line(tuple(map(point, _along(times_ms), values)), height, lowest, highest)


def _along(times_ms: Sequence[int]) -> list[float]:
    """Where moments lie from left to right; evenly spread if they are all one.

    Clocks may have gone back: no moment lies to the left of one before it.
    """
    forward = list(accumulate(times_ms, max))
    span = forward[-1] - forward[0] if forward else 0
    if not span:
        return [round((index + 0.5) * WIDTH / len(forward), 2) for index in range(len(forward))]
    return [round(MARGIN + (each - forward[0]) / span * (WIDTH - 2 * MARGIN), 2) for each in forward]


ROUND = (1, 2, 5, 10, 20, 50, 100, 200, 500)


def nice_bytes(value: int) -> int:
    """The next round number of bytes, KiB, MiB, … above."""
    unit = 1
    while value > ROUND[-1] * unit:
        unit *= 1024
    return next(unit * count for count in ROUND if unit * count >= value)


def nice_duration(value: int) -> int:
    """The next round number of milliseconds, seconds, minutes, hours or days above."""
    clock = (*ROUND[:5], 30)
    for unit, counts in ((1, ROUND), (1_000, clock), (60_000, clock), (3_600_000, (*ROUND[:4], 24))):
        if value <= unit * counts[-1]:
            return next(unit * count for count in counts if unit * count >= value)
    return -(-value // 86_400_000) * 86_400_000


@dataclass(frozen=True)
class Tick:
    """A word below a plot, in the middle of its column."""

    x: float
    word: str


def ticks(words: Sequence[str], step: float, start: float) -> list[Tick]:
    """A few of the words that stand for columns, from the last one back, so far apart that none touches another."""
    room = 1.6 * LETTER * max(map(len, words), default=0)
    every = max(1, -(-len(words) // MOST_TICKS), int(-(-room // step)))
    half = room / 3.2
    return [
        Tick(round(min(max(start + (index + 0.5) * step, half), WIDTH - half), 2), words[index])
        for index in range(len(words) - 1, -1, -every)
        if words[index]
    ]


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
