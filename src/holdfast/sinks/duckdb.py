"""A table in a DuckDB file, for one machine."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import duckdb
import pyarrow as pa

from holdfast.errors import HoldfastError, SinkUnavailable, SinkUnfit
from holdfast.ids import new_token
from holdfast.sinks.contract import WriteMode
from holdfast.sinks.sql_file import SqlFile
from holdfast.sinks.sql_marker import Database
from holdfast.sinks.sql_rows import Column, listed, literal, quoted, remembering

__all__ = ["DuckDB"]

PATIENCE_SECONDS = 30.0
"""How long another who has the file open is waited for."""
LOOK_SECONDS = 0.02

_RULES = re.compile(r"\b(CHECK|UNIQUE|REFERENCES|NOT NULL|COLLATE|GENERATED)\b", re.IGNORECASE)
"""Words with which a table says that it does not take every row."""

_WHOLE = (
    "TINYINT",
    "SMALLINT",
    "INTEGER",
    "BIGINT",
    "HUGEINT",
    "UTINYINT",
    "USMALLINT",
    "UINTEGER",
    "UBIGINT",
    "UHUGEINT",
)
_TAKEN_BY = {
    **dict.fromkeys(_WHOLE, (*_WHOLE, "DECIMAL")),
    "FLOAT": ("FLOAT", "DOUBLE"),
    "VARCHAR": ("VARCHAR", "UUID", "JSON", "ENUM"),
}


_FILED = "database_name = 'filed' AND schema_name = 'main' AND lower(table_name) = lower(?1)"


class DuckDB(SqlFile):
    """Rows in a table of a DuckDB file; both are made if they are not there. Nested values stay nested.

    DuckDB lets one process at a time write to a file, and nobody read meanwhile: the file is open only while an epoch
    is moved in, or the marker is looked at, and readers get in between. Whoever keeps it open keeps the sink waiting.
    A whole epoch is held in memory while it is loaded; what is too much for that goes to a folder beside the file.
    """

    folds_case: ClassVar[bool] = True

    def __init__(self, path: str | Path, table: str, *, mode: WriteMode = "append", key: Sequence[str] = ()) -> None:
        super().__init__(table, mode, key)
        self.path = Path(path)
        self._turn = threading.Lock()
        self._stages = self._connect()

    @property
    def target(self) -> str:
        return f"duckdb:{self.path}#{self.table}"

    def close(self) -> None:
        self._stages.close()

    # ---- the file ----

    @contextmanager
    def _transaction(self) -> Iterator[Database]:
        with self._attached(read_only=False) as db:
            db.execute("BEGIN")
            try:
                yield db
            except BaseException:
                with suppress(HoldfastError):
                    db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")

    @contextmanager
    def _reading(self) -> Iterator[Database]:
        with self._attached(read_only=True) as db:
            yield db

    @contextmanager
    def _attached(self, read_only: bool) -> Iterator[Database]:
        """The file beside the loads: it is open only here."""
        with self._turn, closing(self._stages.cursor()) as cursor:
            if not read_only and not self.path.exists():
                self._make_file()
            self._attach(cursor, read_only)
            try:
                yield _Connection(cursor, self.name)
            finally:
                try:
                    cursor.execute("DETACH filed")
                except duckdb.Error:
                    # After a fatal error nothing works any more; what was loaded is loaded again.
                    self._stages.close()
                    self._stages = self._connect()

    def _make_file(self) -> None:
        """Whole or not at all: a kill in the middle would leave one that DuckDB refuses to open."""
        made = self.path.with_name(f"{self.path.name}.{new_token()[:8]}")
        try:
            duckdb.connect(made).close()
            with suppress(FileExistsError):
                os.link(made, self.path)
        except (duckdb.Error, OSError) as error:
            raise SinkUnavailable(self.name, "make the file", str(error)) from error
        finally:
            made.unlink(missing_ok=True)
        # DuckDB syncs its files; that there is one is for the folder to know.
        descriptor = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _attach(self, cursor: duckdb.DuckDBPyConnection, read_only: bool) -> None:
        where, options = str(self.path.absolute()), " (READ_ONLY)" if read_only else ""
        if read_only and not self.path.exists():
            where, options = ":memory:", ""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                cursor.execute(f"ATTACH {literal(where)} AS filed{options}")
                return
            except duckdb.Error as error:
                # One that another process holds, or another connection of this one.
                is_held = re.search("Could not set lock|file handle conflict", str(error))
                if not is_held or time.monotonic() > deadline:
                    raise SinkUnavailable(self.name, "open", str(error)) from error
            time.sleep(LOOK_SECONDS)

    def _connect(self) -> duckdb.DuckDBPyConnection:
        return duckdb.connect(":memory:", config={"temp_directory": f"{self.path.absolute()}.tmp"})

    # ---- what a database has to say ----

    @property
    def _entry(self) -> str:
        return self.table.lower()

    def _columns(self, db: Database, table: str) -> dict[str, str]:
        return dict(self._listing(db, table, "column_name, data_type"))

    def _writable(self, db: Database) -> dict[str, Column]:
        found = self._listing(db, self.table, "column_name, data_type, is_nullable, column_default, is_generated")
        # A sequence is found only by the table that it belongs to.
        defaults = {row[0]: None if "nextval" in str(row[3]) else row[3] for row in found}
        return {row[0]: Column(row[1], not row[2], defaults[row[0]]) for row in found if not row[4]}

    def _listing(self, db: Database, table: str, what: str) -> list[tuple[Any, ...]]:
        listing = f"SELECT {what} FROM duckdb_columns() WHERE {_FILED} ORDER BY column_index"
        return db.execute(listing, (table,))

    def _sql(self, db: Database) -> str:
        found = db.execute(f"SELECT sql FROM duckdb_tables() WHERE {_FILED}", (self.table,))
        return str(found[0][0]) if found else ""

    def _refuse_table(self, db: Database) -> None:
        if self.mode != "upsert":
            return
        types, sql = self._columns(db, self.table), self._sql(db)
        # Its indexes mind no collation: two rows could have one key.
        collated = [name for name in self.key if re.search(rf'\b"?{re.escape(name)}"? VARCHAR COLLATE', sql)]
        if collated:
            raise SinkUnfit(self.name, f"the key {listed(collated)} of {self.table} has a collation")
        unique = "constraint_type IN ('PRIMARY KEY', 'UNIQUE')"
        constraints = f"SELECT constraint_column_names FROM duckdb_constraints() WHERE {_FILED} AND {unique}"
        if not any(set(columns) == set(self.key) for (columns,) in db.execute(constraints, (self.table,))):
            if any(re.search(r"[(\[]", types[name]) and not types[name].startswith("DECIMAL") for name in self.key):
                # DuckDB has no index for nested columns.
                return
            why = f"{self.table} has no PRIMARY KEY or UNIQUE constraint on exactly {listed(self.key)}"
            raise SinkUnfit(self.name, why)

    def _has_own_rules(self, db: Database, columns: list[str]) -> bool:
        unique = f"SELECT 1 FROM duckdb_indexes() WHERE {_FILED} AND is_unique"
        altered = _RULES.search(self._sql(db)) is not None or bool(db.execute(unique, (self.table,)))
        return altered or super()._has_own_rules(db, columns)

    def _type(self, field: pa.Field) -> str:
        kind = _type_of(field.type)
        if kind is None:
            raise SinkUnfit(self.name, f"the column {field.name} is a {field.type}, which DuckDB has no type for")
        return kind

    def _fits(self, wanted: str, found: str) -> bool:
        family, name = wanted.partition("(")[0], found.partition("(")[0]
        if family == name == "DECIMAL":
            return _scale(found) >= _scale(wanted)
        # Types with others in them are only equal or not.
        return wanted == found or name in _TAKEN_BY.get(wanted, ())

    def _load(self, stage: str, rows: pa.RecordBatchReader, columns: dict[str, str]) -> None:  # noqa: ARG002
        failed: list[Exception] = []
        reader = pa.RecordBatchReader.from_batches(rows.schema, remembering(rows, failed))
        with closing(self._stages.cursor()) as cursor:
            try:
                cursor.register("incoming", reader)
                cursor.execute(f"CREATE OR REPLACE TABLE {self._staged(stage)} AS SELECT * FROM incoming")
            except duckdb.Error as error:
                raise (failed[0] if failed else _told(self.name, "load", error)) from error

    def _has_stage(self, db: Database, stage: str) -> bool:
        where = "database_name = 'memory' AND table_name = ?1"
        return bool(db.execute(f"SELECT 1 FROM duckdb_tables() WHERE {where}", (stage,)))

    def _drop_stage(self, stage: str) -> None:
        with closing(self._stages.cursor()) as cursor:
            cursor.execute(f"DROP TABLE IF EXISTS {self._staged(stage)}")

    def _named(self, table: str) -> str:
        return f"filed.main.{quoted(table)}"

    def _staged(self, stage: str) -> str:
        return f"memory.main.{quoted(stage)}"

    def _number(self, column: str, value: str) -> str:
        # Not hash(), which another version may answer otherwise.
        named = f"{literal(column + '=')} || CAST({value} AS VARCHAR)"
        return f"COALESCE(CAST(md5_number_lower({named}) % 2147483648 AS BIGINT), 0)"

    def _primary_key(self, schema: pa.Schema) -> Sequence[str]:
        """None on nested columns, which DuckDB has no index for; rows are told apart by them all the same."""
        return () if any(pa.types.is_nested(schema.field(column).type) for column in self.key) else self.key


class _Connection:
    """Runs statements with our own names for what goes wrong."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection, name: str) -> None:
        self._cursor = cursor
        self._name = name

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._cursor.execute(statement, values).fetchall()
        except duckdb.Error as error:
            raise _told(self._name, statement.split()[0], error) from error


def _told(sink: str, action: str, error: duckdb.Error) -> HoldfastError:
    if isinstance(error, (duckdb.IntegrityError, duckdb.DataError, duckdb.ProgrammingError, duckdb.NotSupportedError)):
        return SinkUnfit(sink, str(error))
    return SinkUnavailable(sink, action, str(error))


@lru_cache(maxsize=256)
def _type_of(kind: pa.DataType) -> str | None:
    """What DuckDB itself makes of it; None for what it can't read."""
    if pa.types.is_null(kind):
        return None
    try:
        with closing(duckdb.connect(":memory:")) as connection:
            return str(connection.from_arrow(pa.schema([("c", kind)]).empty_table()).types[0])
    except duckdb.Error:
        return None


def _scale(kind: str) -> int:
    return int(kind.rstrip(")").rpartition(",")[2])
