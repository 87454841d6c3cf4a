"""Which checkpoints count: one pure function of which records exist. No clock and no order of names has a say.

The timeline is the checkpoints of the current generation, before them those of the one it began from, up to where it
began, and so on. What lies off it is abandoned: still there, reachable by id or savepoint, and never "newest".
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from holdfast.layout import Slot
from holdfast.records import Base

__all__ = ["World", "abandoned", "current", "gaps", "lineage", "losses", "newest", "next_slot", "reach", "timeline"]


@dataclass(frozen=True)
class World:
    """The records of one pipeline that say what counts.

    `slots` are those whose key holds something; `void` those among them that hold no checkpoint; `forgotten` those
    with a decision, which do not count whatever lies there.
    """

    claims: Set[int] = frozenset()
    bases: Mapping[int, Base] = field(default_factory=dict)
    slots: Set[Slot] = frozenset()
    void: Set[Slot] = frozenset()
    forgotten: Set[Slot] = frozenset()

    def counted(self) -> set[Slot]:
        return set(self.slots) - set(self.void) - set(self.forgotten)


def current(world: World) -> int | None:
    """The newest generation that has begun; claims without a base, or with a void one, have not."""
    return max((g for g, base in world.bases.items() if not base.void), default=None)


def lineage(world: World, generation: int | None = None) -> list[tuple[int, int | None, int | None]]:
    """The generations that a timeline runs through, newest first: (generation, last slot that counts, adopted epoch).

    None for the last slot or epoch: all of them, and -1 for a slot: none. A generation may follow one that is newer
    than the checkpoint that it began at, and adopt its epochs: of that one, and of those before it, only what led to
    the checkpoint counts. A base that names a generation which is not lower ends the walk: only damage can bring one
    about, and `gaps` reports it.
    """
    here = current(world) if generation is None else generation
    steps: list[tuple[int, int | None, int | None]] = []
    limit: Slot | None = None
    epoch: int | None = None
    while here is not None:
        upto = None if limit is None else limit.number if here == limit.generation else -1
        steps.append((here, upto, epoch))
        base = world.bases.get(here)
        before = None if base is None or base.void else base.before
        if base is None or before is None or before >= here:
            break
        began = base.slot or Slot(-1, -1)
        limit = began if limit is None else min(limit, began)
        reaches = [each for each in (epoch, base.adopted_epoch) if each is not None]
        epoch = min(reaches, default=None)
        here = before
    return steps


def timeline(world: World, generation: int | None = None) -> list[Slot]:
    """The checkpoints that count, oldest first; of the current generation unless another is asked for."""
    by_generation: dict[int, list[int]] = {}
    for slot in world.counted():
        by_generation.setdefault(slot.generation, []).append(slot.number)
    found: list[Slot] = []
    for g, upto, _ in lineage(world, generation):
        numbers = sorted((n for n in by_generation.get(g, ()) if upto is None or n <= upto), reverse=True)
        found.extend(Slot(g, n) for n in numbers)
    return found[::-1]


def newest(world: World, generation: int | None = None) -> Slot | None:
    slots = timeline(world, generation)
    return slots[-1] if slots else None


def abandoned(world: World) -> list[Slot]:
    """Checkpoints that exist and do not count."""
    return sorted(world.counted() - set(timeline(world)))


def next_slot(world: World, generation: int) -> Slot:
    """The first slot of a generation after all that exist, void and forgotten ones too: no number is used twice."""
    taken = (s.number for s in (*world.slots, *world.forgotten) if s.generation == generation)
    return Slot(generation, 1 + max(taken, default=-1))


def reach(world: World, generation: int) -> int | None:
    """The last epoch of a generation's records that counts on the current timeline: None for all, -1 for none."""
    for g, _, epoch in lineage(world):
        if g == generation:
            return epoch
    return -1


def gaps(world: World) -> list[str]:
    """What is missing among the records, in words: generations and slots have no gaps but by loss."""
    top = max(world.claims, default=-1)
    claims = [f"the claim of generation {g}" for g in range(top) if g not in world.claims]
    return claims + losses(world)


def losses(world: World) -> list[str]:
    """What is missing and changes what counts. An old claim does not: only whether there is a higher one is asked."""
    found: list[str] = []
    known = set(world.slots) | set(world.forgotten)
    tops: dict[int, int] = {}
    for slot in known:
        tops[slot.generation] = max(tops.get(slot.generation, -1), slot.number)
    top, begun = max(world.claims, default=-1), current(world)
    found += [f"the claim of generation {g}, which has a base" for g in sorted(world.bases) if g > top]
    found += [f"the claim of generation {g}, which has checkpoints" for g in sorted(tops) if g > top]
    if begun is not None:
        found += [f"the base of generation {g}" for g in range(begun) if g not in world.bases]
    for g, base in sorted(world.bases.items()):
        if base.slot is not None and not base.void and base.slot.generation >= g:
            found.append(f"the true base of generation {g}: the one there does not come before it")
    for g, last in sorted(tops.items()):
        if g not in world.bases and (begun is None or g > begun):
            found.append(f"the base of generation {g}, which has checkpoints")
        found += [f"the manifest of {Slot(g, n)}" for n in range(last) if Slot(g, n) not in known]
    for g, base in sorted(world.bases.items()):
        if base.slot is not None and not base.void and base.slot not in known:
            found.append(f"the manifest of {base.slot}, from which generation {g} began")
    return found
