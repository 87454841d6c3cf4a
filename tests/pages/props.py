"""What stages share: orders, a session that is set back, a job in a module, directories and pipelines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import holdfast
from pages.playing import Play
from spark.directories import MadeDirectory

__all__ = [
    "NOW",
    "PARTITIONS",
    "SCHEMA",
    "count_by_sku",
    "jobs_orders",
    "kept",
    "made_of_kafka",
    "sales",
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
