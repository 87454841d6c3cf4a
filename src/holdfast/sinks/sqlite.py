"""A table in a SQLite file, for one machine."""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from holdfast.errors import SinkUnavailable, SinkUnfit
from holdfast.sinks.contract import WriteMode
from holdfast.sinks.sql import EPOCH, Rehearsed
from holdfast.sinks.sql_file import SqlFile
from holdfast.sinks.sql_marker import Database
from holdfast.sinks.sql_rows import Column, listed, literal, quoted
from holdfast.sinks.sqlite_values import affinity, number_of, type_of, values_of

__all__ = ["SQLite"]

PATIENCE_SECONDS = 30.0
"""How long another writer of the file is waited for."""


_RULES = re.compile(r"\b(CHECK|UNIQUE|REFERENCES|NOT\s+NULL|COLLATE|STRICT|AS\s*\()", re.IGNORECASE)
"""Words with which a table says that it does not take every row."""
_NUMBER = "holdfast_number"
"""What `number_of` is called in a statement."""
_UNFIT = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH)
"""What will not do at another time either."""


class SQLite(SqlFile):
    """Rows in a table of a SQLite file; both are made if they are not there.

    Times are text in UTC, decimals text with all their digits, and nested values JSON, since SQLite has no such types;
    NaN is NULL, for the same reason. The file takes one writer at a time: give two sinks of a pipeline a file each. A
    whole epoch is held in memory while it is loaded.
    """

    folds_case: ClassVar[bool] = True

    def __init__(self, path: str | Path, table: str, *, mode: WriteMode = "append", key: Sequence[str] = ()) -> None:
        super().__init__(table, mode, key)
        self.path = Path(path)
        self._turn = threading.Lock()
        """One connection is all there is, and whoever looks may come from any thread."""
        self._stages = _connect()

    @property
    def target(self) -> str:
        return f"sqlite:{self.path}#{self.table}"

    def close(self) -> None:
        self._stages.close()

    @contextmanager
    def _transaction(self) -> Iterator[Database]:
        with self._attached(str(self.path)) as db:
            # Begins as a writer: one that reads first could be refused in the middle.
            db.execute("BEGIN IMMEDIATE")
            yield db
            # Fails while somebody reads. It is still open then, and ended with the file.
            db.execute("COMMIT")

    @contextmanager
    def _reading(self) -> Iterator[Database]:
        # To attach a file that is not there would make it.
        with self._attached(str(self.path) if self.path.exists() else ":memory:") as db:
            yield db

    @contextmanager
    def _attached(self, place: str) -> Iterator[Database]:
        """The file beside the loads: it is locked only in a transaction, and open only here."""
        with self._turn:
            db = _Connection(self._stages, self.name)
            db.execute("ATTACH DATABASE ?1 AS filed", (place,))
            try:
                db.execute(f"PRAGMA filed.busy_timeout = {PATIENCE_SECONDS * 1000:.0f}")
                db.execute("PRAGMA filed.synchronous = FULL")
                yield db
            finally:
                self._let_go()

    def _let_go(self) -> None:
        """Leave the file unlocked, whatever has happened, and without an error that would hide the first."""
        try:
            if self._stages.in_transaction:
                self._stages.execute("ROLLBACK")
            self._stages.execute("DETACH DATABASE filed")
        except sqlite3.Error:
            # What was loaded goes as well, and is loaded again.
            self._stages.close()
            self._stages = _connect()

    @property
    def _entry(self) -> str:
        return self.table.lower()

    def _columns(self, db: Database, table: str) -> dict[str, str]:
        return {row[1]: row[2] for row in db.execute(f"PRAGMA filed.table_info({quoted(table)})")}

    def _writable(self, db: Database) -> dict[str, Column]:
        found = db.execute(f"PRAGMA filed.table_info({quoted(self.table)})")
        return {name: Column(kind, bool(needed), default) for _, name, kind, needed, default, _ in found}

    def _collations(self, db: Database) -> dict[str, str]:
        """Only an index tells how a column is compared: one without rows is made for it, and taken away."""
        if self.mode != "upsert" or not re.search(r"\bCOLLATE\b", self._sql(db), re.IGNORECASE):
            return {}
        probe = f"{self.table}_holdfast_probe"
        db.execute(f"CREATE INDEX filed.{quoted(probe)} ON {quoted(self.table)} ({quoted(*self.key)}) WHERE 0")
        own = self._index_of(db, probe)
        db.execute(f"DROP INDEX filed.{quoted(probe)}")
        other = [name for name in own if all(index.get(name) != own[name] for index in self._key_indexes(db))]
        if other:
            raise SinkUnfit(self.name, f"the key {listed(other)} of {self.table} is unique by another collation")
        return {name: collation for name, collation in own.items() if collation != "BINARY"}

    def _sql(self, db: Database) -> str:
        found = db.execute("SELECT sql FROM filed.sqlite_master WHERE lower(name) = lower(?1)", (self.table,))
        return str(found[0][0]) if found else ""

    def _index_of(self, db: Database, index: str) -> dict[str, str]:
        """The columns of an index and how it compares them."""
        found = db.execute(f"PRAGMA filed.index_xinfo({quoted(index)})")
        return {row[2]: row[4] for row in found if row[5]}

    def _key_indexes(self, db: Database) -> list[dict[str, str]]:
        """What tells rows with one key apart; a column that is the row's own number has no index."""
        listing = db.execute(f"PRAGMA filed.index_list({quoted(self.table)})")
        found = [self._index_of(db, name) for _, name, unique, _, partial in listing if unique and not partial]
        columns = db.execute(f"PRAGMA filed.table_info({quoted(self.table)})")
        primary = dict.fromkeys((row[1] for row in columns if row[5]), "BINARY")
        has_index = any(origin == "pk" for _, _, _, origin, _ in listing)
        return [index for index in (found if has_index else [*found, primary]) if set(index) == set(self.key)]

    def _refuse_table(self, db: Database) -> None:
        if self.mode == "upsert" and not self._key_indexes(db):
            why = f"{self.table} has no PRIMARY KEY or UNIQUE constraint on exactly {listed(self.key)}"
            raise SinkUnfit(self.name, why)

    def _has_own_rules(self, db: Database, columns: list[str]) -> bool:
        more = "SELECT 1 FROM filed.sqlite_master WHERE lower(tbl_name) = lower(?1) AND type <> 'table' AND sql <> ''"
        altered = _RULES.search(self._sql(db)) is not None or bool(db.execute(more, (self.table,)))
        return altered or super()._has_own_rules(db, columns)

    def _type(self, field: pa.Field) -> str:
        kind = type_of(field.type)
        if kind is None:
            raise SinkUnfit(self.name, f"the column {field.name} is a {field.type}, which SQLite has no type for")
        return kind

    def _fits(self, wanted: str, found: str) -> bool:
        """SQLite's own rules of affinity, by the words in a type."""
        return affinity(found) in (wanted, "NUMERIC" if wanted in ("INTEGER", "REAL") else wanted)

    def _load(self, stage: str, rows: pa.RecordBatchReader, columns: dict[str, str]) -> None:
        self._drop_stage(stage)
        collated: dict[str, str] = {}
        if self.mode == "upsert":
            # Two keys that the table takes for one must be one here as well.
            with suppress(Rehearsed), self._transaction() as db:
                collated = {name: f"{columns[name]} COLLATE {found}" for name, found in self._collations(db).items()}
                raise Rehearsed
        defined = ", ".join(f"{quoted(name)} {kind}" for name, kind in (columns | collated).items())
        insert = f"INSERT INTO main.{quoted(stage)} VALUES ({', '.join('?' * len(columns))})"
        with self._turn, closing(self._stages.cursor()) as cursor:
            cursor.execute("BEGIN")
            try:
                cursor.execute(f"CREATE TABLE main.{quoted(stage)} ({defined})")
                for batch in rows:
                    values = [values_of(column) for column in batch.columns]
                    cursor.executemany(insert, zip(*values, strict=True))
            except BaseException as error:
                cursor.execute("ROLLBACK")
                if isinstance(error, (pa.ArrowInvalid, OverflowError, sqlite3.Error)):
                    raise SinkUnfit(self.name, str(error)) from error
                raise
            cursor.execute("COMMIT")

    def _has_stage(self, db: Database, stage: str) -> bool:
        return bool(db.execute("SELECT 1 FROM main.sqlite_master WHERE name = ?1", (stage,)))

    def _drop_stage(self, stage: str) -> None:
        with self._turn:
            self._stages.execute(f"DROP TABLE IF EXISTS main.{quoted(stage)}")

    def _make_room(self, db: Database, columns: list[str]) -> list[str]:
        kept = super()._make_room(db, columns)
        index, by_epoch = quoted(f"{self._before}_epochs"), f"{quoted(self._before)} ({quoted(EPOCH)})"
        # Each commit looks for the rows of one epoch among all that are kept.
        db.execute(f"CREATE INDEX IF NOT EXISTS filed.{index} ON {by_epoch}")
        return kept

    def _number(self, column: str, value: str) -> str:
        return f"{_NUMBER}({literal(column)}, {value})"

    def _named(self, table: str) -> str:
        return f"filed.{quoted(table)}"

    def _staged(self, stage: str) -> str:
        return f"main.{quoted(stage)}"


class _Connection:
    """Runs statements with our own names for what goes wrong."""

    def __init__(self, connection: sqlite3.Connection, name: str) -> None:
        self._connection = connection
        self._name = name

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        try:
            with closing(self._connection.execute(statement, values)) as cursor:
                return cursor.fetchall()
        except sqlite3.Error as error:
            # The low byte says what went wrong, the others where.
            if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF in _UNFIT:
                raise SinkUnfit(self._name, str(error)) from error
            raise SinkUnavailable(self._name, statement.split()[0], str(error)) from error


def _connect() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.create_function(_NUMBER, 2, number_of, deterministic=True)
    return connection
