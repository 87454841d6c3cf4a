"""A table in PostgreSQL."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa

from holdfast.decide.chain import Holder, Link, Marker, Step
from holdfast.errors import BadValue, HoldfastError, SinkUnavailable, SinkUnfit
from holdfast.sinks import postgres_catalog as catalog
from holdfast.sinks.contract import Target, WriteMode
from holdfast.sinks.postgres_others import XID, changed_by_others, own_again, written_by_others
from holdfast.sinks.postgres_session import Locked, Session, Sessions, shown, take_turns
from holdfast.sinks.postgres_types import are_taken, fits, surely_fit_a_row, type_of
from holdfast.sinks.sql import EPOCH, SqlSink
from holdfast.sinks.sql_marker import MARKERS, Database, Standing
from holdfast.sinks.sql_rows import Column, quoted, told
from holdfast.sinks.staged import Staged, StagedRows

__all__ = ["Postgres"]

PATIENCE_SECONDS = 30.0
"""How long a lock of somebody else on the table is waited for."""
FENCE_PATIENCE_SECONDS = 5.0
"""How long a fence waits for a driver that it overtakes, before it ends its sessions."""
DIRECT = ""
"""The load of an epoch whose rows go into the table with the commit, straight from their files."""
AHEAD_BYTES = 64 * 1024 * 1024
"""How much of an epoch's rows is kept in memory from the look through them to the commit."""
NAME_BYTES = 63
"""Longer names the server cuts, without an error."""


