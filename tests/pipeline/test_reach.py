"""Starts and rewinds of real pipelines whose sources or sinks can't give back what they would need."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyiceberg.catalog import load_catalog
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from cli.sample_repository import invoke
from holdfast.config import DrillTable, ReachTable, read_config
from holdfast.decide.alerts import WayBack
from holdfast.errors import SinksAhead, SourcesGone, VerbFailed
from holdfast.pipeline.pipeline import Pipeline
from holdfast.pipeline.reach import Reach
from holdfast.sidecar import Sidecar
from holdfast.sidecar.outside import Outside
from holdfast.sidecar.upkeep import ways_back
from holdfast.sinks import Iceberg, Parquet, SQLite
from holdfast.sinks.contract import Sink
from pipeline.place import NOW, Place
from servers import KafkaServer
from sidecar.receiving import Inbox, receiving, until
from sinks.kafka_topics import make_topic, remake_topic, set_retention, trim_topic
from spark.workloads import STORES, configured


@pytest.fixture
def place(tmp_path: Path, spark: SparkSession) -> Place:
    return Place(tmp_path, spark)


def reach_at(pipeline: Pipeline, place: Place) -> dict[int, Reach]:
    return {each.epoch: each for each in pipeline.reach(place.repository)}


class Topic:
    """A topic with two partitions, read by a pipeline into a table."""

    def __init__(self, place: Place, server: KafkaServer, **config: str) -> None:
        self.place = place
        self.bootstrap = server.bootstrap
        self.name = make_topic(server.bootstrap, **config)

    def send(self, *numbers: int) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for number in numbers:
            producer.produce(self.name, str(number), partition=number % 2)
        assert producer.flush(30) == 0

    def pipeline(self, name: str = "numbers", **options: str) -> Pipeline:
        reader = self.place.spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        reader = reader.options(**options)
        return Pipeline(
            name,
            sources={"events": reader.option("subscribe", self.name).option("startingOffsets", "earliest").load()},
            query=lambda events: events.selectExpr("CAST(CAST(value AS STRING) AS INT) AS n"),
            sinks={"table": SQLite(self.place.root / f"{name}.db", "numbers")},
        )

    def run(self, accept: Sequence[str] = (), **options: str) -> None:
        run = self.pipeline(**options).start(
            self.place.repository, checkpoint_dir=self.place.home, every="1 batch", trigger=NOW, accept=accept
        )
        run.await_termination()

    def rows(self) -> list[int]:
        with closing(sqlite3.connect(self.place.root / "numbers.db")) as db:
            return sorted(row[0] for row in db.execute("SELECT n FROM numbers"))


def test_a_trimmed_topic_refuses_the_start_until_the_rows_are_given_up_by_name(
    place: Place, kafka_server: KafkaServer
) -> None:
    topic = Topic(place, kafka_server)
    topic.send(*range(10))
    topic.run()
    topic.send(*range(10, 20))
    trim_topic(topic.bootstrap, topic.name, 0, 7)
    before = [generation.number for generation in place.repository.pipeline("numbers").generations()]
    with pytest.raises(SourcesGone, match="2 records of partition 0") as told:
        topic.run(failOnDataLoss="false")
    assert told.value.exit_code == 6
    assert [g.number for g in place.repository.pipeline("numbers").generations()] == before, "nothing was claimed"
    [reach] = topic.pipeline().reach(place.repository)
    assert "2 records of partition 0" in reach.why_not[0]
    topic.run(accept=told.value.slugs, failOnDataLoss="false")
    assert topic.rows() == [n for n in range(20) if n not in (10, 12)]


def test_a_topic_that_was_made_anew_with_more_records_is_not_read_as_the_old_one(
    place: Place, kafka_server: KafkaServer
) -> None:
    topic = Topic(place, kafka_server)
    topic.send(*range(10))
    topic.run()
    assert topic.pipeline().reach(place.repository)[0].why_not == []
    remake_topic(topic.bootstrap, topic.name)
    topic.send(*range(100, 140))
    with pytest.raises(SourcesGone, match="deleted and made anew") as told:
        topic.run()
    assert told.value.slugs == ["source:events:topic-remade"]
    assert topic.rows() == [*range(10)]


def test_a_fork_does_not_read_a_topic_that_was_made_anew_as_the_old_one(
    place: Place, kafka_server: KafkaServer
) -> None:
    """Its first checkpoint would say that the new topic is the one that was read, and no start would tell any more."""
    topic, home = Topic(place, kafka_server), place.root / "forked"
    topic.send(*range(10))
    topic.run()
    remake_topic(topic.bootstrap, topic.name)
    topic.send(*range(100, 140))
    with pytest.raises(SourcesGone, match="deleted and made anew") as told:
        topic.pipeline("fork").fork(place.repository, of="numbers", checkpoint_dir=home)
    assert not place.repository.pipeline("fork").records.world().bases, "nothing was begun"
    topic.pipeline("fork").fork(place.repository, of="numbers", checkpoint_dir=home, accept=told.value.slugs)


def test_a_plain_query_whose_topic_was_trimmed_since_is_adopted_only_if_the_rows_are_given_up(
    place: Place, kafka_server: KafkaServer
) -> None:
    topic, directory = Topic(place, kafka_server), place.root / "plain"
    topic.send(*range(10))
    pipeline = topic.pipeline(failOnDataLoss="false")
    writer = pipeline.query(**pipeline.sources).writeStream.foreachBatch(lambda batch, _epoch: batch.count())
    writer.option("checkpointLocation", str(directory)).trigger(**NOW).start().awaitTermination()
    topic.send(*range(10, 20))
    trim_topic(topic.bootstrap, topic.name, 0, 7)
    with pytest.raises(SourcesGone, match="2 records of partition 0") as told:
        pipeline.start(place.repository, checkpoint_dir=place.home, adopt=directory, trigger=NOW)
    run = pipeline.start(
        place.repository, checkpoint_dir=place.home, adopt=directory, trigger=NOW, accept=told.value.slugs
    )
    run.await_termination()
    assert topic.rows() == [n for n in range(10, 20) if n not in (10, 12)]


def test_files_that_a_fork_would_read_again_and_that_are_gone_refuse_it(place: Place) -> None:
    place.inputs(4)
    place.run(every="1 batch")
    read = sorted((place.root / "inputs" / "events").glob("*.json"), key=os.path.getmtime)
    read[-1].unlink()
    fork, home = place.pipeline(place.sinks("-fork"), name="fork"), place.root / "forked"
    plan = fork.plan(place.repository, of="sums@epoch:1", checkpoint_dir=home)
    assert (plan.state, plan.epoch, plan.accept) == ("origin", 1, ["source:events:files-gone"])
    assert not fork.plan(place.repository, of="sums@epoch:1", checkpoint_dir=home, accept=plan.accept).refused
    with pytest.raises(SourcesGone, match="1 of 2 files") as told:
        fork.fork(place.repository, of="sums@epoch:1", checkpoint_dir=home)
    assert not place.repository.pipeline("fork").records.world().bases, "nothing was begun"
    fork.fork(place.repository, of="sums@epoch:1", checkpoint_dir=home, accept=told.value.slugs)


def test_files_that_a_rewind_would_read_again_and_that_are_gone_refuse_it(place: Place) -> None:
    place.inputs(4)
    place.run(every="1 batch")
    read = sorted((place.root / "inputs" / "events").glob("*.json"), key=os.path.getmtime)
    read[-1].unlink()
    with pytest.raises(SourcesGone, match="1 of 2 files"):
        place.pipeline().rewind(place.repository, to="epoch:1", checkpoint_dir=place.home)
    found = reach_at(place.pipeline(), place)
    assert "files that are to be read again are gone" in found[1].why_not[0]
    assert found[max(found)].why_not == []
    before = place.rows("log")
    place.pipeline().rewind(
        place.repository, to="epoch:1", checkpoint_dir=place.home, accept=("source:events:files-gone",)
    )
    assert len(place.rows("log")) < len(before)


class Stopped(Exception):
    """Ends a run where a test wants it."""


def test_a_lost_directory_whose_decided_files_are_gone_is_refused_before_the_claim(place: Place) -> None:
    place.inputs(4)
    pipeline, left = place.pipeline(), [3]

    def reach(step: str) -> None:
        left[0] -= step == "looked"
        if left[0] == 0:
            raise Stopped

    pipeline._reach = reach
    with pytest.raises(PySparkException):
        place.run(pipeline, every="1 batch")
    stored = place.repository.pipeline("sums")
    claims = len(stored.generations())
    # Not removed file by file: Spark's own upkeep of the state may still be at work in there.
    (place.home / "run-0000000000").rename(place.root / "lost")
    for path in (place.root / "inputs" / "events").glob("*.json"):
        path.unlink()
    with pytest.raises(SourcesGone, match="1 of 1 files that are to be read again are gone"):
        place.run()
    assert len(stored.generations()) == claims, "nothing was claimed"


def catalog_of(place: Place) -> dict[str, str]:
    uri = f"sqlite:///{place.root / 'catalog.db'}"
    return {"name": "test", "type": "sql", "uri": uri, "warehouse": (place.root / "warehouse").as_uri()}


def tables(place: Place) -> dict[str, Sink]:
    return {"ice": Iceberg(catalog_of(place), "ns.sums"), "files": Parquet(str(place.root / "files"))}


def test_a_savepoint_tags_its_snapshot_and_what_others_wrote_after_it_is_kept_unless_it_may_go(place: Place) -> None:
    sinks = tables(place)
    place.inputs(5)
    with configured(place.spark, STORES["changelog-2"]):
        run = place.pipeline(sinks).start(place.repository, checkpoint_dir=place.home, every="1 batch", trigger=NOW)
        run.query.processAllAvailable()
        run.savepoint("before")
        run.await_termination()
    table = load_catalog(**catalog_of(place)).load_table("ns.sums")
    assert set(table.metadata.refs) == {"main", "holdfast-before"}
    before = table.scan().to_arrow()
    place.inputs(7)
    place.run(place.pipeline(sinks), every="1 batch")
    table.refresh()
    table.append(before.slice(0, 1))
    again = place.pipeline(sinks)
    named = {name: each for each in again.reach(place.repository) for name in each.savepoints}
    assert "append in snapshot" in named["before"].why_not[0]
    with pytest.raises(SinksAhead, match="others have changed it since"):
        again.rewind(place.repository, to="before", checkpoint_dir=place.home)
    assert again.plan(place.repository, to="before", checkpoint_dir=place.home).refused
    assert not again.plan(place.repository, to="before", checkpoint_dir=place.home, discard_foreign=True).refused
    again.rewind(place.repository, to="before", checkpoint_dir=place.home, discard_foreign=True)
    assert table.refresh().scan().to_arrow().num_rows == before.num_rows


JOB = """
from pathlib import Path
from pyspark.sql import SparkSession
from pipeline.place import Place

