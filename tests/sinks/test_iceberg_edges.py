"""Iceberg tables with settings of their own, that others change meanwhile, and with values at the edge."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.manifest import DataFileContent
from pyiceberg.table import TableProperties
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import StringType

from holdfast.decide.chain import NOTHING
from holdfast.errors import SinkUnfit
from holdfast.sinks.contract import WriteMode
from holdfast.sinks.iceberg import Iceberg
from holdfast.testing.sinks import SCHEMA, holder, stage, step, words
from sinks.table_deletes import delete_row
from sinks.table_rows import PARTITIONED, each_in_a_file, folders, in_places, put, put_rows, staged_table

TABLE = "ns.words"
WITH_PLACE = pa.schema([("id", pa.int64()), ("place", pa.string())])


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    uri, warehouse = f"sqlite:///{tmp_path / 'catalog.db'}", (tmp_path / "warehouse").as_uri()
    loaded = load_catalog("test", type="sql", uri=uri, warehouse=warehouse)
    yield loaded
    loaded.close()


@pytest.fixture
def opened(catalog: Catalog) -> Callable[..., Iceberg]:
    def fenced(mode: WriteMode = "append", **how: Any) -> Iceberg:
        key = how.pop("key", ["id"] if mode == "upsert" else ())
        sink = Iceberg(catalog, TABLE, mode=mode, key=key, **how)
        sink.fence(holder(0), NOTHING)
        return sink

    return fenced


def rows_in(catalog: Catalog, **filters: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = catalog.load_table(TABLE).scan(**filters).to_arrow().to_pylist()
    return sorted(rows, key=lambda row: row["id"])


def seen(catalog: Catalog) -> list[tuple[int, str]]:
    return [(row["id"], row["word"]) for row in rows_in(catalog)]


def left_by(sink: Iceberg) -> list[str]:
    assert sink.root is not None
    return folders(Path(sink.root.url.removeprefix("file://")))


# ---- partitions ----

METRICS = [
    {"write.metadata.metrics.default": "none"},
    {"write.metadata.metrics.default": "counts"},
    {"write.metadata.metrics.column.place": "counts"},
    {"write.metadata.metrics.column.place": "truncate(1)"},
]


@pytest.mark.parametrize("properties", METRICS, ids=lambda given: "-".join(given.values()))
def test_the_partition_of_a_file_is_no_matter_of_what_the_table_says_of_columns(
    opened: Callable[..., Iceberg], catalog: Catalog, tmp_path: Path, properties: dict[str, str]
) -> None:
    sink = opened("upsert", key=["place"], partition_by=["place"], properties=properties)
    rows = [{"id": number, "place": place} for number, place in enumerate(("paris", "porto", "oslo"))]
    put_rows(sink, step(0), stage(tmp_path, rows, WITH_PLACE))
    found = {task.file.partition[0] for task in catalog.load_table(TABLE).scan().plan_files()}
    assert found == {"paris", "porto", "oslo"}
    assert rows_in(catalog, row_filter="place = 'porto'") == [rows[1]]
    put_rows(sink, step(1), stage(tmp_path, [{"id": 9, "place": "porto"}], WITH_PLACE, files=1))
    assert rows_in(catalog) == [rows[0], rows[2], {"id": 9, "place": "porto"}]


def test_a_day_is_told_where_the_table_says_nothing_of_columns(
    opened: Callable[..., Iceberg], catalog: Catalog, tmp_path: Path
) -> None:
    schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
    times = [datetime.datetime(year, 1, 1, 5, tzinfo=datetime.UTC) for year in (1969, 2026)]
    rows = [{"id": number, "ts": ts} for number, ts in enumerate([*times, None])]
    sink = opened(partition_by=["day(ts)"], properties=METRICS[0])
    put_rows(sink, step(0), stage(tmp_path, rows, schema))
    table = catalog.load_table(TABLE)
    days = {record["partition"]["ts_day"] for record in table.inspect.partitions().to_pylist()}
    assert days == {datetime.date(1969, 1, 1), datetime.date(2026, 1, 1), None}


def test_a_file_of_several_partitions_is_not_taken_for_one(
    opened: Callable[..., Iceberg], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.sinks.placing._fit", lambda *_: True)
    sink = opened(partition_by=["place"])
    for places in (("a", "b"), ("", None)):
        with pytest.raises(SinkUnfit, match="several values"):
            sink.prepare(step(0), stage(tmp_path, in_places(*places), PARTITIONED, files=1))
    assert left_by(sink) == []


def test_fractions_are_no_partitions(opened: Callable[..., Iceberg], catalog: Catalog) -> None:
    schema = pa.schema([("id", pa.int64()), ("real", pa.float64())])
    with pytest.raises(SinkUnfit, match="partitioned by real"):
        Iceberg(catalog, TABLE, partition_by=["real"]).check(schema)
    catalog.create_namespace("ns")
    with catalog.create_table(TABLE, schema).update_spec() as spec:
        spec.add_field("real", IdentityTransform(), "real")
    with pytest.raises(SinkUnfit, match="partitioned by real"):
        Iceberg(catalog, TABLE).check(schema)
    with pytest.raises(SinkUnfit, match="do not have"):
        Iceberg(catalog, TABLE).check(pa.schema([("id", pa.int64())]))


@pytest.mark.parametrize("moment", ["before prepare", "before commit"])
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_table_that_is_partitioned_anew_goes_on(
    opened: Callable[..., Iceberg], catalog: Catalog, tmp_path: Path, mode: WriteMode, moment: str
) -> None:
    sink = opened(mode)
    rows = [{"id": number, "place": place} for number, place in enumerate("abc")]
    put_rows(sink, step(0), stage(tmp_path, rows, WITH_PLACE, files=1))
    changed = [{"id": 0 if mode == "upsert" else 3, "place": "z"}, {"id": 4, "place": "y"}]
    staged = stage(tmp_path, changed, WITH_PLACE, files=1)
    token = sink.prepare(step(1), staged) if moment == "before commit" else None
    with catalog.load_table(TABLE).update_spec() as spec:
        spec.add_field("place", IdentityTransform(), "by_place")
    sink.commit(step(1), token or sink.prepare(step(1), staged), staged)
    wanted = [*(rows[1:] if mode == "upsert" else rows), *changed]
    assert rows_in(catalog) == sorted(wanted, key=lambda row: row["id"])
    assert rows_in(catalog, row_filter="place = 'z'") == [changed[0]]
    assert rows_in(catalog, row_filter="place = 'b'") == [rows[1]]
    put_rows(sink, step(2), stage(tmp_path, [{"id": 4, "place": "b"}, {"id": 5, "place": "b"}], WITH_PLACE))
    assert len(rows_in(catalog)) == len(wanted) + (1 if mode == "upsert" else 2)


# ---- what others do ----


def test_a_row_that_others_deleted_since_prepare_stays_deleted(
    opened: Callable[..., Iceberg], catalog: Catalog, tmp_path: Path
) -> None:
    sink = opened("upsert")
    put_rows(sink, step(0), stage(tmp_path, words(1, 2, 3, 4), files=1))
    for epoch, gone in ((1, 2), (2, 3)):
        staged = stage(tmp_path, words(1, word=f"{epoch}-"))
        token = sink.prepare(step(epoch), staged)
        delete_row(catalog, TABLE, gone)
        sink.commit(step(epoch), token, staged)
        assert seen(catalog) == [(1, f"{epoch}-1"), *((number, f"w{number}") for number in range(gone + 1, 5))]


@pytest.mark.parametrize("mode", ["upsert", "overwrite"])
def test_rows_that_were_deleted_by_their_values_are_told_before_anything_is_decided(
    opened: Callable[..., Iceberg], catalog: Catalog, tmp_path: Path, mode: WriteMode
) -> None:
    sink = opened(mode)
    put(sink, tmp_path, 0, 1, 2)
    before = left_by(sink)
    delete_row(catalog, TABLE, 1, DataFileContent.EQUALITY_DELETES)
    with pytest.raises(SinkUnfit, match="equality deletes"):
        sink.prepare(step(1), stage(tmp_path, words(1)))
    assert left_by(sink) == before


@pytest.mark.parametrize("how", ["renamed", "dropped"])
def test_a_name_that_went_to_another_column_is_refused(
    opened: Callable[..., Iceberg], catalog: Catalog, tmp_path: Path, how: str
) -> None:
    sink = opened()
    put(sink, tmp_path, 0, 1)
    with catalog.load_table(TABLE).update_schema() as columns:
        if how == "renamed":
            columns.rename_column("word", "text")
        else:
            columns.delete_column("word")
    without = pa.schema([field for field in SCHEMA if field.name != "word"])
    put_rows(sink, step(1), stage(tmp_path, [{"id": 2, "seen": None}], without))
    with catalog.load_table(TABLE).update_schema() as columns:
        columns.add_column("word", StringType())
    with pytest.raises(SinkUnfit, match="word was the name of another column"):
        sink.check(SCHEMA)
    with pytest.raises(SinkUnfit, match="word was the name of another column"):
        sink.prepare(step(2), stage(tmp_path, words(3)))
    put_rows(sink, step(2), stage(tmp_path, [{"id": 3, "seen": None}], without))


def test_a_column_that_readers_would_not_find_in_files_is_refused(
    opened: Callable[..., Iceberg], catalog: Catalog, tmp_path: Path
) -> None:
    sink = opened()
    put(sink, tmp_path, 0, 1)
    names = '[{"field-id": 1, "names": ["id"]}, {"field-id": 2, "names": ["word"]}]'
    with catalog.load_table(TABLE).transaction() as transaction:
        transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: names})
    with pytest.raises(SinkUnfit, match="seen would not be found"):
        sink.check(SCHEMA)


# ---- values ----


def test_what_must_have_a_value_has_one_in_lists_and_structs_too(catalog: Catalog, tmp_path: Path) -> None:
    struct = pa.struct([("may", pa.int64())])
    fields = [pa.field("list", pa.list_(pa.int64()), nullable=False), pa.field("struct", struct, nullable=False)]
    catalog.create_namespace("ns")
    catalog.create_table(TABLE, pa.schema([("id", pa.int64()), *fields]))
    sink = Iceberg(catalog, TABLE)
    sink.fence(holder(0), NOTHING)
    schema = pa.schema([("id", pa.int64()), ("list", pa.list_(pa.int64())), ("struct", struct)])
    full = {"id": 1, "list": [], "struct": {"may": None}}
    for name in ("list", "struct"):
        with pytest.raises(SinkUnfit, match=f"{name} must have a value"):
            sink.prepare(step(0), stage(tmp_path, [full, full | {name: None}], schema, files=1))
    put_rows(sink, step(0), stage(tmp_path, [full], schema, files=1))
    assert rows_in(catalog) == [full]


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_years_that_python_does_not_have_are_taken(
    opened: Callable[..., Iceberg], catalog: Catalog, tmp_path: Path, mode: WriteMode
) -> None:
    far = [400_000_000_000_000_000, -80_000_000_000_000_000, 0]
    day = pa.array([8_000_000, -800_000, 0], pa.int32()).cast(pa.date32())
    table = pa.table({"id": [1, 2, 3], "at": pa.array(far, pa.timestamp("us", tz="UTC")), "day": day})
    sink = opened(mode)
    put_rows(sink, step(0), staged_table(tmp_path / "first", table))
    put_rows(sink, step(1), staged_table(tmp_path / "second", table.slice(0, 1)))
    found = catalog.load_table(TABLE).scan().to_arrow()
    assert sorted(found["at"].cast(pa.int64()).to_pylist()) == sorted(far if mode == "upsert" else [*far, far[0]])
    by_day = Iceberg(catalog, "ns.by_day", partition_by=["day(at)"])
    by_day.fence(holder(0), NOTHING)
    with pytest.raises(SinkUnfit, match="partitioned by at"):
        by_day.prepare(step(0), staged_table(tmp_path / "third", table))


def test_files_of_one_partition_each_are_taken_whatever_their_columns_hold(
    opened: Callable[..., Iceberg], catalog: Catalog
) -> None:
    sink = opened(partition_by=["place"], properties=METRICS[0])
    assert sink.root is not None
    root = Path(sink.root.url.removeprefix("file://"))
    staged = each_in_a_file(root / "hf-0-0-abc", in_places("a", None, ""), PARTITIONED)
    put_rows(sink, step(0), staged)
    assert folders(root) == ["hf-0-0-abc"]
    found = [(task.file.partition[0], task.file.file_path) for task in catalog.load_table(TABLE).scan().plan_files()]
    for value, path in found:
        assert pq.read_table(path.removeprefix("file://"))["place"].to_pylist() == [value]


def test_a_name_that_is_needed_to_write_rows_anew_is_refused(catalog: Catalog) -> None:
    for name in ("hf_p0", "hf_k12", "hf_file"):
        with pytest.raises(SinkUnfit, match=name):
            Iceberg(catalog, TABLE).check(pa.schema([(name, pa.int64())]))
