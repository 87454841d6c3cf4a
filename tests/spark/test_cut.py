"""A cut holds exactly what a restart needs; whatever is missing, damaged or not over yet is told apart."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.spark.cut import Broken, Cut, Gone, Unsupported, batches_in, cut_at
from holdfast.store.local_directory import LocalDirectory
from spark.directories import HDFS, ROCKSDB, MadeDirectory

KINDS = {
    "hdfs": {"provider": HDFS},
    "rocksdb": {"provider": ROCKSDB, "changelog": False},
    "changelog": {"provider": ROCKSDB},
    "rocksdb-2": {"provider": ROCKSDB, "changelog": False, "checkpoint_format": 2},
    "changelog-2": {"provider": ROCKSDB, "checkpoint_format": 2},
}


def made(root: Path, kind: str = "hdfs", **more: object) -> MadeDirectory:
    return MadeDirectory(root / "ck", **{**KINDS[kind], **more})  # type: ignore[arg-type]


def cut(directory: MadeDirectory, epoch: int) -> Cut | Gone | Broken | Unsupported:
    here = LocalDirectory(directory.root)
    return cut_at(here, here.look(), epoch)


def whole(directory: MadeDirectory, epoch: int) -> Cut:
    found = cut(directory, epoch)
    assert isinstance(found, Cut), found
    return found


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_cut_is_the_newest_snapshot_and_every_delta_after_it(tmp_path: Path) -> None:
    spark = made(tmp_path, stores=("left", "right"), operators=2)
    for _ in range(6):
        spark.batch()
    spark.snapshot(3)
    files = set(whole(spark, 5).files)
    state = {name for name in files if name.startswith("state/") and "_metadata" not in name}
    folders = [spark.folder(o, p, s) for o in range(2) for p in range(2) for s in ("left", "right")]
    assert state == {f"{f}/{n}" for f in folders for n in ("3.snapshot", "4.delta", "5.delta", "6.delta")}
    logs = {"metadata", "offsets/4", "offsets/5", "commits/5", *(f"sources/0/{n}" for n in range(6))}
    schemas = {f"state/{o}/0/{s}/_metadata/schema" for o in range(2) for s in ("left", "right")}
    assert files - state == logs | schemas | {f"state/{o}/_metadata/metadata" for o in range(2)}


def test_every_version_of_every_store_has_a_cut_and_none_holds_anything_newer(tmp_path: Path, kind: str) -> None:
    spark = made(tmp_path, kind)
    for batch in range(8):
        spark.batch()
        if batch in (2, 5):
            spark.snapshot()
    for epoch in range(8):
        found = whole(spark, epoch)
        versions = [int(name.rpartition("/")[2].split("_")[0].split(".")[0]) for name in found.files if _numbered(name)]
        assert max(versions) == epoch + 1
        assert {f"sources/0/{n}" for n in range(epoch + 1)} == {n for n in found.files if n.startswith("sources/")}
        assert f"offsets/{epoch + 1}" not in found.files


def _numbered(name: str) -> bool:
    return name.startswith("state/") and name.rpartition("/")[2][0].isdigit() and "/SSTs/" not in name


def test_snapshots_name_their_tables_and_those_belong_to_the_cut(tmp_path: Path) -> None:
    spark = made(tmp_path, "changelog")
    for _ in range(3):
        spark.batch()
    spark.snapshot(2)
    tables = {name for name in whole(spark, 2).files if "/SSTs/" in name}
    assert tables == {name for name in spark.names() if "/SSTs/" in name}
    assert len(tables) == 2
    spark.remove(min(tables))
    assert cut(spark, 2) == Gone(2, min(tables), "it is not there")


def test_a_table_of_another_size_than_its_snapshot_says_is_missing(tmp_path: Path) -> None:
    spark = made(tmp_path, "rocksdb")
    spark.batch()
    [table, _] = sorted(name for name in spark.names() if "/SSTs/" in name)
    spark.write(table, b"short")
    found = cut(spark, 0)
    assert isinstance(found, Gone)
    assert (found.name, "5 bytes" in found.why) == (table, True)


def test_the_logs_say_which_of_two_versions_counts_in_format_2(tmp_path: Path) -> None:
    spark = made(tmp_path, "changelog-2")
    for _ in range(4):
        spark.batch()
    for name in [n for n in spark.names() if n.endswith(".changelog")]:
        folder, _, file = name.rpartition("/")
        spark.write(f"{folder}/{file.split('_')[0]}_00000000-dead-dead-dead-000000000000.changelog", b"orphan")
    assert not any("dead" in name for name in whole(spark, 3).files)
    for batch in range(3):
        spark.remove(f"commits/{batch}")
    assert not any("dead" in name for name in whole(spark, 3).files), "the lineage in the changelog says it too"


def test_a_version_that_no_log_names_is_missing_and_never_guessed(tmp_path: Path) -> None:
    spark = made(tmp_path, "changelog-2")
    spark.batch()
    spark.ids.clear()
    spark.batch()
    spark.remove("commits/0")
    found = cut(spark, 1)
    assert isinstance(found, Gone)
    assert "1_*.changelog" in found.name


def test_checksums_of_format_2_come_along(tmp_path: Path) -> None:
    spark = made(tmp_path, "rocksdb-2")
    spark.batch()
    zips = [name for name in spark.names() if name.endswith(".zip")]
    for name in zips:
        spark.write(f"{name}.crc", b"{}")
    assert {f"{name}.crc" for name in zips} <= set(whole(spark, 0).files)


def test_state_without_a_key_is_whole_with_one_partition(tmp_path: Path) -> None:
    spark = made(tmp_path, keyless=True, partitions=3)
    spark.batch()
    assert whole(spark, 0).operators[0].partitions == 1
    keyed = made(tmp_path / "other", partitions=3)
    keyed.batch()
    for partition in (1, 2):
        for file in (keyed.root / f"state/0/{partition}").iterdir():
            file.unlink()
        (keyed.root / f"state/0/{partition}").rmdir()
    assert isinstance(cut(keyed, 0), Gone)


def test_a_log_of_files_begins_at_its_newest_joined_entry(tmp_path: Path) -> None:
    spark = made(tmp_path)
    for _ in range(8):
        spark.batch()
    spark.write("sources/0/4.compact", "v1\n{}")
    spark.write("sources/0/9.compact", "v1\n{}")
    logs = {name for name in whole(spark, 6).files if name.startswith("sources/")}
    assert logs == {"sources/0/4.compact", "sources/0/5", "sources/0/6"}
    spark.remove("sources/0/5")
    assert cut(spark, 6) == Gone(6, "sources/0/5", "it is not there")


def test_all_files_of_a_source_that_keeps_no_such_log_belong_to_the_cut(tmp_path: Path) -> None:
    spark = made(tmp_path)
    spark.batch()
    text = (spark.root / "offsets/0").read_text().rpartition("\n")[0]
    spark.write("offsets/0", f'{text}\n{{"orders":{{"0":5}}}}')
    spark.write("sources/0/deep/er", b"x")
    assert {"sources/0/0", "sources/0/deep/er"} <= set(whole(spark, 0).files)


def test_a_batch_that_went_before_must_be_there_unless_progress_was_asynchronous(tmp_path: Path) -> None:
    spark = made(tmp_path)
    for _ in range(3):
        spark.batch()
    spark.remove("offsets/1")
    assert cut(spark, 2) == Gone(2, "offsets/1", "it is not there")
    stateless = made(tmp_path / "stateless", operators=0)
    for _ in range(4):
        stateless.batch()
    stateless.remove("offsets/2")
    found = whole(stateless, 3)
    assert found.asynchronous
    assert "offsets/1" in found.files


def test_continuous_mode_and_foreign_state_stores_are_refused(tmp_path: Path) -> None:
    spark = made(tmp_path)
    spark.batch()
    spark.write("offsets/0", b'v1\n\n{"0":{"value":1}}')
    assert isinstance(cut(spark, 0), Unsupported)
    other = made(tmp_path / "other", provider="com.example.TheirProvider")
    other.batch()
    found = cut(other, 0)
    assert isinstance(found, Unsupported)
    assert "com.example.TheirProvider" in found.why


def test_named_sources_are_refused_where_the_offset_log_does_not_name_them(tmp_path: Path) -> None:
    spark = made(tmp_path)
    spark.batch()
    log = (spark.root / "offsets" / "0").read_text()
    spark.write(
        "offsets/0",
        log.replace('"conf": {', '"conf": {"spark.sql.streaming.queryEvolution.enableSourceEvolution": "true", '),
    )
    found = cut(spark, 0)
    assert isinstance(found, Unsupported)
    assert "offsetLog.formatVersion" in found.why


@pytest.mark.parametrize("name", ["metadata", "offsets/1", "offsets/0", "commits/1", "state/0/_metadata/metadata"])
def test_a_log_that_can_not_be_read_makes_the_batch_broken(tmp_path: Path, name: str) -> None:
    spark = made(tmp_path)
    spark.batch()
    spark.batch()
    spark.write(name, b"{cut")
    found = cut(spark, 1)
    assert isinstance(found, Broken)
    assert name in found.why[0]


def test_a_snapshot_left_by_a_timeline_that_was_rewound_in_place_is_passed_over(tmp_path: Path) -> None:
    spark = made(tmp_path)
    for _ in range(4):
        spark.batch()
    stale = spark.snapshot(4)
    for name in spark.names():
        os.utime(spark.root / name, ns=(10**18, 10**18))
    spark.next_batch = 2
    for _ in range(3):
        spark.batch()
    assert not any(name.endswith(f"{stale}.snapshot") for name in whole(spark, 4).files)
    spark.snapshot(4)
    assert any(name.endswith(f"{stale}.snapshot") for name in whole(spark, 4).files)


def test_a_copied_directory_whose_times_say_nothing_has_the_same_cut(tmp_path: Path) -> None:
    spark = made(tmp_path)
    for _ in range(4):
        spark.batch()
    spark.snapshot(3)
    before = set(whole(spark, 3).files)
    for position, name in enumerate(sorted(spark.names(), reverse=True)):
        os.utime(spark.root / name, ns=(10**18 + position, 10**18 + position))
    assert set(whole(spark, 3).files) == before


def test_a_long_chain_is_found_with_one_listing(tmp_path: Path) -> None:
    spark = made(tmp_path, partitions=1)
    for _ in range(60):
        spark.batch()
    spark.snapshot(2)
    assert sum(name.endswith(".delta") for name in whole(spark, 59).files) == 58


def test_a_batch_may_be_whole_once_another_has_followed_or_it_is_known_to_be_over(tmp_path: Path) -> None:
    spark = made(tmp_path)
    here = LocalDirectory(spark.root)
    assert batches_in(here.look()).whole() == []
    spark.batch()
    spark.batch()
    assert batches_in(here.look()).whole() == [0]
    assert batches_in(here.look()).whole(known=1) == [1, 0]
    spark.start()
    assert batches_in(here.look()).whole() == [1, 0]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.data())
def test_a_cut_is_whole_or_names_a_file_that_is_truly_missing(tmp_path: Path, data: st.DataObject) -> None:
    """Whatever is removed: either the cut does not need it, or the first that it needs and lacks is named."""
    kind = data.draw(st.sampled_from(sorted(KINDS)))
    spark = made(tmp_path / os.urandom(6).hex(), kind, stores=data.draw(st.sampled_from([("default",), ("a", "b")])))
    batches = data.draw(st.integers(1, 6))
    for _ in range(batches):
        spark.batch()
        if data.draw(st.booleans()):
            spark.snapshot(data.draw(st.integers(1, spark.next_batch)))
    needed = set(whole(spark, batches - 1).files)
    every = sorted(spark.names())
    removed = data.draw(st.sets(st.sampled_from(every), max_size=2))
    for name in removed:
        spark.remove(name)
    found = cut(spark, batches - 1)
    if isinstance(found, Cut):
        lost = {n for n in removed if n in needed}
        assert set(found.files) <= spark.names()
        # Only a snapshot can be made up for, by an older one and the deltas after it.
        assert all(n.endswith((".zip", ".snapshot")) or "/SSTs/" in n for n in lost)
    else:
        assert isinstance(found, Gone)
        assert found.name in removed or "*" in found.name or not (spark.root / found.name).exists()
        assert removed & {n for n in every if _related(n, found.name)} or removed & needed


def _related(name: str, missing: str) -> bool:
    return name.rpartition("/")[0] == missing.rpartition("/")[0]


def test_the_bytes_that_were_read_to_decide_are_of_the_files_of_the_cut(tmp_path: Path, kind: str) -> None:
    spark = made(tmp_path, kind)
    for _ in range(3):
        spark.batch()
    found = whole(spark, 2)
    assert set(found.read) <= set(found.files)
    for name, (data, stat) in found.read.items():
        assert (spark.root / name).read_bytes() == data
        assert found.files[name] == stat
    assert json.loads(found.read["metadata"][0])["id"] == found.query_id
