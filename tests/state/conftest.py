"""The Spark session that all tests of a process share, and runs of queries whose state is looked into."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import SparkSession

from servers import kafka_conf
from spark.proof import Truth, tell_truth
from spark.session import start_session
from spark.workloads import WORKLOADS

BATCHES = 7

Tell = Callable[[str, str], Truth]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one session of this process, as the tests of `spark` want it too: Spark is started only once."""
    session = start_session(kafka_conf())
    yield session
    session.stop()


@pytest.fixture(scope="session")
def tell(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Tell:
    """An uninterrupted run of a workload on a store, captured after every batch; each is run once."""
    told: dict[tuple[str, str], Truth] = {}

    def tell(name: str, store: str) -> Truth:
        if (name, store) not in told:
            root = tmp_path_factory.mktemp(f"{name}-{store}")
            told[name, store] = tell_truth(spark, WORKLOADS[name], store, root, BATCHES)
        return told[name, store]

    return tell
