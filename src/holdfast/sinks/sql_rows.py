"""How rows get into a table of a database, and out of it again: what they replace is kept in a table beside it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from holdfast.errors import SinkUnfit
from holdfast.sinks.contract import Sink, WriteMode
from holdfast.sinks.sql_marker import Database

__all__ = ["EPOCH", "EXISTED", "Column", "SqlRows", "listed", "literal", "quoted", "remembering", "told"]

EPOCH = "_holdfast_epoch"
"""The epoch that a row came with, in a table that is appended to."""
EXISTED = "_holdfast_existed"
"""Whether there was a row before; if not, going back deletes it."""


def quoted(*names: str) -> str:
    """Names as identifiers, joined by commas."""
    return ", ".join('"' + name.replace('"', '""') + '"' for name in names)


def literal(text: str) -> str:
    """Text as it stands in a statement."""
    return "'" + text.replace("'", "''") + "'"


def listed(names: Iterable[str]) -> str:
    return ", ".join(names)


def told(table: str, changed: int, taken: int = 0) -> list[str]:
    """What others did to rows of a table, in words."""
    counts = {"changed": changed, "taken out": taken}
    return [f"{count} rows {what} in {table}" for what, count in counts.items() if count]


def remembering(rows: Iterable[pa.RecordBatch], failed: list[Exception]) -> Iterator[pa.RecordBatch]:
    """The same rows; what goes wrong with them is remembered, since a driver that reads them tells only its text."""
    try:
        yield from rows
    except Exception as error:
        failed.append(error)
        raise


class Column(NamedTuple):
    """How another table declares the like, whether there must be a value, and what stands there by default."""

    declared: str
    needed: bool
    default: str | None


class SqlRows(Sink):
    """The rows of a table: appended, put in the place of others, and taken back.

    A source is what stands after FROM and is called s. Columns that the rows do not have are the user's: they are
    never written, and where a whole table is replaced they are kept and put back.
    """

    def __init__(self, table: str, mode: WriteMode, key: Sequence[str]) -> None:
        super().__init__(mode, key)
        self.table = table

    # ---- what a database has to say ----

    @abstractmethod
    def _columns(self, db: Database, table: str) -> dict[str, str]:
        """The columns of a table and their types, in order; none if there is no such table."""

    @abstractmethod
    def _writable(self, db: Database) -> dict[str, Column]:
        """The table's columns that can be given a value."""

    def _collations(self, db: Database) -> dict[str, str]:  # noqa: ARG002 - for those whose types do not say it
        """By which collation columns of the key are compared, where it is not the usual one. Asked in a transaction."""
        return {}

    def _named(self, table: str) -> str:
        """How a table of the database is named in a statement."""
        return quoted(table)

    def _staged(self, stage: str) -> str:
        """How a load is named in a statement."""
        return quoted(stage)

    @property
    def _before(self) -> str:
        return f"{self.table}_holdfast_before"

    def _marks(self, epoch: int, existed: int) -> dict[str, str]:
        """What stands beside a row that is kept: columns of our own, whole numbers all, and their values."""
        return {EPOCH: f"{epoch:d}", EXISTED: f"{existed:d}"}

    # ---- in ----

    def _source(self, stage: str, *, whole: bool = True) -> str:
        return f"{self._staged(stage)} AS s" if whole else f"(SELECT * FROM {self._staged(stage)} WHERE 1 = 0) AS s"

    def _apply(self, db: Database, stage: str, epoch: int, columns: list[str], *, whole: bool = True) -> None:
        """Bring a load into the table; without its rows if it is only to be seen whether the statements will do."""
        source = self._source(stage, whole=whole)
        if self.mode == "append":
            has_epoch = EPOCH in self._columns(db, self.table)
            self._insert(db, source, columns, epoch if has_epoch else None)
            return
        self._keep(db, source, epoch, columns, "" if whole else " WHERE 1 = 0")
        if self.mode == "upsert":
            self._replace(db, source, columns)
            return
        db.execute(f"DELETE FROM {self._named(self.table)}{'' if whole else ' WHERE 1 = 0'}")
        self._insert(db, source, columns)

    def _insert(self, db: Database, source: str, columns: Sequence[str], epoch: int | None = None) -> None:
        names = quoted(*columns)
        into, chosen = (names, names) if epoch is None else (f"{names}, {quoted(EPOCH)}", f"{names}, {epoch:d}")
        db.execute(f"INSERT INTO {self._named(self.table)} ({into}) SELECT {chosen} FROM {source}")

    def _replace(self, db: Database, source: str, columns: list[str]) -> None:
        """Put rows in the place of those with their keys: changed and not taken out, since a row may have more
        columns than these."""
        table, changed = self._named(self.table), [name for name in columns if name not in self.key]
        if changed:
            values = ", ".join(f"{quoted(name)} = s.{quoted(name)}" for name in changed)
            db.execute(f"UPDATE {table} AS t SET {values} FROM {source} WHERE {self._same('t', 's')}")
        self._insert(db, f"{source} WHERE {self._is_new()}", columns)

    # ---- what is kept ----

    def _keep(self, db: Database, source: str, epoch: int, columns: list[str], where: str) -> None:
        """Keep the rows that are about to go. A row that says "there was none" stands where none was."""
        before, table = self._named(self._before), self._named(self.table)
        names = quoted(*self._make_room(db, columns))
        old, none = self._marks(epoch, 1), self._marks(epoch, 0)
        into, was = f"INSERT INTO {before} ({quoted(*old)}, {names})", listed(old.values())
        if self.mode == "overwrite":
            db.execute(f"{into} SELECT {was}, {names} FROM {table}{where}")
            db.execute(f"INSERT INTO {before} ({quoted(*none)}) VALUES ({listed(none.values())})")
            return
        keys = quoted(*self.key)
        db.execute(f"{into} SELECT {was}, {names} FROM {table} WHERE {self._keys_in(source)}")
        new = f"INSERT INTO {before} ({quoted(*none)}, {keys}) SELECT {listed(none.values())}, {keys}"
        db.execute(f"{new} FROM {source} WHERE {self._is_new()}")

    def _make_room(self, db: Database, columns: list[str]) -> list[str]:
        """Have the table of kept rows take whatever could be lost, and give the columns to keep.

        Upsert keeps what it writes, or ever wrote: a column that leaves the query is still one that it has to put back.
        """
        before, marks = self._named(self._before), self._marks(0, 0)
        there, like = self._columns(db, self._before), self._writable(db)
        wanted = like if self.mode == "overwrite" else {*columns, *there}
        kept = [name for name in like if name in wanted and name not in marks]
        collated = {name: f"{like[name].declared} COLLATE {found}" for name, found in self._collations(db).items()}
        declared = dict.fromkeys(marks, "BIGINT") | {name: like[name].declared for name in kept} | collated
        if not there:
            defined = ", ".join(f"{quoted(name)} {kind}" for name, kind in declared.items())
            db.execute(f"CREATE TABLE {before} ({defined})")
        for name, kind in declared.items() if there else ():
            if name not in there:
                db.execute(f"ALTER TABLE {before} ADD COLUMN {quoted(name)} {kind}")
                if name not in marks:
                    self._fill(db, name, like[name].default)
        return kept

    def _fill(self, db: Database, column: str, default: str | None) -> None:
        """Give rows that were kept already what they have in a column that is kept from now on.

        Until now nothing was written to it: what a row had then it has still.
        """
        before, name, existed = self._named(self._before), quoted(column), f"{quoted(EXISTED)} = 1"
        if default is not None:
            db.execute(f"UPDATE {before} SET {name} = {default} WHERE {existed}")
        if self.mode == "upsert":
            same = f"b.{existed} AND {self._same('t', 'b')}"
            db.execute(f"UPDATE {before} AS b SET {name} = t.{name} FROM {self._named(self.table)} AS t WHERE {same}")

    # ---- out ----

    def _why_not_undone(self, db: Database, epoch: int) -> str | None:
        """Why the table can't take back what was kept of it."""
        found = self._columns(db, self.table)
        kept = {n: kind for n, kind in self._columns(db, self._before).items() if n not in self._marks(0, 0)}
        if gone := [name for name in kept if name not in found]:
            return f"the table {self.table} has no column {listed(gone)} any more: drop it in {self._before} as well"
        if altered := [name for name, kind in kept.items() if found[name] != kind]:
            return f"the type of {listed(altered)} is another in {self._before}, which keeps its old rows"
        old = f"{self._named(self._before)} WHERE {quoted(EXISTED)} = 1 AND {quoted(EPOCH)} > {epoch:d}"
        for name, column in self._writable(db).items():
            lacks = f"{old} AND {quoted(name)} IS NULL" if name in kept else old
            is_given = name not in kept and (self.mode == "upsert" or column.default is not None)
            if column.needed and not is_given and db.execute(f"SELECT 1 FROM {lacks} LIMIT 1"):
                return f"the column {name} must have a value now, and rows that would be put back have none"
        return None

    def _undo(self, db: Database, epoch: int) -> None:
        """Take back what came after an epoch."""
        table, later = self._named(self.table), f"{quoted(EPOCH)} > {epoch:d}"
        if self.mode == "append":
            db.execute(f"DELETE FROM {table} WHERE {later}")
            return
        columns = [name for name in self._columns(db, self._before) if name not in self._marks(0, 0)]
        if not columns:
            return
        before, keys = self._named(self._before), quoted(*self.key)
        # Of several that were kept since, the first is what stood there.
        if self.mode == "overwrite":
            first = f"(SELECT MIN({quoted(EPOCH)}) FROM {before} WHERE {later})"
            db.execute(f"DELETE FROM {table} WHERE EXISTS (SELECT 1 FROM {before} WHERE {later})")
            self._put_back(db, f"{before} AS s WHERE {quoted(EXISTED)} = 1 AND {quoted(EPOCH)} = {first}", columns)
        else:
            firsts = f"SELECT MIN({quoted(EPOCH)}), {keys} FROM {before} WHERE {later} GROUP BY {keys}"
            first = f"SELECT * FROM {before} WHERE ({quoted(EPOCH)}, {keys}) IN ({firsts})"
            none, some = (f"(SELECT * FROM ({first}) f WHERE {quoted(EXISTED)} = {existed}) AS s" for existed in (0, 1))
            db.execute(f"DELETE FROM {table} WHERE {self._keys_in(none)}")
            self._replace(db, some, columns)
        db.execute(f"DELETE FROM {before} WHERE {later}")

    def _put_back(self, db: Database, source: str, columns: list[str]) -> None:
        """Insert rows as they were, also what the table gave them by itself."""
        self._insert(db, source, columns)

    # ---- keys ----

    def _same(self, one: str, other: str) -> str:
        """Whether two rows have one key; a column of the table stands first, and with it how it is compared."""
        return " AND ".join(f"{one}.{quoted(column)} = {other}.{quoted(column)}" for column in self.key)

    def _is_new(self) -> str:
        return f"NOT EXISTS (SELECT 1 FROM {self._named(self.table)} AS t WHERE {self._same('t', 's')})"

    def _keys_in(self, source: str) -> str:
        # Not EXISTS: some databases would look through the source for every row of the table.
        return f"({quoted(*self.key)}) IN (SELECT {quoted(*self.key)} FROM {source})"

    def _refuse_bad_keys(self, db: Database, stage: str) -> None:
        if self.mode != "upsert":
            return
        source, keys = self._source(stage), quoted(*self.key)
        without = " OR ".join(f"{quoted(column)} IS NULL" for column in self.key)
        [(empty,)] = db.execute(f"SELECT COUNT(*) FROM {source} WHERE {without}")
        if empty:
            raise SinkUnfit(self.name, f"{empty} rows have no value in a column of the key {listed(self.key)}")
        twice = db.execute(f"SELECT {keys} FROM {source} GROUP BY {keys} HAVING COUNT(*) > 1 LIMIT 1")
        if twice:
            shown = ", ".join(map(repr, twice[0]))
            raise SinkUnfit(self.name, f"two rows of an epoch have the key {shown}: which one counts can't be told")
