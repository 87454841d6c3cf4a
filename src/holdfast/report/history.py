"""A stretch of a pipeline's checkpoints, and the tree that they all grew in; only the heads of the stretch are read."""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.checkpoint import Checkpoint
from holdfast.decide.branches import Stretch, branches
from holdfast.decide.timeline import World, abandoned, gaps, timeline
from holdfast.handles import StoredPipeline
from holdfast.layout import Slot
from holdfast.report.lists import CheckpointRow, describe_checkpoints

__all__ = ["History", "Which", "read_history"]

Which = Literal["timeline", "abandoned", "savepoints"]


class History(msgspec.Struct, kw_only=True, frozen=True):
    """One page of checkpoints, oldest first; page 0 has the newest. `missing` are records that were lost, in words."""

    rows: list[CheckpointRow]
    which: Which
    page: int
    pages: int
    counts: dict[Which, int]
    missing: list[str]
    savepoints: dict[str, Slot]
    stretches: list[Stretch]
    current: set[int]


def read_history(pipeline: StoredPipeline, which: Which = "timeline", page: int = 0, size: int = 60) -> History:
    """Read one page. A page past the end is the last one."""
    pipeline.require()
    world = pipeline.world()
    standing, off = timeline(world), abandoned(world)
    savepoints = {name: word.at for name, word in sorted(pipeline.savepoints().items())}
    named = set(savepoints.values())
    found = {
        "timeline": standing,
        "abandoned": off,
        "savepoints": [slot for slot in (*off, *standing) if slot in named],
    }[which]
    pages = max(1, -(-len(found) // size))
    page = min(max(0, page), pages - 1)
    end = len(found) - page * size
    counting = set(standing)
    shown = [Checkpoint(pipeline, slot, counts=slot in counting) for slot in found[max(0, end - size) : end]]
    return History(
        rows=describe_checkpoints(pipeline, shown),
        which=which,
        page=page,
        pages=pages,
        counts={"timeline": len(standing), "abandoned": len(off), "savepoints": len(named & world.counted())},
        missing=_missing(pipeline, world),
        savepoints=savepoints,
        stretches=branches(world),
        current={slot.generation for slot in standing},
    )


def _missing(pipeline: StoredPipeline, world: World) -> list[str]:
    """Records of a running pipeline change between two listings: what seems missing is looked for once more."""
    return pipeline.missing() if gaps(world) else []
