"""Joining decisions: many "this slot is forgotten" become one record, so that a long history stays small.

It changes what is stored, never what it means. The joined record is created before the ones whose place it takes are
deleted, and sorts after them: whoever lists meanwhile sees the one or the other.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.errors import ObjectMissing
from holdfast.ids import new_token
from holdfast.layout import Slot
from holdfast.records import Joined
from holdfast.repository.pipeline import PipelineRecords

__all__ = ["drop_joined", "join_decisions", "ranges"]

JOIN_ABOVE = 64
"""How many decisions of one generation may stand alone."""


def join_decisions(records: PipelineRecords) -> None:
    """Join the decisions of each generation that has many, but for those whose prune is not finished."""
    # Decisions before intents: one that is decided meanwhile is then not looked at, or its intent is still seen.
    decided = records.decided()
    unfinished = records.intents()
    alone: dict[int, list[Slot]] = {}
    for slot in decided:
        if slot not in unfinished:
            alone.setdefault(slot.generation, []).append(slot)
    if all(len(slots) <= JOIN_ABOVE for slots in alone.values()):
        return
    before = _joined(records)
    for generation, slots in alone.items():
        if len(slots) > JOIN_ABOVE:
            earlier = [joined.slots() for joined in before.values() if joined.generation == generation]
            every = set(slots).union(*earlier)
            joined = Joined(token=new_token(), generation=generation, ranges=ranges(slot.number for slot in every))
            records.create(records.keys.joined(generation, len(every), joined.token), joined)
    drop_joined(records)


def drop_joined(records: PipelineRecords) -> None:
    """Delete decisions that a joined record speaks of, and joined records that a larger one contains."""
    joined = _joined(records)
    covered = [
        key
        for key, name, _ in records.listed(records.keys.forgotten, "decision")
        if name.slot is not None and any(each.covers(name.slot) for each in joined.values())
    ]
    records.drop(*covered, *(key for key in joined if _is_contained(key, joined)))


def _is_contained(key: str, joined: dict[str, Joined]) -> bool:
    """Of two that say the same, the one with the greater key stays."""
    mine = joined[key].slots()
    return any(
        mine < each.slots() or (mine == each.slots() and key < other) for other, each in joined.items() if other != key
    )


def _joined(records: PipelineRecords) -> dict[str, Joined]:
    found: dict[str, Joined] = {}
    for key, _, _ in records.listed(records.keys.forgotten, "joined"):
        try:
            found[key] = records.read(key, Joined)
        except ObjectMissing:
            continue
    return found


def ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Numbers as ascending ranges, first and last."""
    found: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found
