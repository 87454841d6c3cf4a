"""The history of a pipeline as a tree: which stretch of checkpoints grew from where, and which ones still count.

Every checkpoint has a column, counted from the beginning along its own history, and a lane. What counts lies in lane 0;
whatever was left by a rewind has a lane of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.decide.timeline import World, lineage
from holdfast.layout import Slot

__all__ = ["Stretch", "branches"]


@dataclass(frozen=True)
class Stretch:
    """Checkpoints of one generation, side by side in one lane: from `first` to `last`, both included.

    `last` below `first`: the generation has none here. `column` is where the first one stands; `parent` is the
    checkpoint that it grew from, and `parent_lane` where that lies.
    """

    generation: int
    lane: int
    column: int
    first: int
    last: int
    counts: bool
    parent: Slot | None
    parent_lane: int

    @property
    def end(self) -> int:
        """The column of the last one."""
        return self.column + max(0, self.last - self.first)


def branches(world: World) -> list[Stretch]:
    """All stretches, by generation. Generations that never began have none."""
    tops: dict[int, int] = {}
    for slot in (*world.slots, *world.forgotten):
        tops[slot.generation] = max(tops.get(slot.generation, -1), slot.number)
    limits = {generation: upto for generation, upto, _ in lineage(world)}
    grown = _Grown()
    for generation, base in sorted(world.bases.items()):
        if base.void or (base.slot is not None and base.slot.generation >= generation):
            continue
        top = tops.get(generation, -1)
        upto = top if (limit := limits.get(generation, -1)) is None else min(limit, top)
        on_timeline = generation in limits
        if on_timeline:
            grown.add(generation, base.slot, 0, upto, counts=True)
        if not on_timeline or upto < top:
            first = upto + 1 if on_timeline else 0
            parent = Slot(generation, upto) if on_timeline and upto >= 0 else base.slot
            grown.add(generation, parent, first, top, counts=False)
    return grown.stretches


class _Grown:
    """The tree as far as it has grown; lanes are used again once what lay there has ended."""

    def __init__(self) -> None:
        self.stretches: list[Stretch] = []
        self._ends: list[int] = [-1]

    def add(self, generation: int, parent: Slot | None, first: int, last: int, *, counts: bool) -> None:
        before = self._holding(parent) if parent is not None else None
        column = 0
        if before is not None and parent is not None:
            column = before.column + parent.number - before.first + 1
        end = column + max(0, last - first)
        lane = 0 if counts else self._lane(before, column, parent)
        while len(self._ends) <= lane:
            self._ends.append(-1)
        self._ends[lane] = max(self._ends[lane], end)
        parent_lane = before.lane if before is not None else lane
        self.stretches.append(Stretch(generation, lane, column, first, last, counts, parent, parent_lane))

    def _holding(self, slot: Slot) -> Stretch | None:
        of_generation = [each for each in self.stretches if each.generation == slot.generation]
        return next((each for each in of_generation if each.first <= slot.number <= each.last), None)

    def _lane(self, before: Stretch | None, column: int, parent: Slot | None) -> int:
        """An abandoned stretch that goes on where another ends stays in its lane; any other takes one that is free."""
        goes_on = before is not None and parent is not None and parent.number == before.last
        if before is not None and before.lane and goes_on and self._ends[before.lane] < column:
            return before.lane
        free = (lane for lane in range(1, len(self._ends)) if self._ends[lane] < column - 1)
        return next(free, max(1, len(self._ends)))
