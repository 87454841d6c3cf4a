"""The stages of pages on plain queries: those that know nothing of Holdfast."""

from __future__ import annotations

import shutil
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

import holdfast
from pages.playing import Play
from pages.props import NOW, SCHEMA, count_by_sku, made_of_kafka, sales, write_orders
from spark.directories import MadeDirectory

__all__ = [
    "attach",
    "check_and_heal",
    "corrupt_checkpoint",
    "move",
    "restore_spark",
    "sidecar",
    "skip_a_poison_record",
    "upgrade_spark",
]


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
    made = made_of_kafka(play.here / "ck")
    holdfast.capture(made.root, holdfast.open("kafka", create=True), pipeline="orders", stopped=True)
    play.stands_for |= {"/data/": f"{play.here}/", "holdfast restore": "holdfast restore --repo kafka"}
    play.type(*play.page.of("console")[0].commands)


def restore_spark(play: Play) -> None:
    repository = play.repository()
    made = made_of_kafka(play.here / "ck")
    holdfast.capture(made.root, repository, pipeline="orders", savepoint="before-upgrade", stopped=True)
    play.stands_for |= {"/data/": f"{play.here}/"}
    plain, *_others, skip, _sink = play.page.of("console")
    play.type(*plain.commands)
    shutil.rmtree(play.here / "checkpoints/orders-2")
    play.type(*skip.commands)


def check_and_heal(play: Play) -> None:
    repository = play.repository()
    play.stands_for |= {"/data/": f"{play.here}/", "s3://bucket/holdfast": repository.url}
    shutil.copytree(play.fixture("written"), play.here / "checkpoints/orders")
    holdfast.capture(play.here / "checkpoints/orders", repository, pipeline="orders", stopped=True)
    lost = play.here / "checkpoints/orders/state/0/2/4.delta"
    lost.unlink()
    lost.with_name(".4.delta.crc").unlink()
    play.ends_with["holdfast check"] = 3
    look, compare, heal = (block for block in play.page.of("bash", "console") if "s3a://" not in block.code)
    play.type(*look.commands, *compare.commands, *heal.commands)
    assert lost.exists()


def upgrade_spark(play: Play) -> None:
    play.repository()
    made = MadeDirectory(play.here / "checkpoints/orders")
    made.batch()
    play.stands_for["/checkpoints/"] = f"{play.here}/checkpoints/"
    for block in play.page.of("console"):
        play.type(*block.commands)
