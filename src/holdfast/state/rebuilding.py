"""Rows made into state again, by Spark: a query of one batch whose operator keeps just these rows.

No private API and no format of ours: what the query leaves is what Spark writes. An aggregation keeps its partial
values, one column for each; a max of one row is that row, so a query of max over them keeps the same columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import StateFixed, StateNotKept
from holdfast.state.inventory import AGGREGATION, Inventory, Part, is_transform
from holdfast.state.session import as_pinned, failed_in_spark, first_words, version_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
    from pyspark.sql.types import DataType, StructType

__all__ = ["Kept", "rebuild", "refuse_fixed"]

SETTINGS = {
    # Then the first version is a snapshot, which needs no others before it.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "false",
    # The sources of the checkpoint may have names; those of the query that makes its state again have none.
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "false",
}
AGGREGATION_FORMAT = "spark.sql.streaming.aggregation.stateFormatVersion"
IN_PYTHON = frozenset({"transformWithStateInPandasExec", "transformWithStateInPySparkExec"})
WITH_ROWS = (4, 1)
"""The first Spark with a transformWithState that is given rows in Python."""
MODES = {"EventTime": "EventTime", "NoTime": "None", "None": "None"}


@dataclass(frozen=True)
class Kept:
    """One part of an operator, the Parquet files with the rows that it is to keep, and their shape."""

    part: Part
    files: str
    schema: StructType

    @property
    def kind(self) -> Any:
        return self.schema[self.part.column].dataType

    @property
    def carried(self) -> tuple[Column, DataType]:
        """The column as it travels, and its type: a map as its entries, since Python has no keys that are lists."""
        from pyspark.sql import functions as f
        from pyspark.sql.types import ArrayType, MapType, StructType

        if isinstance(self.kind, MapType):
            entry = StructType().add("key", self.kind.keyType).add("value", self.kind.valueType)
            return f.map_entries(self.part.column), ArrayType(entry)
        return f.col(self.part.column), self.kind


def refuse_fixed(spark: SparkSession, inventory: Inventory, operator: int) -> None:
    """Raise StateFixed for an operator whose state can't be made again from its rows."""
    described = inventory.descriptions.get(operator)
    if why := _why_fixed(spark, inventory, operator):
        kind = inventory.operators[operator].kind or (described.name if described else "of an unknown kind")
        raise StateFixed(inventory.checkpoint, f"operator {operator} ({kind}): {why}")


def _why_fixed(spark: SparkSession, inventory: Inventory, operator: int) -> str | None:
    described = inventory.descriptions.get(operator)
    if described is None:
        return "it has no description, as before Spark 4.0"
    if described.name == AGGREGATION:
        old = inventory.settings.get(AGGREGATION_FORMAT, "2") != "2"
        return "its state is of format 1" if old else None
    if not is_transform(described.name):
        return "only aggregations and transformWithState can be edited"
    if described.name not in IN_PYTHON:
        return "only a transformWithState in Python can be edited"
    if version_of(spark) < WITH_ROWS:
        return f"Spark {spark.version} can't make its state again; 4.1 and later can"
    if described.properties.get("timeMode") not in MODES:
        return "its timers and lifetimes go by the clock, and would begin anew"
    if lasting := [part.name for part in inventory.of_operator(operator) if part.expires]:
        return f"what is in {', '.join(lasting)} has a lifetime, which would begin anew"
    return None


def rebuild(spark: SparkSession, inventory: Inventory, operator: int, kept: Sequence[Kept], into: Path) -> None:
    """Run the query that keeps these rows as its state, in the checkpoint directory `into`.

    `kept` are all parts of the operator. Raises StateFixed if it can't keep such rows, StateNotKept if Spark fails.
    """
    session = as_pinned(spark, inventory, SETTINGS)
    described = inventory.descriptions[operator]
    try:
        if described.name == AGGREGATION:
            rows = _aggregated(session, inventory.checkpoint, *kept)
        else:
            rows = _transformed(session, kept, MODES[described.properties["timeMode"]])
        writer = rows.writeStream.format("noop").outputMode("update").option("checkpointLocation", f"file:{into}")
        writer.trigger(availableNow=True).start().awaitTermination()
    except failed_in_spark() as error:
        raise StateNotKept(inventory.checkpoint, f"Spark failed: {first_words(error)}") from error


