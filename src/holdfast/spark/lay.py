"""Restore for Spark: a checkpoint laid down as a directory that a query starts from, whole or not at all.

Always in a new place. Absolute paths in it are rewritten, and `_holdfast/owner.json` says which checkpoint it began
as: whoever captures it next goes on from there.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from holdfast.errors import BadURL, BadValue, DamagedArtifact, InvalidManifest
from holdfast.ids import new_token, now_ms
from holdfast.laying import Folder, Progress, StoreFolder, lay_files
from holdfast.manifest import Artifact, Manifest
from holdfast.records import Owner, seal
from holdfast.repository.artifacts import load_artifacts
from holdfast.repository.pipeline import PipelineRecords
from holdfast.spark.describe import QUERY_ID
from holdfast.spark.edits import OffsetEdit, map_log_paths, rewrite_schema_paths, set_offsets
from holdfast.spark.logs import Malformed, parse_offsets, write_query_id
from holdfast.spark.sources import log_offset
from holdfast.spark.succession import OWNER
from holdfast.store.address import CloudAddress, LocalAddress, read_address
from holdfast.store.open import open_store

__all__ = ["Changes", "Laid", "lay_down"]

S3_SCHEMES = ("s3", "s3a", "s3n")


@dataclass(frozen=True)
class Changes:
    """What is to differ in the new directory: the query's id (a fork), paths in its logs, offsets of its sources."""

    fork: bool = False
    map_paths: Mapping[str, str] = field(default_factory=dict)
    set_offsets: tuple[OffsetEdit, ...] = ()


@dataclass(frozen=True)
class Laid:
    """A directory that Spark starts from. `destination` is the address to give to Spark."""

    destination: str
    files: int
    bytes: int
    epoch: int
    query_id: str
    edits: tuple[str, ...]


