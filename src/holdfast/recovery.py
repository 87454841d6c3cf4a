"""Recovery: the newest whole checkpoint of the timeline, claimed, its sinks settled, before anything else runs.

A damaged checkpoint is reported and fallen back over; none left is an error, never a fresh start. Whatever may refuse
is asked once before the claim, read-only, and again after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from holdfast.claim import Begin, Generation, Reason, take_over
from holdfast.decide.fingerprint import Fingerprint, differences
from holdfast.decide.timeline import World, current, gaps, lineage, timeline
from holdfast.errors import (
    BeingForgotten,
    CheckpointMissing,
    Damage,
    FingerprintMismatch,
    InvalidManifest,
    MissingRecords,
    NothingRestorable,
    ObjectMissing,
    SinksAhead,
    Unsettled,
)
from holdfast.layout import Slot
from holdfast.manifest import Manifest
from holdfast.repository.artifacts import damaged_artifacts
from holdfast.repository.pipeline import PipelineRecords
from holdfast.settle import LoopSink, Settlement, plan_settlement

__all__ = ["Choice", "Demands", "Proven", "Recovered", "Skipped", "choose", "recover"]


class Skipped(NamedTuple):
    """A checkpoint that recovery fell back over, and why."""

    slot: Slot
    why: str


@dataclass(frozen=True)
class Demands:
    """What a recovery insists on.

    `max_fallback` bounds how many damaged checkpoints may be fallen back over (None: all). `to` asks for a checkpoint
    other than the newest: a rewind. `allow_changed` accepts another fingerprint, `accept_duplicates` sinks that are
    ahead of the state and can't go back.
    """

    to: Slot | None = None
    fingerprint: Fingerprint | None = None
    allow_changed: bool = False
    expected_vnode_count: int | None = None
    max_fallback: int | None = None
    accept_duplicates: bool = False


@dataclass(frozen=True)
class Choice:
    """The checkpoint to begin from (None: the pipeline has none yet) and what was fallen back over to get there."""

    manifest: Manifest | None
    skipped: tuple[Skipped, ...] = ()


@dataclass(frozen=True)
class Recovered:
    """A pipeline taken over and settled: its generation, the checkpoint it began from, and what was skipped."""

    generation: Generation
    manifest: Manifest | None
    skipped: tuple[Skipped, ...]
    rolled_back: tuple[str, ...] = ()


@dataclass
class Proven:
    """Checkpoints whose every byte was read and matched: bytes are never rewritten, so once is enough."""

    slots: set[Slot] = field(default_factory=set)


def recover(
    records: PipelineRecords,
    reason: Reason,
    demands: Demands | None = None,
    sinks: Mapping[str, LoopSink] | None = None,
    *,
    activate: bool = False,
) -> Recovered:
    """Take the pipeline over at its newest whole checkpoint (or where `demands.to` says) and settle its sinks."""
    demands, sinks = demands or Demands(), sinks or {}
    pipeline_id = records.ensure_identity().pipeline_id
    proven = Proven()
    choose(records, demands, sinks, proven)
    positions: dict[str, Any] = {}
    choice, settlement, claimed = Choice(None), Settlement(), -1

    def fence(generation: int, token: str) -> None:
        nonlocal claimed
        claimed = generation
        positions.update({name: sink.fence(pipeline_id, generation, token) for name, sink in sinks.items()})

    def begin() -> Begin:
        nonlocal choice, settlement
        choice = choose(records, demands, sinks, proven)
        went_back = _went_back(records, choice)
        settlement = plan_settlement(records, choice.manifest, sinks, positions, claimed, went_back=went_back)
        if settlement.stuck and not demands.accept_duplicates:
            raise SinksAhead(str(choice.manifest.at) if choice.manifest else "nothing", settlement.stuck)
        manifest = choice.manifest
        return Begin() if manifest is None else Begin(manifest.at, manifest.epoch)

    generation = take_over(records, reason, begin, fence, activate)
    if choice.manifest is not None:
        settlement.carry_out(records, choice.manifest, sinks)
    return Recovered(generation, choice.manifest, choice.skipped, settlement.to_roll_back)


def choose(
    records: PipelineRecords,
    demands: Demands,
    sinks: Mapping[str, LoopSink] | None = None,
    proven: Proven | None = None,
) -> Choice:
    """Which checkpoint a recovery would begin from, read-only; raises whatever would refuse it."""
    proven = proven or Proven()
    _refuse_lost_beginnings(records)
    skipped: list[Skipped] = []
    for slot, gone in _candidates(records, demands):
        why = gone or _damage(records, slot, demands, proven)
        if why is None:
            manifest = records.manifest(slot)
            _refuse_changed(manifest, demands)
            missing = _without_callback(records, manifest, sinks or {})
            if not missing:
                return Choice(manifest, tuple(skipped))
            if not records.is_forgotten(slot):
                raise Unsettled(str(slot), missing)
        if why is None or records.is_forgotten(slot):
            # Not damaged but pruned while we looked at it.
            if demands.to is not None:
                raise BeingForgotten(records.reference(slot))
            return choose(records, demands, sinks, proven)
        if demands.to is not None:
            raise why if isinstance(why, Damage) else InvalidManifest(str(slot), [str(why)])
        skipped.append(Skipped(slot, str(why)))
        if demands.max_fallback is not None and len(skipped) > demands.max_fallback:
            break
    if skipped:
        raise NothingRestorable(records.name, [f"{slot}: {why}" for slot, why in skipped])
    world = records.world()
    if timeline(world):
        # The first checkpoint landed between the two looks.
        return choose(records, demands, sinks, proven)
    _refuse_fresh_start(records, world)
    return Choice(None)


def _candidates(records: PipelineRecords, demands: Demands) -> Iterator[tuple[Slot, str | None]]:
    """Slots to try, best first, each with why it can't be had, if that is known already."""
    if demands.to is not None:
        if records.is_forgotten(demands.to):
            raise BeingForgotten(records.reference(demands.to))
        yield demands.to, None
        return
    located = records.locate()
    if located.lost is not None and (located.newest is None or located.lost > located.newest):
        yield located.lost, "its manifest is gone, though the hint names it"
    if located.newest is None:
        return
    yield located.newest, None
    # Only when the newest is damaged is the whole timeline listed.
    older = [slot for slot in reversed(timeline(records.world())) if slot != located.newest]
    yield from ((slot, None) for slot in older)


