"""Orders from Kafka into a Delta table and a PostgreSQL table, exactly once in both, and back to a savepoint with both.

    make setup servers        # once: all packages, a Kafka broker and Spark's connector, into this folder
    .venv/bin/python examples/kafka_pipeline.py               # starts a broker and a PostgreSQL of its own
    .venv/bin/python examples/kafka_pipeline.py --kafka host:9092 --postgres postgresql://user@host/database

`orders_pipeline` is the part to copy. Orders are produced, the pipeline runs, a savepoint is taken, more orders come;
then both tables are rewound together with the state and the offsets, and the pipeline runs again. Ends with 1 if either
table holds anything but each customer's orders, once.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import uuid
from collections import Counter
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import holdfast
from holdfast.spark.java import use_java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).resolve().parents[1]
KEY = ["customer"]
CUSTOMERS = 30


def orders_pipeline(spark: SparkSession, bootstrap: str, topic: str, postgres: str, delta: Path) -> holdfast.Pipeline:
    kafka = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    return holdfast.Pipeline(
        "orders",
        sources={
            "orders": spark.readStream.format("kafka").options(**kafka).option("maxOffsetsPerTrigger", 200).load()
        },
        query=totals,
        sinks={
            "lake": holdfast.sinks.Delta(str(delta), mode="upsert", key=KEY),
            "db": holdfast.sinks.Postgres(postgres, topic, mode="upsert", key=KEY),
        },
        output_mode="update",
    )


def totals(orders: DataFrame) -> DataFrame:
    """How many orders each customer has placed, and their cents."""
    from pyspark.sql import functions as f

    order = f.from_json(f.col("value").cast("string"), "customer STRING, cents LONG")
    return (
        orders.select(order.alias("order"))
        .groupBy(f.col("order.customer").alias("customer"))
        .agg(f.count("*").alias("orders"), f.sum("order.cents").alias("cents"))
    )


def produce(bootstrap: str, topic: str, first: int, last: int) -> Counter[str]:
    """Send the orders of these numbers, and give how many each customer placed."""
    from confluent_kafka import Producer

    producer, placed = Producer({"bootstrap.servers": bootstrap}), Counter[str]()
    for number in range(first, last):
        customer = f"customer-{number * 7 % CUSTOMERS}"
        placed[customer] += 1
        producer.produce(topic, json.dumps({"customer": customer, "cents": number}).encode())
    if producer.flush(60):
        sys.exit(f"the broker at {bootstrap} does not take orders")
    return placed


def in_delta(table: Path) -> Counter[str]:
    from deltalake import DeltaTable, QueryBuilder

    rows = QueryBuilder().register("t", DeltaTable(table)).execute("SELECT customer, orders FROM t").read_all()
    return Counter(dict(zip(rows["customer"].to_pylist(), rows["orders"].to_pylist(), strict=True)))


def in_postgres(url: str, table: str) -> Counter[str]:
    import adbc_driver_postgresql.dbapi as adbc

    with adbc.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute(f'SELECT customer, orders FROM "{table}"')
        return Counter(dict(cursor.fetchall()))


def run(spark: SparkSession, work: Path, bootstrap: str, postgres: str) -> int:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    topic, delta, home = f"orders-{uuid.uuid4().hex[:8]}", work / "orders.delta", work / "spark"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(60)
    repository = holdfast.open(str(work / "repository"), create=True)
    good = True

    def show(when: str, placed: Counter[str]) -> None:
        nonlocal good
        lake, db = in_delta(delta), in_postgres(postgres, topic)
        good = good and lake == db == placed
        verdict = "as they were placed" if lake == db == placed else f"BAD: {placed.total()} were placed"
        print(f"{when:<28} Delta has {lake.total()} orders, PostgreSQL {db.total()}: {verdict}")

    def run_to_the_end(savepoint: str | None = None) -> None:
        pipeline = orders_pipeline(spark, bootstrap, topic, postgres, delta)
        running = pipeline.start(repository, checkpoint_dir=home, every="2 batches")
        running.query.processAllAvailable()
        running.stop(savepoint)

    first = produce(bootstrap, topic, 0, 1000)
    run_to_the_end(savepoint="before-upgrade")
    show("1000 orders", first)
    every = first + produce(bootstrap, topic, 1000, 1500)
    run_to_the_end()
    show("500 more", every)
    orders_pipeline(spark, bootstrap, topic, postgres, delta).rewind(
        repository, to="before-upgrade", checkpoint_dir=home
    )
    show("rewound to before-upgrade", first)
    run_to_the_end()
    show("and run on", every)
    return 0 if good else 1


def main() -> int:
    parser = argparse.ArgumentParser(description="Kafka into Delta and PostgreSQL, exactly once, and rewound.")
    parser.add_argument("--kafka", metavar="HOST:PORT", help="a broker; one of its own if not given")
    parser.add_argument("--postgres", metavar="URL", help="a database; one of its own if not given")
    parser.add_argument("--work", type=Path, help="an empty folder for all else; one of its own if not given")
    given = parser.parse_args()
    # The servers that the tests talk to, and the jars that Spark needs for Kafka.
    sys.path.append(str(ROOT / "tests"))
    servers = import_module("servers")

    use_java()
    try:
        conf = servers.kafka_conf()
    except RuntimeError as missing:
        sys.exit(f"{missing} (make servers)")
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-example-")))
        work = given.work or scratch
        bootstrap = given.kafka or stack.enter_context(servers.kafka(scratch / "kafka")).bootstrap
        postgres = given.postgres or stack.enter_context(servers.postgres()).url()
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        spark = builder.config("spark.sql.shuffle.partitions", "4").config(map=conf).getOrCreate()
        stack.callback(spark.stop)
        spark.sparkContext.setLogLevel("ERROR")
        return run(spark, work, bootstrap, postgres)


if __name__ == "__main__":
    sys.exit(main())
