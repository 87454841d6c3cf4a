"""What each page takes for granted: directories, tables and servers in place of those that its reader has."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
from deltalake import DeltaTable
from pyspark.sql import functions as F  # noqa: N812

import holdfast
from holdfast.store import open_store
from pages.blocks import Command
from pages.playing import Play, Stage
from pages.props import (
    NOW,
    PARTITIONS,
    SCHEMA,
    answered,
    jobs_orders,
    kept,
    write_job,
    write_orders,
)
from pages.query_stages import (
    alerts,
    attach,
    change_shuffle_partitions,
    check_and_heal,
    corrupt_checkpoint,
    look_into_state,
    move,
    restore_spark,
    sidecar,
    sidecar_for_a_cluster,
    skip_a_poison_record,
    upgrade_spark,
)
from servers.postgres import postgres
from spark.directories import MadeDirectory

__all__ = ["STAGES"]

ORDERS = [SimpleNamespace(customer="ann", amount=2), SimpleNamespace(customer="bob", amount=3)]


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
    _readme_sidecar(play)
    _readme_pipeline(play)
    _readme_loop(play)
    _readme_commands(play)


def _readme_sidecar(play: Play) -> None:
    made = MadeDirectory(play.here / "lake/checkpoints/orders")
    for _ in range(3):
        made.batch()
    before = dict(play.stands_for)
    play.stands_for |= {"s3://bucket/holdfast": str(play.here / "beside"), "s3a://lake": f"file:{play.here}/lake"}
    play.goes_on = ("holdfast watch",)
    [block] = [block for block in play.page.of("console") if "holdfast watch" in block.code]
    play.type(*block.commands[:3])
    while not holdfast.open("beside").pipelines():
        time.sleep(0.1)
    play.type(*block.commands[3:])
    play.stands_for = before
    assert (play.here / "lake/checkpoints/orders-2/metadata").exists()


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
    _venv, _pip, doctor = play.page.blocks[0].commands
    play.type(doctor)
    with kept(play.spark, PARTITIONS):
        play.everything(1, 2)
        while (play.names["query"].lastProgress or {"batchId": 0})["batchId"] < 2:
            play.names["query"].awaitTermination(1)
        play.everything(2)
    stored = holdfast.open("repository")
    assert set(stored.pipeline("orders").savepoints()) == {"first", "second", "third"}
    assert play.names["query"].lastProgress["batchId"] > stored.find("orders@third").epoch
    sales = stored.pipeline("sales")
    assert set(sales.savepoints()) == {"good", "bad"}
    assert sales["bad"].epoch > sales["good"].epoch
    assert sales["bad"].slot not in {checkpoint.slot for checkpoint in sales.checkpoints()}, "abandoned"
    table = DeltaTable("out/sales").to_pyarrow_table().sort_by("sku").to_pydict()
    with duckdb.connect("out/sales.duckdb") as db:
        assert db.execute("SELECT sku, count FROM sales ORDER BY sku").fetchall() == [
            *zip(table["sku"], table["count"], strict=True)
        ]


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
    _pipelines_typed(play)


def _pipelines_typed(play: Play) -> None:
    """The same from the command line: other tables, another repository, and no more than what is there."""
    shutil.rmtree(play.here / ".holdfast")
    shutil.rmtree(play.here / "out")
    write_job(play)
    job = (play.here / "jobs/orders.py").read_text()
    second = job.replace('Pipeline(\n    "orders"', 'Pipeline(\n    "orders_v2"').replace("out/orders", "out/second")
    (play.here / "jobs/orders_v2.py").write_text(second)
    repository = holdfast.open("typed", create=True)
    os.environ["HOLDFAST_REPO"] = repository.url
    play.stands_for |= {"s3://bucket/holdfast": repository.url, "holdfast run": "holdfast run --trigger now"}
    [block] = play.page.of("bash")
    run, *others = block.commands
    play.type(run)
    repository.find("orders").savepoint("before-upgrade")
    play.type(*others)


def sources_and_retention(play: Play) -> None:
    repository = play.repository()
    play.stands_for["s3://bucket/holdfast"] = repository.url
    write_orders(play.here / "in", 0, 3)
    write_job(play)
    pipeline = jobs_orders(play)
    pipeline.start(repository, every="1 batch", trigger=NOW).await_termination()
    play.type(*play.page.of("bash")[0].commands)

    def start(repository: holdfast.Repository, accept: tuple[str, ...]) -> None:
        pipeline.start(repository, accept=accept, trigger=NOW).await_termination()

    play.python(pipeline=SimpleNamespace(reach=pipeline.reach, start=start), repository=repository)
    assert not play.names["checkpoint"].why_not


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
    repository = holdfast.open("beside", create=True)
    os.environ["HOLDFAST_REPO"] = repository.url
    made = MadeDirectory(play.here / "ck")
    made.batch()
    made.batch()
    play.stands_for["/data/"] = f"{play.here}/data/"
    with answered(made, repository):
        play.type(*plain.commands)


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


def own_sink(play: Play) -> None:
    """Its sink passes the suite, and a pipeline writes to it."""
    play.stands_for["python3"] = sys.executable
    play.everything()
    from documents import Documents  # type: ignore[import-not-found]

    play.repository()
    write_orders(play.here / "in", 0, 4)
    stream = play.spark.readStream.schema(SCHEMA).json(str(play.here / "in"))
    sinks = {"log": Documents("log.db")}
    pipeline = holdfast.Pipeline("orders", sources={"events": stream}, query=lambda events: events, sinks=sinks)
    with kept(play.spark):
        pipeline.start("repository", trigger=NOW).await_termination()
    with closing(sqlite3.connect("log.db")) as db:
        found = [json.loads(text)["amount"] for (text,) in db.execute("SELECT document FROM documents")]
    assert sorted(found) == [0, 1, 2, 3]


# ---- encryption, and the dashboard ----


def encryption(play: Play) -> None:
    install, *setting_up = play.page.of("bash")[0].commands
    assert install.text.startswith("pip install")
    play.stands_for |= {"s3://bucket/": f"{play.here}/", "~/.holdfast": f"{play.here}/own", "/safe/": f"{play.here}/"}
    play.type(*setting_up)
    play.python()
    assert play.names["repo"].id == holdfast.open("vault").id
    holdfast.open("plain", create=True)
    play.stands_for[f"{play.here}/vault --init"] = f"{play.here}/copy --init"
    other = holdfast.Key.generate()
    for name, key in (("emergency.key", holdfast.Key.generate()), ("own-2027.key", holdfast.Key.generate())):
        key.save(play.here / name)
    holdfast.open("vault").keys.add(other)
    play.stands_for["6f1f0c2d9a3b4e58"] = other.id
    for block in play.page.of(""):
        play.type(*block.commands)


def dashboard(play: Play) -> None:
    repository = play.repository()
    play.stands_for["s3://bucket/holdfast"] = repository.url
    play.python()
    assert "<table" in play.names["repo"]._repr_html_()
    play.stands_for |= {"holdfast dashboard": "holdfast dashboard --port 0", "0.0.0.0": "127.0.0.1"}
    play.goes_on = ("holdfast dashboard",)
    for block in play.page.blocks:
        play.type(*(each for each in block.commands if not each.text.startswith("pip ")))
    assert len(os.environ["HOLDFAST_DASHBOARD_TOKEN"]) == 32


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
    with repository.pipeline("broken").recover() as checkpointer:
        checkpointer.save_manifest(checkpointer.begin(0))
    for manifest in (play.here / "repository/pipelines/broken/checkpoints").rglob("*.json"):
        manifest.write_bytes(manifest.read_bytes()[:100])
    play.python(2)
    assert play.names["late"] == ["broken"], "the others are told all the same"
    shutil.rmtree(play.here / "repository/pipelines/broken")
    sys.modules["jobs.orders"].pipeline = real  # type: ignore[attr-defined]
    prune, listing, _submit, run = (block.commands[0] for block in play.page.of("bash"))
    play.stands_for["--metrics-port 9108"] = "--metrics-port 0 --trigger now"
    play.type(prune, run)
    _operations_in_the_cloud(play, listing)


def _operations_in_the_cloud(play: Play, listing: Command) -> None:
    """Keys by option alone."""
    server = play.fixture("s3")
    open_store("s3://bucket", server.options).put("is-there", b"")
    del play.stands_for["s3://bucket/holdfast"]
    (play.here / "secret").write_text(server.secret_access_key)
    play.stands_for |= {"https://minio.example:9000": server.endpoint, "/run/secrets/s3": f"{play.here}/secret"}
    holdfast.open("s3://bucket/holdfast", options=server.options, create=True)
    os.environ |= {"S3_KEY": server.access_key_id, "AWS_DEFAULT_REGION": "us-east-1"}
    play.type(listing)


# ---- standby ----


def standby(play: Play) -> None:
    repository = play.repository()
    write_job(play)
    write_orders(play.here / "in", 0, 2)
    pipeline = jobs_orders(play)
    pipeline.start(repository, trigger=NOW).await_termination()
    repository.copy_to(holdfast.open("copy", create=True), "orders")
    play.stands_for |= {"s3://bucket/holdfast": repository.url, "az://container/standby": f"{play.here}/standby"}
    play.goes_on = ("holdfast standby",)
    following, taking_over = play.page.of("console")
    play.type(*following.commands)
    play.end()
    # The folder of the pipeline is where it ran first; the copies run on other machines.
    shutil.rmtree(play.here / ".holdfast")
    play.goes_on = ()
    shutil.move("repository", "lost")
    play.stands_for["--activate jobs.orders:pipeline"] = "--activate jobs.orders:pipeline --trigger now"
    play.type(*taking_over.commands)
    shutil.rmtree(play.here / ".holdfast")
    # The first place is back.
    play.stands_for["s3://bucket/holdfast"] = f"{play.here}/lost"
    [coming_back] = play.page.of("")
    follow, activate = coming_back.commands
    play.goes_on = (play.local(follow.text),)
    play.type(follow)
    play.end()
    play.goes_on = ()
    play.type(activate)
    shutil.rmtree(play.here / ".holdfast")
    play.stands_for["az://container/standby"] = "copy"
    play.names |= {"pipeline": pipeline}
    play.python()
    with play.names["run"] as run:
        # Above both that the sinks have seen.
        assert (run.generation, run.recovery.epoch) == (3, 0)


def disaster_drill(play: Play) -> None:
    repository = play.repository()
    write_job(play)
    write_orders(play.here / "in", 0, 2)
    jobs_orders(play).start(repository, trigger=NOW).await_termination()
    play.stands_for["s3://bucket/holdfast"] = repository.url
    for block in play.page.blocks[:2]:
        play.type(*block.commands)


CHANGED = """
import holdfast
from pyspark.sql import SparkSession