def sums():
    return Place(Path({root!r}), SparkSession.getActiveSession()).pipeline()
"""


def test_the_command_asks_the_sinks_and_sources_of_a_pipeline(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.inputs(3)
    place.run(every="1 batch")
    (place.root / "jobs_of_reach.py").write_text(JOB.format(root=str(place.root)))
    monkeypatch.chdir(place.root)
    monkeypatch.setattr(sys, "path", list(sys.path))
    url = str(place.root / "repository")
    answer = invoke("list", "jobs_of_reach:sums", "--reach", "--repo", url, "--json")
    assert answer.code == 0, answer.err
    rows = json.loads(answer.out)["reach"]
    assert [row["rewind"] for row in rows] == [True] * len(rows)
    assert [row["replay_until_ms"] for row in rows] == [None] * len(rows)
    shown = invoke("list", "jobs_of_reach:sums", "--reach", "--repo", url).out
    assert "as long as it is kept" in shown
    assert "log at epoch" in invoke("list", "sums", "--reach", "--repo", url).out


@contextmanager
def sidecar_over(pipeline: Pipeline, place: Place, inbox: Inbox) -> Iterator[None]:
    file = place.root / "holdfast.toml"
    file.write_text(
        f"""
        [reach]
        every = "200ms"
        [pipelines.{pipeline.name}]
        code = "jobs:pipeline"
        [alerts]
        retention = "2d"
        [alerts.to.chat]
        webhook = "{inbox.url}"
        """
    )

    def ask(_name: str, _code: str) -> list[dict[str, object]]:
        return [each.document() for each in pipeline.reach(place.repository)]

    sidecar = Sidecar(read_config(file), place.repository, file, tell=lambda _pipeline, _event: None, ask=ask)
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(sidecar.run, stop)
        try:
            yield
        finally:
            stop.set()
            running.result()


def test_a_retention_that_nears_and_a_sink_that_lost_its_way_back_are_told_to_a_receiver(
    place: Place, kafka_server: KafkaServer
) -> None:
    topic = Topic(place, kafka_server, retention_ms="86400000")
    topic.send(*range(10))
    topic.run()
    newest = place.repository.pipeline("numbers").latest()
    assert newest is not None
    newest.savepoint("v1")
    topic.send(*range(10, 20))
    topic.run()
    database = place.root / "numbers.db"
    with receiving() as inbox, sidecar_over(topic.pipeline(), place, inbox):
        until(lambda: inbox.told() == ["firing retention/numbers"], inbox.told)
        assert "the sources begin to lose what comes after v1" in inbox.taken[0]["summary"]
        set_retention(topic.bootstrap, topic.name, 30 * 86_400_000)
        until(lambda: inbox.told()[1:] == ["resolved retention/numbers"], inbox.told)
        database.rename(place.root / "aside.db")
        until(lambda: inbox.told()[2:] == ["firing way-back/numbers/table"], inbox.told)
        assert "can't go back to v1, the newest checkpoint any more" in inbox.taken[2]["summary"]
        (place.root / "aside.db").rename(database)
        until(lambda: inbox.told()[3:] == ["resolved way-back/numbers/table"], inbox.told)


STARTED = """
from pathlib import Path
from pipeline.place import Place
from spark.session import start_session

def sums():
    return Place(Path({root!r}), start_session()).pipeline()
"""


@pytest.mark.soak
def test_a_sidecar_asks_and_drills_in_a_process_of_its_own_which_starts_spark(place: Place) -> None:
    place.inputs(3)
    place.run(every="1 batch")
    (place.root / "jobs_of_sidecar.py").write_text(STARTED.format(root=str(place.root)))
    outside = Outside(place.repository, place.root, threading.Event())
    found = ways_back(outside.reach(ReachTable(), "sums", "jobs_of_sidecar:sums"))
    assert found == [WayBack("the newest checkpoint", {}, [])]
    with pytest.raises(VerbFailed, match="it makes the pipeline 'sums', not 'other'"):
        outside.reach(ReachTable(), "other", "jobs_of_sidecar:sums")
    drilled = outside.drill(DrillTable(start=True), "sums", "jobs_of_sidecar:sums")
    assert [step["name"] for step in drilled["steps"]] == ["find", "restore", "read back", "start"]
