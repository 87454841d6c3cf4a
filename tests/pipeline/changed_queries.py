"""Queries and what can be changed in them: the changes that Spark's users make, with what becomes of each.

Every change names what is found in it, and what Spark 4.3 does with it on an old checkpoint: starts and is "right",
starts and is "wrong", only "starts" (what is right can't be told from a run), or fails with an error class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import LongType

from spark.workloads import STORES

__all__ = ["CASES", "EXOTIC", "Case", "Query", "sums"]

SCHEMA = "at LONG, key STRING, value LONG"
TALLY = "key STRING, n LONG"


@dataclass(frozen=True)
class Query:
    """A query over sources below a folder. `conf` are settings that it is started with."""

    query: Callable[..., DataFrame]
    output_mode: str = "update"
    sources: Mapping[str, str] = field(default_factory=lambda: {"events": "events"})
    schema: str = SCHEMA
    per_batch: int = 1
    conf: Mapping[str, str] = field(default_factory=dict)
    kind: str = "json"
    named: bool = False

    def read(self, spark: SparkSession, folder: Path) -> dict[str, DataFrame]:
        return {name: self._source(spark, folder / source) for name, source in self.sources.items()}

    def build(self, spark: SparkSession, folder: Path) -> DataFrame:
        return self.query(**self.read(spark, folder))

    def _source(self, spark: SparkSession, place: Path) -> DataFrame:
        if self.kind == "rate":
            rows = spark.readStream.format("rate").load()
            return rows.selectExpr("CAST(timestamp AS LONG) AS at", "CAST(value % 3 AS STRING) AS key", "value")
        reader = spark.readStream.schema(self.schema).option("maxFilesPerTrigger", self.per_batch)
        return (reader.name(place.name) if self.named else reader).format(self.kind).load(str(place))


@dataclass(frozen=True)
class Case:
    name: str
    before: Query
    after: Query
    found: tuple[str, ...]
    spark: str
    quick: bool = False
    """Whether it is compared with a real Spark in every run of the tests, and not only in soaks."""


# ---- aggregations ----


def timed(events: DataFrame, delay: str = "20 seconds") -> DataFrame:
    return events.withColumn("time", F.timestamp_seconds("at")).withWatermark("time", delay)


def sums(events: DataFrame) -> DataFrame:
    return events.groupBy("key").agg(F.count("*").alias("n"), F.sum("value").alias("total"))


def windows(events: DataFrame) -> DataFrame:
    return timed(events).groupBy(F.window("time", "15 seconds"), "key").agg(F.count("*").alias("n"))


def sliding(events: DataFrame) -> DataFrame:
    return timed(events).groupBy(F.window("time", "30 seconds", "15 seconds"), "key").agg(F.count("*").alias("n"))


def sessions(events: DataFrame) -> DataFrame:
    return timed(events).groupBy(F.session_window("time", "3 seconds"), "key").agg(F.count("*").alias("n"))


def hourly(events: DataFrame, key: str) -> DataFrame:
    windows = timed(events).withColumn("window", F.window("time", "1 hour"))
    return windows.groupBy(F.expr(f"CAST({key} AS LONG) AS hour")).agg(F.count("*").alias("n"))


def names_of_keys(events: DataFrame) -> DataFrame:
    return events.sparkSession.createDataFrame([(f"k{n}", f"name {n}") for n in range(9)], "key STRING, name STRING")


SUMS, WINDOWS, SLIDING, SESSIONS = Query(sums), Query(windows), Query(sliding), Query(sessions, "append")
STATELESS = Query(lambda events: events.where("value > 3").select("key", "value"), "append")


def summed(*aggregates: str) -> Query:
    return Query(lambda events: events.groupBy("key").agg(*map(F.expr, aggregates)))


def _aggregations() -> Iterator[Case]:
    def case(name: str, query: Callable[[DataFrame], DataFrame], found: str, spark: str, quick: bool = False) -> Case:
        return Case(name, SUMS, Query(query), (found,) if found else (), spark, quick)

    yield case("nothing", lambda events: sums(events), "", "right")
    yield case(
        "projection after",
        lambda events: sums(events).withColumn("mean", F.expr("total / n")),
        "output-changed",
        "right",
    )
    yield case("filter after", lambda events: sums(events).where("total > 30"), "output-changed", "right")
    yield case("filter on a key after", lambda events: sums(events).where("key > 'k3'"), "output-changed", "right")
    yield Case(
        "filter on a key no more",
        Query(lambda events: sums(events).where("key > 'k3'")),
        SUMS,
        ("filter-moved-below-state",),
        "wrong",
    )
    yield Case(
        "filter on a key after, all rows put out",
        Query(sums, "complete"),
        Query(lambda events: sums(events).where("key > 'k3'"), "complete"),
        ("filter-moved-below-state",),
        "wrong",
    )
    yield case("alias renamed", lambda events: sums(events).withColumnRenamed("n", "m"), "output-changed", "right")
    yield case(
        "key renamed",
        lambda events: (
            events.withColumnRenamed("key", "sku").groupBy("sku").agg(F.count("*").alias("n"), F.sum("value"))
        ),
        "output-changed",
        "right",
    )
    yield case(
        "join with a table after",
        lambda events: sums(events).join(names_of_keys(events), "key"),
        "output-changed",
        "right",
    )
    yield case(
        "join with a table before",
        lambda events: sums(events.join(names_of_keys(events), "key")),
        "rows-below-state",
        "right",
    )
    yield case(
        "filter before", lambda events: sums(events.where("value > 9")), "filter-below-state", "wrong", quick=True
    )
    yield case(
        "explode before",
        lambda events: sums(events.select("*", F.explode(F.array(F.lit(1), F.lit(2))))),
        "rows-below-state",
        "wrong",
    )
    yield case(
        "expression before",
        lambda events: sums(events.withColumn("value", F.expr("value * 2"))),
        "aggregate-changed",
        "wrong",
    )
    yield case(
        "key expression",
        lambda events: sums(events.withColumn("key", F.expr("concat('k', value % 5)"))),
        "key-changed",
        "wrong",
    )
    yield Case(
        "sum to max", SUMS, summed("count(*) AS n", "max(value) AS total"), ("aggregate-changed",), "wrong", True
    )
    yield Case("another column", SUMS, summed("count(*) AS n", "sum(at) AS total"), ("aggregate-changed",), "wrong")
    yield Case("another order", SUMS, summed("sum(value) AS total", "count(*) AS n"), ("aggregate-order",), "wrong")
    yield Case(
        "an aggregate more",
        SUMS,
        summed("count(*) AS n", "sum(value) AS total", "max(at) AS most"),
        ("aggregates-retyped",),
        "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE",
        True,
    )
    yield Case(
        "an aggregate less",
        SUMS,
        summed("count(*) AS n"),
        ("aggregates-retyped",),
        "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE",
    )
    yield Case(
        "count to avg",
        SUMS,
        summed("avg(value) AS n", "sum(value) AS total"),
        ("aggregates-retyped",),
        "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE",
    )
    yield case(
        "a key more",
        lambda events: events.groupBy("key", "at").agg(F.count("*").alias("n"), F.sum("value")),
        "key-retyped",
        "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE",
    )
    yield case(
        "a key of another type",
        lambda events: sums(events.withColumn("key", F.expr("value % 5"))),
        "key-retyped",
        "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE",
    )
    yield Case("complete", SUMS, Query(sums, "complete"), ("output-mode",), "starts")
    yield Case("a source column more", SUMS, Query(sums, schema=f"{SCHEMA}, more STRING"), (), "right")
    yield Case("more files in a batch", SUMS, Query(sums, per_batch=2), (), "starts")
    # The last is the only one that Spark takes from the session; the others it keeps as they were.
    for name, conf in (
        ("shuffle partitions", {"spark.sql.shuffle.partitions": "7"}),
        ("state provider", STORES["hdfs"]),
        ("checkpoint format", STORES["changelog-2"]),
        ("watermark policy", {"spark.sql.streaming.multipleWatermarkPolicy": "max"}),
        ("aggregation state format", {"spark.sql.streaming.aggregation.stateFormatVersion": "1"}),
        ("changelogs", STORES["rocksdb"]),
    ):
        yield Case(name, SUMS, Query(sums, conf=conf), (), "right")
    yield Case(
        "watermark",
        WINDOWS,
        Query(
            lambda events: (
                timed(events, "1 minute").groupBy(F.window("time", "15 seconds"), "key").agg(F.count("*").alias("n"))
            )
        ),
        ("watermark",),
        "starts",
    )
    yield Case(
        "window length",
        WINDOWS,
        Query(lambda events: timed(events).groupBy(F.window("time", "30 seconds"), "key").agg(F.count("*").alias("n"))),
        ("window-changed",),
        "wrong",
        True,
    )
    yield Case(
        "slide",
        SLIDING,
        Query(
            lambda events: (
                timed(events).groupBy(F.window("time", "30 seconds", "10 seconds"), "key").agg(F.count("*").alias("n"))
            )
        ),
        ("window-changed", "rows-below-state"),
        "wrong",
    )
    yield Case(
        "filter on a window no more",
        Query(lambda events: windows(events).where("window.start > '2023-11-14 22:13:40'")),
        WINDOWS,
        ("filter-moved-below-state",),
        "starts",
    )
    yield Case(
        "key made from a window",
        Query(lambda events: hourly(events, "window.start")),
        Query(lambda events: hourly(events, "window.end")),
        ("key-changed",),
        "starts",
    )
    yield Case(
        "limit",
        Query(lambda events: events.select("key").limit(7), "append"),
        Query(lambda events: events.select("key").limit(8), "append"),
        ("limit",),
        "starts",
    )
    yield Case(
        "session gap",
        SESSIONS,
        Query(
            lambda events: (
                timed(events).groupBy(F.session_window("time", "6 seconds"), "key").agg(F.count("*").alias("n"))
            ),
            "append",
        ),
        ("window-changed",),
        "starts",
    )


# ---- operators and sources ----


def deduplicated(events: DataFrame) -> DataFrame:
    return events.dropDuplicates(["key", "value"]).select("key", "value")


def near(left: DataFrame, right: DataFrame, kind: str = "inner", within: int = 5) -> DataFrame:
    one, two = timed(left).alias("l"), timed(right).alias("r")
    distance = f"INTERVAL {within} SECONDS"
    when = f"l.key = r.key AND r.time BETWEEN l.time - {distance} AND l.time + {distance}"
    return one.join(two, F.expr(when), kind)


def pairs(left: DataFrame, right: DataFrame) -> DataFrame:
    return near(left, right).selectExpr("l.key", "l.value", "r.value AS other")


def scored(left: DataFrame, right: DataFrame) -> DataFrame:
    both = near(left, right).selectExpr("l.key", "l.value AS value", "r.value AS other", "r.at AS other_at")
    return both.withColumn("score", F.expr("value * other"))


TWO = {"left": "left", "right": "right"}
DEDUP, PAIRS = Query(deduplicated, "append"), Query(pairs, "append", TWO)
UNION = Query(lambda left, right: sums(left.union(right)), sources=TWO)
NOT_THE_SAME = "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA"


def joined(query: Callable[..., DataFrame]) -> Query:
    return Query(query, "append", TWO)


def _operators() -> Iterator[Case]:
    yield Case(
        "dedup columns",
        DEDUP,
        Query(lambda events: events.dropDuplicates(["key"]), "append"),
        ("key-retyped",),
        "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE",
    )
    yield Case(
        "dedup before an aggregation",
        SUMS,
        Query(lambda events: sums(events.dropDuplicates(["key", "value"]))),
        ("operator-added",),
        NOT_THE_SAME,
        True,
    )
    yield Case(
        "dedup no more",
        Query(lambda events: sums(events.dropDuplicates(["key", "value"]))),
        SUMS,
        ("operator-removed",),
        NOT_THE_SAME,
    )
    yield Case(
        "aggregation to dedup",
        SUMS,
        Query(lambda events: events.dropDuplicates(["key"])),
        ("operator-replaced",),
        NOT_THE_SAME,
    )
    yield Case(
        "stateless to stateful",
        Query(STATELESS.query),
        SUMS,
        ("operator-added",),
        "STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY",
    )
    yield Case(
        "another stateless query",
        STATELESS,
        Query(lambda events: events.where("value > 9").select("key"), "append"),
        ("output-changed",),
        "right",
    )
    yield Case(
        "join columns",
        PAIRS,
        joined(lambda left, right: near(left, right).selectExpr("l.key", "l.value", "r.value AS other", "r.at")),
        ("join-retyped",),
        "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE",
    )
    yield Case(
        "join columns, chosen later",
        joined(lambda left, right: scored(left, right).select("key", "score")),
        joined(lambda left, right: scored(left, right).select("key", "score", "other_at")),
        ("join-retyped",),
        "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE",
    )
    yield Case(
        "join column",
        replace(PAIRS, schema=f"{SCHEMA}, more LONG"),
        replace(
            joined(lambda left, right: near(left, right).selectExpr("l.key", "l.value", "r.more AS other")),
            schema=f"{SCHEMA}, more LONG",
        ),
        ("join-column-changed",),
        "wrong",
    )
    yield Case(
        "filter on both sides after a join",
        PAIRS,
        joined(lambda left, right: pairs(left, right).where("value < other")),
        ("output-changed",),
        "right",
    )
    yield Case(
        "join condition",
        PAIRS,
        joined(lambda left, right: near(left, right, within=9).selectExpr("l.key", "l.value", "r.value AS other")),
        ("join-changed",),
        "starts",
    )
    yield Case(
        "filter on a side after a join",
        PAIRS,
        joined(lambda left, right: pairs(left, right).where("value > 9")),
        ("filter-moved-below-state",),
        "wrong",
    )
    yield Case(
        "join kind",
        PAIRS,
        joined(lambda left, right: near(left, right, "left_outer").selectExpr("l.key", "l.value", "r.value AS other")),
        ("join-changed",),
        "starts",
    )
    yield Case("join sides", PAIRS, joined(lambda left, right: pairs(right, left)), ("source-order",), "fails")
    yield Case("source path", SUMS, Query(sums, sources={"events": "left"}), ("source-changed",), "fails")
    yield Case("source kind", SUMS, Query(sums, kind="rate"), ("source-changed", "key-changed"), "fails")
    yield Case("source added", SUMS, UNION, ("source-added",), "fails")
    yield Case("source removed", UNION, Query(sums, sources={"events": "left"}), ("source-removed",), "fails")
    yield Case(
        "sources swapped",
        UNION,
        Query(lambda left, right: sums(right.union(left)), sources=TWO),
        ("source-order",),
        "fails",
    )
    yield Case(
        "source named",
        SUMS,
        Query(sums, named=True, conf={"spark.sql.streaming.queryEvolution.enableSourceEvolution": "true"}),
        ("source-names",),
        "STREAMING_QUERY_EVOLUTION_ERROR",
    )


# ---- Python code ----


@F.udf(LongType())
def scaled(value):  # type: ignore[no-untyped-def]  # Spark reads hints, and knows few
    return value * 2


@F.udf(LongType())
def scaled_otherwise(value):  # type: ignore[no-untyped-def]
    return value * 3


class Tally(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.sums = handle.getValueState("sums", "n LONG", None)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N803
        (n,) = self.sums.get() or (0,)
        n += sum(1 for _ in rows)
        self.sums.update((n,))
        yield Row(key=key[0], n=n)

    def close(self) -> None:
        pass


class RenamedTally(Tally):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.sums = handle.getValueState("totals", "n LONG", None)


class RetypedTally(Tally):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.sums = handle.getValueState("sums", "n STRING", None)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N803
        self.sums.update((str(sum(1 for _ in rows)),))
        yield Row(key=key[0], n=1)


class WiderTally(Tally):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.sums = handle.getValueState("sums", "n LONG", None)
        self.last = handle.getValueState("last", "n LONG", None)


class SteeperTally(Tally):
    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N803
        (n,) = self.sums.get() or (0,)
        n += sum(2 for _ in rows)
        self.sums.update((n,))
        yield Row(key=key[0], n=n)


def tallied(query: Callable[[DataFrame], DataFrame]) -> Query:
    return Query(query)


TALLIED = tallied(lambda events: timed(events).groupBy("key").transformWithState(Tally(), TALLY, "update", "EventTime"))


def exotic(events: DataFrame) -> DataFrame:
    """Expressions that Spark writes in another way each time: seeds, names of parameters, ids."""
    many = F.transform(F.array("value", "at"), lambda each: F.transform(F.array(each), lambda inner: inner + each))
    parsed = F.from_json(F.col("key"), "a LONG, b STRUCT<c: STRING>", {"mode": "PERMISSIVE"})
    chosen = F.when(F.col("value") > 3, F.rand()).when(F.col("at") > 1, F.randn(5)).otherwise(F.lit(2.5))
    rows = events.select("*", many.alias("many"), parsed.alias("parsed"), chosen.alias("chosen"), F.uuid().alias("id"))
    kept = rows.where(F.exists("many", lambda each: F.size(each) > 0)).where(F.col("key").isin("a", "b"))
    groups = timed(kept.withColumn("scaled", scaled("value"))).groupBy(F.window("time", "30 seconds", "10 seconds"))
    return groups.agg(
        F.sum("chosen"), F.collect_set("parsed.b.c"), F.max("scaled"), F.max(F.size("many")), F.count("id")
    )


EXOTIC = Query(exotic)


def _python() -> Iterator[Case]:
    yield Case(
        "function below",
        Query(lambda events: sums(events.withColumn("value", scaled("value")))),
        Query(lambda events: sums(events.withColumn("value", scaled_otherwise("value")))),
        ("aggregate-changed",),
        "wrong",
    )
    yield Case(
        "variable renamed",
        TALLIED,
        tallied(
            lambda events: timed(events).groupBy("key").transformWithState(RenamedTally(), TALLY, "update", "EventTime")
        ),
        ("variable-renamed", "state-function"),
        "wrong",
    )
    yield Case(
        "variable retyped",
        TALLIED,
        tallied(
            lambda events: timed(events).groupBy("key").transformWithState(RetypedTally(), TALLY, "update", "EventTime")
        ),
        ("state-function", "variable-retyped"),
        "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE",
    )
    yield Case(
        "variable added",
        TALLIED,
        tallied(
            lambda events: timed(events).groupBy("key").transformWithState(WiderTally(), TALLY, "update", "EventTime")
        ),
        ("state-function", "variable-added"),
        "right",
    )
    yield Case(
        "processor's code",
        TALLIED,
        tallied(
            lambda events: timed(events).groupBy("key").transformWithState(SteeperTally(), TALLY, "update", "EventTime")
        ),
        ("state-function",),
        "wrong",
    )
    yield Case(
        "time mode",
        TALLIED,
        tallied(lambda events: timed(events).groupBy("key").transformWithState(Tally(), TALLY, "update", "None")),
        ("processor-mode",),
        "STATE_STORE_INVALID_CONFIG_AFTER_RESTART",
    )
    yield Case(
        "output mode of a processor",
        TALLIED,
        Query(
            lambda events: timed(events).groupBy("key").transformWithState(Tally(), TALLY, "append", "EventTime"),
            "append",
        ),
        ("processor-mode", "output-mode"),
        "STATE_STORE_INVALID_CONFIG_AFTER_RESTART",
    )


CASES = [*_aggregations(), *_operators(), *_python()]
