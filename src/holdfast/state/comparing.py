"""Rows of state beside each other: whether they are the same, and what changed from one checkpoint to another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.checkpoint import Checkpoint
from holdfast.errors import BadValue
from holdfast.laying import Progress
from holdfast.state.inventory import Part
from holdfast.state.reading import State, open_state
from holdfast.state.session import explained_by_spark

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

__all__ = ["Changed", "changed_rows", "count_unlike", "same_shape"]

PLACE = "partition_id"


@dataclass(frozen=True)
class Changed:
    """What changed in one part: how many keys were added, removed and changed, and the rows themselves.

    `rows` has the columns change, key, before and after, and can be used only while both checkpoints are open.
    """

    part: Part
    counts: Mapping[str, int]
    rows: DataFrame


@contextmanager
def changed_rows(
    before: Checkpoint,
    after: Checkpoint,
    operator: int | None = None,
    part: str | None = None,
    spark: SparkSession | None = None,
    *,
    progress: Progress | None = None,
) -> Iterator[Changed]:
    """Compare one part of two checkpoints by key. Raises BadValue if their rows are of different shapes."""
    with open_state(before, spark, progress=progress) as one, open_state(after, spark, progress=progress) as other:
        chosen = one.inventory.choose(operator, part)
        other.inventory.choose(chosen.operator, chosen.name)
        old, new = (_by_key(state, chosen) for state in (one, other))
        if not same_shape(old.schema, new.schema):
            why = f"{old.schema.simpleString()} before, {new.schema.simpleString()} after"
            raise BadValue(f"state of {before.pipeline.name}, {chosen}", f"the rows have different shapes: {why}")
        rows = _changes(old, new).persist()
        try:
            with explained_by_spark(one.inventory.checkpoint):
                counts = {row["change"]: int(row["count"]) for row in rows.groupBy("change").count().collect()}
            yield Changed(chosen, {name: counts.get(name, 0) for name in ("added", "removed", "changed")}, rows)
        finally:
            rows.unpersist()


def _by_key(state: State, part: Part) -> DataFrame:
    """One row for each key; of what has several, all their values in order."""
    from pyspark.sql import functions as f

    rows = state.rows(part.operator, part.name, whole=True)
    # A map has no order of its own: only its entries in order can be compared.
    rows = rows.select(
        _ordered(f.col("key"), rows.schema["key"].dataType).alias("key"),
        _ordered(f.col(part.column), rows.schema[part.column].dataType).alias("value"),
    )
    if part.unique:
        return rows
    return rows.groupBy("key").agg(f.sort_array(f.collect_list("value")).alias("value"))


def _changes(old: DataFrame, new: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    one = old.select(f.col("key").alias("old_key"), f.col("value").alias("before"), f.lit(True).alias("was"))
    other = new.select(f.col("key").alias("new_key"), f.col("value").alias("after"), f.lit(True).alias("is"))
    both = one.join(other, f.col("old_key").eqNullSafe(f.col("new_key")), "full_outer")
    change = (
        f.when(f.col("was").isNull(), "added")
        .when(f.col("is").isNull(), "removed")
        .when(~f.col("before").eqNullSafe(f.col("after")), "changed")
    )
    key = f.coalesce("old_key", "new_key").alias("key")
    return both.select(change.alias("change"), key, "before", "after").where("change IS NOT NULL")


def count_unlike(one: DataFrame, other: DataFrame) -> int:
    """How many rows, repetitions counted, are in one of two frames only. Where a row lies does not count."""
    from pyspark.sql import functions as f

    names = [name for name in one.columns if name != PLACE]

    def counted(frame: DataFrame, sign: int) -> DataFrame:
        fields = [_ordered(f.col(name), frame.schema[name].dataType).alias(name) for name in names]
        return frame.select(f.struct(*fields).alias("row"), f.lit(sign).alias("sign"))

    both = counted(one, 1).union(counted(other, -1)).groupBy("row").agg(f.sum("sign").alias("left_over"))
    row = both.agg(f.sum(f.abs("left_over")).alias("unlike")).first()
    return int(row["unlike"] or 0) if row is not None else 0


def same_shape(one: DataType, other: DataType) -> bool:
    """Whether two types are the same, but for what may be null and what is noted beside."""
    return one.simpleString() == other.simpleString()


def _ordered(column: Column, kind: DataType) -> Column:
    """A column in which maps are entries in order: only those can be grouped and compared."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import ArrayType, MapType, StructType

    if "map<" not in kind.simpleString():
        return column
    if isinstance(kind, MapType):
        entries = f.transform(
            f.map_entries(column),
            lambda entry: f.struct(
                _ordered(entry["key"], kind.keyType).alias("key"),
                _ordered(entry["value"], kind.valueType).alias("value"),
            ),
        )
        return f.array_sort(entries)
    if isinstance(kind, ArrayType):
        return f.transform(column, lambda element: _ordered(element, kind.elementType))
    assert isinstance(kind, StructType)
    fields = [_ordered(column[field.name], field.dataType).alias(field.name) for field in kind.fields]
    return f.when(column.isNotNull(), f.struct(*fields))
