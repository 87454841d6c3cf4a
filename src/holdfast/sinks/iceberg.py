"""An Iceberg table: its files are brought below its root, and committed as metadata, by the `pyiceberg` package."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import msgspec
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table, TableProperties, Transaction

from holdfast.decide.chain import admit, go_back, raise_fence, require_holder
from holdfast.epochs import Holder, Link, Marker, Step, Target
from holdfast.errors import BadValue, SinkUnfit
from holdfast.sinks.contract import Sink, WriteMode, refuse_foreign
from holdfast.sinks.iceberg_files import (
    TRANSFORMS,
    added,
    address_of,
    in_utc,
    load_catalog_of,
    parts_of,
    read_parts,
    refuse_columns,
    refuse_names,
    refuse_types,
    refuse_zones,
    within,
)
from holdfast.sinks.iceberg_log import MERGE, IcebergLog, Note, Standing, is_first, note_of
from holdfast.sinks.placing import Placing, Token
from holdfast.sinks.required import refuse_nulls
from holdfast.sinks.rewrite import InProcess, Part, Rewriter, Source, refuse_parts, refuse_reserved
from holdfast.sinks.staged import StagedRows
from holdfast.sinks.table_files import Named, TableFiles, folder_of
from holdfast.sinks.upsert import key_bounds, refuse_key
from holdfast.store import Address
from holdfast.store.address import redact

__all__ = ["Iceberg"]

SMALL = 64 * 1024 * 1024
"""Up to so many bytes are written anew in this process; more is a Spark job, if there is a session."""

EVERY_ROW = AlwaysTrue()


class _Place:
    """A table's files, once it is known where they lie."""

    def __init__(self, sink: Iceberg, root: Address) -> None:
        self.root = root
        self.files = TableFiles(root)
        self.placing = Placing(sink, self.files, sink._rewriter)


