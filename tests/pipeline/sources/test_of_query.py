"""Sources of a real query: found in Spark's plan by their names, and asked with the options of the reader."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from holdfast.pipeline.sources import kafka
from holdfast.pipeline.sources.contract import LogEntry, OtherSource, Past, Source
from holdfast.pipeline.sources.files import FileSource
from holdfast.pipeline.sources.kafka import KafkaSource
from holdfast.pipeline.sources.of_query import sources_of
from servers import KafkaServer
from sinks.kafka_topics import delete_topic, grow_topic, make_topic, remake_topic, topic_id, trim_topic

DAY_MS = 86_400_000


@pytest.fixture
def bootstrap(kafka_server: KafkaServer) -> str:
    return kafka_server.bootstrap


def send(bootstrap: str, topic: str, records: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(records):
        producer.produce(topic, b"x", partition=number % 2)
    assert producer.flush(30) == 0


def reader(spark: SparkSession, bootstrap: str, topic: str, **options: str) -> DataFrame:
    stream = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    return stream.options(**options).load()


def of_topic(spark: SparkSession, bootstrap: str, topic: str, **options: str) -> Source:
    """What there is to ask now: one object is one look."""
    frame = reader(spark, bootstrap, topic, **options)
    [source] = sources_of(frame, {"events": frame})
    assert isinstance(source, KafkaSource)
    return source


def slugs(source: Source, past: Past) -> list[str]:
    return [finding.slug for finding in source.judge(past)]


def test_each_source_of_a_query_is_known_by_its_name_in_the_order_of_the_log(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    topic = reader(spark, bootstrap, make_topic(bootstrap)).selectExpr("CAST(value AS STRING) AS text")
    files = spark.readStream.text(str(tmp_path)).selectExpr("value AS text")
    ticks = spark.readStream.format("rate").load().selectExpr("CAST(value AS STRING) AS text")
    query = topic.filter("text > ''").union(files).union(ticks)
    named = {"ticks": ticks, "files": files, "topic": topic}
    found = sources_of(query, named)
    assert [(type(source), source.name) for source in found] == [
        (KafkaSource, "topic"),
        (FileSource, "files"),
        (OtherSource, "ticks"),
    ]
    [finding] = found[2].judge(Past({"offset": "7"}))
    assert (finding.slug, finding.severity) == ("source:ticks:unknown", "note")
    assert "rate" in found[2].until(Past({})).why


def test_a_topic_is_judged_as_it_is_now(spark: SparkSession, bootstrap: str) -> None:
    topic = make_topic(bootstrap, retention_ms=str(DAY_MS))
    send(bootstrap, topic, 20)
    known = of_topic(spark, bootstrap, topic).identity({f"{topic}:0": "1"}, {})
    assert known == {f"topic-id:{topic}": topic_id(bootstrap, topic)}
    past = Past({f"{topic}:0": "3", f"{topic}:1": "10"}, {f"{topic}:0": "10", f"{topic}:1": "10"}, known)
    whole = of_topic(spark, bootstrap, topic)
    assert slugs(whole, past) == []
    until = whole.until(past)
    assert until.ms is not None
    assert abs(until.ms - DAY_MS - time.time() * 1000) < 3_600_000
    assert whole.until(Past({f"{topic}:0": "10", f"{topic}:1": "10"})).ms is None

    grow_topic(bootstrap, topic, 3)
    assert slugs(of_topic(spark, bootstrap, topic), past) == ["source:events:partition-new"]
    trim_topic(bootstrap, topic, 0, 5)
    assert "source:events:trimmed" in slugs(of_topic(spark, bootstrap, topic), past)

    remake_topic(bootstrap, topic)
    send(bootstrap, topic, 60)
    assert slugs(of_topic(spark, bootstrap, topic), past) == ["source:events:topic-remade"]
    unrecorded = Past(past.begin, past.furthest)
    assert slugs(of_topic(spark, bootstrap, topic), unrecorded) == [], "without its id it passes for the old one"

    remake_topic(bootstrap, topic, partitions=1)
    assert slugs(of_topic(spark, bootstrap, topic), unrecorded) == [
        "source:events:partition-gone",
        "source:events:records-lost",
    ]
    delete_topic(bootstrap, topic)
    lenient = of_topic(spark, bootstrap, topic, failOnDataLoss="false")
    assert slugs(lenient, past) == ["source:events:topic-gone", "source:events:loss-allowed"]
    assert "no topic" in lenient.until(past).why


def test_brokers_that_do_not_answer_refuse_nothing_and_show_no_secret(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka, "PATIENCE_MS", 1000)
    away = of_topic(spark, "127.0.0.1:1", "orders")
    [finding] = away.judge(Past({"orders:0": "3"}))
    assert (finding.slug, finding.severity) == ("source:events:unknown", "note")
    assert away.until(Past({"orders:0": "3"})).why
    assert away.identity({"orders:0": "3"}, {"known": "1"}) == {"known": "1"}
    options = {"kafka.security.protocol": "s3cr3t", "kafka.ssl.key.password": "s3cr3t"}
    [finding] = of_topic(spark, "127.0.0.1:1", "orders", **options).judge(Past({"orders:0": "3"}))
    assert "security.protocol" in finding.why
    assert "s3cr3t" not in finding.why


def test_files_are_looked_for_by_the_names_in_sparks_log(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.readStream.option("cleanSource", "delete").text(str(tmp_path))
    [source] = sources_of(frame, {"files": frame})
    (tmp_path / "a b.txt").write_text("x")
    there, gone = LogEntry(1, (tmp_path / "a b.txt").as_uri()), LogEntry(2, (tmp_path / "c.txt").as_uri())
    assert slugs(source, Past({"logOffset": "0"}, files=(there,))) == ["source:files:cleaned"]
    found = source.judge(Past({"logOffset": "0"}, files=(there, gone)))
    assert [finding.slug for finding in found] == ["source:files:files-gone", "source:files:cleaned"]
    assert "1 of 2 files" in found[0].why
    assert "c.txt" in found[0].why
    assert "cleanSource" in source.until(Past({})).why
