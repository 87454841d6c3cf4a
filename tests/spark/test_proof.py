"""For each state store and operator: what goes on from a restored cut equals the uninterrupted run, batch by batch."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.proof import after, run_on, tell_truth
from spark.topics import make_topic
from spark.workloads import COMBINATIONS, WORKLOADS

SAMPLE = [
    ("window", "hdfs"),
    ("window", "changelog-2"),
    ("stateless", "hdfs"),
    ("join-left-3", "changelog-2"),
    ("dedup-window", "rocksdb-2"),
    ("group-state", "changelog"),
    ("tws-pandas", "changelog-2"),
    ("python-simple", "hdfs"),
    ("kafka", "changelog-2"),
]
ON_OLDER_SPARKS = [
    ("window", "rocksdb"),
    ("window", "changelog"),
    ("over-all", "changelog"),
    ("join-left-2", "hdfs"),
    ("tws-ttl", "changelog"),
    ("rate", "changelog-2"),
    ("named-sources", "changelog-2"),
]
"""With the sample; on the main one the soak has them."""
PAIRS = [
    *(pair for pair in SAMPLE if pair in COMBINATIONS),
    *(pytest.param(*pair, marks=pytest.mark.soak) for pair in ON_OLDER_SPARKS if pair in COMBINATIONS),
]


@pytest.fixture
def root(tmp_path: Path, name: str, request: pytest.FixtureRequest) -> Path:
    """A folder for the workload of this name; a broker is started only for one that reads a topic."""
    if WORKLOADS[name].needs_topic:
        make_topic(tmp_path / "inputs", request.getfixturevalue("kafka_server"))
    return tmp_path


def prove(spark: SparkSession, name: str, store: str, root: Path, cuts: list[int]) -> None:
    """Restore each cut, run on with a stop in mid-batch and another start, and end with the oldest once more.

    Stale files show only after the second start, and a rewind only to a cut older than the one before.
    """
    truth = tell_truth(spark, WORKLOADS[name], store, root)
    for round_number, cut in enumerate([*cuts, cuts[0]]):
        place = root / f"restored-{round_number}"
        outputs = run_on(spark, truth, cut, place, stops=[cut + 3])
        assert outputs == after(truth.outputs, cut), f"from batch {cut} on"
        # The maintenance thread may still write there.
        shutil.rmtree(place, ignore_errors=True)


@pytest.mark.matrix
@pytest.mark.parametrize(("name", "store"), PAIRS)
def test_a_restored_cut_runs_on_as_the_uninterrupted_run(
    spark: SparkSession, name: str, store: str, root: Path
) -> None:
    prove(spark, name, store, root, [4])


@pytest.mark.soak
@pytest.mark.parametrize(("name", "store"), COMBINATIONS)
def test_every_cut_of_every_store_and_operator_runs_on_as_the_uninterrupted_run(
    spark: SparkSession, name: str, store: str, root: Path
) -> None:
    prove(spark, name, store, root, [0, 2, 5, 7])
