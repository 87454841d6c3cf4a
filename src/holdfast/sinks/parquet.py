"""Plain Parquet files in a folder, with a log that says which of them count."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple

import msgspec
import pyarrow as pa

from holdfast.decide.chain import admit, go_back, raise_fence, require_holder
from holdfast.epochs import Holder, Link, Marker, Step, Target
from holdfast.errors import MissingRecords, SinkUnavailable, SinkUnfit, StoreError
from holdfast.sinks.contract import Sink, WriteMode
from holdfast.sinks.footers import staged_footers, type_name
from holdfast.sinks.parquet_log import Entry, Log, State
from holdfast.sinks.staged import StagedRows, decode_schema, encode_schema
from holdfast.sinks.table_files import Brought, Named, TableFiles, folder_of
from holdfast.store import Address
from holdfast.store.between import place_of, plain_url, tidy

__all__ = ["Parquet", "Version", "files", "versions"]


class Version(NamedTuple):
    """One version of a folder: its number, the epoch that it ends with, and what made it."""

    number: int
    epoch: int
    what: str


def files(url: str, *, version: int | None = None, options: Mapping[str, str] | None = None) -> list[str]:
    """The files of the newest version, or of any that is kept, as other programs name them.

    Whoever asks while a commit happens gets those before it or those after it. Any reader of Parquet takes them; there
    are none while no rows were committed. `release` removes the files that only older versions name: a reader of
    those is to be done by then.
    """
    place = tidy(url, options)
    log = Log(place.store())
    newest = log.newest()
    state = newest if version is None else _kept(log, newest, version)
    if state is None and version is not None:
        raise MissingRecords(place.url, f"there is no version {version} of it any more, or there never was")
    return [plain_url(place, file.key) for file in state.files] if state else []


def versions(url: str, *, options: Mapping[str, str] | None = None) -> list[Version]:
    """All versions that are kept, the oldest first."""
    log = Log(tidy(url, options).store())
    newest = log.newest()
    if newest is None:
        return []
    found = log.entries(newest.kept_from, newest.version)
    return [Version(entry.version, entry.marker.at.epoch, entry.what) for entry in found]


class Parquet(Sink):
    """Parquet files below a folder of the disk or of an object store; `holdfast.sinks.parquet.files` lists them.

    Rows that were staged below the folder are taken as they are, others as a copy of their files. Old versions, and
    the files that only they name, stay until they are released. The store needs create-if-absent.
    """

    modes: ClassVar[frozenset[WriteMode]] = frozenset({"append", "overwrite"})
    can_jump: ClassVar[bool] = True

    def __init__(self, url: str, *, mode: WriteMode = "append", options: Mapping[str, str] | None = None) -> None:
        super().__init__(mode, ())
        self.root = tidy(url, options)
        """What is staged below here becomes the table's without a copy."""
        self._files = TableFiles(self.root)
        self._log = Log(self._files.store)
        self._known: State | None = None
        self._prepared: set[str] = set()

    @property
    def target(self) -> str:
        return self.root.url

    def _identity(self) -> Hashable:
        return place_of(self.root)

    @property
    def adopts_below(self) -> Address | None:
        return self.root

    def has_adopted(self, token: Any) -> bool:
        return msgspec.convert(token, Brought).is_adopted

    def look(self) -> Marker | None:
        with self._reaching("look"):
            state = self._log.newest()
        return state.marker if state else None

    def fence(self, holder: Holder, begin: Link) -> Marker:
        with self._reaching("fence"):
            while True:
                state = self._newest()
                marker = raise_fence(self.name, state.marker if state else None, holder, begin)
                if state is None:
                    self._files.refuse_orphans(self.target)
                    self._files.prove_safe()
                    entry = Entry(token=holder.token, version=0, what="fence", marker=marker, since=0, kept_from=0)
                else:
                    entry = state.follow("fence", marker, same_link=True)
                if self._append(state, entry):
                    break
        self._holder = holder
        self._files.begin()
        return marker

    def check(self, schema: pa.Schema) -> None:
        with self._reaching("check"):
            state = self._newest()
        if state and state.schema:
            self._refuse_other(decode_schema(state.schema), schema)

    def prepare(self, step: Step, rows: StagedRows) -> Any:
        self.check(rows.schema)
        with self._reaching("prepare"):
            # What was staged below the root may be gone: whoever has taken over sweeps it.
            self._held()
            staged_footers(self.name, rows)
            brought = self._files.bring_in(self._mine(), step, rows)
        self._prepared = {file.key for file in brought.files}
        return msgspec.to_builtins(brought)

    def commit(self, step: Step, token: Any, rows: StagedRows) -> Any:
        with self._reaching("commit"):
            while True:
                state = self._held()
                after = admit(self.name, state.marker, self._mine(), step)
                if after is None:
                    break
                brought = self._brought(step, token, rows)
                entry = msgspec.structs.replace(
                    state.follow("commit", after),
                    files=brought.files,
                    whole=self.mode == "overwrite",
                    schema=state.schema or encode_schema(rows.schema),
                )
                if self._append(state, entry):
                    state = self._held_known()
                    self._files.sweep(self._mine(), step, brought.files, self._named_folders)
                    break
        return {"version": state.since}

    def abort(self, token: Any) -> None:
        folder = msgspec.convert(token, Brought).folder
        self._prepared.clear()
        if folder:
            with self._reaching("abort"):
                self._files.discard(folder)

    def why_not_back(self, target: Target) -> str | None:
        with self._reaching("look"):
            state = self._log.newest()
            if state is None:
                return "nothing was ever committed to it"
            found = self._version_of(state, target)
            if isinstance(found, str):
                return found
            # What the newest version names as well would be missed already.
            needed = {file.key for file in found.files} - {file.key for file in state.files}
            gone = sorted(needed - self._files.sizes(needed).keys())
        return f"{len(gone)} files of version {found.version} are gone, such as {gone[0]}" if gone else None

    def stand_at(self, target: Target) -> None:
        with self._reaching("stand back"):
            while True:
                state = self._held()
                after = go_back(self.name, state.marker, self._mine(), target.at, target.decided)
                if after is None or self._append(state, state.follow("stand back", after)):
                    return

    def roll_back(self, target: Target, *, discard_foreign: bool = False) -> None:  # noqa: ARG002 - its log is ours alone
        with self._reaching("roll back"):
            while True:
                state = self._held()
                after = go_back(self.name, state.marker, self._mine(), target.at, target.decided)
                if after is None:
                    return
                found = self._version_of(state, target)
                if isinstance(found, str):
                    raise SinkUnfit(self.name, f"it can't go back to {target.at}: {found}")
                entry = msgspec.structs.replace(
                    state.follow("roll back", after), files=list(found.files), whole=True, schema=found.schema
                )
                if self._append(state, entry):
                    return

    def release(self, before: Link) -> None:
        with self._reaching("release"):
            while True:
                state = self._held()
                version = self._first_at(state, before.epoch)
                if version <= state.kept_from:
                    break
                oldest = self._log.at(version)
                assert oldest is not None
                self._log.checkpoint(oldest)
                if self._append(state, state.follow("release", state.marker, same_link=True, kept_from=version)):
                    break
            self._remove_released(self._held_known())

    # ---- versions ----

    def _version_of(self, state: State, target: Target) -> State | str:
        """The version that a target means, or why there is none."""
        position = target.position or {}
        number = position.get("version") if isinstance(position, Mapping) else None
        if number is None:
            kept = reversed([*self._log.entries(state.kept_from, state.version)])
            number = next((entry.version for entry in kept if _is_at(entry.marker, target)), None)
        if number is not None and number < state.kept_from:
            return f"versions from before {state.kept_from} are kept no more"
        found = self._log.at(number) if number is not None and number <= state.version else None
        if found is None or not _is_at(found.marker, target):
            return f"it never held {target.at}, or that is kept no more"
        return found

    def _first_at(self, state: State, epoch: int) -> int:
        """The first version from which on nothing before an epoch is to be gone back to.

        Versions of a timeline that was left may hold later epochs, and stay as well.
        """
        kept = self._log.entries(state.kept_from, state.version)
        return next((entry.version for entry in kept if entry.marker.at.epoch >= epoch), state.version)

    def _remove_released(self, state: State) -> None:
        """Remove what only released versions name: first the files, so that one who is killed here can do it again."""
        candidates = self._log.forgotten(state.kept_from)
        doomed = candidates - self._named(state) if candidates else set()
        self._files.store.delete(sorted(doomed))
        self._log.drop(state.kept_from)

    def _named(self, state: State) -> set[str]:
        """All files that a kept version names."""
        oldest = self._log.at(state.kept_from)
        assert oldest is not None
        later = self._log.entries(state.kept_from + 1, state.version)
        return {file.key for file in oldest.files} | {file.key for entry in later for file in entry.files}

    def _named_folders(self) -> Named:
        state = self._held_known()
        folders = {folder_of(file.key) for file in state.files}
        if not folders.issuperset(self._files.folders()):
            folders |= {folder_of(key) for key in self._named(state)}
        return Named(range(self._mine().generation), folders)

    # ---- the log ----

    def _newest(self) -> State | None:
        self._known = self._log.newest(self._known)
        return self._known

    def _held(self) -> State:
        state = self._newest()
        require_holder(self.name, state.marker if state else None, self._mine())
        assert state is not None
        return state

    def _held_known(self) -> State:
        assert self._known is not None
        return self._known

    def _append(self, state: State | None, entry: Entry) -> bool:
        after = self._log.append(state, entry)
        if after is None:
            return False
        self._known = after
        if self._log.is_due(after):
            self._log.checkpoint(after)
        return True

    def _brought(self, step: Step, token: Any, rows: StagedRows) -> Brought:
        """What was prepared; brought in anew if it went with the process that did it."""
        brought = msgspec.convert(token, Brought)
        if self._prepared.issuperset(file.key for file in brought.files) or self._files.are_there(brought.files):
            return brought
        if not brought.folder:
            self._files.require(brought.files)
        return self._files.bring_in(self._mine(), step, rows)

    def _refuse_other(self, held: pa.Schema, given: pa.Schema) -> None:
        has = {field.name: type_name(field.type) for field in held}
        wanted = {field.name: type_name(field.type) for field in given}
        if has == wanted:
            return
        other = [
            f"{name} is {has[name]}, not {wanted[name]}" for name in has if wanted.get(name, has[name]) != has[name]
        ]
        other += [f"it has no column {name}" for name in wanted if name not in has]
        other += [f"the rows have no column {name}" for name in has if name not in wanted]
        raise SinkUnfit(self.name, f"its files are of another kind: {'; '.join(other)}")

    @contextmanager
    def _reaching(self, action: str) -> Iterator[None]:
        try:
            yield
        except StoreError as error:
            raise SinkUnavailable(self.name, action, error.message) from error


def _is_at(marker: Marker, target: Target) -> bool:
    return marker.at == target.at and marker.decided == target.decided


def _kept(log: Log, newest: State | None, version: int) -> State | None:
    if newest is None or not newest.kept_from <= version <= newest.version:
        return None
    return log.at(version)
