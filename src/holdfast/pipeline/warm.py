"""Spark's directory as it lies there: gone on in as it is, healed from the repository first, or not at all."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.decide.timeline import World
from holdfast.epochs import EpochDecision, Link
from holdfast.errors import ChangedWhileRead, Damage, ObjectMissing
from holdfast.manifest import Manifest
from holdfast.pipeline.home import Home, Last
from holdfast.pipeline.links import link_of_manifest, link_of_offsets
from holdfast.repository.pipeline import PipelineRecords
from holdfast.spark.cut import batches_in
from holdfast.spark.heal import HealPlan, plan_heal
from holdfast.spark.logs import Malformed, parse_offsets
from holdfast.spark.places import SparkPlace
from holdfast.spark.sources import COMPACT, log_offset
from holdfast.store import Directory
from holdfast.store.directory import Look

__all__ = ["Warm", "find_warm", "has_cut_otherwise"]


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


def has_cut_otherwise(directory: Directory, decision: EpochDecision) -> bool:
    """Whether Spark has logged an epoch here, and not committed it, in another cut than it was decided in elsewhere.

    It would run what it has logged. To put the decision in its place is not enough: the other cut may have left state
    of that epoch, which a later start could take for its own (format 1), and entries of a source's log beyond the
    decision's, whose files would be read once more. One whose logs can't be read is left too.
    """
    epoch, look = decision.epoch, directory.look()
    logged = batches_in(look).offsets
    if epoch in logged and directory.read(f"offsets/{epoch}")[0] != decision.offsets:
        return True
    try:
        before = parse_offsets(directory.read(f"offsets/{epoch - 1}")[0]).sources if epoch - 1 in logged else {}
    except Malformed:
        return True
    for source, offset in parse_offsets(decision.offsets).sources.items():
        # Only file sources log what they read; others keep what they like in there.
        if log_offset(offset) is not None:
            for name in _entries_after(look, f"sources/{source}", log_offset(before.get(source))):
                if decision.sources.get(name) != directory.read(name)[0]:
                    return True
    return False


def _entries_after(look: Look, folder: str, last: int | None) -> list[str]:
    numbers = {name: name.removesuffix(COMPACT) for name in look.files(folder)}
    return [f"{folder}/{name}" for name, n in numbers.items() if n.isdecimal() and (last is None or int(n) > last)]


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
