from __future__ import annotations

import base64
import hashlib
from typing import Any

import msgspec
import pytest

from builders import plain_manifest
from holdfast.layout import Slot
from holdfast.manifest import Artifact, ConnectorOffset, Manifest, Parent, SinkStatus
from holdfast.validation import chain_breaks

PATH = f"data/0000000000-{'a' * 32}/pack-0"


def inline(data: bytes, **more: Any) -> Artifact:
    sha256 = hashlib.sha256(data).hexdigest()
    return Artifact(**{"sha256": sha256, "size_bytes": len(data), "inline": base64.b64encode(data).decode(), **more})


def packed(**more: Any) -> Artifact:
    return Artifact(**{"sha256": "a" * 64, "size_bytes": 10, "path": PATH, "offset": 8, "length": 10, **more})


def after(before: Artifact, data: bytes = b"delta") -> Artifact:
    return inline(data, is_delta=True, after=before.sha256[:16])


def sound() -> Manifest:
    snapshot = inline(b"zero")
    return plain_manifest(
        Slot(1, 3),
        parent=Parent(generation=1, slot=2, checkpoint_id="0193a5b0-0000-7000-8000-000000000009"),
        vnode_count=2,
        operators={"count": {0: [snapshot, after(snapshot)], 1: [packed()]}},
        objects={PATH: 500},
        source_names=["kafka"],
        source_offsets={"kafka": ConnectorOffset(offsets={})},
        sink_names=["table"],
        sink_commit_statuses={"table": SinkStatus(status="pending")},
    )


def found(manifest: Manifest, expected: int | None = None) -> list[tuple[str, str]]:
    return [(finding.severity, finding.where) for finding in manifest.validate(expected)]


def test_a_sound_manifest_has_no_findings() -> None:
    assert sound().validate(expected_vnode_count=2) == []


def only(partition: int, chain: list[Artifact]) -> dict[str, Any]:
    return {"operators": {"count": {0: [inline(b"x")], 1: [packed()], partition: chain}}}


ERRORS: list[tuple[str, dict[str, Any], str]] = [
    ("an id that is no UUID", {"checkpoint_id": "17"}, "checkpoint_id"),
    ("a pipeline id that is no UUID", {"pipeline_id": ""}, "pipeline_id"),
    ("a negative epoch", {"epoch": -1}, "epoch"),
    ("a negative slot", {"slot": -1}, "slot"),
    ("a negative count of records", {"processed_records": -5}, "processed_records"),
    ("an empty identifier", {"identifier": ""}, "identifier"),
    ("a parent of a later generation", {"parent": Parent(generation=2, slot=0, checkpoint_id="x")}, "parent"),
    ("a parent that is itself", {"parent": Parent(generation=1, slot=3, checkpoint_id="x")}, "parent"),
    ("a partition beyond the count", only(2, [inline(b"y")]), "operator count"),
    ("a negative partition", only(-1, [inline(b"y")]), "operator count"),
    ("a chain that begins with a delta", only(1, [after(packed())]), "operator count, partition 1"),
    ("a second snapshot in a chain", only(1, [packed(), packed()]), "operator count, partition 1"),
    ("an empty chain", only(1, []), "operator count, partition 1"),
    ("a digest that is none", only(1, [packed(sha256="A" * 64)]), "operator count, partition 1, 1 of 1"),
    ("a negative size", only(1, [packed(size_bytes=-1)]), "operator count, partition 1, 1 of 1"),
    ("bytes that lie nowhere", only(1, [packed(path=None)]), "operator count, partition 1, 1 of 1"),
    ("a path that is not ours", only(1, [packed(path="../../etc/passwd")]), "operator count, partition 1, 1 of 1"),
    ("a path to a record", only(1, [packed(path="pipeline.json")]), "operator count, partition 1, 1 of 1"),
    ("a path that is not listed", {"objects": {}}, "operator count, partition 1, 1 of 1"),
    ("a length that is not the size", only(1, [packed(length=9)]), "operator count, partition 1, 1 of 1"),
    (
        "a whole object of another size",
        only(1, [packed(offset=None, length=None)]),
        "operator count, partition 1, 1 of 1",
    ),
    ("a stretch past the end", {"objects": {PATH: 17}}, "operator count, partition 1, 1 of 1"),
    ("a negative offset", only(1, [packed(offset=-1)]), "operator count, partition 1, 1 of 1"),
    ("corrupt inline state", {"driver_states": {"d": inline(b"abc", inline="AA=A")}}, "driver state d"),
    ("inline state that is no base64 at all", {"driver_states": {"d": inline(b"abc", inline="é")}}, "driver state d"),
    ("other inline state", {"driver_states": {"d": inline(b"abc", inline="AAAA")}}, "driver state d"),
    ("inline state cut to nothing", {"files": {"f": inline(b"abc", inline="")}}, "file f"),
    ("source names that are not sorted", {"source_names": ["kafka", "files"]}, "source_names"),
    ("offsets of an unknown source", {"source_names": []}, "source_offsets"),
    ("sink names that are not unique", {"sink_names": ["table", "table"]}, "sink_names"),
    ("a status of an unknown sink", {"sink_names": []}, "sink_commit_statuses"),
    ("an epoch of an unknown sink", {"sink_epochs": {"other": 1}}, "sink_epochs"),
    ("a position of an unknown sink", {"sink_positions": {"other": 1}}, "sink_positions"),
    ("a sink without a status", {"sink_commit_statuses": {}}, "sink table"),
]