events = SparkSession.builder.getOrCreate().readStream.schema("value LONG").json("{here}/in")
pipeline = holdfast.Pipeline(
    "orders",
    sources={{"events": events}},
    query=lambda events: {query}.groupBy("value").count(),
    sinks={{"table": holdfast.sinks.DuckDB("out/orders.duckdb", "orders", mode="upsert", key=["value"])}},
    output_mode="update",
)
"""


def change_a_query(play: Play) -> None:
    repository = play.repository()
    write_job(play)
    job = play.here / "jobs/orders.py"
    job.write_text(CHANGED.format(here=play.here, query="events"))
    (play.here / "in").mkdir()
    (play.here / "in/0.json").write_text('{"value": 1}')
    with kept(play.spark, PARTITIONS):
        play.spark.conf.set(PARTITIONS, "3")
        jobs_orders(play).start(repository, trigger=NOW).await_termination()
        shutil.rmtree(play.here / ".holdfast")
        play.spark.conf.set(PARTITIONS, "200")
        job.write_text(CHANGED.format(here=play.here, query='events.where("value > 9L")'))
        del sys.modules["jobs.orders"]
        play.ends_with["holdfast plan"] = 6
        play.type(*play.page.of("console")[0].commands)


STAGES: dict[str, Stage] = {
    "README.md": readme,
    "docs/how-to/alerts.md": alerts,
    "docs/how-to/attach.md": attach,
    "docs/how-to/backfill.md": backfill,
    "docs/how-to/change-a-query.md": change_a_query,
    "docs/how-to/change-shuffle-partitions.md": change_shuffle_partitions,
    "docs/how-to/check-and-heal.md": check_and_heal,
    "docs/how-to/corrupt-checkpoint.md": corrupt_checkpoint,
    "docs/how-to/dashboard.md": dashboard,
    "docs/how-to/disaster-drill.md": disaster_drill,
    "docs/how-to/encryption.md": encryption,
    "docs/how-to/look-into-state.md": look_into_state,
    "docs/how-to/move.md": move,
    "docs/how-to/own-processor.md": own_processor,
    "docs/how-to/own-sink.md": own_sink,
    "docs/how-to/pipelines.md": pipelines,
    "docs/how-to/python-loop.md": python_loop,
    "docs/how-to/restore-spark.md": restore_spark,
    "docs/how-to/rewind-a-bad-deploy.md": rewind_a_bad_deploy,
    "docs/how-to/sidecar-for-a-cluster.md": sidecar_for_a_cluster,
    "docs/how-to/sidecar.md": sidecar,
    "docs/how-to/skip-a-poison-record.md": skip_a_poison_record,
    "docs/how-to/sources-and-retention.md": sources_and_retention,
    "docs/how-to/standby.md": standby,
    "docs/how-to/upgrade-spark.md": upgrade_spark,
    "docs/operations.md": operations,
    "docs/quickstart.md": quickstart,
}
