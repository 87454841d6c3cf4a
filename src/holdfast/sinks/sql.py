"""What sinks in a database have in common: rows are loaded beside the table, then moved in with the marker.

A load takes as long as it takes and holds no lock that another driver would wait for; the one transaction after the
decision only moves rows that are in the database already. For going back, appended rows carry their epoch, and of
rows that are replaced the old ones are kept in a table of their own.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ClassVar, NamedTuple, Protocol

import pyarrow as pa

from holdfast.decide.chain import Holder, Link, Marker, Step, admit, go_back, raise_fence, require_holder
from holdfast.errors import DamagedRecord, SinkUnfit
from holdfast.sinks.contract import Sink, Target, WriteMode
from holdfast.sinks.staged import StagedRows

__all__ = ["EPOCH", "MARKERS", "Database", "SqlSink", "quoted"]

MARKERS = "holdfast_sinks"
EPOCH = "_holdfast_epoch"
"""The epoch that a row came with, in a table that is appended to."""
EXISTED = "_holdfast_existed"
"""Whether there was a row before; if not, going back deletes it."""

_MARKER = ("pipeline_id", "generation", "token", "epoch", "offsets", "decided", "kept_from", "made_here")


class _Standing(NamedTuple):
    """The marker, the epoch from which on replaced rows are kept, and whether the table was made by a sink."""

    marker: Marker
    kept_from: int
    made_here: bool = False


class _Rehearsed(Exception):
    """Ends a transaction that was only to show whether it would go through."""


class Database(Protocol):
    """A connection that runs statements; parameters stand as ?1, ?2 or as the database writes them."""

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> list[tuple[Any, ...]]: ...


def quoted(*names: str) -> str:
    """Names as identifiers, joined by commas."""
    return ", ".join('"' + name.replace('"', '""') + '"' for name in names)


class SqlSink(Sink):
    """A table in a database. A subclass says how to connect, to load Arrow rows, and what its types are called."""

    modes: ClassVar[frozenset[WriteMode]] = frozenset({"append", "upsert", "overwrite"})

    def __init__(self, table: str, mode: WriteMode, key: Sequence[str]) -> None:
        super().__init__(mode, key)
        self.table = table
        self._holder: Holder | None = None

    # ---- what a database has to say ----

    @abstractmethod
    @contextmanager
    def _transaction(self) -> Iterator[Database]:
        """One transaction that no other of this table's can run beside; it ends with the block, well or not at all."""

    @abstractmethod
    @contextmanager
    def _reading(self) -> Iterator[Database]:
        """A connection for looking only."""

    @abstractmethod
    def _columns(self, db: Database, table: str) -> dict[str, str]:
        """The columns of a table and their types, in order; none if there is no such table."""

    @abstractmethod
    def _type(self, field: pa.Field) -> str:
        """What a column of this kind is called here. Raises SinkUnfit for one that has no place."""

    @abstractmethod
    def _load(self, stage: str, rows: pa.RecordBatchReader, columns: dict[str, str]) -> None:
        """Make a table named `stage`, outside of any transaction, and fill it; one that is there is made anew."""

    @abstractmethod
    def _has_stage(self, stage: str) -> bool:
        """Whether a load that was finished is still there."""

    @abstractmethod
    def _drop_stage(self, stage: str) -> None:
        """Take a load away; nothing there is fine."""

    def _named(self, table: str) -> str:
        """How a table of the database is named in a statement."""
        return quoted(table)

    def _staged(self, stage: str) -> str:
        """How a load is named in a statement."""
        return quoted(stage)

    # ---- the contract ----

    def look(self) -> Marker | None:
        with self._reading() as db:
            found = self._marker(db)
        return found.marker if found else None

    def fence(self, holder: Holder, begin: Link) -> Marker:
        with self._transaction() as db:
            self._make_markers(db)
            found = self._marker(db)
            marker = raise_fence(self.name, found.marker if found else None, holder, begin)
            standing = _Standing(marker, begin.epoch) if found is None else found._replace(marker=marker)
            self._write_marker(db, standing)
        self._holder = holder
        return marker

    def check(self, schema: pa.Schema) -> None:
        wanted = self._wanted(schema)
        missing = [column for column in self.key if column not in wanted]
        if missing:
            raise SinkUnfit(self.name, f"its key names {_list(missing)}, and the rows have {_list(wanted)}")
        with self._reading() as db:
            found = self._columns(db, self.table)
        if found:
            self._refuse_other(wanted, found)

    def prepare(self, step: Step, rows: StagedRows) -> Any:
        self.check(rows.schema)
        stage = self._stage(step)
        self._load(stage, self._reader(rows, step), self._stage_columns(rows.schema))
        try:
            with self._reading() as db:
                self._refuse_bad_keys(db, stage)
                made_here = self._held(db).made_here or not self._columns(db, self.table)
            if not made_here:
                self._rehearse(stage, step.epoch, list(self._wanted(rows.schema)))
        except BaseException:
            self._drop_stage(stage)
            raise
        return {"stage": stage}

    def commit(self, step: Step, token: Any, rows: StagedRows) -> Any:
        stage = str(token["stage"])
        if not self._has_stage(stage):
            self._load(stage, self._reader(rows, step), self._stage_columns(rows.schema))
        with self._transaction() as db:
            standing = self._held(db)
            after = admit(self.name, standing.marker, self._mine(), step)
            if after is not None:
                made = self._make_table(db, rows.schema)
                self._apply(db, stage, step.epoch, list(self._wanted(rows.schema)))
                self._write_marker(db, standing._replace(marker=after, made_here=standing.made_here or made))
        self._drop_stage(stage)
        return {"epoch": step.epoch}

    def abort(self, token: Any) -> None:
        self._drop_stage(str(token["stage"]))

    def why_not_back(self, target: Target) -> str | None:
        with self._reading() as db:
            found = self._marker(db)
            columns = self._columns(db, self.table)
        if found is None:
            return "nothing was ever committed to it"
        marker, kept_from, _ = found
        if target.at.epoch > marker.at.epoch:
            return f"it holds epochs up to {marker.at.epoch} only"
        if target.at.epoch == marker.at.epoch or not columns:
            return None
        if self.mode != "append":
            return None if target.at.epoch >= kept_from else f"rows from before epoch {kept_from} are kept no more"
        return None if EPOCH in columns else f"its table has no column {EPOCH} that says which rows to take back"

    def roll_back(self, target: Target) -> None:
        with self._transaction() as db:
            standing = self._held(db)
            after = go_back(self.name, standing.marker, self._mine(), target.at, target.decided)
            if after is None:
                return
            if columns := self._columns(db, self.table):
                self._undo(db, target.at.epoch, [name for name in columns if name != EPOCH])
            self._write_marker(db, standing._replace(marker=after))

    def release(self, before: Link) -> None:
        if self.mode == "append":
            return
        with self._transaction() as db:
            standing = self._held(db)
            if before.epoch > standing.kept_from and self._columns(db, self._before):
                db.execute(f"DELETE FROM {self._named(self._before)} WHERE {quoted(EPOCH)} <= {before.epoch:d}")
                self._write_marker(db, standing._replace(kept_from=before.epoch))

    # ---- rows ----

    def _rehearse(self, stage: str, epoch: int, columns: list[str]) -> None:
        """Try the rows in a table with rules of its own, and take them back: after the decision it is too late."""
        with suppress(_Rehearsed), self._transaction() as db:
            self._apply(db, stage, epoch, columns)
            raise _Rehearsed

    def _apply(self, db: Database, stage: str, epoch: int, columns: list[str]) -> None:
        if self.mode == "append":
            has_epoch = EPOCH in self._columns(db, self.table)
            self._insert(db, self._staged(stage), columns, f"{epoch:d}" if has_epoch else None)
            return
        self._keep(db, stage, epoch, columns)
        where = "" if self.mode == "overwrite" else self._matching(self._named(self.table), self._staged(stage))
        db.execute(f"DELETE FROM {self._named(self.table)} {where}")
        self._insert(db, self._staged(stage), columns, None)

    def _keep(self, db: Database, stage: str, epoch: int, columns: list[str]) -> None:
        """Keep the rows that are about to go. A row that says "there was none" stands where none was."""
        before, names = self._named(self._before), quoted(*columns)
        if not self._columns(db, self._before):
            types = self._columns(db, self.table)
            defined = ", ".join(f"{quoted(name)} {types[name]}" for name in columns)
            db.execute(f"CREATE TABLE {before} ({quoted(EPOCH)} BIGINT, {quoted(EXISTED)} BIGINT, {defined})")
        into = f"INSERT INTO {before} ({quoted(EPOCH, EXISTED)}, {names})"
        table, staged = self._named(self.table), self._staged(stage)
        if self.mode == "overwrite":
            db.execute(f"{into} SELECT {epoch:d}, 1, {names} FROM {table}")
            db.execute(f"INSERT INTO {before} ({quoted(EPOCH, EXISTED)}) VALUES ({epoch:d}, 0)")
            return
        db.execute(f"{into} SELECT {epoch:d}, 1, {names} FROM {table} {self._matching(table, staged)}")
        keys = quoted(*self.key)
        new = f"INSERT INTO {before} ({quoted(EPOCH, EXISTED)}, {keys}) SELECT {epoch:d}, 0, {keys} FROM {staged}"
        db.execute(f"{new} WHERE NOT {self._exists(staged, table)}")

    def _undo(self, db: Database, epoch: int, columns: list[str]) -> None:
        table, names = self._named(self.table), quoted(*columns)
        if self.mode == "append":
            db.execute(f"DELETE FROM {table} WHERE {quoted(EPOCH)} > {epoch:d}")
            return
        if not self._columns(db, self._before):
            return
        before, later = self._named(self._before), f"{quoted(EPOCH)} > {epoch:d}"
        kept = f"(SELECT * FROM {before} WHERE {later})"
        if self.mode == "overwrite":
            first = f"{quoted(EPOCH)} = (SELECT MIN({quoted(EPOCH)}) FROM {before} WHERE {later})"
            db.execute(f"DELETE FROM {table} WHERE EXISTS (SELECT 1 FROM {before} WHERE {later})")
        else:
            joined = " AND ".join(f"o.{quoted(column)} = b.{quoted(column)}" for column in self.key)
            first = f"{quoted(EPOCH)} = (SELECT MIN(o.{quoted(EPOCH)}) FROM {before} o WHERE {joined} AND o.{later})"
            db.execute(f"DELETE FROM {table} WHERE {self._exists(table, kept, 'b')}")
        restored = f"SELECT {names} FROM {before} b WHERE {first} AND {quoted(EXISTED)} = 1"
        db.execute(f"INSERT INTO {table} ({names}) {restored}")
        db.execute(f"DELETE FROM {before} WHERE {later}")

    def _insert(self, db: Database, source: str, columns: list[str], epoch: str | None) -> None:
        names = quoted(*columns)
        into = names if epoch is None else f"{names}, {quoted(EPOCH)}"
        chosen = names if epoch is None else f"{names}, {epoch}"
        db.execute(f"INSERT INTO {self._named(self.table)} ({into}) SELECT {chosen} FROM {source}")

    def _exists(self, outer: str, inner: str, alias: str = "s") -> str:
        equal = " AND ".join(f"{alias}.{quoted(column)} = {outer}.{quoted(column)}" for column in self.key)
        return f"EXISTS (SELECT 1 FROM {inner} {alias} WHERE {equal})"

    def _matching(self, table: str, staged: str) -> str:
        return f"WHERE {self._exists(table, staged)}"

    def _refuse_bad_keys(self, db: Database, stage: str) -> None:
        if self.mode != "upsert":
            return
        staged, keys = self._staged(stage), quoted(*self.key)
        without = " OR ".join(f"{quoted(column)} IS NULL" for column in self.key)
        [(empty,)] = db.execute(f"SELECT COUNT(*) FROM {staged} WHERE {without}")
        if empty:
            raise SinkUnfit(self.name, f"{empty} rows have no value in a column of the key {_list(self.key)}")
        twice = db.execute(f"SELECT {keys} FROM {staged} GROUP BY {keys} HAVING COUNT(*) > 1 LIMIT 1")
        if twice:
            shown = ", ".join(map(repr, twice[0]))
            raise SinkUnfit(self.name, f"two rows of an epoch have the key {shown}: which one counts can't be told")

    # ---- tables ----

    @property
    def _before(self) -> str:
        return f"{self.table}_holdfast_before"

    def _stage(self, step: Step) -> str:
        holder = self._mine()
        return f"{self.table}_holdfast_{holder.generation}_{step.epoch}_{holder.token[:8]}"

    def _wanted(self, schema: pa.Schema) -> dict[str, str]:
        if EPOCH in schema.names:
            raise SinkUnfit(self.name, f"the column {EPOCH} is Holdfast's own")
        return {field.name: self._type(field) for field in schema}

    def _stage_columns(self, schema: pa.Schema) -> dict[str, str]:
        return self._wanted(schema)

    def _reader(self, rows: StagedRows, step: Step) -> pa.RecordBatchReader:  # noqa: ARG002 - some tell the epoch
        return rows.reader()

    def _make_table(self, db: Database, schema: pa.Schema) -> bool:
        if self._columns(db, self.table):
            return False
        defined = [f"{quoted(name)} {kind}" for name, kind in self._wanted(schema).items()]
        if self.mode == "append":
            defined.append(f"{quoted(EPOCH)} BIGINT")
        if self.key:
            defined.append(f"PRIMARY KEY ({quoted(*self.key)})")
        db.execute(f"CREATE TABLE {self._named(self.table)} ({', '.join(defined)})")
        return True

    def _refuse_other(self, wanted: dict[str, str], found: dict[str, str]) -> None:
        missing = [name for name in wanted if name not in found]
        if missing:
            raise SinkUnfit(self.name, f"the table {self.table} has no column {_list(missing)}")
        other = [f"{n} is {found[n]}, not {kind}" for n, kind in wanted.items() if not self._fits(kind, found[n])]
        if other:
            raise SinkUnfit(self.name, f"the table {self.table} has other types: {'; '.join(other)}")

    def _fits(self, wanted: str, found: str) -> bool:
        """Whether values of one type can go into a column of another without loss."""
        return wanted.upper() == found.upper()

    # ---- the marker ----

    def _mine(self) -> Holder:
        if self._holder is None:
            raise SinkUnfit(self.name, "it was not fenced first")
        return self._holder

    def _held(self, db: Database) -> _Standing:
        found = self._marker(db)
        require_holder(self.name, found.marker if found else None, self._mine())
        assert found is not None
        return found

    def _make_markers(self, db: Database) -> None:
        if not self._columns(db, MARKERS):
            whole = "generation BIGINT, epoch BIGINT, decided BIGINT, kept_from BIGINT, made_here BIGINT"
            text = "target VARCHAR(512) PRIMARY KEY, pipeline_id VARCHAR(64), token VARCHAR(64), offsets TEXT"
            db.execute(f"CREATE TABLE {self._named(MARKERS)} ({text}, {whole})")

    def _marker(self, db: Database) -> _Standing | None:
        if not self._columns(db, MARKERS):
            return None
        found = db.execute(f"SELECT {', '.join(_MARKER)} FROM {self._named(MARKERS)} WHERE target = ?1", (self.table,))
        if not found:
            return None
        pipeline_id, generation, token, epoch, offsets, decided, kept_from, made_here = found[0]
        if None in found[0]:
            raise DamagedRecord(f"{self.target}: {MARKERS}", "the marker has an empty column")
        holder = Holder(str(pipeline_id), int(generation), str(token))
        marker = Marker(holder, Link(int(epoch), str(offsets)), int(decided))
        return _Standing(marker, int(kept_from), bool(made_here))

    def _write_marker(self, db: Database, standing: _Standing) -> None:
        marker, kept_from, made_here = standing
        held, at = marker.holder, marker.at
        values = (held.pipeline_id, held.generation, held.token, at.epoch, at.offsets, marker.decided)
        db.execute(f"DELETE FROM {self._named(MARKERS)} WHERE target = ?1", (self.table,))
        places = ", ".join(f"?{number + 1}" for number in range(9))
        names = f"target, {', '.join(_MARKER)}"
        db.execute(
            f"INSERT INTO {self._named(MARKERS)} ({names}) VALUES ({places})",
            (self.table, *values, kept_from, int(made_here)),
        )


def _list(names: Sequence[str] | dict[str, str]) -> str:
    return ", ".join(names)
