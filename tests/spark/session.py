"""The one Spark session of a test process, set up so that snapshots, zips and clean-ups occur within short runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import chdir
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from holdfast.spark.java import use_java

__all__ = ["SPARK_VERSION", "WITH_KAFKA", "start_session"]

SPARK_VERSION = tuple(int(part) for part in pyspark.__version__.split(".")[:2])

WITH_KAFKA = (4, 2)
"""The first Spark that the Kafka connector of the tests fits."""

_TESTS = Path(__file__).resolve().parents[1]
_CHECKPOINTING = "org.apache.spark.sql.execution.streaming" + (".checkpointing" if SPARK_VERSION >= (4, 1) else "")

_CONF = {
    "spark.driver.memory": "1g",
    # What nobody looks at fills the heap in a process that runs hundreds of queries.
    "spark.sql.ui.retainedExecutions": "2",
    "spark.sql.streaming.ui.retainedQueries": "2",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "100",
    "spark.ui.dagGraph.retainedRootRDDs": "2",
    # Short runs never earn back what the second compiler and a concurrent collector cost.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.streaming.checkpointFileManagerClass": f"{_CHECKPOINTING}.FileSystemBasedCheckpointFileManager",
    "spark.sql.streaming.stateStore.maintenanceInterval": "500ms",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "3",
    # Python workers import the functions of the workloads from here.
    "spark.executorEnv.PYTHONPATH": str(_TESTS),
}


def start_session(extra: Mapping[str, str] | None = None, master: str = "local[2]") -> SparkSession:
    """Start Spark; `extra` adds to or overrides its configuration.

    Start it once in a process: Spark does not come back reliably after it was stopped.
    """
    use_java()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).appName("holdfast-tests")
    for key, value in {**_CONF, **(extra or {})}.items():
        builder = builder.config(key, value)
    # Spark keeps the folder it is started in, and its Python workers import tests from there: no test's own will do.
    with chdir(_TESTS.parent):
        spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
