"""Sinks of a plain loop: the manifest that names them Pending is the decision, and this drives it to the end.

Bytes, manifest, then every sink commits by its token, then the record that all have. A crash anywhere leaves a
decision that recovery finds and drives forward; a sink that fails is reported and driven again, never skipped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.errors import BadValue, Fenced, SinkFailed, Unsettled
from holdfast.ids import new_token
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
        """Refuse all lower generations from now on, in the sink itself, and give the position it holds (or None)."""
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
        return type(self).roll_back is not LoopSink.roll_back

    def roll_back(self, position: Any) -> None:
        """Take back all that was committed after a position."""
        raise BadValue("roll_back", f"{type(self).__name__} can't go back to {position!r}")


def drive(records: PipelineRecords, manifest: Manifest, sinks: Mapping[str, LoopSink]) -> Settled:
    """Commit every sink of a checkpoint and record it. Can be called again after any failure.

    All sinks are tried even if one fails; then SinkFailed is raised for the first. Raises Unsettled if a pending sink
    has no callback here, Fenced if the pipeline was taken over meanwhile.
    """
    done = records.settled(manifest.at)
    if done is not None:
        return done
    missing = sorted(set(manifest.pending_sinks()) - set(sinks))
    if missing:
        raise Unsettled(str(manifest.at), missing)
    outcomes = {name: _commit(manifest, name, sinks) for name in sorted(manifest.sink_commit_statuses)}
    record = Settled(token=new_token(), generation=manifest.generation, slot=manifest.slot, outcomes=outcomes)
    failed = [name for name, outcome in outcomes.items() if outcome.status != "committed"]
    if failed:
        records.create(records.keys.failed(manifest.at, record.token), record)
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
    went_back: bool,
) -> Settlement:
    """Compare where fenced sinks stand with where the chosen checkpoint left them.

    A sink that tells no position counts as ahead when checkpoints were fallen back over. A sink goes back only to a
    position that was recorded: one that holds something where the records know of nothing is never emptied, since the
    repository, or the sink, is more likely to be the wrong one.
    """
    if manifest is None:
        return Settlement(stuck=tuple(sorted(name for name, position in positions.items() if position is not None)))
    if manifest.pending_sinks() and records.settled(manifest.at) is None:
        return Settlement()
    back: list[str] = []
    stuck: list[str] = []
    for name in sorted(sinks):
        position, recorded = positions.get(name), committed_position(records, manifest, name)
        is_ahead = went_back if position is None else position != recorded
        if is_ahead:
            (back if recorded is not None and sinks[name].can_roll_back() else stuck).append(name)
    return Settlement(tuple(back), tuple(stuck))
