"""The manifest: the record of one checkpoint, what it holds and where. That it exists is the commit.

Its first line is a sealed summary (under 2 KiB) that lists need; the rest is the whole record as JSON, compressed when
large, and its digest stands in the summary.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from holdfast.errors import BadValue, DamagedRecord
from holdfast.layout import Slot
from holdfast.records import FORMAT, refuse_newer, seal_line, unseal_line
from holdfast.validation import Finding, findings

__all__ = [
    "HEAD_LIMIT",
    "Artifact",
    "ConnectorOffset",
    "Head",
    "Manifest",
    "Parent",
    "SinkStatus",
    "decode_head",
    "decode_manifest",
    "encode_manifest",
]

HEAD_LIMIT = 2048
COMPRESS_ABOVE = 16 * 1024
COMPRESSION = 1
"""Most of a manifest is digests, which do not shrink: higher levels take three times as long and save little."""
_SINKS_IN_HEAD = 800


class Artifact(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Immutable bytes with their digest: inline, an object of their own, or a stretch of a pack.

    `after` is the start of the digest of the artifact that a delta follows: a chain with a hole does not join up.
    `stamp` tells which version of a foreign file it was read from, so that the same one need not be read again.
    """

    sha256: str
    size_bytes: int
    is_delta: bool = False
    after: str | None = None
    path: str | None = None
    offset: int | None = None
    length: int | None = None
    inline: str | None = None
    stamp: str | None = None


