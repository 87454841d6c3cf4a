"""What a checkpoint's text files say about it, and what becomes of them in another place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from holdfast.decide.spark_versions import Formats, snapshots_differ
from holdfast.errors import BadName, BadValue, DamagedArtifact, InvalidManifest
from holdfast.manifest import Artifact, Manifest
from holdfast.repository.artifacts import load_artifacts
from holdfast.repository.pipeline import PipelineRecords
from holdfast.spark.edits import OffsetEdit, map_log_paths, paths_in_log, rewrite_schema_paths, set_offsets
from holdfast.spark.locations import PathMap, written
from holdfast.spark.logs import (
    Malformed,
    OffsetEntry,
    deduplicated_columns,
    parse_commit,
    parse_offsets,
    parse_operator,
    parse_query_id,
    write_query_id,
)
from holdfast.spark.sink_log import RECORDED
from holdfast.spark.sources import log_offset
from holdfast.spark.state import parse_state_file, snapshot_version
from holdfast.store.keys import check_key

__all__ = ["METADATA", "Changes", "Moving", "Rewritten", "check_mapped"]

METADATA = "metadata"
"""The file with the query's id, without which Spark does not go on: it is written last."""
OWN = "_holdfast/"
"""Files of a checkpoint that are Holdfast's own, and no part of Spark's directory."""
JOIN = "symmetricHashJoin"
JOIN_FORMAT = "spark.sql.streaming.join.stateFormatVersion"


@dataclass(frozen=True)
class Changes:
    """What is to differ in the new directory: the query's id (a fork), paths in its logs, offsets of its sources."""

    fork: bool = False
    map_paths: Mapping[str, str] = field(default_factory=dict)
    set_offsets: Sequence[OffsetEdit] = ()


@dataclass(frozen=True)
class Rewritten:
    """Files with other bytes than were captured, what was changed in words, and in how many places a path was."""

    files: dict[str, bytes]
    edits: list[str]
    mapped: int


