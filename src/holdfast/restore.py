"""Restore: a checkpoint laid down as plain files in a new folder, verified, whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from holdfast.codec import decode_state
from holdfast.errors import DamagedState, FormatTooNew, InvalidManifest, PlaceNotEmpty
from holdfast.ids import new_token
from holdfast.manifest import Artifact, Manifest, encode_manifest
from holdfast.repository.artifacts import load_artifacts, stream_artifact
from holdfast.repository.pipeline import PipelineRecords

__all__ = ["Restored", "restore_to_files"]

Progress = Callable[[str, int, int], None]

STREAM_FROM = 8 * 1024 * 1024
THREADS = 4


class Restored(NamedTuple):
    """Where a checkpoint was laid down, and its artifacts there; what is derived from them is not counted."""

    destination: Path
    files: int
    bytes: int


def restore_to_files(
    records: PipelineRecords, manifest: Manifest, destination: Path, progress: Progress | None = None
) -> Restored:
    """Write every artifact of a checkpoint below a new or empty folder.

    `driver/NAME`, `operators/NAME/PARTITION/0000-snapshot` and the deltas after it, `files/…`, and `manifest.json`. A
    driver state that is the record of a plain loop is also taken apart: `decoded/NAME/record.json` has its position,
    offsets and metadata, `decoded/NAME/states/` the bytes of each state. All is written beside the destination and
    moved there at the end, so a folder with this name is a whole one. Raises DamagedArtifact before that if a byte is
    not what was saved.
    """
    destination = destination.absolute()
    if destination.exists() and (not destination.is_dir() or any(destination.iterdir())):
        raise PlaceNotEmpty(str(destination))
    errors = [str(finding) for finding in manifest.validate() if finding.severity == "error"]
    if errors:
        raise InvalidManifest(str(manifest.at), errors)
    partial = destination.with_name(f".{destination.name}.{new_token()}.partial")
    try:
        restored = _lay(records, manifest, partial, progress or (lambda _what, _done, _total: None))
        _take_apart(manifest, partial)
        (partial / "manifest.json").write_bytes(encode_manifest(manifest))
        _sync_tree(partial)
        # Moving onto an empty folder is atomic; onto a full one it fails, whoever filled it meanwhile.
        partial.rename(destination)
        _sync(destination.parent)
    except OSError as error:
        if destination.exists() and any(destination.iterdir()):
            raise PlaceNotEmpty(str(destination)) from error
        raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return Restored(destination, *restored)


def _lay(records: PipelineRecords, manifest: Manifest, root: Path, progress: Progress) -> tuple[int, int]:
    places: dict[Artifact, list[Path]] = {}
    for path, artifact in _paths(manifest):
        places.setdefault(artifact, []).append(root / path)
        (root / path).parent.mkdir(parents=True, exist_ok=True)
    root.mkdir(parents=True, exist_ok=True)
    total = sum(artifact.size_bytes * len(paths) for artifact, paths in places.items())
    large = [a for a in places if a.path is not None and a.size_bytes >= STREAM_FROM]
    small = [a for a in places if a.path is None or a.size_bytes < STREAM_FROM]
    done = 0
    with ThreadPoolExecutor(THREADS, thread_name_prefix="holdfast-restore") as pool:
        streams = [(a, pool.submit(_stream, records, a, places[a])) for a in large]
        for artifact, data in load_artifacts(records.store, records.keys, small):
            for path in places[artifact]:
                path.write_bytes(data)
                done += artifact.size_bytes
            progress("restoring", done, total)
        for artifact, stream in streams:
            stream.result()
            done += artifact.size_bytes * len(places[artifact])
            progress("restoring", done, total)
    return sum(map(len, places.values())), total


def _stream(records: PipelineRecords, artifact: Artifact, paths: list[Path]) -> None:
    with paths[0].open("wb") as file:
        for chunk in stream_artifact(records.store, records.keys, artifact):
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    for path in paths[1:]:
        shutil.copyfile(paths[0], path)


def _take_apart(manifest: Manifest, root: Path) -> None:
    """Lay the parts of each loop's record down beside it; any other driver state is only its owner's to read."""
    for name in manifest.driver_states:
        try:
            state = decode_state((root / "driver" / _segment(name)).read_bytes())
        except (DamagedState, FormatTooNew):
            continue
        place = root / "decoded" / _segment(name)
        (place / "states").mkdir(parents=True)
        for state_name, data in state.operator_states.items():
            (place / "states" / _segment(state_name)).write_bytes(data)
        record = {
            "stream": state.stream,
            "sequence": state.sequence,
            "event_count": state.event_count,
            "created_ns": state.created_ns,
            "watermark_ns": state.watermark_ns,
            "source_offsets": state.source_offsets,
            "metadata": state.metadata,
            "states": {state_name: f"states/{_segment(state_name)}" for state_name in sorted(state.operator_states)},
        }
        (place / "record.json").write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")


def _paths(manifest: Manifest) -> Iterator[tuple[Path, Artifact]]:
    """Names from a manifest are data: each becomes one harmless path segment, `files` keep their own folders."""
    for name, artifact in sorted(manifest.driver_states.items()):
        yield Path("driver", _segment(name)), artifact
    for operator, partitions in sorted(manifest.operators.items()):
        for partition, chain in sorted(partitions.items()):
            for position, artifact in enumerate(chain):
                kind = "delta" if artifact.is_delta else "snapshot"
                yield Path("operators", _segment(operator), str(partition), f"{position:04d}-{kind}"), artifact
    for name, artifact in sorted(manifest.files.items()):
        yield Path("files", *(_segment(part) for part in name.split("/") if part)), artifact


def _segment(name: str) -> str:
    quoted = quote(name, safe=" +=@,")
    return quoted.replace(".", "%2E") if set(quoted) <= {"."} else quoted or "%00"


def _sync_tree(root: Path) -> None:
    """Have all files and folders on disk; several at a time, since a disk takes them together for little more."""
    places = [Path(folder, name) for folder, _, files in os.walk(root) for name in (*files, "")]
    with ThreadPoolExecutor(THREADS, thread_name_prefix="holdfast-sync") as pool:
        deque(pool.map(_sync, places), maxlen=0)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