class Postgres(SqlSink):
    """Rows in a table of a PostgreSQL database, version 12 or newer; the table is made if it is not there.

    `url` is an address as libpq takes it; what it does not say (a password, certificates) comes from where libpq looks
    for it. `table` may name its schema ("sales.orders"), or `schema` does; else it is the first of the search path.
    Nested values are JSONB. Rows pass through the driver, a part at a time: appended to a table that can't refuse them
    they are copied into it with the commit; else they are loaded into an unlogged table beside it first.
    """

    def __init__(
        self, url: str, table: str, *, mode: WriteMode = "append", key: Sequence[str] = (), schema: str | None = None
    ) -> None:
        if schema is None and "." in table:
            schema, _, table = table.partition(".")
        super().__init__(table, mode, key)
        for name in (table, schema or "public"):
            if not 0 < len(name.encode()) <= NAME_BYTES:
                raise BadValue("table of a Postgres sink", f"{name!r} is not a name of 1 to {NAME_BYTES} bytes")
        self.schema = schema
        self._shown = shown(url)
        self._sessions = Sessions(url, lambda: self.name)
        self._sessions.begin("holdfast", PATIENCE_SECONDS)
        self._ahead: tuple[Staged, list[pa.RecordBatch]] | None = None

    @property
    def target(self) -> str:
        return f"{self._shown}#{self.schema + '.' if self.schema else ''}{self.table}"

    def _identity(self) -> Hashable:
        return self._sessions.url, self.schema, self.table

    def close(self) -> None:
        self._ahead = None
        self._sessions.close()

    # ---- the contract, as far as it is PostgreSQL's own ----

    def fence(self, holder: Holder, begin: Link) -> Marker:
        """As the contract has it. A driver that was paused in the middle of a transaction would hold the marker for as
        long as it sleeps: it is given a moment, then the server ends its sessions."""
        mine = _session_name(holder, holder.generation)
        self._sessions.begin(mine, FENCE_PATIENCE_SECONDS)
        try:
            return self._fence(holder, begin)
        except Locked:
            self._end_sessions_before(holder)
            return self._fence(holder, begin)
        finally:
            self._sessions.begin(mine, PATIENCE_SECONDS)

    def check(self, schema: pa.Schema) -> None:
        super().check(schema)
        with self._reading() as db:
            if why := self._why_unfit(db, schema):
                raise SinkUnfit(self.name, why)

    def _why_unfit(self, db: Database, schema: pa.Schema) -> str | None:
        table, namespace = self._named(self.table), self._namespace
        if not catalog.has_schema(db, namespace):
            return f"there is no schema {namespace}"
        kind = catalog.kind_of(db, table)
        if kind is None:
            may = catalog.may_make_tables(db, namespace)
            return None if may else f"the user of the database may not make tables in {namespace}"
        if kind not in "rp":
            return f"{self.table} is no table"
        if not catalog.may_write(db, table, self.mode, schema.names, self.key):
            return f"the user of the database may not {self.mode} rows in {self.table}"
        if missing := [name for name in catalog.needed_columns(db, table) if name not in schema.names]:
            return f"{', '.join(missing)} in {self.table} need a value, and the rows have none"
        if self.mode == "upsert" and not catalog.key_index(db, table, self.key):
            return f"{self.table} has no PRIMARY KEY or UNIQUE constraint on exactly {', '.join(self.key)}"
        return None

    def _why_not_back(self, db: Database, target: Target) -> str | None:
        found = self._marker(db)
        is_there = found is None or found.marker.at.epoch == target.at.epoch
        if (why := super()._why_not_back(db, target)) or is_there or not self._columns(db, self.table):
            return why
        return self._what_holds_rows(db)

    def _what_holds_rows(self, db: Database) -> str | None:
        return catalog.what_holds_rows(db, self._named(self.table), (EPOCH,) if self.mode == "append" else self.key)

    def keeps_way_back(self) -> bool:
        can = super().keeps_way_back()
        with self._reading() as db:
            return can and (not self._columns(db, self.table) or self._what_holds_rows(db) is None)

    def prepare(self, step: Step, rows: StagedRows) -> Any:
        if not self._goes_directly(rows):
            return super().prepare(step, rows)
        self.check(rows.schema)
        with self._reading() as db:
            self._held(db)
        self._rehearse(step, DIRECT, rows, whole=False)
        return {"stage": DIRECT}

    # ---- what a database has to say ----

    @contextmanager
    def _transaction(self) -> Iterator[Database]:
        with self._sessions.open() as session:
            session.execute("BEGIN")
            try:
                yield _Transaction(session)
            except BaseException:
                with suppress(HoldfastError):
                    session.execute("ROLLBACK")
                raise
            try:
                session.execute("COMMIT")
            except SinkUnavailable as error:
                why = f"{error.why}; whether it went through is not known, and trying again tells"
                raise SinkUnavailable(self.name, "COMMIT", why) from error

    @contextmanager
    def _reading(self) -> Iterator[Database]:
        with self._sessions.open() as session:
            yield session

    def _columns(self, db: Database, table: str) -> dict[str, str]:
        return catalog.columns_of(db, self._named(table))

    def _writable(self, db: Database) -> dict[str, Column]:
        return catalog.writable_columns(db, self._named(self.table))

    def _type(self, field: pa.Field) -> str:
        kind = type_of(field.type)
        if kind is None:
            raise SinkUnfit(self.name, f"the column {field.name} is a {field.type}, which PostgreSQL has no type for")
        return kind

    def _fits(self, wanted: str, found: str) -> bool:
        return fits(wanted, found)

    def _load(self, stage: str, rows: pa.RecordBatchReader, columns: dict[str, str]) -> None:
        self._drop_stage(stage)
        with self._sessions.open() as session:
            there, named = self._columns(session, self.table), self._named(stage)
            if there:
                like = f"LIKE {self._named(self.table)} INCLUDING CONSTRAINTS"
                session.execute(f"CREATE UNLOGGED TABLE {named} ({like})")
                others = [f"DROP COLUMN {quoted(name)} CASCADE" for name in there if name not in columns]
                if others:
                    session.execute(f"ALTER TABLE {named} {', '.join(others)}")
            else:
                defined = ", ".join(f"{quoted(name)} {kind}" for name, kind in columns.items())
                session.execute(f"CREATE UNLOGGED TABLE {named} ({defined})")
            session.fill(self._namespace, stage, rows, {**columns, **there})

    def _has_stage(self, db: Database, stage: str) -> bool:
        return bool(self._columns(db, stage))

    def _is_whole(self, db: Database, stage: str, rows: int) -> bool:
        """One COPY loads all of them or none, and a crash of the server leaves none: a single row tells."""
        if stage == DIRECT:
            return True
        there = self._has_stage(db, stage)
        return there and bool(db.execute(f"SELECT 1 FROM {self._named(stage)} LIMIT 1")) == (rows > 0)

    def _drop_stage(self, stage: str) -> None:
        if stage == DIRECT:
            return
        with self._sessions.open() as session:
            session.execute(f"DROP TABLE IF EXISTS {self._named(stage)}")

    def _named(self, table: str) -> str:
        return f"{quoted(self._namespace)}.{quoted(table)}"

    def _staged(self, stage: str) -> str:
        return self._named(stage)

    # ---- rows ----

    def _changed_by_others(self, db: Database, epoch: int) -> Sequence[str]:
        table, before = self._named(self.table), self._named(self._before)
        if XID not in self._columns(db, self._before):
            return ()
        if not catalog.may_see_all(db, table):
            return [f"changes in {self.table}, if any: the user may not read all of it, and they can't be told"]
        if isinstance(db, _Transaction):
            # Whoever is writing is waited for: what they change after the look would be lost unseen.
            db.execute(f"LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE")
        if self.mode == "upsert":
            return told(self.table, *changed_by_others(db, table, before, self.key, epoch))
        return told(self.table, written_by_others(db, table, before))

    def _goes_directly(self, rows: StagedRows) -> bool:
        """Whether neither the table nor the server can refuse the rows: then they need not be loaded before.

        That halves the work. It is so for a table that the sink has made and nobody has changed. Rows that were looked
        through for it are kept for the commit, if they are not too many, and need not be read a second time.
        """
        if self.mode != "append":
            return False
        wanted, ahead, size = self._wanted(rows.schema), list[pa.RecordBatch](), 0
        if not surely_fit_a_row([*wanted.values(), "bigint"]):
            return False
        with self._sessions.open() as session:
            there = self._columns(session, self.table)
            there.pop(EPOCH, None)
            if there not in ({}, wanted) or not catalog.is_plain(session, self._named(self.table), list(wanted)):
                return False
            for batch in rows.batches():
                encoded = session.encoded(batch, wanted)
                if not all(map(are_taken, encoded.columns, wanted.values())):
                    return False
                ahead.append(batch)
                size += batch.nbytes
                if size > AHEAD_BYTES:
                    ahead.clear()
        self._ahead = (rows.staged, ahead) if size <= AHEAD_BYTES else None
        return True

    def _put(self, db: Database, stage: str, epoch: int, rows: StagedRows, *, whole: bool = True) -> None:
        if stage != DIRECT:
            super()._put(db, stage, epoch, rows, whole=whole)
            return
        assert isinstance(db, _Transaction)
        schema, batches = rows.schema, rows.batches() if whole else iter(())
        if whole and self._ahead is not None and self._ahead[0] == rows.staged:
            batches = iter(self._ahead[1])
        if EPOCH in self._columns(db, self.table):
            schema = schema.append(pa.field(EPOCH, pa.int64()))
            batches = _with_epoch(batches, epoch, schema)
        reader = pa.RecordBatchReader.from_batches(schema, batches)
        db.session.fill(self._namespace, self.table, reader, {**self._wanted(rows.schema), EPOCH: "bigint"})
        if whole:
            self._ahead = None

    def _apply(self, db: Database, stage: str, epoch: int, columns: list[str], *, whole: bool = True) -> None:
        super()._apply(db, stage, epoch, columns, whole=whole)
        # What was deferred is told now, also in a rehearsal, which has no end where it would be.
        db.execute("SET CONSTRAINTS ALL IMMEDIATE")

    def _replace(self, db: Database, source: str, columns: list[str]) -> None:
        """In place, and not by taking them out first: other tables may refer to them, or have columns of their own."""
        names = quoted(*columns)
        changed = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in columns if name not in self.key)
        act = f"UPDATE SET {changed}" if changed else "NOTHING"
        into = f"INSERT INTO {self._named(self.table)} ({names}) SELECT {names} FROM {source}"
        db.execute(f"{into} ON CONFLICT ({quoted(*self.key)}) DO {act}")

    def _put_back(self, db: Database, source: str, columns: list[str]) -> None:
        names = quoted(*columns)
        into = f"INSERT INTO {self._named(self.table)} ({names}) OVERRIDING SYSTEM VALUE"
        db.execute(f"{into} SELECT {names} FROM {source}")

    def _undo(self, db: Database, epoch: int) -> None:
        if self.mode != "append" and XID in self._columns(db, self._before):
            own_again(db, self._named(self._before), self.key, epoch)
        super()._undo(db, epoch)
        db.execute("SET CONSTRAINTS ALL IMMEDIATE")

    def _marks(self, epoch: int, existed: int) -> dict[str, str]:
        return {**super()._marks(epoch, existed), XID: "(SELECT txid_current())"}

    def _refuse_bad_keys(self, db: Database, stage: str) -> None:
        """By the same index that the table has: it also tells of keys that are too long for one."""
        if self.mode == "upsert":
            db.execute(f"ALTER TABLE {self._named(stage)} ADD PRIMARY KEY ({quoted(*self.key)})")

    def _has_own_rules(self, db: Database, columns: list[str]) -> bool:
        table = self._named(self.table)
        proven = catalog.key_index(db, table, self.key) if self.mode == "upsert" else ""
        kinds = [*self._columns(db, self.table).values(), *["bigint" for _ in self._marks(0, 0)]]
        return catalog.has_own_rules(db, table, columns, proven) or not surely_fit_a_row(kinds)

    # ---- tables ----

    @property
    def _namespace(self) -> str:
        return self.schema or self._sessions.schema

    @property
    def _before(self) -> str:
        return _short(self.table, "_holdfast_before")

    def _why_no_name(self, name: str) -> str | None:
        if why := super()._why_no_name(name):
            return why
        if len(name.encode()) > NAME_BYTES:
            return f"it has more than {NAME_BYTES} bytes"
        return "every table has such a column of the server's own" if name in catalog.SYSTEM_COLUMNS else None

    def _stage(self, step: Step) -> str:
        holder = self._mine()
        return f"{self._stage_prefix}{holder.generation}_{step.epoch}_{holder.token[:8]}"

    @property
    def _stage_prefix(self) -> str:
        return _short(self.table, "_holdfast_", room=32)

    def _sweep(self, holder: Holder) -> None:
        """Take away what drivers before this one have loaded: what of it was decided is loaded again from its files."""
        with self._reading() as db:
            found = catalog.unlogged_tables(db, quoted(self._namespace), self._stage_prefix)
        for name in found:
            of = re.fullmatch(r"(\d+)_\d+_[^_]{0,8}", name.removeprefix(self._stage_prefix))
            if of and int(of[1]) < holder.generation:
                self._drop_stage(name)

    # ---- the marker ----

    def _fence(self, holder: Holder, begin: Link) -> Marker:
        with self._reading() as db:
            there = bool(self._columns(db, MARKERS))
        if not there:
            # Two that make it at once would see the second fail.
            with self._transaction() as db:
                take_turns(db, self._named(MARKERS))
                super()._make_markers(db)
        marker = super().fence(holder, begin)
        self._sweep(holder)
        return marker

    def _make_markers(self, db: Database) -> None:
        """There is no row yet that two who fence a new sink could lock: they take turns by its name."""
        take_turns(db, self._named(self.table))

    def _marker(self, db: Database) -> Standing | None:
        if isinstance(db, _Transaction) and self._columns(db, MARKERS):
            db.execute(f"SELECT 1 FROM {self._named(MARKERS)} WHERE target = ?1 FOR UPDATE", (self._entry,))
        return super()._marker(db)

    def _end_sessions_before(self, holder: Holder) -> None:
        """End what lower generations of the same pipeline have open. Whatever they had under way is undone."""
        with self._reading() as db:
            ours = "datname = current_database() AND application_name LIKE 'holdfast %'"
            for pid, name in db.execute(f"SELECT pid, application_name FROM pg_stat_activity WHERE {ours}"):
                generation = name.rpartition(" ")[2]
                stale = generation.isdecimal() and int(generation) < holder.generation
                if stale and name == _session_name(holder, int(generation)):
                    db.execute("SELECT pg_terminate_backend(?1::integer)", (pid,))


class _Transaction:
    """A session in which a transaction is open."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.execute = session.execute


def _with_epoch(rows: Iterable[pa.RecordBatch], epoch: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in rows:
        same = pa.repeat(pa.scalar(epoch, pa.int64()), batch.num_rows)
        yield pa.RecordBatch.from_arrays([*batch.columns, same], schema=schema)


def _session_name(holder: Holder, generation: int) -> str:
    return f"holdfast {holder.pipeline_id[:36]} {generation}"


def _short(name: str, suffix: str, room: int = 0) -> str:
    """A name with its suffix that the server does not cut, with room for more; a long one ends in its digest."""
    size = NAME_BYTES - len(suffix) - room
    if len(name.encode()) > size:
        digest = hashlib.sha256(name.encode()).hexdigest()[:8]
        name = f"{name.encode()[: size - 9].decode(errors='ignore')}_{digest}"
    return name + suffix