@pytest.mark.parametrize(("change", "where"), [e[1:] for e in ERRORS], ids=[e[0] for e in ERRORS])
def test_an_error_is_found_where_it_is(change: dict[str, Any], where: str) -> None:
    assert ("error", where) in found(msgspec.structs.replace(sound(), **change))


WARNINGS: list[tuple[str, dict[str, Any], str]] = [
    ("an empty pipeline hash", {"pipeline_hash": ""}, "pipeline_hash"),
    ("a partition without state", {"operators": {"count": {1: [packed()]}}}, "operator count"),
    ("an object in which nothing lies", {"objects": {PATH: 500, PATH[:-1] + "1": 9}}, PATH[:-1] + "1"),
    ("a source without offsets", {"source_names": ["kafka", "lost"]}, "source_offsets"),
    ("a sink that failed", {"sink_commit_statuses": {"table": SinkStatus(status="failed", why="full")}}, "sink table"),
]


@pytest.mark.parametrize(("change", "where"), [w[1:] for w in WARNINGS], ids=[w[0] for w in WARNINGS])
def test_a_warning_is_found_and_is_no_error(change: dict[str, Any], where: str) -> None:
    assert found(msgspec.structs.replace(sound(), **change)) == [("warning", where)]


def test_another_number_of_partitions_than_expected_is_an_error() -> None:
    assert found(sound(), expected=2) == []
    assert found(sound(), expected=3) == [("error", "vnode_count")]
    assert "2 operator partitions where 3" in str(sound().validate(3)[0])


def test_errors_come_before_warnings() -> None:
    manifest = msgspec.structs.replace(sound(), pipeline_hash="", sink_commit_statuses={})
    assert [finding.severity for finding in manifest.validate()] == ["error", "warning"]


def test_many_missing_partitions_make_one_short_warning() -> None:
    [finding] = msgspec.structs.replace(sound(), vnode_count=5000).validate()
    assert finding.severity == "warning"
    assert len(finding.message) < 100


def test_a_chain_is_a_snapshot_and_then_deltas_that_join_up() -> None:
    first = inline(b"snapshot")
    second = after(first, b"1")
    third = after(second, b"2")
    assert chain_breaks([first]) is None
    assert chain_breaks([first, second, third]) is None
    for broken in ([], [second], [second, third], [first, third], [first, third, second], [first, first]):
        assert chain_breaks(broken) is not None


def test_a_directory_of_spark_has_no_pipeline_hash_to_miss() -> None:
    manifest = msgspec.structs.replace(sound(), pipeline_hash="", engine="spark")
    assert [finding for finding in manifest.validate() if finding.where == "pipeline_hash"] == []
