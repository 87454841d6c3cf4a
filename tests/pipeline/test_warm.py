"""Whether what Spark has logged of an epoch in its directory is what was decided on it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.epochs import EpochDecision, Link, Staged
from holdfast.pipeline.warm import has_cut_otherwise
from holdfast.spark.places import SparkPlace

SETTINGS = {"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {}}


def offsets(entry: int, time: int = 0) -> bytes:
    """What Spark logs of an epoch of a folder of files and a rate source."""
    about = json.dumps({**SETTINGS, "batchTimestampMs": time})
    return "\n".join(["v1", about, json.dumps({"logOffset": entry}), "17"]).encode()


def entry(number: int, *files: str) -> bytes:
    lines = [json.dumps({"path": f"file:///in/{file}", "timestamp": 1, "batchId": number}) for file in files]
    return "\n".join(["v1", *lines]).encode()


DECIDED = EpochDecision(
    token="t",
    generation=1,
    attempt=0,
    before=Link(2, "x"),
    after=Link(3, "y"),
    offsets=offsets(4, time=7),
    sources={"sources/0/4": entry(4, "d", "e")},
    staged=Staged("nowhere", [], ""),
    tokens={},
)


@pytest.mark.parametrize(
    ("logged", "otherwise"),
    [
        ({}, False),
        ({"offsets/3": offsets(4, time=7), "sources/0/4": entry(4, "d", "e")}, False),
        ({"sources/0/4": entry(4, "d", "e")}, False),
        ({"offsets/3": offsets(4, time=6), "sources/0/4": entry(4, "d")}, True),
        ({"sources/0/4": entry(4, "d")}, True),
        ({"offsets/2": b"v1"}, True),
        ({"sources/0/4": entry(4, "d", "e"), "sources/0/5": entry(5, "e")}, True),
        ({"sources/0/4": entry(4, "d", "e"), "sources/0/9.compact": entry(9, "e")}, True),
    ],
    ids=[
        "nothing",
        "the same",
        "files alone",
        "another cut",
        "other files",
        "a torn log",
        "more entries",
        "a joined entry",
    ],
)
def test_a_directory_is_left_if_spark_has_logged_anything_else_in_it(
    tmp_path: Path, logged: dict[str, bytes], otherwise: bool
) -> None:
    before = {"offsets/2": offsets(3), "sources/0/2": entry(2, "b"), "sources/0/3": entry(3, "c"), "sources/1/0": b"17"}
    for name, data in {**before, **logged}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    assert has_cut_otherwise(SparkPlace(str(tmp_path)).directory(), DECIDED) is otherwise
