from __future__ import annotations

import time

import pytest

from builders import make_repo, save, start, state
from holdfast.draft import Description, PartitionState
from holdfast.errors import BadValue, BrokenChain
from holdfast.manifest import ConnectorOffset, SinkStatus, decode_head, encode_manifest


def test_a_delta_needs_a_snapshot_before_it() -> None:
    with start(make_repo()) as run:
        draft = run.begin(1)
        with pytest.raises(BrokenChain):
            run.save_delta(draft, "count", 0, b"delta")


def test_a_checkpoint_says_how_long_it_was_in_the_making() -> None:
    with start(make_repo()) as run:
        draft = run.begin(0)
        time.sleep(0.05)
        run.save_snapshot(draft, "count", 0, b"s")
        manifest = run.save_manifest(draft)
    assert manifest.took_ms >= 50
    assert decode_head("key", encode_manifest(manifest)).took_ms == manifest.took_ms


def test_deltas_follow_the_snapshot_of_the_checkpoint_before() -> None:
    with start(make_repo()) as run:
        save(run, 0)
        for epoch in (1, 2, 3):
            draft = run.begin(epoch)
            run.save_delta(draft, "count", 0, state(epoch))
            manifest = run.save_manifest(draft)
        assert [a.is_delta for a in manifest.operators["count"][0]] == [False, True, True, True]
        assert run.load_partition(manifest, "count", 0) == [state(epoch) for epoch in range(4)]
        assert [f for f in manifest.validate() if f.severity == "error"] == []


def test_deltas_can_follow_each_other_within_one_checkpoint() -> None:
    with start(make_repo()) as run:
        draft = run.begin(0)
        run.save_snapshot(draft, "count", 0, b"s")
        run.save_delta(draft, "count", 0, b"1")
        run.save_delta(draft, "count", 0, b"2")
        assert run.load_partition(run.save_manifest(draft), "count", 0) == [b"s", b"1", b"2"]


def test_a_snapshot_begins_the_chain_anew() -> None:
    with start(make_repo()) as run:
        save(run, 0)
        draft = run.begin(1, carry=True)
        run.save_delta(draft, "count", 0, b"delta")
        run.save_snapshot(draft, "count", 0, b"whole")
        assert run.load_partition(run.save_manifest(draft), "count", 0) == [b"whole"]


def test_a_delta_with_the_bytes_of_a_known_artifact_is_still_a_delta() -> None:
    with start(make_repo()) as run:
        save(run, 0, {0: state(0), 1: state(1)})
        draft = run.begin(1)
        run.save_delta(draft, "count", 0, state(1))
        run.save_snapshot(draft, "count", 1, state(0))
        manifest = run.save_manifest(draft)
        assert [a.is_delta for a in manifest.operators["count"][0]] == [False, True]
        assert run.load_partition(manifest, "count", 0) == [state(0), state(1)]
        assert run.load_partition(manifest, "count", 1) == [state(0)]


@pytest.mark.parametrize(("operator", "partition"), [("", 0), ("count", -1)])
def test_a_partition_that_can_not_be_named_is_refused(operator: str, partition: int) -> None:
    with start(make_repo()) as run, pytest.raises(BadValue):
        run.begin(0).save_partition(PartitionState(operator, partition, b""))


def test_driver_states_and_files_travel_with_the_checkpoint() -> None:
    with start(make_repo()) as run:
        draft = run.begin(0)
        draft.save_driver_state("totals", b"driver" * 10)
        draft.save_file("commits/0", b"v1\n{}")
        draft.save_stream("count", 0, (b"chunk" for _ in range(3)))
        manifest = run.save_manifest(draft)
        assert run.load_artifact(manifest.driver_states["totals"]) == b"driver" * 10
        assert run.load_artifact(manifest.files["commits/0"]) == b"v1\n{}"
        assert run.load_partition(manifest, "count", 0) == [b"chunk" * 3]
        carried = run.save_manifest(run.begin(1, carry=True))
        assert (carried.driver_states, carried.files) == (manifest.driver_states, manifest.files)


def test_the_description_stands_in_the_manifest_word_for_word() -> None:
    about = Description(
        source_offsets={"kafka": ConnectorOffset(offsets={"partition-0": "1234"}, epoch=7)},
        table_offsets={"prices": ConnectorOffset(offsets={"version": "42"})},
        source_watermarks={"kafka": 5, "files": 6},
        sinks={"z": SinkStatus(status="committed"), "a": SinkStatus(status="committed")},
        sink_epochs={"z": 7},
        sink_positions={"z": {"version": 3}},
        watermark=5,
        pipeline_hash="h",
        fingerprint={"source": "s"},
        vnode_count=4,
        processed_records=100,
        steps=9,
        engine="spark",
        spark_version="4.1.0",
        metadata={"note": "x"},
    )
    repo = make_repo()
    with start(repo) as run:
        written = save(run, 7, 4, about)
    manifest = repo.pipeline("orders").records.manifest(written.at)
    assert manifest == written
    assert (manifest.source_names, manifest.sink_names) == (["files", "kafka"], ["a", "z"])
    for name in (
        "source_offsets",
        "table_offsets",
        "source_watermarks",
        "sink_epochs",
        "sink_positions",
        "fingerprint",
    ):
        assert getattr(manifest, name) == getattr(about, name)
    for name in ("watermark", "pipeline_hash", "vnode_count", "processed_records", "steps", "engine", "spark_version"):
        assert getattr(manifest, name) == getattr(about, name)
    assert manifest.sink_commit_statuses == about.sinks
    assert manifest.metadata == {"note": "x"}


def test_without_a_count_the_partitions_say_how_many_there_are() -> None:
    with start(make_repo()) as run:
        assert save(run, 0, {0: b"a", 6: b"b"}).vnode_count == 7
        assert run.save_manifest(run.begin(1)).vnode_count == 0
