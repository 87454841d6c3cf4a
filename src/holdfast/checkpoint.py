"""One checkpoint as a user holds it: its summary and manifest are read when they are first asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from holdfast.check import Checked, verify_integrity
from holdfast.errors import BadURL, BadValue, Damage, FormatTooNew, ObjectMissing
from holdfast.layout import Slot
from holdfast.manifest import Artifact, ConnectorOffset, Head, Manifest, SinkStatus
from holdfast.names import name_checkpoint, pin_checkpoint, remove_pins
from holdfast.notebook import facts
from holdfast.records import Pin, Savepoint, Settled
from holdfast.repository.artifacts import load_artifact
from holdfast.restore import Progress, Restored, restore_to_files
from holdfast.settle import committed_position
from holdfast.store import RetryPolicy
from holdfast.store.address import LocalAddress, read_address, redact
from holdfast.text import moment, size

if TYPE_CHECKING:
    from holdfast.handles import StoredPipeline
    from holdfast.spark.edits import OffsetEdit
    from holdfast.spark.lay import Changes, FileSink, Laid

__all__ = ["PYTHON", "Checkpoint"]

PYTHON = "python"

_Bytes: TypeAlias = bytes
"""`Checkpoint.bytes` hides the builtin inside its class."""


class Checkpoint:
    """One checkpoint: its summary and manifest are read when they are first asked for."""

    def __init__(self, pipeline: StoredPipeline, slot: Slot, *, counts: bool = True) -> None:
        self.pipeline = pipeline
        self.slot = slot
        self.counts = counts

    def __repr__(self) -> str:
        return f"<checkpoint {self.pipeline.name}@slot:{self.slot}, epoch {self.epoch}>"

    def _repr_html_(self) -> str:
        """What it holds as a table, for notebooks."""
        caption = f"Checkpoint {self.pipeline.name}@slot:{self.slot}"
        try:
            head, manifest = self.head, self.manifest
        except (Damage, FormatTooNew, ObjectMissing) as error:
            return facts(caption, [("problem", error.message)])
        pairs = [
            ("id", head.checkpoint_id),
            ("epoch", f"{head.epoch:,}"),
            ("taken", moment(head.timestamp_ms, utc=True)),
            ("bytes", f"{size(head.bytes_new)} new, {size(head.bytes_shared)} shared"),
            ("watermark", moment(head.watermark, utc=True)),
            ("sources", ", ".join(sorted(manifest.source_offsets)) or "none"),
            ("operators", ", ".join(f"{name} ({len(parts)})" for name, parts in sorted(manifest.operators.items()))),
            ("sinks", ", ".join(f"{name}: {status.status}" for name, status in sorted(self.sinks.items())) or "none"),
            ("timeline", "counts" if self.counts else "abandoned"),
        ]
        return facts(caption, [(name, value) for name, value in pairs if value])

    def _notebook_row(self, savepoints: Mapping[str, Savepoint]) -> tuple[str, ...]:
        held = [name for name, savepoint in sorted(savepoints.items()) if savepoint.at == self.slot]
        try:
            head = self.head
        except (Damage, FormatTooNew, ObjectMissing) as error:
            return str(self.slot), "?", "?", "?", "?", error.message
        taken = moment(head.timestamp_ms, utc=True)
        return str(self.slot), f"{head.epoch:,}", taken, size(head.bytes_new), size(head.bytes_shared), ", ".join(held)

    @property
    def head(self) -> Head:
        """Its summary: ids, epoch, time, bytes. One small read."""
        return self.pipeline.records.head(self.slot)

    @property
    def manifest(self) -> Manifest:
        """All that it holds, and where."""
        return self.pipeline.records.manifest(self.slot)

    @property
    def id(self) -> str:
        """A name for people; never an order."""
        return self.head.checkpoint_id

    @property
    def epoch(self) -> int:
        """The last epoch that is in it."""
        return self.head.epoch

    @property
    def bytes(self) -> int:
        """Bytes that it brought and bytes that it shares with others."""
        return self.head.bytes_new + self.head.bytes_shared

    @property
    def sources(self) -> dict[str, ConnectorOffset]:
        """Where each source stood, by its name."""
        return self.manifest.source_offsets

    @property
    def operators(self) -> dict[str, dict[int, list[Artifact]]]:
        """The artifacts of each operator and partition, snapshot first. Of a Spark query they are `manifest.files`."""
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

    def restore(
        self,
        destination: str | Path,
        progress: Progress | None = None,
        *,
        options: Mapping[str, str] | None = None,
        map_paths: Mapping[str, str] | None = None,
        set_offsets: Sequence[str] = (),
        file_sink: str | None = None,
        sink_options: Mapping[str, str] | None = None,
        apply_sink: bool = False,
        spark: str | None = None,
        state_only: bool = False,
        retry: RetryPolicy | None = None,
        session: object = None,
    ) -> Restored | Laid:
        """Lay the checkpoint down in a new place, verified, whole or not at all.

        That of a Spark query becomes a directory that Spark starts from, local or in an object store, to which
        `options` belong; `lay_down` says what is refused. `map_paths` are places that have moved, old to new;
        `set_offsets` are such as "0:orders:3=1042"; `file_sink` is where the query writes to, whose log is cut back
        beside the directory and, with `apply_sink`, in its place. With a Spark `session` its executors move the bytes,
        for state that no single process should carry; a local destination must then be the same folder for all of them.
        That of a Python loop becomes plain files in a local folder, and takes none of these.
        """
        if self.manifest.engine == PYTHON:
            if options or map_paths or set_offsets or file_sink or session:
                raise BadValue(
                    f"{self.pipeline.name}@slot:{self.slot}", "this is for checkpoints of a Spark query only"
                )
            return restore_to_files(self.pipeline.records, self.manifest, _local(destination), progress)
        from holdfast.spark.lay import Changes, FileSink

        changes = Changes(False, map_paths or {}, _offset_edits(set_offsets))
        sink = FileSink(file_sink, sink_options, apply_sink) if file_sink else None
        return self._lay(destination, changes, sink, progress, options, spark, state_only, retry, session)

    def fork(
        self,
        destination: str | Path,
        progress: Progress | None = None,
        *,
        options: Mapping[str, str] | None = None,
        map_paths: Mapping[str, str] | None = None,
        set_offsets: Sequence[str] = (),
        file_sink: str | None = None,
        sink_options: Mapping[str, str] | None = None,
        spark: str | None = None,
        state_only: bool = False,
        retry: RetryPolicy | None = None,
        session: object = None,
    ) -> Laid:
        """As `restore` of a Spark query, but for another query: it has a new id and may run beside the first.

        Give it sinks of its own. When it is captured it goes under a pipeline name of its own.
        """
        # Only restore and fork need what knows Spark's files; listing and checking start faster without.
        from holdfast.spark.lay import Changes, FileSink

        changes = Changes(True, map_paths or {}, _offset_edits(set_offsets))
        sink = FileSink(file_sink, sink_options) if file_sink else None
        return self._lay(destination, changes, sink, progress, options, spark, state_only, retry, session)

    def _lay(
        self,
        destination: str | Path,
        changes: Changes,
        sink: FileSink | None,
        progress: Progress | None,
        options: Mapping[str, str] | None,
        spark: str | None,
        state_only: bool,
        retry: RetryPolicy | None,
        session: object,
    ) -> Laid:
        from holdfast.spark.distribute import Layer
        from holdfast.spark.executors import Executors
        from holdfast.spark.lay import lay_down

        return lay_down(
            self.pipeline.records,
            self.manifest,
            str(destination),
            changes,
            options=options,
            sink=sink,
            spark=spark,
            state_only=state_only,
            retry=retry,
            progress=progress,
            layer=Layer(Executors.of(session), self.pipeline.repository.address) if session is not None else None,
        )

    def savepoint(self, name: str) -> Savepoint:
        """Give it a name: retention never removes it while it has one. Raises NameTaken."""
        return name_checkpoint(self.pipeline.records, self.head, name)

    def pin(self, why: str = "pinned") -> Pin:
        """Hold it against retention until the pin is removed; it may have many."""
        return pin_checkpoint(self.pipeline.records, self.slot, why)

    def unpin(self) -> list[Pin]:
        """Let go of all pins that people put on it, and give them."""
        return remove_pins(self.pipeline.records, self.slot)


def _offset_edits(texts: Sequence[str]) -> tuple[OffsetEdit, ...]:
    from holdfast.spark.edits import parse_offset_edit

    return tuple(map(parse_offset_edit, texts))


def _local(destination: str | Path) -> Path:
    address = read_address(str(destination), {}, as_hadoop=True)
    if not isinstance(address, LocalAddress):
        raise BadURL(redact(str(destination)), "the checkpoint of a loop is laid down in a local folder")
    return address.path
