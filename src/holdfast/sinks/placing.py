"""The files of an epoch on their way into a table: placed below its root, with those that they replace."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.epochs import Holder, Step
from holdfast.sinks.contract import Sink
from holdfast.sinks.footers import ranges, read_footers, staged_footers
from holdfast.sinks.rewrite import Part, Rewriter, Source, refuse_parts
from holdfast.sinks.staged import StagedRows
from holdfast.sinks.table_files import Brought, DataFile, TableFiles, new_folder

__all__ = ["Placing", "Rewritten", "Token"]


class Rewritten(msgspec.Struct, frozen=True):
    """Files that were written anew: of which it was told (a digest), which go, and what was kept."""

    of: str
    removed: list[str]
    kept: Brought


class Token(msgspec.Struct, frozen=True):
    """What was prepared: the files of the epoch, and, for an upsert, those of the table without the keys in it."""

    placed: Brought
    rewritten: Rewritten | None = None

    @property
    def files(self) -> list[DataFile]:
        return [*self.placed.files, *(self.rewritten.kept.files if self.rewritten else [])]

    @property
    def folders(self) -> frozenset[str]:
        """Those that were made for it."""
        kept = self.rewritten.kept.folder if self.rewritten else ""
        return frozenset({self.placed.folder, kept} - {""})

    @property
    def removed(self) -> frozenset[str]:
        return frozenset(self.rewritten.removed if self.rewritten else [])


class Placing:
    """Brings the rows of an epoch below the root of one table. Not for several threads.

    `choose` gives who writes anew so many bytes. The sink is asked for its name when that is needed: its pipeline gives
    it another one.
    """

    def __init__(self, sink: Sink, files: TableFiles, choose: Callable[[int], Rewriter]) -> None:
        self._sink = sink
        self._files = files
        self._choose = choose
        self._footers: dict[str, pq.FileMetaData] = {}
        self._staged: tuple[str, Mapping[str, pq.FileMetaData]] | None = None

    def staged(self, rows: StagedRows) -> Mapping[str, pq.FileMetaData]:
        """The footers of the staged files that hold rows, by their names; see `staged_footers`."""
        if self._staged is None or self._staged[0] != rows.staged.url:
            self._staged = rows.staged.url, staged_footers(self._sink.name, rows)
        return self._staged[1]

    def bad_keys(self, rows: StagedRows, key: Sequence[str]) -> str | None:
        return self._choose(rows.staged.size_bytes).bad_keys(rows, key)

    def footers(self, files: Sequence[DataFile]) -> list[pq.FileMetaData]:
        """The footers of files below the root; each is read once."""
        unread = [file for file in files if file.key not in self._footers]
        found = read_footers(self._files.store, self._files.objects(unread))
        self._footers.update({file.key: footer for file, footer in zip(unread, found, strict=True)})
        return [self._footers[file.key] for file in files]

    def place(self, holder: Holder, step: Step, rows: StagedRows, parts: Sequence[Part]) -> Brought:
        """Have the rows below the root, each file in one partition. One that fails leaves nothing."""
        footers = self.staged(rows)
        refuse_parts(self._sink.name, rows.schema, parts)
        if _fit(footers.values(), parts):
            brought = self._files.bring_in(holder, step, rows)
            self._footers.update({f.key: footer for f, footer in zip(brought.files, footers.values(), strict=True)})
            return brought
        folder = new_folder(holder, step.epoch)
        try:
            return Brought(self._choose(rows.staged.size_bytes).split(rows, parts, folder), folder)
        except BaseException:
            self._files.discard(folder)
            raise

    def still_placed(
        self, holder: Holder, step: Step, brought: Brought, rows: StagedRows, parts: Sequence[Part]
    ) -> Brought:
        """What was placed; placed anew if it went with the process that did it, or is not split as the table is now."""
        if self._has(brought):
            if _fit(self.footers(brought.files), parts):
                return brought
        elif not brought.folder:
            self._files.require(brought.files)
        return self.place(holder, step, rows, parts)

    def rewrite(
        self,
        holder: Holder,
        step: Step,
        rows: StagedRows,
        key: Sequence[str],
        near: Sequence[Source],
        schema: pa.Schema,
        parts: Sequence[Part],
    ) -> Rewritten:
        """Write those files anew that hold a key of these rows, without such rows of theirs.

        `near` are the files that may hold one, `schema` that of the table.
        """
        rewriter = self._choose(rows.staged.size_bytes + sum(source.size_bytes for source in near))
        folder = new_folder(holder, step.epoch)
        try:
            touched = rewriter.touched(near, rows, key) if near else []
            kept = rewriter.without(touched, rows, key, schema, parts, folder) if touched else []
        except BaseException:
            self._files.discard(folder)
            raise
        return Rewritten(_digest(near), [source.key for source in touched], Brought(kept, folder if kept else ""))

    def is_right(self, done: Rewritten | None, near: Sequence[Source]) -> bool:
        """Whether what was written anew is still there, and of all files that may hold a key now."""
        return done is not None and done.of == _digest(near) and self._has(done.kept)

    def discard(self, token: Token) -> None:
        """Take away what was made for a token."""
        for file in token.files:
            self._footers.pop(file.key, None)
        for folder in token.folders:
            self._files.discard(folder)

    def over(self, prepared: Token, committed: Token) -> None:
        """An epoch is committed: what was made for it in vain goes, and what was read of its files."""
        self._footers.clear()
        self._staged = None
        for folder in prepared.folders - committed.folders:
            self._files.discard(folder)

    def _has(self, brought: Brought) -> bool:
        # Those that this process has read have been there.
        return all(file.key in self._footers for file in brought.files) or self._files.are_there(brought.files)


def _fit(footers: Iterable[pq.FileMetaData], parts: Sequence[Part]) -> bool:
    """Whether each file is known to lie in one partition."""
    return not parts or all(part.holds(found[(part.column,)]) for found in map(ranges, footers) for part in parts)


def _digest(sources: Sequence[Source]) -> str:
    return hashlib.sha256("\n".join(sorted(source.identity for source in sources)).encode()).hexdigest()
