"""Restore: a checkpoint laid down as plain files in a new folder, verified, whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from holdfast.codec import decode_state
from holdfast.errors import DamagedState, FormatTooNew, InvalidManifest
from holdfast.laying import Folder, Progress, lay_files
from holdfast.manifest import Artifact, Manifest, encode_manifest
from holdfast.repository.pipeline import PipelineRecords

__all__ = ["Progress", "Restored", "restore_to_files"]


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
    errors = [str(finding) for finding in manifest.validate() if finding.severity == "error"]
    if errors:
        raise InvalidManifest(str(manifest.at), errors)
    with Folder(destination).opened() as folder:
        files = {str(path): artifact for path, artifact in _paths(manifest)}
        laid = lay_files(records, files, folder, progress=progress)
        _take_apart(manifest, folder.partial)
        folder.write("manifest.json", encode_manifest(manifest))
    return Restored(folder.destination, *laid)


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
