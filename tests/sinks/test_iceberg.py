"""Iceberg tables: the contract on disk, and what is this sink's own."""

from __future__ import annotations

import datetime
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table, Transaction
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import StringType

from holdfast.decide.chain import NOTHING
from holdfast.epochs import Link, Target
from holdfast.errors import ChainBroken, Fenced, MissingRecords, SinksAhead, SinkUnavailable, SinkUnfit
from holdfast.sinks.contract import Sink, WriteMode, what_bars
from holdfast.sinks.iceberg import Iceberg
from holdfast.sinks.staged import StagedRows
from holdfast.store import Address
from holdfast.testing.sinks import SCHEMA, SinkContract, holder, stage, step, words
from servers import S3Server
from sinks.compaction import compact
from sinks.killing import kill_at_each_step, kill_at_random, overtake_at_each_step
from sinks.table_driver import truth
from sinks.table_rows import KINDS, PARTITIONED, below, each_in_a_file, folders, in_places, kinds, put, put_rows

TABLE = "ns.words"


def catalog_in(folder: Path) -> dict[str, str]:
    """The embedded catalog: a SQLite file, with the tables beside it."""
    uri = f"sqlite:///{folder / 'catalog.db'}"
    return {"name": "test", "type": "sql", "uri": uri, "warehouse": (folder / "warehouse").as_uri()}


def read_all(catalog: dict[str, str]) -> list[dict[str, Any]]:
    """The rows as pyiceberg reads them."""
    loaded = load_catalog(**catalog)
    try:
        rows: list[dict[str, Any]] = loaded.load_table(TABLE).scan().to_arrow().to_pylist()
    except NoSuchTableError:
        return []
    finally:
        loaded.close()
    return rows


class TestIcebergOnDisk(SinkContract):
    modes = ("append", "upsert", "overwrite")
    races = 5

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.catalog = catalog_in(tmp_path)

    def open(self, mode: WriteMode, key: Sequence[str]) -> Sink:
        return Iceberg(self.catalog, TABLE, mode=mode, key=key)

    def read(self) -> Iterable[dict[str, Any]]:
        return read_all(self.catalog)

    def meddle(self) -> bool:
        with closing(load_catalog(**self.catalog)) as catalog:
            catalog.load_table(TABLE).append(theirs(100))
        return True


# ---- reading ----


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    loaded = load_catalog(**catalog_in(tmp_path))
    yield loaded
    loaded.close()


@pytest.fixture
def opened(catalog: Catalog) -> Callable[..., Iceberg]:
    """Fenced handles of the table."""

    def fenced(generation: int = 0, mode: WriteMode = "append", **how: Any) -> Iceberg:
        key = how.pop("key", ["id"] if mode == "upsert" else ())
        sink = Iceberg(catalog, TABLE, mode=mode, key=key, **how)
        sink.fence(holder(generation), NOTHING)
        return sink

    return fenced


def rows_in(catalog: Catalog) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = catalog.load_table(TABLE).scan().to_arrow().to_pylist()
    return sorted(rows, key=str)


def ids(catalog: Catalog) -> list[int]:
    return sorted(row["id"] for row in rows_in(catalog))


def seen(catalog: Catalog) -> list[tuple[int, str]]:
    return sorted((row["id"], row["word"]) for row in rows_in(catalog))


def place_of(sink: Iceberg) -> Path:
    assert sink.root is not None
    return Path(sink.root.url.removeprefix("file://"))


def theirs(*numbers: int, word: str = "theirs") -> pa.Table:
    return pa.Table.from_pylist(words(*numbers, word=word), schema=SCHEMA)


