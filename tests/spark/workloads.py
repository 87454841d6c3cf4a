"""Deterministic streaming queries over every stateful operator, and a runner that tells what each batch put out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, GroupedData, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark.events import EPOCH, LATENESS, ROWS, SECONDS, files_of
from spark.session import SPARK_VERSION, WITH_KAFKA
from spark.topics import find_topic, send_events

__all__ = ["BATCHES", "COMBINATIONS", "STORES", "WORKLOADS", "Workload", "configured", "run"]

BATCHES = 12

Outputs = dict[int, list[tuple[Any, ...]]]

_SQL = "spark.sql.streaming"
_PROVIDERS = "org.apache.spark.sql.execution.streaming.state"


def _rocksdb(changelog: bool, checkpoint_format: int) -> dict[str, str]:
    return {
        f"{_SQL}.stateStore.providerClass": f"{_PROVIDERS}.RocksDBStateStoreProvider",
        f"{_SQL}.stateStore.rocksdb.changelogCheckpointing.enabled": str(changelog).lower(),
        f"{_SQL}.stateStore.checkpointFormatVersion": str(checkpoint_format),
    }


STORES: dict[str, dict[str, str]] = {
    "hdfs": {f"{_SQL}.stateStore.providerClass": f"{_PROVIDERS}.HDFSBackedStateStoreProvider"},
    "rocksdb": _rocksdb(changelog=False, checkpoint_format=1),
    "changelog": _rocksdb(changelog=True, checkpoint_format=1),
    "rocksdb-2": _rocksdb(changelog=False, checkpoint_format=2),
    "changelog-2": _rocksdb(changelog=True, checkpoint_format=2),
}
if SPARK_VERSION < (4, 0):
    # There is no format 2, and an unknown key is taken without a word.
    del STORES["rocksdb-2"], STORES["changelog-2"]

_ONE, _TWO = files_of("events"), files_of("left", "right")
_ALL = tuple(STORES)
_ROCKSDB = tuple(name for name in STORES if name != "hdfs")
# Spark 4.0 takes format 2 only for state in all partitions.
_ONE_PARTITION = _ALL if SPARK_VERSION >= (4, 1) else ("hdfs", "rocksdb", "changelog")


@dataclass(frozen=True)
class Workload:
    """A query and its input; `inputs(folder, n)` makes the first n batches, and may be called again for more."""

    name: str
    output_mode: str
    build: Callable[[SparkSession, Path], DataFrame]
    inputs: Callable[[Path, int], None] = _ONE
    conf: Mapping[str, str] = field(default_factory=dict)
    stores: tuple[str, ...] = _ALL
    minimum: tuple[int, int] = (3, 5)
    endless: bool = False
    """Under AvailableNow it would never end, or end at once: it is run batch after batch and cut off instead."""
    needs_topic: bool = False
    """Before anything else a topic is made for its folder of inputs: `spark.topics.make_topic`."""


def _read(spark: SparkSession, folder: Path, source: str) -> DataFrame:
    reader = spark.readStream.schema("at LONG, key STRING, value LONG").option("maxFilesPerTrigger", 1)
    return _marked(reader.json(str(folder / source)))


def _marked(events: DataFrame) -> DataFrame:
    return events.withColumn("time", F.timestamp_seconds("at")).withWatermark("time", LATENESS)


def _of_events(query: Callable[[DataFrame], DataFrame]) -> Callable[[SparkSession, Path], DataFrame]:
    return lambda spark, folder: query(_read(spark, folder, "events"))


def _stateless(events: DataFrame) -> DataFrame:
    return events.where("value % 3 > 0").selectExpr("at", "key", "value * 2 AS double")


def _by_key(events: DataFrame) -> DataFrame:
    return events.groupBy("key").agg(F.count("*"), F.sum("value"), F.max("at"))


def _over_all(events: DataFrame) -> DataFrame:
    return events.agg(F.count("*"), F.sum("value"), F.max("at"))


def _limited(events: DataFrame) -> DataFrame:
    return events.select("at", "key", "value").limit(8 * ROWS + 11)


def _windowed(events: DataFrame) -> DataFrame:
    return _summed(events.groupBy(F.window("time", "15 seconds"), "key"))


def _in_sessions(events: DataFrame) -> DataFrame:
    return _summed(events.groupBy(F.session_window("time", "3 seconds").alias("window"), "key"))


def _summed(groups: GroupedData) -> DataFrame:
    sums = groups.agg(F.count("*").alias("n"), F.sum("value").alias("total"))
    return sums.selectExpr("CAST(window.start AS LONG)", "key", "n", "total")


def _windowed_twice(events: DataFrame) -> DataFrame:
    fine = events.groupBy(F.window("time", "5 seconds"), "key").agg(F.sum("value").alias("total"))
    coarse = fine.groupBy(F.window(F.window_time("window"), "15 seconds").alias("window"))
    most = coarse.agg(F.count("*").alias("n"), F.max("total").alias("most"))
    return most.selectExpr("CAST(window.start AS LONG)", "n", "most")


def _without_duplicates(events: DataFrame) -> DataFrame:
    return events.dropDuplicates(["time", "key"]).select("at", "key", "value")


def _without_duplicates_for_a_while(events: DataFrame) -> DataFrame:
    return events.dropDuplicatesWithinWatermark(["key", "value"]).select("at", "key", "value")


def _windowed_without_duplicates(events: DataFrame) -> DataFrame:
    return _windowed(events.dropDuplicates(["time", "key"]))


def _joined(kind: str) -> Callable[[SparkSession, Path], DataFrame]:
    def build(spark: SparkSession, folder: Path) -> DataFrame:
        left, right = _read(spark, folder, "left").alias("l"), _read(spark, folder, "right").alias("r")
        near = "l.key = r.key AND r.time BETWEEN l.time - INTERVAL 5 SECONDS AND l.time + INTERVAL 5 SECONDS"
        pairs = left.join(right, F.expr(f"{near} AND (l.value + r.value) % 5 = 0"), kind)
        return pairs.selectExpr("l.at", "l.key", "l.value", "r.at AS other_at", "r.value AS other_value")

    return build


def _with_group_state(events: DataFrame) -> DataFrame:
    from spark.processors import GROUPS, GROUPS_STATE, follow_group

    groups = events.groupBy("key")
    return groups.applyInPandasWithState(follow_group, GROUPS, GROUPS_STATE, "update", "EventTimeTimeout")


def _transformed(processor: str, method: str, time_mode: str) -> Callable[[DataFrame], DataFrame]:
    def query(events: DataFrame) -> DataFrame:
        from spark import processors

        transform = getattr(events.groupBy("key"), method)
        return transform(getattr(processors, processor)(), processors.TALLY, "update", time_mode)

    return query


def _from_rate(spark: SparkSession, _folder: Path) -> DataFrame:
    reader = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("numPartitions", 2)
    rows = reader.option("startTimestamp", EPOCH * 1000).option("advanceMillisPerBatch", SECONDS * 1000).load()
    marked = rows.withColumnRenamed("timestamp", "time").withWatermark("time", LATENESS)
    return _windowed(marked.withColumn("key", F.col("value") % 7))


def _from_python(name: str) -> Callable[[SparkSession, Path], DataFrame]:
    def build(spark: SparkSession, folder: Path) -> DataFrame:
        from spark import python_source

        source = getattr(python_source, name)
        spark.dataSource.register(source)
        return _windowed(_marked(spark.readStream.format(source.name()).option("path", str(folder / "events")).load()))

    return build


def _from_named(spark: SparkSession, folder: Path) -> DataFrame:
    def named(source: str) -> DataFrame:
        reader = spark.readStream.schema("at LONG, key STRING, value LONG").option("maxFilesPerTrigger", 1)
        return reader.name(source).json(str(folder / source))

    return _windowed(_marked(named("left").union(named("right"))))


def _from_kafka(spark: SparkSession, folder: Path) -> DataFrame:
    bootstrap, topic = find_topic(folder)
    kafka = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    records = spark.readStream.format("kafka").options(**kafka, maxOffsetsPerTrigger=str(ROWS)).load()
    parsed = F.from_json(F.col("value").cast("string"), "at LONG, key STRING, value LONG")
    return _windowed(_marked(records.select(parsed.alias("event")).select("event.*")))


def _nothing(_folder: Path, _batches: int) -> None:
    pass


def _joins(join_format: int, stores: tuple[str, ...], minimum: tuple[int, int]) -> list[Workload]:
    conf = {f"{_SQL}.join.stateFormatVersion": str(join_format)}
    return [
        Workload(f"join-{name}-{join_format}", "append", _joined(kind), _TWO, conf, stores, minimum)
        for name, kind in (("inner", "inner"), ("left", "left_outer"))
    ]


_EVERY = [
    Workload("stateless", "append", _of_events(_stateless), stores=("hdfs",)),
    Workload("by-key", "update", _of_events(_by_key)),
    Workload("by-key-complete", "complete", _of_events(_by_key)),
    Workload("over-all", "update", _of_events(_over_all), stores=_ONE_PARTITION),
    Workload("limit", "append", _of_events(_limited), stores=_ONE_PARTITION),
    Workload("window", "append", _of_events(_windowed)),
    Workload("window-twice", "append", _of_events(_windowed_twice)),
    Workload("session-window", "append", _of_events(_in_sessions)),
    Workload("dedup", "append", _of_events(_without_duplicates)),
    Workload("dedup-for-a-while", "append", _of_events(_without_duplicates_for_a_while)),
    Workload("dedup-window", "append", _of_events(_windowed_without_duplicates)),
    *_joins(2, _ALL, (3, 5)),
    # With the HDFS-backed store Spark goes back to format 2 without a word.
    *_joins(3, _ROCKSDB, (4, 1)),
    *_joins(4, _ROCKSDB, (4, 3)),
    Workload("group-state", "update", _of_events(_with_group_state)),
    Workload(
        "tws-pandas",
        "update",
        _of_events(_transformed("PandasTally", "transformWithStateInPandas", "EventTime")),
        stores=_ROCKSDB,
        minimum=(4, 0),
    ),
    Workload(
        "tws-rows",
        "update",
        _of_events(_transformed("RowTally", "transformWithState", "EventTime")),
        stores=_ROCKSDB,
        minimum=(4, 1),
    ),
    Workload(
        "tws-ttl",
        "update",
        _of_events(_transformed("LastingTally", "transformWithStateInPandas", "ProcessingTime")),
        stores=_ROCKSDB,
        minimum=(4, 0),
        endless=True,
    ),
    Workload("rate", "append", _from_rate, _nothing, endless=True),
    Workload("python-simple", "append", _from_python("SimpleEvents"), minimum=(4, 0), endless=True),
    Workload("python-paced", "append", _from_python("PacedEvents"), minimum=(4, 2)),
    Workload(
        "named-sources",
        "append",
        _from_named,
        _TWO,
        # Spark 4.2 keeps the names only in this version of its offset log, 4.3 takes it by itself.
        {f"{_SQL}.queryEvolution.enableSourceEvolution": "true", f"{_SQL}.offsetLog.formatVersion": "2"},
        minimum=(4, 2),
    ),
    Workload("kafka", "append", _from_kafka, send_events, minimum=WITH_KAFKA, needs_topic=True),
]

if SPARK_VERSION < (4, 1):
    # Never for outer joins, and from 4.1 on not at all.
    _EVERY += [join for join in _joins(1, _ALL, (3, 5)) if join.name == "join-inner-1"]

WORKLOADS = {workload.name: workload for workload in _EVERY if workload.minimum <= SPARK_VERSION}
COMBINATIONS = [(name, store) for name, workload in WORKLOADS.items() for store in workload.stores]


class _Enough(Exception):
    pass


def run(
    spark: SparkSession,
    workload: Workload,
    store: str,
    inputs: Path,
    checkpoint: str,
    *,
    upto: int | None = None,
    on_batch: Callable[[int], None] | None = None,
    into: Outputs | None = None,
) -> Outputs:
    """Run a query on the first `upto` batches of input and tell the sorted rows of each batch that it ran.

    `on_batch(n)` is called before batch n is run: batch n - 1 is whole then. What it raises ends the query and is
    raised here; give `into` to have the rows of the batches before. An endless workload is cut off at the door of
    batch `upto`, which then has its offsets logged but is not committed.
    """
    limit = BATCHES if upto is None else upto
    workload.inputs(inputs, limit)
    outputs: Outputs = {} if into is None else into
    raised: list[Exception] = []

    def collect(batch: DataFrame, number: int) -> None:
        try:
            if on_batch is not None:
                on_batch(number)
            if workload.endless and number >= limit:
                raise _Enough
            # One action only: a second one would run the batch, and commit its state, again.
            outputs[number] = sorted((tuple(row) for row in batch.collect()), key=repr)
        except Exception as error:
            raised.append(error)
            raise

    trigger = {"processingTime": "0 seconds"} if workload.endless else {"availableNow": True}
    with configured(spark, {**STORES[store], **workload.conf}):
        writer = workload.build(spark, inputs).writeStream.outputMode(workload.output_mode).foreachBatch(collect)
        query = writer.option("checkpointLocation", checkpoint).trigger(**trigger).start()
    try:
        query.awaitTermination()
    except StreamingQueryException:
        if not raised:
            raise
        if not isinstance(raised[0], _Enough):
            raise raised[0] from None
    finally:
        query.stop()
    return outputs


@contextmanager
def configured(spark: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    """Set the configuration for the queries that are started within: each keeps a copy of what was set then."""
    before = {key: spark.conf.get(key, None) for key in conf}
    for key, value in conf.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            spark.conf.unset(key)
            if value is not None:
                spark.conf.set(key, value)
