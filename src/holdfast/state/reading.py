"""The state of a checkpoint as rows, through Spark's own reader of a verified copy that is gone afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.checkpoint import Checkpoint
from holdfast.laying import Progress
from holdfast.state.files import NO_PARTITION
from holdfast.state.inventory import AGGREGATION, JOIN, Inventory, Part, is_transform, take_inventory
from holdfast.state.naming import with_fields_told_apart
from holdfast.state.scratch import lay_operator, scratch_folder
from holdfast.state.session import as_pinned, explained_by_spark, some_session
from holdfast.state.where import bears_out, by_key, partition_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

__all__ = ["State", "documents", "open_state", "read_part", "with_fields"]

BY_KEY = frozenset(
    {AGGREGATION, JOIN, "dedupe", "dedupeWithinWatermark", "flatMapGroupsWithState", "applyInPandasWithState"}
)
"""Operators whose rows lie where their whole key says. The key of a session has more in it than it is placed by."""


@contextmanager
def open_state(
    checkpoint: Checkpoint, spark: SparkSession | None = None, *, progress: Progress | None = None
) -> Iterator[State]:
    """Open the state of a checkpoint for as long as the block lasts: its frames can be used inside only.

    Without `spark` the active session serves, or a local one that is made.
    """
    inventory = take_inventory(checkpoint)
    session = as_pinned(some_session(spark), inventory)
    with scratch_folder() as folder:
        yield State(checkpoint, inventory, session, folder, progress)


class State:
    """The state of one checkpoint. What of it is asked for is laid down when it first is."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        inventory: Inventory,
        session: SparkSession,
        folder: Path,
        progress: Progress | None = None,
    ) -> None:
        self.inventory = inventory
        self.session = session
        self._checkpoint = checkpoint
        self.folder = folder
        self._progress = progress
        self._laid: dict[tuple[int, int | None], str] = {}

    def __repr__(self) -> str:
        return f"<state of {self.inventory.checkpoint}: {'; '.join(map(str, self.inventory.parts)) or 'none'}>"

    @property
    def parts(self) -> tuple[Part, ...]:
        """What can be read: of each operator its state, the sides of a join, or variables and timers."""
        return self.inventory.parts

    def rows(
        self,
        operator: int | None = None,
        part: str | None = None,
        where: Mapping[str, Any] | None = None,
        *,
        whole: bool = False,
    ) -> DataFrame:
        """The rows of one part: `key`, `value` (or what the part holds) and `partition_id`.

        Fields that Spark gives the same name are told apart in their order, as `sum` and `sum_2` for two sums.
        `where` gives fields of the key the values that they must have. If it gives all of them, only the partition that
        holds the key is laid down and read. Lists and maps come element by element, or `whole`, one row for each key.
        """
        chosen = self.inventory.choose(operator, part)
        found = self._found(chosen, where, whole)
        return _as_said(found) if chosen.has_more else found

    def as_kept(self, part: Part) -> DataFrame:
        """All rows of a part as Spark's reader has them, with what stands behind their fields: good for comparisons."""
        return self._read(part, whole=False)

    def _found(self, chosen: Part, where: Mapping[str, Any] | None, whole: bool) -> DataFrame:
        if not where:
            return self._read(chosen, whole)
        key: Any = self._read(chosen, whole, NO_PARTITION).schema["key"].dataType
        condition = by_key(self.session, key, where)
        found = self._of_one_partition(chosen, key, where, whole)
        return (self._read(chosen, whole) if found is None else found).where(condition)

    def count(self, part: Part) -> int:
        """How many rows a part has; all of it is read."""
        with explained_by_spark(self.inventory.checkpoint):
            return self._read(part, whole=False).count()

    def _read(self, part: Part, whole: bool, partition: int | None = None) -> DataFrame:
        at = (part.operator, partition)
        if at not in self._laid:
            folder = self.folder / f"{part.operator}-{len(self._laid)}"
            self._laid[at] = lay_operator(
                self._checkpoint, self.inventory, folder, part.operator, partition, self._progress
            )
        return read_part(self.session, self._laid[at], part, self.inventory.checkpoint, whole=whole)

    def _of_one_partition(self, part: Part, key: Any, where: Mapping[str, Any], whole: bool) -> DataFrame | None:
        """The rows of the only partition that can hold a key; None if that is not certain."""
        from pyspark.sql import functions as f

        operator = self.inventory.operators[part.operator]
        if not (operator.name in BY_KEY or is_transform(operator.name)) or operator.partitions < 2:
            return None
        partition = partition_of(self.session, key, where, operator.partitions)
        if partition is None:
            return None
        rows = self._read(part, whole, partition)
        with explained_by_spark(self.inventory.checkpoint):
            if not bears_out(rows, partition, operator.partitions):
                return None
        return rows.withColumn("partition_id", f.lit(partition))


def documents(rows: DataFrame, limit: int | None = None) -> list[dict[str, Any]]:
    """Rows as JSON has them, the first of them or all."""
    from pyspark.sql import functions as f

    texts = rows.select(f.to_json(f.struct("*"), {"ignoreNullFields": "false"}).alias("row"))
    return [json.loads(row["row"]) for row in (texts if limit is None else texts.limit(limit)).collect()]


def _as_said(rows: DataFrame) -> DataFrame:
    """Rows with the fields that their schema has and no others: Spark's JSON stumbles over one that is not in it."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    def column(name: str, kind: DataType) -> Column:
        if not isinstance(kind, StructType):
            return f.col(name)
        return f.struct(*(f.col(name).getField(field).alias(field) for field in kind.names)).alias(name)

    return rows.select(*(column(field.name, field.dataType) for field in rows.schema.fields))


def with_fields(rows: DataFrame) -> DataFrame:
    """Rows without the columns that have nothing in them, as the key of a global aggregate: Parquet takes none."""
    return rows.select(*(field.name for field in rows.schema.fields if field.dataType.simpleString() != "struct<>"))


def read_part(session: SparkSession, location: str, part: Part, checkpoint: str, *, whole: bool) -> DataFrame:
    """What Spark's reader makes of one part of a checkpoint directory, no two fields of a struct with the same name."""
    options = {**part.options, "path": location}
    if "stateVarName" in options:
        options["flattenCollectionTypes"] = str(not whole).lower()
    with explained_by_spark(checkpoint):
        return with_fields_told_apart(session.read.format("statestore").options(**options).load())
