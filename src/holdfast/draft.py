"""A draft: one checkpoint in the making. It gathers artifacts, shares bytes with its parent, and becomes a manifest."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from holdfast.errors import BadValue, BrokenChain, DamagedArtifact, Overtaken
from holdfast.ids import new_id, now_ms
from holdfast.layout import PipelineKeys, Slot
from holdfast.manifest import Artifact, ConnectorOffset, Manifest, Parent, SinkStatus
from holdfast.records import Request
from holdfast.repository.artifacts import load_artifacts, stream_artifact
from holdfast.repository.pipeline import PipelineRecords
from holdfast.repository.uploads import Upload
from holdfast.store.contract import Buffer
from holdfast.validation import LINK

__all__ = ["Description", "Draft", "PartitionState"]

ALIVE = 4
"""A pack of which less than one in this many bytes is still wanted is emptied into the next upload."""

WORTH_A_THREAD = 256 * 1024
"""Handing a smaller state to a thread takes longer than hashing it."""


class PartitionState(NamedTuple):
    """The state of one operator partition: the whole of it, or what changed since its last artifact."""

    operator: str
    partition: int
    data: Buffer
    is_delta: bool = False


@dataclass(frozen=True)
class Description:
    """What a manifest says beside its artifacts. Sinks given here are Pending until they are settled."""

    source_offsets: Mapping[str, ConnectorOffset] = field(default_factory=dict)
    table_offsets: Mapping[str, ConnectorOffset] = field(default_factory=dict)
    source_watermarks: Mapping[str, int] = field(default_factory=dict)
    sinks: Mapping[str, SinkStatus] = field(default_factory=dict)
    sink_epochs: Mapping[str, int] = field(default_factory=dict)
    sink_positions: Mapping[str, Any] = field(default_factory=dict)
    watermark: int | None = None
    pipeline_hash: str = ""
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    vnode_count: int | None = None
    processed_records: int = 0
    steps: int = 0
    engine: str = "python"
    spark_version: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


class Draft:
    """Artifacts saved so far for one checkpoint. Safe from several threads.

    With `carry`, partitions that are not saved anew are taken over from the parent as they are; without it the
    checkpoint holds only what is saved, and a partition left out is gone from it.
    """

    def __init__(
        self,
        records: PipelineRecords,
        upload: Upload,
        epoch: int,
        parent: Manifest | None,
        requests: Iterable[Request] = (),
        *,
        carry: bool = False,
    ) -> None:
        self.epoch = epoch
        self.requests = list(requests)
        self._records = records
        self._upload = upload
        self._parent = parent
        self._known = {a.sha256: a for _, a in parent.artifacts() if a.path} if parent else {}
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._operators: dict[str, dict[int, list[Artifact]]] = {}
        self._driver_states: dict[str, Artifact] = {}
        self._files: dict[str, Artifact] = {}
        self._stands_on_parent = carry
        if carry and parent:
            self._operators = {op: {p: list(c) for p, c in parts.items()} for op, parts in parent.operators.items()}
            self._driver_states = dict(parent.driver_states)
            self._files = dict(parent.files)

    def __repr__(self) -> str:
        with self._lock:
            count = len(self._artifacts())
        on = f" on {self._parent.at}" if self._parent else ""
        return f"<holdfast draft of {self._records.name!r}, epoch {self.epoch}{on}, {count} artifacts>"

    def refuse_other_parent(self, tip: Manifest | None) -> None:
        """Raise Overtaken if a checkpoint was published since this one began from what that one changed.

        What was carried, and deltas, stand on the parent; on another they would undo it.
        """
        at, began = tip.at if tip else None, self._parent.at if self._parent else None
        if self._stands_on_parent and at != began:
            raise Overtaken(
                self._records.name, f"it stands on {began}, but {at} was published since; begin it after that"
            )

    def save_partition(self, state: PartitionState) -> Artifact:
        """Save one partition; a delta follows what this draft or its parent holds of it, else BrokenChain."""
        if state.partition < 0 or not state.operator:
            raise BadValue("partition", f"operator {state.operator!r}, partition {state.partition}")
        chain = self._chain(state.operator, state.partition) if state.is_delta else []
        self._stands_on_parent |= state.is_delta
        if state.is_delta and not chain:
            raise BrokenChain(state.operator, state.partition, "a delta needs a snapshot before it")
        artifact = self._place(state.data, after=chain[-1].sha256[:LINK] if chain else None)
        with self._lock:
            self._operators.setdefault(state.operator, {})[state.partition] = [*chain, artifact]
        return artifact

    def save_partitions(self, states: Iterable[PartitionState], concurrency: int) -> list[Artifact]:
        """Save many partitions, `concurrency` at a time; every one comes back, in the order given.

        States are taken from the iterable only as they are saved: it may make them as it goes.
        """
        saved: list[Artifact | Future[Artifact]] = []
        under_way: deque[Future[Artifact]] = deque()
        with ThreadPoolExecutor(concurrency, thread_name_prefix="holdfast-save") as pool:
            for state in states:
                if memoryview(state.data).nbytes < WORTH_A_THREAD:
                    saved.append(self.save_partition(state))
                    continue
                if len(under_way) >= concurrency:
                    under_way.popleft().result()
                under_way.append(pool.submit(self.save_partition, state))
                saved.append(under_way[-1])
            return [one if isinstance(one, Artifact) else one.result() for one in saved]

    def save_stream(self, operator: str, partition: int, chunks: Iterable[Buffer]) -> Artifact:
        """Save the snapshot of one partition from chunks, however large it is."""
        artifact = self._upload.add_stream(chunks)
        with self._lock:
            self._operators.setdefault(operator, {})[partition] = [artifact]
        return artifact

    def save_driver_state(self, name: str, data: Buffer) -> Artifact:
        artifact = self._place(data)
        with self._lock:
            self._driver_states[name] = artifact
        return artifact

    def save_file(self, name: str, data: Buffer, stamp: str | None = None) -> Artifact:
        """Save a file under a relative name; folders in it are kept on restore.

        `stamp` says which version of somebody else's file this is: see `keep_file`.
        """
        return self._name_file(name, self._place(data), stamp)

    def save_file_stream(self, name: str, chunks: Iterable[Buffer], stamp: str | None = None) -> Artifact:
        """Save a file from chunks, however large it is."""
        return self._name_file(name, self._upload.add_stream(chunks), stamp)

    def shared_upload(self) -> tuple[PipelineKeys, str]:
        """Where the bytes of this draft go, as `Upload` takes it: for processes that send some of them."""
        return self._records.keys, self._records.keys.prefix + self._upload.prefix

    def adopt_files(self, files: Mapping[str, Artifact], objects: Mapping[str, int]) -> None:
        """Take in files that another process has sent, durably, to `shared_upload`: objects and what lies in them."""
        for name, artifact in files.items():
            self._name_file(name, artifact, artifact.stamp)
        self._upload.adopt(objects)

    def keep_file(self, name: str, size: int, stamp: str) -> bool:
        """Take a file over from the parent, without its bytes, if that holds this very version of it."""
        held = self._parent.files.get(name) if self._parent else None
        if held is None or held.stamp != stamp or held.size_bytes != size:
            return False
        self._name_file(name, held, stamp)
        return True

    def _name_file(self, name: str, artifact: Artifact, stamp: str | None) -> Artifact:
        if not all(part.strip(".") for part in name.split("/")):
            raise BadValue("file name", f"{name!r} has an empty or dotted part")
        if artifact.stamp != stamp:
            artifact = msgspec.structs.replace(artifact, stamp=stamp)
        with self._lock:
            self._files[name] = artifact
        return artifact

    def abandon(self) -> None:
        """Give the draft up and remove the bytes that it has sent. Never once it was given to `publish`."""
        self._upload.abandon()

    def _chain(self, operator: str, partition: int) -> list[Artifact]:
        with self._lock:
            mine = self._operators.get(operator, {}).get(partition)
        if mine is not None:
            return list(mine)
        return list(self._parent.operators.get(operator, {}).get(partition, ())) if self._parent else []

    def _place(self, data: Buffer, after: str | None = None) -> Artifact:
        sha256 = hashlib.sha256(data).hexdigest()
        known = self._known.get(sha256)
        if known is None:
            return self._upload.add(data, sha256, is_delta=after is not None, after=after)
        return _moved(known, known, after)

    def manifest(self, slot: Slot, pipeline_id: str, about: Description, parent: Manifest | None) -> Manifest:
        """The manifest for a slot, on top of a parent, with every byte that it names durable.

        A parent other than the one that the draft began with makes bytes which that one does not name be uploaded
        anew: only what the newest checkpoint names is safe from a prune.
        """
        inherited = dict(parent.objects) if parent else {}
        self._bring_in(inherited)
        own = self._upload.finish()
        named = {a.path for a in self._artifacts() if a.path is not None}
        sources = sorted({*about.source_offsets, *about.source_watermarks})
        partitions = [p for parts in self._operators.values() for p in parts]
        with self._lock:
            return Manifest(
                checkpoint_id=new_id(),
                generation=slot.generation,
                slot=slot.number,
                epoch=self.epoch,
                timestamp_ms=now_ms(),
                identifier=self._records.name,
                pipeline_id=pipeline_id,
                parent=_parent(parent),
                upload=self._upload.prefix,
                engine=about.engine,
                source_offsets=dict(about.source_offsets),
                table_offsets=dict(about.table_offsets),
                sink_epochs=dict(about.sink_epochs),
                sink_positions=dict(about.sink_positions),
                sink_commit_statuses=dict(about.sinks),
                watermark=about.watermark,
                source_watermarks=dict(about.source_watermarks),
                source_names=sources,
                sink_names=sorted(about.sinks),
                pipeline_hash=about.pipeline_hash,
                fingerprint=dict(about.fingerprint),
                vnode_count=about.vnode_count if about.vnode_count is not None else 1 + max(partitions, default=-1),
                operators={op: {p: list(c) for p, c in parts.items()} for op, parts in self._operators.items()},
                driver_states=dict(self._driver_states),
                files=dict(self._files),
                objects={path: size for path, size in {**inherited, **own}.items() if path in named},
                processed_records=about.processed_records,
                steps=about.steps,
                # Until here its bytes are durable; the manifest itself is still to come. 0 would say: not measured.
                took_ms=max(1, round((time.monotonic() - self._began) * 1000)),
                spark_version=about.spark_version,
                metadata=dict(about.metadata),
            )

    def _artifacts(self) -> list[Artifact]:
        chains = [chain for parts in self._operators.values() for chain in parts.values()]
        return [a for chain in chains for a in chain] + [*self._driver_states.values(), *self._files.values()]

    def _bring_in(self, inherited: Mapping[str, int]) -> None:
        """Upload anew, from the verified bytes in the store, what the parent does not name or holds in a dying pack."""
        wanted: dict[str, dict[int | None, Artifact]] = {}
        for artifact in self._artifacts():
            if artifact.path is not None and not artifact.path.startswith(self._upload.prefix):
                wanted.setdefault(artifact.path, {})[artifact.offset] = artifact
        moving: dict[tuple[str | None, int | None], Artifact] = {}
        for path, members in wanted.items():
            in_pack = sum(a.size_bytes for a in members.values() if a.offset is not None)
            if path not in inherited or 0 < ALIVE * in_pack < inherited[path]:
                moving.update({(path, offset): artifact for offset, artifact in members.items()})
        if not moving:
            return
        moved: dict[tuple[str | None, int | None], Artifact] = {}
        store, keys = self._records.store, self._records.keys
        try:
            for old in (a for a in moving.values() if a.offset is None):
                moved[old.path, old.offset] = self._upload.add_stream(stream_artifact(store, keys, old))
            for old, data in load_artifacts(store, keys, [a for a in moving.values() if a.offset is not None]):
                moved[old.path, old.offset] = self._upload.add(data, old.sha256)
        except DamagedArtifact as damage:
            if self._records.store.list(f"{self._records.keys.prefix}{damage.path.rpartition('/')[0]}/"):
                raise
            raise Overtaken(self._records.name, damage.message) from damage

        def follow(a: Artifact) -> Artifact:
            place = moved.get((a.path, a.offset))
            return a if place is None else _moved(place, a, a.after)

        with self._lock:
            for parts in self._operators.values():
                for partition, chain in parts.items():
                    parts[partition] = [follow(a) for a in chain]
            self._driver_states = {name: follow(a) for name, a in self._driver_states.items()}
            self._files = {name: follow(a) for name, a in self._files.items()}


def _moved(place: Artifact, meaning: Artifact, after: str | None) -> Artifact:
    """The same bytes at another place, standing in a chain as they did."""
    return Artifact(
        sha256=meaning.sha256,
        size_bytes=meaning.size_bytes,
        is_delta=after is not None,
        after=after,
        path=place.path,
        offset=place.offset,
        length=place.length,
        inline=place.inline,
        stamp=meaning.stamp,
    )


def _parent(parent: Manifest | None) -> Parent | None:
    if parent is None:
        return None
    return Parent(generation=parent.generation, slot=parent.slot, checkpoint_id=parent.checkpoint_id)
