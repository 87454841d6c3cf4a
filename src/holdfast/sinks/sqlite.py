"""A table in a SQLite file, for one machine."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.errors import SinkUnavailable, SinkUnfit
from holdfast.sinks.contract import WriteMode
from holdfast.sinks.sql import SqlSink, quoted
from holdfast.sinks.sql_marker import Database

__all__ = ["SQLite"]

PATIENCE_SECONDS = 30.0
"""How long another writer of the file is waited for."""


class SQLite(SqlSink):
    """Rows in a table of a SQLite file; both are made if they are not there.

    Times are text in UTC, decimals text, and nested values JSON, since SQLite has no such types. The file takes one
    writer at a time: give two sinks of a pipeline a file each. A whole epoch is held in memory while it is loaded.
    """

    def __init__(self, path: str | Path, table: str, *, mode: WriteMode = "append", key: Sequence[str] = ()) -> None:
        super().__init__(table, mode, key)
        self.path = Path(path)
        self._turn = threading.Lock()
        """One connection is all there is, and whoever looks may come from any thread."""
        self._stages = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)

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
            try:
                yield db
            except BaseException:
                db.execute("ROLLBACK")
                raise
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
                db.execute("DETACH DATABASE filed")

    @property
    def _entry(self) -> str:
        return self.table.lower()

    def _columns(self, db: Database, table: str) -> dict[str, str]:
        return {row[1]: row[2] for row in db.execute(f"PRAGMA filed.table_info({quoted(table)})")}

    def _type(self, field: pa.Field) -> str:
        kind = field.type
        if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
            return "INTEGER"
        if pa.types.is_floating(kind):
            return "REAL"
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
            return "BLOB"
        if pa.types.is_duration(kind) or pa.types.is_interval(kind):
            raise SinkUnfit(self.name, f"the column {field.name} is a {kind}, which SQLite has no type for")
        return "TEXT"

    def _fits(self, wanted: str, found: str) -> bool:
        """SQLite's own rules of affinity, by the words in a type."""
        return _affinity(found) in (wanted, "NUMERIC" if wanted in ("INTEGER", "REAL") else wanted)

    def _load(self, stage: str, rows: pa.RecordBatchReader, columns: dict[str, str]) -> None:
        self._drop_stage(stage)
        defined = ", ".join(f"{quoted(name)} {kind}" for name, kind in columns.items())
        places = ", ".join("?" * len(columns))
        with self._turn, closing(self._stages.cursor()) as cursor:
            cursor.execute("BEGIN")
            try:
                cursor.execute(f"CREATE TABLE main.{quoted(stage)} ({defined})")
                for batch in rows:
                    values = [_values(column) for column in batch.columns]
                    insert = f"INSERT INTO main.{quoted(stage)} VALUES ({places})"
                    cursor.executemany(insert, zip(*values, strict=True))
            except BaseException:
                cursor.execute("ROLLBACK")
                raise
            cursor.execute("COMMIT")

    def _has_stage(self, db: Database, stage: str) -> bool:
        return bool(db.execute("SELECT 1 FROM main.sqlite_master WHERE name = ?1", (stage,)))

    def _drop_stage(self, stage: str) -> None:
        with self._turn:
            self._stages.execute(f"DROP TABLE IF EXISTS main.{quoted(stage)}")

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
        except sqlite3.OperationalError as error:
            raise SinkUnavailable(self._name, statement.split()[0], str(error)) from error
        except sqlite3.IntegrityError as error:
            raise SinkUnfit(self._name, str(error)) from error


def _values(column: pa.Array) -> list[Any]:
    """The values of a column as SQLite takes them."""
    kind = column.type
    values: list[Any] = column.to_pylist()
    if pa.types.is_timestamp(kind):
        return [value and value.strftime("%Y-%m-%d %H:%M:%S.%f") for value in values]
    if pa.types.is_nested(kind):
        return [None if value is None else json.dumps(value, default=str, sort_keys=True) for value in values]
    if pa.types.is_decimal(kind) or pa.types.is_date(kind) or pa.types.is_time(kind):
        return [None if value is None else str(value) for value in values]
    return values


def _affinity(declared: str) -> str:
    words: list[tuple[str, str]] = [
        ("INT", "INTEGER"),
        ("CHAR", "TEXT"),
        ("CLOB", "TEXT"),
        ("TEXT", "TEXT"),
        ("BLOB", "BLOB"),
        ("REAL", "REAL"),
        ("FLOA", "REAL"),
        ("DOUB", "REAL"),
    ]
    upper = declared.upper()
    return next((affinity for word, affinity in words if word in upper), "NUMERIC" if upper else "BLOB")
