"""What stages share: orders, a session that is set back, a job in a module, directories and pipelines."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import holdfast
from holdfast.capturing import watch_directory
from holdfast.store import open_store
from pages.playing import Play
from spark.directories import MadeDirectory

__all__ = [
    "NOW",
    "PARTITIONS",
    "SCHEMA",
    "answered",
    "count_by_sku",
    "in_the_cloud",
    "jobs_orders",
    "kept",
    "made_of_kafka",
    "sales",
    "send_up",
    "write_job",
    "write_orders",
]

NOW = {"availableNow": True}
SCHEMA = "ts TIMESTAMP, sku STRING, amount LONG"
PARTITIONS = "spark.sql.shuffle.partitions"


def write_orders(folder: Path, first: int, last: int, sku: str | None = None) -> None:
    """Orders as files, one each, to be read by a stream."""
    folder.mkdir(exist_ok=True)
    for number in range(first, last):
        row = {"ts": f"2026-11-16T10:{number:02}:00Z", "sku": sku or f"s{number % 2}", "amount": number}
        (folder / f"{number}.json").write_text(json.dumps(row))


@contextmanager
def kept(spark: SparkSession, *settings: str) -> Iterator[None]:
    """The session is everybody's: what a page sets in it is set back."""
    before = {name: spark.conf.get(name) for name in settings}
    try:
        yield
    finally:
        for query in spark.streams.active:
            query.stop()
        for name, value in before.items():
            spark.conf.set(name, str(value))


def count_by_sku(events: DataFrame) -> DataFrame:
    return events.groupBy("sku").agg(F.sum("amount").alias("total"))


def sales(play: Play, name: str) -> holdfast.Pipeline:
    """A pipeline of the orders in a folder into one table."""
    rows = play.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(play.here / "in"))
    sink = holdfast.sinks.DuckDB("out.duckdb", "sales", mode="upsert", key=["sku"])
    return holdfast.Pipeline(
        name, sources={"events": rows}, query=count_by_sku, sinks={"db": sink}, output_mode="update"
    )


def made_of_kafka(root: Path) -> MadeDirectory:
    """The directory of a query that reads a topic and stands before a poison record."""
    made = MadeDirectory(root)
    for batch in range(3):
        made.batch()
        head = (made.root / f"offsets/{batch}").read_text().split("\n")[:2]
        made.write(f"offsets/{batch}", "\n".join([*head, '{"orders":{"0":10,"3":1042}}']))
    return made


@contextmanager
def answered(made: MadeDirectory, repository: holdfast.Repository, name: str = "orders") -> Iterator[None]:
    """A sidecar beside the query of a directory: it answers those who ask for a savepoint."""
    watcher = watch_directory(made.root, repository, pipeline=name, every="1 batch")
    stop = threading.Event()
    thread = threading.Thread(target=watcher.run, args=(stop,))
    thread.start()
    try:
        while not repository.pipelines():
            time.sleep(0.05)
        yield
    finally:
        stop.set()
        thread.join()


def in_the_cloud(play: Play) -> None:
    """From now on s3:// and s3a:// lead to a server of ours, by the environment alone, in buckets of the page's own."""
    server = play.fixture("s3")
    os.environ |= {
        "AWS_ENDPOINT_URL": server.endpoint,
        "AWS_ACCESS_KEY_ID": server.access_key_id,
        "AWS_SECRET_ACCESS_KEY": server.secret_access_key,
        "AWS_DEFAULT_REGION": "us-east-1",
        "NEW_SECRET": server.secret_access_key,
    }
    for bucket in ("bucket", "lake", "new-bucket", "old-bucket"):
        own = f"{bucket}-{Path(play.page.name).stem}"
        play.stands_for[f"://{bucket}/"] = f"://{own}/"
        open_store(f"s3://{own}").put("is-there", b"")


def send_up(folder: Path, url: str) -> None:
    """Put a folder into a bucket, as it is."""
    store = open_store(url)
    for path in folder.rglob("*"):
        if path.is_file():
            store.put(path.relative_to(folder).as_posix(), path.read_bytes())


JOBS = """
import holdfast
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
reader = spark.readStream.schema("ts TIMESTAMP, sku STRING, amount LONG").option("maxFilesPerTrigger", 2)
events = reader.json("{here}/in")


def sums(events):
    return events.groupBy("sku").agg({{"amount": "sum"}}).withColumnRenamed("sum(amount)", "total")


pipeline = holdfast.Pipeline(
    "orders",
    sources={{"events": events}},
    query=sums,
    sinks={{
        "table": holdfast.sinks.Delta("out/orders", mode="upsert", key=["sku"]),
        "db": holdfast.sinks.DuckDB("out/orders.duckdb", "orders", mode="upsert", key=["sku"]),
    }},
    output_mode="update",
)
"""


def write_job(play: Play) -> None:
    """jobs/orders.py, with a pipeline of the orders in a folder."""
    (play.here / "jobs").mkdir()
    (play.here / "jobs/orders.py").write_text(JOBS.format(here=play.here))
    (play.here / "out").mkdir()


def jobs_orders(play: Play) -> Any:
    play.spark  # noqa: B018 - the module finds the session that is there
    import jobs.orders as module  # type: ignore[import-not-found]

    assert module.__file__ is not None
    assert Path(module.__file__).is_relative_to(play.here)
    return module.pipeline
