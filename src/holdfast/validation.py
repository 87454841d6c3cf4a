"""Whether a manifest holds together: a pure look at the record alone, no byte of its artifacts is read."""

from __future__ import annotations

import base64
import hashlib
import re
import uuid
from collections.abc import Iterator, Sequence, Set
from typing import TYPE_CHECKING, Literal, NamedTuple

from holdfast.layout import parse

if TYPE_CHECKING:
    from holdfast.manifest import Artifact, Manifest

__all__ = ["LINK", "Finding", "chain_breaks", "findings"]

LINK = 16
"""How many hex digits of its predecessor's digest a delta carries."""

_SHA256 = re.compile(r"[0-9a-f]{64}")


class Finding(NamedTuple):
    severity: Literal["error", "warning"]
    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.where}: {self.message}"


def chain_breaks(chain: Sequence[Artifact]) -> str | None:
    """Why these artifacts are not a snapshot followed by its deltas in order, or None if they are."""
    if not chain:
        return "it is empty"
    for position, artifact in enumerate(chain):
        if position == 0 and artifact.is_delta:
            return "it begins with a delta, its snapshot is missing"
        if position > 0 and not artifact.is_delta:
            return f"a second snapshot stands at {position}"
        if position > 0 and artifact.after != chain[position - 1].sha256[:LINK]:
            return f"the delta at {position} does not follow the one before it: something is missing in between"
    return None


def findings(manifest: Manifest, expected_vnode_count: int | None) -> list[Finding]:
    """All findings, errors first."""
    every = [*_identity(manifest), *_vnodes(manifest, expected_vnode_count), *_chains(manifest)]
    every += [*_artifacts(manifest), *_sources(manifest), *_sinks(manifest)]
    return sorted(every, key=lambda finding: finding.severity != "error")


def _error(where: str, message: str) -> Finding:
    return Finding("error", where, message)


def _warning(where: str, message: str) -> Finding:
    return Finding("warning", where, message)


def _identity(manifest: Manifest) -> Iterator[Finding]:
    for name, value in (("checkpoint_id", manifest.checkpoint_id), ("pipeline_id", manifest.pipeline_id)):
        try:
            uuid.UUID(value)
        except ValueError:
            yield _error(name, f"{value!r} is no UUID")
    for name in ("generation", "slot", "epoch", "timestamp_ms", "processed_records", "steps", "vnode_count"):
        if getattr(manifest, name) < 0:
            yield _error(name, f"{getattr(manifest, name)} is negative")
    if not manifest.identifier:
        yield _error("identifier", "it is empty")
    parent = manifest.parent
    if parent and (parent.generation > manifest.generation or (parent.generation, parent.slot) == manifest.at):
        yield _error("parent", "it does not come before this checkpoint")
    # A directory of files does not tell which query wrote it: only a pipeline that was run by Holdfast can.
    if not manifest.pipeline_hash and manifest.engine == "python":
        yield _warning("pipeline_hash", "it is empty: a changed pipeline can't be told on recovery")


def _vnodes(manifest: Manifest, expected: int | None) -> Iterator[Finding]:
    count = manifest.vnode_count
    if expected is not None and count != expected:
        yield _error("vnode_count", f"{count} operator partitions where {expected} are expected")
    for operator, partitions in sorted(manifest.operators.items()):
        beyond = [p for p in partitions if not 0 <= p < count]
        if count and beyond:
            yield _error(f"operator {operator}", f"partitions {sorted(beyond)} lie outside 0..{count - 1}")
        missing = sorted(set(range(count)) - set(partitions))
        if missing:
            shown = ", ".join(map(str, missing[:8])) + (", …" if len(missing) > 8 else "")
            yield _warning(f"operator {operator}", f"no state for partitions {shown} of {count}")


def _chains(manifest: Manifest) -> Iterator[Finding]:
    for operator, partitions in sorted(manifest.operators.items()):
        for partition, chain in sorted(partitions.items()):
            if why := chain_breaks(chain):
                yield _error(f"operator {operator}, partition {partition}", why)


def _artifacts(manifest: Manifest) -> Iterator[Finding]:
    every = list(manifest.artifacts())
    named = {artifact.path for _, artifact in every}
    # Thousands of artifacts lie in a few objects: each name is looked at once.
    foreign = {path for path in named if path is not None and not _is_data(path)}
    for where, artifact in every:
        if why := _artifact_fault(manifest, artifact, foreign):
            yield _error(where, why)
    for path in sorted(manifest.objects.keys() - named):
        yield _warning(path, "it is listed but no artifact lies in it")


def _is_data(path: str) -> bool:
    name = parse(path)
    return name is not None and name.what == "data"


def _artifact_fault(manifest: Manifest, artifact: Artifact, foreign: Set[str]) -> str | None:
    if not _SHA256.fullmatch(artifact.sha256):
        return "its digest is no SHA-256"
    if artifact.size_bytes < 0:
        return "its size is negative"
    if artifact.inline is not None:
        return _inline_fault(artifact)
    if artifact.path is None:
        return "it is neither inline nor in an object"
    if artifact.path in foreign:
        return f"{artifact.path!r} is no name of an object's making"
    size = manifest.objects.get(artifact.path)
    if size is None:
        return f"{artifact.path} is not among the listed objects"
    offset, length = artifact.offset or 0, artifact.size_bytes if artifact.length is None else artifact.length
    if length != artifact.size_bytes:
        return "its length in the pack is not its size"
    if artifact.offset is None and size != artifact.size_bytes:
        return f"its size is {artifact.size_bytes}, its object's {size}"
    if offset < 0 or offset + length > size:
        return f"it reaches past the end of {artifact.path}"
    return None


def _inline_fault(artifact: Artifact) -> str | None:
    try:
        data = base64.b64decode(artifact.inline or "", validate=True)
    except ValueError as error:
        return f"its inline state can't be decoded: {error}"
    if len(data) != artifact.size_bytes or hashlib.sha256(data).hexdigest() != artifact.sha256:
        return "its inline state does not match its size and digest"
    return None


def _sources(manifest: Manifest) -> Iterator[Finding]:
    if manifest.source_names != sorted(set(manifest.source_names)):
        yield _error("source_names", "they are not sorted and unique")
    unnamed = manifest.source_offsets.keys() - set(manifest.source_names)
    if unnamed:
        yield _error("source_offsets", f"{sorted(unnamed)} are not among the sources")
    without = set(manifest.source_names) - manifest.source_offsets.keys()
    if without:
        yield _warning("source_offsets", f"none for {sorted(without)}")


def _sinks(manifest: Manifest) -> Iterator[Finding]:
    if manifest.sink_names != sorted(set(manifest.sink_names)):
        yield _error("sink_names", "they are not sorted and unique")
    names = set(manifest.sink_names)
    for field in ("sink_commit_statuses", "sink_epochs", "sink_positions"):
        unnamed = getattr(manifest, field).keys() - names
        if unnamed:
            yield _error(field, f"{sorted(unnamed)} are not among the sinks")
    for name in sorted(names - manifest.sink_commit_statuses.keys()):
        yield _error(f"sink {name}", "it has no commit status")
    for name, status in sorted(manifest.sink_commit_statuses.items()):
        if status.status == "failed":
            yield _warning(f"sink {name}", f"it failed ({status.why or 'no reason given'}); recovery drives it again")
