"""The stages of pages on plain queries: those that know nothing of Holdfast."""

from __future__ import annotations

import os
import shutil
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

import holdfast
from pages.playing import Play
from pages.props import (
    NOW,
    SCHEMA,
    answered,
    count_by_sku,
    in_the_cloud,
    made_of_kafka,
    sales,
    send_up,
    write_orders,
)
from spark.directories import MadeDirectory
from spark.test_sink_log import log_of, write_log

__all__ = [
    "alerts",
    "attach",
    "change_shuffle_partitions",
    "check_and_heal",
    "corrupt_checkpoint",
    "look_into_state",
    "move",
    "restore_spark",
    "sidecar",
    "sidecar_for_a_cluster",
    "skip_a_poison_record",
    "upgrade_spark",
]


def sidecar(play: Play) -> None:
    made = MadeDirectory(play.here / "ck")
    made.batch()
    made.batch()
    play.stands_for |= {"s3://bucket/holdfast": str(play.here / "typed"), "/data/checkpoints/orders": str(made.root)}
    play.goes_on = ("holdfast watch",)
    [beside] = play.page.of("bash")
    *first, watch = beside.commands
    play.type(*first)
    made.batch()
    play.type(watch)
    play.end()
    assert holdfast.open("typed").find("orders").epoch == 1
    repository = play.repository()
    made = MadeDirectory(play.here / "other")
    play.stands_for |= {"s3://bucket/holdfast": repository.url, "/data/checkpoints/orders": str(made.root)}
    for number in (0, 1):
        made.batch()
        made.batch()
        play.python(number)
    assert repository.find("orders@before-upgrade").epoch == 0


ONE_PIPELINE = """
[repository]
url = "{repository}"

[watch]
every = "1 batch"

[pipelines.orders]
directory = "{directory}"
"""


def sidecar_for_a_cluster(play: Play) -> None:
    """With a file of one pipeline; the one that is shown is read in tests/sidecar."""
    repository = holdfast.open("repository", create=True)
    made = MadeDirectory(play.here / "ck")
    made.batch()
    made.batch()
    file = play.here / "holdfast.toml"
    file.write_text(ONE_PIPELINE.format(repository=repository.url, directory=made.root))
    play.stands_for["/etc/holdfast.toml"] = str(file)
    checks, others = (block for block in play.page.blocks if block.commands)
    # `watch --check` begins as `watch` does, and ends.
    *looks, watch = checks.commands
    play.type(*looks)
    play.goes_on = ("holdfast watch",)
    play.type(watch, *others.commands)
    assert set(repository.pipeline("orders").savepoints()) == {"before-deploy"}


def alerts(play: Play) -> None:
    file = play.page.of("toml")[1]
    play.stands_for["/tmp/holdfast-alerts"] = str(play.here / "try")
    (play.here / "alerts.toml").write_text(file.code.replace("/tmp/holdfast-alerts", str(play.here / "try")))
    play.goes_on = ("holdfast watch",)
    [block] = (block for block in play.page.blocks if block.commands)
    play.type(*block.commands)


def change_shuffle_partitions(play: Play) -> None:
    """What comes before the rescale and after it, on a directory in place of the one that it would make."""
    repository = play.repository()
    made = MadeDirectory(play.here / "ck")
    made.batch()
    made.batch()
    in_the_cloud(play)
    play.stands_for["/data/"] = f"{play.here}/data/"
    rescale, later = play.page.of("console")
    with answered(made, repository):
        play.type(rescale.commands[0])
    before = repository.find("orders@before-rescale")
    before.restore(play.here / "data/checkpoints/orders-64")
    # A rescale is a batch of its own.
    MadeDirectory(play.here / "data/checkpoints/orders-64", query_id=made.query_id, next_batch=before.epoch + 1).batch()
    play.type(*later.commands)
    assert repository.find("orders").epoch == before.epoch + 1


