"""The Spark session that all tests of a process share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from spark.session import start_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one session of this process; a test leaves its configuration as it was."""
    session = start_session()
    yield session
    session.stop()
