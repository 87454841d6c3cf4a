"""The Spark session that all tests of a process share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from servers import kafka_conf
from spark.session import start_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one session of this process, as the tests of `spark` want it too: Spark is started only once."""
    session = start_session(kafka_conf())
    yield session
    session.stop()
