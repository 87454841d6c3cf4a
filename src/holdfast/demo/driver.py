"""The demo's driver, in a process of its own that can be killed: takes commands on its standard input, and says on its
standard output what happens. It ends with its input.

`python -m holdfast.demo.driver FOLDER`
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

import holdfast
from holdfast.demo import messages as say
from holdfast.demo.orders import LATENESS, SCHEMA
from holdfast.demo.place import PIPELINE, TABLE, Place
from holdfast.errors import HoldfastError
from holdfast.events import CheckpointTaken, EpochCommitted, Event
from holdfast.pipeline.run import Run

__all__ = ["main", "totals"]

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
CONF = {
    "spark.driver.memory": "1g",
    # A run of a minute never earns back what the second compiler and a concurrent collector cost.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.maintenanceInterval": "3s",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "5",
    # One file, one epoch, in every run: the epochs of the uninterrupted one are those of the pipeline.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}


def totals(orders: DataFrame) -> DataFrame:
    """What each customer ordered in each minute, put out once, when no more orders of the minute can come."""
    timed = orders.withColumn("at", f.timestamp_seconds("ts")).withWatermark("at", LATENESS)
    sums = timed.groupBy(f.window("at", "1 minute"), "customer").agg(
        f.count("*").alias("orders"), f.sum("cents").alias("cents")
    )
    return sums.selectExpr("CAST(window.start AS LONG) AS minute", "customer", "orders", "cents")


def main(folder: str) -> int:
    commands: queue.SimpleQueue[say.Command] = queue.SimpleQueue()
    threading.Thread(target=listen, args=(commands,), name="holdfast-demo", daemon=True).start()
    builder = SparkSession.builder.master("local[2]").appName("holdfast-demo")
    for key, value in {**CONF, **file_manager()}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    driver = Driver(spark, Place(Path(folder)))
    tell(say.Ready(spark.version))
    try:
        while True:
            driver.do(commands.get())
    except HoldfastError as error:
        tell(say.Failed(str(error)))
        return 1


def listen(commands: queue.SimpleQueue[say.Command]) -> None:
    """Take commands; with whoever gives them this process ends too, and its JVM, whatever they are at."""
    for line in sys.stdin:
        commands.put(say.decode_command(line))
    os.killpg(os.getpgrp(), signal.SIGKILL)


def file_manager() -> dict[str, str]:
    """Spark's own manager for local files that forks no process for each of them: some 40 ms a file less."""
    from pyspark import __version__ as version

    moved = tuple(int(part) for part in version.split(".")[:2]) >= (4, 1)
    package = "org.apache.spark.sql.execution.streaming" + (".checkpointing" if moved else "")
    return {"spark.sql.streaming.checkpointFileManagerClass": f"{package}.FileSystemBasedCheckpointFileManager"}


def tell(news: say.News) -> None:
    """One line, from whichever thread."""
    with _turn:
        sys.stdout.write(say.encode(news))
        sys.stdout.flush()


_turn = threading.Lock()


class Driver:
    """Carries out commands, one after the other, while the pipeline runs."""

    def __init__(self, spark: SparkSession, place: Place) -> None:
        self._spark = spark
        self._place = place
        self._stored = holdfast.open(str(place.repository)).pipeline(PIPELINE)
        self._run: Run | None = None
        self._hold = say.Start()
        self._epoch = -1
        spark.streams.addListener(Progress())

    def do(self, command: say.Command) -> None:
        match command:
            case say.Start():
                self._start(command)
            case say.Savepoint(name=name):
                saved = self._running.savepoint(name)
                tell(say.Saved(name, str(saved.slot), saved.epoch))
            case say.Stop():
                self._running.stop()
                self._close()
                tell(say.Stopped())
            case say.Rewind(to=to):
                self._rewind(to)
            case say.RunPlainly():
                self._run_plainly()

    @property
    def _running(self) -> Run:
        assert self._run is not None
        return self._run

    def _start(self, command: say.Start) -> None:
        self._hold = command
        self._pipeline = self._make()
        self._pipeline._reach = self._reach
        run = self._run = self._pipeline.start(
            str(self._place.repository), checkpoint_dir=self._place.home, every="2 batches", listener=self._heard
        )
        found = run.recovery
        checkpoint = str(found.checkpoint) if found.checkpoint else ""
        tell(say.Began(found.generation, found.state, found.epoch, checkpoint, len(found.replays)))

    def _rewind(self, to: str) -> None:
        began = time.perf_counter()
        self._pipeline = self._make()
        recovery = self._pipeline.rewind(str(self._place.repository), to=to, checkpoint_dir=self._place.home)
        self._close()
        tell(say.Rewound(recovery.epoch, recovery.generation, time.perf_counter() - began))

    def _run_plainly(self) -> None:
        """Nothing of Holdfast is in here: what plain Spark puts out that nobody interrupts."""
        self._place.truth.parent.mkdir()
        with self._place.truth.open("w") as file:

            def keep(batch: DataFrame, _number: int) -> None:
                file.writelines(json.dumps(tuple(row)) + "\n" for row in batch.collect())

            writer = totals(self._orders()).writeStream.foreachBatch(keep)
            writer = writer.option("checkpointLocation", str(self._place.plain_home))
            writer.trigger(availableNow=True).start().awaitTermination()
        tell(say.Stopped())

    def _make(self) -> holdfast.Pipeline:
        return holdfast.Pipeline(
            PIPELINE,
            sources={"orders": self._orders()},
            query=totals,
            sinks={
                "duckdb": holdfast.sinks.DuckDB(self._place.duckdb, TABLE),
                "delta": holdfast.sinks.Delta(str(self._place.delta)),
            },
            on_epoch=self._begun,
        )

    def _orders(self) -> DataFrame:
        return self._spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(self._place.orders))

    def _close(self) -> None:
        for sink in self._pipeline.sinks.values():
            sink.close()

    # ---- called while it runs ----

    def _begun(self, epoch: int, _rows: object) -> None:
        self._epoch = epoch

    def _reach(self, step: str) -> None:
        if step == self._hold.hold and self._epoch == self._hold.hold_at:
            tell(say.Held(self._epoch))
            threading.Event().wait()

    def _heard(self, event: Event) -> None:
        match event:
            case EpochCommitted():
                tell(say.Committed(event.epoch, event.rows, event.seconds))
            case CheckpointTaken():
                head = self._stored[f"slot:{event.slot}"].head
                size = head.bytes_new + head.bytes_shared
                tell(say.Checkpointed(str(event.slot), event.epoch, head.bytes_new, size, event.seconds))
            case _:
                sys.stderr.write(f"{event}\n")


class Progress(StreamingQueryListener):
    """Passes on what Spark says of its batches."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        batch = event.progress
        state = batch.stateOperators
        tell(
            say.Progressed(
                batch.batchId,
                batch.numInputRows,
                batch.processedRowsPerSecond,
                sum(each.numRowsTotal for each in state),
                sum(each.memoryUsedBytes for each in state),
            )
        )

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        if event.exception:
            tell(say.Failed(event.exception.strip().splitlines()[0]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