def test_pyiceberg_and_duckdb_read_the_same(opened: Callable[..., Iceberg], catalog: Catalog, tmp_path: Path) -> None:
    sink = opened()
    put(sink, tmp_path, 0, 1, 2)
    put(sink, tmp_path, 1, 3)
    wanted = [(1, "w1"), (2, "w2"), (3, "w3")]
    assert seen(catalog) == wanted
    paths = [task.file.file_path.removeprefix("file://") for task in catalog.load_table(TABLE).scan().plan_files()]
    assert duckdb.sql(f"SELECT id, word FROM read_parquet({paths}) ORDER BY id").fetchall() == wanted


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_every_kind_of_value_comes_back_as_it_was(
    opened: Callable[..., Iceberg], catalog: Catalog, tmp_path: Path, mode: WriteMode
) -> None:
    sink = opened(mode=mode, key=["whole"] if mode == "upsert" else ())
    first, second = kinds()[0], {**kinds()[0], "whole": 8}
    put_rows(sink, step(0), stage(tmp_path, [first, second], KINDS, files=1))
    third = {**dict.fromkeys(first), "whole": 8 if mode == "upsert" else 9}
    put_rows(sink, step(1), stage(tmp_path, [third], KINDS, files=1))
    wanted = [first, third] if mode == "upsert" else [first, second, third]
    assert rows_in(catalog) == sorted(wanted, key=str)


def test_times_without_a_zone_are_taken_and_those_in_another_than_utc_are_not(
    opened: Callable[..., Iceberg], catalog: Catalog, tmp_path: Path
) -> None:
    at = datetime.datetime(2026, 1, 1, 12)
    rows = [{"at": at, "window": {"start": at}}]
    sink = opened()
    for epoch, zone in enumerate((None, None, "Europe/Berlin")):
        schema = pa.schema([("at", pa.timestamp("us")), ("window", pa.struct([("start", pa.timestamp("us", zone))]))])
        if zone:
            with pytest.raises(SinkUnfit):
                put_rows(sink, step(epoch), stage(tmp_path, rows, schema, files=1))
        else:
            put_rows(sink, step(epoch), stage(tmp_path, rows, schema, files=1))
    assert rows_in(catalog) == rows * 2
    other = Iceberg(catalog, "ns.other")
    other.fence(holder(0), NOTHING)
    with pytest.raises(SinkUnfit, match="another zone"):
        other.prepare(step(0), stage(tmp_path, rows, schema, files=1))


def test_a_type_that_iceberg_does_not_have_is_refused(catalog: Catalog) -> None:
    for kind in (pa.uint32(), pa.duration("us"), pa.timestamp("ns")):
        with pytest.raises(SinkUnfit):
            Iceberg(catalog, TABLE).check(pa.schema([("odd", kind)]))


# ---- files ----


def test_rows_that_were_staged_below_the_root_are_taken_as_they_are(
    opened: Callable[..., Iceberg], catalog: Catalog, tmp_path: Path
) -> None:
    sink = opened()
    root = place_of(sink)
    staged = below(root, stage(tmp_path, words(1, 2)), "hf-0-0-abc123")
    sink.abort(sink.prepare(step(0), staged))
    put_rows(sink, step(0), staged)
    assert ids(catalog) == [1, 2]
    assert folders(root) == ["hf-0-0-abc123"]


def test_a_crash_between_copy_and_commit_leaves_nothing_visible_and_is_swept(
    opened: Callable[..., Iceberg], catalog: Catalog, tmp_path: Path
) -> None:
    dead = opened()
    root = place_of(dead)
    put(dead, tmp_path, 0, 1)
    dead.prepare(step(1), stage(tmp_path, words(7)))
    below(root, stage(tmp_path, words(8)), "hf-0-1-0dead0")
    assert ids(catalog) == [1]
    taker = opened(1)
    assert len(folders(root)) == 3
    put(taker, tmp_path, 1, 2, decided=1)
    assert ids(catalog) == [1, 2]
    assert len(folders(root)) == 2


def test_what_was_decided_and_not_yet_committed_is_not_swept(
    opened: Callable[..., Iceberg], catalog: Catalog, tmp_path: Path
) -> None:
    dead = opened()
    root = place_of(dead)
    staged = [below(root, stage(tmp_path, words(epoch)), f"hf-0-{epoch}-abc") for epoch in range(3)]
    tokens = [dead.prepare(step(epoch), rows) for epoch, rows in enumerate(staged)]
    taker = opened(1)
    put(taker, tmp_path, 0, 10, decided=1)
    taker.commit(step(1), tokens[1], staged[1])
    put(taker, tmp_path, 2, 12, decided=1)
    assert ids(catalog) == [1, 10, 12]
    assert [name for name in folders(root) if name.startswith("hf-0-")] == ["hf-0-1-abc"]


