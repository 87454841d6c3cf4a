"""Offsets and paths in a cut's text files are changed where they are named, and nothing else is."""

from __future__ import annotations

import json

import pytest

from holdfast.errors import BadValue
from holdfast.spark.edits import (
    OffsetEdit,
    map_log_paths,
    parse_offset_edit,
    paths_in_log,
    rewrite_schema_paths,
    set_offsets,
)
from holdfast.spark.locations import PathMap, read_plain
from holdfast.spark.logs import Malformed, parse_offsets

HEAD = '{"batchWatermarkMs":0,"batchTimestampMs":5,"conf":{"spark.sql.shuffle.partitions":"3"}}'
KAFKA = '{"orders":{"0":10,"3":1042},"clicks":{"0":7}}'
V1 = f'v1\n{HEAD}\n{{"logOffset":4}}\n{KAFKA}'.encode()
V2 = f'v2\n{HEAD}\nfiles:{{"logOffset":4}}\nqueue:{KAFKA}'.encode()


def edits(*texts: str) -> list[OffsetEdit]:
    return [parse_offset_edit(text) for text in texts]


def test_an_edit_is_read_and_written_alike() -> None:
    edit = parse_offset_edit("0:orders:3=1043")
    assert edit == OffsetEdit("0", "orders", "3", 1043)
    assert str(edit) == "0:orders:3=1043"
    assert parse_offset_edit("queue:a.b_c-d:003=0") == OffsetEdit("queue", "a.b_c-d", "3", 0)


@pytest.mark.parametrize(
    "text", ["", "orders:3=1", "0:orders:3", "0:orders:x=1", "0:orders:3=-1", "0::3=1", "0:orders:3=x", "0:o:3=１"]
)
def test_what_is_no_edit_is_refused(text: str) -> None:
    with pytest.raises(BadValue, match="SOURCE:TOPIC:PARTITION=N"):
        parse_offset_edit(text)


@pytest.mark.parametrize(("data", "source"), [(V1, "1"), (V2, "queue")])
def test_offsets_are_set_where_they_are_named_and_the_rest_keeps_its_bytes(data: bytes, source: str) -> None:
    after, said = set_offsets(data, edits(f"{source}:orders:3=1043", f"{source}:clicks:0=5"))
    assert json.loads(parse_offsets(after).sources[source] or "") == {
        "orders": {"0": 10, "3": 1043},
        "clicks": {"0": 5},
    }
    assert after.split(b"\n")[:3] == data.split(b"\n")[:3]
    assert after == data.replace(b'"3":1042', b'"3":1043').replace(b'"clicks":{"0":7}', b'"clicks":{"0":5}')
    assert said == [
        f"source {source}, orders-3: 1042 -> 1043 (skips 1)",
        f"source {source}, clicks-0: 7 -> 5 (reads 2 again)",
    ]


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        ("2:orders:3=1", "there are: 0, 1"),
        ("1:other:3=1", "orders:0, orders:3, clicks:0"),
        ("1:orders:4=1", "no such topic and partition"),
        ("0:orders:3=1", "as one of Kafka has"),
    ],
)
def test_nothing_is_made_up(edit: str, why: str) -> None:
    with pytest.raises(BadValue, match=why):
        set_offsets(V1, edits(edit))


def test_a_source_that_has_read_nothing_yet_has_nothing_to_set() -> None:
    with pytest.raises(BadValue, match="as one of Kafka has"):
        set_offsets(f"v1\n{HEAD}\n-".encode(), edits("0:orders:3=1"))


def test_a_partition_that_is_set_twice_is_a_mistake() -> None:
    with pytest.raises(BadValue, match="twice"):
        set_offsets(V1, edits("1:orders:3=1", "1:orders:03=2"))


LOG = (
    'v1\n{"path":"file:///data/in/a%20b.json","timestamp":1700000000000,"batchId":0}\n'
    '{"path":"file:///data/other/é.json","timestamp":1700000000001,"batchId":0}'
).encode()


def test_paths_in_a_log_are_mapped_and_other_fields_and_lines_stay() -> None:
    after, count = map_log_paths(LOG, PathMap.of({"/data/in": "/new"}))
    assert count == 1
    assert after == LOG.replace(b"/data/in/", b"/new/")
    assert map_log_paths(LOG, PathMap.of({"/else": "/new"})) == (LOG, 0)


def test_an_empty_log_is_left_as_it_is() -> None:
    assert map_log_paths(b"v1", PathMap.of({"/data": "/new"})) == (b"v1", 0)
    assert paths_in_log(b"v1") == []


def test_the_files_that_a_log_names_are_told() -> None:
    assert paths_in_log(LOG) == [read_plain("/data/in/a b.json"), read_plain("/data/other/é.json")]


@pytest.mark.parametrize("line", ["{", "[]", '"x"', '{"path":3}', '{"size":1}', '{"path":"relative"}'])
def test_a_line_that_names_no_file_is_malformed(line: str) -> None:
    with pytest.raises(Malformed):
        paths_in_log(f"v1\n{line}".encode())


def metadata(*paths: str) -> bytes:
    stores = [{"storeName": "default", "numPartitions": 3, "stateSchemaFilePaths": list(paths)}]
    return ("v2\n" + json.dumps({"operatorInfo": {}, "stateStoreInfo": stores}, separators=(",", ":"))).encode()


def test_schemas_are_found_below_the_new_root() -> None:
    before = metadata(
        "file:/old/state/x/state/0/_stateSchema/default/0_a", "s3a://b/ck/state/0/_stateSchema/default/4_b"
    )
    assert rewrite_schema_paths(before, "s3a://new/a b") == metadata(
        "s3a://new/a b/state/0/_stateSchema/default/0_a", "s3a://new/a b/state/0/_stateSchema/default/4_b"
    )


def test_metadata_without_schemas_of_its_own_stays_as_it_is() -> None:
    data = b'v1\n{"operatorInfo":{},"stateStoreInfo":[{"storeName":"default"}]}'
    assert rewrite_schema_paths(data, "/new") == data


def test_a_path_of_no_schema_is_malformed() -> None:
    with pytest.raises(Malformed):
        rewrite_schema_paths(metadata("file:/elsewhere/0_a"), "/new")
