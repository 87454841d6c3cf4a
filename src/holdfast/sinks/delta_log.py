"""The log of a Delta table as this sink uses it: load, look at the marker, commit on that same handle, or look again.

The marker stands in the commit's own metadata, and its number in a `txn` action that survives checkpoints of the log.
Every commit is one attempt at the very next version: whoever else was first, it fails, and what is there is read anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec
from deltalake import CommitProperties, DeltaTable, Field, Schema, TableFeatures, Transaction
from deltalake.exceptions import (
    CommitFailedError,
    DeltaError,
    DeltaProtocolError,
    SchemaMismatchError,
    TableNotFoundError,
)
from deltalake.schema import PrimitiveType
from deltalake.transaction import AddAction, RemoveAction

from holdfast.epochs import Marker, Target
from holdfast.errors import DamagedRecord, SinkUnavailable, SinkUnfit, StoreError
from holdfast.store import Address
from holdfast.store.address import SHOWN
from holdfast.store.between import plain_url

__all__ = ["PLACEHOLDER", "Change", "DeltaLog", "Standing", "is_placeholder"]

APP = "holdfast"
"""One name for whoever writes: with the generation in it two writers would not get into each other's way."""
PLACEHOLDER = "_holdfast"
"""The column of a table that was fenced before it is known what rows it will have."""
HARMLESS = frozenset({"OPTIMIZE", "REORG", "SET TBLPROPERTIES", "UNSET TBLPROPERTIES", "VACUUM START", "VACUUM END"})
"""What others do that changes no row."""
GENERATION_BITS = 40
PATIENCE = {"retry_timeout": "60s"}
"""How long a cloud that does not answer is asked again."""
FEW = 2
"""So many entries the log always has: if others were committed since, more come back than were asked for."""
COMMIT = re.compile(r"_delta_log/\d{20}\.json")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Note(msgspec.Struct, frozen=True):
    """What a commit of ours says: the marker after it, the version that brought its link, the folders of its files."""

    what: str
    marker: Marker
    since: int
    folders: list[str] = msgspec.field(default_factory=list)


class Standing(NamedTuple):
    """A table as it was loaded, and the newest note in it; none if no pipeline has written to it."""

    table: DeltaTable
    note: Note | None

    @property
    def marker(self) -> Marker | None:
        return self.note.marker if self.note else None

    @property
    def version(self) -> int:
        return int(self.table.version())


class Change(NamedTuple):
    """One version of the table: a note of ours, or what another writer did."""

    version: int
    stamp: object
    note: Note | None
    operation: str
    restores: int | None

    @property
    def is_foreign(self) -> bool:
        """Whether another writer may have changed rows."""
        return self.note is None and self.operation not in HARMLESS

    def __str__(self) -> str:
        return f"{self.operation} in version {self.version}"


