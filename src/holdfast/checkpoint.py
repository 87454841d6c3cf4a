"""One checkpoint as a user holds it: its summary and manifest are read when they are first asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from holdfast.check import Checked, verify_integrity
from holdfast.layout import Slot
from holdfast.manifest import Artifact, ConnectorOffset, Head, Manifest, SinkStatus
from holdfast.names import name_checkpoint, pin_checkpoint, remove_pins
from holdfast.records import Pin, Savepoint, Settled
from holdfast.repository.artifacts import load_artifact
from holdfast.restore import Progress, Restored, restore_to_files
from holdfast.settle import committed_position

if TYPE_CHECKING:
    from holdfast.handles import StoredPipeline

__all__ = ["Checkpoint"]

_Bytes: TypeAlias = bytes
"""`Checkpoint.bytes` hides the builtin inside its class."""


class Checkpoint:
    """One checkpoint: its summary and manifest are read when they are first asked for."""

    def __init__(self, pipeline: StoredPipeline, slot: Slot, *, counts: bool = True) -> None:
        self.pipeline = pipeline
        self.slot = slot
        self.counts = counts

    def __repr__(self) -> str:
        return f"<checkpoint {self.pipeline.name}@{self.slot}, epoch {self.epoch}>"

    @property
    def head(self) -> Head:
        return self.pipeline.records.head(self.slot)

    @property
    def manifest(self) -> Manifest:
        return self.pipeline.records.manifest(self.slot)

    @property
    def id(self) -> str:
        return self.head.checkpoint_id

    @property
    def epoch(self) -> int:
        return self.head.epoch

    @property
    def bytes(self) -> int:
        return self.head.bytes_new + self.head.bytes_shared

    @property
    def sources(self) -> dict[str, ConnectorOffset]:
        return self.manifest.source_offsets

    @property
    def operators(self) -> dict[str, dict[int, list[Artifact]]]:
        return self.manifest.operators

    @property
    def sinks(self) -> dict[str, SinkStatus]:
        """Each sink as it stands now: what was Pending when the manifest was written may be settled since."""
        settled = self.pipeline.records.settled(self.slot)
        if settled is not None:
            return {name: SinkStatus(status="committed") for name in settled.outcomes}
        statuses = dict(self.manifest.sink_commit_statuses)
        for attempt in self._failed_attempts() if self.manifest.pending_sinks() else ():
            for name, outcome in attempt.outcomes.items():
                if outcome.status == "committed":
                    statuses[name] = SinkStatus(status="committed")
                elif name not in statuses or statuses[name].status != "committed":
                    statuses[name] = SinkStatus(status="failed", why=outcome.why)
        return statuses

    def _failed_attempts(self) -> list[Settled]:
        records = self.pipeline.records
        after = records.keys.settled(self.slot).removesuffix("json")
        listed = records.listed(records.keys.all_settled, "failed", start_after=after)
        return [records.read(key, Settled) for key, name, _ in listed if name.slot == self.slot]

    def sink_position(self, name: str) -> Any:
        """Where a sink stood once this checkpoint's outputs were committed; None if that is not known."""
        return committed_position(self.pipeline.records, self.manifest, name)

    def load(self, artifact: Artifact) -> _Bytes:
        """The bytes of one of its artifacts, verified."""
        return load_artifact(self.pipeline.records.store, self.pipeline.records.keys, artifact)

    def verify(self, progress: Progress | None = None) -> Checked:
        """Read every byte and say what is damaged."""
        return verify_integrity(self.pipeline.records, self.slot, progress)

    def restore(self, destination: str | Path, progress: Progress | None = None) -> Restored:
        """Lay the checkpoint down as files in a new folder, verified, whole or not at all."""
        return restore_to_files(self.pipeline.records, self.manifest, Path(destination), progress)

    def savepoint(self, name: str) -> Savepoint:
        return name_checkpoint(self.pipeline.records, self.head, name)

    def pin(self, why: str = "pinned") -> Pin:
        return pin_checkpoint(self.pipeline.records, self.slot, why)

    def unpin(self) -> list[Pin]:
        return remove_pins(self.pipeline.records, self.slot)
