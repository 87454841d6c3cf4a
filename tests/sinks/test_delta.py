"""Delta tables: the contract on disk and in S3, and what is this sink's own."""

from __future__ import annotations

import datetime
import json
import shutil
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

from holdfast.decide.chain import NOTHING
from holdfast.epochs import Link, Target
from holdfast.errors import (
    BadURL,
    ChainBroken,
    DamagedArtifact,
    DamagedRecord,
    Fenced,
    MissingRecords,
    SinksAhead,
    SinkUnavailable,
    SinkUnfit,
)
from holdfast.sinks import delta_log
from holdfast.sinks.contract import Sink, WriteMode, what_bars
from holdfast.sinks.delta import Delta
from holdfast.sinks.staged import StagedRows
from holdfast.testing.sinks import SCHEMA, SinkContract, holder, stage, step, words
from servers import S3Server
from sinks.killing import kill_at_each_step, kill_at_random, overtake_at_each_step
from sinks.table_driver import truth
from sinks.table_rows import KINDS, PARTITIONED, below, each_in_a_file, folders, in_places, kinds, put, put_rows


def read_all(url: str, options: Mapping[str, str] | None = None, version: int | None = None) -> list[dict[str, Any]]:
    """The rows as deltalake reads them."""
    stored = {**options, "allow_http": "true"} if options else None
    if not DeltaTable.is_deltatable(url, stored):
        return []
    table = DeltaTable(url, storage_options=stored, version=version)
    rows: list[dict[str, Any]] = pa.table(table.scan().read_all()).to_pylist()
    return rows


class TestDeltaOnDisk(SinkContract):
    modes = ("append", "upsert", "overwrite")
    races = 8

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.url = str(tmp_path / "table")

    def open(self, mode: WriteMode, key: Sequence[str]) -> Sink:
        return Delta(self.url, mode=mode, key=key)

    def read(self) -> Iterable[dict[str, Any]]:
        return read_all(self.url)

    def meddle(self) -> bool:
        write_deltalake(self.url, pa.Table.from_pylist(words(100), schema=SCHEMA), mode="append")
        return True


class TestDeltaInS3(SinkContract):
    modes = ("append", "upsert", "overwrite")
    races = 3

    @pytest.fixture(autouse=True)
    def _place(self, s3_server: S3Server, s3_url: str) -> None:
        self.url, self.options = s3_url, s3_server.options

    def open(self, mode: WriteMode, key: Sequence[str]) -> Sink:
        return Delta(self.url, mode=mode, key=key, options=self.options)

    def read(self) -> Iterable[dict[str, Any]]:
        return read_all(self.url, self.options)


# ---- reading ----


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "table"


def fenced(root: Path, generation: int = 0, mode: WriteMode = "append", **how: Any) -> Delta:
    sink = Delta(str(root), mode=mode, key=["id"] if mode == "upsert" else (), **how)
    sink.fence(holder(generation), NOTHING)
    return sink


def ids(root: Path, version: int | None = None) -> list[int]:
    return sorted(row["id"] for row in read_all(str(root), version=version))


def seen(root: Path) -> list[tuple[int, str]]:
    return sorted((row["id"], row["word"]) for row in read_all(str(root)))


def test_deltalake_pyarrow_and_duckdb_read_the_same(root: Path, tmp_path: Path) -> None:
    sink = fenced(root)
    put(sink, tmp_path, 0, 1, 2)
    put(sink, tmp_path, 1, 3)
    wanted = [(1, "w1"), (2, "w2"), (3, "w3")]
    table = DeltaTable(str(root))
    assert seen(root) == wanted
    assert sorted((row["id"], row["word"]) for row in table.to_pyarrow_table().to_pylist()) == wanted
    assert duckdb.sql(f"SELECT id, word FROM read_parquet({table.file_uris()}) ORDER BY id").fetchall() == wanted
    assert table.count() == 3


def test_every_kind_of_value_comes_back_as_it_was(root: Path, tmp_path: Path) -> None:
    put_rows(fenced(root), step(0), stage(tmp_path, kinds(), KINDS, files=1))
    found = DeltaTable(str(root)).to_pyarrow_table()
    assert sorted(found.to_pylist(), key=str) == sorted(kinds(), key=str)


