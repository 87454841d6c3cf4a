"""Plots as geometry: what to draw where. Templates write it as SVG, the script adds the mouse and the keyboard."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

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
    def last(self) -> int:
        """Which of the points is the last one that is known."""
        return max((index for index, point in enumerate(self.points) if point is not None), default=-1)

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
