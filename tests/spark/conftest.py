"""The Spark session that all tests of a process share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from servers import kafka_conf
from spark.replay import History, record_history
from spark.session import SPARK_VERSION, WITH_KAFKA, start_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one session of this process; a test leaves its configuration as it was."""
    session = start_session(kafka_conf() if SPARK_VERSION >= WITH_KAFKA else None)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def history(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> History:
    """What a real query wrote, file by file, to be played again."""
    return record_history(spark, tmp_path_factory.mktemp("history"))
