"""The cut: exactly the files of Spark's checkpoint directory that a restart after a batch needs, or why there is none.

`commits/B` alone proves nothing: the next batch must have begun, or the query be known to have stopped, and every
store must have its whole chain. What stands in the way is a value, since most of it passes: not yet, gone by (Spark's
clean-up was faster), or broken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NoReturn, TypeVar

from holdfast.errors import ObjectMissing
from holdfast.spark.logs import (
    CommitEntry,
    Malformed,
    OffsetEntry,
    OperatorMetadata,
    parse_commit,
    parse_offsets,
    parse_operator,
    parse_query_id,
    single_partition,
)
from holdfast.spark.sources import source_files
from holdfast.spark.state import Finder, Identity, Missing, Snapshots, StoreFolder, provider_of
from holdfast.store.directory import Directory, FileStat, Look

__all__ = ["Batches", "Broken", "Cut", "Gone", "Operator", "Unsupported", "batches_in", "cut_at"]

T = TypeVar("T")


@dataclass(frozen=True)
class Batches:
    """Which batches the logs of a directory know, in order."""

    offsets: tuple[int, ...]
    commits: tuple[int, ...]

    def whole(self, known: int | None = None) -> list[int]:
        """Batches that may be whole, newest first: committed, and followed by another or not after `known`."""
        begun = {*self.offsets, *self.commits}
        newest = max(begun, default=-1)
        return [b for b in reversed(self.commits) if b < newest or (known is not None and b <= known)]

    @property
    def last_committed(self) -> int | None:
        return self.commits[-1] if self.commits else None


def batches_in(look: Look) -> Batches:
    """The batches in the logs. Commits are looked at first: a batch that began later only proves them the more."""
    commits = sorted(int(name) for name in look.files("commits") if name.isdecimal())
    offsets = sorted(int(name) for name in look.files("offsets") if name.isdecimal())
    return Batches(tuple(offsets), tuple(commits))


@dataclass(frozen=True)
class Operator:
    """A stateful operator of the query, by its number."""

    number: int
    name: str
    stores: tuple[str, ...]
    partitions: int


@dataclass(frozen=True)
class Cut:
    """A whole batch: every file that a restart after it needs, with its version.

    `read` has the bytes of those that were read to decide it; they are not read again.
    """

    epoch: int
    query_id: str
    offsets: OffsetEntry
    commit: CommitEntry
    operators: Mapping[int, Operator]
    files: Mapping[str, FileStat]
    read: Mapping[str, tuple[bytes, FileStat]]
    asynchronous: bool = False


@dataclass(frozen=True)
class Gone:
    """A file of the cut is not there: purged meanwhile if there is a newer batch, else the batch is broken."""

    epoch: int
    name: str
    why: str


@dataclass(frozen=True)
class Broken:
    """A batch that was committed and can't be restored, by Spark itself either, and why."""

    epoch: int
    why: tuple[str, ...]


@dataclass(frozen=True)
class Unsupported:
    """A query of a kind that can't be captured, and why."""

    why: str


class _Stop(Exception):
    def __init__(self, outcome: Gone | Broken | Unsupported) -> None:
        self.outcome = outcome


def cut_at(
    directory: Directory, look: Look, epoch: int, known: Snapshots | None = None
) -> Cut | Gone | Broken | Unsupported:
    """The cut after one batch, which must be committed and over."""
    try:
        return _Cutter(directory, look, epoch, known or Snapshots()).cut()
    except _Stop as stop:
        return stop.outcome