def _aggregated(session: SparkSession, checkpoint: str, kept: Kept) -> DataFrame:
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as f

    keys, values = _fields(kept.schema, "key", "k"), _fields(kept.schema, "value", "v")
    rows = session.readStream.schema(kept.schema).parquet(kept.files).select(*keys, *values)
    each = [f.max(f"v{position}").alias(f"v{position}") for position in range(len(values))]
    try:
        return rows.groupBy(*(f"k{position}" for position in range(len(keys)))).agg(*each)
    except AnalysisException as error:
        # A max needs an order, and a map has none.
        raise StateFixed(checkpoint, f"{kept.part}: {first_words(error)}") from error


def _fields(schema: StructType, column: str, prefix: str) -> list[Column]:
    from pyspark.sql import functions as f

    names = schema[column].dataType.names if column in schema.names else []  # type: ignore[attr-defined]
    return [f.col(column).getField(name).alias(f"{prefix}{position}") for position, name in enumerate(names)]


def _transformed(session: SparkSession, kept: Sequence[Kept], mode: str) -> DataFrame:
    """Each part is a stream of its own; a row of all together has only the column of its part."""
    from pyspark.sql import functions as f

    streams = []
    for mine in kept:
        rows = session.readStream.schema(mine.schema).parquet(mine.files)
        carried = [other.carried[0] if other is mine else f.lit(None) for other in kept]
        typed = [column.cast(other.carried[1]) for column, other in zip(carried, kept, strict=True)]
        named = [column.alias(f"p{position}") for position, column in enumerate(typed)]
        streams.append(rows.select(*_fields(mine.schema, "key", "k"), *named))
    together = reduce(lambda one, other: one.union(other), streams)
    # Timers by event time ask for a watermark. This one stays at 0: no row comes too late, and no timer fires.
    marked = together.withColumn("at", f.timestamp_seconds(f.lit(1))).withWatermark("at", "1 hour")
    keys = [name for name in together.columns if name.startswith("k")]
    return marked.groupBy(*keys).transformWithState(_keeper(kept), "nothing INT", "Update", mode)


def _keeper(kept: Sequence[Kept]) -> StatefulProcessor:
    """A processor that keeps what it is given.

    Its class is made in here so that it travels with the query: executors need not have Holdfast.
    """
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    described = [(each.part.name, each.part.column, each.kind) for each in kept]

    def taken(held: Any, kind: Any) -> tuple[Any, ...]:
        # A struct inside of a row comes as a Row or as a dict; both know their fields by name.
        return tuple(held[name] for name in kind.names)

    class Keeper(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            make: dict[str, Any] = {
                "value": handle.getValueState,
                "list_value": lambda name, kind: handle.getListState(name, kind.elementType),
                "map_value": lambda name, kind: handle.getMapState(name, kind.keyType, kind.valueType),
                "expiration_timestamp_ms": lambda *_: handle,
            }
            self.kept = [(column, kind, make[column](name, kind)) for name, column, kind in described]

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: ARG002, N802, N803
            for row in rows:
                for position, (column, kind, state) in enumerate(self.kept):
                    held = row[f"p{position}"]
                    if held is None:
                        continue
                    if column == "value":
                        state.update(taken(held, kind))
                    elif column == "list_value":
                        state.put([taken(element, kind.elementType) for element in held])
                    elif column == "map_value":
                        for entry in held:
                            state.updateValue(taken(entry["key"], kind.keyType), taken(entry["value"], kind.valueType))
                    else:
                        state.registerTimer(held)
            return iter(())

        def close(self) -> None:
            pass

    return Keeper()