def test_readers_find_rows_by_what_the_log_says_of_their_files(root: Path, tmp_path: Path) -> None:
    put_rows(fenced(root), step(0), stage(tmp_path, kinds(), KINDS, files=1))
    [action] = pa.table(DeltaTable(str(root)).get_add_actions(flatten=True)).to_pylist()
    assert action["num_records"] == 2
    assert (action["min.whole"], action["max.whole"], action["null_count.whole"]) == (7, 7, 1)
    at = kinds()[0]["at"]
    assert action["min.at"] <= at <= action["max.at"]
    assert action["min.window.start"] <= at <= action["max.window.start"]
    found = DeltaTable(str(root)).to_pyarrow_table(filters=[("at", "=", at)])
    assert found.num_rows == 1


def test_times_without_a_zone_are_taken(root: Path, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us"))])
    rows = [{"id": 1, "at": datetime.datetime(2026, 1, 1, 12)}]
    sink = fenced(root)
    first = put_rows(sink, step(0), stage(tmp_path, rows, schema, files=1))
    put_rows(sink, step(1), stage(tmp_path, rows, schema, files=1))
    sink.roll_back(first)
    assert read_all(str(root)) == rows


def test_a_type_that_delta_does_not_have_is_refused(root: Path) -> None:
    for kind in (pa.uint32(), pa.duration("us"), pa.timestamp("ns"), pa.list_(pa.time64("us"))):
        with pytest.raises(SinkUnfit):
            Delta(str(root)).check(pa.schema([("odd", kind)]))


# ---- files ----


def test_rows_that_were_staged_below_the_root_are_taken_as_they_are(root: Path, tmp_path: Path) -> None:
    sink = fenced(root)
    staged = below(root, stage(tmp_path, words(1, 2)), "hf-0-0-abc123")
    sink.abort(sink.prepare(step(0), staged))
    put_rows(sink, step(0), staged)
    assert ids(root) == [1, 2]
    assert folders(root) == ["hf-0-0-abc123"]


def test_a_crash_between_copy_and_commit_leaves_nothing_visible_and_is_swept(root: Path, tmp_path: Path) -> None:
    dead = fenced(root)
    put(dead, tmp_path, 0, 1)
    dead.prepare(step(1), stage(tmp_path, words(7)))
    below(root, stage(tmp_path, words(8)), "hf-0-1-0dead0")
    hidden = root / "_hf-0-1-aa" / "file"
    hidden.parent.mkdir()
    hidden.touch()
    assert ids(root) == [1]
    taker = fenced(root, 1)
    assert len(folders(root)) == 3
    put(taker, tmp_path, 1, 2, decided=1)
    assert ids(root) == [1, 2]
    assert len(folders(root)) == 2
    assert hidden.exists()


def test_what_was_decided_and_not_yet_committed_is_not_swept(root: Path, tmp_path: Path) -> None:
    dead = fenced(root)
    staged = [below(root, stage(tmp_path, words(epoch)), f"hf-0-{epoch}-abc") for epoch in range(3)]
    tokens = [dead.prepare(step(epoch), rows) for epoch, rows in enumerate(staged)]
    taker = fenced(root, 1)
    put(taker, tmp_path, 0, 10, decided=1)
    taker.commit(step(1), tokens[1], staged[1])
    put(taker, tmp_path, 2, 12, decided=1)
    assert ids(root) == [1, 10, 12]
    assert [name for name in folders(root) if name.startswith("hf-0-")] == ["hf-0-1-abc"]


def test_files_that_an_older_version_names_are_not_swept(root: Path, tmp_path: Path) -> None:
    sink = fenced(root, mode="overwrite")
    targets = [put(sink, tmp_path, epoch, epoch) for epoch in range(3)]
    taker = fenced(root, 1, mode="overwrite")
    put(taker, tmp_path, 3, 3, decided=1)
    taker.roll_back(targets[0])
    assert ids(root) == [0]


def test_a_copy_that_went_missing_is_made_again_from_the_staged_rows(root: Path, tmp_path: Path) -> None:
    staged = stage(tmp_path, words(1))
    token = fenced(root).prepare(step(0), staged)
    taker = fenced(root, 1)
    taker.abort(token)
    taker.commit(step(0), token, staged)
    assert ids(root) == [1]


def test_a_failed_prepare_leaves_nothing(root: Path, tmp_path: Path) -> None:
    sink = fenced(root, mode="upsert")
    put(sink, tmp_path, 0, 1)
    before = folders(root)
    staged = stage(tmp_path, words(1, 2, 3))
    (Path(staged.place.url) / staged.staged.files[1].name).write_bytes(b"cut off")
    with pytest.raises(DamagedArtifact):
        sink.prepare(step(1), staged)
    assert folders(root) == before


# ---- partitions ----


def test_a_table_is_partitioned_also_where_there_is_no_value(root: Path, tmp_path: Path) -> None:
    rows = in_places("a b/c%é", "x", None, "x", None)
    sink = fenced(root, partition_by=["place", "day", "hot"])
    put_rows(sink, step(0), stage(tmp_path, rows, PARTITIONED))
    table = DeltaTable(str(root))
    assert table.metadata().partition_columns == ["place", "day", "hot"]
    assert sorted(table.to_pyarrow_table().to_pylist(), key=str) == sorted(rows, key=str)
    assert sorted(read_all(str(root)), key=str) == sorted(rows, key=str)
    nowhere = table.to_pyarrow_table(filters=[("place", "=", "x")])
    assert sorted(nowhere["id"].to_pylist()) == [1, 3]
    assert len(table.partitions()) == 3


def test_staged_files_with_one_value_each_become_the_table_s_as_they_are(root: Path) -> None:
    rows = in_places("a", None, "b")
    sink = fenced(root, partition_by=["place"])
    staged = each_in_a_file(root / "hf-0-0-abc", rows, PARTITIONED)
    put_rows(sink, step(0), staged)
    assert sorted(read_all(str(root)), key=str) == sorted(rows, key=str)
    assert folders(root) == ["hf-0-0-abc"]


def test_an_empty_text_is_no_partition_and_is_told(root: Path, tmp_path: Path) -> None:
    sink = fenced(root, partition_by=["place"])
    with pytest.raises(SinkUnfit, match="empty text"):
        sink.prepare(step(0), stage(tmp_path, in_places("", "a"), PARTITIONED))
    assert folders(root) == []


def test_another_partitioning_than_the_table_s_is_refused(root: Path, tmp_path: Path) -> None:
    put_rows(fenced(root, partition_by=["place"]), step(0), stage(tmp_path, in_places("a"), PARTITIONED))
    with pytest.raises(SinkUnfit, match="partitioned by place"):
        Delta(str(root), partition_by=["day"]).check(PARTITIONED)
    with pytest.raises(SinkUnfit, match="do not have"):
        Delta(str(root), partition_by=["nowhere"]).check(PARTITIONED)
    Delta(str(root)).check(PARTITIONED)


def test_rows_are_replaced_across_partitions(root: Path, tmp_path: Path) -> None:
    sink = fenced(root, mode="upsert", partition_by=["place"])
    put_rows(sink, step(0), stage(tmp_path, in_places("a b", None, "c%"), PARTITIONED))
    # In folders whose names the log has in another spelling than the store.
    theirs = [{**row, "id": 10 + row["id"]} for row in in_places("a b", None, "c%", "é:*")]
    write_deltalake(str(root), pa.Table.from_pylist(theirs, schema=PARTITIONED), mode="append")
    moved = [{**row, "place": "moved", "hot": True} for row in (*in_places("", "", "")[1:], *theirs[:2], theirs[3])]
    put_rows(sink, step(1), stage(tmp_path, moved, PARTITIONED))
    found = sorted((row["id"], row["place"], row["hot"]) for row in read_all(str(root)))
    assert found == [
        (0, "a b", None),
        (1, "moved", True),
        (2, "moved", True),
        (10, "moved", True),
        (11, "moved", True),
        (12, "c%", None),
        (13, "moved", True),
    ]


# ---- upserts ----


def test_only_files_that_hold_a_key_are_written_anew(root: Path, tmp_path: Path) -> None:
    sink = fenced(root, mode="upsert")
    for epoch in range(3):
        put(sink, tmp_path, epoch, *range(10 * epoch, 10 * epoch + 10))
    before = set(DeltaTable(str(root)).file_uris())
    put(sink, tmp_path, 3, 15, word="x")
    after = set(DeltaTable(str(root)).file_uris())
    assert len(before - after) == 1
    assert len(seen(root)) == 30
    assert (15, "x15") in seen(root)


def test_a_window_can_be_the_key(root: Path, tmp_path: Path) -> None:
    window = pa.struct([("start", pa.timestamp("us", tz="UTC")), ("end", pa.timestamp("us", tz="UTC"))])
    schema = pa.schema([("window", window), ("sku", pa.string()), ("tags", pa.list_(pa.string())), ("n", pa.int64())])

    def row(minute: int, sku: str, count: int) -> dict[str, Any]:
        start = datetime.datetime(2026, 1, 1, 0, minute, 0, 999, tzinfo=datetime.UTC)
        return {"window": {"start": start, "end": start}, "sku": sku, "tags": ["t"], "n": count}

    sink = Delta(str(root), mode="upsert", key=["window", "sku"])
    sink.fence(holder(0), NOTHING)
    put_rows(sink, step(0), stage(tmp_path, [row(m, s, 1) for m in range(3) for s in "ab"], schema))
    put_rows(sink, step(1), stage(tmp_path, [row(1, "a", 2), row(3, "a", 2)], schema))
    found = sorted((row["window"]["start"].minute, row["sku"], row["n"]) for row in read_all(str(root)))
    assert found == [(0, "a", 1), (0, "b", 1), (1, "a", 2), (1, "b", 1), (2, "a", 1), (2, "b", 1), (3, "a", 2)]
    # Others write into the log that a file ends a little before its last row.
    DeltaTable(str(root)).optimize.compact()
    put_rows(sink, step(2), stage(tmp_path, [row(3, "a", 3)], schema))
    assert sorted(row["n"] for row in read_all(str(root))) == [1, 1, 1, 1, 1, 2, 3]


def test_what_others_do_between_prepare_and_commit_is_taken_into_account(root: Path, tmp_path: Path) -> None:
    sink = fenced(root, mode="upsert")
    put(sink, tmp_path, 0, 1, 2, 3, 4)
    for epoch, act, made in ((1, "compact", 2), (2, "append", 1)):
        staged = stage(tmp_path, words(1, 4, 10, word=f"{epoch}-"))
        token = sink.prepare(step(epoch), staged)
        if act == "compact":
            DeltaTable(str(root)).optimize.compact()
        else:
            write_deltalake(str(root), pa.Table.from_pylist(words(10, word="theirs"), schema=SCHEMA), mode="append")
        sink.commit(step(epoch), token, staged)
        # The rows, and what was kept of others; what was written anew in vain is gone.
        assert len([name for name in folders(root) if name.startswith(f"hf-0-{epoch}-")]) == made
        assert seen(root) == [(1, f"{epoch}-1"), (2, "w2"), (3, "w3"), (4, f"{epoch}-4"), (10, f"{epoch}-10")]
    fenced(root, 1, mode="upsert")


def test_a_key_of_fractions_or_lists_is_refused(root: Path) -> None:
    schema = pa.schema([("real", pa.float64()), ("list", pa.list_(pa.int64()))])
    for column in schema.names:
        with pytest.raises(SinkUnfit, match="tells no rows apart"):
            Delta(str(root), mode="upsert", key=[column]).check(schema)


# ---- fencing ----


def test_of_two_handles_that_try_at_once_one_lands(root: Path, tmp_path: Path) -> None:
    for epoch in range(8):
        handles = [fenced(root), fenced(root)]
        staged = stage(tmp_path, words(epoch))
        tokens = [sink.prepare(step(epoch), staged) for sink in handles]
        gate = threading.Barrier(2)

        def go(sink: Sink, token: Any, epoch: int = epoch, rows: StagedRows = staged, gate: Any = gate) -> Any:
            gate.wait()
            return sink.commit(step(epoch), token, rows)

        with ThreadPoolExecutor(2) as pool:
            first, second = pool.map(go, handles, tokens)
        assert first == second
    assert ids(root) == [*range(8)]


def test_a_stale_handle_does_not_land_whatever_it_has_loaded(root: Path, tmp_path: Path) -> None:
    zombie = fenced(root)
    put(zombie, tmp_path, 0, 1)
    staged = stage(tmp_path, words(7))
    token = zombie.prepare(step(1), staged)
    stale = DeltaTable(str(root))
    fenced(root, 1)
    with pytest.raises(CommitFailedError):
        stale.create_write_transaction(
            [],
            mode="append",
            schema=stale.schema(),
            commit_properties=CommitProperties(max_commit_retries=0, app_transactions=[Transaction("holdfast", 1)]),
        )
    with pytest.raises(Fenced):
        zombie.commit(step(1), token, staged)
    with pytest.raises(Fenced):
        zombie.prepare(step(1), staged)
    assert ids(root) == [1]


@pytest.mark.parametrize("verb", ["commit", "roll back", "fence"])
def test_a_take_over_between_the_look_and_the_commit_lets_nothing_of_the_old_one_in(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    zombie = fenced(root)
    first = put(zombie, tmp_path, 0, 1)
    put(zombie, tmp_path, 1, 2)
    staged = stage(tmp_path, words(9))
    token = zombie.prepare(step(2), staged)
    for name in ("create_write_transaction", "restore"):
        original = getattr(DeltaTable, name)

        def late(table: DeltaTable, *given: Any, original: Any = original, **named: Any) -> Any:
            monkeypatch.undo()
            put(fenced(root, 1), tmp_path, 2, 100, decided=1)
            return original(table, *given, **named)

        monkeypatch.setattr(DeltaTable, name, late)
    verbs: dict[str, Callable[[], Any]] = {
        "commit": lambda: zombie.commit(step(2), token, staged),
        "roll back": lambda: zombie.roll_back(first),
        "fence": lambda: zombie.fence(holder(0), NOTHING),
    }
    with pytest.raises(Fenced):
        verbs[verb]()
    assert ids(root) == [1, 2, 100]


def test_two_who_make_the_table_at_once_are_one_after_the_other(root: Path) -> None:
    gate = threading.Barrier(2)

    def go(generation: int) -> bool:
        sink = Delta(str(root))
        gate.wait()
        try:
            sink.fence(holder(generation), NOTHING)
        except Fenced:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(go, (0, 1)))[1]
    marker = Delta(str(root)).look()
    assert marker is not None
    assert marker.holder == holder(1)


@pytest.mark.parametrize("epoch", [0, 1])
def test_a_table_that_was_made_anew_is_not_gone_on_with(root: Path, tmp_path: Path, epoch: int) -> None:
    sink = fenced(root)
    sink.fence(holder(0), NOTHING)
    assert sink.why_not_back(Target(Link(9, "at 9"), 0))  # having read all of the log
    for before in range(epoch):
        put(sink, tmp_path, before, 1)
    staged = stage(tmp_path, words(2))
    token = sink.prepare(step(epoch), staged)
    shutil.rmtree(root)
    for number in range(6):
        write_deltalake(str(root), pa.Table.from_pylist(words(number), schema=SCHEMA), mode="append")
    with pytest.raises(ChainBroken):
        sink.commit(step(epoch), token, staged)
    assert ids(root) == [*range(6)]


def test_files_without_a_table_are_not_a_new_one(root: Path, tmp_path: Path) -> None:
    put(fenced(root), tmp_path, 0, 1)
    shutil.rmtree(root / "_delta_log")
    with pytest.raises(MissingRecords, match="its log is gone"):
        fenced(root, 1)


def test_a_table_of_others_is_taken_on(root: Path, tmp_path: Path) -> None:
    write_deltalake(str(root), pa.Table.from_pylist(words(100), schema=SCHEMA))
    sink = Delta(str(root))
    assert sink.look() is None
    sink.fence(holder(0), Link(4, "at 4"))
    first = put(sink, tmp_path, 5, 1)
    put(sink, tmp_path, 6, 2)
    sink.roll_back(first)
    assert ids(root) == [1, 100]
    sink.roll_back(Target(Link(4, "at 4"), 0))
    assert ids(root) == [100]


def test_a_marker_outlives_checkpoints_of_the_log_and_maintenance(root: Path, tmp_path: Path) -> None:
    sink = fenced(root)
    for epoch in range(3):
        put(sink, tmp_path, epoch, epoch)
    table = DeltaTable(str(root))
    table.create_checkpoint()
    for _ in range(20):
        write_deltalake(str(root), pa.Table.from_pylist(words(100), schema=SCHEMA), mode="append")
    table.update_incremental()
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    marker = Delta(str(root)).look()
    assert marker is not None
    assert marker.at == step(2).after
    put(sink, tmp_path, 3, 3)
    assert len(ids(root)) == 24


def test_a_marker_that_the_log_has_lost_is_told(root: Path, tmp_path: Path) -> None:
    put(fenced(root), tmp_path, 0, 1)
    write_deltalake(str(root), pa.Table.from_pylist(words(100), schema=SCHEMA), mode="append")
    DeltaTable(str(root)).create_checkpoint()
    for version in range(2):
        (root / f"_delta_log/{version:020}.json").unlink()
    with pytest.raises(DamagedRecord, match="cleaned up"):
        Delta(str(root)).look()


def test_a_table_that_somebody_else_took_back_is_where_it_was_then(root: Path, tmp_path: Path) -> None:
    sink = fenced(root)
    for epoch in range(4):
        put(sink, tmp_path, epoch, epoch)
    then = DeltaTable(str(root)).version() - 2
    DeltaTable(str(root)).restore(then)
    marker = Delta(str(root)).look()
    assert marker is not None
    assert marker.at == step(1).after
    with pytest.raises(ChainBroken):
        put(sink, tmp_path, 4, 4)
    put(sink, tmp_path, 2, 2)
    assert ids(root) == [0, 1, 2]


# ---- going back ----


def test_it_jumps_to_a_timeline_that_was_left(root: Path, tmp_path: Path) -> None:
    sink = fenced(root)
    first = put(sink, tmp_path, 0, 1)
    left = put(sink, tmp_path, 1, 2)
    sink.roll_back(first)
    put(sink, tmp_path, 1, 3, offsets="other")
    assert sink.why_not_back(left) is None
    sink.roll_back(left)
    assert ids(root) == [1, 2]


def test_compaction_does_not_bar_the_way_back(root: Path, tmp_path: Path) -> None:
    sink = fenced(root)
    targets = [put(sink, tmp_path, epoch, epoch) for epoch in range(3)]
    DeltaTable(str(root)).optimize.compact()
    assert len(DeltaTable(str(root)).file_uris()) == 1
    put(sink, tmp_path, 3, 3)
    assert what_bars(sink, targets[1]) is None
    sink.roll_back(targets[1])
    assert ids(root) == [0, 1]


def test_rows_of_others_in_between_are_told(root: Path, tmp_path: Path) -> None:
    sink = fenced(root)
    targets = [put(sink, tmp_path, epoch, epoch) for epoch in range(2)]
    write_deltalake(str(root), pa.Table.from_pylist(words(100), schema=SCHEMA), mode="append")
    put(sink, tmp_path, 2, 2)
    assert sink.foreign_since(targets[0]) == sink.foreign_since(targets[1]) == ["WRITE in version 3"]
    assert "others have changed it since" in (what_bars(sink, targets[0]) or "")
    assert what_bars(sink, targets[0], discard_foreign=True) is None
    sink.roll_back(targets[0], discard_foreign=True)
    assert ids(root) == [0]


def test_rows_that_others_bring_between_the_look_and_the_roll_back_are_not_lost(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = fenced(root)
    targets = [put(sink, tmp_path, epoch, epoch) for epoch in range(2)]
    restore = sink._log.restore

    def overtaken(*args: Any) -> object:
        monkeypatch.undo()
        write_deltalake(str(root), pa.Table.from_pylist(words(100), schema=SCHEMA), mode="append")
        return restore(*args)

    monkeypatch.setattr(sink._log, "restore", overtaken)
    with pytest.raises(SinksAhead, match="WRITE in version 3"):
        sink.roll_back(targets[0])
    assert ids(root) == [0, 1, 100]


def test_settings_of_the_table_are_no_rows(root: Path, tmp_path: Path) -> None:
    sink = fenced(root)
    targets = [put(sink, tmp_path, epoch, epoch) for epoch in range(2)]
    DeltaTable(str(root)).alter.set_table_properties({"delta.logRetentionDuration": "interval 90 days"})
    assert what_bars(sink, targets[0]) is None


def test_it_says_for_how_long_the_table_keeps_what_a_savepoint_needs(root: Path, tmp_path: Path) -> None:
    sink = fenced(root)
    put(sink, tmp_path, 0, 0)
    [caution] = sink.cautions()
    assert "interval 1 week (delta.deletedFileRetentionDuration)" in caution
    DeltaTable(str(root)).alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 90 days"})
    [caution] = sink.cautions()
    assert "interval 90 days (delta.deletedFileRetentionDuration)" in caution
    assert "interval 30 days (delta.logRetentionDuration)" in caution


@pytest.mark.parametrize("before", [0, 30])
def test_versions_keep_their_numbers_when_others_commit_after_the_look(root: Path, tmp_path: Path, before: int) -> None:
    """The library numbers what it finds from the handle's version down, however many came since."""
    sink = fenced(root)
    target = put(sink, tmp_path, 0, 0)
    targets = [target, *(put(sink, tmp_path, epoch, epoch) for epoch in range(1, before + 1))]
    log = delta_log.DeltaLog(sink.root)
    standing = log.load()
    assert standing is not None
    log.forget()
    put(sink, tmp_path, before + 1, before + 1)
    put(sink, tmp_path, before + 2, before + 2)
    for wanted in (targets[-1], target):
        found, _ = log.find(standing, Target(wanted.at, wanted.decided))
        assert found is not None
        assert found.version == wanted.position["version"]


def test_a_version_whose_files_were_vacuumed_is_told(root: Path, tmp_path: Path) -> None:
    sink = fenced(root, mode="overwrite")
    targets = [put(sink, tmp_path, epoch, epoch) for epoch in range(3)]
    DeltaTable(str(root)).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert "vacuumed" in (sink.why_not_back(targets[0]) or "")
    with pytest.raises(SinkUnfit, match="vacuumed"):
        sink.roll_back(targets[0])
    assert ids(root) == [2]


def test_a_version_whose_log_was_cleaned_up_is_told(root: Path, tmp_path: Path) -> None:
    sink = fenced(root)
    targets = [put(sink, tmp_path, epoch, epoch) for epoch in range(3)]
    DeltaTable(str(root)).create_checkpoint()
    (root / f"_delta_log/{1:020}.json").unlink()
    (root / f"_delta_log/{0:020}.json").unlink()
    fresh = Delta(str(root))
    assert "has it no more" in (fresh.why_not_back(targets[0]) or "")
    assert "cleaned up" in (fresh.why_not_back(targets[1]) or "")


# ---- tables that are refused ----


def make_table(root: Path, configuration: dict[str, str] | None = None, **features: Any) -> None:
    """A table as another engine leaves it, by its log."""
    log = root / "_delta_log"
    log.mkdir(parents=True)
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": []} | features
    fields = [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]
    metadata = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": configuration or {},
        "createdTime": 1,
    }
    actions = [{"protocol": protocol}, {"metaData": metadata}]
    (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))


