"""Sinks of a plain loop: the manifest that names them Pending is the decision, and this drives it to the end.

Bytes, manifest, then every sink commits by its token, then the record that all have. A crash anywhere leaves a
decision that recovery finds and drives forward; a sink that fails is reported and driven again, never skipped.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from holdfast.decide.timeline import World, lineage
from holdfast.errors import BadValue, Fenced, SinkFailed, Unsettled
from holdfast.ids import new_token
from holdfast.layout import Slot
from holdfast.manifest import Manifest
from holdfast.records import Outcome, Settled
from holdfast.repository.pipeline import PipelineRecords

__all__ = ["LoopSink", "Settlement", "committed_position", "drive", "plan_settlement"]


class LoopSink(ABC):
    """What a plain loop's output offers, so that it goes with the state. Subclass it and override what it can do.

    Tokens and positions are JSON values that say the same after a restart. `commit` must be idempotent for ever: a
    token may come again after any crash, also from another process, and the second time changes nothing.
    """

    def fence(self, pipeline_id: str, generation: int, token: str) -> Any:  # noqa: ARG002 - for those that override it
        """Store the pair (generation, token) in the sink itself, and give the position it holds (or None).

        Raise Fenced if the stored generation is higher, or equal with another token: a copy of the repository counts
        its generations on its own, so a number alone may have two owners. From then on `prepare`, `commit` and
        `roll_back` raise Fenced unless the stored pair is the one that this object fenced with; the last two look in
        the same transaction.
        """
        return None

    @abstractmethod
    def prepare(self, sequence: int) -> Any:
        """Stage, durably and invisibly, all that was written up to this sequence; give the token to commit it by.

        The token covers everything that is not visible yet: one whose checkpoint failed is never committed, and what
        it stood for must be in the next.
        """

    @abstractmethod
    def commit(self, token: Any) -> Any:
        """Make what the token stands for visible, once, and give the position after it."""

    def can_roll_back(self) -> bool:
        """Whether it can go back to a recorded position that it has passed on its way to where it stands."""
        return type(self).roll_back is not LoopSink.roll_back

    def can_jump(self) -> bool:
        """Whether `roll_back` can go to any recorded position, also one that is not an ancestor of where it stands.

        A table that keeps its versions can; one that deletes rows can't, since what it took back earlier is gone.
        Equal numbers are then different rows: such a position must name a version, and not only how far it got.
        """
        return False

    def roll_back(self, position: Any) -> None:
        """Take back all that was committed after a position; it may come again after a crash."""
        raise BadValue("roll_back", f"{type(self).__name__} can't go back to {position!r}")


def drive(records: PipelineRecords, manifest: Manifest, sinks: Mapping[str, LoopSink]) -> Settled:
    """Commit every sink of a checkpoint and record it. Can be called again after any failure.

    All sinks are tried even if one fails; then SinkFailed is raised for the first, and recorded once, however often
    it fails in the same way. Raises Unsettled if a pending sink
    has no callback here, Fenced if the pipeline was taken over meanwhile.
    """
    done = records.settled(manifest.at)
    if done is not None:
        return done
    missing = sorted(set(manifest.pending_sinks()) - set(sinks))
    if missing:
        raise Unsettled(str(manifest.at), missing)
    outcomes = {name: _commit(manifest, name, sinks) for name in sorted(manifest.sink_commit_statuses)}
    failed = [name for name, outcome in outcomes.items() if outcome.status != "committed"]
    token = _digest(outcomes) if failed else new_token()
    record = Settled(token=token, generation=manifest.generation, slot=manifest.slot, outcomes=outcomes)
    if failed:
        records.create(records.keys.failed(manifest.at, token), record)
        raise SinkFailed(failed[0], str(manifest.at), outcomes[failed[0]].why or "")
    if not records.create(records.keys.settled(manifest.at), record):
        return records.read(records.keys.settled(manifest.at), Settled)
    return record


def _commit(manifest: Manifest, name: str, sinks: Mapping[str, LoopSink]) -> Outcome:
    status = manifest.sink_commit_statuses[name]
    if status.status == "committed":
        return Outcome(status="committed", position=manifest.sink_positions.get(name))
    try:
        return Outcome(status="committed", position=sinks[name].commit(status.token))
    except Fenced:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a user's sink raises is an outcome that must be recorded
        return Outcome(status="failed", why=f"{type(error).__name__}: {error}")


def _digest(outcomes: Mapping[str, Outcome]) -> str:
    """A token that is the same for the same outcomes: a sink that stays down must not write a record each time."""
    return hashlib.sha256(msgspec.json.encode(outcomes, order="sorted")).hexdigest()[:32]


def committed_position(records: PipelineRecords, manifest: Manifest, sink: str) -> Any:
    """Where a sink stood once this checkpoint's outputs were committed; None if it had none."""
    done = records.settled(manifest.at)
    if done is not None and sink in done.outcomes:
        return done.outcomes[sink].position
    return manifest.sink_positions.get(sink)


