"""What sinks in a database file have in common: such a file does not tell who wrote a row.

So the sink keeps, beside each row that it replaces, a number that stands for what it wrote in its place. A row that has
another number by now was changed by somebody else.
"""

from __future__ import annotations

import os.path
from abc import abstractmethod
from collections.abc import Hashable, Sequence
from pathlib import Path

from holdfast.sinks.sql import SqlSink
from holdfast.sinks.sql_marker import Database
from holdfast.sinks.sql_rows import EPOCH, EXISTED, quoted, told

__all__ = ["WROTE", "SqlFile"]

WROTE = "_holdfast_wrote"
"""What stands for the row that was written, or for all rows of a table that is written as a whole; none if that is not
known."""

_WAS, _NTH = quoted("_holdfast_was"), quoted("_holdfast_nth")
"""Of the kept rows with one key: whether there was a row at first, and the how maniest from the last each is."""

TOGETHER = 100
"""How many columns are added up at once: databases bound how deep an expression is."""


class SqlFile(SqlSink):
    """A table in a file. A subclass says how a number is made of a value."""

    path: Path

    def _identity(self) -> Hashable:
        return os.path.realpath(self.path), self._entry

    @abstractmethod
    def _number(self, column: str, value: str) -> str:
        """An expression for a number from 0 to 2**31 - 1 that another value, or another column, hardly ever has; never
        NULL. The same in every process and version."""

    def _number_of(self, row: str, columns: Sequence[str]) -> str:
        """An expression that stands for a row: a sum, so that a column can be added to it later."""
        numbers = [self._number(name, f"{row}.{quoted(name)}") for name in columns]
        parts = [numbers[at : at + TOGETHER] for at in range(0, len(numbers), TOGETHER)]
        return " + ".join(f"({' + '.join(part)})" for part in parts)

    def _number_of_all(self, db: Database) -> str:
        """A query for what stands for the whole table; a row without a value counts too."""
        # Bounded, or the sum of very many rows would be no number of SQLite's any more.
        number = f"1 + ({self._number_of('t', self._kept(db))}) % {1 << 31}"
        return f"SELECT COALESCE(SUM({number}), 0) FROM {self._named(self.table)} AS t"

    def _kept(self, db: Database) -> list[str]:
        """The columns that are kept, as far as the table still has them."""
        there = self._columns(db, self.table)
        return [name for name in self._columns(db, self._before) if name in there and name not in self._marks(0, 0)]

    # ---- in ----

    def _marks(self, epoch: int, existed: int) -> dict[str, str]:
        return {**super()._marks(epoch, existed), WROTE: "NULL"}

    def _apply(self, db: Database, stage: str, epoch: int, columns: list[str], *, whole: bool = True) -> None:
        super()._apply(db, stage, epoch, columns, whole=whole)
        if self.mode == "append":
            return
        # As the table has it now: it may hold a value in another type than it came in, and have triggers.
        before, now = self._named(self._before), f"{quoted(EPOCH)} = {epoch:d}"
        if self.mode == "upsert":
            number, same = self._number_of("t", self._kept(db)), f"b.{now} AND {self._same('t', 'b')}"
            table = self._named(self.table)
            db.execute(f"UPDATE {before} AS b SET {quoted(WROTE)} = {number} FROM {table} AS t WHERE {same}")
        else:
            number = f"({self._number_of_all(db)})"
            db.execute(f"UPDATE {before} SET {quoted(WROTE)} = {number} WHERE {now} AND {quoted(EXISTED)} = 0")

    def _fill(self, db: Database, column: str, default: str | None) -> None:
        super()._fill(db, column, default)
        before, wrote = self._named(self._before), quoted(WROTE)
        if self.mode == "overwrite":
            # Rows of epochs that lie back have the column too now, each as it was filled: it is not told any more.
            db.execute(f"UPDATE {before} SET {wrote} = NULL")
            return
        more = self._number(column, f"t.{quoted(column)}")
        into, table = f"UPDATE {before} AS b SET {wrote} = b.{wrote} + {more}", self._named(self.table)
        db.execute(f"{into} FROM {table} AS t WHERE {self._same('t', 'b')}")

    # ---- by others ----

    def _changed_by_others(self, db: Database, epoch: int) -> Sequence[str]:
        if WROTE not in self._columns(db, self._before):
            return ()
        before, table, keys = self._named(self._before), self._named(self.table), quoted(*self.key)
        if self.mode == "overwrite":
            last = f"FROM {before} WHERE {quoted(EXISTED)} = 0 ORDER BY {quoted(EPOCH)} DESC LIMIT 1"
            [(wrote, now)] = db.execute(f"SELECT (SELECT {quoted(WROTE)} {last}), ({self._number_of_all(db)})")
            if wrote in (None, now):
                return ()
            return [f"changes in {self.table}: its rows are not those that were written"]
        by_key = f"OVER (PARTITION BY {keys} ORDER BY {quoted(EPOCH)}"
        was, nth = f"FIRST_VALUE({quoted(EXISTED)}) {by_key}) AS {_WAS}", f"ROW_NUMBER() {by_key} DESC) AS {_NTH}"
        later = f"SELECT {keys}, {quoted(WROTE)}, {was}, {nth} FROM {before} WHERE {quoted(EPOCH)} > {epoch:d}"
        gone, other = f"t.{quoted(self.key[0])} IS NULL", f"{self._number_of('t', self._kept(db))} <> b.{quoted(WROTE)}"
        changed, taken = f"NOT {gone} AND {other}", f"{gone} AND b.{_WAS} = 1"
        counts = ", ".join(f"COUNT(CASE WHEN {which} THEN 1 END)" for which in (changed, taken))
        joined = f"({later}) AS b LEFT JOIN {table} AS t ON {self._same('t', 'b')}"
        return told(self.table, *map(int, db.execute(f"SELECT {counts} FROM {joined} WHERE b.{_NTH} = 1")[0]))
