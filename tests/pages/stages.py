"""What each page takes for granted: directories, tables and servers in place of those that its reader has."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import holdfast
from holdfast.store import open_store
from pages.playing import Play, Stage
from servers.postgres import postgres
from spark.directories import MadeDirectory

__all__ = ["STAGES"]

NOW = {"availableNow": True}
SCHEMA = "ts TIMESTAMP, sku STRING, amount LONG"
ORDERS = [SimpleNamespace(customer="ann", amount=2), SimpleNamespace(customer="bob", amount=3)]
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


# ---- the front door ----


def readme(play: Play) -> None:
    repository = play.repository()
    address = (play.here / "repository").as_uri()
    play.stands_for |= {"s3://bucket/holdfast": address, "s3://lake": str(play.here / "lake")}
    rows = play.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    writer = rows.groupBy((rows.value % 3).alias("k")).count().writeStream.outputMode("update")
    writer = writer.foreachBatch(lambda batch, _: batch.collect() and None)
    query = writer.option("checkpointLocation", str(play.here / "ck")).start()
    with kept(play.spark):
        play.python(0, holdfast=holdfast, query=query)
    assert set(repository.pipeline("orders").savepoints()) == {"before-upgrade", "v1"}
    _readme_pipeline(play)
    _readme_loop(play)
    _readme_commands(play)


def _readme_pipeline(play: Play) -> None:
    address = holdfast.open("second", create=True).url
    play.stands_for["s3://bucket/holdfast"] = address
    write_orders(play.here / "in", 0, 4)
    stream = play.spark.readStream.schema(SCHEMA).json(str(play.here / "in"))
    reader = SimpleNamespace(options=lambda **_options: SimpleNamespace(load=lambda: stream))
    with postgres() as server:
        play.python(
            1,
            spark=SimpleNamespace(readStream=SimpleNamespace(format=lambda _kind: reader)),
            kafka={},
            count_by_sku=lambda events: (
                events.withWatermark("ts", "1 minute").groupBy(F.window("ts", "1 minute"), "sku").count()
            ),
            url=server.make_database("readme"),
        )
        for sink in play.names["pipeline"].sinks.values():
            sink.close()
    assert set(holdfast.open(address).pipeline("orders").savepoints()) == {"before-upgrade"}


def _readme_loop(play: Play) -> None:
    play.stands_for |= {"file:///var/lib/orders": str(play.here / "loop"), "1000 events": "2 events"}
    starts: list[int] = []

    def read_orders(start: int) -> list[Any]:
        starts.append(start)
        return ORDERS

    for expected in ({"ann": 2, "bob": 3}, {"ann": 4, "bob": 6}):
        play.python(2, read_orders=read_orders)
        assert play.names["totals"] == expected
    assert starts == [0, 2]


def _readme_commands(play: Play) -> None:
    """What the README shows of looking after checkpoints: six of them, each with a little more than the one before."""
    repository = holdfast.open("looked-after", create=True)
    with repository.pipeline("orders").recover() as checkpointer:
        for epoch in range(6):
            draft = checkpointer.begin(epoch, carry=True)
            save = checkpointer.save_delta if epoch else checkpointer.save_snapshot
            save(draft, "totals", 0, bytes([epoch]) * (3000 if epoch else 160_000))
            checkpointer.save_manifest(draft)
    repository.find("orders").savepoint("before-upgrade")
    os.environ["HOLDFAST_REPO"] = repository.url
    play.stands_for |= {"s3://bucket/holdfast": repository.url, "az://container": str(play.here), "--init": "--once"}
    holdfast.open("standby", create=True)
    [block] = [block for block in play.page.of("console") if "holdfast prune" in block.code]
    play.type(*block.commands)


def quickstart(play: Play) -> None:
    # Java has a current folder of its own.
    play.stands_for |= {'start("checkpoints/': f'start("{play.here}/checkpoints/'}
    with kept(play.spark, PARTITIONS):
        play.everything(1, 2)
        while (play.names["query"].lastProgress or {"batchId": 0})["batchId"] < 2:
            play.names["query"].awaitTermination(1)
        play.everything(2)
    stored = holdfast.open("repository")
    assert set(stored.pipeline("orders").savepoints()) == {"first", "second", "third"}
    assert play.names["query"].lastProgress["batchId"] > stored.find("orders@third").epoch
    assert set(stored.pipeline("sales").savepoints()) == {"good", "bad"}
    table = DeltaTable("out/sales").to_pyarrow_table().sort_by("sku").to_pydict()
    with duckdb.connect("out/sales.duckdb") as db:
        assert db.execute("SELECT sku, count FROM sales ORDER BY sku").fetchall() == [
            *zip(table["sku"], table["count"], strict=True)
        ]


# ---- queries as they are ----


def sidecar(play: Play) -> None:
    repository = play.repository()
    made = MadeDirectory(play.here / "ck")
    play.stands_for |= {"s3://bucket/holdfast": repository.url, "/data/checkpoints/orders": str(made.root)}
    for number in (0, 1):
        made.batch()
        made.batch()
        play.python(number)
    assert repository.find("orders@before-upgrade").epoch == 0


def attach(play: Play) -> None:
    repository = play.repository()
    play.stands_for |= {"s3://bucket/holdfast": repository.url, "s3a://bucket": str(play.here)}
    write_orders(play.here / "in", 0, 3)
    rows = play.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(play.here / "in"))
    writer = count_by_sku(rows).writeStream.outputMode("update").trigger(availableNow=True)
    writer = writer.foreachBatch(lambda batch, _: batch.collect() and None)
    play.python(0, counts=SimpleNamespace(writeStream=writer))
    play.names["attached"].detach()
    newest = repository.pipeline("orders").latest()
    assert newest is not None
    assert newest.epoch == 2


def corrupt_checkpoint(play: Play) -> None:
    play.repository()
    play.stands_for["/data/"] = f"{play.here}/"
    for name in ("orders", "clicks"):
        shutil.copytree(play.fixture("written"), play.here / "checkpoints" / name)
    holdfast.capture(play.here / "checkpoints/orders", holdfast.open("repository"), pipeline="orders", stopped=True)
    for name in ("orders", "clicks"):
        (play.here / f"checkpoints/{name}/state/0/1/4.delta").unlink()
        (play.here / f"checkpoints/{name}/state/0/1/.4.delta.crc").unlink()
    play.ends_with["holdfast check"] = 3
    play.everything()
    assert holdfast.open("repository").find("clicks").epoch == 2


def move(play: Play) -> None:
    repository = play.repository()
    made = MadeDirectory(play.here / "ck")
    for _ in range(6):
        made.batch()
    holdfast.capture(made.root, repository, pipeline="orders", savepoint="moved")
    play.stands_for |= {"/data/": f"{play.here}/"}
    second, fourth = play.page.of("console")
    play.type(*second.commands)
    play.stands_for |= {"s3://old-bucket/holdfast": repository.url, "s3://new-bucket/holdfast": str(play.here / "copy")}
    play.type(*fourth.commands)
    write_orders(play.here / "in", 0, 3)
    pipeline = sales(play, "sales")
    pipeline.start(repository, trigger=NOW).await_termination()
    play.stands_for["s3a://new-bucket/spark/orders"] = str(play.here / "elsewhere")
    play.python(0, pipeline=pipeline, repository=repository)
    assert play.names["run"].recovery.state == "checkpoint"


def sales(play: Play, name: str) -> holdfast.Pipeline:
    """A pipeline of the orders in a folder into one table."""
    rows = play.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(play.here / "in"))
    sink = holdfast.sinks.DuckDB("out.duckdb", "sales", mode="upsert", key=["sku"])
    return holdfast.Pipeline(
        name, sources={"events": rows}, query=count_by_sku, sinks={"db": sink}, output_mode="update"
    )


def skip_a_poison_record(play: Play) -> None:
    repository = play.repository()
    write_orders(play.here / "in", 0, 4)
    write_orders(play.here / "in", 4, 5, sku="poison")
    write_orders(play.here / "in", 5, 7)

    def fails(events: DataFrame) -> DataFrame:
        poison = F.when(F.col("sku") == "poison", F.raise_error(F.lit("poison"))).otherwise(F.col("sku"))
        return events.withColumn("sku", poison).groupBy("sku").agg(F.sum("amount").alias("total"))

    rows = play.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(play.here / "in"))
    sinks = {"db": holdfast.sinks.DuckDB("out.duckdb", "sales", mode="upsert", key=["sku"])}
    parts: dict[str, Any] = {"sources": {"events": rows}, "sinks": sinks, "output_mode": "update"}
    failing = holdfast.Pipeline("orders", query=fails, **parts)
    for _ in range(2):
        with pytest.raises(Exception, match="poison"):
            failing.start(repository, trigger=NOW).await_termination()
    play.python(holdfast=holdfast, repository=repository, count_by_sku=fails, **parts)
    with duckdb.connect("out.duckdb") as db:
        assert db.execute("SELECT sku, total FROM sales ORDER BY sku").fetchall() == [("s0", 8), ("s1", 9)]
    events = play.spark.createDataFrame(
        [("orders", 3, 1042), ("orders", 3, 1043)], "topic STRING, partition INT, offset LONG"
    )
    assert [row.offset for row in play.names["without_poison"](events).collect()] == [1043]
    _skip_in_kafka(play)


def _skip_in_kafka(play: Play) -> None:
    made = MadeDirectory(play.here / "ck")
    for batch in range(3):
        made.batch()
        head = (made.root / f"offsets/{batch}").read_text().split("\n")[:2]
        made.write(f"offsets/{batch}", "\n".join([*head, '{"orders":{"0":10,"3":1042}}']))
    holdfast.capture(made.root, holdfast.open("kafka", create=True), pipeline="orders", stopped=True)
    play.stands_for |= {"/data/": f"{play.here}/", "holdfast restore": "holdfast restore --repo kafka"}
    play.type(*play.page.of("console")[0].commands)


# ---- pipelines ----


def pipelines(play: Play) -> None:
    repository = play.repository()
    write_orders(play.here / "in", 0, 6)
    play.stands_for['json("in")'] = f'json("{play.here}/in")'  # Java has a current folder of its own.
    play.python(0, spark=play.spark)
    assert set(repository.pipeline("orders").savepoints()) == {"before-upgrade", "v1"}
    table = DeltaTable("out/orders").to_pyarrow_table().num_rows
    with duckdb.connect("out/orders.duckdb") as db:
        assert db.execute("SELECT count(*) FROM orders").fetchall() == [(table,)]
    play.python(1)
    counting = play.names["with_state"](
        sources={"events": play.spark.readStream.schema(SCHEMA).json(str(play.here / "in"))},
        query=lambda events: events,
        sinks={"db": holdfast.sinks.SQLite(play.here / "rows.db", "rows")},
    )
    other = holdfast.open("other", create=True)
    counting.start(other, checkpoint_dir="other-spark", trigger=NOW).await_termination()
    assert play.names["seen"]["rows"] == 6
    assert set(holdfast.open("other").find("orders").manifest.driver_states) == {"seen"}


def sources_and_retention(play: Play) -> None:
    repository = play.repository()
    play.stands_for["s3://bucket/holdfast"] = repository.url
    write_orders(play.here / "in", 0, 3)
    pipeline = sales(play, "orders")
    pipeline.start(repository, every="1 batch", trigger=NOW).await_termination()

    def start(repository: holdfast.Repository, accept: tuple[str, ...]) -> None:
        pipeline.start(repository, accept=accept, trigger=NOW).await_termination()

    play.python(pipeline=SimpleNamespace(reach=pipeline.reach, start=start), repository=repository)
    assert not play.names["checkpoint"].why_not


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


def rewind_a_bad_deploy(play: Play) -> None:
    repository = play.repository()
    write_job(play)
    write_orders(play.here / "in", 0, 2)
    pipeline = jobs_orders(play)
    before_deploy, plain = play.page.of("bash")
    [going_back] = play.page.of("console")
    with pipeline.start(repository) as run:
        run.query.processAllAvailable()
        play.type(*before_deploy.commands)
    write_orders(play.here / "in", 2, 6)
    pipeline.start(repository, trigger=NOW).await_termination()
    play.type(*going_back.commands[:2])
    with duckdb.connect("out/orders.duckdb") as db:
        assert db.execute("SELECT sku, total FROM orders ORDER BY sku").fetchall() == [("s0", 0), ("s1", 1)]
    play.type(*going_back.commands[2:])
    with duckdb.connect("out/orders.duckdb") as db:
        assert db.execute("SELECT sku, total FROM orders ORDER BY sku").fetchall() == [("s0", 6), ("s1", 9)]
    play.python(pipeline=pipeline, repository=repository)
    assert play.names["recovery"].rolled_back
    assert plain.commands


def backfill(play: Play) -> None:
    repository = play.repository()
    write_job(play)
    write_orders(play.here / "in", 0, 2)
    pipeline = jobs_orders(play)
    pipeline.start(repository, trigger=NOW).await_termination()
    repository.find("orders").savepoint("tuesday")
    write_orders(play.here / "in", 2, 6)
    pipeline.start(repository, trigger=NOW).await_termination()
    play.names["repository"] = repository
    play.everything()
    [promote] = play.page.of("sql")
    with duckdb.connect() as db:
        db.execute("ATTACH 'out/orders_v2.duckdb' AS orders_v2")
        db.execute(promote.code)
        assert db.execute("SELECT sku, total FROM current_orders ORDER BY sku").fetchall() == [("s0", 12), ("s1", 17)]


# ---- without Spark ----


def python_loop(play: Play) -> None:
    play.stands_for["s3://bucket/checkpoints"] = str(play.here / "repository")
    for expected in ({"ann": 2, "bob": 3}, {"ann": 4, "bob": 6}):
        play.python(read_orders=lambda start: enumerate(ORDERS, start))
        assert play.names["totals"] == expected


def own_processor(play: Play) -> None:
    play.stands_for["s3://bucket/checkpoints?region=eu-central-1"] = str(play.here / "repository")
    given = {name: name.encode() for name in re.findall(r"\b\w+_bytes\b", play.page.text)}
    for _ in range(2):
        play.python(holdfast=holdfast, **given)
    orders = holdfast.open("repository").pipeline("orders")
    newest = orders.latest()
    assert newest is not None
    assert [artifact.is_delta for artifact in newest.operators["aggregate"][1]] == [False, True]
    assert orders.check(read_percent=100).damaged == []


# ---- encryption, and the dashboard ----


def encryption(play: Play) -> None:
    key = play.here / "key"
    holdfast.Key.generate().save(key)
    vault = holdfast.open(str(play.here / "vault"), create=True, key=holdfast.Key.from_file(key))
    play.stands_for |= {"s3://bucket/vault": str(play.here / "vault"), "~/.holdfast.key": str(key)}
    play.python()
    assert play.names["repo"].id == vault.id


def dashboard(play: Play) -> None:
    repository = play.repository()
    play.stands_for["s3://bucket/holdfast"] = repository.url
    play.python()
    assert "<table" in play.names["repo"]._repr_html_()


# ---- operations ----


def operations(play: Play) -> None:
    # A client takes only options that it knows; no request is sent.
    play.python(0, holdfast=SimpleNamespace(open=open_store))
    repository = play.repository()
    write_job(play)
    write_orders(play.here / "in", 0, 2)
    real = jobs_orders(play)

    def start(*arguments: Any, metrics_port: int, **options: Any) -> Any:
        assert metrics_port
        return real.start(*arguments, **options, metrics_port=0, trigger=NOW)

    sys.modules["jobs.orders"].pipeline = SimpleNamespace(start=start)  # type: ignore[attr-defined]
    play.stands_for |= {"s3://bucket/holdfast": repository.url, "s3a://lake": str(play.here)}
    play.python(1)
    import main  # type: ignore[import-not-found]

    assert not main.run.is_active
    bin_folder = Path(sys.executable).parent
    play.stands_for['["holdfast", '] = f'["{bin_folder}/holdfast", '
    play.python(2)
    assert play.names["late"] == []


# ---- standby ----


def standby(play: Play) -> None:
    write_orders(play.here / "in", 0, 2)
    repository = play.repository()
    pipeline = holdfast.Pipeline(
        "orders",
        sources={"events": play.spark.readStream.schema(SCHEMA).json(str(play.here / "in"))},
        query=lambda events: events,
        sinks={"db": holdfast.sinks.SQLite(play.here / "rows.db", "rows")},
    )
    pipeline.start(repository, trigger=NOW).await_termination()
    repository.copy_to(holdfast.open("copy", create=True), "orders")
    # The folder of the pipeline is where it ran first; the copy runs on another machine.
    shutil.rmtree(play.here / ".holdfast")
    play.stands_for["az://container/standby"] = "copy"
    play.python(pipeline=pipeline)
    with play.names["run"] as run:
        assert (run.generation, run.recovery.epoch, run.recovery.rolled_back) == (1, 0, ())


STAGES: dict[str, Stage] = {
    "README.md": readme,
    "docs/how-to/attach.md": attach,
    "docs/how-to/backfill.md": backfill,
    "docs/how-to/corrupt-checkpoint.md": corrupt_checkpoint,
    "docs/how-to/dashboard.md": dashboard,
    "docs/how-to/encryption.md": encryption,
    "docs/how-to/move.md": move,
    "docs/how-to/own-processor.md": own_processor,
    "docs/how-to/pipelines.md": pipelines,
    "docs/how-to/python-loop.md": python_loop,
    "docs/how-to/rewind-a-bad-deploy.md": rewind_a_bad_deploy,
    "docs/how-to/sidecar.md": sidecar,
    "docs/how-to/skip-a-poison-record.md": skip_a_poison_record,
    "docs/how-to/sources-and-retention.md": sources_and_retention,
    "docs/how-to/standby.md": standby,
    "docs/operations.md": operations,
    "docs/quickstart.md": quickstart,
}
