"""Which files make up one state store at one version: the newest whole snapshot and every delta after it.

Spark writes the state after batch B as version B+1, one folder for each store of each partition of each operator. The
names are a function of the version, so a chain is found by asking for names, not by listing a folder that may hold
hundreds of old ones.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from holdfast.spark.changelog import Lineage, lineage_of
from holdfast.spark.logs import Malformed
from holdfast.store.directory import FileStat, Look

__all__ = [
    "Chain",
    "Finder",
    "Identity",
    "Missing",
    "Provider",
    "Snapshots",
    "StateFile",
    "StoreFolder",
    "parse_state_file",
    "provider_of",
    "snapshot_version",
]

DEFAULT_STORE = "default"
LONG = 24
"""From so many deltas on, one listing of the folder costs less than asking for a snapshot at each version."""


@dataclass(frozen=True)
class Provider:
    """The endings that a state store provider gives its files."""

    name: str
    snapshot: str
    delta: str


HDFS = Provider("HDFS-backed", "snapshot", "delta")
ROCKSDB = Provider("RocksDB", "zip", "changelog")
_PROVIDERS = {"HDFSBackedStateStoreProvider": HDFS, "RocksDBStateStoreProvider": ROCKSDB}


def provider_of(class_name: str) -> Provider | None:
    """The provider that a class name stands for; None for one that is not Spark's own."""
    return _PROVIDERS.get(class_name.rpartition(".")[2])


@dataclass(frozen=True, order=True)
class StoreFolder:
    """Where one store of one partition of one operator keeps its files."""

    operator: int
    partition: int
    store: str = DEFAULT_STORE

    @property
    def path(self) -> str:
        folder = f"state/{self.operator}/{self.partition}"
        return folder if self.store == DEFAULT_STORE else f"{folder}/{self.store}"


@dataclass(frozen=True)
class StateFile:
    """A file of a state store, by its name alone. `version` is None for what snapshots share (SSTs and logs)."""

    at: StoreFolder
    version: int | None
    is_delta: bool


def parse_state_file(name: str) -> StateFile | None:
    """What a file below `state/` is; None if it is no part of a store, such as a schema."""
    parts = name.split("/")
    if len(parts) < 4 or parts[0] != "state" or not (parts[1].isdecimal() and parts[2].isdecimal()):
        return None
    inner = parts[3:]
    shared = len(inner) > 1 and inner[-2] in ("SSTs", "logs")
    folders = inner[:-2] if shared else inner[:-1]
    if len(folders) > 1 or "_metadata" in folders:
        return None
    at = StoreFolder(int(parts[1]), int(parts[2]), folders[0] if folders else DEFAULT_STORE)
    if shared:
        return StateFile(at, None, is_delta=False)
    stem, _, ending = inner[-1].removesuffix(".crc").rpartition(".")
    version = stem.partition("_")[0]
    if not version.isdecimal() or ending not in ("zip", "snapshot", "changelog", "delta"):
        return None
    return StateFile(at, int(version), is_delta=ending in ("changelog", "delta"))


@dataclass(frozen=True)
class Chain:
    """The files of a store at a version. `base` is the version of its snapshot; 0: it grew from nothing."""

    base: int
    files: Mapping[str, FileStat]


@dataclass(frozen=True)
class Missing:
    """A file that the chain can't do without is not there, or is not what it must be."""

    name: str
    why: str = "it is not there"


@dataclass
class Snapshots:
    """What RocksDB snapshots name beside themselves, remembered by the version of the file that said so."""

    shared: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict)
    lineages: dict[tuple[str, str], Lineage] = field(default_factory=dict)

    def keep_only(self, names: Mapping[str, FileStat]) -> None:
        """Forget all but these files, so that memory stays flat."""
        self.shared = {key: value for key, value in self.shared.items() if key[0] in names}
        self.lineages = {key: value for key, value in self.lineages.items() if key[0] in names}


Reader = Callable[[str], tuple[bytes, FileStat]]
Identity = Callable[[int], str | None]
"""The id of a version of one store in checkpoint format 2, or None if the commit log does not reach back to it."""


