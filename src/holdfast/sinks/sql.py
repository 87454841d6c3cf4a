"""What sinks in a database have in common: rows are loaded beside the table, then moved in with the marker.

A load takes as long as it takes and holds no lock that another driver would wait for; the one transaction after the
decision only moves rows that are in the database already. For going back, appended rows carry their epoch, and of
rows that are replaced the old ones are kept in a table of their own.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ClassVar

import pyarrow as pa

from holdfast.decide.chain import Holder, Link, Marker, Step, admit, go_back, raise_fence, require_holder
from holdfast.errors import SinkUnavailable, SinkUnfit
from holdfast.sinks.contract import Sink, Target, WriteMode
from holdfast.sinks.sql_marker import MARKERS, Database, Standing, create_markers, read_marker, write_marker
from holdfast.sinks.staged import StagedRows

__all__ = ["EPOCH", "SqlSink", "quoted", "remembering"]

EPOCH = "_holdfast_epoch"
"""The epoch that a row came with, in a table that is appended to."""
EXISTED = "_holdfast_existed"
"""Whether there was a row before; if not, going back deletes it."""
LOADS = 3
"""How often the rows are loaded again in one commit."""


class _Rehearsed(Exception):
    """Ends a transaction that was only to show whether it would go through."""


def quoted(*names: str) -> str:
    """Names as identifiers, joined by commas."""
    return ", ".join('"' + name.replace('"', '""') + '"' for name in names)


def remembering(rows: Iterable[pa.RecordBatch], failed: list[Exception]) -> Iterator[pa.RecordBatch]:
    """The same rows; what goes wrong with them is remembered, since a driver that reads them tells only its text."""
    try:
        yield from rows
    except Exception as error:
        failed.append(error)
        raise


class SqlSink(Sink):
    """A table in a database. A subclass says how to connect, to load Arrow rows, and what its types are called."""

    modes: ClassVar[frozenset[WriteMode]] = frozenset({"append", "upsert", "overwrite"})

    def __init__(self, table: str, mode: WriteMode, key: Sequence[str]) -> None:
        super().__init__(mode, key)
        self.table = table

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
    def _has_stage(self, db: Database, stage: str) -> bool:
        """Whether there is a load of this name."""

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
            standing = (
                Standing(marker, begin.epoch, False, "", begin.epoch)
                if found is None
                else found._replace(marker=marker)
            )
            self._write_marker(db, standing, first=found is None)
        self._holder = holder
        return marker

    def check(self, schema: pa.Schema) -> None:
        wanted = self._wanted(schema)
        missing = [column for column in self.key if column not in wanted]
        if missing:
            raise SinkUnfit(self.name, f"its key names {_list(missing)}, and the rows have {_list(wanted)}")
        with self._reading() as db:
            found, kept = self._columns(db, self.table), self._columns(db, self._before)
        if found:
            self._refuse_other(wanted, found)
        altered = [name for name, kind in kept.items() if found.get(name, kind) != kind]
        if altered:
            raise SinkUnfit(self.name, f"alter {_list(altered)} in {self._before} as well, which keeps its old rows")

    def prepare(self, step: Step, rows: StagedRows) -> Any:
        self.check(rows.schema)
        stage, columns = self._stage(step), self._wanted(rows.schema)
        with self._reading() as db:
            # One that was overtaken would leave what it loads behind.
            self._held(db)
        try:
            self._load(stage, rows.reader(), columns)
            with self._reading() as db:
                self._refuse_bad_keys(db, stage)
                unsure = self._has_own_rules(db, list(columns))
            if unsure:
                self._rehearse(stage, step.epoch, list(columns))
        except BaseException:
            # What can't be taken away now, since the database is gone, is of no use to anyone and seen by nobody.
            with suppress(SinkUnavailable):
                self._drop_stage(stage)
            raise
        return {"stage": stage}

    def commit(self, step: Step, token: Any, rows: StagedRows) -> Any:
        stage = str(token["stage"])
        for _ in range(LOADS):
            if self._move_in(step, stage, rows):
                break
            # Under a name of our own: whoever prepared it may be loading too, and not know yet that it is overtaken.
            stage = self._stage(step)
            self._load(stage, rows.reader(), self._wanted(rows.schema))
        else:
            raise SinkUnavailable(self.name, "commit", "what is loaded is lost again and again")
        for name in {stage, str(token["stage"])}:
            self._drop_stage(name)
        return {"epoch": step.epoch}

    def _move_in(self, step: Step, stage: str, rows: StagedRows) -> bool:
        """Commit what was loaded; False if the load is gone, or a crash of the database has emptied it."""
        with self._transaction() as db:
            standing = self._held(db)
            after = admit(self.name, standing.marker, self._mine(), step)
            if after is None:
                return True
            # In this very transaction: what is counted now can't be lost before the rows are in.
            if not self._is_whole(db, stage, rows.staged.rows):
                return False
            made = self._make_table(db, rows.schema)
            self._put(db, stage, step.epoch, rows)
            after_this = standing._replace(marker=after, made_here=standing.made_here or made)
            if standing.way != self._way:
                after_this = after_this._replace(way=self._way, way_from=standing.marker.at.epoch)
            self._write_marker(db, after_this)
            return True

    def abort(self, token: Any) -> None:
        self._drop_stage(str(token["stage"]))

    def why_not_back(self, target: Target) -> str | None:
        with self._reading() as db:
            found = self._marker(db)
            columns = self._columns(db, self.table)
            keeps = bool(self._columns(db, self._before))
        if found is None:
            return "nothing was ever committed to it"
        last, kept_from = found.marker.at.epoch, found.kept_from
        if target.at.epoch > last:
            return f"it holds epochs up to {last} only"
        if target.at.epoch == last or not columns:
            return None
        if found.way not in ("", self._way):
            return f"its epochs up to {last} were written with {found.way}, not with {self._way}: go back with that one"
        if target.at.epoch < found.way_from:
            return f"its epochs up to {found.way_from} were not written with {self._way}"
        if self.mode != "append":
            if not keeps:
                return f"the table {self._before} is gone, which held the rows that were replaced"
            return None if target.at.epoch >= kept_from else f"rows from before epoch {kept_from} are kept no more"
        return None if EPOCH in columns else f"its table has no column {EPOCH} that says which rows to take back"

    def roll_back(self, target: Target) -> None:
        with self._transaction() as db:
            standing = self._held(db)
            after = go_back(self.name, standing.marker, self._mine(), target.at, target.decided)
            if after is None:
                return
            if self._columns(db, self.table):
                self._undo(db, target.at.epoch)
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
            # As for a commit: whoever is paused in here must be in the way of the one that takes over, and be ended.
            self._held(db)
            self._apply(db, stage, epoch, columns)
            raise _Rehearsed

    def _put(self, db: Database, stage: str, epoch: int, rows: StagedRows) -> None:
        """Bring the rows of an epoch into the table."""
        self._apply(db, stage, epoch, list(self._wanted(rows.schema)))

    def _apply(self, db: Database, stage: str, epoch: int, columns: list[str]) -> None:
        if self.mode == "append":
            has_epoch = EPOCH in self._columns(db, self.table)
            self._insert(db, self._staged(stage), columns, epoch if has_epoch else None)
            return
        self._keep(db, stage, epoch, columns)
        if self.mode == "upsert":
            self._replace(db, self._staged(stage), columns)
            return
        db.execute(f"DELETE FROM {self._named(self.table)}")
        self._insert(db, self._staged(stage), columns)

    def _keep(self, db: Database, stage: str, epoch: int, columns: list[str]) -> None:
        """Keep the rows that are about to go. A row that says "there was none" stands where none was."""
        before, names = self._named(self._before), quoted(*columns)
        types, there = self._columns(db, self.table), self._columns(db, self._before)
        if not there:
            defined = ", ".join(f"{quoted(name)} {types[name]}" for name in columns)
            db.execute(f"CREATE TABLE {before} ({quoted(EPOCH)} BIGINT, {quoted(EXISTED)} BIGINT, {defined})")
        for name in columns if there else []:
            if name not in there:
                db.execute(f"ALTER TABLE {before} ADD COLUMN {quoted(name)} {types[name]}")
        into = f"INSERT INTO {before} ({quoted(EPOCH, EXISTED)}, {names})"
        table, staged = self._named(self.table), self._staged(stage)
        if self.mode == "overwrite":
            db.execute(f"{into} SELECT {epoch:d}, 1, {names} FROM {table}")
            db.execute(f"INSERT INTO {before} ({quoted(EPOCH, EXISTED)}) VALUES ({epoch:d}, 0)")
            return
        keys = quoted(*self.key)
        db.execute(f"{into} SELECT {epoch:d}, 1, {names} FROM {table} WHERE {self._keys_in(staged)}")
        new = f"INSERT INTO {before} ({quoted(EPOCH, EXISTED)}, {keys}) SELECT {epoch:d}, 0, {keys} FROM {staged} s"
        same = " AND ".join(f"t.{quoted(column)} = s.{quoted(column)}" for column in self.key)
        db.execute(f"{new} WHERE NOT EXISTS (SELECT 1 FROM {table} t WHERE {same})")

    def _undo(self, db: Database, epoch: int) -> None:
        table, later = self._named(self.table), f"{quoted(EPOCH)} > {epoch:d}"
        if self.mode == "append":
            db.execute(f"DELETE FROM {table} WHERE {later}")
            return
        columns = [name for name in self._columns(db, self._before) if name not in (EPOCH, EXISTED)]
        if not columns:
            return
        before, keys = self._named(self._before), quoted(*self.key)
        # Of several that were kept since, the first is what stood there.
        if self.mode == "overwrite":
            first = f"(SELECT MIN({quoted(EPOCH)}) FROM {before} WHERE {later})"
            db.execute(f"DELETE FROM {table} WHERE EXISTS (SELECT 1 FROM {before} WHERE {later})")
            self._insert(db, f"{before} WHERE {quoted(EXISTED)} = 1 AND {quoted(EPOCH)} = {first}", columns)
        else:
            firsts = f"SELECT MIN({quoted(EPOCH)}), {keys} FROM {before} WHERE {later} GROUP BY {keys}"
            first = f"SELECT * FROM {before} WHERE ({quoted(EPOCH)}, {keys}) IN ({firsts})"
            none, some = (f"(SELECT * FROM ({first}) f WHERE {quoted(EXISTED)} = {existed}) b" for existed in (0, 1))
            db.execute(f"DELETE FROM {table} WHERE {self._keys_in(none)}")
            self._replace(db, some, columns)
        db.execute(f"DELETE FROM {before} WHERE {later}")

    def _insert(self, db: Database, source: str, columns: list[str], epoch: int | None = None) -> None:
        names = quoted(*columns)
        into, chosen = (names, names) if epoch is None else (f"{names}, {quoted(EPOCH)}", f"{names}, {epoch:d}")
        db.execute(f"INSERT INTO {self._named(self.table)} ({into}) SELECT {chosen} FROM {source}")

    def _replace(self, db: Database, source: str, columns: list[str]) -> None:
        """Put rows in the place of those with their keys."""
        db.execute(f"DELETE FROM {self._named(self.table)} WHERE {self._keys_in(source)}")
        self._insert(db, source, columns)

    def _keys_in(self, source: str) -> str:
        # Not EXISTS: some databases would look through the source for every row of the table.
        return f"({quoted(*self.key)}) IN (SELECT {quoted(*self.key)} FROM {source})"

    def _is_whole(self, db: Database, stage: str, rows: int) -> bool:
        """Whether a load is there with all its rows."""
        return self._has_stage(db, stage) and self._count(db, self._staged(stage)) == rows

    def _count(self, db: Database, source: str) -> int:
        [(count,)] = db.execute(f"SELECT COUNT(*) FROM {source}")
        return int(count)

    def _refuse_bad_keys(self, db: Database, stage: str) -> None:
        if self.mode != "upsert":
            return
        staged, keys = self._staged(stage), quoted(*self.key)
        without = " OR ".join(f"{quoted(column)} IS NULL" for column in self.key)
        empty = self._count(db, f"{staged} WHERE {without}")
        if empty:
            raise SinkUnfit(self.name, f"{empty} rows have no value in a column of the key {_list(self.key)}")
        twice = db.execute(f"SELECT {keys} FROM {staged} GROUP BY {keys} HAVING COUNT(*) > 1 LIMIT 1")
        if twice:
            shown = ", ".join(map(repr, twice[0]))
            raise SinkUnfit(self.name, f"two rows of an epoch have the key {shown}: which one counts can't be told")

    # ---- tables ----

    @property
    def _entry(self) -> str:
        """The marker's name for the table: one and the same, however else it can be written."""
        return self.table

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

    def _make_table(self, db: Database, schema: pa.Schema) -> bool:
        if self._columns(db, self.table):
            return False
        defined = [f"{quoted(name)} {kind}" for name, kind in self._wanted(schema).items()]
        if self.mode == "append":
            defined.append(f"{quoted(EPOCH)} BIGINT")
        if key := self._primary_key(schema):
            defined.append(f"PRIMARY KEY ({quoted(*key)})")
        db.execute(f"CREATE TABLE {self._named(self.table)} ({', '.join(defined)})")
        return True

    def _primary_key(self, schema: pa.Schema) -> Sequence[str]:  # noqa: ARG002 - some can't have it on every type
        """The columns by which a table that is made here is indexed."""
        return self.key

    def _has_own_rules(self, db: Database, columns: list[str]) -> bool:  # noqa: ARG002 - some look at each of them
        """Whether the table could refuse rows that were loaded: one that others made may have rules of its own."""
        return not self._held(db).made_here and bool(self._columns(db, self.table))

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

    def _held(self, db: Database) -> Standing:
        found = self._marker(db)
        require_holder(self.name, found.marker if found else None, self._mine())
        assert found is not None
        return found

    @property
    def _way(self) -> str:
        """How epochs are written, which is how they are taken back: they can't be in another way."""
        return f"mode={self.mode} key={','.join(self.key)}" if self.key else f"mode={self.mode}"

    def _make_markers(self, db: Database) -> None:
        if not self._columns(db, MARKERS):
            create_markers(db, self._named(MARKERS))

    def _marker(self, db: Database) -> Standing | None:
        if not self._columns(db, MARKERS):
            return None
        return read_marker(db, self._named(MARKERS), self._entry, f"{self.target}: {MARKERS}")

    def _write_marker(self, db: Database, standing: Standing, *, first: bool = False) -> None:
        write_marker(db, self._named(MARKERS), self._entry, standing, first=first)


def _list(names: Sequence[str] | dict[str, str]) -> str:
    return ", ".join(names)
