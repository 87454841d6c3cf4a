"""An epoch through a pipeline beside the same work without a protocol: one Delta sink, and three sinks.

    python -m benchmarks.pipeline_epochs [--pairs N] [--rows N]

Goals: one Delta sink at most 10 % above foreachBatch in which executors write Parquet and the same library commits, in
CPU seconds and in time, of a query without state and of one with; three sinks at least 1.5 times as fast as three
queries, each with one of them. All queries run at once and take turns, one batch each: from the moment that one is let
into its foreachBatch to the moment that its next batch stands there. So all that Spark does for a batch is counted, and
the order is turned in every second pair.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pyarrow.parquet as pq
from benchmarks.pairs import Ratio, milliseconds, print_table, verdict
from benchmarks.places import scratch
from benchmarks.spark_queries import cpu_seconds, jvm_of, spark_session
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction, create_table_with_add_actions
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import DataFrame, SparkSession

import holdfast
from holdfast.pipeline.schemas import arrow_schema
from holdfast.sinks import Delta, Iceberg, Parquet
from holdfast.sinks.contract import Sink

MORE, FASTER = 1.10, 1.5
LONGEST_SECONDS = 120
MICROSECONDS = ("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")


class Turn:
    """A query that waits at the beginning of each batch until it is let on."""

    def __init__(self) -> None:
        self._go = threading.Semaphore(0)
        self._arrived = threading.Semaphore(0)
        self.ends = False

    def arrive(self) -> None:
        self._arrived.release()
        while not self._go.acquire(timeout=0.5):
            if self.ends:
                raise InterruptedError("the benchmark is over")

    def await_arrival(self) -> None:
        if not self._arrived.acquire(timeout=LONGEST_SECONDS):
            raise TimeoutError("a query does not come to its next batch: it has failed, most likely")

    def take(self) -> None:
        """Let it on, and wait until its next batch is there."""
        self._go.release()
        self.await_arrival()


class Cost(NamedTuple):
    wall: float
    cpu: float


def rows_of(spark: SparkSession, rows: int) -> DataFrame:
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).option("numPartitions", 2).load()
    return stream.selectExpr(
        "value AS id",
        "concat('sku-', value % 1000) AS sku",
        "value % 7 AS quantity",
        "value * 0.25D AS price",
        "timestamp",
    )


def distinct(rows: DataFrame) -> DataFrame:
    """A query with state, which puts out all of its rows: each has to be summed up for a second run."""
    return rows.withWatermark("timestamp", "1 second").dropDuplicatesWithinWatermark(["id"])


def as_it_is(rows: DataFrame) -> DataFrame:
    return rows


def plain(frame: DataFrame, folder: Path, write: Callable[[DataFrame, int], object]) -> Turn:
    turn = Turn()

    def batch(rows: DataFrame, epoch: int) -> None:
        turn.arrive()
        write(rows, epoch)

    writer = frame.writeStream.foreachBatch(batch).option("checkpointLocation", str(folder))
    writer.start()
    turn.await_arrival()
    return turn


def through_holdfast(
    frame: DataFrame,
    name: str,
    folder: Path,
    sinks: Mapping[str, Sink],
    query: Callable[[DataFrame], DataFrame] = as_it_is,
) -> Turn:
    turn = Turn()
    pipeline = holdfast.Pipeline(name, sources={"rows": frame}, query=query, sinks=sinks)
    pipeline._reach = lambda step: turn.arrive() if step == "begin" else None
    repository = holdfast.open(str(folder / "repository"), create=True)
    pipeline.start(repository, checkpoint_dir=folder / "home")
    turn.await_arrival()
    return turn


def written(rows: DataFrame, root: Path, epoch: int) -> list[Path]:
    place = root / f"batch-{epoch}"
    rows.write.parquet(str(place))
    return sorted(place.glob("*.parquet"))


def commit_to_delta(frame: DataFrame, root: Path) -> Callable[[DataFrame, int], None]:
    schema = Schema.from_arrow(arrow_schema(frame.schema))

    def write(rows: DataFrame, epoch: int) -> None:
        actions = [
            AddAction(
                str(file.relative_to(root)),
                file.stat().st_size,
                {},
                int(time.time() * 1000),
                True,
                f'{{"numRecords": {pq.read_metadata(file).num_rows}}}',
            )
            for file in written(rows, root, epoch)
        ]
        if DeltaTable.is_deltatable(str(root)):
            DeltaTable(str(root)).create_write_transaction([*actions], "append", schema)
        else:
            create_table_with_add_actions(str(root), schema, actions)

    return write


def commit_to_iceberg(frame: DataFrame, catalog: SqlCatalog, root: Path) -> Callable[[DataFrame, int], None]:
    table = catalog.create_table("bench.plain", arrow_schema(frame.schema), location=f"file://{root}")

    def write(rows: DataFrame, epoch: int) -> None:
        table.add_files([f"file://{file}" for file in written(rows, root, epoch)])

    return write


class Machine:
    """The CPU seconds of Java and of this process."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm = jvm_of(spark)

    def cost(self, turns: list[Turn]) -> Cost:
        wall, cpu = time.perf_counter(), self._cpu()
        for turn in turns:
            turn.take()
        return Cost(time.perf_counter() - wall, self._cpu() - cpu)

    def _cpu(self) -> float:
        return cpu_seconds(self._jvm) + time.process_time()