class Iceberg(Sink):
    """A table of an Iceberg catalog; made at the first fence, with its columns at the first commit.

    The catalog is pyiceberg's own, its name in pyiceberg's configuration, or the properties that load it. Rows that
    were staged below the table's location become its files as they are; others are copied there. It is partitioned by
    columns ("sku") or by times ("day(ts)"). Where it is, or in mode upsert, rows are written anew: up to 64 MiB in this
    process, more by Spark's executors if a session is given (`session`), else here too. It goes back by snapshot: those
    that were expired are gone, and each savepoint has a tag (`holdfast-NAME`), which holds its own.
    """

    modes: ClassVar[frozenset[WriteMode]] = frozenset({"append", "upsert", "overwrite"})
    can_jump: ClassVar[bool] = True

    def __init__(
        self,
        catalog: Catalog | Mapping[str, str] | str,
        table: str,
        *,
        mode: WriteMode = "append",
        key: Sequence[str] = (),
        partition_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(mode, key)
        if "." not in table:
            raise BadValue("table of an Iceberg sink", f"with its namespace, such as 'default.{table}'")
        self.table = table
        self.partition_by = read_parts((partition_by,) if isinstance(partition_by, str) else partition_by)
        self.properties = dict(properties or {})
        """Of the table, if it is made here."""
        self._owns_catalog = not isinstance(catalog, Catalog)
        self._catalog = load_catalog_of(catalog)
        self._log = IcebergLog(self._catalog, table)
        self._place: _Place | None = None
        self._near: dict[str, FileScanTask] = {}
        self._of: Table | None = None

    @property
    def target(self) -> str:
        return f"iceberg:{self._catalog.name}.{self.table}"

    def _identity(self) -> Hashable:
        # Catalogs of one name may be another's.
        return self._catalog.name, frozenset(map(str, self._catalog.properties.items())), self.table

    @property
    def root(self) -> Address | None:
        """What is staged below here becomes the table's without a copy; known once the sink is fenced."""
        return self._place.root if self._place else None

    @property
    def adopts_below(self) -> Address | None:
        return self.root if self.mode == "append" and not self.partition_by else None

    def has_adopted(self, token: Any) -> bool:
        return msgspec.convert(token, Token).placed.is_adopted

    def look(self) -> Marker | None:
        with self._log.reaching(self.name, "look"):
            standing = self._log.load()
        return standing.marker if standing else None

    def fence(self, holder: Holder, begin: Link) -> Marker:
        with self._log.reaching(self.name, "fence"):
            while True:
                standing = self._log.load()
                if standing is None:
                    self._log.create(self.properties)
                    continue
                marker = raise_fence(self.name, standing.marker, holder, begin)
                self._place = _Place(self, address_of(standing.table.location(), standing.table.io))
                if not standing.table.metadata.snapshots:
                    self._place.files.refuse_orphans(redact(standing.table.location()))
                if self._log.mark(standing, Note("fence", marker)):
                    break
        self._holder = holder
        return marker

    def check(self, schema: pa.Schema) -> None:
        self._checked(schema)

    def prepare(self, step: Step, rows: StagedRows) -> Any:
        standing = self._checked(rows.schema)
        with self._log.reaching(self.name, "prepare"):
            # What was staged below the root may be gone: whoever has taken over sweeps it.
            require_holder(self.name, standing.marker if standing else None, self._mine())
            assert standing is not None
            placing = self._placed().placing
            refuse_zones(self.name, placing.staged(rows).values())
            refuse_nulls(self.name, standing.table.schema().as_arrow(), rows, placing.staged(rows))
            if self.key and (why := placing.bad_keys(rows, self.key)):
                raise SinkUnfit(self.name, why)
            token = Token(placing.place(self._mine(), step, rows, self._parts(standing)))
            try:
                near = self._look_near(standing, rows)
                if self.key:
                    token = self._rewritten(standing, step, token, rows, near)
                # All that the commit will say is told here, while it can still be refused.
                self._added(self._shaped(standing, rows), token)
                self._going(standing, token)
            except BaseException:
                placing.discard(token)
                raise
        return msgspec.to_builtins(token)

    def commit(self, step: Step, token: Any, rows: StagedRows) -> Any:
        prepared = msgspec.convert(token, Token)
        with self._log.reaching(self.name, "commit"):
            place = self._placed()
            while True:
                standing = self._held()
                after = admit(self.name, standing.marker, self._mine(), step)
                if after is None:
                    return self._log.position(standing)
                parts = self._parts(standing)
                brought = place.placing.still_placed(self._mine(), step, prepared.placed, rows, parts)
                prepared = Token(brought, prepared.rewritten)
                near = self._look_near(standing, rows)
                if self.key and not place.placing.is_right(prepared.rewritten, near):
                    # Others have changed the table since, or it went with the process that did it.
                    prepared = self._rewritten(standing, step, prepared, rows, near)
                transaction = self._shaped(standing, rows)
                folders = sorted({folder_of(file.key) for file in prepared.files})
                note = Note("commit", after, folders)
                said = self._log.noting(transaction, note)
                self._produce(transaction, said, self._added(transaction, prepared), self._going(standing, prepared))
                if self._log.land(transaction):
                    break
            place.placing.over(msgspec.convert(token, Token), prepared)
            place.files.sweep(self._mine(), step, prepared.files, self._named)
            return self._log.position(standing._replace(note=note))

    def abort(self, token: Any) -> None:
        with self._log.reaching(self.name, "abort"):
            self._placed().placing.discard(msgspec.convert(token, Token))

    # ---- going back ----

    def why_not_back(self, target: Target) -> str | None:
        with self._log.reaching(self.name, "look"):
            standing = self._log.load()
            if standing is None or standing.note is None:
                return "nothing was ever committed to it"
            if standing.note.ends_with(target):
                return None
            if self._log.find(standing.table, target) is None:
                return f"it has no snapshot that ends with {target.at}: it was expired, or never was"
        return None

    def foreign_since(self, target: Target) -> Sequence[str]:
        with self._log.reaching(self.name, "look"):
            standing = self._log.load()
            found = self._log.find(standing.table, target) if standing else None
            return self._log.foreign(standing.table, found) if standing and found else ()

    def roll_back(self, target: Target, *, discard_foreign: bool = False) -> None:
        with self._log.reaching(self.name, "roll back"):
            while True:
                standing = self._held()
                after = go_back(self.name, standing.marker, self._mine(), target.at, target.decided)
                if after is None:
                    return
                found = self._log.find(standing.table, target)
                if found is None:
                    raise SinkUnfit(
                        self.name, f"it can't go back to {target.at}: its snapshot was expired, or never was"
                    )
                # Of this very snapshot: if another is the current one by now, the commit fails, and it is looked again.
                if not discard_foreign:
                    refuse_foreign(self.name, target, self._log.foreign(standing.table, found))
                if self._log.mark(standing, Note("roll back", after), found):
                    return

    def stand_at(self, target: Target) -> None:
        with self._log.reaching(self.name, "stand back"):
            while True:
                standing = self._held()
                after = go_back(self.name, standing.marker, self._mine(), target.at, target.decided)
                if after is None or self._log.mark(standing, Note("stand back", after)):
                    return

    def hold(self, savepoints: Mapping[str, Target]) -> None:
        """As the contract has it: each has a tag. Tags of others are left alone."""
        with self._log.reaching(self.name, "tag"):
            while True:
                standing = self._log.load()
                if standing is None or self._log.retag(standing.table, savepoints):
                    return

    def close(self) -> None:
        if self._owns_catalog:
            self._catalog.close()

    # ---- files ----

    def _produce(
        self, transaction: Transaction, said: dict[str, str], new: Sequence[DataFile], gone: Sequence[DataFile]
    ) -> None:
        """Stage the snapshot of an epoch."""
        update = transaction.update_snapshot(snapshot_properties=said)
        merges = transaction.table_metadata.properties.get(MERGE) == "true"
        producer: Any = update.overwrite() if gone else update.merge_append() if merges else update.fast_append()
        for file in gone:
            producer.delete_data_file(file)
        for file in new:
            producer.append_data_file(file)
        producer.commit()

    def _shaped(self, standing: Standing, rows: StagedRows) -> Transaction:
        """A transaction in which the table has its columns and partitions, and files are read by the names in them."""
        transaction = standing.table.transaction()
        if not standing.has_columns:
            with transaction.update_schema() as columns:
                columns.union_by_name(in_utc(rows.schema))
            with transaction.update_spec() as spec:
                for part in self.partition_by:
                    name = f"{part.column}_{part.unit}" if part.unit else None
                    spec.add_field(part.column, TRANSFORMS[part.unit], name)
        if TableProperties.DEFAULT_NAME_MAPPING not in transaction.table_metadata.properties:
            names = transaction.table_metadata.schema().name_mapping.model_dump_json()
            transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: names})
        return transaction

    def _added(self, transaction: Transaction, token: Token) -> list[DataFile]:
        metadata = transaction.table_metadata
        footers = self._placed().placing.footers(token.files)
        return [added(self.name, metadata, file, footer) for file, footer in zip(token.files, footers, strict=True)]

    def _going(self, standing: Standing, token: Token) -> list[DataFile]:
        if self.mode == "overwrite":
            return [task.file for task in self._planned(standing)] if standing.has_columns else []
        return [self._near[key].file for key in token.removed]

    def _rewritten(
        self, standing: Standing, step: Step, token: Token, rows: StagedRows, near: Sequence[Source]
    ) -> Token:
        schema, parts = standing.table.schema().as_arrow(), self._parts(standing)
        done = self._placed().placing.rewrite(self._mine(), step, rows, self.key, near, schema, parts)
        return Token(token.placed, done)

    def _look_near(self, standing: Standing, rows: StagedRows) -> list[Source]:
        """The files that may hold a key of these rows, by all that the table says of them."""
        self._near, self._of = {}, standing.table
        if not self.key or not standing.has_columns or not rows.staged.rows:
            return []
        bounds = key_bounds(self._placed().placing.staged(rows).values(), rows.schema, self.key)
        location = f"{standing.table.location().rstrip('/')}/"
        for task in self._planned(standing, within(bounds)):
            self._near[task.file.file_path.removeprefix(location)] = task
        return [self._source(key, task, standing.table.metadata.default_spec_id) for key, task in self._near.items()]

    def _planned(self, standing: Standing, rows: BooleanExpression = EVERY_ROW) -> Iterable[FileScanTask]:
        try:
            return standing.table.scan(row_filter=rows).plan_files()
        except (ValueError, NotImplementedError) as error:
            raise SinkUnfit(self.name, f"which files the table has can't be told: {error}") from error

    @staticmethod
    def _source(key: str, task: FileScanTask, spec_id: int) -> Source:
        deletes = [file.file_path for file in task.delete_files]
        return Source(key, task.file.file_size_in_bytes, {}, deletes, task.file.spec_id == spec_id)

    def _rewriter(self, size_bytes: int) -> Rewriter:
        root = self._placed().root
        if self.session is None or size_bytes <= SMALL or not all(map(self._is_plain, self._near)):
            return InProcess(self.name, root, self._read)
        from holdfast.sinks.rewrite_spark import BySpark

        return BySpark(self.name, root, self.session)

    def _is_plain(self, key: str) -> bool:
        """Whether the names in a file say what is in it: nothing was renamed, moved or deleted since."""
        assert self._of is not None
        shapes = [schema for schema in self._of.metadata.schemas if schema.fields]
        return len(shapes) == 1 and "://" not in key and not key.startswith("/") and not self._near[key].delete_files

    def _read(self, source: Source, schema: pa.Schema) -> Iterator[pa.Table]:
        """A file as the table has it: by the numbers of columns, and without rows that were deleted."""
        assert self._of is not None
        columns = self._of.schema().select(*schema.names)
        scan = ArrowScan(self._of.metadata, self._of.io, columns, EVERY_ROW)
        for batch in scan.to_record_batches([self._near[source.key]]):
            arrays = [batch.column(field.name).cast(field.type) for field in schema]
            yield pa.Table.from_arrays(arrays, schema=schema)

    def _named(self) -> Named:
        standing = self._log.load()
        assert standing is not None
        table = standing.table
        notes = [note for snapshot in table.metadata.snapshots if (note := note_of(snapshot))]
        folders = {folder for note in notes for folder in note.folders}
        chain = list(self._log.ancestors(table))
        oldest = next(note for snapshot in reversed(chain) if (note := note_of(snapshot)))
        # Before the oldest that is kept there may have been commits whose files are still the table's.
        first = 0 if is_first(chain[-1]) else oldest.marker.holder.generation + 1
        return Named(range(first, self._mine().generation), folders)

    # ---- the table ----

    def _held(self) -> Standing:
        standing = self._log.load()
        require_holder(self.name, standing.marker if standing else None, self._mine())
        assert standing is not None
        return standing

    def _placed(self) -> _Place:
        self._mine()
        assert self._place is not None
        return self._place

    def _parts(self, standing: Standing) -> list[Part]:
        return parts_of(self.name, standing.table.metadata) if standing.has_columns else self.partition_by

    def _checked(self, schema: pa.Schema) -> Standing | None:
        refuse_types(self.name, schema)
        refuse_reserved(self.name, schema)
        refuse_key(self.name, schema, self.key)
        refuse_parts(self.name, schema, self.partition_by)
        with self._log.reaching(self.name, "check"):
            standing = self._log.load()
            if standing and standing.has_columns:
                if self.partition_by and self._parts(standing) != self.partition_by:
                    raise SinkUnfit(self.name, f"the table is partitioned by {standing.table.spec()}")
                refuse_columns(self.name, standing.table, schema)
                refuse_parts(self.name, schema, self._parts(standing))
                refuse_names(self.name, standing.table, schema)
        return standing
