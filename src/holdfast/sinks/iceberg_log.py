"""The snapshots of an Iceberg table as this sink uses them: load, look at the marker, commit on that, or look again.

The marker stands in the summary of each snapshot that a pipeline has made, where it goes back with the rows, and in a
property of the table, where it outlives snapshots that were expired. Every commit is one attempt from the snapshot that
was looked at: the library's own retries would let two writers of one epoch land.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchTableError,
    RESTError,
    TableAlreadyExistsError,
    WaitingForLockException,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update.snapshot import ManageSnapshots

from holdfast.epochs import Marker, Target
from holdfast.errors import DamagedRecord, SinkUnavailable, StoreError

__all__ = ["MERGE", "IcebergLog", "Note", "Standing", "is_first", "note_of"]

NOTE = "holdfast.note"
RETRIES = "commit.retry.num-retries"
MERGE = "commit.manifest-merge.enabled"
TAG = "holdfast-"
"""What the tags of savepoints begin with."""
HARMLESS = (Operation.REPLACE,)
"""What others do that changes no row."""
SECRET = re.compile(r"secret|token|password|credential|key", re.IGNORECASE)
USER = re.compile(r"(?<=//)[^/?@\s]*@")

try:
    from sqlalchemy.exc import SQLAlchemyError
except ImportError:  # a catalog that is no database
    _DATABASE: tuple[type[Exception], ...] = ()
else:
    _DATABASE = (SQLAlchemyError,)


class Note(msgspec.Struct, frozen=True):
    """What a snapshot of ours says: the marker after it, and the folders of its files."""

    what: str
    marker: Marker
    folders: list[str] = msgspec.field(default_factory=list)

    def ends_with(self, target: Target | Marker) -> bool:
        return self.marker.at == target.at and self.marker.decided == target.decided


class Standing(NamedTuple):
    """A table as it was loaded, and the newest note in it; none if no pipeline has written to it."""

    table: Table
    note: Note | None

    @property
    def marker(self) -> Marker | None:
        return self.note.marker if self.note else None

    @property
    def has_columns(self) -> bool:
        return bool(self.table.schema().fields)


class IcebergLog:
    """One table of a catalog."""

    def __init__(self, catalog: Catalog, name: str) -> None:
        self._catalog = catalog
        self._name = name

    def load(self) -> Standing | None:
        """The table as it is now; None if there is none."""
        try:
            table = self._catalog.load_table(self._name)
        except NoSuchTableError:
            return None
        # Of this copy only: the table's own setting is for its other writers.
        table.metadata.properties[RETRIES] = "0"
        return Standing(table, self._newest(table))

    def create(self, properties: Mapping[str, str]) -> None:
        """Make the table, with nothing in it; one that is there already is fine."""
        self._catalog.create_namespace_if_not_exists(Catalog.namespace_from(self._name))
        try:
            self._catalog.create_table(self._name, Schema(), properties={MERGE: "true", **properties})
        except TableAlreadyExistsError:
            return

    def ancestors(self, table: Table) -> Iterator[Snapshot]:
        """The current snapshot and those before it, the newest first, as far as they are kept."""
        found = table.current_snapshot()
        while found is not None:
            yield found
            found = table.snapshot_by_id(found.parent_snapshot_id) if found.parent_snapshot_id is not None else None

    def find(self, table: Table, target: Target) -> Snapshot | None:
        """The newest snapshot that ends with a target."""
        kept = reversed(table.metadata.snapshots)
        return next((found for found in kept if (note := note_of(found)) and note.ends_with(target)), None)

    def foreign(self, table: Table, back_to: Snapshot) -> list[str]:
        """What others have done since a snapshot, the oldest first; compaction does not count."""
        reached = {back_to.snapshot_id}
        before = back_to
        while before.parent_snapshot_id is not None:
            reached.add(before.parent_snapshot_id)
            found = table.snapshot_by_id(before.parent_snapshot_id)
            if found is None:
                break
            before = found
        others = []
        for snapshot in self.ancestors(table):
            if snapshot.snapshot_id in reached:
                break
            operation = snapshot.summary.operation if snapshot.summary else None
            if note_of(snapshot) is None and operation not in HARMLESS:
                others.append(f"{operation.value if operation else 'a change'} in snapshot {snapshot.snapshot_id}")
        return others[::-1]

    def position(self, standing: Standing) -> dict[str, Any]:
        """The first snapshot that ended with what the table ends with now."""
        first = None
        for snapshot in self.ancestors(standing.table):
            note = note_of(snapshot)
            if note is None:
                continue
            if standing.note is None or not note.ends_with(standing.note.marker):
                break
            first = snapshot
        return {"snapshot": str(first.snapshot_id) if first else None}

    # ---- changing ----

    @staticmethod
    def noting(transaction: Transaction, note: Note) -> dict[str, str]:
        """Write a note into the table's properties; gives it for the summary of the snapshot beside it."""
        said = {NOTE: msgspec.json.encode(note).decode()}
        transaction.set_properties(said)
        return said

    def mark(self, standing: Standing, note: Note, back_to: Snapshot | None = None) -> bool:
        """Make a snapshot that adds nothing but the note, after the current one or after another.

        False if another writer was first. A property alone would fence nobody: it is the snapshot that others miss.
        """
        transaction = standing.table.transaction()
        if back_to is not None:
            manage = ManageSnapshots(transaction=transaction)
            manage.set_current_snapshot(snapshot_id=back_to.snapshot_id).commit()
        said = self.noting(transaction, note)
        transaction.update_snapshot(snapshot_properties=said).fast_append().commit()
        return self.land(transaction)

    def retag(self, table: Table, savepoints: Mapping[str, Target]) -> bool:
        """Have the snapshot of each savepoint hold a tag, and no other one of ours; False if another was first.

        One that has the tag already keeps it, though another snapshot may end with the same: those are equal.
        """
        wanted = {f"{TAG}{name}": target for name, target in savepoints.items()}
        standing = {name: ref.snapshot_id for name, ref in table.metadata.refs.items() if name.startswith(TAG)}
        kept = {name for name, held in standing.items() if name in wanted and _ends_with(table, held, wanted[name])}
        found = {name: self.find(table, target) for name, target in wanted.items() if name not in kept}
        tagged = {name: snapshot for name, snapshot in found.items() if snapshot is not None}
        gone = standing.keys() - kept - tagged.keys()
        if not tagged and not gone:
            return True
        transaction = table.transaction()
        for name in sorted(gone):
            ManageSnapshots(transaction=transaction).remove_tag(name).commit()
        for name, snapshot in tagged.items():
            ManageSnapshots(transaction=transaction).create_tag(snapshot.snapshot_id, name).commit()
        return self.land(transaction)

    def land(self, transaction: Transaction) -> bool:
        """Commit; False if another writer was first."""
        try:
            transaction.commit_transaction()
        except CommitFailedException:
            return False
        return True

    @contextmanager
    def reaching(self, sink: str, action: str) -> Iterator[None]:
        """Our own names for what goes wrong, without any secret."""
        try:
            yield
        except StoreError as error:
            raise SinkUnavailable(sink, action, error.message) from error
        except (OSError, RESTError, WaitingForLockException, pa.ArrowException, *_DATABASE) as error:
            raise SinkUnavailable(sink, action, self._plain(error)) from error

    def _newest(self, table: Table) -> Note | None:
        chain = []
        for snapshot in self.ancestors(table):
            if note := note_of(snapshot):
                return note
            chain.append(snapshot)
        if not chain or is_first(chain[-1]):
            return None
        # Those that had it may have been expired.
        said = table.metadata.properties.get(NOTE)
        return _read(said, f"{self._name}: {NOTE}") if said else None

    def _plain(self, error: Exception) -> str:
        said = USER.sub("***@", next(iter(str(error).splitlines()), "") or type(error).__name__)
        for name, value in self._catalog.properties.items():
            said = said.replace(str(value), "***") if value and SECRET.search(name) else said
        return said


def is_first(snapshot: Snapshot) -> bool:
    """Whether a table began with a snapshot: one whose parent was expired may say of itself that it has none."""
    return snapshot.parent_snapshot_id is None and snapshot.sequence_number == 1


def note_of(snapshot: Snapshot) -> Note | None:
    """What a snapshot of ours says; None for one of others."""
    said = snapshot.summary.additional_properties.get(NOTE) if snapshot.summary else None
    return _read(said, f"snapshot {snapshot.snapshot_id}") if said else None


def _ends_with(table: Table, snapshot_id: int, target: Target) -> bool:
    held = table.snapshot_by_id(snapshot_id)
    note = note_of(held) if held else None
    return note is not None and note.ends_with(target)


def _read(said: str, where: str) -> Note:
    try:
        return msgspec.json.decode(said, type=Note)
    except msgspec.MsgspecError as error:
        raise DamagedRecord(where, f"its note is not Holdfast's: {error}") from error
