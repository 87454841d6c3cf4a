"""A Delta table: its files are brought below its root, and committed as metadata, by the `deltalake` package alone."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import islice
from typing import Any, ClassVar

import msgspec
import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction, RemoveAction

from holdfast.decide.chain import admit, go_back, raise_fence, require_holder
from holdfast.epochs import Holder, Link, Marker, Step, Target
from holdfast.errors import BadURL, SinkUnfit
from holdfast.sinks.contract import Sink, WriteMode, refuse_foreign
from holdfast.sinks.delta_files import (
    Active,
    active_files,
    added,
    delta_schema,
    has_times_without_zone,
    refuse_columns,
    refuse_features,
    refuse_lasting,
    refuse_unread,
    removed,
)
from holdfast.sinks.delta_log import Change, DeltaLog, Standing, is_placeholder
from holdfast.sinks.placing import Placing, Token
from holdfast.sinks.required import refuse_nulls
from holdfast.sinks.rewrite import InProcess, Part, Rewriter, Source, refuse_parts, refuse_reserved
from holdfast.sinks.staged import StagedRows
from holdfast.sinks.table_files import DataFile, Named, TableFiles, folder_of
from holdfast.sinks.upsert import key_bounds, overlapping, refuse_key
from holdfast.store import Address
from holdfast.store.between import place_of, tidy

__all__ = ["Delta"]

SMALL = 64 * 1024 * 1024
"""Up to so many bytes are written anew in this process; more is a Spark job, if there is a session."""
CHANGES = 1000
"""So far back the log is read to tell which files belong to dead attempts."""
RETENTION = {
    "delta.deletedFileRetentionDuration": ("interval 1 week", "VACUUM removes files that were replaced"),
    "delta.logRetentionDuration": ("interval 30 days", "the log forgets its versions"),
}
"""What a table keeps for how long, unless it says another, and what becomes of it then."""


class Delta(Sink):
    """A Delta table on disk or in an object store; made at the first fence, with its columns at the first commit.

    Rows that were staged below its root become its files as they are; others are copied there. For a table that is
    partitioned, or in mode upsert, rows are written anew: up to 64 MiB in this process, more by Spark's executors if a
    session is given (`session`), else here too. It goes back by table version, as far as its log and files are kept:
    see `delta.logRetentionDuration` and VACUUM.
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
        self._files = TableFiles(self.root)
        self._log = DeltaLog(self.root)
        self._placing = Placing(self, self._files, self._rewriter)

    @property
    def target(self) -> str:
        return self.root.url

    def _identity(self) -> Hashable:
        return place_of(self.root)

    @property
    def adopts_below(self) -> Address | None:
        return self.root if self.mode == "append" and not self.partition_by else None

    def has_adopted(self, token: Any) -> bool:
        return msgspec.convert(token, Token).placed.is_adopted

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
            refuse_nulls(self.name, _columns(standing), rows, self._placing.staged(rows))
            if self.key and (why := self._placing.bad_keys(rows, self.key)):
                raise SinkUnfit(self.name, why)
            standing = self._allow_times(standing, rows.schema)
            token = Token(self._placing.place(self._mine(), step, rows, _parts(standing.table)))
            try:
                near = self._near(standing, rows)
                if self.key:
                    token = self._rewritten(standing, step, token, rows, near)
                # All that the commit will say is told here, while it can still be refused.
                self._added(standing, token.files)
                self._going(standing, token, near)
            except BaseException:
                self._placing.discard(token)
                raise
        return msgspec.to_builtins(token)

    def commit(self, step: Step, token: Any, rows: StagedRows) -> Any:
        prepared = msgspec.convert(token, Token)
        with self._log.reaching(self.name, "commit"):
            while True:
                standing = self._held()
                after = admit(self.name, standing.marker, self._mine(), step)
                if after is None:
                    assert standing.note is not None
                    return {"version": standing.note.since}
                parts = _parts(standing.table)
                placed = self._placing.still_placed(self._mine(), step, prepared.placed, rows, parts)
                prepared = Token(placed, prepared.rewritten)
                near = self._near(standing, rows)
                if self.key and not self._placing.is_right(prepared.rewritten, [_source(file) for file in near]):
                    # Others have changed the table since, or it went with the process that did it.
                    prepared = self._rewritten(standing, step, prepared, rows, near)
                note = self._log.commit(
                    standing,
                    "commit",
                    after,
                    [
                        *self._added(standing, prepared.files),
                        *self._going(standing, prepared, near),
                    ],
                    replaces=self.mode == "overwrite",
                    schema=delta_schema(self.name, rows.schema) if is_placeholder(standing.table) else None,
                    folders=sorted({folder_of(file.key) for file in prepared.files}),
                )
                if note:
                    break
            self._placing.over(msgspec.convert(token, Token), prepared)
            self._files.sweep(self._mine(), step, prepared.files, self._named)
        return {"version": note.since}

    def abort(self, token: Any) -> None:
        with self._log.reaching(self.name, "abort"):
            self._placing.discard(msgspec.convert(token, Token))

    # ---- going back ----

    def why_not_back(self, target: Target) -> str | None:
        with self._log.reaching(self.name, "look"):
            log = DeltaLog(self.root)
            standing = log.load()
            if standing is None or standing.marker is None:
                return "nothing was ever committed to it"
            if standing.marker.at == target.at and standing.marker.decided == target.decided:
                return None
            return self._no_way(log, standing, log.find(standing, target)[0], target)

    def foreign_since(self, target: Target) -> Sequence[str]:
        with self._log.reaching(self.name, "look"):
            log = DeltaLog(self.root)
            standing = log.load()
            since = log.find(standing, target)[1] if standing else []
        return _foreign(since)

    def cautions(self) -> Sequence[str]:
        with self._log.reaching(self.name, "look"):
            standing = DeltaLog(self.root).load()
        kept = standing.table.metadata().configuration if standing else {}
        rules = [
            f"{what} after {kept.get(setting, default)} ({setting})" for setting, (default, what) in RETENTION.items()
        ]
        return [f"what a savepoint needs may go: {'; '.join(rules)}"]

    def roll_back(self, target: Target, *, discard_foreign: bool = False) -> None:
        with self._log.reaching(self.name, "roll back"):
            while True:
                standing = self._held()
                after = go_back(self.name, standing.marker, self._mine(), target.at, target.decided)
                if after is None:
                    return
                found, since = self._log.find(standing, target)
                why = self._no_way(self._log, standing, found, target)
                if found is None or why:
                    raise SinkUnfit(self.name, f"it can't go back to {target.at}: {why}")
                # Up to this very version: where there is another by now, the commit fails, and it is looked again.
                if not discard_foreign:
                    refuse_foreign(self.name, target, _foreign(since))
                if self._log.restore(standing, found.version, after):
                    return

    def keeps_way_back(self) -> bool:
        with self._log.reaching(self.name, "look"):
            return not _is_append_only(self._held())

    def stand_at(self, target: Target) -> None:
        with self._log.reaching(self.name, "stand back"):
            while True:
                standing = self._held()
                after = go_back(self.name, standing.marker, self._mine(), target.at, target.decided)
                if after is None or self._log.commit(standing, "stand back", after):
                    return

    def close(self) -> None:
        self._log.forget()

    def _no_way(self, log: DeltaLog, standing: Standing, found: Change | None, target: Target) -> str | None:
        if _is_append_only(standing):
            return "rows may only be appended to the table"
        if found is None:
            return f"its log has no version that ends with {target.at}, or has it no more"
        then = log.at(found.version)
        if then is None:
            return f"version {found.version} can't be read any more: its log was cleaned up"
        now = {file.path: file for file in active_files(standing.table)}
        before = {file.path: file for file in active_files(then)}
        needed = [file for path, file in before.items() if path not in now]
        if outside := [file.path for file in needed if file.is_elsewhere]:
            return f"{outside[0]} of version {found.version} lies elsewhere: it can't be told whether it is still there"
        if stays := [path for path, file in now.items() if path not in before and not file.can_go]:
            return f"{stays[0]}, which came since, can't be removed here: its name is spelled in another way"
        there = self._files.sizes(file.key for file in needed)
        gone = sorted(file.key for file in needed if file.key not in there)
        if gone:
            return f"{len(gone)} files of version {found.version} were vacuumed, such as {gone[0]}"
        return None

    # ---- files ----

    def _added(self, standing: Standing, files: Sequence[DataFile]) -> list[AddAction]:
        by = [part.column for part in _parts(standing.table)]
        footers = self._placing.footers(files)
        return [added(self.name, file, footer, by) for file, footer in zip(files, footers, strict=True)]

    def _going(self, standing: Standing, token: Token, near: Sequence[Active]) -> list[RemoveAction]:
        if self.mode == "overwrite":
            # The library removes these itself, and does not see that one stays.
            refuse_lasting(self.name, active_files(standing.table))
        return [removed(self.name, file) for file in near if file.key in token.removed]

    def _rewritten(
        self, standing: Standing, step: Step, token: Token, rows: StagedRows, near: Sequence[Active]
    ) -> Token:
        sources, parts = [_source(file) for file in near], _parts(standing.table)
        done = self._placing.rewrite(self._mine(), step, rows, self.key, sources, _columns(standing), parts)
        return Token(token.placed, done)

    def _near(self, standing: Standing, rows: StagedRows) -> list[Active]:
        """The files that may hold a key of these rows, by all that the log says of them."""
        if not self.key or is_placeholder(standing.table) or not rows.staged.rows:
            return []
        bounds = key_bounds(self._placing.staged(rows).values(), rows.schema, self.key)
        near = overlapping(active_files(standing.table), bounds)
        refuse_unread(self.name, near)
        return near

    def _rewriter(self, size_bytes: int) -> Rewriter:
        if self.session is None or size_bytes <= SMALL:
            return InProcess(self.name, self.root)
        from holdfast.sinks.rewrite_spark import BySpark

        return BySpark(self.name, self.root, self.session)

    def _named(self) -> Named:
        standing = self._log.load()
        assert standing is not None
        seen = list(islice(self._log.changes(standing.table), CHANGES))
        notes = [change.note for change in seen if change.note]
        folders = {folder for note in notes for folder in note.folders}
        folders |= {folder_of(file.key) for file in active_files(standing.table)}
        # Of the oldest generation that is seen, and of those before it, there may be commits that are not seen.
        first = 0 if seen[-1].version == 0 else notes[-1].marker.holder.generation + 1
        return Named(range(first, self._mine().generation), folders)

    # ---- the table ----

    def _held(self) -> Standing:
        standing = self._log.load()
        require_holder(self.name, standing.marker if standing else None, self._mine())
        assert standing is not None
        return standing

    def _checked(self, schema: pa.Schema) -> Standing | None:
        given = delta_schema(self.name, schema)
        refuse_reserved(self.name, schema)
        refuse_key(self.name, schema, self.key)
        refuse_parts(self.name, schema, [Part(name) for name in self.partition_by])
        with self._log.reaching(self.name, "check"):
            standing = self._log.load()
            if standing:
                self._refuse_table(standing.table, given)
                refuse_parts(self.name, schema, _parts(standing.table))
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
        has = [part.column for part in _parts(table)]
        if (self.partition_by or is_placeholder(table)) and has != list(self.partition_by):
            raise SinkUnfit(self.name, f"the table is partitioned by {', '.join(has) or 'nothing'}")
        refuse_features(self.name, table, changes_rows=self.mode != "append")
        if not is_placeholder(table):
            refuse_columns(self.name, table, given)


def _foreign(since: Sequence[Change]) -> list[str]:
    return [str(change) for change in reversed(since) if change.is_foreign]


def _parts(table: DeltaTable) -> list[Part]:
    return [Part(column) for column in table.metadata().partition_columns]


def _columns(standing: Standing) -> pa.Schema:
    return pa.schema(standing.table.schema().to_arrow())


def _source(file: Active) -> Source:
    return Source(file.key, file.size_bytes, file.partition)


def _is_append_only(standing: Standing) -> bool:
    return standing.table.metadata().configuration.get("delta.appendOnly") == "true"
