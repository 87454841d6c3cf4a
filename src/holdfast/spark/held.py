"""A directory beside what was captured of it: which checkpoint knows it, and which of its files are no longer the same.

Names in a checkpoint directory stand for one content each, as long as the query was never taken back in place. So a
file that is not what was captured under its name is damaged, unless the whole directory has another past: that is told
by `offsets/B`, which holds the moment at which its batch was planned.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from holdfast.errors import ChangedWhileRead, ObjectMissing
from holdfast.layout import Slot
from holdfast.manifest import Artifact, Manifest
from holdfast.records import Owner
from holdfast.repository.artifacts import load_artifact, stream_artifact
from holdfast.repository.pipeline import PipelineRecords
from holdfast.spark.cut import Broken, Cut, Gone, Unsupported, batches_in, cut_at
from holdfast.spark.describe import DIRECTORY
from holdfast.spark.intact import Progress, Verdict, judge, read_files
from holdfast.spark.logs import Malformed, parse_query_id
from holdfast.spark.moving import METADATA, Changes, Moving
from holdfast.spark.places import SparkPlace
from holdfast.spark.succession import identify
from holdfast.store.directory import Directory, FileStat, Look

__all__ = ["Compared", "Expected", "Other", "compare", "find_checkpoint", "in_words"]

Why = Literal["missing", "damaged", "other size", "checksum file"]

ATTEMPTS = 5
OUR_OWN = "_holdfast/"
"""What a checkpoint holds below this name was never in the directory."""
LATER = 2**63
"""A time after all others: what is still to be written can't be taken for something that a rewind left behind."""


@dataclass(frozen=True)
class Expected:
    """What a file should hold: bytes of the repository, as they are or as the restore here left them."""

    size: int
    sha256: str
    load: Callable[[], bytes]
    stream: Callable[[], Iterator[bytes]]


@dataclass(frozen=True)
class Other:
    """A file that is not what was captured. `checksum file`: it is, but Hadoop's sums beside it are not."""

    name: str
    why: Why
    size: int


@dataclass
class Compared:
    """A directory and a checkpoint side by side.

    `others` are the files of the batch that are not what was captured; `refused` says why they can't be brought back in
    place; `epoch` is the batch that the directory stands at. Where they have too little in common to compare,
    `comparable` is False.
    """

    manifest: Manifest
    epoch: int
    others: list[Other] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    expected: Mapping[str, Expected] = field(default_factory=dict)
    files: int = 0
    bytes_read: int = 0
    comparable: bool = True


def find_checkpoint(records: PipelineRecords, directory: Directory) -> Manifest | None:
    """The newest checkpoint that was captured from this directory, or that it was restored from, at a batch it has.

    Raises DamagedRecord if what the restore left there is damaged: nothing else tells it from the directory that it was
    restored from.
    """
    look = directory.look()
    batches, (query_id, owner) = batches_in(look), _who(directory)
    newest = max((*batches.offsets, *batches.commits), default=-1)
    mine = [slot for slot in records.world().counted() if _is_of(records, slot, directory.url, query_id, owner)]
    # Where the query's id is what is damaged, the address alone leads here: what has the id as well comes first.
    mine.sort(key=lambda slot: (records.claim(slot.generation).query_id == query_id, slot), reverse=True)
    known = (slot for slot in mine if records.head(slot).epoch <= newest)
    found = next(known, None)
    return records.manifest(found) if found else None


def _who(directory: Directory) -> tuple[str | None, Owner | None]:
    """The query's id, if it can be read, and the record of a restore. Raises DamagedRecord if that can't be."""
    try:
        query_id = parse_query_id(directory.read(METADATA)[0])
    except (ObjectMissing, Malformed):
        query_id = None
    return query_id, identify(directory, query_id or "").owner


def _is_of(records: PipelineRecords, slot: Slot, url: str, query_id: str | None, owner: Owner | None) -> bool:
    """Whether a checkpoint may be of a directory, which its logs have to prove: see `_other_past`."""
    if owner is not None and (owner.pipeline_id, owner.at) == (records.identity().pipeline_id, slot):
        return True
    claim = records.claim(slot.generation)
    if claim.query_id is None and claim.directory is None:
        # A pipeline claims before its query is there: its checkpoints say where they were taken.
        return records.manifest(slot).metadata.get(DIRECTORY) == url
    return claim.owner == (owner.token if owner else None) and (claim.query_id == query_id or claim.directory == url)


