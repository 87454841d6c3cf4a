"""Where each checkpoint says that its sinks stood: what can be known of the way back without asking the sinks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.checkpoint import Checkpoint
from holdfast.handles import StoredPipeline
from holdfast.layout import Slot

__all__ = ["PositionRow", "list_positions", "worded"]


class PositionRow(msgspec.Struct, kw_only=True, frozen=True):
    """One checkpoint, with the recorded place of each sink in words; none at all: only its state can be restored."""

    slot: str
    on_timeline: bool
    epoch: int
    savepoints: list[str] = []
    sinks: dict[str, str] = {}


def list_positions(pipeline: StoredPipeline) -> list[PositionRow]:
    """The checkpoints of a pipeline, oldest first, abandoned ones before the others. Reads every manifest."""
    pipeline.require()
    named: dict[Slot, list[str]] = {}
    for name, savepoint in sorted(pipeline.savepoints().items()):
        named.setdefault(savepoint.at, []).append(name)
    return [
        PositionRow(
            slot=str(checkpoint.slot),
            on_timeline=checkpoint.counts,
            epoch=checkpoint.epoch,
            savepoints=named.get(checkpoint.slot, []),
            sinks=_places(checkpoint),
        )
        for checkpoint in pipeline.checkpoints(with_abandoned=True)
    ]


def _places(checkpoint: Checkpoint) -> dict[str, str]:
    places = {name: checkpoint.sink_position(name) for name in sorted(checkpoint.manifest.sink_commit_statuses)}
    return {name: worded(place) for name, place in places.items() if place is not None}


def worded(place: Any) -> str:
    """The place of a pipeline's sink is a target, with what its commit gave in it; a loop's sink says what it likes."""
    if isinstance(place, Mapping) and "decided" in place and "at" in place:
        place = place.get("position") or {"epoch": place["at"].get("epoch")}
    if isinstance(place, Mapping):
        return ", ".join(f"{name} {value}" for name, value in place.items())
    return str(place)