def look_into_state(play: Play) -> None:
    """Rows of a real state; what is shown of others is compared in tests/state."""
    repository = play.repository()
    holdfast.capture(play.fixture("written"), repository, pipeline="orders", stopped=True)
    play.spark  # noqa: B018 - the command finds the session that is there
    play.type(*(each for block in play.page.of("console") for each in block.commands if not any(each.shown)))


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
    _move_in_the_cloud(play)
    play.stands_for |= {"s3://old-bucket/holdfast": repository.url, "s3://new-bucket/holdfast": str(play.here / "copy")}
    play.type(*fourth.commands)
    write_orders(play.here / "in", 0, 3)
    pipeline = sales(play, "sales")
    pipeline.start(repository, trigger=NOW).await_termination()
    play.stands_for["s3a://new-bucket/spark/orders"] = str(play.here / "elsewhere")
    play.python(0, pipeline=pipeline, repository=repository)
    assert play.names["run"].recovery.state == "checkpoint"


def _move_in_the_cloud(play: Play) -> None:
    """From bucket to bucket, and once more with the sink: of a repository of its own, since the pipeline is another."""
    before, stood = os.environ["HOLDFAST_REPO"], dict(play.stands_for)
    in_the_cloud(play)
    os.environ["HOLDFAST_REPO"] = holdfast.open("moved", create=True).url
    moved, _elsewhere, with_sink = play.page.of("bash")
    made = MadeDirectory(play.here / "moving")
    for _ in range(4):
        made.batch()
    send_up(made.root, play.local("s3://old-bucket/checkpoints/orders"))
    play.type(*moved.commands)
    play.stands_for["/checkpoints/orders"] = "/again/orders"
    write_log(play.here / "table", log_of(play.local("s3a://old-bucket/table"), 5))
    send_up(play.here / "table", play.local("s3://new-bucket/table"))
    play.type(*with_sink.commands)
    os.environ["HOLDFAST_REPO"], play.stands_for = before, stood


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
    plain, other_bucket, other_inputs, skip, sink = play.page.of("console")
    play.type(*plain.commands)
    shutil.rmtree(play.here / "checkpoints/orders-2")
    play.type(*skip.commands)
    shutil.rmtree(play.here / "checkpoints/orders-2")
    in_the_cloud(play)
    play.type(*other_bucket.commands)
    play.stands_for["/checkpoints/orders"] = "/again/orders"
    _restore_files(play)
    play.type(*other_inputs.commands)
    write_log(play.here / "table", log_of(play.local("s3a://bucket/table"), 5))
    send_up(play.here / "table", play.local("s3://bucket/table"))
    play.stands_for["epoch:1207"] = "epoch:2"
    play.type(*sink.commands)


def _restore_files(play: Play) -> None:
    """The same pipeline by name, of a query that reads files, in a repository of its own."""
    made = MadeDirectory(play.here / "files")
    for _ in range(3):
        made.batch()
    entry = play.local('{"path":"s3a://old-bucket/in/0.json","timestamp":1,"batchId":0}')
    made.write("sources/0/0", f"v1\n{entry}")
    os.environ["HOLDFAST_REPO"] = holdfast.open("of-files", create=True).url
    holdfast.capture(made.root, holdfast.open("of-files"), pipeline="orders", stopped=True)


def check_and_heal(play: Play) -> None:
    repository = play.repository()
    play.stands_for |= {"/data/": f"{play.here}/", "s3://bucket/holdfast": repository.url}
    shutil.copytree(play.fixture("written"), play.here / "checkpoints/orders")
    holdfast.capture(play.here / "checkpoints/orders", repository, pipeline="orders", stopped=True)
    lost = play.here / "checkpoints/orders/state/0/2/4.delta"
    lost.unlink()
    lost.with_name(".4.delta.crc").unlink()
    in_the_cloud(play)
    send_up(play.here / "checkpoints/orders", play.local("s3://bucket/checkpoints/orders"))
    play.ends_with["holdfast check"] = 3
    play.everything()
    assert lost.exists()


def upgrade_spark(play: Play) -> None:
    play.repository()
    made = MadeDirectory(play.here / "checkpoints/orders")
    made.batch()
    play.stands_for["/checkpoints/"] = f"{play.here}/checkpoints/"
    for block in play.page.of("console"):
        play.type(*block.commands)
