"""The Spark session that all tests of a process share, and pipelines into real sinks with the truth about them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.proof import Proof, Prove, Truth
from servers import kafka_conf
from spark.session import start_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one session of this process, as the tests of `spark` want it too: Spark is started only once."""
    session = start_session(kafka_conf())
    yield session
    session.stop()


@pytest.fixture(scope="session")
def truth(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Truth:
    return Truth(spark, tmp_path_factory.mktemp("truth"))


@pytest.fixture
def prove(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Prove:
    """Makes a pipeline into new targets of these kinds; servers are started when one needs them.

    With `by_executors` no row of it is staged by this process, or written anew.
    """

    def make(*kinds: str, by_executors: bool = False) -> Proof:
        proof = Proof.of(kinds, tmp_path, request.getfixturevalue)
        if by_executors:
            proof.leave_to_executors(monkeypatch.setattr)
        return proof

    return make
