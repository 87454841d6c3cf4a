"""The checkpointer: every verb of one pipeline's checkpoints, under one generation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType

from holdfast.check import Checked, verify_integrity
from holdfast.claim import Reason
from holdfast.decide.timeline import timeline
from holdfast.draft import Description, Draft, PartitionState
from holdfast.errors import BrokenChain, CheckpointMissing, ObjectMissing
from holdfast.gc import Removed, delete_checkpoint
from holdfast.layout import Slot
from holdfast.manifest import Artifact, Head, Manifest
from holdfast.publish import Publisher
from holdfast.records import Settled
from holdfast.recovery import Demands, Recovered, recover
from holdfast.repository.artifacts import load_artifact, load_artifacts
from holdfast.repository.pipeline import PipelineRecords
from holdfast.repository.uploads import Limits
from holdfast.settle import LoopSink, drive
from holdfast.store.contract import Buffer
from holdfast.validation import chain_breaks

__all__ = ["Checkpointer"]


class Checkpointer:
    """Saves and loads the checkpoints of one pipeline. Safe from several threads; close it when done.

    Made by `recover`, which takes the pipeline over: whoever had it before is fenced from then on.
    """

    def __init__(self, publisher: Publisher, recovered: Recovered, sinks: Mapping[str, LoopSink]) -> None:
        self._publisher = publisher
        self._sinks = dict(sinks)
        self.recovered = recovered
        self.records = publisher.records

    @classmethod
    def recover(
        cls,
        records: PipelineRecords,
        why: str = "start",
        demands: Demands | None = None,
        sinks: Mapping[str, LoopSink] | None = None,
        limits: Limits | None = None,
        *,
        activate: bool = False,
    ) -> Checkpointer:
        """Take the pipeline over at its newest whole checkpoint and settle its sinks; see `holdfast.recovery`."""
        recovered = recover(records, Reason(why), demands, sinks, activate=activate)
        publisher = Publisher(records, recovered.generation.number, recovered.manifest, limits)
        return cls(publisher, recovered, sinks or {})

    def __repr__(self) -> str:
        tip = f"at {self.tip.at}" if self.tip else "no checkpoint yet"
        return f"<holdfast.Checkpointer of {self.records.name!r}, generation {self.generation}, {tip}>"

    def __enter__(self) -> Checkpointer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Finish what is under way and let go. The pipeline stays claimed until another takes it over."""
        self._publisher.close()

    @property
    def generation(self) -> int:
        """The generation that it publishes under."""
        return self._publisher.generation

    @property
    def tip(self) -> Manifest | None:
        """The newest checkpoint of this run, or the one that it began from."""
        return self._publisher.tip

    # ---- saving ----

    def begin(self, epoch: int, *, carry: bool = False) -> Draft:
        """Start a checkpoint; call it before the state is captured.

        With `carry`, partitions that are not saved anew are taken over from the one before.
        """
        return self._publisher.begin(epoch, carry=carry)

    def save_snapshot(self, draft: Draft, operator: str, partition: int, data: Buffer) -> str:
        """Save the whole state of one operator partition and give its SHA-256."""
        return draft.save_partition(PartitionState(operator, partition, data)).sha256

    def save_delta(self, draft: Draft, operator: str, partition: int, data: Buffer) -> str:
        """Save what changed in one operator partition since its last artifact, and give its SHA-256."""
        return draft.save_partition(PartitionState(operator, partition, data, is_delta=True)).sha256

    def save_partitions(
        self, draft: Draft, states: Iterable[PartitionState], concurrency: int | None = None
    ) -> list[Artifact]:
        """Save many operator partitions, a bounded number at a time; every one comes back, in the order given."""
        return draft.save_partitions(states, concurrency or self._publisher.limits.concurrency)

    def save_manifest(self, draft: Draft, about: Description | None = None) -> Manifest:
        """Publish the draft and commit its sinks; once this returns the checkpoint is durable and counts.

        Raises Fenced if the pipeline was taken over, OutcomeUnknown if the store never answered, SinkFailed if a sink
        could not commit: the checkpoint then stands, and `settle` drives it again.
        """
        manifest = self._publisher.publish(draft, about or Description())
        self._drive()
        return manifest

    def settle(self) -> Settled | None:
        """Drive the sinks of the last checkpoint to committed, after a failure; nothing to do is no error.

        Raises Fenced if the pipeline was taken over meanwhile: its sinks are the taker's now.
        """
        self._publisher.settle_unknown()
        if self._publisher.unsettled is not None:
            self._publisher.look_for_claim()
        return self._drive()

    def _drive(self) -> Settled | None:
        unsettled = self._publisher.unsettled
        if unsettled is None:
            return None
        settled = drive(self.records, unsettled, self._sinks)
        self._publisher.mark_settled(unsettled.at)
        return settled

    # ---- loading ----

    def load_manifest(self, slot: Slot) -> Manifest:
        """A manifest, every byte of it checked. Raises CheckpointMissing if the slot holds none."""
        try:
            return self.records.manifest(slot)
        except ObjectMissing:
            raise CheckpointMissing(self.records.reference(slot), "the slot holds no checkpoint") from None

    def load_artifact(self, artifact: Artifact) -> bytes:
        """The bytes of an artifact, always verified."""
        return load_artifact(self.records.store, self.records.keys, artifact)

    def load_partition(self, manifest: Manifest, operator: str, partition: int) -> list[bytes]:
        """The state of one operator partition: its snapshot, then its deltas in order. A hole is BrokenChain."""
        chain = manifest.operators.get(operator, {}).get(partition)
        if chain is None:
            raise CheckpointMissing(f"{manifest.at}", f"it holds no partition {partition} of operator {operator!r}")
        if why := chain_breaks(chain):
            raise BrokenChain(operator, partition, why)
        found = dict(load_artifacts(self.records.store, self.records.keys, chain))
        return [found[artifact] for artifact in chain]

    # ---- looking after ----

    def update_latest(self, slot: Slot) -> None:
        """Move the hint. It only saves requests: what is newest is always decided by the records."""
        self.records.put_hint(slot)

    def read_latest(self) -> Slot | None:
        """The newest checkpoint that counts, found from the hint in a constant number of requests."""
        return self.records.locate().newest

    def list_checkpoints(self) -> list[Head]:
        """The summaries of all checkpoints that count, oldest first."""
        return [self.records.head(slot) for slot in timeline(self.records.world())]

    def delete_checkpoint(self, slot: Slot) -> Removed:
        """Forget a checkpoint and say what was removed; refuses what others need."""
        return delete_checkpoint(self.records, slot)

    def verify_integrity(self, slot: Slot) -> Checked:
        """Read every byte of a checkpoint and say what is damaged."""
        return verify_integrity(self.records, slot)
