"""The tree of a pipeline as geometry: a strand for each generation, what a rewind left below it, forks as ways out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.dashboard.plots import LETTER, WIDTH
from holdfast.decide.branches import Stretch
from holdfast.layout import Slot

__all__ = ["Label", "Mark", "Named", "Story", "Strand", "Tree", "tree"]

LANE = 66
ABOVE, BELOW, LOWER = -11, 25, 39
"""The rows in which labels may stand, from their strand."""

ON, BEFORE, AFTER = 0.0, -0.5, 0.5
"""Whether a label stands in the middle of its place, ends there or begins there."""

BEND = 10
"""How far the label of a branch keeps from the way there."""

EDGE = 30
MOST_STRETCHES = 80
MOST_MARKS = 60
LONGEST = 28


@dataclass(frozen=True)
class Story:
    """Why a generation began: in one word, and in a sentence. `parent` is the checkpoint of another pipeline that it
    came from, and `href` where that is to be seen."""

    word: str
    sentence: str
    parent: str = ""
    href: str = ""


@dataclass(frozen=True)
class Named:
    """A checkpoint that stands out, where to see more, and what is said of it."""

    slot: Slot
    label: str
    kind: str
    href: str
    title: str


@dataclass(frozen=True)
class Label:
    x: float
    y: float
    words: str


@dataclass(frozen=True)
class Strand:
    """One stretch of the tree: from `x` to `end` in its lane, and the way there from where it grew."""

    x: float
    end: float
    y: float
    counts: bool
    is_empty: bool
    join: str
    title: str
    label: Label | None
    href: str


@dataclass(frozen=True)
class Mark:
    """A checkpoint that stands out on the tree; its label is left out where there is no room for it."""

    x: float
    y: float
    label: Label | None
    named: Named


@dataclass(frozen=True)
class Tree:
    strands: tuple[Strand, ...]
    marks: tuple[Mark, ...]
    height: float
    left_out: int


def tree(stretches: Sequence[Stretch], stories: Mapping[int, Story], named: Sequence[Named]) -> Tree:
    """The tree of a pipeline. Of a very long history only the newest stretches are drawn."""
    shown = sorted(stretches, key=lambda each: each.generation)[-MOST_STRETCHES:]
    if not shown:
        return Tree((), (), 0, 0)
    canvas = _Canvas(shown)
    # The newest are placed first, and forks before savepoints: where room is short the others lose their words.
    strands = [_strand(canvas, each, stories.get(each.generation), shown) for each in shown[::-1]][::-1]
    marks = [
        _mark(canvas, each, one)
        for one in sorted(named[-MOST_MARKS:], key=lambda one: one.kind != "fork")
        for each in shown
        if each.generation == one.slot.generation and each.first <= one.slot.number <= each.last
    ]
    return Tree(tuple(strands), tuple(marks), canvas.height, len(stretches) - len(shown))


class _Canvas:
    """Where columns and lanes lie, and which labels stand there already."""

    def __init__(self, shown: Sequence[Stretch]) -> None:
        self.first = min(each.column for each in shown)
        last = max(each.end for each in shown)
        self._scale = (WIDTH - 2 * EDGE) / max(1, last - self.first)
        self._lanes = {lane: index for index, lane in enumerate(sorted({each.lane for each in shown}))}
        self._taken: dict[float, list[tuple[float, float]]] = {}

    def x(self, column: int) -> float:
        return round(EDGE + (column - self.first) * self._scale, 2)

    def y(self, lane: int) -> float:
        return 32.0 + self._lanes[lane] * LANE

    def has(self, lane: int) -> bool:
        return lane in self._lanes

    @property
    def height(self) -> float:
        return max(self.y(max(self._lanes)) + 16.0, *(y + 8 for y, taken in self._taken.items() if taken))

    def label(self, x: float, places: Sequence[tuple[float, float]], choices: Sequence[str]) -> Label | None:
        """The first of the choices that has room at one of the places (side and row) of x; None if none has."""
        for words in choices:
            wide = (len(words) + 1) * LETTER
            for side, y in places:
                middle = round(min(max(x + side * (wide - 10), wide / 2), WIDTH - wide / 2), 2)
                taken = self._taken.setdefault(y, [])
                if all(middle + wide / 2 <= begin or middle - wide / 2 >= end for begin, end in taken):
                    taken.append((middle - wide / 2, middle + wide / 2))
                    return Label(middle, y, words)
        return None


def _strand(canvas: _Canvas, each: Stretch, story: Story | None, shown: Sequence[Stretch]) -> Strand:
    x, y, name = canvas.x(each.column), canvas.y(each.lane), f"g{each.generation}"
    join = ""
    if each.parent is not None and canvas.has(each.parent_lane) and each.column > canvas.first:
        from_x, from_y = canvas.x(each.column - 1), canvas.y(each.parent_lane)
        bend = (from_x + x) / 2
        join = f"M{from_x:g} {from_y:g} C{bend:g} {from_y:g} {bend:g} {y:g} {x:g} {y:g}"
    is_rest = not each.counts and any(other.counts for other in shown if other.generation == each.generation)
    if is_rest:
        choices = [f"{name} abandoned", name]
        title = f"the rest of generation {each.generation}, abandoned"
    else:
        word = f"{name} {story.word}" if story and story.word else name
        choices = [f"{word} of {story.parent}"] if story and story.parent else []
        choices += [word, name]
        title = f"generation {each.generation}" + (f": {story.sentence}" if story else "")
        title += "" if each.counts else "; abandoned"
    return Strand(
        x=x,
        end=canvas.x(each.end),
        y=y,
        counts=each.counts,
        is_empty=each.last < each.first,
        join=join,
        title=title,
        label=canvas.label(x if each.counts else x + BEND, [(AFTER, y + ABOVE)], choices),
        href=story.href if story and not is_rest else "",
    )


def _mark(canvas: _Canvas, each: Stretch, named: Named) -> Mark:
    x, y = canvas.x(each.column + named.slot.number - each.first), canvas.y(each.lane)
    words = named.label if len(named.label) <= LONGEST else f"{named.label[: LONGEST - 1]}…"
    above = [] if named.kind == "fork" else [(ON, y + ABOVE), (BEFORE, y + ABOVE)]
    below = [(BEFORE, y + BELOW), (BEFORE, y + LOWER), (ON, y + BELOW), (ON, y + LOWER)]
    label = canvas.label(x, above + below, [words]) if words else None
    return Mark(x, y, label, named)
