"""Spark's directory as it lies there: gone on in as it is, healed from the repository first, or not at all."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.decide.timeline import World
from holdfast.epochs import Link
from holdfast.errors import ChangedWhileRead, Damage, ObjectMissing
from holdfast.manifest import Manifest
from holdfast.pipeline.home import Home, Last
from holdfast.pipeline.links import link_of_manifest, link_of_offsets
from holdfast.repository.pipeline import PipelineRecords
from holdfast.spark.heal import HealPlan, plan_heal
from holdfast.spark.places import SparkPlace

__all__ = ["Warm", "find_warm"]


@dataclass(frozen=True)
class Warm:
    """A directory that can be gone on in: its name, the link of its last committed epoch, and how it is healed."""

    directory: str
    at: Link
    heal: HealPlan | None = None


def find_warm(home: Home, records: PipelineRecords, world: World, newest: Manifest | None) -> Warm | None:
    """The directory to go on in, at least as new as the newest checkpoint; None if there is none. Changes nothing.

    All files are read only if there is a reason to doubt them. The caller holds the folder.
    """
    last = home.last(world)
    if last is None:
        return None
    warm = _as_it_is(last) if last.at is not None and not last.is_suspect else _healed(home, records, last, newest)
    if warm is None or (last.reach is not None and warm.at.epoch > last.reach):
        return None
    return warm if newest is None or warm.at.epoch >= newest.epoch else None


def _as_it_is(last: Last) -> Warm:
    assert last.at is not None
    return Warm(last.directory, last.at)


def _healed(home: Home, records: PipelineRecords, last: Last, newest: Manifest | None) -> Warm | None:
    """The directory with its damaged files brought back, if a checkpoint holds them; as it is if nothing is damaged."""
    if newest is None:
        return Warm(last.directory, last.at) if last.at is not None else None
    place = SparkPlace(home.spelled(last.directory), home.place.options, home.place.retry)
    try:
        plan = plan_heal(records, place, newest)
    except (Damage, ChangedWhileRead):
        # What could heal it is damaged itself: recovery then looks for an older checkpoint, and says so.
        return None
    if plan.refused or plan.epoch is None:
        return None
    at = last.at or _link(home, last.directory, plan.epoch, newest, {other.name for other in plan.files})
    return Warm(last.directory, at, None if plan.nothing_to_do else plan) if at is not None else None


def _link(home: Home, directory: str, epoch: int, newest: Manifest, damaged: set[str]) -> Link | None:
    name = f"offsets/{epoch}"
    if name in damaged:
        return link_of_manifest(newest) if newest.epoch == epoch else None
    try:
        return link_of_offsets(epoch, home.directory(directory).read(name)[0])
    except ObjectMissing:
        return None