def measure(machine: Machine, ours: list[Turn], theirs: list[Turn], pairs: int) -> tuple[list[Cost], list[Cost]]:
    first: list[Cost] = []
    second: list[Cost] = []
    for pair in range(pairs + 2):
        for turns, costs in [(ours, first), (theirs, second)][:: 1 if pair % 2 else -1]:
            costs.append(machine.cost(turns))
    return first[2:], second[2:]


def ratios(first: list[Cost], second: list[Cost]) -> tuple[Ratio, Ratio]:
    wall = Ratio.of([cost.wall for cost in first], [cost.wall for cost in second])
    return wall, Ratio.of([cost.cpu for cost in first], [cost.cpu for cost in second])


def main() -> None:
    options = argparse.ArgumentParser(description="epochs through a pipeline beside foreachBatch")
    options.add_argument("--pairs", type=int, default=12)
    options.add_argument("--rows", type=int, default=1_000_000)
    chosen = options.parse_args()
    with scratch() as folder, spark_session(folder) as spark:
        spark.conf.set(*MICROSECONDS)
        frame, machine = rows_of(spark, chosen.rows), Machine(spark)
        catalog = SqlCatalog("bench", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")
        catalog.create_namespace("bench")
        one = through_holdfast(frame, "one", folder / "one", {"delta": Delta(str(folder / "one-delta"))})
        three = through_holdfast(
            frame,
            "three",
            folder / "three",
            {
                "delta": Delta(str(folder / "three-delta")),
                "iceberg": Iceberg(catalog, "bench.three"),
                "parquet": Parquet(str(folder / "three-parquet")),
            },
        )
        delta = plain(frame, folder / "a", commit_to_delta(frame, folder / "plain-delta"))
        iceberg = plain(frame, folder / "b", commit_to_iceberg(frame, catalog, folder / "plain-iceberg"))
        files = plain(frame, folder / "c", lambda rows, epoch: written(rows, folder / "plain", epoch))
        with_state = through_holdfast(
            frame, "state", folder / "state", {"delta": Delta(str(folder / "state-delta"))}, distinct
        )
        beside = plain(distinct(frame), folder / "d", commit_to_delta(frame, folder / "plain-state"))
        turns = [one, three, with_state, delta, iceberg, files, beside]
        single = measure(machine, [one], [delta], chosen.pairs)
        stateful = measure(machine, [with_state], [beside], chosen.pairs)
        several = measure(machine, [three], [delta, iceberg, files], chosen.pairs)
        for turn in turns:
            turn.ends = True
        for query in spark.streams.active:
            query.stop()
    faster = ratios(*several)[0].inverse
    print_table(
        f"batches of {chosen.rows} rows, {chosen.pairs} pairs, median (quartiles)",
        ("", "wall", "CPU", "ours", "theirs", "goal", ""),
        [
            one_sink("one Delta sink over foreachBatch", single),
            one_sink("… of a query with state", stateful),
            (
                "three sinks, times as fast as three queries",
                faster,
                ratios(*several)[1].inverse,
                *shown(several),
                f">= {FASTER}",
                verdict(faster.median >= FASTER),
            ),
        ],
    )


def one_sink(what: str, costs: tuple[list[Cost], list[Cost]]) -> tuple[object, ...]:
    wall, cpu = ratios(*costs)
    return what, wall, cpu, *shown(costs), f"<= {MORE} both", verdict(max(wall.median, cpu.median) <= MORE)


def shown(costs: tuple[list[Cost], list[Cost]]) -> tuple[str, str]:
    first, second = (milliseconds(median(cost.wall for cost in each)) for each in costs)
    return first, second


if __name__ == "__main__":
    main()