@dataclass
class _Cutter:
    directory: Directory
    look: Look
    epoch: int
    known: Snapshots
    files: dict[str, FileStat] = field(default_factory=dict)
    bytes_read: dict[str, tuple[bytes, FileStat]] = field(default_factory=dict)
    _commits: dict[int, CommitEntry | None] = field(default_factory=dict)

    def cut(self) -> Cut:
        epoch = self.epoch
        query_id = self._parsed("metadata", parse_query_id)
        commit = self._parsed(f"commits/{epoch}", parse_commit)
        offsets = self._parsed(f"offsets/{epoch}", parse_offsets)
        if not offsets.pinned:
            raise _Stop(Unsupported("it ran in continuous mode, whose epochs have no state versions"))
        if offsets.lacks_names:
            why = "its sources have names that are not in its offset log"
            raise _Stop(Unsupported(f"{why}: start it anew with spark.sql.streaming.offsetLog.formatVersion at 2"))
        asynchronous = epoch > 0 and self._before()
        for name, stat in self._source_files(offsets):
            self.files[name] = stat
        operators = self._operators(offsets, commit)
        if asynchronous and operators:
            self._gone(f"offsets/{epoch - 1}", "it is not there")
        self.known.keep_only(self.files)
        return Cut(epoch, query_id, offsets, commit, operators, self.files, self.bytes_read, asynchronous)

    def _before(self) -> bool:
        """Add `offsets/B-1`, without which Spark does not start; True if asynchronous progress left it out."""
        name = f"offsets/{self.epoch - 1}"
        if self.look.stat(name) is not None:
            self._parsed(name, parse_offsets)
            return False
        older = [b for b in batches_in(self.look).offsets if b < self.epoch]
        if not older:
            self._gone(name, "it is not there")
        self._parsed(f"offsets/{older[-1]}", parse_offsets)
        return True

    def _source_files(self, offsets: OffsetEntry) -> Iterator[tuple[str, FileStat]]:
        for source, offset in offsets.sources.items():
            found = source_files(self.look, f"sources/{source}", offset)
            if isinstance(found, str):
                self._gone(found, "it is not there")
            yield from found.items()

    # ---- state ----

    def _operators(self, offsets: OffsetEntry, commit: CommitEntry) -> dict[int, Operator]:
        numbers = sorted(int(name) for name in self.look.folders("state") if name.isdecimal())
        if missing := sorted(set(commit.state_ids) - set(numbers)):
            self._gone(f"state/{missing[0]}", "it is not there")
        if not numbers:
            return {}
        provider = provider_of(offsets.provider)
        if provider is None:
            raise _Stop(Unsupported(f"its state store provider is not Spark's own: {offsets.provider or 'not known'}"))
        finder = Finder(self.look, self._read, provider, offsets.codec, self._offsets_at, self.known)
        return {number: self._operator(number, offsets, commit, finder) for number in numbers}

    def _operator(self, number: int, offsets: OffsetEntry, commit: CommitEntry, finder: Finder) -> Operator:
        described = self._metadata(number, offsets)
        partitions = self._partitions(number, commit, described)
        stores = described.stores if described else self._stores(number)
        for partition in range(partitions):
            for position, store in enumerate(stores):
                at = StoreFolder(number, partition, store)
                identity = self._identity(commit, number, partition, position) if number in commit.state_ids else None
                chain = finder.chain(at, self.epoch + 1, identity)
                if isinstance(chain, Missing):
                    self._gone(chain.name, chain.why)
                self.files.update(chain.files)
        return Operator(number, described.name if described else "", stores, partitions)

    def _metadata(self, number: int, offsets: OffsetEntry) -> OperatorMetadata | None:
        """The operator's own description; before Spark 4.0 there is none. All its schemas belong to the cut."""
        folder = f"state/{number}"
        newest = [int(name) for name in self.look.files(f"{folder}/_metadata/v2") if name.isdecimal()]
        upto = [b for b in newest if b <= self.epoch]
        if upto:
            described = self._parsed(f"{folder}/_metadata/v2/{max(upto)}", parse_operator)
            for store in self.look.folders(f"{folder}/_stateSchema"):
                self._take_all(f"{folder}/_stateSchema/{store}")
            for path in described.schema_paths:
                name = f"{folder}/_stateSchema/{'/'.join(path.rsplit('/', 2)[1:])}"
                if name not in self.files:
                    self._gone(name, "it is not there")
            return described
        if newest:
            self._gone(f"{folder}/_metadata/v2/{self.epoch}", "no description is as old as this batch")
        if self.look.stat(f"{folder}/_metadata/metadata") is None:
            if offsets.describes_operators:
                self._gone(f"{folder}/_metadata/metadata", "it is not there")
            return None
        return self._parsed(f"{folder}/_metadata/metadata", parse_operator)

    def _stores(self, number: int) -> tuple[str, ...]:
        inner = [name for name in self.look.folders(f"state/{number}/0") if name not in ("SSTs", "logs", "_metadata")]
        return tuple(inner) or ("default",)

    def _partitions(self, number: int, commit: CommitEntry, described: OperatorMetadata | None) -> int:
        """How many partitions hold state. Those of an operator without a key are never made beyond the first."""
        schemas = [] if described and described.version >= 2 else self._schemas(number, described)
        pinned = self._parsed(f"offsets/{self.epoch}", lambda data: parse_offsets(data).partitions)
        if number in commit.state_ids:
            return len(commit.state_ids[number])
        there = {int(name) for name in self.look.folders(f"state/{number}") if name.isdecimal()}
        if there == {0} and pinned > 1 and schemas and all(self._parsed(n, single_partition) for n in schemas):
            return 1
        return pinned

    def _schemas(self, number: int, described: OperatorMetadata | None) -> list[str]:
        """The schemas of an operator's stores, kept in partition 0: mandatory, though Spark may make them anew."""
        found = []
        for store in described.stores if described else self._stores(number):
            name = f"{StoreFolder(number, 0, store).path}/_metadata/schema"
            if self.look.stat(name) is None:
                self._gone(name, "it is not there")
            self.files[name] = self._read(name)[1]
            found.append(name)
        return found

    def _identity(self, commit: CommitEntry, number: int, partition: int, store: int) -> Identity:
        """How to find the unique id of a version of one store: version V's stands in commits/(V-1)."""

        def of(version: int) -> str | None:
            entry = commit if version == self.epoch + 1 else self._older_commit(version - 1)
            try:
                return entry.state_ids[number][partition][store] if entry else None
            except (KeyError, IndexError):
                return None

        return of

    def _older_commit(self, batch: int) -> CommitEntry | None:
        """An older entry of the commit log, which only helps to find the cut and is no part of it."""
        if batch not in self._commits:
            try:
                self._commits[batch] = parse_commit(self.directory.read(f"commits/{batch}")[0])
            except (ObjectMissing, Malformed):
                self._commits[batch] = None
        return self._commits[batch]

    # ---- files ----

    def _offsets_at(self, batch: int) -> FileStat | None:
        return self.look.stat(f"offsets/{batch}")

    def _take_all(self, folder: str) -> None:
        for name in self.look.files(folder):
            stat = self.look.stat(f"{folder}/{name}")
            if stat is not None:
                self.files[f"{folder}/{name}"] = stat

    def _read(self, name: str) -> tuple[bytes, FileStat]:
        if name not in self.bytes_read:
            try:
                self.bytes_read[name] = self.directory.read(name)
            except ObjectMissing:
                self._gone(name, "it is not there")
        return self.bytes_read[name]

    def _parsed(self, name: str, parse: Callable[[bytes], T]) -> T:
        data, stat = self._read(name)
        self.files[name] = stat
        try:
            return parse(data)
        except Malformed as error:
            raise _Stop(Broken(self.epoch, (f"{name}: {error}",))) from None

    def _gone(self, name: str, why: str) -> NoReturn:
        raise _Stop(Gone(self.epoch, name, why))
