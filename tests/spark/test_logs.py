"""The text logs of Spark's directory are read as Spark writes them, and anything else is told apart."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.spark.logs import (
    Malformed,
    deduplicated_columns,
    parse_commit,
    parse_offsets,
    parse_operator,
    parse_query_id,
    parse_source_offset,
    single_partition,
    write_query_id,
)

HEAD = '{"batchWatermarkMs":7,"batchTimestampMs":9,"conf":{"spark.sql.shuffle.partitions":"3"}}'


def test_offsets_give_the_watermark_the_settings_and_every_source_in_order() -> None:
    entry = parse_offsets(f'v1\n{HEAD}\n{{"logOffset":3}}\n-\n42'.encode())
    assert (entry.watermark_ms, entry.timestamp_ms, entry.partitions, entry.pinned) == (7, 9, 3, True)
    assert dict(entry.sources) == {"0": '{"logOffset":3}', "1": None, "2": "42"}


def test_the_second_version_of_offsets_names_its_sources() -> None:
    entry = parse_offsets(f'v2\n{HEAD}\norders:{{"t":{{"0":1}}}}\nclicks:-'.encode())
    assert dict(entry.sources) == {"orders": '{"t":{"0":1}}', "clicks": None}


def test_offsets_of_continuous_mode_pin_nothing() -> None:
    assert not parse_offsets(b'v1\n\n{"0":{"value":1}}').pinned


def test_a_codec_that_is_not_pinned_is_lz4() -> None:
    assert parse_offsets(f"v1\n{HEAD}\n1".encode()).codec == "lz4"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"v1",
        b"v9\n{}",
        b"x1\n{}",
        b"v1\n{not json",
        b"v1\n[]",
        b"\xff\xfe",
        b'v2\n{"conf":{}}\nno-colon',
        b'v1\n{"conf":[1]}',
        b'v1\n{"batchWatermarkMs":"x"}',
    ],
)
def test_what_is_no_offset_log_is_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        parse_offsets(data)


def test_offsets_without_a_partition_count_are_malformed_when_it_is_asked_for() -> None:
    with pytest.raises(Malformed, match="partitions"):
        _ = parse_offsets(b'v1\n{"conf":{}}\n1').partitions


def test_commits_give_the_next_watermark_and_the_ids_of_state_files() -> None:
    assert parse_commit(b'v1\n{"nextBatchWatermarkMs":5}').next_watermark_ms == 5
    entry = parse_commit(b'v2\n{"nextBatchWatermarkMs":5,"stateUniqueIds":{"0":[["a","b"],["c","d"]]}}')
    assert entry.state_ids == {0: [["a", "b"], ["c", "d"]]}
    assert parse_commit(b'v3\n{"nextBatchWatermarkMs":5,"sinkMetadataMap":{}}').version == 3
    ids = [b'{"x":[]}', b'{"0":[1]}', b"[1]"]
    for bad in (b"v1", b"v4\n{}", b'v1\n{"nextBatchWatermarkMs":[]}', *(b'v2\n{"stateUniqueIds":%b}' % i for i in ids)):
        with pytest.raises(Malformed):
            parse_commit(bad)


def test_operator_metadata_names_its_stores_and_schemas() -> None:
    store = {"storeName": "default", "numPartitions": 3, "stateSchemaFilePaths": ["file:/x/state/0/_stateSchema/d/0_a"]}
    about = {"operatorInfo": {"operatorId": 4, "operatorName": "join"}, "stateStoreInfo": [store]}
    found = parse_operator(f"v2\n{json.dumps(about)}".encode())
    assert (found.version, found.operator, found.name, found.stores) == (2, 4, "join", ("default",))
    assert found.schema_paths == ("file:/x/state/0/_stateSchema/d/0_a",)
    with pytest.raises(Malformed):
        parse_operator(b'v1\n{"operatorInfo":{}}')


def test_the_query_id_is_read_and_written() -> None:
    assert parse_query_id(write_query_id("abc")) == "abc"
    for bad in (b"", b"{}", b'{"id":""}', b'{"holdfast":"not finished"}', b'{"id":3}', b"[1]"):
        with pytest.raises(Malformed):
            parse_query_id(bad)


@pytest.mark.parametrize(
    ("fields", "alone"),
    [
        ([], True),
        ([{"type": "void"}], True),
        ([{"type": "long"}], False),
        ([{"type": "void"}, {"type": "long"}], False),
    ],
)
def test_state_without_a_key_lives_in_one_partition(fields: list[dict[str, str]], alone: bool) -> None:
    schema = b"\0\x02v2\0\0\0\x01\0\x1d" + json.dumps({"type": "struct", "fields": fields}).encode() + b"\0{more}"
    assert single_partition(schema) is alone


def schema_of(keys: list[str], values: list[str]) -> bytes:
    """A state schema as Spark writes it: two structs, with lengths before them."""
    structs = (
        {"type": "struct", "fields": [{"name": name, "type": "string"} for name in names]} for names in (keys, values)
    )
    return b"\0\x02v2" + b"".join(b"\0\0\0\x01\x01Y" + json.dumps(struct).encode() for struct in structs)


def test_the_columns_of_drop_duplicates_are_told_by_what_stands_beside_them() -> None:
    assert deduplicated_columns(schema_of(["b", "a"], ["__dummy__"])) == ("b", "a")
    assert deduplicated_columns(schema_of(["größe", "a"], ["expiresAtMicros"])) == ("größe", "a")
    assert deduplicated_columns(schema_of(["b", "a"], ["count"])) == ()
    assert deduplicated_columns(schema_of(["b", "a"], ["__dummy__"])[:-20]) == ()
    assert deduplicated_columns(b"") == ()


@pytest.mark.parametrize("schema", [b"", b"\0\x02v2", b"{cut", b"{}", b'{"fields":3}'])
def test_what_is_no_schema_is_malformed(schema: bytes) -> None:
    with pytest.raises(Malformed):
        single_partition(schema)


def test_offsets_of_sources_become_flat_maps() -> None:
    assert parse_source_offset('{"orders":{"0":12,"1":7}}', 3).offsets == {"orders:0": "12", "orders:1": "7"}
    assert parse_source_offset('{"logOffset":4}', 3).offsets == {"logOffset": "4"}
    assert parse_source_offset("42", 3).offsets == {"offset": "42"}
    assert parse_source_offset("opaque!", 3).offsets == {"offset": "opaque!"}
    assert parse_source_offset("{}", 3).offsets == {"offset": "{}"}
    assert parse_source_offset(None, 3).offsets == {}


@given(st.binary(max_size=60))
def test_no_bytes_whatever_break_a_parser(data: bytes) -> None:
    for parse in (parse_offsets, parse_commit, parse_operator, parse_query_id, single_partition, deduplicated_columns):
        for prefix in (b"", b"v1\n", b"v2\n", b'v1\n{"conf":'):
            try:
                parse(prefix + data)
            except Malformed:
                continue
