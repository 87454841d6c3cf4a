"""What a query is: every change that matters to the state is found in its plan, and no other is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from holdfast.decide.compatibility import judge
from holdfast.decide.fingerprint import Fingerprint
from holdfast.pipeline.identity import identify
from pipeline.changed_meanings import EVERY_CASE
from pipeline.changed_queries import EXOTIC, Case, Query, sums
from spark.workloads import WORKLOADS, configured

TESTS = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("queries")
    for source in ("events", "left", "right"):
        (root / source).mkdir()
    return root


def of(query: Query, spark: SparkSession, folder: Path) -> Fingerprint:
    with configured(spark, query.conf):
        return identify(query.build(spark, folder), query.query, query.output_mode, {})


@pytest.mark.parametrize("case", EVERY_CASE, ids=lambda case: case.name)
def test_each_change_is_found_for_what_it_is(case: Case, spark: SparkSession, folder: Path) -> None:
    findings = judge(of(case.before, spark, folder).parts, of(case.after, spark, folder).parts)
    assert {finding.name for finding in findings} == set(case.found), list(map(str, findings))


PROGRAM = """
import json, sys
from pathlib import Path
from spark.session import start_session
from pipeline.changed_meanings import EVERY_CASE
from pipeline.changed_queries import EXOTIC
from pipeline.test_identity import of
spark = start_session()
queries = [EXOTIC, *(case.after for case in EVERY_CASE)]
print("RESULT", json.dumps([dict(of(query, spark, Path(sys.argv[1])).parts) for query in queries]))
"""


def in_another_process(folder: Path) -> list[dict[str, str]]:
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(TESTS)]))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder)],
        env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("RESULT"))
    found: list[dict[str, str]] = json.loads(line.partition(" ")[2])
    return found


def test_a_fingerprint_is_the_same_in_every_process(spark: SparkSession, folder: Path) -> None:
    queries = [EXOTIC, *(case.after for case in EVERY_CASE)]
    assert in_another_process(folder) == [of(query, spark, folder).parts for query in queries]


def test_no_secret_is_in_it(spark: SparkSession) -> None:
    options = {"kafka.bootstrap.servers": "here:9092", "subscribe": "orders", "kafka.sasl.jaas.config": "hunter2"}
    events = spark.readStream.format("kafka").options(**options).load()
    parts = identify(events, lambda events: events, "append", {}).parts
    assert parts["source 0"] == '["kafka","orders"]'
    assert not [text for text in parts.values() if "hunter2" in text or "9092" in text]


def test_another_key_of_an_encryption_is_no_other_query(spark: SparkSession, folder: Path) -> None:
    def hidden(key: str) -> Query:
        text = F.expr(f"CAST(aes_encrypt(CAST(value AS STRING), '{key}') AS STRING) AS hidden")
        return Query(lambda events: events.groupBy(text).count())

    one, two = (of(hidden(key), spark, folder) for key in ("sixteen letters!", "sixteen others!!"))
    assert one == two
    assert one != of(Query(lambda events: events.groupBy(F.expr("CAST(value AS STRING)")).count()), spark, folder)


def test_no_option_of_a_function_is_in_it_in_clear_and_a_secret_one_not_at_all(
    spark: SparkSession, folder: Path
) -> None:
    def parts(**options: str) -> dict[str, str]:
        query = Query(lambda events: events.groupBy(F.from_json("key", "a LONG", options)["a"]).count())
        return dict(of(query, spark, folder).parts)

    plain, secret = parts(mode="FAILFAST"), parts(mode="FAILFAST", password="hunter2")
    assert plain == secret != parts(mode="PERMISSIVE")
    assert parts(MODE="FAILFAST") == plain
    assert not [text for text in secret.values() if "hunter2" in text or "FAILFAST" in text]


def tables(events: DataFrame) -> list[DataFrame]:
    """The kinds of tables that a stream is joined with."""
    spark = events.sparkSession
    spark.range(9).selectExpr("CAST(id AS STRING) AS key").createOrReplaceTempView("keys_in_a_view")
    listed = spark.createDataFrame([("a",), ("b",)], "key STRING")
    cached = spark.range(5).selectExpr("CAST(id AS STRING) AS key").cache()
    return [
        listed,
        cached,
        F.broadcast(listed),
        spark.table("keys_in_a_view"),
        spark.sql("SELECT key FROM keys_in_a_view WHERE key IN (SELECT max(key) FROM keys_in_a_view)"),
        listed.groupBy("key").pivot("key", ["a"]).count().select("key"),
        spark.sql("WITH one AS (SELECT 'a' AS key) SELECT key FROM one UNION SELECT key FROM one"),
    ]


def test_a_stream_joined_with_any_kind_of_table_can_be_told(spark: SparkSession, folder: Path) -> None:
    def query(events: DataFrame) -> DataFrame:
        for table in tables(events):
            events = events.join(table, "key")
        return events.observe("seen", F.count("*").alias("n")).repartition(3).groupBy("key").count()

    one, two = (of(Query(query), spark, folder) for _ in range(2))
    assert one == two
    assert "operator 1 kind" not in one.parts


@pytest.mark.parametrize("name", [name for name, workload in WORKLOADS.items() if not workload.needs_topic])
def test_every_workload_is_the_same_when_it_is_made_again(name: str, spark: SparkSession, folder: Path) -> None:
    workload = WORKLOADS[name]
    with configured(spark, workload.conf):
        frames = [workload.build(spark, folder) for _ in range(2)]
        one, two = (identify(frame, workload.build, workload.output_mode, {}) for frame in frames)
    assert one == two
    assert ("operator 0 kind" in one.parts) == (name != "stateless")


def test_what_changes_no_rows_is_no_change(spark: SparkSession, folder: Path) -> None:
    same = Query(lambda events: sums(events.observe("seen", F.count("*").alias("n")).repartition(5).hint("none")))
    assert judge(of(Query(sums), spark, folder).parts, of(same, spark, folder).parts) == []