@dataclass
class Finder:
    """Finds chains in one look at a directory.

    `read` gives a file's bytes, once; `offsets_at` the version of `offsets/N`, if it is still there.
    """

    look: Look
    read: Reader
    provider: Provider
    codec: str
    offsets_at: Callable[[int], FileStat | None]
    known: Snapshots

    def chain(self, at_store: StoreFolder, version: int, identity: Identity | None = None) -> Chain | Missing:
        """The files of one store at a version, or the first that is missing; `identity` only in checkpoint format 2."""
        folder = at_store.path
        files: dict[str, FileStat] = {}
        snapshots: set[int] | None = None
        lineage: Lineage = {}
        for at in range(version, 0, -1):
            unique = ""
            if identity is not None:
                known = identity(at) or lineage.get(at)
                if known is None:
                    return Missing(f"{folder}/{at}_*.{self.provider.delta}", "no log says which of its versions counts")
                unique = f"_{known}"
            stem = f"{folder}/{at}{unique}."
            if snapshots is None and version - at >= LONG:
                snapshots = self._snapshots_in(folder)
            snapshot = self.look.stat(stem + self.provider.snapshot) if snapshots is None or at in snapshots else None
            delta = self.look.stat(stem + self.provider.delta)
            if snapshot is not None and not (identity is None and self._is_stale(snapshot, delta, at)):
                files[stem + self.provider.snapshot] = snapshot
                missing = self._shared(folder, stem + self.provider.snapshot, files)
                self._checksums(files, unique)
                return missing or Chain(at, files)
            if delta is None:
                return Missing(stem + self.provider.delta)
            files[stem + self.provider.delta] = delta
            if identity is not None and at > 1 and identity(at - 1) is None and at - 1 not in lineage:
                lineage = self._lineage(stem + self.provider.delta, delta)
        self._checksums(files, "_" if identity else "")
        return Chain(0, files)

    def _snapshots_in(self, folder: str) -> set[int]:
        ending = f".{self.provider.snapshot}"
        names = [name for name in self.look.files(folder) if name.endswith(ending)]
        stems = [name.removesuffix(ending).partition("_")[0] for name in names]
        return {int(stem) for stem in stems if stem.isdecimal()}

    def _is_stale(self, snapshot: FileStat, delta: FileStat | None, version: int) -> bool:
        """Whether a snapshot was left by a timeline that was rewound in place: it is older than its own batch.

        Only where its delta is not: in a copy of a directory times say nothing.
        """
        began = self.offsets_at(version - 1)
        if began is None or delta is None:
            return False
        return snapshot.modified_ns < began.modified_ns <= delta.modified_ns

    def _shared(self, folder: str, snapshot: str, files: dict[str, FileStat]) -> Missing | None:
        """Add the SSTs and logs that a RocksDB snapshot names."""
        if self.provider is not ROCKSDB:
            return None
        stat = files[snapshot]
        named = self.known.shared.get((snapshot, stat.stamp))
        if named is None:
            data, stat = self.read(snapshot)
            files[snapshot] = stat
            try:
                named = _named_in_zip(data)
            except Malformed as error:
                return Missing(snapshot, str(error))
            self.known.shared[snapshot, stat.stamp] = named
        for name, size in named.items():
            path = f"{folder}/{name}"
            found = self.look.stat(path)
            if found is None:
                return Missing(path)
            if found.size != size:
                return Missing(path, f"it has {found.size} bytes where its snapshot says {size}")
            files[path] = found
        return None

    def _lineage(self, changelog: str, stat: FileStat) -> Lineage:
        known = self.known.lineages.get((changelog, stat.stamp))
        if known is None:
            data, stat = self.read(changelog)
            try:
                known = lineage_of(data, self.codec)
            except Malformed:
                known = {}
            self.known.lineages[changelog, stat.stamp] = known
        return known

    def _checksums(self, files: dict[str, FileStat], unique: str) -> None:
        """Spark's own checksums lie beside the files of format 2."""
        if not unique:
            return
        for name in [*files]:
            found = self.look.stat(f"{name}.crc")
            if found is not None:
                files[f"{name}.crc"] = found


def snapshot_version(data: bytes) -> int:
    """The version that a RocksDB snapshot gives itself: 1, or 2 from a Spark 4.0 that was at checkpoint format 2."""
    first = _described(data).partition("\n")[0]
    if not (first.startswith("v") and first[1:].isdecimal()):
        raise Malformed("its metadata has no version")
    return int(first[1:])


def _named_in_zip(data: bytes) -> dict[str, int]:
    """The SSTs and logs that a RocksDB snapshot needs, by their path below the store's folder, with their sizes."""
    text = _described(data)
    try:
        fields = json.loads(text.partition("\n")[2])
        found = {f"SSTs/{sst['dfsSstFileName']}": int(sst["sizeBytes"]) for sst in fields["sstFiles"]}
        found |= {f"logs/{log['dfsLogFileName']}": int(log["sizeBytes"]) for log in fields.get("logFiles") or ()}
    except (ValueError, KeyError, TypeError) as error:
        raise Malformed(f"its metadata is not understood: {error!r}") from None
    return found


def _described(data: bytes) -> str:
    """What a RocksDB snapshot says of itself."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if (bad := archive.testzip()) is not None:
                raise Malformed(f"its part {bad} is damaged")
            return archive.read("metadata").decode("utf-8")
    except (zipfile.BadZipFile, zlib.error, KeyError, EOFError, OSError, ValueError, NotImplementedError) as error:
        raise Malformed(f"it is no RocksDB snapshot: {error}") from None