class DeltaLog:
    """One table at one place. Not for several threads."""

    def __init__(self, root: Address) -> None:
        self._root = root
        self.url = plain_url(root, "").rstrip("/")
        self.options = _storage_options(root.options)
        self._table: DeltaTable | None = None
        self._changes: dict[int, Change] = {}

    # ---- looking ----

    def forget(self) -> None:
        """Load the table anew the next time: it may have been dropped and made again."""
        self._table = None
        self._changes.clear()

    def load(self) -> Standing | None:
        """The table as it is now; None if there is none."""
        table = self._updated()
        if table is None:
            return None
        return Standing(table, self._note(table))

    def at(self, version: int) -> DeltaTable | None:
        """The table as of a version; None if the log does not reach back so far."""
        try:
            return DeltaTable(self.url, version=version, storage_options=self.options)
        except DeltaError:
            return None

    def find(self, standing: Standing, target: Target) -> tuple[Change | None, list[Change]]:
        """The newest version that ends with a target, if the log has one, and all changes since."""
        position = target.position if isinstance(target.position, Mapping) else {}
        since: list[Change] = []
        for change in self.changes(standing.table, position.get("version", 0)):
            if change.note and change.note.marker.at == target.at and change.note.marker.decided == target.decided:
                return change, since
            since.append(change)
        return None, since

    def changes(self, table: DeltaTable, down_to: int = 0) -> Iterator[Change]:
        """What was done, the newest first, as far as the log has it."""
        version, limit = int(table.version()), 1
        while version >= down_to:
            known = self._changes.get(version)
            while known is None:
                # A few at first, then many: mostly the newest is what is asked for.
                wanted = int(table.version()) - version + limit
                is_all = self._read(table, wanted) < wanted
                known, limit = self._changes.get(version), limit * 16
                if known is None and is_all:
                    return
            yield known
            version -= 1

    def _updated(self) -> DeltaTable | None:
        try:
            if self._table is None:
                self._table = DeltaTable(self.url, storage_options=self.options)
                return self._table
            before = int(self._table.version())
            self._table.update_incremental()
            after = int(self._table.version())
            if before in self._changes and after > before:
                # The known version must still be what it was: a table made anew may have come to the same numbers.
                known = self._changes.pop(before)
                self._read(self._table, after - before + 1)
                if self._changes.get(before) == known:
                    return self._table
            elif after == before:
                return self._table
        except TableNotFoundError:
            self.forget()
            return None
        except DeltaError:
            if self._table is None:
                raise
        self.forget()
        return self._updated()

    def _read(self, table: DeltaTable, limit: int) -> int:
        """Read so many entries of the log or more, the newest first; gives how many there were.

        The library numbers them from the handle's own version down, though those that were committed since come first:
        then every number is wrong, and it takes a newer handle to get them right.
        """
        while True:
            found = table.history(limit)
            if len(found) <= limit and (limit <= FEW or not self._has_newer(table)):
                break
            newer = DeltaTable(self.url, storage_options=self.options)
            limit, table = limit + int(newer.version()) - int(table.version()), newer
        self._changes |= {change.version: change for change in map(_change, found)}
        return len(found)

    def _has_newer(self, table: DeltaTable) -> bool:
        known = f"_delta_log/{int(table.version()):020}.json"
        return any(COMMIT.fullmatch(info.key) for info in self._root.store().list("_delta_log/", known))

    def _note(self, table: DeltaTable) -> Note | None:
        below: int | None = None
        for change in self.changes(table):
            if below is not None and change.version > below:
                continue
            if change.note is not None:
                return change.note
            if change.restores is not None:
                # Somebody else took the table back: it holds what it held then, whatever was noted since.
                below = change.restores
        if table.transaction_version(APP) is None:
            return None
        why = "the marker of its last epoch is gone: its log was cleaned up, or it was taken back too far"
        raise DamagedRecord(f"{self.url}/_delta_log", why)

    # ---- changing ----

    def create(self, marker: Marker, partition_by: Sequence[str]) -> bool:
        """Make the table, with nothing but the marker; False if another writer was first."""
        text = PrimitiveType("string")
        fields = [Field(name, text) for name in (*partition_by, PLACEHOLDER)]
        note = Note("fence", marker, 0)
        try:
            DeltaTable.create(
                self.url,
                schema=Schema(fields),
                partition_by=list(partition_by),
                storage_options=self.options,
                commit_properties=_properties(note),
            )
        except CommitFailedError:
            return False
        except DeltaError as error:
            if "already exists" not in str(error):
                raise
            return False
        return True

    def commit(
        self,
        standing: Standing,
        what: str,
        marker: Marker,
        actions: Sequence[AddAction | RemoveAction] = (),
        *,
        same_link: bool = False,
        replaces: bool = False,
        schema: Schema | None = None,
        folders: Sequence[str] = (),
    ) -> Note | None:
        """Write the next version; None if another writer was first.

        With `replaces` all files that the table holds go. A schema is given only where the table has none yet.
        """
        note = _follow(standing, what, marker, same_link, folders)
        try:
            standing.table.create_write_transaction(
                list(actions),
                mode="overwrite" if replaces or schema is not None else "append",
                schema=schema or standing.table.schema(),
                partition_by=standing.table.metadata().partition_columns,
                commit_properties=_properties(note),
            )
        except CommitFailedError:
            return None
        return note

    def restore(self, standing: Standing, version: int, marker: Marker) -> Note | None:
        """Bring back the files of a version, in one commit with the marker; None if another writer was first."""
        note = _follow(standing, "roll back", marker, False, ())
        try:
            standing.table.restore(version, commit_properties=_properties(note))
        except CommitFailedError:
            return None
        return note

    def allow_times_without_zone(self, standing: Standing, marker: Marker) -> bool:
        """Give the table the feature that it needs for such a column; False if another writer was first."""
        note = _follow(standing, "feature", marker, True, ())
        try:
            standing.table.alter.add_feature(
                TableFeatures.TimestampWithoutTimezone,
                allow_protocol_versions_increase=True,
                commit_properties=_properties(note),
            )
        except CommitFailedError:
            return False
        return True

    @contextmanager
    def reaching(self, sink: str, action: str) -> Iterator[None]:
        """Our own names for what goes wrong, without any secret."""
        try:
            yield
        except StoreError as error:
            raise SinkUnavailable(sink, action, error.message) from error
        except (SchemaMismatchError, DeltaProtocolError) as error:
            raise SinkUnfit(sink, self._plain(error)) from error
        except (DeltaError, OSError) as error:
            raise SinkUnavailable(sink, action, self._plain(error)) from error

    def _plain(self, error: Exception) -> str:
        said = " ".join(COLOURS.sub("", str(error)).split())
        for name, value in self.options.items():
            shown = name in SHOWN or name in PATIENCE or name == "allow_http" or not value
            said = said if shown else said.replace(value, "***")
        return said