def test_files_of_snapshots_that_were_expired_are_not_swept_while_the_table_has_them(
    opened: Callable[..., Iceberg], catalog: Catalog, tmp_path: Path
) -> None:
    put(opened(0), tmp_path, 0, 0)
    first = catalog.load_table(TABLE).current_snapshot()
    assert first is not None
    catalog.load_table(TABLE).manage_snapshots().create_tag(first.snapshot_id, "held").commit()
    for generation in (1, 2):
        put(opened(generation), tmp_path, generation, generation, decided=generation)
    table = catalog.load_table(TABLE)
    current = table.current_snapshot()
    assert current is not None
    gone = [s.snapshot_id for s in table.snapshots() if s.snapshot_id not in (first.snapshot_id, current.snapshot_id)]
    table.maintenance.expire_snapshots().by_ids(gone).commit()
    put(opened(3), tmp_path, 3, 3, decided=3)
    assert ids(catalog) == [0, 1, 2, 3]


# ---- partitions ----


def test_a_table_is_partitioned_also_where_there_is_no_value(
    opened: Callable[..., Iceberg], catalog: Catalog, tmp_path: Path
) -> None:
    rows = in_places("a b/c%é", "x", None, "x", None, "")
    sink = opened(partition_by=["place", "day", "hot"])
    put_rows(sink, step(0), stage(tmp_path, rows, PARTITIONED))
    put_rows(sink, step(1), stage(tmp_path, [], PARTITIONED))
    assert rows_in(catalog) == sorted(rows, key=str)
    table = catalog.load_table(TABLE)
    assert sorted(table.scan(row_filter="place = 'x'").to_arrow()["id"].to_pylist()) == [1, 3]
    assert sorted(table.scan(row_filter="place is null").to_arrow()["id"].to_pylist()) == [2, 4]
    assert len(table.inspect.partitions()) == 4


def test_a_table_is_partitioned_by_the_day_of_a_time(
    opened: Callable[..., Iceberg], catalog: Catalog, tmp_path: Path
) -> None:
    schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
    start = datetime.datetime(2026, 1, 1, 22, tzinfo=datetime.UTC)
    rows: list[dict[str, Any]] = [{"id": n, "ts": start + datetime.timedelta(hours=n)} for n in range(6)]
    rows.append({"id": 9, "ts": None})
    sink = opened(partition_by=["day(ts)"])
    put_rows(sink, step(0), stage(tmp_path, rows, schema))
    table = catalog.load_table(TABLE)
    assert rows_in(catalog) == sorted(rows, key=str)
    assert len(list(table.scan().plan_files())) == 3
    # Each file within a day: they are taken as they are.
    root = place_of(sink)
    staged = each_in_a_file(root / "hf-0-1-abc", rows, schema)
    put_rows(sink, step(1), staged)
    assert len(list(catalog.load_table(TABLE).scan().plan_files())) == 3 + 7
    late = catalog.load_table(TABLE).scan(row_filter="ts >= '2026-01-02T00:00:00+00:00'").to_arrow()
    assert sorted(late["id"].to_pylist()) == [2, 2, 3, 3, 4, 4, 5, 5]


def test_what_rows_can_not_be_split_by_is_refused(catalog: Catalog) -> None:
    catalog.create_namespace("ns")
    table = catalog.create_table(TABLE, PARTITIONED)
    with table.update_spec() as spec:
        spec.add_field("id", BucketTransform(4), "bucket")
    with pytest.raises(SinkUnfit, match=r"bucket\[4\] of id"):
        Iceberg(catalog, TABLE).check(PARTITIONED)
    with pytest.raises(SinkUnfit, match="day id"):
        Iceberg(catalog, TABLE, partition_by=["day(id)"]).check(PARTITIONED)
    with pytest.raises(SinkUnfit, match="do not have"):
        Iceberg(catalog, TABLE, partition_by=["nowhere"]).check(PARTITIONED)


# ---- upserts ----


def test_only_files_that_hold_a_key_are_written_anew(
    opened: Callable[..., Iceberg], catalog: Catalog, tmp_path: Path
) -> None:
    sink = opened(mode="upsert")
    for epoch in range(3):
        put(sink, tmp_path, epoch, *range(10 * epoch, 10 * epoch + 10))

    def paths() -> set[str]:
        return {task.file.file_path for task in catalog.load_table(TABLE).scan().plan_files()}

    before = paths()
    put(sink, tmp_path, 3, 15, word="x")
    assert len(before - paths()) == 1
    assert len(seen(catalog)) == 30
    assert (15, "x15") in seen(catalog)