def compare(
    records: PipelineRecords, directory: Directory, manifest: Manifest, progress: Progress | None = None
) -> Compared:
    """Compare a directory with a checkpoint of it, byte by byte. Nothing is changed.

    Raises ChangedWhileRead if a running query kept replacing what was read, DamagedArtifact if the repository's own
    copy of a file that is needed for the comparison is damaged.
    """
    for attempt in range(ATTEMPTS):
        comparison = _Comparison(records, directory, manifest, progress)
        try:
            found = comparison.run()
        except (ObjectMissing, ChangedWhileRead):
            if attempt == ATTEMPTS - 1:
                raise
            continue
        if not (found.others or found.refused) or batches_in(directory.look()) == comparison.batches:
            return found
    raise ChangedWhileRead(directory.url, "offsets")


class _Comparison:
    def __init__(
        self, records: PipelineRecords, directory: Directory, manifest: Manifest, progress: Progress | None
    ) -> None:
        self._records = records
        self._directory = directory
        self._manifest = manifest
        self._progress = progress
        self._look = directory.look()
        self.batches = batches_in(self._look)
        self._query_id, self._owner = _who(directory)

    def run(self) -> Compared:
        at = self._stands_at()
        found = Compared(self._manifest, at, expected=self._expected)
        if why := self._too_little(at):
            found.comparable = False
            found.refused.append(why)
            return found
        others = self._others(found)
        if why := self._other_past(others):
            found.refused.append(why)
            return found
        overlay = _Overlay(self._directory, self._look, {name: self._expected[name] for name in others})
        cut = cut_at(overlay, overlay.look(), at)
        if not isinstance(cut, Cut):
            found.refused.append(f"batch {at} would not be whole: {in_words(cut)}")
            found.others = [others[name] for name in sorted(others)]
            return found
        found.others = [others[name] for name in sorted(others) if name in cut.files]
        found.refused += self._not_held(cut)
        return found

    # ---- is it the same directory, at which batch ----

    def _stands_at(self) -> int:
        """The last committed batch, or the one that was captured where only its commit is lost.

        The offset log is one ahead at most: with two batches or more after the captured one, that was not the last.
        """
        last = self.batches.commits[-1] if self.batches.commits else -1
        epoch = self._manifest.epoch
        after = [batch for batch in self.batches.offsets if batch > max(last, epoch)]
        return epoch if epoch > last and epoch in self.batches.offsets and len(after) <= 1 else last

    def _too_little(self, at: int) -> str | None:
        """Why the two can't be compared."""
        epoch = self._manifest.epoch
        if not _is_of(self._records, self._manifest.at, self._directory.url, self._query_id, self._owner):
            return "the checkpoint is of another query, or of another directory of it"
        if epoch > at:
            newest = f"its last batch is {at}" if at >= 0 else "it has no batch"
            return f"{newest}, and the checkpoint holds batch {epoch}"
        if epoch < min(self.batches.offsets, default=epoch):
            return f"the checkpoint holds batch {epoch}, of which the directory's logs no longer tell"
        return None

    def _other_past(self, others: Mapping[str, Other]) -> str | None:
        """Why this can't be the directory that was captured, or None if it is."""
        epoch = self._manifest.epoch
        name, before = f"offsets/{epoch}", f"offsets/{epoch - 1}"
        if name not in others:
            return None
        if others[name].why == "missing" or self._is_damaged(name):
            commit = f"commits/{epoch}"
            told = [before] if epoch else [commit]
            told += [commit] if b"stateUniqueIds" in self._expected[commit].load() else []
            if any(n in self._expected and n not in others for n in told):
                return None
            return f"{name} is gone, and nothing else tells that it is the directory that was captured"
        rest = [other.name for other in others.values() if other.name != name and other.why != "missing"]
        if rest:
            return f"its batch {epoch} is not the one that was captured: {name} and {rest[0]} are others"
        return None

    def _is_damaged(self, name: str) -> bool:
        """Whether the directory itself can tell that a file is damaged."""
        return judge(self._directory, name).fault is not None

    # ---- the files ----

    @cached_property
    def _expected(self) -> dict[str, Expected]:
        owner = self._owner
        held = {name: a for name, a in self._manifest.files.items() if not name.startswith(OUR_OWN)}
        found = {name: self._stored(artifact) for name, artifact in held.items()}
        if owner is None or not self._was_made_from_it(owner):
            return found
        moving = Moving(self._records, self._manifest)
        root = SparkPlace(self._directory.url).spelled(self._manifest.metadata.get(DIRECTORY, ""))
        found[METADATA] = _given(moving.metadata(owner.query_id))
        found |= {name: _given(data) for name, data in moving.rewritten(Changes(), root).files.items()}
        if owner.edits:
            # Which bytes an edit left is written down nowhere.
            found = {n: e for n, e in found.items() if not n.startswith(("offsets/", "sources/"))}
        return found

    def _was_made_from_it(self, owner: Owner) -> bool:
        """Whether the directory was restored from this very checkpoint; then it is not what was captured everywhere."""
        return (owner.pipeline_id, owner.at) == (self._manifest.pipeline_id, self._manifest.at)

    def _stored(self, artifact: Artifact) -> Expected:
        store, keys = self._records.store, self._records.keys
        return Expected(
            artifact.size_bytes,
            artifact.sha256,
            lambda: load_artifact(store, keys, artifact),
            lambda: stream_artifact(store, keys, artifact),
        )

    def _others(self, found: Compared) -> dict[str, Other]:
        """Which files are not what was captured, whether the batch still needs them or not."""
        stats = {name: self._look.stat(name) for name in self._expected}
        others: dict[str, Other] = {}
        there: list[str] = []
        for name, stat in stats.items():
            expected = self._expected[name]
            if stat is None:
                others[name] = Other(name, "missing", expected.size)
            elif stat.size != expected.size:
                others[name] = Other(name, "other size", expected.size)
            else:
                there.append(name)
        for verdict in self._read(there):
            found.bytes_read += verdict.size
            if verdict.fault is not None:
                others[verdict.name] = Other(verdict.name, "damaged", self._expected[verdict.name].size)
            elif verdict.beside is not None:
                others[verdict.name] = Other(verdict.name, "checksum file", verdict.size)
        found.files = len(self._expected)
        return others

    def _read(self, names: list[str]) -> list[Verdict]:
        def examine(name: str) -> Verdict:
            return judge(self._directory, name, digest=self._expected[name].sha256)

        return read_files(
            self._directory, sorted(names), examine, lambda name: self._expected[name].size, self._progress
        )

    def _not_held(self, cut: Cut) -> list[str]:
        """Files of the batch that the checkpoint does not hold, and that are damaged by their own evidence."""
        newer = sorted(name for name in cut.files if name not in self._expected)
        sizes = {name: cut.files[name].size for name in newer}

        def examine(name: str) -> Verdict:
            return judge(self._directory, name, cut.offsets.codec)

        verdicts = read_files(self._directory, newer, examine, sizes.__getitem__, self._progress)
        return [f"{v.name} is damaged ({v.fault}), and no checkpoint holds it" for v in verdicts if v.fault]


