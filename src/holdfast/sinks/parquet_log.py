"""The log of a folder of Parquet files: numbered records, each created by exactly one writer, that say what is in it.

    _holdfast/log/<version>.json           what this version adds, or all that it holds; the marker; from where on
                                           versions are kept
    _holdfast/checkpoints/<version>.json   the same with all files in it, so that few records have to be read

Numbers have ten digits and begin with 0. A version is what its records say, and never changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from holdfast.epochs import Marker
from holdfast.errors import MissingRecords, ObjectMissing
from holdfast.records import Record, seal, unseal
from holdfast.sinks.table_files import DataFile
from holdfast.store import Store

__all__ = ["Entry", "Log", "State"]

LOG = "_holdfast/log/"
CHECKPOINTS = "_holdfast/checkpoints/"
EVERY = 20
"""After so many records all files are written down anew."""
AT_ONCE = 16
ATTEMPTS = 5


class Entry(Record, frozen=True):
    """One version: `files` are added to those of the version before, or, if it is `whole`, are all that it holds.

    `since` is the version that brought the marker's link; `schema` is Arrow's, in base64, and "" while it is not known.
    """

    kind = "files"
    version: int
    what: str
    marker: Marker
    since: int
    kept_from: int
    files: list[DataFile] = msgspec.field(default_factory=list)
    whole: bool = False
    schema: str = ""


class State(msgspec.Struct, frozen=True):
    """A version with all its files."""

    version: int
    marker: Marker
    since: int
    kept_from: int
    files: tuple[DataFile, ...]
    schema: str

    def follow(self, what: str, marker: Marker, *, same_link: bool = False, kept_from: int | None = None) -> Entry:
        """The next record, with nothing changed but what is given."""
        version = self.version + 1
        return Entry(
            token=marker.holder.token,
            version=version,
            what=what,
            marker=marker,
            since=self.since if same_link else version,
            kept_from=self.kept_from if kept_from is None else kept_from,
        )


class Log:
    """The records below one root."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def newest(self, known: State | None = None) -> State | None:
        """The newest version, from one that is known on if there is one; None if there is no record at all.

        A commit that happens meanwhile is seen whole or not at all.
        """
        state = known
        for _ in range(ATTEMPTS):
            if state is None:
                numbers = self._numbers(CHECKPOINTS)
                state = self._checkpoint(numbers[-1]) if numbers else None
                if numbers and state is None:
                    continue  # it was released while we looked
            # From the known record on, and not from the one after it: its own must still be there.
            first = 0 if state is None else state.version
            found = self._numbers(LOG, first - 1)
            whole = found == [*range(first, first + len(found))] and bool(found or state is None)
            entries = self._entries(found if state is None else found[1:]) if whole else None
            if entries is not None:
                return _fold(state, entries)
            state = None
        raise MissingRecords(f"{self._store.url.rstrip('/')}/{LOG}", "its numbers have a gap")

    def at(self, version: int) -> State | None:
        """A version that is kept; None if it was released or never was."""
        numbers = [number for number in self._numbers(CHECKPOINTS) if number <= version]
        state = self._checkpoint(numbers[-1]) if numbers else None
        if state is None and numbers:
            return None
        entries = self._entries([*range(0 if state is None else state.version + 1, version + 1)])
        return _fold(state, entries) if entries is not None else None

    def entry(self, version: int) -> Entry | None:
        """One record; None if it is not there."""
        try:
            key = _key(LOG, version)
            return unseal(key, self._store.get(key), Entry)
        except ObjectMissing:
            return None

    def entries(self, first: int, last: int) -> Iterator[Entry]:
        """Records from one version to another, in their order; those that are gone are passed over."""
        for start in range(first, last + 1, AT_ONCE):
            with ThreadPoolExecutor(AT_ONCE) as pool:
                found = pool.map(self.entry, range(start, min(start + AT_ONCE, last + 1)))
                yield from (entry for entry in found if entry is not None)

    def append(self, state: State | None, entry: Entry) -> State | None:
        """Create the next record; None if another writer was first: look again, and decide anew."""
        if not self._store.create(_key(LOG, entry.version), seal(entry)):
            return None
        after = _fold(state, [entry])
        assert after is not None
        return after

    def checkpoint(self, state: State) -> None:
        """Write down all files of a version; whoever does it writes the same."""
        entry = Entry(
            token=state.marker.holder.token,
            version=state.version,
            what="checkpoint",
            marker=state.marker,
            since=state.since,
            kept_from=state.kept_from,
            files=list(state.files),
            whole=True,
            schema=state.schema,
        )
        self._store.create(_key(CHECKPOINTS, state.version), seal(entry))

    def is_due(self, state: State) -> bool:
        return state.version % EVERY == 0

    def forgotten(self, before: int) -> set[str]:
        """The files that the records before a version name."""
        gone = self._entries(self._before(LOG, before), missing_is_fine=True) or []
        whole = [state for number in self._before(CHECKPOINTS, before) if (state := self._checkpoint(number))]
        lists: list[Sequence[DataFile]] = [*(entry.files for entry in gone), *(state.files for state in whole)]
        return {file.key for files in lists for file in files}

    def drop(self, before: int) -> None:
        """Remove the records before a version, which has a checkpoint of its own."""
        for folder in (LOG, CHECKPOINTS):
            self._store.delete([_key(folder, number) for number in self._before(folder, before)])

    def _before(self, folder: str, version: int) -> list[int]:
        return [number for number in self._numbers(folder) if number < version]

    def _numbers(self, folder: str, after: int = -1) -> list[int]:
        start = _key(folder, after) if after >= 0 else ""
        names = (info.key.removeprefix(folder).removesuffix(".json") for info in self._store.list(folder, start))
        return sorted(int(name) for name in names if name.isdecimal())

    def _checkpoint(self, version: int) -> State | None:
        try:
            key = _key(CHECKPOINTS, version)
            return _fold(None, [unseal(key, self._store.get(key), Entry)])
        except ObjectMissing:
            return None

    def _entries(self, numbers: Sequence[int], missing_is_fine: bool = False) -> list[Entry] | None:
        """Records by their numbers; None if one was removed meanwhile."""
        if not numbers:
            return []
        with ThreadPoolExecutor(AT_ONCE) as pool:
            found = list(pool.map(self.entry, numbers))
        entries = [entry for entry in found if entry is not None]
        return entries if missing_is_fine or len(entries) == len(numbers) else None


def _key(folder: str, version: int) -> str:
    return f"{folder}{version:010}.json"


def _fold(state: State | None, entries: Iterable[Entry]) -> State | None:
    files = list(state.files) if state else []
    schema = state.schema if state else ""
    last = None
    for last in entries:
        if last.whole:
            files, schema = list(last.files), last.schema
        else:
            files.extend(last.files)
            schema = last.schema or schema
    if last is None:
        return state
    return State(last.version, last.marker, last.since, last.kept_from, tuple(files), schema)