@pytest.mark.parametrize(
    ("configuration", "features", "why"),
    [
        (
            {"delta.enableDeletionVectors": "true"},
            {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]},
            "deletion vectors",
        ),
        ({"delta.constraints.small": "id < 5"}, {"writerFeatures": ["checkConstraints"]}, "constraint"),
    ],
)
def test_a_table_with_rules_of_its_own_is_refused(
    root: Path, configuration: dict[str, str], features: dict[str, Any], why: str
) -> None:
    make_table(root, configuration, **features)
    with pytest.raises(SinkUnfit, match=why):
        Delta(str(root)).check(pa.schema([("id", pa.int64())]))


def test_a_table_whose_columns_are_mapped_is_refused(root: Path) -> None:
    features = {"readerFeatures": ["columnMapping"], "writerFeatures": ["columnMapping"]}
    make_table(root, {}, **features)
    with pytest.raises(SinkUnfit, match="mapped"):
        Delta(str(root)).check(pa.schema([("id", pa.int64())]))


def test_a_column_that_must_have_a_value_gets_one(root: Path, tmp_path: Path) -> None:
    DeltaTable.create(str(root), pa.schema([pa.field("id", pa.int64(), nullable=False), ("word", pa.string())]))
    schema = pa.schema([("id", pa.int64())])
    sink = fenced(root)
    with pytest.raises(SinkUnfit, match="must have a value"):
        sink.prepare(step(0), stage(tmp_path, [{"id": None}, {"id": 1}], schema))
    with pytest.raises(SinkUnfit, match="must have a value"):
        sink.check(pa.schema([("word", pa.string())]))
    put_rows(sink, step(0), stage(tmp_path, [{"id": 1}], schema))
    assert read_all(str(root)) == [{"id": 1, "word": None}]


