"""Restore for Spark: a checkpoint laid down as a directory that a query starts from, whole or not at all.

Always in a new place. Absolute paths in it are rewritten, and `_holdfast/owner.json` says which checkpoint it began
as: whoever captures it next goes on from there.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import msgspec

from holdfast.decide.spark_versions import rejects
from holdfast.errors import BadURL, HasSinks, InvalidManifest, PlaceNotEmpty, SparkRejects, UnfinishedRestore
from holdfast.ids import new_token, now_ms
from holdfast.laying import Folder, Place, Progress, StoreFolder, lay_files
from holdfast.manifest import Manifest
from holdfast.records import Owner, seal
from holdfast.repository.pipeline import PipelineRecords
from holdfast.spark.describe import DIRECTORY, ENGINE, QUERY_ID
from holdfast.spark.distribute import Layer
from holdfast.spark.moving import METADATA, Changes, Moving, Rewritten, check_mapped
from holdfast.spark.places import SparkPlace
from holdfast.spark.sink_log import LOG, SINK
from holdfast.spark.sinking import FileSink, Sinking
from holdfast.spark.succession import OWNER
from holdfast.store.retry import RetryPolicy

__all__ = ["Changes", "FileSink", "Laid", "Regrow", "Regrown", "lay_down", "refuse_to_lay"]

UNFINISHED = "holdfast restore is not finished"
"""Stands where Spark expects the query's id: it fails with these words. Longer ones it would not repeat."""


@dataclass(frozen=True)
class Laid:
    """A directory that Spark starts from. `destination` is the address to give to Spark.

    `sink` is the query's file sink, if that is known, `sink_log` where the trimmed log of it lies, and `sink_kept`
    where the old one does that was replaced.
    """

    destination: str
    files: int
    bytes: int
    epoch: int
    query_id: str
    fork: bool = False
    edits: tuple[str, ...] = ()
    sink: str | None = None
    sink_log: str | None = None
    sink_applied: bool = False
    sink_kept: str | None = None

    @property
    def start(self) -> str:
        """The line of PySpark that starts from here."""
        return f'.option("checkpointLocation", {json.dumps(self.destination, ensure_ascii=False)})'

    @property
    def remarks(self) -> tuple[str, ...]:
        """What whoever starts the query must know about its sinks."""
        kinds = "Spark's file sink, Delta (txnAppId and txnVersion), a foreachBatch that goes by the batch id"
        said = [
            f"The next batch is {self.epoch + 1}. Sinks that have seen this number skip it without a word: {kinds}."
        ]
        if self.fork:
            said.append("Give the fork sinks of its own.")
        else:
            said.append(f"Take such sinks back to batch {self.epoch} before you start, or name new ones.")
        if self.sink_applied:
            said.append(
                f"The log of {self.sink} ends at batch {self.epoch} now. Data files of later batches are still there; "
                "whoever reads by the log does not see them."
            )
        elif self.sink_log is not None:
            said.append(f"Put {self.sink_log} in the place of {self.sink}/{LOG}; --apply-sink does it.")
        elif self.sink is not None:
            said.append(f"It was captured with the file sink {self.sink}: --file-sink cuts its log back.")
        return tuple(said)


@dataclass(frozen=True)
class Regrown:
    """What became of the state in a folder: its last batch now, the files and bytes, and what was changed in words."""

    epoch: int
    files: int
    bytes: int
    edits: tuple[str, ...]


Regrow: TypeAlias = Callable[[Path, str], Regrown]
"""Changes the state in a folder which is whole but does not count yet. Given are the folder and the address that it
will have; what it raises leaves nothing behind."""


def lay_down(
    records: PipelineRecords,
    manifest: Manifest,
    destination: str,
    changes: Changes | None = None,
    *,
    options: Mapping[str, str] | None = None,
    sink: FileSink | None = None,
    spark: str | None = None,
    state_only: bool = False,
    retry: RetryPolicy | None = None,
    progress: Progress | None = None,
    layer: Layer | None = None,
    regrow: Regrow | None = None,
) -> Laid:
    """Lay a Spark checkpoint down below `destination`, a new local folder or a new prefix in an object store.

    With a `layer` Spark's executors move the bytes; without one this process does. `regrow` changes the state on the
    way, in a local folder only.
    `spark` is the version that is to go on from it: that of the installed pyspark, unless said otherwise. Before
    anything is written this raises PlaceNotEmpty if something is there, HasSinks without `state_only`, SparkRejects,
    SinkLogGone, and BadValue for a change that fits nothing; after that DamagedArtifact if a byte is not what was
    captured, which leaves nothing behind. A store has no rename: there `metadata` holds a mark, at which Spark fails,
    until all else is written, and the same restore run again after a crash goes on.
    """
    changes = changes or Changes()
    _refuse(manifest, state_only)
    place = SparkPlace(destination, options or {}, retry)
    if regrow is not None and place.folder is None:
        raise BadURL(
            place.spelled(), "state is changed in a local folder: capture that, and restore it where it is to be"
        )
    moving = Moving(records, manifest)
    _refuse_version(moving, manifest, spark or _installed())
    root = place.spelled(manifest.metadata.get(DIRECTORY, ""))
    rewritten = moving.rewritten(changes, root)
    sinking = Sinking.plan(sink, moving, manifest, changes, place) if sink else None
    if changes.map_paths:
        mapped = rewritten.mapped + (sinking.trimmed.mapped if sinking else 0)
        rewritten.edits.append(check_mapped(changes.map_paths, mapped, moving.named_file()))
    begun = _Begun(
        checkpoint_id=manifest.checkpoint_id,
        root=root,
        fork=changes.fork,
        map_paths=dict(changes.map_paths),
        set_offsets=[str(edit) for edit in changes.set_offsets],
        query_id=str(uuid.uuid4()) if changes.fork else manifest.metadata[QUERY_ID],
        token=new_token(),
        created_ms=now_ms(),
    )
    return _Laying(records, manifest, moving, rewritten, sinking, progress, layer, regrow).into(place, begun)