def is_placeholder(table: DeltaTable) -> bool:
    """Whether the table has been fenced and has no rows yet, nor any columns of its own."""
    return {field.name for field in table.schema().fields} == {*table.metadata().partition_columns, PLACEHOLDER}


def _follow(standing: Standing, what: str, marker: Marker, same_link: bool, folders: Sequence[str]) -> Note:
    next_version = standing.version + 1
    since = standing.note.since if same_link and standing.note else next_version
    return Note(what, marker, since, list(folders))


def _properties(note: Note) -> CommitProperties:
    number = note.marker.holder.generation << GENERATION_BITS | (note.marker.at.epoch + 1)
    return CommitProperties(
        custom_metadata={APP: msgspec.json.encode(note).decode()},
        max_commit_retries=0,
        app_transactions=[Transaction(APP, number)],
    )


def _change(entry: Mapping[str, Any]) -> Change:
    version, operation = int(entry["version"]), str(entry.get("operation", "a change"))
    note = None
    if APP in entry:
        try:
            note = msgspec.json.decode(entry[APP], type=Note)
        except msgspec.MsgspecError as error:
            raise DamagedRecord(f"_delta_log/{version:020}.json", f"its note is not Holdfast's: {error}") from error
    parameters = entry.get("operationParameters") or {}
    restores = None
    if operation == "RESTORE":
        # One that was made by a time does not say where it went: nothing before it is known for sure.
        said = str(parameters.get("version", "")).strip('"')
        restores = int(said) if said.isdecimal() else -1
    stamp = (entry.get("timestamp"), entry.get("engineInfo"), json.dumps(parameters, sort_keys=True, default=str))
    return Change(version, stamp, note, operation, restores)


def _storage_options(options: Mapping[str, str]) -> dict[str, str]:
    plain = any(value.startswith("http://") for value in options.values())
    return {**(PATIENCE if options else {}), **options, **({"allow_http": "true"} if plain else {})}
