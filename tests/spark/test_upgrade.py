"""A checkpoint of another Spark goes on right here, or is refused before anything is written because it would not.

`make test-spark-matrix` runs this with HOLDFAST_UPGRADE_FROM, a folder in which another Spark has left its runs.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.errors import SparkRejects
from holdfast.spark.lay import lay_down
from spark.proof import after, run_on
from spark.upgrade import Left, left_in
from spark.workloads import Outputs, run

FOLDER = Path(os.environ.get("HOLDFAST_UPGRADE_FROM", "nothing was left"))
SECONDS = 120


def forced(spark: SparkSession, left: Left, place: Path) -> Outputs | str:
    """What this Spark puts out from what it is not to be given; in words, if it does not go on."""
    truth = left.truth()
    manifest = truth.pipeline[f"epoch:{left.cut}"].manifest
    laid = lay_down(truth.pipeline.records, manifest, str(place), spark=left.spark)
    # Spark 4.0 waits for ever on a Python worker whose state it could not read.
    patience = threading.Timer(SECONDS, spark.sparkContext.cancelAllJobs)
    patience.start()
    try:
        return run(spark, truth.workload, truth.store, truth.inputs, laid.destination)
    except Exception as error:  # noqa: BLE001 - it fails in as many ways as there are formats
        return str(error)
    finally:
        patience.cancel()


@pytest.mark.upgrade
@pytest.mark.parametrize("left", list(left_in(FOLDER)), ids=lambda left: left.root.name)
def test_a_checkpoint_of_another_spark_goes_on_right_or_is_refused_as_it_would_not(
    spark: SparkSession, left: Left, tmp_path: Path
) -> None:
    truth = left.truth()
    expected = after(truth.outputs, left.cut)
    refused = ""
    try:
        assert run_on(spark, truth, left.cut, tmp_path / "restored", stops=[left.cut + 3]) == expected
    except SparkRejects as error:
        refused = str(error)
    if refused:
        assert [*tmp_path.iterdir()] == [], "it was refused before anything was written"
        found = forced(spark, left, tmp_path / "forced")
        print(f"{refused}\nSpark itself: {str(found)[:2000]}")
        assert found != expected, f"it works, and yet: {refused}"