def refuse_to_lay(records: PipelineRecords, manifest: Manifest) -> None:
    """Raise what `lay_down` would for the checkpoint itself, with `state_only`, before anything depends on it."""
    _refuse(manifest, state_only=True)
    _refuse_version(Moving(records, manifest), manifest, _installed())


def _refuse(manifest: Manifest, state_only: bool) -> None:
    errors = [str(finding) for finding in manifest.validate() if finding.severity == "error"]
    if manifest.engine != ENGINE or not manifest.metadata.get(QUERY_ID):
        errors.append("it was not captured from a Spark query")
    if errors:
        raise InvalidManifest(str(manifest.at), errors)
    if manifest.sink_names and not state_only:
        raise HasSinks(str(manifest.at), manifest.sink_names)


def _refuse_version(moving: Moving, manifest: Manifest, version: str | None) -> None:
    why = rejects(moving.formats(), version, manifest.spark_version) if version else None
    if version and why:
        raise SparkRejects(str(manifest.at), version, why)


def _installed() -> str | None:
    """The version of the pyspark that is installed here; importing it would take a second."""
    from importlib import metadata

    try:
        return metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return None


class _Begun(msgspec.Struct, frozen=True, kw_only=True):
    """What a restore is to write, and what it drew for it: the same one run again goes on with what the first drew."""

    checkpoint_id: str
    root: str
    fork: bool
    map_paths: dict[str, str]
    set_offsets: list[str]
    query_id: str
    token: str
    created_ms: int

    def mark(self) -> bytes:
        """What `metadata` holds until all else is there."""
        return msgspec.json.encode({"id": UNFINISHED, "holdfast": self}, order="deterministic")

    def adopt(self, url: str, mark: bytes) -> _Begun:
        """The restore that a mark stands for, if it asks for the same as this one; else raises what is in the way."""
        try:
            found = msgspec.json.decode(mark, type=_Mark).holdfast
        except msgspec.DecodeError:
            raise PlaceNotEmpty(url) from None
        drawn = ["token", "created_ms", "query_id"] if self.fork else ["token", "created_ms"]
        if msgspec.structs.replace(self, **{name: getattr(found, name) for name in drawn}) != found:
            raise UnfinishedRestore(url, found.checkpoint_id)
        return found


class _Mark(msgspec.Struct, frozen=True):
    id: str
    holdfast: _Begun


@dataclass(frozen=True)
class _Laying:
    records: PipelineRecords
    manifest: Manifest
    moving: Moving
    rewritten: Rewritten
    sinking: Sinking | None
    progress: Progress | None
    layer: Layer | None
    regrow: Regrow | None

    def into(self, place: SparkPlace, begun: _Begun) -> Laid:
        """Write it all. The sink's log is last before the directory counts: nobody starts from it with the old log."""
        became = Regrown(self.manifest.epoch, len(self.moving.files), 0, ())
        if place.folder is not None:
            folder = Folder(place.folder)
            with folder.opened():
                size = self._fill(folder, place, begun)
                folder.write(METADATA, self.moving.metadata(begun.query_id))
                if self.regrow is not None:
                    became = self.regrow(folder.partial, begun.root)
                    size = became.bytes
                folder.write(OWNER, self._owner(begun, became.edits))
                kept = self.sinking.act() if self.sinking else None
        else:
            marked = StoreFolder(place.store(), METADATA)
            if (standing := marked.standing()) is not None:
                begun.adopt(place.spelled(), standing)
            with marked.opened(begun.mark()):
                begun = begun.adopt(place.spelled(), marked.mark)
                size = self._fill(marked, place, begun)
                marked.write(OWNER, self._owner(begun, ()))
                kept = self.sinking.act() if self.sinking else None
                marked.lift(self.moving.metadata(begun.query_id))
        return Laid(
            destination=begun.root,
            files=became.files,
            bytes=size,
            epoch=became.epoch,
            query_id=begun.query_id,
            fork=begun.fork,
            edits=(*self.rewritten.edits, *became.edits),
            sink=self.sinking.sink.spelled() if self.sinking else self.manifest.metadata.get(SINK),
            sink_log=self.sinking.copy.spelled() if self.sinking else None,
            sink_applied=self.sinking is not None and self.sinking.apply,
            sink_kept=kept,
        )

    def _fill(self, place: Place, destination: SparkPlace, begun: _Begun) -> int:
        """Write all but `metadata` and Holdfast's own, and give the bytes of the whole."""
        changed = self.rewritten.files
        files = {name: a for name, a in self.moving.files.items() if name not in changed and name != METADATA}
        if self.layer is not None:
            size = self.layer.lay(self.records, files, place, destination, self.progress)
        else:
            _, size = lay_files(self.records, files, place, self.progress)
        for name, data in changed.items():
            place.write(name, data)
        return size + sum(map(len, changed.values())) + len(self.moving.metadata(begun.query_id))

    def _owner(self, begun: _Begun, regrown: tuple[str, ...]) -> bytes:
        manifest = self.manifest
        owner = Owner(
            token=begun.token,
            pipeline_id=manifest.pipeline_id,
            pipeline=self.records.name,
            repository=self.records.store.url,
            generation=manifest.generation,
            slot=manifest.slot,
            epoch=manifest.epoch,
            checkpoint_id=manifest.checkpoint_id,
            query_id=begun.query_id,
            fork=begun.fork,
            created_ms=begun.created_ms,
            edits=[*self.rewritten.edits, *regrown],
        )
        return seal(owner)
