"""What does not fit, and what breaks in the middle: a clear error, nothing half-visible, and the next start goes on."""

from __future__ import annotations

import os
import resource
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from holdfast.errors import BadValue, SinkFailed, SinkUnavailable, SinkUnfit, StagingFailed, StoreError
from holdfast.pipeline.pipeline import Pipeline
from holdfast.sinks import Delta, Iceberg, Kafka, Postgres, SQLite
from holdfast.sinks.contract import Sink
from pipeline.proof import Proof, Prove, Truth, read_events, summed
from servers import KafkaServer, postgres


def at(step: str, times: int, then: Callable[[], None]) -> Callable[[str], None]:
    """A `reach` that does something at a step, reached for so many times."""
    left = times

    def reach(name: str) -> None:
        nonlocal left
        left -= name == step
        if name == step and left == 0:
            then()

    return reach


# ---- found before anything runs ----


def refused(proof: Proof, spark: SparkSession, sink: Sink, match: str) -> None:
    """A sink beside a good one is refused, and by then nobody has claimed the pipeline or made a table."""
    proof.inputs(3)
    pipeline = proof.pipeline(spark)
    pipeline.sinks["bad"] = sink
    with pytest.raises(SinkUnfit, match=match):
        proof.run(pipeline)
    assert not proof.stored.exists()
    assert not Path(proof.targets["sqlite"].place).exists()


def test_what_is_no_sink_is_refused(spark: SparkSession, prove: Prove) -> None:
    proof = prove()
    proof.inputs(1)
    sources = {"events": read_events(spark, proof.root, 1)}
    with pytest.raises(BadValue, match="orders"):
        Pipeline("p", sources=sources, query=summed, sinks={"orders": "delta"})  # type: ignore[dict-item]


def test_two_sinks_on_one_table_are_refused_and_two_tables_of_one_database_are_not(
    spark: SparkSession, prove: Prove
) -> None:
    proof = prove()
    proof.inputs(1)
    sources, path = {"events": read_events(spark, proof.root, 1)}, proof.root / "t.db"
    with pytest.raises(SinkUnfit, match=r"sink 'b': its target .* is that of 'a' too"):
        Pipeline("p", sources=sources, query=summed, sinks={"a": SQLite(path, "t"), "b": SQLite(path, "T")})
    Pipeline("p", sources=sources, query=summed, sinks={"a": SQLite(path, "t"), "b": SQLite(path, "s")})


def test_on_a_cluster_the_place_of_sparks_directories_has_to_be_given(
    spark: SparkSession, prove: Prove, monkeypatch: pytest.MonkeyPatch
) -> None:
    proof = prove("sqlite")
    proof.inputs(1)
    monkeypatch.setattr(spark.sparkContext, "master", "spark://driver:7077")
    with pytest.raises(BadValue, match="checkpoint_dir: on a cluster"):
        proof.pipeline(spark).start(proof.repository)
    assert not proof.stored.exists()


def test_a_key_that_the_rows_do_not_have_is_refused(spark: SparkSession, prove: Prove) -> None:
    proof = prove("sqlite")
    for sink in (
        SQLite(proof.root / "other", "t", mode="upsert", key=["sku"]),
        Delta(str(proof.root / "delta"), mode="upsert", key=["sku"]),
        Iceberg(
            {"name": "c", "type": "sql", "uri": f"sqlite:///{proof.root}/c.db", "warehouse": f"file://{proof.root}/w"},
            "ns.t",
            mode="upsert",
            key=["sku"],
        ),
    ):
        refused(proof, spark, sink, "sku")


def test_a_topic_that_is_not_there_is_refused(spark: SparkSession, prove: Prove, kafka_server: KafkaServer) -> None:
    refused(prove("sqlite"), spark, Kafka(kafka_server.bootstrap, "no-such-topic"), "no-such-topic")


def test_a_schema_of_the_database_that_is_not_there_is_refused(
    spark: SparkSession, prove: Prove, postgres_url: str
) -> None:
    refused(prove("sqlite"), spark, Postgres(postgres_url, "nowhere.t"), "no schema nowhere")


def test_a_table_with_other_columns_is_refused(spark: SparkSession, prove: Prove) -> None:
    proof = prove("sqlite")
    with closing(sqlite3.connect(proof.root / "other")) as database:
        database.execute("CREATE TABLE t (start INTEGER, key TEXT, n TEXT)")
    refused(proof, spark, SQLite(proof.root / "other", "t"), "no column total")


# ---- found in the middle ----


