"""Drills that start Spark: beside the running pipeline, from what was recorded, and with a source that is gone."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import TypeVar

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import holdfast
from cli.sample_repository import invoke
from holdfast import Pipeline, Repository
from holdfast.cli.loading import load_pipeline
from holdfast.drilling import Drilled, drill_pipeline
from holdfast.errors import DrillFailed, SourcesGone
from holdfast.pipeline.ledger import Ledger
from holdfast.sinks import SQLite
from holdfast.store import open_store
from holdfast.testing.faults import Around
from pipeline.place import Place
from pipeline.proof import ALWAYS, Died, Proof, Prove, die_at
from servers import KafkaServer
from sinks.kafka_topics import delete_topic
from spark.events import event_file
from spark.topics import find_topic, make_topic, send_events
from spark.workloads import STORES, configured

T = TypeVar("T")
SECONDS = 60
MODULE = """
from pathlib import Path
from pipeline.place import Place
from spark.session import start_session


def pipeline():
    return Place(Path(__file__).parent, start_session()).pipeline()


def broken():
    made = Place(Path(__file__).parent, start_session()).pipeline(name="also")
    made.query = lambda events: events.limit(1 // 0)
    return made
"""


def objects(repository: Repository) -> dict[str, bytes]:
    return {info.key: repository.store.get(info.key) for info in repository.store.list("")}


def with_job(root: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A pipeline, and its module in the folder that commands are run in."""
    (root / "job.py").write_text(MODULE)
    monkeypatch.chdir(root)
    sys.modules.pop("job", None)
    return Place(root, spark)


def until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_drill_beside_the_running_pipeline_starts_spark_and_changes_nothing(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = with_job(tmp_path, spark, monkeypatch)
    place.inputs(3)
    stored = place.repository.pipeline("sums")
    with configured(spark, STORES["changelog-2"]):
        run = place.pipeline().start(place.repository, checkpoint_dir=place.home, every="1 batch", trigger=ALWAYS)
        try:
            until(lambda: (newest := run.status().last_epoch) is not None and newest >= 2)
            # Until nothing moves any more: whatever changes after this is the drill's doing.
            before: dict[str, bytes] = {}
            while before != (now := objects(place.repository)):
                before = now
                time.sleep(1)
            rows = place.rows(), {path: path.read_bytes() for path in (tmp_path / "inputs").rglob("*.json")}
            word = ("drill", "--repo", place.repository.url, "--start", "job:pipeline", "--scratch", "scratch")
            answer = invoke(*word)
            assert answer.code == 0, answer.out + answer.err
            assert "sums: good " in answer.out
            assert "nothing new to read" in answer.out
            assert objects(place.repository) == before
            assert (place.rows(), {path: path.read_bytes() for path in (tmp_path / "inputs").rglob("*.json")}) == rows
            assert [*(tmp_path / "scratch").iterdir()] == []
            assert invoke(*word, "--start", "job:another").code == 2
            place.inputs(4)
            epoch = stored.checkpoints()[-1].epoch
            until(lambda: stored.checkpoints()[-1].epoch > epoch)
            assert run.is_active
        finally:
            run.stop()


class ReadOnly(Around):
    """A store in which nothing can be changed."""

    def _around(self, verb: str, act: Callable[[], T]) -> T:
        assert verb in ("get", "get_ranges", "folders", "list", "read"), verb
        return super()._around(verb, act)


def test_a_drill_needs_no_right_to_write_and_what_was_there_stays_while_the_pipeline_publishes(
    tmp_path: Path, spark: SparkSession
) -> None:
    place = Place(tmp_path, spark)
    place.inputs(2)
    stored = place.repository.pipeline("sums")
    read_only = holdfast.open(ReadOnly(place.repository.store)).pipeline("sums")
    with configured(spark, STORES["changelog-2"]):
        run = place.pipeline().start(place.repository, checkpoint_dir=place.home, every="1 batch", trigger=ALWAYS)
        stop, feeder = Event(), None
        try:
            until(lambda: stored.exists() and stored.checkpoints())
            feeder = Thread(target=lambda: [place.inputs(n) for n in range(3, 200) if not stop.wait(0.5)])
            feeder.start()
            before, first = objects(place.repository), stored.checkpoints()[-1].epoch
            found = drill_pipeline(read_only, tmp_path / "scratch", start=place.pipeline().drill)
            until(lambda: stored.checkpoints()[-1].epoch > first)
        finally:
            stop.set()
            if feeder is not None:
                feeder.join()
            run.stop()
    assert found.error is None, found.error
    assert "Spark " in found.steps[-1].said
    after, keys = objects(place.repository), stored.records.keys
    assert {key for key in before if after.get(key, before[key]) != before[key]} <= {keys.latest}
    # The pipeline itself joins what it has decided; nothing else of it goes.
    assert all(key.startswith(keys.ledger) for key in before.keys() - after.keys())


def test_of_what_was_not_read_yet_spark_reads_one_batch_and_the_sources_stay_as_they_are(
    tmp_path: Path, spark: SparkSession
) -> None:
    place = Place(tmp_path, spark)
    reader = spark.readStream.schema("at LONG, key STRING, value LONG").option("maxFilesPerTrigger", 1)
    place.inputs(1)
    events = reader.json(str(tmp_path / "inputs" / "events"))
    sinks = {"log": SQLite(tmp_path / "rows.db", "rows")}
    pipeline = Pipeline("rows", sources={"events": events}, query=lambda events: events, sinks=sinks)
    place.run(pipeline, every="1 batch")
    place.inputs(4)
    files = {path: path.read_bytes() for path in (tmp_path / "inputs").rglob("*") if path.is_file()}
    before, stored = objects(place.repository), place.repository.pipeline("rows")
    found = drill_pipeline(stored, tmp_path / "scratch", start=pipeline.drill, keep=True)
    assert found.error is None, found.error
    next_file = event_file(tmp_path / "inputs" / "events", 1)
    count = len(next_file.read_text().splitlines())
    assert (found.epoch, found.steps[-1].said) == (0, f"Spark ran batch 1 into nothing: {count} rows")
    laid = tmp_path / "scratch" / "rows"
    assert {path.name for path in (laid / "offsets").glob("[0-9]*")} == {"0", "1"}
    assert {path.name for path in (laid / "commits").glob("[0-9]*")} == {"0"}
    assert [next_file.name in path.read_text() for path in (laid / "sources" / "0").glob("[1-9]*")] == [True]
    assert {path: path.read_bytes() for path in (tmp_path / "inputs").rglob("*") if path.is_file()} == files
    assert objects(place.repository) == before


def test_a_query_that_raises_fails_its_own_drill_and_the_others_have_their_turn(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = with_job(tmp_path, spark, monkeypatch)
    place.inputs(2)
    place.run(every="1 batch")
    place.run(place.pipeline(place.sinks("-also"), name="also"), tmp_path / "other", every="1 batch")
    starts = ("--start", "job:broken", "--start", "job:pipeline")
    answer = invoke("drill", "--repo", place.repository.url, *starts, "--report", "drill.json")
    assert answer.code == 1
    assert "sums: good " in answer.out
    document = json.loads((tmp_path / "drill.json").read_text())
    assert [(each["pipeline"], each["ok"]) for each in document["pipelines"]] == [("also", False), ("sums", True)]
    failed = document["pipelines"][0]["steps"][-1]
    assert (failed["name"], failed["error"]["code"]) == ("start", "HF-1140")
    assert "ZeroDivisionError" in failed["error"]["message"]


CLEANING = """
from pathlib import Path
from holdfast import Pipeline
from holdfast.sinks import SQLite
from spark.session import start_session

HERE = Path(__file__).parent


def pipeline(clean="{clean}"):
    reader = start_session().readStream.schema("at LONG, key STRING, value LONG").option("maxFilesPerTrigger", 1)
    reader = reader.option("CleanSource", clean).option("sourceArchiveDir", str(HERE / "archive"))
    events = reader.json(str(HERE / "inputs" / "events"))
    sinks = {{"log": SQLite(HERE / "rows.db", "rows")}}
    return Pipeline("rows", sources={{"events": events}}, query=lambda events: events, sinks=sinks)


def keeping():
    return pipeline("off")
"""


@pytest.mark.parametrize("clean", ["delete", "ARCHIVE"])
def test_a_source_that_takes_its_files_away_is_refused_and_none_of_them_goes(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, clean: str
) -> None:
    """Spark tells the sources with the plan of the next batch that the one before was read."""
    place = with_job(tmp_path, spark, monkeypatch)
    (tmp_path / "job.py").write_text(CLEANING.format(clean=clean))
    place.inputs(2)
    place.run(load_pipeline("job:pipeline"), every="1 batch")
    first, last = (event_file(tmp_path / "inputs" / "events", batch) for batch in (0, 1))
    until(lambda: not first.exists())
    place.inputs(4)

    def files() -> list[Path]:
        return sorted(path for name in ("inputs", "archive") for path in (tmp_path / name).rglob("*") if path.is_file())

    before, rows = files(), objects(place.repository)
    assert last in before
    answer = invoke("drill", "--repo", place.repository.url, "--start", "job:pipeline", "--scratch", "s", "--json")
    time.sleep(2)  # Spark takes files away beside the batch
    assert (files(), objects(place.repository)) == (before, rows)
    assert answer.code == 6
    [drilled] = answer.document["pipelines"]
    assert [step["error"] and step["error"]["code"] for step in drilled["steps"]] == [None, None, None, "HF-5031"]
    assert f"source 'events' of 'rows' has cleanSource={clean}" in drilled["steps"][-1]["error"]["message"]

    answer = invoke("drill", "--repo", place.repository.url, "--start", "job:keeping", "--scratch", "s")
    assert answer.code == 0, answer.out
    assert "Spark ran batch 2 into nothing" in answer.out
    assert files() == before


def test_a_plan_that_is_not_understood_is_refused_since_files_may_go(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = with_job(tmp_path, spark, monkeypatch)
    (tmp_path / "job.py").write_text(CLEANING.format(clean="delete"))
    place.inputs(2)
    place.run(load_pipeline("job:pipeline"), every="1 batch")
    first, last = (event_file(tmp_path / "inputs" / "events", batch) for batch in (0, 1))
    until(lambda: not first.exists())
    place.inputs(4)

    def unknown(*_: object) -> None:
        raise TypeError("a RelationOfALaterSpark")

    monkeypatch.setattr("holdfast.pipeline.sources.relations._relation", unknown)
    found = drill_pipeline(
        place.repository.pipeline("rows"), tmp_path / "scratch", start=load_pipeline("job:pipeline").drill
    )
    time.sleep(2)  # Spark takes files away beside the batch
    assert last.exists()
    assert isinstance(found.error, DrillFailed)
    assert "(cleanSource) is not known: its plan is not understood: a RelationOfALaterSpark" in str(found.error)


def test_a_topic_that_is_gone_is_told_before_spark_asks_for_it(
    tmp_path: Path, spark: SparkSession, kafka_server: KafkaServer
) -> None:
    make_topic(tmp_path / "inputs", kafka_server)
    send_events(tmp_path / "inputs", 1)
    bootstrap, topic = find_topic(tmp_path / "inputs")
    kafka = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    records = spark.readStream.format("kafka").options(**kafka).load().selectExpr("CAST(value AS STRING) AS text")
    sinks = {"log": SQLite(tmp_path / "rows.db", "rows")}
    pipeline = Pipeline("rows", sources={"topic": records}, query=lambda topic: topic, sinks=sinks)
    place = Place(tmp_path, spark)
    place.run(pipeline, every="1 batch")
    delete_topic(bootstrap, topic)
    before = objects(place.repository)
    found = drill_pipeline(place.repository.pipeline("rows"), tmp_path / "scratch", start=pipeline.drill)
    assert isinstance(found.error, SourcesGone)
    assert (found.steps[-1].name, found.error.exit_code) == ("start", 6)
    assert f"there is no topic {topic} any more" in str(found.error)
    assert objects(place.repository) == before
    assert [*(tmp_path / "scratch").iterdir()] == []


def drilled(proof: Proof, spark: SparkSession) -> Drilled:
    return drill_pipeline(proof.stored, proof.root / "scratch", start=proof.pipeline(spark).drill)


def test_the_next_batch_that_was_decided_is_run_as_it_was_and_one_whose_files_are_gone_is_told(
    spark: SparkSession, prove: Prove
) -> None:
    proof = prove("sqlite", "parquet")
    proof.inputs(6)
    with pytest.raises((PySparkException, Died)):
        proof.run(proof.pipeline(spark, reach=die_at("committed", 5)), every="3 batches")
    # As the driver does every few seconds.
    records = proof.stored.records
    known, there = Ledger(open_store(str(proof.home / "ledger"))), Ledger(records.store, records.keys.ledger)
    for decision in known.read():
        there.add(decision)
    before, rows = objects(proof.repository), proof.rows()
    found = drilled(proof, spark)
    assert found.error is None
    assert found.epoch is not None
    assert f"Spark ran batch {found.epoch + 1} into nothing: " in found.steps[-1].said
    assert (objects(proof.repository), proof.rows()) == (before, rows)

    event_file(proof.root / "events", found.epoch + 1).unlink()
    found = drilled(proof, spark)
    assert isinstance(found.error, SourcesGone)
    assert (found.steps[-1].name, found.error.exit_code) == ("start", 6)
    assert objects(proof.repository) == before