class ConnectorOffset(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Where a source or table stands, in its own words: {"partition-0": "1234"}, {"lsn": "0/1234ABCD"}, …"""

    offsets: dict[str, str]
    epoch: int = 0
    metadata: dict[str, str] = {}


class SinkStatus(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Pending (with the token to commit by), Committed, or Failed and why."""

    status: Literal["pending", "committed", "failed"]
    token: Any = None
    why: str | None = None


class Parent(msgspec.Struct, kw_only=True, frozen=True):
    """The checkpoint that this one was based on: the only other whose bytes it may name."""

    generation: int
    slot: int
    checkpoint_id: str


class Head(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """The summary in a manifest's first line."""

    checkpoint_id: str
    generation: int
    slot: int
    epoch: int
    timestamp_ms: int
    identifier: str
    pipeline_id: str
    engine: str
    bytes_new: int
    bytes_shared: int
    artifacts: int
    body: Literal["json", "zlib"]
    body_size: int
    body_sha256: str
    pipeline_hash: str = ""
    parent: str | None = None
    sinks: dict[str, str] = {}
    sinks_total: int = 0
    watermark: int | None = None
    processed_records: int = 0
    took_ms: int = 0

    @property
    def at(self) -> Slot:
        """The slot that it stands at."""
        return Slot(self.generation, self.slot)


class Manifest(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Everything that a restart from this checkpoint needs to know. Paths are relative to the pipeline's prefix."""

    version: str = FORMAT
    checkpoint_id: str
    generation: int
    slot: int
    epoch: int
    timestamp_ms: int
    identifier: str
    pipeline_id: str
    parent: Parent | None = None
    upload: str = ""
    engine: str = "python"
    source_offsets: dict[str, ConnectorOffset] = {}
    table_offsets: dict[str, ConnectorOffset] = {}
    sink_epochs: dict[str, int] = {}
    sink_positions: dict[str, Any] = {}
    sink_commit_statuses: dict[str, SinkStatus] = {}
    watermark: int | None = None
    source_watermarks: dict[str, int] = {}
    source_names: list[str] = []
    sink_names: list[str] = []
    pipeline_hash: str = ""
    fingerprint: dict[str, str] = {}
    vnode_count: int = 0
    operators: dict[str, dict[int, list[Artifact]]] = {}
    driver_states: dict[str, Artifact] = {}
    files: dict[str, Artifact] = {}
    objects: dict[str, int] = {}
    processed_records: int = 0
    steps: int = 0
    took_ms: int = 0
    """How long it was in the making, until all its bytes were durable."""
    spark_version: str | None = None
    metadata: dict[str, str] = {}
    extra: dict[str, Any] = {}
    """Fields that a newer minor version added: kept, and written again as they were."""

    @property
    def at(self) -> Slot:
        """The slot that it stands at."""
        return Slot(self.generation, self.slot)

    def artifacts(self) -> Iterator[tuple[str, Artifact]]:
        """Every artifact with the words that name it for people, in a fixed order."""
        for operator, partitions in sorted(self.operators.items()):
            for partition, chain in sorted(partitions.items()):
                for position, artifact in enumerate(chain):
                    yield f"operator {operator}, partition {partition}, {position + 1} of {len(chain)}", artifact
        for name, artifact in sorted(self.driver_states.items()):
            yield f"driver state {name}", artifact
        for name, artifact in sorted(self.files.items()):
            yield f"file {name}", artifact

    def _stored(self) -> Iterator[Artifact]:
        """Every artifact, without the words and the order: for counting."""
        for partitions in self.operators.values():
            for chain in partitions.values():
                yield from chain
        yield from self.driver_states.values()
        yield from self.files.values()

    def byte_counts(self) -> tuple[int, int]:
        """Bytes that this checkpoint brought, and bytes that it shares with the ones before; each counted once."""
        new = shared = 0
        for path, _, _, size in {(a.path, a.offset, a.inline, a.size_bytes) for a in self._stored()}:
            if path is not None and not path.startswith(self.upload or "\0"):
                shared += size
            else:
                new += size
        return new, shared

    def validate(self, expected_vnode_count: int | None = None) -> list[Finding]:
        """What does not hold together in this record, by severity; errors stop a restore, warnings are shown."""
        return findings(self, expected_vnode_count)

    def pending_sinks(self) -> list[str]:
        """Sinks that had not committed when it was written."""
        return sorted(name for name, status in self.sink_commit_statuses.items() if status.status != "committed")


_encoder = msgspec.json.Encoder(order="deterministic")
_fields = frozenset(Manifest.__struct_encode_fields__)


def encode_manifest(manifest: Manifest) -> bytes:
    """The bytes of a manifest; the same fields give the same bytes."""
    plain = dict(manifest.extra)
    plain.update(msgspec.to_builtins(manifest, order="deterministic", str_keys=True))
    plain.pop("extra", None)
    plain.setdefault("version", manifest.version)
    body = _encoder.encode(plain) + b"\n"
    stored = zlib.compress(body, COMPRESSION) if len(body) > COMPRESS_ABOVE else body
    new, shared = manifest.byte_counts()
    head = Head(
        checkpoint_id=manifest.checkpoint_id,
        generation=manifest.generation,
        slot=manifest.slot,
        epoch=manifest.epoch,
        timestamp_ms=manifest.timestamp_ms,
        identifier=manifest.identifier,
        pipeline_id=manifest.pipeline_id,
        engine=manifest.engine,
        bytes_new=new,
        bytes_shared=shared,
        artifacts=sum(1 for _ in manifest._stored()),
        body="zlib" if stored is not body else "json",
        body_size=len(stored),
        body_sha256=hashlib.sha256(body).hexdigest(),
        pipeline_hash=manifest.pipeline_hash,
        parent=str(Slot(manifest.parent.generation, manifest.parent.slot)) if manifest.parent else None,
        sinks=_sinks_that_fit(manifest),
        sinks_total=len(manifest.sink_commit_statuses),
        watermark=manifest.watermark,
        processed_records=manifest.processed_records,
        took_ms=manifest.took_ms,
    )
    line = seal_line("manifest", head)
    if len(line) > HEAD_LIMIT:
        raise BadValue("the manifest's summary", f"{len(line)} bytes, over {HEAD_LIMIT}: shorten its names")
    return line + stored


def decode_head(key: str, data: bytes) -> Head:
    """The summary alone, from at least the first HEAD_LIMIT bytes of a manifest."""
    line, newline, _ = data[:HEAD_LIMIT].partition(b"\n")
    return unseal_line(key, "manifest", line + newline, Head)


def decode_manifest(key: str, data: bytes) -> Manifest:
    """The whole manifest, every byte of it checked against its digests."""
    head = decode_head(key, data)
    stored = data[data.index(b"\n") + 1 :]
    if len(stored) != head.body_size:
        raise DamagedRecord(key, f"its body has {len(stored)} bytes where its summary says {head.body_size}")
    body = _inflate(key, stored) if head.body == "zlib" else stored
    if hashlib.sha256(body).hexdigest() != head.body_sha256:
        raise DamagedRecord(key, "its body does not match its digest")
    try:
        plain = msgspec.json.decode(body)
        refuse_newer(key, str(plain.get("version", "")))
        extra = {name: value for name, value in plain.items() if name not in _fields}
        manifest = msgspec.convert({**plain, "extra": extra}, Manifest, str_keys=True)
    except (msgspec.DecodeError, msgspec.ValidationError, AttributeError) as error:
        raise DamagedRecord(key, str(error)) from error
    if (manifest.at, manifest.checkpoint_id) != (head.at, head.checkpoint_id):
        raise DamagedRecord(key, "its summary belongs to another checkpoint")
    return manifest


def _inflate(key: str, stored: bytes) -> bytes:
    try:
        return zlib.decompress(stored)
    except zlib.error as error:
        raise DamagedRecord(key, f"its body can't be decompressed: {error}") from error


def _sinks_that_fit(manifest: Manifest) -> dict[str, str]:
    room = _SINKS_IN_HEAD
    sinks: dict[str, str] = {}
    for name, status in sorted(manifest.sink_commit_statuses.items()):
        room -= len(_encoder.encode(name)) + len(status.status) + 4
        if room < 0:
            break
        sinks[name] = status.status
    return sinks
