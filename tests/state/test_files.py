"""Which files hold an operator's state, and what they are called elsewhere."""

from __future__ import annotations

import pytest

from holdfast.spark.logs import Malformed, parse_commit
from holdfast.state.files import NO_PARTITION, for_reading, is_of_store, regrown_name, with_state_ids

NAMES = [
    "metadata",
    "offsets/6",
    "offsets/7",
    "commits/7",
    "sources/0/7",
    "state/0/_metadata/metadata",
    "state/0/0/_metadata/schema",
    "state/0/0/8.changelog",
    "state/0/1/8.changelog",
    "state/0/1/SSTs/000008-a.sst",
    "state/1/_metadata/metadata",
    "state/1/0/8.zip",
]


def test_a_reader_is_given_the_logs_and_one_operator() -> None:
    found = for_reading(NAMES, 7, 0)
    assert all(name == held for name, held in found.items())
    assert set(found) == {"metadata", "offsets/7", "commits/7", *(n for n in NAMES if n.startswith("state/0/"))}


def test_one_partition_is_given_under_the_names_of_the_first() -> None:
    found = for_reading(NAMES, 7, 0, 1)
    assert found["state/0/0/8.changelog"] == "state/0/1/8.changelog"
    assert found["state/0/0/SSTs/000008-a.sst"] == "state/0/1/SSTs/000008-a.sst"
    assert found["state/0/0/_metadata/schema"] == "state/0/0/_metadata/schema"
    assert "state/0/0/8.changelog" not in found.values()


def test_no_partition_leaves_what_tells_of_the_rows() -> None:
    found = for_reading(NAMES, 7, 0, NO_PARTITION)
    assert not any(is_of_store(name, 0) for name in found)
    assert "state/0/0/_metadata/schema" in found


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("state/0/3/1.zip", "state/2/3/42.zip"),
        ("state/0/3/1_0a1b-2c.zip", "state/2/3/42_0a1b-2c.zip"),
        ("state/0/3/1_0a1b-2c.zip.crc", "state/2/3/42_0a1b-2c.zip.crc"),
        ("state/0/3/1.delta", "state/2/3/42.snapshot"),
        ("state/0/3/SSTs/000011-x.sst", "state/2/3/SSTs/000011-x.sst"),
        ("state/0/0/logs/000004-x.log", "state/2/0/logs/000004-x.log"),
    ],
)
def test_a_first_version_becomes_the_version_of_the_checkpoint(name: str, there: str) -> None:
    assert regrown_name(name, 2, 42) == there


@pytest.mark.parametrize("name", ["state/0/3/2.zip", "state/0/0/_metadata/schema", "offsets/1"])
def test_nothing_else_becomes_one(name: str) -> None:
    with pytest.raises(Malformed):
        regrown_name(name, 2, 42)


def test_a_commit_gets_the_ids_of_one_operator_and_keeps_the_rest() -> None:
    commit = b'v2\n{"nextBatchWatermarkMs":17,"stateUniqueIds":{"0":[["a"],["b"]],"1":[["c"],["d"]]}}'
    found = parse_commit(with_state_ids(commit, {1: [["e"], ["f"]]}))
    assert found.state_ids == {0: [["a"], ["b"]], 1: [["e"], ["f"]]}
    assert (found.version, found.next_watermark_ms) == (2, 17)
    assert with_state_ids(commit, {}) == commit
