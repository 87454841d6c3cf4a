"""What a Spark checkpoint holds, in the words of those who ask."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import holdfast
from holdfast.handles import StoredPipeline
from holdfast.report import compare, describe
from holdfast.spark.explain import Position, explain
from holdfast.spark.lay import lay_down
from holdfast.store.local_directory import LocalDirectory
from spark.directories import MadeDirectory
from spark.samples import bring_back, capture, samples


@pytest.fixture
def pipeline(tmp_path: Path) -> StoredPipeline:
    return holdfast.open(str(tmp_path / "repository"), create=True).pipeline("orders")


def with_kafka(root: Path, batches: int = 1) -> MadeDirectory:
    """A directory whose source is Kafka: two topics, of which one has partitions beyond 9."""
    made = MadeDirectory(root)
    for batch in range(batches):
        made.batch()
        offset = {"orders": {str(p): 100 * p + batch for p in (0, 2, 10)}, "payments": {"0": 7 + 3 * batch}}
        path = root / f"offsets/{batch}"
        lines = path.read_text().split("\n")
        made.write(f"offsets/{batch}", "\n".join([*lines[:2], json.dumps(offset)]))
    return made


def test_operators_are_named_with_stores_snapshots_deltas_and_bytes(pipeline: StoredPipeline) -> None:
    with bring_back(samples()["join"]) as root:
        manifest = capture(pipeline, LocalDirectory(root))
    found = explain(pipeline.records, manifest)
    [operator] = found.operators
    assert (operator.number, operator.name, operator.kind) == (0, "symmetricHashJoin", "stream-stream join")
    stores = {store.store for store in operator.stores}
    assert stores == {
        f"{side}-{what}" for side in ("left", "right") for what in ("keyToNumValues", "keyWithIndexToValue")
    }
    assert operator.partitions == 3
    assert len(operator.stores) == 12
    assert {store.version for store in operator.stores} == {manifest.epoch + 1}
    for store in operator.stores:
        assert store.snapshots == 1
        assert store.deltas == store.version - store.base
        assert store.files == store.snapshots + store.deltas + store.tables
    in_state = [a.size_bytes for name, a in manifest.files.items() if name.startswith("state/")]
    assert (operator.files, operator.bytes) == (len(in_state), sum(in_state))
    assert found.logs[0] + operator.files == len(manifest.files)


def test_how_the_state_is_stored_is_told(pipeline: StoredPipeline, tmp_path: Path) -> None:
    told = {}
    for kind, sample in samples().items():
        with bring_back(sample) as root:
            manifest = capture(pipeline.repository.pipeline(kind), LocalDirectory(root))
        found = explain(pipeline.repository.pipeline(kind).records, manifest)
        told[kind] = (found.provider, found.changelog, found.checkpoint_format, found.codec)
        assert found.query_id == manifest.metadata["query_id"]
        assert found.directory == f"file:{sample.checkpoint}"
        assert found.settings["spark.sql.shuffle.partitions"] == "3"
        assert "query_id" not in found.settings
    assert told == {
        "hdfs": ("HDFS-backed", False, 1, "lz4"),
        "tws": ("RocksDB", True, 2, "lz4"),
        "join": ("RocksDB", True, 1, "lz4"),
    }


def test_checksums_of_sparks_are_counted_as_files_and_not_as_deltas(pipeline: StoredPipeline) -> None:
    with bring_back(samples()["tws"]) as root:
        manifest = capture(pipeline, LocalDirectory(root))
    [operator] = explain(pipeline.records, manifest).operators
    for store in operator.stores:
        assert store.deltas == store.version - store.base
        assert store.files > store.snapshots + store.deltas + store.tables


def test_kafka_is_told_by_topic_and_partition_in_their_order(pipeline: StoredPipeline, tmp_path: Path) -> None:
    with_kafka(tmp_path / "directory")
    manifest = capture(pipeline, LocalDirectory(tmp_path / "directory"))
    [source] = explain(pipeline.records, manifest).sources
    assert (source.name, source.kind) == ("0", "kafka")
    assert source.positions == (
        Position("orders", 0, 0),
        Position("orders", 2, 200),
        Position("orders", 10, 1000),
        Position("payments", 0, 7),
    )


def test_a_source_of_files_has_its_log_offset_and_no_partitions(pipeline: StoredPipeline) -> None:
    with bring_back(samples()["hdfs"]) as root:
        manifest = capture(pipeline, LocalDirectory(root))
    [source] = explain(pipeline.records, manifest).sources
    assert (source.kind, source.positions, list(source.offsets)) == ("files", (), ["logOffset"])


def test_a_checkpoint_of_a_restored_directory_says_where_it_came_from(pipeline: StoredPipeline, tmp_path: Path) -> None:
    made = with_kafka(tmp_path / "directory")
    first = capture(pipeline, LocalDirectory(tmp_path / "directory"))
    assert explain(pipeline.records, first).restored_from is None
    lay_down(pipeline.records, first, str(tmp_path / "restored"))
    again = MadeDirectory(tmp_path / "restored", query_id=made.query_id, next_batch=1)
    again.batch()
    second = capture(pipeline, LocalDirectory(tmp_path / "restored"))
    assert explain(pipeline.records, second).restored_from == "orders@slot:0-0"


def test_a_damaged_description_does_not_hide_the_rest(pipeline: StoredPipeline) -> None:
    with bring_back(samples()["hdfs"]) as root:
        manifest = capture(pipeline, LocalDirectory(root))
    artifact = manifest.files["state/0/_metadata/metadata"]
    assert artifact.path is not None
    stored = Path(pipeline.repository.url.removeprefix("file://")) / pipeline.records.keys.prefix / artifact.path
    data = bytearray(stored.read_bytes())
    data[(artifact.offset or 0) + 3] ^= 1
    stored.write_bytes(data)
    [operator] = explain(pipeline.records, manifest).operators
    assert operator.name == ""
    assert operator.problem is not None
    assert "state/0/_metadata/metadata" in operator.problem
    assert operator.stores


def test_details_of_spark_come_with_the_checkpoint_and_without_the_fingerprint_warning(
    pipeline: StoredPipeline, tmp_path: Path
) -> None:
    with_kafka(tmp_path / "directory")
    capture(pipeline, LocalDirectory(tmp_path / "directory"))
    latest = pipeline.latest()
    assert latest is not None
    details = describe(latest)
    assert details.spark is not None
    assert details.findings == []
    assert len(details.files) == details.artifacts


def test_a_difference_tells_offsets_by_partition_and_in_all_and_the_state_by_operator(
    pipeline: StoredPipeline, tmp_path: Path
) -> None:
    made = with_kafka(tmp_path / "directory")
    capture(pipeline, LocalDirectory(tmp_path / "directory"))
    made.next_batch = 1
    with_kafka(tmp_path / "other", batches=2)
    for name in ("offsets/1", "commits/1", "sources/0/1"):
        made.write(name, (tmp_path / "other" / name).read_bytes())
    for partition in range(made.partitions):
        made.write(f"state/0/{partition}/2.delta", b"rows")
    capture(pipeline, LocalDirectory(tmp_path / "directory"))
    found = compare(pipeline["epoch:0"], pipeline["epoch:1"])
    assert {change.name: change.advanced for change in found.sources["0"]} == {
        "orders:0": 1,
        "orders:2": 1,
        "orders:10": 1,
        "payments:0": 3,
    }
    assert found.totals == {"0": 6}
    logs, operator = found.state
    assert (logs.operator, logs.added, logs.removed) == (None, 3, 1)
    assert (operator.operator, operator.added, operator.bytes_added, operator.removed) == (0, 2, 8, 0)
    assert found.watermark is not None
    assert found.watermark.advanced == 1000
    assert found.settings == []


def test_a_setting_that_changed_is_told(pipeline: StoredPipeline, tmp_path: Path) -> None:
    for partitions, name in ((2, "a"), (4, "b")):
        made = MadeDirectory(tmp_path / name, partitions=partitions)
        made.batch()
        capture(pipeline.repository.pipeline(name), LocalDirectory(tmp_path / name))
    found = compare(*(pipeline.repository.pipeline(name)["epoch:0"] for name in ("a", "b")))
    changed = {change.name: (change.before, change.after) for change in found.settings}
    assert changed["spark.sql.shuffle.partitions"] == ("2", "4")
    assert "directory" in changed
