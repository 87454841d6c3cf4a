"""A Delta table. Executors write its files; the driver commits metadata, through the `deltalake` package alone."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction, RemoveAction

from holdfast.decide.chain import admit, go_back, raise_fence, require_holder
from holdfast.epochs import Holder, Link, Marker, Step, Target
from holdfast.errors import BadURL, SinkUnfit
from holdfast.sinks.contract import Sink, WriteMode
from holdfast.sinks.delta_files import (
    Active,
    active_files,
    added,
    delta_schema,
    has_times_without_zone,
    refuse_columns,
    refuse_features,
    refuse_nulls,
    removed,
)
from holdfast.sinks.delta_log import Change, DeltaLog, Standing, is_placeholder
from holdfast.sinks.footers import ranges, read_footers, staged_footers
from holdfast.sinks.rewrite import InProcess, Rewriter, Source
from holdfast.sinks.staged import StagedRows
from holdfast.sinks.table_files import Brought, DataFile, Named, TableFiles, folder_of, new_folder
from holdfast.sinks.upsert import Rewritten, overlapping, refuse_key
from holdfast.store.between import tidy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Delta"]

SMALL = 64 * 1024 * 1024
"""Up to so many bytes are written anew in this process; more is a Spark job, if there is a session."""
CHANGES = 1000
"""So far back the log is read to tell which files belong to dead attempts."""


class Token(msgspec.Struct, frozen=True):
    """What was prepared: the files of the epoch, and, for an upsert, those of the table without the keys in it."""

    placed: Brought
    rewritten: Rewritten | None = None


class Delta(Sink):
    """A Delta table on disk or in an object store; made at the first fence, with its columns at the first commit.

    Rows that were staged below its root become its files as they are; others are copied there. For a table that is
    partitioned, or in mode upsert, rows are written anew: by Spark if a session is given (`session`), else here. It
    goes back by table version, as far as its log and files are kept: see `delta.logRetentionDuration` and VACUUM.
    """

    modes: ClassVar[frozenset[WriteMode]] = frozenset({"append", "upsert", "overwrite"})
    can_jump: ClassVar[bool] = True

    def __init__(
        self,
        url: str,
        *,
        mode: WriteMode = "append",
        key: Sequence[str] = (),
        partition_by: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(mode, key)
        self.root = tidy(url, options)
        """What is staged below here becomes the table's without a copy."""
        if self.root.is_here_only:
            raise BadURL(self.root.url, "a Delta table lies on disk or in an object store")
        self.partition_by = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
        self.session: SparkSession | None = None
        """Who writes anew what is large; without one it is done in this process."""
        self._files = TableFiles(self.root)
        self._log = DeltaLog(self.root)
        self._holder: Holder | None = None
        self._footers: dict[str, pq.FileMetaData] = {}
        self._staged: tuple[str, Mapping[str, pq.FileMetaData]] | None = None

    @property
    def target(self) -> str:
        return self.root.url

    def look(self) -> Marker | None:
        with self._log.reaching(self.name, "look"):
            standing = DeltaLog(self.root).load()
        return standing.marker if standing else None

    def fence(self, holder: Holder, begin: Link) -> Marker:
        with self._log.reaching(self.name, "fence"):
            while True:
                self._log.forget()
                standing = self._log.load()
                marker = raise_fence(self.name, standing.marker if standing else None, holder, begin)
                if standing is None:
                    self._files.refuse_orphans(self.target)
                    self._files.prove_safe()
                    if self._log.create(marker, self.partition_by):
                        break
                elif self._log.commit(standing, "fence", marker, same_link=True):
                    break
        self._holder = holder
        self._files.begin()
        return marker

    def check(self, schema: pa.Schema) -> None:
        self._checked(schema)

    def prepare(self, step: Step, rows: StagedRows) -> Any:
        standing = self._checked(rows.schema)
        with self._log.reaching(self.name, "prepare"):
            # What was staged below the root may be gone: whoever has taken over sweeps it.
            require_holder(self.name, standing.marker if standing else None, self._mine())
            assert standing is not None
            footers = self._staged_footers(rows)
            refuse_nulls(self.name, standing.table, footers.values())
            if self.key and (why := self._rewriter(rows.staged.size_bytes).bad_keys(rows, self.key)):
                raise SinkUnfit(self.name, why)
            standing = self._allow_times(standing, rows.schema)
            placed = self._place(standing, step, rows)
            try:
                # Told here, while it can still be refused.
                self._added(standing, placed.files)
                rewritten = self._rewrite(standing, step, rows) if self.key else None
            except BaseException:
                self._discard(placed)
                raise
        return msgspec.to_builtins(Token(placed, rewritten))

    def commit(self, step: Step, token: Any, rows: StagedRows) -> Any:
        prepared = msgspec.convert(token, Token)
        with self._log.reaching(self.name, "commit"):
            while True:
                standing = self._held()
                after = admit(self.name, standing.marker, self._mine(), step)
                if after is None:
                    assert standing.note is not None
                    return {"version": standing.note.since}
                placed = self._placed(standing, step, prepared, rows)
                actions: list[AddAction | RemoveAction] = [*self._added(standing, placed.files)]
                files = [*placed.files]
                if self.key:
                    rewritten, gone = self._still_right(standing, step, prepared, rows)
                    actions += [removed(self.name, file) for file in gone]
                    actions += self._added(standing, rewritten.kept.files)
                    files += rewritten.kept.files
                    prepared = msgspec.structs.replace(prepared, placed=placed, rewritten=rewritten)
                made = is_placeholder(standing.table)
                note = self._log.commit(
                    standing,
                    "commit",
                    after,
                    actions,
                    replaces=self.mode == "overwrite",
                    schema=delta_schema(self.name, rows.schema) if made else None,
                    folders=sorted({folder_of(file.key) for file in files}),
                )
                if note:
                    break
            self._footers.clear()
            self._staged = None
            self._files.sweep(self._mine(), step, files, self._named)
        return {"version": note.since}

    def abort(self, token: Any) -> None:
        prepared = msgspec.convert(token, Token)
        with self._log.reaching(self.name, "abort"):
            self._discard(prepared.placed)
            if prepared.rewritten:
                self._discard(prepared.rewritten.kept)

    # ---- going back ----

    def why_not_back(self, target: Target) -> str | None:
        with self._log.reaching(self.name, "look"):
            standing = self._log.load()
            if standing is None or standing.marker is None:
                return "nothing was ever committed to it"
            if standing.marker.at == target.at and standing.marker.decided == target.decided:
                return None
            found, since = self._log.find(standing, target)
            if why := self._no_way(standing, found, target):
                return why
        others = [str(change) for change in reversed(since) if change.is_foreign]
        return f"others have changed it since, and that would be lost: {', '.join(others)}" if others else None

    def roll_back(self, target: Target) -> None:
        """As the contract has it. What others have written since is lost: `why_not_back` lists it."""
        with self._log.reaching(self.name, "roll back"):
            while True:
                standing = self._held()
                after = go_back(self.name, standing.marker, self._mine(), target.at, target.decided)
                if after is None:
                    return
                found, _ = self._log.find(standing, target)
                why = self._no_way(standing, found, target)
                if found is None or why:
                    raise SinkUnfit(self.name, f"it can't go back to {target.at}: {why}")
                if self._log.restore(standing, found.version, after):
                    return

    def close(self) -> None:
        self._log.forget()

    def _no_way(self, standing: Standing, found: Change | None, target: Target) -> str | None:
        if standing.table.metadata().configuration.get("delta.appendOnly") == "true":
            return "rows may only be appended to the table"
        if found is None:
            return f"its log has no version that ends with {target.at}, or has it no more"
        then = self._log.at(found.version)
        if then is None:
            return f"version {found.version} can't be read any more: its log was cleaned up"
        now = {file.key for file in active_files(self.name, standing.table)}
        needed = {file.key: file.size_bytes for file in active_files(self.name, then) if file.key not in now}
        there = self._files.sizes(needed)
        gone = sorted(key for key in needed if key not in there)
        if gone:
            return f"{len(gone)} files of version {found.version} were vacuumed, such as {gone[0]}"
        return None

    # ---- files ----

    def _place(self, standing: Standing, step: Step, rows: StagedRows) -> Brought:
        """Have the rows below the root, each file in one partition."""
        by, footers = _partitions(standing.table), self._staged_footers(rows)
        if all(ranges(footer)[(column,)].is_one_value for footer in footers.values() for column in by):
            brought = self._files.bring_in(self._mine(), step, rows)
            self._footers.update({f.key: footer for f, footer in zip(brought.files, footers.values(), strict=True)})
            return brought
        folder = new_folder(self._mine(), step.epoch)
        try:
            return Brought(self._rewriter(rows.staged.size_bytes).split(rows, by, folder), folder)
        except BaseException:
            self._files.discard(folder)
            raise

    def _placed(self, standing: Standing, step: Step, token: Token, rows: StagedRows) -> Brought:
        """What was prepared; placed anew if it went with the process that did it."""
        if self._has(token.placed):
            return token.placed
        if not token.placed.folder:
            self._files.require(token.placed.files)
        return self._place(standing, step, rows)

    def _has(self, brought: Brought) -> bool:
        """Whether files are there: those that this process has read have been."""
        return all(file.key in self._footers for file in brought.files) or self._files.are_there(brought.files)

    def _added(self, standing: Standing, files: Sequence[DataFile]) -> list[AddAction]:
        unread = [file for file in files if file.key not in self._footers]
        found = read_footers(self._files.store, self._files.objects(unread))
        self._footers.update({file.key: footer for file, footer in zip(unread, found, strict=True)})
        by = _partitions(standing.table)
        return [added(self.name, file, self._footers[file.key], by) for file in files]

    def _staged_footers(self, rows: StagedRows) -> Mapping[str, pq.FileMetaData]:
        if self._staged is None or self._staged[0] != rows.staged.url:
            self._staged = rows.staged.url, staged_footers(self.name, rows)
        return self._staged[1]

    def _rewrite(self, standing: Standing, step: Step, rows: StagedRows) -> Rewritten:
        """Write the files anew that hold a key of these rows, without those rows of theirs."""
        near = self._near(standing, rows)
        rewriter = self._rewriter(rows.staged.size_bytes + sum(file.size_bytes for file in near))
        folder = new_folder(self._mine(), step.epoch)
        sources = [Source(file.key, file.size_bytes, file.partition) for file in near]
        try:
            touched = rewriter.touched(sources, rows, self.key) if sources else []
            schema = pa.schema(standing.table.schema().to_arrow())
            kept = rewriter.without(touched, rows, self.key, schema, folder) if touched else []
        except BaseException:
            self._files.discard(folder)
            raise
        return Rewritten(_digest(near), [source.key for source in touched], Brought(kept, folder if kept else ""))

    def _still_right(
        self, standing: Standing, step: Step, token: Token, rows: StagedRows
    ) -> tuple[Rewritten, list[Active]]:
        """What was written anew, done again if the table has other files with such keys now, and the files it is of."""
        near = self._near(standing, rows)
        done = token.rewritten
        if done is None or done.of != _digest(near) or not self._has(done.kept):
            if done is not None:
                self._discard(done.kept)
            done = self._rewrite(standing, step, rows)
        gone = set(done.removed)
        return done, [file for file in near if file.key in gone]

    def _near(self, standing: Standing, rows: StagedRows) -> list[Active]:
        """The files that may hold a key of these rows, by all that the log says of them."""
        if is_placeholder(standing.table) or not rows.staged.rows:
            return []
        files = active_files(self.name, standing.table)
        return overlapping(files, self._staged_footers(rows).values(), rows.schema, self.key)

    def _rewriter(self, size_bytes: int) -> Rewriter:
        if self.session is None or size_bytes <= SMALL:
            return InProcess(self.root)
        from holdfast.sinks.rewrite_spark import BySpark

        return BySpark(self.name, self.root, self.session)

    def _discard(self, brought: Brought) -> None:
        for file in brought.files:
            self._footers.pop(file.key, None)
        if brought.folder:
            self._files.discard(brought.folder)

    def _named(self) -> Named:
        standing = self._held()
        seen = list(islice(self._log.changes(standing.table), CHANGES))
        notes = [change.note for change in seen if change.note]
        folders = {folder for note in notes for folder in note.folders}
        folders |= {folder_of(file.key) for file in active_files(self.name, standing.table)}
        # Of the oldest generation that is seen, and of those before it, there may be commits that are not seen.
        first = 0 if seen[-1].version == 0 else notes[-1].marker.holder.generation + 1
        return Named(range(first, self._mine().generation), folders)

    # ---- the table ----

    def _held(self) -> Standing:
        standing = self._log.load()
        require_holder(self.name, standing.marker if standing else None, self._mine())
        assert standing is not None
        return standing

    def _mine(self) -> Holder:
        if self._holder is None:
            raise SinkUnfit(self.name, "it was not fenced first")
        return self._holder

    def _checked(self, schema: pa.Schema) -> Standing | None:
        given = delta_schema(self.name, schema)
        refuse_key(self.name, schema, self.key)
        missing = [name for name in self.partition_by if name not in schema.names]
        if missing:
            raise SinkUnfit(self.name, f"it is partitioned by {', '.join(missing)}, which the rows do not have")
        nested = [name for name in self.partition_by if pa.types.is_nested(schema.field(name).type)]
        if nested:
            raise SinkUnfit(self.name, f"it can't be partitioned by {', '.join(nested)}, which is no plain value")
        with self._log.reaching(self.name, "check"):
            standing = self._log.load()
            if standing:
                self._refuse_table(standing.table, given)
        return standing

    def _allow_times(self, standing: Standing, schema: pa.Schema) -> Standing:
        while is_placeholder(standing.table) and any(has_times_without_zone(field.type) for field in schema):
            if "timestampNtz" in (standing.table.protocol().writer_features or ()):
                break
            assert standing.marker is not None
            self._log.allow_times_without_zone(standing, standing.marker)
            standing = self._held()
        return standing

    def _refuse_table(self, table: DeltaTable, given: Schema) -> None:
        has = _partitions(table)
        if (self.partition_by or is_placeholder(table)) and has != list(self.partition_by):
            raise SinkUnfit(self.name, f"the table is partitioned by {', '.join(has) or 'nothing'}")
        refuse_features(self.name, table, changes_rows=self.mode != "append")
        if not is_placeholder(table):
            refuse_columns(self.name, table, given)


def _partitions(table: DeltaTable) -> list[str]:
    return list(table.metadata().partition_columns)


def _digest(files: Sequence[Active]) -> str:
    return hashlib.sha256("\n".join(sorted(file.key for file in files)).encode()).hexdigest()