def test_what_may_only_be_appended_to_says_so(root: Path, tmp_path: Path) -> None:
    DeltaTable.create(str(root), SCHEMA, configuration={"delta.appendOnly": "true"})
    sink = fenced(root)
    first = put(sink, tmp_path, 0, 1)
    put(sink, tmp_path, 1, 2)
    assert "only be appended" in (sink.why_not_back(first) or "")
    assert not sink.keeps_way_back()
    with pytest.raises(SinkUnfit, match="only be appended"):
        Delta(str(root), mode="overwrite").check(SCHEMA)


# ---- elsewhere ----


def test_a_store_that_can_not_be_reached_is_told_without_any_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_log, "PATIENCE", {"retry_timeout": "1s", "max_retries": "1"})
    options = {
        "endpoint": "http://127.0.0.1:1",
        "region": "r",
        "access_key_id": "hidden",
        "secret_access_key": "hidden",
    }
    sink = Delta("s3://bucket/table?session_token=hidden", options=options)
    with pytest.raises(SinkUnavailable) as told:
        sink.fence(holder(0), NOTHING)
    assert "hidden" not in f"{told.value} {sink.target} {sink!r} {sink.root!r}"
    assert "\x1b" not in str(told.value)


def test_a_place_in_memory_is_refused() -> None:
    with pytest.raises(BadURL):
        Delta("memory://table")


# ---- kills ----


def test_nothing_is_lost_or_doubled_by_a_kill_after_each_step(tmp_path: Path, root: Path) -> None:
    spec = {"kind": "delta", "url": str(root), "mode": "upsert"}
    kill_at_each_step(spec, tmp_path / "ledger", epochs=5)
    assert seen(root) == truth(5, "upsert")


def test_nothing_is_lost_or_doubled_by_kills_at_random(tmp_path: Path, root: Path) -> None:
    spec = {"kind": "delta", "url": str(root), "adopt": True}
    kill_at_random(spec, tmp_path / "ledger", seed=11, epochs=25)
    assert seen(root) == truth(25, "append")


def test_one_that_was_paused_and_overtaken_commits_nothing(tmp_path: Path, root: Path) -> None:
    spec = {"kind": "delta", "url": str(root), "adopt": True}
    overtake_at_each_step(spec, tmp_path / "ledger", epochs=6)
    assert seen(root) == truth(6, "append")
