"""Acknowledging a loss: what is gone can't be rebuilt, but it can be said that it is gone, so that the rest goes on.

A manifest that vanished leaves a gap that stops every clean-up, since nobody knows what it named. Once somebody has
looked and says so, its slot is forgotten like any other.
"""

from __future__ import annotations

from holdfast.decide.timeline import World, timeline
from holdfast.errors import DamagedRecord, FormatTooNew, ObjectMissing
from holdfast.ids import new_token
from holdfast.layout import Slot
from holdfast.records import Decision, Joined
from holdfast.repository.pipeline import PipelineRecords

__all__ = ["acknowledge_losses", "set_joined_aside"]


def set_joined_aside(records: PipelineRecords) -> list[str]:
    """Move joined decisions that can't be read out of the way; what they said is said again for slots that are gone."""
    moved: list[str] = []
    for key, name, _ in records.listed(records.keys.forgotten, "joined"):
        try:
            records.unread().read(key, Joined)
        except DamagedRecord:
            place = f"{records.keys.aside}{name.generation}-joined.{new_token()}"
            records.store.copy(key, place)
            records.drop(key)
            moved.append(f"{key}: set aside as {place}")
        except (ObjectMissing, FormatTooNew):
            continue
    return moved


def acknowledge_losses(records: PipelineRecords) -> list[Slot]:
    """Decide that slots whose manifests are gone are forgotten, if a checkpoint is left on the timeline.

    Only what is missing in two looks counts as gone: a running pipeline changes between two listings.
    """
    world = records.world()
    gone = sorted(_gone(records, world) & _gone(records, records.world()))
    if not timeline(world):
        return []
    for slot in gone:
        decision = Decision(token=new_token(), generation=slot.generation, slot=slot.number, objects=[], why="lost")
        records.create(records.keys.decision(slot, records.attempts(slot).get(slot, 0)), decision)
    return gone


def _gone(records: PipelineRecords, world: World) -> set[Slot]:
    """Slots that other records prove: below a later one, where a generation began, and what the hint names."""
    known = set(world.slots) | set(world.forgotten)
    tops: dict[int, int] = {}
    for slot in known:
        tops[slot.generation] = max(tops.get(slot.generation, 0), slot.number)
    proven = {Slot(generation, n) for generation, top in tops.items() for n in range(top)}
    proven |= {base.slot for base in world.bases.values() if base.slot is not None and not base.void}
    lost = records.locate().lost
    return (proven | ({lost} if lost else set())) - known