def test_a_window_can_be_the_key(opened: Callable[..., Iceberg], catalog: Catalog, tmp_path: Path) -> None:
    window = pa.struct([("start", pa.timestamp("us", tz="UTC")), ("end", pa.timestamp("us", tz="UTC"))])
    schema = pa.schema([("window", window), ("sku", pa.string()), ("n", pa.int64())])

    def row(minute: int, sku: str, count: int) -> dict[str, Any]:
        start = datetime.datetime(2026, 1, 1, 0, minute, tzinfo=datetime.UTC)
        return {"window": {"start": start, "end": start}, "sku": sku, "n": count}

    sink = opened(mode="upsert", key=["window", "sku"], partition_by=["sku"])
    put_rows(sink, step(0), stage(tmp_path, [row(m, s, 1) for m in range(3) for s in "ab"], schema))
    put_rows(sink, step(1), stage(tmp_path, [row(1, "a", 2), row(3, "a", 2)], schema))
    found = sorted((row["window"]["start"].minute, row["sku"], row["n"]) for row in rows_in(catalog))
    assert found == [(0, "a", 1), (0, "b", 1), (1, "a", 2), (1, "b", 1), (2, "a", 1), (2, "b", 1), (3, "a", 2)]


def test_what_others_do_between_prepare_and_commit_is_taken_into_account(
    opened: Callable[..., Iceberg], catalog: Catalog, tmp_path: Path
) -> None:
    sink = opened(mode="upsert")
    put(sink, tmp_path, 0, 1, 2, 3, 4)
    staged = stage(tmp_path, words(1, 4, 10, word="x"))
    token = sink.prepare(step(1), staged)
    table = catalog.load_table(TABLE)
    table.append(theirs(10, 11))
    table.delete("id = 2")
    sink.commit(step(1), token, staged)
    assert seen(catalog) == [(1, "x1"), (3, "w3"), (4, "x4"), (10, "x10"), (11, "theirs11")]


def test_rows_of_columns_that_were_renamed_are_kept_as_they_are_called_now(
    opened: Callable[..., Iceberg], catalog: Catalog, tmp_path: Path
) -> None:
    sink = opened(mode="upsert")
    put(sink, tmp_path, 0, 1, 2, 3)
    with catalog.load_table(TABLE).update_schema() as columns:
        columns.rename_column("word", "text")
        columns.add_column("more", StringType())
    schema = pa.schema([("id", pa.int64()), ("text", pa.string()), ("more", pa.string())])
    put_rows(sink, step(1), stage(tmp_path, [{"id": 1, "text": "t", "more": "m"}], schema))
    found = sorted((row["id"], row["text"], row["more"]) for row in rows_in(catalog))
    assert found == [(1, "t", "m"), (2, "w2", None), (3, "w3", None)]


# ---- fencing ----


def test_of_two_handles_that_try_at_once_one_lands(catalog: Catalog, tmp_path: Path) -> None:
    for epoch in range(5):
        handles = [Iceberg(catalog_in(tmp_path), TABLE) for _ in range(2)]
        for sink in handles:
            sink.fence(holder(0), NOTHING)
        staged = stage(tmp_path, words(epoch))
        tokens = [sink.prepare(step(epoch), staged) for sink in handles]
        gate = threading.Barrier(2)

        def go(sink: Sink, token: Any, epoch: int = epoch, rows: StagedRows = staged, gate: Any = gate) -> Any:
            gate.wait()
            return sink.commit(step(epoch), token, rows)

        with ThreadPoolExecutor(2) as pool:
            first, second = pool.map(go, handles, tokens)
        assert first == second
        for sink in handles:
            sink.close()
    assert ids(catalog) == [*range(5)]


