"""Which decisions on epochs may go: those that no checkpoint could be gone on from with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from holdfast.decide.timeline import World, lineage

__all__ = ["Entry", "removable"]


class Entry(NamedTuple):
    """One object of a ledger: who wrote it, and the epochs that it reaches from and to."""

    key: str
    generation: int
    first: int
    last: int


def removable(world: World, entries: Iterable[Entry], oldest: int | None) -> Sequence[Entry]:
    """The entries that no start needs: those up to the oldest checkpoint that may be gone on from, and those of
    generations that the timeline has left. None: there is no checkpoint, and all may be needed.

    What a generation that has not begun might still write, or one that is newer than all that have, stays.
    """
    steps = lineage(world)
    if not steps:
        return []
    current, mine = steps[0][0], {generation for generation, _, _ in steps}
    return [
        entry
        for entry in entries
        if entry.generation <= current
        and (entry.generation not in mine or (oldest is not None and entry.last <= oldest))
    ]
