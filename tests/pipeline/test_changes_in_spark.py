"""What Spark does with a changed query on an old checkpoint, tried: the verdicts are no guesses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from holdfast.decide.query_changes import CHANGES
from pipeline.changed_meanings import EVERY_CASE
from pipeline.changed_queries import Case, Query
from spark.events import files_of
from spark.workloads import STORES, configured

FIRST, ALL = 3, 6
INPUTS = files_of("events", "left", "right")
EACH_A_FILE = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
"""Batches without data would come at other places after a restart."""

Rows = list[tuple[object, ...]]


def run(spark: SparkSession, query: Query, inputs: Path, checkpoint: Path) -> dict[int, Rows]:
    """The rows of every batch, run to the end of what is there."""
    found: dict[int, Rows] = {}

    def collect(batch: DataFrame, number: int) -> None:
        found[number] = sorted((tuple(row) for row in batch.collect()), key=repr)

    with configured(spark, {**STORES["changelog"], **EACH_A_FILE, **query.conf}):
        writer = query.build(spark, inputs).writeStream.outputMode(query.output_mode).foreachBatch(collect)
        writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()
    return found


def outcome(spark: SparkSession, case: Case, root: Path) -> str:
    """What becomes of the changed query: an error class, or whether its batches are those of a run from the start."""
    INPUTS(root, FIRST)
    run(spark, case.before, root, root / "old")
    INPUTS(root, ALL)
    try:
        changed = run(spark, case.after, root, root / "old")
    except PySparkException as error:
        found = re.search(r"\[(STATE_STORE_\w+|STREAMING_\w+)", str(error))
        return found[1] if found else "fails"
    alone = run(spark, case.after, root, root / "new")
    return "right" if all(changed.get(batch) == alone.get(batch) for batch in range(FIRST, ALL)) else "wrong"


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=() if case.quick else pytest.mark.soak) for case in EVERY_CASE],
    ids=lambda case: case.name,
)
def test_spark_does_with_a_change_what_is_said_of_it(case: Case, spark: SparkSession, tmp_path: Path) -> None:
    found = outcome(spark, case, tmp_path)
    assert found.startswith(case.spark) if case.spark != "starts" else found in {"right", "wrong"}


def test_no_change_that_spark_gets_wrong_is_let_through() -> None:
    for case in EVERY_CASE:
        if case.spark not in {"right", "starts"}:
            assert {"silently wrong", "needs migration", "needs reset"} & {CHANGES[name].verdict for name in case.found}


def test_every_kind_of_change_of_a_query_is_tried() -> None:
    tried = {name for case in EVERY_CASE for name in case.found}
    elsewhere = {name for name in CHANGES if name.startswith("sink-")} | {"setting", "query-retold"}
    assert set(CHANGES) - elsewhere <= tried