def test_a_table_that_is_altered_in_the_middle_stops_the_pipeline_until_it_fits_again(
    spark: SparkSession, prove: Prove, truth: Truth
) -> None:
    proof = prove("sqlite", "delta")

    def alter(statement: str) -> None:
        with closing(sqlite3.connect(proof.targets["sqlite"].place)) as database:
            database.execute(statement)

    proof.inputs(8)
    rename = "ALTER TABLE sums RENAME COLUMN {} TO {}"
    with pytest.raises(SinkUnfit, match="no column total"):
        proof.run(proof.pipeline(spark, reach=at("begin", 6, lambda: alter(rename.format("total", "amount")))))
    alter(rename.format("amount", "total"))
    rows = proof.rows()
    assert rows["sqlite"] == rows["delta"], "neither has more than the other"
    assert 0 < len(rows["delta"]) < len(truth(8))
    proof.run(proof.pipeline(spark))
    assert proof.differing(truth(8)) == {}


def nameless(events: DataFrame) -> DataFrame:
    """Sums whose key may be empty."""
    return summed(events.selectExpr("at", "nullif(key, 'k3') AS key", "value"))


def test_rows_without_a_key_are_refused_and_no_sink_has_them(spark: SparkSession, prove: Prove) -> None:
    proof = prove("sqlite upsert", "delta upsert", "parquet")
    proof.inputs(8)
    with pytest.raises(SinkUnfit, match="key"):
        proof.run(proof.pipeline(spark, query=nameless))
    rows = proof.rows()
    assert rows["sqlite-upsert"] == rows["delta-upsert"] == rows["parquet"]
    assert not any(key == "None" for _, key, _, _ in rows["parquet"])
    proof.run(proof.pipeline(spark, query=lambda events: nameless(events).fillna("none", ["key"])))
    rows = proof.rows()
    assert rows["sqlite-upsert"] == rows["delta-upsert"] == rows["parquet"]
    assert any(key == "none" for _, key, _, _ in rows["parquet"])


@pytest.mark.parametrize("step", ["staged", "looked"], ids=["before the decision", "after it"])
def test_a_database_that_is_gone_in_the_middle_of_an_epoch_holds_up_the_others_and_gets_it_later(
    spark: SparkSession, prove: Prove, truth: Truth, step: str
) -> None:
    with postgres() as server:
        proof = prove("sqlite")
        proof.targets["postgres"] = proof.targets["sqlite"]._replace(kind="postgres", place=server.make_database("d"))
        proof.inputs(8)
        with pytest.raises((SinkUnavailable, SinkFailed), match="postgres"):
            proof.run(proof.pipeline(spark, reach=at(step, 6, lambda: server.stop("immediate"))))
        server.start()
        rows = proof.rows()
        assert set(rows["postgres"]) <= set(rows["sqlite"])
        if step == "staged":
            assert rows["postgres"] == rows["sqlite"]
        proof.run(proof.pipeline(spark))
        assert proof.differing(truth(8)) == {}


@contextmanager
def full_disk(spark: SparkSession) -> Iterator[Callable[[], None]]:
    """What is given has neither this process nor Spark write any file of more than a few bytes, until the end."""
    processes = [os.getpid(), spark.sparkContext._gateway.proc.pid]  # type: ignore[union-attr]
    limits = {pid: resource.prlimit(pid, resource.RLIMIT_FSIZE) for pid in processes}

    def fill() -> None:
        for pid, (_, hard) in limits.items():
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (512, hard))

    try:
        yield fill
    finally:
        for pid, limit in limits.items():
            resource.prlimit(pid, resource.RLIMIT_FSIZE, limit)


@pytest.mark.parametrize("by_executors", [True, False], ids=["by the executors", "through Arrow"])
def test_with_a_full_disk_under_the_staged_rows_nothing_is_seen_and_the_next_start_goes_on(
    spark: SparkSession, prove: Prove, truth: Truth, by_executors: bool
) -> None:
    proof = prove("duckdb", "parquet", by_executors=by_executors)
    proof.inputs(8)
    with full_disk(spark) as fill, pytest.raises((StagingFailed, StoreError), match="File too large"):
        proof.run(proof.pipeline(spark, reach=at("begin", 6, fill)))
    assert 0 < len(truth(5)) < len(truth(6)), "or this shows nothing"
    assert proof.differing(truth(5)) == {}, "the epochs before it, and nothing of this one"
    proof.run(proof.pipeline(spark))
    assert proof.differing(truth(8)) == {}