def _given(data: bytes) -> Expected:
    return Expected(len(data), hashlib.sha256(data).hexdigest(), lambda: data, lambda: iter([data]))


def in_words(outcome: Gone | Broken | Unsupported) -> str:
    """Why there is no cut, on one line."""
    if isinstance(outcome, Gone):
        return f"{outcome.name}: {outcome.why}"
    return "; ".join(outcome.why) if isinstance(outcome, Broken) else outcome.why


class _Overlay(Directory):
    """A directory as it would be with some of its files brought back."""

    def __init__(self, plain: Directory, look: Look, files: Mapping[str, Expected]) -> None:
        self.url = plain.url
        self.costly = plain.costly
        self._plain = plain
        self._look = look
        self._files = files

    def look(self, folder: str = "") -> Look:  # noqa: ARG002 - the whole is looked at once
        return _OverlaidLook(self._look, self._files)

    def folders(self, folder: str = "") -> list[str]:
        return self.look().folders(folder)

    def read(self, name: str) -> tuple[bytes, FileStat]:
        expected = self._files.get(name)
        return (expected.load(), _stat(expected)) if expected else self._plain.read(name)

    def stream(self, name: str) -> tuple[FileStat, Iterator[bytes]]:
        expected = self._files.get(name)
        return (_stat(expected), expected.stream()) if expected else self._plain.stream(name)


class _OverlaidLook(Look):
    def __init__(self, plain: Look, files: Mapping[str, Expected]) -> None:
        self._plain = plain
        self._files = files

    def files(self, folder: str) -> dict[str, FileStat | None]:
        above = f"{folder}/" if folder else ""
        held = {n.removeprefix(above): e for n, e in self._files.items() if n.startswith(above)}
        return {**self._plain.files(folder), **{name: _stat(e) for name, e in held.items() if "/" not in name}}

    def folders(self, folder: str) -> list[str]:
        above = f"{folder}/" if folder else ""
        held = [name.removeprefix(above) for name in self._files if name.startswith(above)]
        return sorted({*self._plain.folders(folder), *(n.partition("/")[0] for n in held if "/" in n)})

    def leftovers(self, folder: str) -> list[str]:
        return self._plain.leftovers(folder)

    def stat(self, name: str) -> FileStat | None:
        expected = self._files.get(name)
        return _stat(expected) if expected else self._plain.stat(name)


def _stat(expected: Expected) -> FileStat:
    return FileStat(expected.size, expected.sha256, LATER)
