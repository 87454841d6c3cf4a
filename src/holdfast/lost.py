"""Records that must have been there and are not: told, and never passed over as if they had not been."""

from __future__ import annotations

from collections.abc import Set

from holdfast.decide.timeline import gaps, newest
from holdfast.errors import Damage, FormatTooNew, MissingRecords, ObjectMissing
from holdfast.layout import Slot
from holdfast.repository.pipeline import PipelineRecords

__all__ = ["missing_records", "refuse_lost_beginning"]


def missing_records(records: PipelineRecords) -> list[str]:
    """Records that are known to have been there and are not, in words; what a fresh look finds too."""
    found = _missing(records)
    # Records of a running pipeline change between two listings: only what is missing twice is missing.
    return [what for what in _missing(records) if what in found] if found else []


def refuse_lost_beginning(records: PipelineRecords, published: Set[int], begun: int | None) -> None:
    """A generation begins before it publishes: with checkpoints above all that have begun, a base was lost."""
    for generation in sorted(published):
        if begun is None or generation > begun:
            what = f"the base of generation {generation}, which has checkpoints"
            raise MissingRecords(records.keys.prefix, what)


def _missing(records: PipelineRecords) -> list[str]:
    world = records.world()
    found = gaps(world)
    top, lost = newest(world), records.locate().lost
    if lost is not None and lost not in world.slots and (top is None or lost > top):
        found.append(f"the checkpoint {lost}, which the hint names")
    there = {*world.slots, *world.forgotten}
    for name, savepoint in sorted(records.savepoints().items()):
        if savepoint.at not in there and _is_gone(records, savepoint.at):
            found.append(f"the checkpoint {savepoint.at}, which the savepoint {name} names")
    return found


def _is_gone(records: PipelineRecords, slot: Slot) -> bool:
    try:
        records.unread().manifest(slot)
    except ObjectMissing:
        return not records.is_forgotten(slot)
    except (Damage, FormatTooNew):
        return False
    return False
