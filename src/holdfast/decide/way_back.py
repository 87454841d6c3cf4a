"""How far back sinks must keep the way: to the oldest checkpoint that anybody can still go back to, and no further."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from holdfast.decide.timeline import World, newest, timeline
from holdfast.layout import Slot

__all__ = ["oldest_way_back"]

LAST = 2
"""So many of the timeline are gone back to however old they are: a recovery may need them."""


def oldest_way_back(
    world: World, epoch_of: Callable[[Slot], int], time_of: Callable[[Slot], int], horizon_ms: int | None = None
) -> Slot | None:
    """The checkpoint before which no sink needs to keep anything; None while there is none, and all must be kept.

    All that were not forgotten count, abandoned ones too: those can be reached by their names. With a horizon, what is
    older than the newest by more than that can be restored, and its sinks not be taken back to it. Of each generation
    only a few are asked for: within one, epochs and times grow with the slot.
    """
    top = newest(world)
    if top is None:
        return None
    by_generation: dict[int, list[Slot]] = {}
    for slot in sorted(world.counted()):
        by_generation.setdefault(slot.generation, []).append(slot)
    reachable = timeline(world)[-LAST:]
    since = None if horizon_ms is None else time_of(top) - horizon_ms
    for slots in by_generation.values():
        first = 0 if since is None else bisect_left(slots, since, key=time_of)
        reachable += slots[first : first + 1]
    return min(reachable, key=epoch_of)
