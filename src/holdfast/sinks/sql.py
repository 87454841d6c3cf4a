"""What sinks in a database have in common: rows are loaded beside the table, then moved in with the marker.

A load takes as long as it takes and holds no lock that another driver would wait for; the one transaction after the
decision only moves rows that are in the database already. For going back, appended rows carry their epoch, and of
rows that are replaced the old ones are kept in a table of their own.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ClassVar

import pyarrow as pa

from holdfast.decide.chain import Holder, Link, Marker, Step, admit, go_back, raise_fence, require_holder
from holdfast.errors import SinkUnavailable, SinkUnfit
from holdfast.sinks.contract import Target, WriteMode, refuse_foreign
from holdfast.sinks.sql_marker import MARKERS, Database, Standing, create_markers, read_marker, write_marker
from holdfast.sinks.sql_rows import EPOCH, SqlRows, listed, quoted
from holdfast.sinks.staged import StagedRows

__all__ = ["EPOCH", "Rehearsed", "SqlSink"]

LOADS = 3
"""How often the rows are loaded again in one commit."""


class Rehearsed(Exception):
    """Ends a transaction that was only to show whether it would go through."""


class SqlSink(SqlRows):
    """A table in a database. A subclass says how to connect, to load Arrow rows, and what its types are called."""

    modes: ClassVar[frozenset[WriteMode]] = frozenset({"append", "upsert", "overwrite"})

    folds_case: ClassVar[bool] = False
    """Whether names that differ only in upper and lower case are one name."""

    def __init__(self, table: str, mode: WriteMode, key: Sequence[str]) -> None:
        super().__init__(table, mode, key)
        self._tried: tuple[dict[str, str], ...] = ()
        """The columns of the rows, of the table and of what is kept, that have been tried."""

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
    def _changed_by_others(self, db: Database, epoch: int) -> Sequence[str]:
        """What others have changed since in rows that were written after an epoch, in words.

        Asked in a transaction it stays true until that ends.
        """

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
            raise SinkUnfit(self.name, f"its key names {listed(missing)}, and the rows have {listed(wanted)}")
        with self._reading() as db:
            standing, found, kept = self._marker(db), self._columns(db, self.table), self._columns(db, self._before)
            if found:
                self._refuse_other(wanted, found)
                self._refuse_table(db)
        if standing is not None and not found:
            self._refuse_gone(standing)
        altered = [name for name, kind in kept.items() if found.get(name, kind) != kind]
        if altered:
            raise SinkUnfit(self.name, f"alter {listed(altered)} in {self._before} as well, which keeps its old rows")

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
            self._rehearse(step, stage, rows, whole=unsure)
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
            made = self._make_way(db, standing, rows.schema)
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
            return self._why_not_back(db, target)

    def _why_not_back(self, db: Database, target: Target) -> str | None:
        found = self._marker(db)
        if found is None:
            return "nothing was ever committed to it"
        last, columns = found.marker.at.epoch, self._columns(db, self.table)
        if target.at.epoch > last:
            return f"it holds epochs up to {last} only"
        if target.at.epoch == last or not columns:
            return None
        if found.way not in ("", self._way):
            return f"its epochs up to {last} were written with {found.way}, not with {self._way}: go back with that one"
        if target.at.epoch < found.way_from:
            return f"its epochs up to {found.way_from} were not written with {self._way}"
        if self.mode == "append":
            return None if EPOCH in columns else f"its table has no column {EPOCH} that says which rows to take back"
        if not self._columns(db, self._before):
            return f"the table {self._before} is gone, which held the rows that were replaced"
        if target.at.epoch < found.kept_from:
            return f"rows from before epoch {found.kept_from} are kept no more"
        return self._why_not_undone(db, target.at.epoch)

    def foreign_since(self, target: Target) -> Sequence[str]:
        with self._reading() as db:
            return self._foreign_since(db, target)

    def _foreign_since(self, db: Database, target: Target) -> Sequence[str]:
        found = self._marker(db)
        goes = found is not None and found.marker.at.epoch > target.at.epoch
        # Rows that others append carry no epoch, and stay.
        if not goes or self.mode == "append" or not self._columns(db, self.table):
            return ()
        return self._changed_by_others(db, target.at.epoch)

    def roll_back(self, target: Target, *, discard_foreign: bool = False) -> None:
        with self._transaction() as db:
            standing = self._held(db)
            after = go_back(self.name, standing.marker, self._mine(), target.at, target.decided)
            if after is None:
                return
            # Asked again where nothing can come in between.
            if why := self._why_not_back(db, target):
                raise SinkUnfit(self.name, why)
            if not discard_foreign:
                refuse_foreign(self.name, target, self._foreign_since(db, target))
            if self._columns(db, self.table):
                self._undo(db, target.at.epoch)
            self._write_marker(db, standing._replace(marker=after))

    def keeps_way_back(self) -> bool:
        with self._reading() as db:
            columns = self._columns(db, self.table)
            # Rows that are replaced are kept; those that are added must be told apart from others.
            return self.mode != "append" or not columns or EPOCH in columns

    def stand_at(self, target: Target) -> None:
        epoch = target.at.epoch
        with self._transaction() as db:
            standing = self._held(db)
            after = go_back(self.name, standing.marker, self._mine(), target.at, target.decided)
            if after is None:
                return
            if self._columns(db, self._before):
                # These epochs come again, and what they replace then is kept under the same numbers.
                db.execute(f"DELETE FROM {self._named(self._before)} WHERE {quoted(EPOCH)} > {epoch:d}")
            kept_from, way_from = max(standing.kept_from, epoch), max(standing.way_from, epoch)
            self._write_marker(db, standing._replace(marker=after, kept_from=kept_from, way_from=way_from))

    def release(self, before: Link) -> None:
        if self.mode == "append":
            return
        with self._transaction() as db:
            standing = self._held(db)
            if before.epoch > standing.kept_from and self._columns(db, self._before):
                db.execute(f"DELETE FROM {self._named(self._before)} WHERE {quoted(EPOCH)} <= {before.epoch:d}")
                self._write_marker(db, standing._replace(kept_from=before.epoch))

    # ---- rows ----

    def _rehearse(self, step: Step, stage: str, rows: StagedRows, *, whole: bool) -> None:
        """Try the commit and take it back: after the decision it is too late to be refused.

        With all rows if the table has rules of its own; else only when columns are new, and without a row.
        """
        with self._reading() as db:
            shape = (self._wanted(rows.schema), self._columns(db, self.table), self._columns(db, self._before))
        if not whole and shape == self._tried:
            return
        with suppress(Rehearsed), self._transaction() as db:
            # As for a commit: whoever is paused in here must be in the way of the one that takes over, and be ended.
            self._make_way(db, self._held(db), rows.schema)
            self._put(db, stage, step.epoch, rows, whole=whole)
            raise Rehearsed
        self._tried = shape

    def _put(self, db: Database, stage: str, epoch: int, rows: StagedRows, *, whole: bool = True) -> None:
        """Bring the rows of an epoch into the table, or none of them, as `_apply` does."""
        self._apply(db, stage, epoch, list(self._wanted(rows.schema)), whole=whole)

    def _is_whole(self, db: Database, stage: str, rows: int) -> bool:
        """Whether a load is there with all its rows."""
        if not self._has_stage(db, stage):
            return False
        [(count,)] = db.execute(f"SELECT COUNT(*) FROM {self._staged(stage)}")
        return int(count) == rows

    # ---- tables ----

    @property
    def _entry(self) -> str:
        """The marker's name for the table: one and the same, however else it can be written."""
        return self.table

    def _stage(self, step: Step) -> str:
        holder = self._mine()
        return f"{self.table}_holdfast_{holder.generation}_{step.epoch}_{holder.token[:8]}"

    def _wanted(self, schema: pa.Schema) -> dict[str, str]:
        """What the columns of the rows are called here. Raises SinkUnfit for names and types that have no place."""
        seen = {self._folded(name): name for name in self._marks(0, 0)}
        own = set(seen)
        for name in schema.names:
            folded = self._folded(name)
            if folded in own:
                raise SinkUnfit(self.name, f"the column {name} is Holdfast's own")
            if folded in seen:
                raise SinkUnfit(self.name, f"the columns {seen[folded]} and {name} would be one and the same")
            if why := self._why_no_name(name):
                raise SinkUnfit(self.name, f"{name!r} is no name for a column: {why}. Give it another with alias()")
            seen[folded] = name
        return {field.name: self._type(field) for field in schema}

    def _why_no_name(self, name: str) -> str | None:
        """Why a column can't be called so."""
        return None if name and "\0" not in name else "it is empty, or has a zero in it"

    def _folded(self, name: str) -> str:
        return name.casefold() if self.folds_case else name

    def _make_way(self, db: Database, standing: Standing, schema: pa.Schema) -> bool:
        """Have the table there, and none of what another way of writing has kept; gives whether the table is new."""
        if standing.way not in ("", self._way) and self._columns(db, self._before):
            # Nobody goes back that way any more.
            db.execute(f"DROP TABLE {self._named(self._before)}")
        if self._columns(db, self.table):
            return False
        self._refuse_gone(standing)
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
            raise SinkUnfit(self.name, f"the table {self.table} has no column {listed(missing)}")
        other = [f"{n} is {found[n]}, not {kind}" for n, kind in wanted.items() if not self._fits(kind, found[n])]
        if other:
            raise SinkUnfit(self.name, f"the table {self.table} has other types: {'; '.join(other)}")

    def _refuse_gone(self, standing: Standing) -> None:
        if standing.way:
            last = standing.marker.at.epoch
            raise SinkUnfit(self.name, f"the table {self.table} is gone, and with it all rows up to epoch {last}")

    def _refuse_table(self, db: Database) -> None:
        """Raise SinkUnfit for a table that rows could not be put into as the mode asks for."""

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
