"""Delta tables with what others leave in them, and with values at the edge."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from holdfast.decide.chain import NOTHING
from holdfast.errors import SinkUnfit
from holdfast.sinks.contract import WriteMode
from holdfast.sinks.delta import Delta
from holdfast.testing.sinks import SCHEMA, holder, stage, step, words
from sinks.table_rows import folders, put, put_rows, staged_table

IN_PLACES = pa.schema([("id", pa.int64()), ("place", pa.string())])
UNTIL = pa.schema([("id", pa.int64()), ("until", pa.timestamp("us", tz="UTC"))])
LAST = datetime.datetime.max.replace(tzinfo=datetime.UTC)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "table"


def fenced(root: Path, mode: WriteMode = "append", **how: Any) -> Delta:
    key = how.pop("key", ["id"] if mode == "upsert" else ())
    sink = Delta(str(root), mode=mode, key=key, **how)
    sink.fence(holder(0), NOTHING)
    return sink


def ids(root: Path) -> list[int]:
    return sorted(pa.table(DeltaTable(str(root)).scan().read_all())["id"].to_pylist())


# ---- the column of a table without columns ----


@pytest.mark.parametrize("partition_by", [(), ("id",)], ids=["whole", "partitioned"])
def test_the_name_that_a_table_without_columns_has_is_refused(
    root: Path, tmp_path: Path, partition_by: tuple[str, ...]
) -> None:
    schema = pa.schema([("id", pa.int64()), ("_holdfast", pa.string())])
    sink = fenced(root, partition_by=partition_by)
    with pytest.raises(SinkUnfit, match="can't be called _holdfast"):
        sink.check(schema)
    with pytest.raises(SinkUnfit, match="can't be called _holdfast"):
        sink.prepare(step(0), stage(tmp_path, [{"id": 1, "_holdfast": "x"}], schema))


def test_a_table_of_others_that_has_such_a_column_loses_nothing(root: Path, tmp_path: Path) -> None:
    write_deltalake(str(root), pa.table({"id": [1], "_holdfast": ["x"]}))
    sink = fenced(root)
    for epoch in range(2):
        put_rows(sink, step(epoch), stage(tmp_path, [{"id": 2 + epoch}], pa.schema([("id", pa.int64())])))
    assert ids(root) == [1, 2, 3]


# ---- times ----


@pytest.mark.parametrize("until", [LAST, LAST.replace(microsecond=999_000), LAST.replace(microsecond=998_001)])
def test_a_time_at_the_end_of_all_times_is_taken(root: Path, tmp_path: Path, until: datetime.datetime) -> None:
    sink = fenced(root, "upsert", key=["until"])
    put_rows(sink, step(0), stage(tmp_path, [{"id": 1, "until": until}], UNTIL, files=1))
    put_rows(sink, step(1), stage(tmp_path, [{"id": 2, "until": until}], UNTIL, files=1))
    assert DeltaTable(str(root)).to_pyarrow_table().to_pylist() == [{"id": 2, "until": until}]


def test_rows_that_hold_until_the_end_of_all_times_are_kept(root: Path, tmp_path: Path) -> None:
    rows = [{"id": number, "until": LAST} for number in (1, 2)]
    write_deltalake(str(root), pa.Table.from_pylist(rows, schema=UNTIL))
    sink = fenced(root, "upsert")
    closed = {"id": 1, "until": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)}
    put_rows(sink, step(0), stage(tmp_path, [closed], UNTIL, files=1))
    found = DeltaTable(str(root)).to_pyarrow_table().to_pylist()
    assert sorted(found, key=lambda row: row["id"]) == [closed, rows[1]]
    assert DeltaTable(str(root)).to_pyarrow_table(filters=[("until", "=", LAST)])["id"].to_pylist() == [2]


def far_away(*numbers: int) -> pa.Table:
    """Rows with a time and a day that Spark has and Python has not."""
    at = pa.array([400_000_000_000_000_000] * len(numbers), pa.timestamp("us", tz="UTC"))
    day = pa.array([-800_000] * len(numbers), pa.int32()).cast(pa.date32())
    return pa.table({"id": pa.array(numbers, pa.int64()), "at": at, "day": day})


@pytest.mark.parametrize("key", ["id", "day", "at"])
def test_years_that_python_does_not_have_are_taken_also_from_others(root: Path, tmp_path: Path, key: str) -> None:
    write_deltalake(str(root), far_away(1))
    sink = fenced(root, "upsert", key=[key])
    put_rows(sink, step(0), staged_table(tmp_path / "first", far_away(2)))
    put_rows(sink, step(1), staged_table(tmp_path / "second", far_away(2)))
    assert ids(root) == ([1, 2] if key == "id" else [2])
    with pytest.raises(SinkUnfit, match="two rows of an epoch"):
        sink.prepare(step(2), staged_table(tmp_path / "third", far_away(3, 3)))


def test_a_partition_in_a_year_that_python_does_not_have_bars_only_what_would_replace_it(
    root: Path, tmp_path: Path
) -> None:
    write_deltalake(str(root), far_away(1), partition_by=["day"])
    near = far_away(2).set_column(2, "day", pa.array([datetime.date(2026, 1, 1)]))
    put_rows(fenced(root), step(0), staged_table(tmp_path / "first", near))
    upsert = fenced(root, "upsert")
    before = folders(root)
    with pytest.raises(SinkUnfit, match="before the year 1"):
        upsert.prepare(step(1), staged_table(tmp_path / "second", near.set_column(0, "id", pa.array([1]))))
    put_rows(upsert, step(1), staged_table(tmp_path / "third", near))
    assert len(folders(root)) == len(before) + 1
    assert ids(root) == [1, 2]
    with pytest.raises(SinkUnfit, match="partitioned by day"):
        fenced(root).prepare(step(2), staged_table(tmp_path / "fourth", far_away(3)))


# ---- files of others ----


def name_otherwise(root: Path, version: int, *, elsewhere: Path | None = None) -> str:
    """Have the log name the file of a version as Spark does, or in another place; gives that name."""
    log = root / "_delta_log" / f"{version:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    [add] = [action["add"] for action in actions if "add" in action]
    [path] = [file for file in root.rglob("*.parquet") if file.name in add["path"]]
    place = elsewhere or root / "place=é"
    place.mkdir(exist_ok=True)
    moved = path.rename(place / "theirs.parquet")
    add["path"] = moved.as_uri() if elsewhere else str(moved.relative_to(root))
    log.write_text("\n".join(map(json.dumps, actions)))
    return str(add["path"])


def in_place(number: int, place: str = "é") -> dict[str, Any]:
    return {"id": number, "place": place}


def write_theirs(root: Path, *numbers: int) -> None:
    rows = pa.Table.from_pylist([in_place(number) for number in numbers], schema=IN_PLACES)
    write_deltalake(str(root), rows, partition_by=["place"], mode="append")


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_file_that_is_named_otherwise_does_not_bar_what_is_appended(
    root: Path, tmp_path: Path, is_elsewhere: bool
) -> None:
    write_theirs(root, 1)
    name = name_otherwise(root, 0, elsewhere=tmp_path / "elsewhere" if is_elsewhere else None)
    sink = fenced(root)
    for epoch in range(2):
        target = put_rows(sink, step(epoch), stage(tmp_path, [in_place(2 + epoch)], IN_PLACES, files=1))
    put_rows(sink, step(2), stage(tmp_path, [in_place(9)], IN_PLACES, files=1))
    assert sink.why_not_back(target) is None
    sink.roll_back(target)
    actions = pa.table(DeltaTable(str(root)).get_add_actions())
    assert actions.num_rows == 3
    assert name in actions["path"].to_pylist()


def test_a_file_that_is_named_otherwise_is_told_before_it_would_be_replaced(root: Path, tmp_path: Path) -> None:
    write_theirs(root, 1, 2)
    name_otherwise(root, 0)
    upsert = fenced(root, "upsert")
    put_rows(upsert, step(0), stage(tmp_path, [in_place(3, "x")], IN_PLACES, files=1))
    before = folders(root)
    with pytest.raises(SinkUnfit, match=r"theirs\.parquet can't be removed here"):
        upsert.prepare(step(1), stage(tmp_path, [in_place(2, "x"), in_place(3, "x")], IN_PLACES, files=1))
    assert folders(root) == before
    put_rows(upsert, step(1), stage(tmp_path, [in_place(3, "y")], IN_PLACES, files=1))
    assert ids(root) == [1, 2, 3]
    overwrite = fenced(root, "overwrite")
    with pytest.raises(SinkUnfit, match=r"theirs\.parquet can't be removed here"):
        overwrite.prepare(step(2), stage(tmp_path, [in_place(4)], IN_PLACES, files=1))


def test_a_file_that_lies_elsewhere_is_told_before_it_would_be_read(root: Path, tmp_path: Path) -> None:
    write_theirs(root, 1)
    name_otherwise(root, 0, elsewhere=tmp_path / "elsewhere")
    sink = fenced(root, "upsert")
    put_rows(sink, step(0), stage(tmp_path, [in_place(7)], IN_PLACES, files=1))
    with pytest.raises(SinkUnfit, match="lies elsewhere"):
        sink.prepare(step(1), stage(tmp_path, [in_place(1)], IN_PLACES, files=1))


def test_there_is_no_way_back_past_a_file_that_would_stay(root: Path, tmp_path: Path) -> None:
    write_theirs(root, 1)
    sink = fenced(root)
    target = put_rows(sink, step(0), stage(tmp_path, [in_place(2)], IN_PLACES, files=1))
    write_theirs(root, 3)
    name_otherwise(root, 3)
    put_rows(sink, step(1), stage(tmp_path, [in_place(4)], IN_PLACES, files=1))
    assert "can't be removed here" in (sink.why_not_back(target) or "")
    with pytest.raises(SinkUnfit, match="can't be removed here"):
        sink.roll_back(target)
    assert ids(root) == [1, 2, 3, 4]


def test_a_value_that_the_log_can_not_say_is_told_before_anything_is_decided(root: Path, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("data", pa.binary())])
    theirs = pa.Table.from_pylist([{"id": 1, "data": b"x"}, {"id": 2, "data": b"x"}], schema=schema)
    write_deltalake(str(root), theirs, partition_by=["data"])
    sink = fenced(root, "upsert")
    with pytest.raises(SinkUnfit, match="partitioned by data"):
        sink.prepare(step(0), stage(tmp_path, [{"id": 1, "data": None}], schema, files=1))
    assert folders(root) == []


# ---- columns ----


def test_a_table_whose_partition_the_rows_lack_is_refused(root: Path) -> None:
    write_theirs(root, 1)
    with pytest.raises(SinkUnfit, match="partitioned by place, which the rows do not have"):
        Delta(str(root)).check(pa.schema([("id", pa.int64())]))


def test_fractions_are_no_partitions(root: Path) -> None:
    with pytest.raises(SinkUnfit, match="partitioned by real"):
        Delta(str(root), partition_by=["real"]).check(pa.schema([("real", pa.float32())]))


def test_what_must_have_a_value_has_one_in_lists_and_structs_too(root: Path, tmp_path: Path) -> None:
    struct = pa.struct([("may", pa.int64())])
    fields = [pa.field("list", pa.list_(pa.int64()), nullable=False), pa.field("struct", struct, nullable=False)]
    DeltaTable.create(str(root), pa.schema([("id", pa.int64()), *fields]))
    schema = pa.schema([("id", pa.int64()), ("list", pa.list_(pa.int64())), ("struct", struct)])
    full = {"id": 1, "list": [], "struct": {"may": None}}
    sink = fenced(root)
    for name in ("list", "struct"):
        with pytest.raises(SinkUnfit, match=f"{name} must have a value"):
            sink.prepare(step(0), stage(tmp_path, [full, full | {name: None}], schema, files=1))
    put_rows(sink, step(0), stage(tmp_path, [full], schema, files=1))
    assert DeltaTable(str(root)).to_pyarrow_table().to_pylist() == [full]


def test_names_that_differ_only_in_the_case_of_letters_are_refused(root: Path) -> None:
    struct = pa.struct([("at", pa.int64()), ("At", pa.int64())])
    for schema in ([("id", pa.int64()), ("Id", pa.int64())], [("list", pa.list_(struct))]):
        with pytest.raises(SinkUnfit, match="one and the same"):
            Delta(str(root)).check(pa.schema(schema))


def test_a_name_that_is_needed_to_write_rows_anew_is_refused(root: Path) -> None:
    for name in ("hf_p0", "hf_k12", "hf_file"):
        with pytest.raises(SinkUnfit, match=name):
            Delta(str(root)).check(pa.schema([(name, pa.int64())]))


def test_an_epoch_in_mode_overwrite_replaces_files_of_others(root: Path, tmp_path: Path) -> None:
    write_deltalake(str(root), pa.Table.from_pylist(words(100), schema=SCHEMA))
    put(fenced(root, "overwrite"), tmp_path, 0, 1)
    assert ids(root) == [1]