def _damage(records: PipelineRecords, slot: Slot, demands: Demands, proven: Proven) -> Damage | str | None:
    try:
        manifest = records.manifest(slot)
    except ObjectMissing:
        if demands.to is not None:
            raise CheckpointMissing(str(slot), "the slot holds no checkpoint") from None
        return "its manifest is gone"
    except Damage as damage:
        return damage
    errors = [str(f) for f in manifest.validate(demands.expected_vnode_count) if f.severity == "error"]
    if errors:
        return "; ".join(errors)
    if slot in proven.slots:
        return None
    with ThreadPoolExecutor(4, thread_name_prefix="holdfast-verify") as pool:
        artifacts = [artifact for _, artifact in manifest.artifacts()]
        for _, fault in damaged_artifacts(records.store, records.keys, artifacts, pool):
            return fault
    proven.slots.add(slot)
    return None


def _refuse_changed(manifest: Manifest, demands: Demands) -> None:
    mine = demands.fingerprint
    if mine is None or demands.allow_changed or not manifest.pipeline_hash or mine.digest == manifest.pipeline_hash:
        return
    raise FingerprintMismatch(str(manifest.at), differences(Fingerprint(manifest.fingerprint), mine))


def _without_callback(records: PipelineRecords, manifest: Manifest, sinks: Mapping[str, LoopSink]) -> list[str]:
    """Sinks that are still to be committed and that nobody here can drive."""
    missing = sorted(set(manifest.pending_sinks()) - set(sinks))
    return missing if missing and records.settled(manifest.at) is None else []


def _refuse_lost_beginnings(records: PipelineRecords) -> None:
    """A generation begins before it publishes: where checkpoints lie above all that have begun, a base was lost.

    Going on would leave them out in silence, and for good, since the next claim voids a base that is not there.
    """
    # Listed before the bases: a base that comes first is then seen by this look.
    published = [int(g) for g in records.store.folders(records.keys.checkpoints) if g.isdecimal()]
    known = records.generations()
    begun = current(World(known.claims, known.bases))
    for generation in sorted(published):
        if (begun is None or generation > begun) and records.slots(generation)[0]:
            what = f"generation {generation} has checkpoints, and the record of where it began is gone"
            raise MissingRecords(records.keys.prefix, what)


def _refuse_fresh_start(records: PipelineRecords, world: World) -> None:
    """Nothing counts: fine for a pipeline that never had a checkpoint, damage for one that did.

    What lies off the timeline proves nothing: a stale writer may have left it. On it, a decision, a name or a
    settlement can only be there after a checkpoint was, and retention never drops the last ones.
    """
    missing = gaps(world)
    if missing:
        raise MissingRecords(records.keys.prefix, "; ".join(missing[:5]))
    if world.slots and not world.bases:
        raise MissingRecords(records.keys.prefix, "there are checkpoints but no generation that has begun")
    traces = set(world.forgotten) | {savepoint.at for savepoint in records.savepoints().values()}
    traces |= {name.slot for _, name, _ in records.listed(records.keys.all_settled, "settled") if name.slot is not None}
    on = {g: upto for g, upto, _ in lineage(world)}
    for slot in sorted(traces):
        upto = on.get(slot.generation, -1)
        if upto is None or slot.number <= upto:
            raise MissingRecords(records.keys.prefix, f"{slot} was a checkpoint, and no manifest is left")


def _went_back(records: PipelineRecords, choice: Choice) -> bool:
    """Whether checkpoints lie beyond the chosen one, now or when the last generation began and did not finish."""
    manifest = choice.manifest
    if choice.skipped or manifest is None:
        return bool(choice.skipped)
    beyond = Slot(manifest.generation, manifest.slot + 1)
    held, void = records.slots(*beyond)
    dropped = {s for s in records.forgotten(beyond) if s.generation == beyond.generation and s >= beyond}
    return bool((held - void) | dropped)