@dataclass(frozen=True)
class Settlement:
    """What recovery does with the sinks: which it rolls back, and which are ahead and can't go back."""

    to_roll_back: tuple[str, ...] = ()
    stuck: tuple[str, ...] = ()

    def carry_out(self, records: PipelineRecords, manifest: Manifest, sinks: Mapping[str, LoopSink]) -> None:
        """Drive what the checkpoint decided forward, take back what lies beyond it. Can be run again after a crash."""
        if manifest.pending_sinks():
            drive(records, manifest, sinks)
        for name in self.to_roll_back:
            sinks[name].roll_back(committed_position(records, manifest, name))


def plan_settlement(
    records: PipelineRecords,
    manifest: Manifest | None,
    sinks: Mapping[str, LoopSink],
    positions: Mapping[str, Any],
    claimed: int,
    *,
    went_back: bool,
) -> Settlement:
    """Compare where the sinks that were fenced with this claim stand with where the chosen checkpoint left them.

    A sink that tells no position counts as ahead when checkpoints were fallen back over. A sink goes back only to a
    position that was recorded: one that holds something where the records know of nothing is never emptied, since the
    repository, or the sink, is more likely to be the wrong one.

    Sideways, to a checkpoint that was left behind by a rewind, every sink must jump: what it took back then is gone,
    and a position that looks the same may stand for the rows of another timeline. If that checkpoint was never settled
    there is no position to jump to.
    """
    if manifest is None:
        return Settlement(stuck=tuple(sorted(name for name, position in positions.items() if position is not None)))
    sideways = bool(sinks) and _is_sideways(records, manifest.at, claimed)
    if manifest.pending_sinks() and records.settled(manifest.at) is None:
        return Settlement(stuck=tuple(sorted(sinks)) if sideways else ())
    back: list[str] = []
    stuck: list[str] = []
    for name in sorted(sinks):
        position, recorded = positions.get(name), committed_position(records, manifest, name)
        if sideways or (went_back if position is None else position != recorded):
            can_go = sinks[name].can_jump() if sideways else sinks[name].can_roll_back()
            (back if recorded is not None and can_go else stuck).append(name)
    return Settlement(tuple(back), tuple(stuck))


def _is_sideways(records: PipelineRecords, slot: Slot, claimed: int) -> bool:
    """Whether a checkpoint lies off a timeline that the sinks may have followed before this claim.

    Once a generation has published, its sinks are on its timeline. One that has not may have died before it moved
    them, so that the generation before it is looked at too.
    """
    known = records.generations()
    world = World(known.claims, known.bases)
    begun = sorted((g for g, base in known.bases.items() if not base.void), reverse=True)
    if begun and begun[0] > claimed:
        # Overtaken: what was chosen may be the taker's, and the base of this claim is void already.
        return False
    for generation in begun:
        last = {g: upto for g, upto, _ in lineage(world, generation)}.get(slot.generation, -1)
        if last is not None and slot.number > last:
            return True
        if generation == slot.generation or _has_published(records, generation):
            return False
    return False


def _has_published(records: PipelineRecords, generation: int) -> bool:
    held, void = records.slots(generation)
    return bool(held - void) or any(s.generation == generation for s in records.forgotten(Slot(generation, 0)))
