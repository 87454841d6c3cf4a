"""The ledger kept short: decisions go with the checkpoints that they lead on from, or beyond a horizon before them."""

from __future__ import annotations

from bisect import bisect_left

from holdfast.decide.ledger import removable
from holdfast.decide.timeline import World, timeline
from holdfast.errors import Damage
from holdfast.ids import now_ms
from holdfast.pipeline.ledger import Ledger
from holdfast.repository.pipeline import PipelineRecords

__all__ = ["trim"]


def trim(ledger: Ledger, records: PipelineRecords, horizon_ms: int | None) -> int:
    """Remove what no start needs any more, and give how many objects that were.

    With a horizon, checkpoints that are older than that are left with their state only: a start from one of them
    can't run what came after it again as it was.
    """
    world = records.world()
    gone = removable(world, ledger.entries(), _oldest(records, world, horizon_ms))
    ledger.remove(entry.key for entry in gone)
    return len(gone)


def _oldest(records: PipelineRecords, world: World, horizon_ms: int | None) -> int | None:
    """The epoch of the oldest checkpoint within the horizon; the newest of all counts always.

    None if one that has to be asked is damaged: then nothing is known to be too old, and captures go on.
    """
    slots = timeline(world)
    if not slots:
        return None
    first = 0
    try:
        if horizon_ms is not None:
            since = now_ms() - horizon_ms
            first = min(bisect_left(slots, since, key=lambda slot: records.head(slot).timestamp_ms), len(slots) - 1)
        return records.head(slots[first]).epoch
    except Damage:
        return None
