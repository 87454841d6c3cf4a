"""Programs that attach to a query of their own, each run in a process that a test can kill or see the end of.

`python -m spark.attach_programs NAME {"repository": …, "place": …}`; what a program tells is a line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import holdfast
from holdfast.errors import CannotAttach
from holdfast.testing.faults import Around

TESTS = Path(__file__).resolve().parents[1]
T = TypeVar("T")


def tell(what: object) -> None:
    print(json.dumps(what), flush=True)


def run_for_ever(
    place: str,
    repository: str | None = None,
    master: str = "local[2]",
    conf: dict[str, str] | None = None,
    store: str = "changelog",
    options: dict[str, str] | None = None,
) -> None:
    """Runs a query at full speed until it is killed, again and again if it fails; tells the port of the driver.

    With a repository every batch is captured; `options` are those of the store that both lie in.
    """
    from pyspark.errors import StreamingQueryException

    from spark.attaching import counting
    from spark.session import start_session

    into = None if repository is None else holdfast.open(repository, options=options)
    spark = start_session(conf, master)
    tell(int(spark.sparkContext.getConf().get("spark.driver.port", "")))
    while True:
        query = counting(spark, place, store=store)
        try:
            if into is None:
                query.awaitTermination()
            else:
                with holdfast.attach(query, into, pipeline="counts", every="1 batch", options=options):
                    query.awaitTermination()
        except StreamingQueryException as failure:
            print(f"the query failed, and is started again: {failure}", file=sys.stderr)


def end_without_a_word(repository: str, place: str) -> None:
    """Ends right after its query, without letting go of anything."""
    from spark.attaching import counting
    from spark.session import start_session

    query = counting(start_session(), place, availableNow=True)
    holdfast.attach(query, repository, pipeline="counts", every="1 hour")
    query.awaitTermination()


def end_before_the_query(repository: str, place: str) -> None:
    """Ends while its query runs, and nobody has stopped anything."""
    from spark.attaching import counting, until
    from spark.session import start_session

    query = counting(start_session(), place)
    attached = holdfast.attach(query, repository, pipeline="counts", every="1 hour")
    attached.checkpoint()
    until(lambda: (query._jsq.lastProgress().batchId()) > 3)
    tell(query._jsq.lastProgress().batchId())


def end_though_the_store_hangs(repository: str, place: str) -> None:
    """Ends while a capture waits for an answer that never comes: whether another has claimed the pipeline."""
    from holdfast.spark import following
    from holdfast.store import open_store
    from spark.attaching import counting, until
    from spark.session import start_session

    asked = threading.Event()

    class Hanging(Around):
        def _around(self, verb: str, act: Callable[[], T]) -> T:
            if verb == "get" and asked.is_set():
                time.sleep(3600)
            return act()

    following.EXIT_SECONDS = 1.0
    query = counting(start_session(), place)
    store = Hanging(open_store(repository))
    attached = holdfast.attach(query, holdfast.open(store), pipeline="counts", every="1 batch")
    attached.checkpoint()
    asked.set()
    until(lambda: query._jsq.lastProgress().batchId() > attached.status().last_epoch + 2)


def run_in_real_time(repository: str, place: str, bootstrap: str, conf: dict[str, str]) -> None:
    """Counts the records of a topic in real-time mode and captures every batch; then counts on from each of them."""
    from confluent_kafka import Producer
    from pyspark.sql import DataFrame

    from holdfast.spark.lay import lay_down
    from spark.session import start_session
    from spark.workloads import STORES

    real_time = {"spark.sql.streaming.realTimeMode.minBatchDuration": "1s", "spark.sql.shuffle.partitions": "1"}
    # All stages of a batch run at the same time, and each needs a place.
    spark = start_session({**conf, **STORES["changelog-2"], **real_time}, master="local[4]")
    kafka = {"kafka.bootstrap.servers": bootstrap}
    rows = spark.readStream.format("kafka").options(**kafka, subscribe="in", startingOffsets="earliest").load()
    counts = rows.selectExpr("CAST(value AS STRING) AS value").groupBy("value").count()
    told = counts.selectExpr("CONCAT(value, ' ', count) AS value").writeStream.outputMode("update").format("kafka")
    query = told.options(**kafka, topic="out").option("checkpointLocation", place).trigger(realTime="1 second").start()
    attached = holdfast.attach(query, repository, pipeline="real-time", every="1 batch")
    producer = Producer({"bootstrap.servers": bootstrap})
    sent = 0
    while attached.status().captures < 4:
        producer.produce("in", str(sent % 5))
        producer.flush()
        sent += 1
        time.sleep(0.02)
        assert query.isActive
    stopped = attached.stop()
    found = {}
    for checkpoint in attached.pipeline.checkpoints():
        held = int(checkpoint.sources["0"].offsets["in:0"])
        assert not checkpoint.verify().damaged
        laid = lay_down(attached.pipeline.records, checkpoint.manifest, f"{place}-{checkpoint.epoch}")
        last: dict[str, int] = {}

        def collect(batch: DataFrame, _number: int, last: dict[str, int] = last) -> None:
            last.update({row.value: row["count"] for row in batch.collect()})

        writer = counts.writeStream.outputMode("update").foreachBatch(collect)
        writer.option("checkpointLocation", laid.destination).trigger(availableNow=True).start().awaitTermination()
        if held < sent - 5:
            found[checkpoint.epoch] = sum(last.values())
    tell({"sent": sent, "found": found, "stopped": stopped.epoch, "interrupted": stopped.interrupted})


def run_on_connect(repository: str, place: str) -> None:
    """Attaches to a query of a Spark Connect server."""
    from pyspark.sql import SparkSession

    from spark.attaching import ROWS, until

    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    spark: Any = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.conf.set("spark.sql.shuffle.partitions", "2")

    def start() -> Any:
        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load()
        counts = rows.groupBy((rows.value % 10).alias("key")).count()
        writer = counts.writeStream.outputMode("update").format("noop")
        return writer.option("checkpointLocation", place).start()

    query = start()
    try:
        holdfast.attach(query, repository, pipeline="counts")
        refused = ""
    except CannotAttach as refusal:
        refused = str(refusal)
    attached = holdfast.attach(query, repository, pipeline="counts", every="1 batch", directory=place)
    asked = attached.checkpoint("asked").epoch
    until(lambda: attached.status().captures > 2)
    stopped = attached.stop("end")
    query = start()
    again = holdfast.attach(query, repository, pipeline="counts", every="1 hour", directory=place)
    until(lambda: (again.status().last_batch or 0) > stopped.epoch)
    query.stop()
    until(lambda: not again.status().capturing)
    version = attached.pipeline["end"].manifest.spark_version
    last = again.status().last_epoch
    tell({"refused": refused, "asked": asked, "stopped": stopped.epoch, "last": last, "version": version})
    spark.stop()


if __name__ == "__main__":
    globals()[sys.argv[1]](**json.loads(sys.argv[2]))