@pytest.mark.parametrize("verb", ["commit", "roll back", "fence"])
def test_a_take_over_between_the_look_and_the_commit_lets_nothing_of_the_old_one_in(
    opened: Callable[..., Iceberg], catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    zombie = opened(0)
    first = put(zombie, tmp_path, 0, 1)
    put(zombie, tmp_path, 1, 2)
    staged = stage(tmp_path, words(9))
    token = zombie.prepare(step(2), staged)
    original = Transaction.commit_transaction

    def late(transaction: Transaction) -> Table:
        monkeypatch.undo()
        put(opened(1), tmp_path, 2, 100, decided=1)
        return original(transaction)

    monkeypatch.setattr(Transaction, "commit_transaction", late)
    verbs: dict[str, Callable[[], Any]] = {
        "commit": lambda: zombie.commit(step(2), token, staged),
        "roll back": lambda: zombie.roll_back(first),
        "fence": lambda: zombie.fence(holder(0), NOTHING),
    }
    with pytest.raises(Fenced):
        verbs[verb]()
    assert ids(catalog) == [1, 2, 100]


def test_the_retries_of_others_are_left_as_they_are(
    opened: Callable[..., Iceberg], catalog: Catalog, tmp_path: Path
) -> None:
    sink = opened(properties={"commit.retry.num-retries": "7"})
    put(sink, tmp_path, 0, 1)
    assert catalog.load_table(TABLE).properties["commit.retry.num-retries"] == "7"


def test_a_stale_handle_is_told_before_it_copies(opened: Callable[..., Iceberg], tmp_path: Path) -> None:
    zombie = opened(0)
    opened(1)
    with pytest.raises(Fenced):
        zombie.prepare(step(0), stage(tmp_path, words(1)))


def test_a_table_that_was_dropped_is_not_gone_on_with(
    opened: Callable[..., Iceberg], catalog: Catalog, tmp_path: Path
) -> None:
    sink = opened()
    put(sink, tmp_path, 0, 1)
    staged = stage(tmp_path, words(2))
    token = sink.prepare(step(1), staged)
    catalog.drop_table(TABLE)
    with pytest.raises(ChainBroken):
        sink.commit(step(1), token, staged)
    with pytest.raises(MissingRecords, match="its log is gone"):
        opened(1)


def test_a_table_of_others_is_taken_on(catalog: Catalog, tmp_path: Path) -> None:
    catalog.create_namespace("ns")
    catalog.create_table(TABLE, SCHEMA).append(theirs(100))
    sink = Iceberg(catalog, TABLE)
    assert sink.look() is None
    sink.fence(holder(0), Link(4, "at 4"))
    first = put(sink, tmp_path, 5, 1)
    put(sink, tmp_path, 6, 2)
    sink.roll_back(first)
    assert ids(catalog) == [1, 100]
    sink.roll_back(Target(Link(4, "at 4"), 0))
    assert ids(catalog) == [100]


def test_a_marker_outlives_the_snapshots_that_had_it(
    opened: Callable[..., Iceberg], catalog: Catalog, tmp_path: Path
) -> None:
    sink = opened()
    put(sink, tmp_path, 0, 1)
    table = catalog.load_table(TABLE)
    table.append(theirs(100))
    current = table.current_snapshot()
    assert current is not None
    gone = [snapshot.snapshot_id for snapshot in table.snapshots() if snapshot.snapshot_id != current.snapshot_id]
    table.maintenance.expire_snapshots().by_ids(gone).commit()
    marker = sink.look()
    assert marker is not None
    assert marker.at == step(0).after
    put(sink, tmp_path, 1, 2)
    assert ids(catalog) == [1, 2, 100]


def test_a_table_that_somebody_else_took_back_is_where_it_was_then(
    opened: Callable[..., Iceberg], catalog: Catalog, tmp_path: Path
) -> None:
    sink = opened()
    targets = [put(sink, tmp_path, epoch, epoch) for epoch in range(3)]
    snapshot = int(targets[1].position["snapshot"])
    catalog.load_table(TABLE).manage_snapshots().rollback_to_snapshot(snapshot).commit()
    marker = sink.look()
    assert marker is not None
    assert marker.at == step(1).after
    with pytest.raises(ChainBroken):
        put(sink, tmp_path, 3, 3)
    put(sink, tmp_path, 2, 20)
    assert ids(catalog) == [0, 1, 20]


def test_a_catalog_that_another_holds_is_told_and_can_be_tried_again(
    opened: Callable[..., Iceberg], catalog: Catalog, tmp_path: Path
) -> None:
    impatient = load_catalog(**catalog_in(tmp_path) | {"uri": f"sqlite:///{tmp_path / 'catalog.db'}?timeout=0.1"})
    opened()
    sink = Iceberg(impatient, TABLE)
    with closing(sqlite3.connect(tmp_path / "catalog.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(SinkUnavailable, match="locked"):
            sink.fence(holder(1), NOTHING)
        other.execute("ROLLBACK")
    sink.fence(holder(1), NOTHING)
    impatient.close()


def test_no_secret_is_shown(tmp_path: Path) -> None:
    catalog = catalog_in(tmp_path) | {"uri": "sqlite:////nowhere/at/all.db", "s3.secret-access-key": "hidden"}
    with pytest.raises(SinkUnavailable) as told:
        Iceberg(catalog | {"init_catalog_tables": "false"}, TABLE).look()
    assert "hidden" not in str(told.value)
    sink = Iceberg(catalog_in(tmp_path) | {"s3.secret-access-key": "hidden"}, TABLE)
    assert "hidden" not in f"{sink.target} {sink!r}"
    sink.close()


# ---- going back ----


def test_it_jumps_to_a_timeline_that_was_left(opened: Callable[..., Iceberg], catalog: Catalog, tmp_path: Path) -> None:
    sink = opened()
    first = put(sink, tmp_path, 0, 1)
    left = put(sink, tmp_path, 1, 2)
    sink.roll_back(first)
    put(sink, tmp_path, 1, 3, offsets="other")
    assert sink.why_not_back(left) is None
    sink.roll_back(left)
    assert ids(catalog) == [1, 2]


def test_compaction_does_not_bar_the_way_back(opened: Callable[..., Iceberg], catalog: Catalog, tmp_path: Path) -> None:
    sink = opened()
    targets = [put(sink, tmp_path, epoch, epoch) for epoch in range(3)]
    compact(catalog.load_table(TABLE))
    assert len(list(catalog.load_table(TABLE).scan().plan_files())) == 1
    put(sink, tmp_path, 3, 3)
    assert ids(catalog) == [0, 1, 2, 3]
    assert what_bars(sink, targets[1]) is None
    sink.roll_back(targets[1])
    assert ids(catalog) == [0, 1]


def test_rows_of_others_in_between_are_told(opened: Callable[..., Iceberg], catalog: Catalog, tmp_path: Path) -> None:
    sink = opened()
    targets = [put(sink, tmp_path, epoch, epoch) for epoch in range(2)]
    catalog.load_table(TABLE).append(theirs(100))
    put(sink, tmp_path, 2, 2)
    assert sink.why_not_back(targets[0]) is None
    [told] = sink.foreign_since(targets[0])
    assert "append in snapshot" in told
    assert told in (what_bars(sink, targets[0]) or "")
    assert what_bars(sink, targets[0], discard_foreign=True) is None
    sink.roll_back(targets[0], discard_foreign=True)
    assert ids(catalog) == [0]


def test_rows_that_others_bring_between_the_look_and_the_roll_back_are_not_lost(
    opened: Callable[..., Iceberg], catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = opened()
    targets = [put(sink, tmp_path, epoch, epoch) for epoch in range(2)]
    mark = sink._log.mark

    def overtaken(*args: Any) -> bool:
        monkeypatch.undo()
        catalog.load_table(TABLE).append(theirs(100))
        return mark(*args)

    monkeypatch.setattr(sink._log, "mark", overtaken)
    with pytest.raises(SinksAhead, match="append in snapshot"):
        sink.roll_back(targets[0])
    assert ids(catalog) == [0, 1, 100]


def test_a_snapshot_that_was_expired_is_told_and_one_with_a_tag_is_kept(
    opened: Callable[..., Iceberg], catalog: Catalog, tmp_path: Path
) -> None:
    sink = opened()
    targets = [put(sink, tmp_path, epoch, epoch) for epoch in range(4)]
    sink.hold({"before-upgrade": targets[1]})
    catalog.load_table(TABLE).maintenance.expire_snapshots().older_than(
        datetime.datetime.now() + datetime.timedelta(days=1)
    ).commit()
    assert "expired" in (sink.why_not_back(targets[0]) or "")
    with pytest.raises(SinkUnfit, match="expired"):
        sink.roll_back(targets[0])
    assert sink.why_not_back(targets[1]) is None
    sink.roll_back(targets[1])
    assert ids(catalog) == [0, 1]


def tags(catalog: Catalog) -> set[str]:
    return set(catalog.load_table(TABLE).metadata.refs) - {"main"}


def test_each_savepoint_has_a_tag_and_those_of_others_are_left_alone(
    opened: Callable[..., Iceberg], catalog: Catalog, tmp_path: Path
) -> None:
    sink = opened()
    targets = [put(sink, tmp_path, epoch, epoch) for epoch in range(3)]
    table = catalog.load_table(TABLE)
    table.manage_snapshots().create_tag(table.metadata.current_snapshot_id, "release-7").commit()
    sink.hold({"a": targets[0], "b": targets[1]})
    assert tags(catalog) == {"holdfast-a", "holdfast-b", "release-7"}
    known = catalog.load_table(TABLE).metadata_location
    sink.hold({"a": targets[0], "b": targets[1]})
    assert catalog.load_table(TABLE).metadata_location == known
    sink.hold({"b": targets[2]})
    assert tags(catalog) == {"holdfast-b", "release-7"}
    put(sink, tmp_path, 3, 3)
    sink.roll_back(targets[2])
    assert ids(catalog) == [0, 1, 2]
    sink.hold({"never": Target(Link(9, "at 9"), 0)})
    assert tags(catalog) == {"release-7"}


def test_a_tag_that_is_made_between_look_and_commit_costs_no_epoch(
    opened: Callable[..., Iceberg], catalog: Catalog, tmp_path: Path
) -> None:
    sink = opened()
    first = put(sink, tmp_path, 0, 0)
    with ThreadPoolExecutor(1) as pool:
        holding = pool.submit(lambda: [sink.hold({f"s{n}": first}) for n in range(10)])
        for epoch in range(1, 8):
            put(sink, tmp_path, epoch, epoch)
        holding.result()
    assert ids(catalog) == [*range(8)]
    assert tags(catalog) == {"holdfast-s9"}


# ---- elsewhere ----


def test_it_works_in_s3(s3_server: S3Server, s3_url: str, tmp_path: Path) -> None:
    properties = catalog_in(tmp_path) | {
        "warehouse": s3_url,
        "s3.endpoint": s3_server.endpoint,
        "s3.region": "us-east-1",
        "s3.access-key-id": s3_server.access_key_id,
        "s3.secret-access-key": s3_server.secret_access_key,
    }
    sink = Iceberg(properties, TABLE, mode="upsert", key=["id"])
    sink.fence(holder(0), NOTHING)
    assert sink.root is not None
    place = Address(f"{sink.root.url}/hf-0-0-abc", sink.root.options)
    staged = stage(tmp_path, words(1, 2))
    for file in staged.staged.files:
        place.store().create(file.name, staged.place.store().get(file.name))
    first = put_rows(sink, step(0), StagedRows(staged.staged, place))
    put(sink, tmp_path, 1, 2, 3, word="x")
    assert seen(sink._catalog) == [(1, "w1"), (2, "x2"), (3, "x3")]
    sink.roll_back(first)
    assert seen(sink._catalog) == [(1, "w1"), (2, "w2")]
    sink.close()


# ---- kills ----


def test_nothing_is_lost_or_doubled_by_a_kill_after_each_step(catalog: Catalog, tmp_path: Path) -> None:
    spec = {"kind": "iceberg", "catalog": catalog_in(tmp_path), "table": TABLE, "mode": "upsert"}
    kill_at_each_step(spec, tmp_path / "ledger", epochs=5)
    assert seen(catalog) == truth(5, "upsert")


def test_nothing_is_lost_or_doubled_by_kills_at_random(catalog: Catalog, tmp_path: Path) -> None:
    spec = {"kind": "iceberg", "catalog": catalog_in(tmp_path), "table": TABLE, "adopt": True}
    kill_at_random(spec, tmp_path / "ledger", seed=13, epochs=20)
    assert seen(catalog) == truth(20, "append")


def test_one_that_was_paused_and_overtaken_commits_nothing(catalog: Catalog, tmp_path: Path) -> None:
    spec = {"kind": "iceberg", "catalog": catalog_in(tmp_path), "table": TABLE, "adopt": True}
    overtake_at_each_step(spec, tmp_path / "ledger", epochs=6)
    assert seen(catalog) == truth(6, "append")