def lay_down(
    records: PipelineRecords,
    manifest: Manifest,
    destination: str,
    changes: Changes | None = None,
    *,
    options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Laid:
    """Lay a Spark checkpoint down below `destination`, a new local folder or a new prefix in an object store.

    Raises PlaceNotEmpty if something is there, DamagedArtifact if a byte is not what was captured, BadValue for a
    change that fits nothing. A store has no rename: there `metadata` holds a mark, at which Spark fails, until all else is
    written; the same restore run again after a crash goes on.
    """
    changes = changes or Changes()
    errors = [str(finding) for finding in manifest.validate() if finding.severity == "error"]
    if errors:
        raise InvalidManifest(str(manifest.at), errors)
    address = read_address(destination, dict(options or {}), as_hadoop=True)
    root = _as_spark_writes(destination, address, manifest)
    query_id = str(uuid.uuid4()) if changes.fork else manifest.metadata.get(QUERY_ID, "")
    written, edits = _edited(records, manifest, changes, root, query_id)
    owner = _owner(records, manifest, query_id, edits, changes.fork)
    files = {name: artifact for name, artifact in manifest.files.items() if name not in written}
    if isinstance(address, LocalAddress):
        with Folder(address.path).opened() as folder:
            laid = lay_files(records, files, folder, progress)
            for name, data in {**written, OWNER: owner}.items():
                folder.write(name, data)
    else:
        store = open_store(destination, options)
        place = StoreFolder(store, "metadata", _mark(manifest, changes))
        with place.opened(written.pop("metadata")) as opened:
            laid = lay_files(records, files, opened, progress)
            for name, data in {**written, OWNER: owner}.items():
                opened.write(name, data)
    total = laid[1] + sum(len(data) for data in written.values())
    return Laid(root, len(manifest.files), total, manifest.epoch, query_id, tuple(edits))


def _as_spark_writes(destination: str, address: object, manifest: Manifest) -> str:
    """The root as Spark is to be told it; with the scheme that the query used where that means the same store."""
    if isinstance(address, LocalAddress):
        return f"file:{Path(address.path).absolute()}"
    if not isinstance(address, CloudAddress):
        raise BadURL(destination, "Spark can't start from there")
    scheme, _, rest = destination.partition("?")[0].rstrip("/").partition("://")
    before = manifest.metadata.get("directory", "").partition("://")[0]
    return f"{before if {scheme, before} <= set(S3_SCHEMES) else scheme}://{rest}"


def _edited(
    records: PipelineRecords, manifest: Manifest, changes: Changes, root: str, query_id: str
) -> tuple[dict[str, bytes], list[str]]:
    """The files that are not laid down as they were captured, and what was changed in them, in words."""
    names = [name for name in manifest.files if name.startswith("state/") and "/_metadata/v2/" in name]
    offsets = f"offsets/{manifest.epoch}"
    names += [offsets] if changes.set_offsets else []
    logs = _file_source_logs(records, manifest) if changes.map_paths else []
    held = _load(records, manifest, [*names, *logs])
    written = {"metadata": write_query_id(query_id)}
    edits: list[str] = []
    try:
        for name, data in held.items():
            if "/_metadata/v2/" in name:
                written[name] = rewrite_schema_paths(data, root)
        if changes.set_offsets:
            written[offsets], said = set_offsets(held[offsets], list(changes.set_offsets))
            edits += said
        if changes.map_paths:
            edits.append(_map_paths(held, logs, changes.map_paths, written))
    except Malformed as error:
        raise DamagedArtifact(str(manifest.at), str(error)) from error
    return written, edits


def _map_paths(
    held: Mapping[str, bytes], logs: list[str], mapping: Mapping[str, str], written: dict[str, bytes]
) -> str:
    total = 0
    for name in logs:
        written[name], count = map_log_paths(held[name], mapping)
        total += count
    said = ", ".join(f"{old} -> {new}" for old, new in mapping.items())
    if not total:
        raise BadValue(f"path {said}", f"none of the {len(logs)} files in the sources' logs names it")
    return f"paths {said}, in {total} places"


def _file_source_logs(records: PipelineRecords, manifest: Manifest) -> list[str]:
    name = f"offsets/{manifest.epoch}"
    sources = parse_offsets(_load(records, manifest, [name])[name]).sources
    folders = tuple(f"sources/{source}/" for source, offset in sources.items() if log_offset(offset) is not None)
    return [name for name in manifest.files if name.startswith(folders)] if folders else []


def _load(records: PipelineRecords, manifest: Manifest, names: list[str]) -> dict[str, bytes]:
    wanted: dict[Artifact, list[str]] = {}
    for name in names:
        if name not in manifest.files:
            raise InvalidManifest(str(manifest.at), [f"it holds no {name}"])
        wanted.setdefault(manifest.files[name], []).append(name)
    loaded = load_artifacts(records.store, records.keys, wanted)
    return {name: data for artifact, data in loaded for name in wanted[artifact]}


def _owner(records: PipelineRecords, manifest: Manifest, query_id: str, edits: list[str], fork: bool) -> bytes:
    owner = Owner(
        token=new_token(),
        pipeline_id=manifest.pipeline_id,
        pipeline=records.name,
        repository=records.store.url,
        generation=manifest.generation,
        slot=manifest.slot,
        epoch=manifest.epoch,
        checkpoint_id=manifest.checkpoint_id,
        query_id=query_id,
        fork=fork,
        created_ms=now_ms(),
        edits=edits,
    )
    return seal(owner)


def _mark(manifest: Manifest, changes: Changes) -> bytes:
    """What `metadata` holds until the restore is done: no query id, so that Spark can't start there."""
    what = {
        "holdfast": "a restore is not finished: run it again, or delete this directory",
        "checkpoint_id": manifest.checkpoint_id,
        "fork": changes.fork,
        "map_paths": dict(changes.map_paths),
        "set_offsets": [str(edit) for edit in changes.set_offsets],
    }
    return msgspec.json.encode(what, order="deterministic")
