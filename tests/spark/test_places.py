"""A place is spelled as Spark takes it, and opened as Holdfast does."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import BadURL
from holdfast.spark.places import SparkPlace


@pytest.mark.parametrize(
    ("url", "before", "spelled"),
    [
        ("/data/ck", "", "file:/data/ck"),
        ("file:///data/a b", "s3a://x/y", "file:/data/a b"),
        ("s3a://bucket/ck/", "", "s3a://bucket/ck"),
        ("s3://bucket/ck", "", "s3a://bucket/ck"),
        ("s3://bucket/ck", "file:/old", "s3a://bucket/ck"),
        ("s3a://bucket/ck", "s3://old/ck", "s3://bucket/ck"),
        ("S3://bucket/ck?region=x", "s3n://old/ck", "s3n://bucket/ck"),
        ("gs://bucket/ck", "s3a://old/ck", "gs://bucket/ck"),
        ("abfss://c@a.dfs.core.windows.net/ck", "", "abfss://c@a.dfs.core.windows.net/ck"),
    ],
)
def test_a_place_is_spelled_as_the_query_knows_it(url: str, before: str, spelled: str) -> None:
    assert SparkPlace(url).spelled(before) == spelled


def test_a_relative_path_is_spelled_from_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert SparkPlace("ck").spelled() == f"file:{tmp_path}/ck"


@pytest.mark.parametrize(
    ("url", "beside"),
    [
        ("/data/ck/", "/data/ck-sink-log"),
        ("/data/a?b", "/data/a?b-sink-log"),
        ("s3a://bucket/ck?region=x", "s3a://bucket/ck-sink-log?region=x"),
        ("s3a://bucket/ck/", "s3a://bucket/ck-sink-log"),
    ],
)
def test_what_lies_beside_a_place_is_reached_in_the_same_way(url: str, beside: str) -> None:
    given = {"region": "y"} if url.startswith("s3a") else {}
    place = SparkPlace(url, given).beside("-sink-log")
    assert (place.url, place.options) == (beside, given)


@pytest.mark.parametrize(("url", "why"), [("memory://x", "memory"), ("az://c/x", "abfss://"), ("hdfs://h/x", "HDFS")])
def test_what_spark_does_not_reach_is_refused(url: str, why: str) -> None:
    with pytest.raises(BadURL, match=why):
        SparkPlace(url)