class Moving:
    """One checkpoint on its way into a directory. Reads, verified, only the text files that it is asked about."""

    def __init__(self, records: PipelineRecords, manifest: Manifest) -> None:
        self._records = records
        self._manifest = manifest
        self._operators = [name for name in manifest.files if "/_metadata/v2/" in name]
        try:
            for name in manifest.files:
                check_key(name)
        except BadName as error:
            raise InvalidManifest(str(manifest.at), [error.message]) from None
        self._texts = self._load([METADATA, self._offsets, self._commit, *self._operators])

    @property
    def files(self) -> dict[str, Artifact]:
        """The files of Spark's directory."""
        return {name: artifact for name, artifact in self._manifest.files.items() if not name.startswith(OWN)}

    def formats(self) -> Formats:
        """What decides which Spark can go on from here."""
        with self._understood():
            entry = parse_offsets(self._texts[self._offsets])
            commit = parse_commit(self._texts[self._commit])
            operators = [parse_operator(self._texts[name]) for name in self._operators]
            schemas = self._load([name for name in self._manifest.files if name.endswith("/0/_metadata/schema")])
            deduplicated = [columns for data in schemas.values() if (columns := deduplicated_columns(data))]
            snapshots = self._snapshots(entry)
        pinned = entry.settings.get(JOIN_FORMAT, "")
        joins = any(operator.name == JOIN for operator in operators)
        return Formats(
            state_checkpoint=2 if any(map(_has_unique_id, self._manifest.files)) else 1,
            join=int(pinned) if joins and pinned.isdecimal() else 1,
            offset_log=entry.version,
            commit_log=commit.version,
            schemas_apart=bool(operators),
            lists=any("ListState" in operator.variables for operator in operators),
            snapshots=snapshots,
            deduplicated=deduplicated,
            settings=entry.settings,
        )

    def _snapshots(self, entry: OffsetEntry) -> int:
        """The newest version of a RocksDB snapshot, 0 if there is none. They are opened only where it is in doubt."""
        names = [name for name in self._manifest.files if name.endswith(".zip")]
        if not names or not snapshots_differ(entry.settings):
            return 1 if names else 0
        artifacts = {self._manifest.files[name] for name in names}
        loaded = load_artifacts(self._records.store, self._records.keys, artifacts)
        return max(snapshot_version(data) for _, data in loaded)

    def rewritten(self, changes: Changes, root: str) -> Rewritten:
        """The files that differ below another root, or are to. Raises BadValue for a change that fits nothing."""
        files: dict[str, bytes] = {}
        edits: list[str] = []
        mapped = 0
        with self._understood():
            for name in self._operators:
                files[name] = rewrite_schema_paths(self._texts[name], root)
            if changes.set_offsets:
                files[self._offsets], edits = set_offsets(self._texts[self._offsets], list(changes.set_offsets))
            if changes.map_paths:
                mapping = PathMap.of(changes.map_paths)
                for name, data in self._load(self._source_logs()).items():
                    files[name], count = map_log_paths(data, mapping)
                    mapped += count
        return Rewritten(files, edits, mapped)

    def metadata(self, query_id: str) -> bytes:
        """What `metadata` holds: the bytes that were captured, unless the query is to have another id."""
        held = self._texts[METADATA]
        with self._understood():
            return held if parse_query_id(held) == query_id else write_query_id(query_id)

    def recorded_sink_log(self) -> dict[str, bytes]:
        """The log of the file sink that was captured along, by the plain names of its files; none if it was not."""
        names = [name for name in self._manifest.files if name.startswith(RECORDED)]
        return {name.removeprefix(RECORDED): data for name, data in self._load(names).items()}

    def named_file(self) -> str | None:
        """A file that a source's log names, as people write it: what a path to be mapped might look like."""
        with self._understood():
            for data in self._load(self._source_logs()[:1]).values():
                return next((written(place) for place in paths_in_log(data)), None)
        return None

    @property
    def _offsets(self) -> str:
        return f"offsets/{self._manifest.epoch}"

    @property
    def _commit(self) -> str:
        return f"commits/{self._manifest.epoch}"

    def _source_logs(self) -> list[str]:
        sources = parse_offsets(self._texts[self._offsets]).sources
        folders = tuple(f"sources/{source}/" for source, offset in sources.items() if log_offset(offset) is not None)
        return [name for name in self._manifest.files if name.startswith(folders)] if folders else []

    def _load(self, names: Sequence[str]) -> dict[str, bytes]:
        wanted: dict[Artifact, list[str]] = {}
        for name in names:
            if name not in self._manifest.files:
                raise InvalidManifest(str(self._manifest.at), [f"it holds no {name}"])
            wanted.setdefault(self._manifest.files[name], []).append(name)
        loaded = load_artifacts(self._records.store, self._records.keys, wanted)
        return {name: data for artifact, data in loaded for name in wanted[artifact]}

    @contextmanager
    def _understood(self) -> Iterator[None]:
        """What is verified and yet not understood was damaged before it was captured."""
        try:
            yield
        except (Malformed, UnicodeDecodeError) as error:
            raise DamagedArtifact(str(self._manifest.at), str(error)) from error


def _has_unique_id(name: str) -> bool:
    """Whether this is a state file of checkpoint format 2, in whose name the version is followed by an id."""
    found = parse_state_file(name)
    return found is not None and found.version is not None and "_" in name.rpartition("/")[2]


def check_mapped(mapping: Mapping[str, str], mapped: int, example: str | None) -> str:
    """What was mapped, in words. Raises BadValue if nothing was: the paths may be misspelled."""
    said = ", ".join(f"{old} -> {new}" for old, new in mapping.items())
    if not mapped:
        hint = f"; there is {example}" if example else ": there is no log of files in the checkpoint"
        raise BadValue(f"path {said}", f"nothing in it lies there{hint}")
    return f"paths {said}, in {mapped} places"
