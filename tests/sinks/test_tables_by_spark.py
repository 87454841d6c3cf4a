"""Tables whose files Spark writes: staged below their root, and written anew as this process would have done it."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from holdfast.decide.chain import NOTHING
from holdfast.epochs import Staged, StagedFile
from holdfast.errors import SinkUnavailable, SinkUnfit
from holdfast.pipeline.schemas import arrow_schema
from holdfast.sinks import delta, iceberg, rewrite_spark
from holdfast.sinks.delta import Delta
from holdfast.sinks.iceberg import Iceberg
from holdfast.sinks.parquet import Parquet, files
from holdfast.sinks.staged import StagedRows, encode_schema
from holdfast.store import Address
from holdfast.testing.sinks import holder, stage, step
from servers import kafka_conf
from sinks.table_rows import KINDS, PARTITIONED, folders, in_places, kinds, put_rows, staged_table
from spark.session import SPARK_VERSION, WITH_KAFKA, start_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one session of this process, as the other tests of it need it; see tests/spark/conftest.py."""
    session = start_session(kafka_conf() if SPARK_VERSION >= WITH_KAFKA else None)
    yield session
    session.stop()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "table"


@pytest.fixture(autouse=True)
def _all_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (delta, iceberg):
        monkeypatch.setattr(module, "SMALL", 0)


def read_all(root: Path) -> list[dict[str, Any]]:
    return sorted(DeltaTable(str(root)).to_pyarrow_table().to_pylist(), key=str)


def opened(root: Path, spark: SparkSession, key: Sequence[str], **how: Any) -> Delta:
    sink = Delta(str(root), mode="upsert", key=key, **how)
    sink.session = spark
    sink.fence(holder(0), NOTHING)
    return sink


@pytest.mark.parametrize("partition_by", [(), ("place", "day", "hot")])
def test_spark_writes_anew_what_pyarrow_would(
    root: Path, tmp_path: Path, spark: SparkSession, partition_by: Sequence[str]
) -> None:
    sink = opened(root, spark, ["id"], partition_by=partition_by)
    first = in_places("a b/c%é", "x", None, "x", None, "y")
    put_rows(sink, step(0), stage(tmp_path, first, PARTITIONED))
    DeltaTable(str(root)).optimize.compact()
    changed = [{**row, "hot": True} for row in first[1:3]] + [{**first[0], "id": 9}]
    put_rows(sink, step(1), stage(tmp_path, changed, PARTITIONED))
    wanted = [first[0], *changed, *first[3:]]
    assert read_all(root) == sorted(wanted, key=str)
    for bad, why in (([{**first[0], "id": None}], "no value"), ([first[0], first[0]], "two rows")):
        with pytest.raises(SinkUnfit, match=why):
            sink.prepare(step(2), stage(tmp_path, bad, PARTITIONED))


@pytest.mark.parametrize("partition_by", [(), ("place",)], ids=["upsert", "split"])
def test_what_spark_wrote_is_synced_before_anything_is_decided_on_it(
    root: Path, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, partition_by: Sequence[str]
) -> None:
    synced: set[Path] = set()
    entered: list[Path] = []

    def sync(place: Path, *, deep: bool = True) -> None:
        if deep:
            synced.update(place.rglob("*.parquet"))
        else:
            entered.append(place)

    monkeypatch.setattr(rewrite_spark, "sync_below", sync)
    sink = opened(root, spark, ["id"], partition_by=partition_by)
    put_rows(sink, step(0), stage(tmp_path, in_places("a", "b", "b"), PARTITIONED))
    before = set(root.rglob("*.parquet"))
    changed = [{**row, "hot": True} for row in in_places("a", "b")]
    sink.prepare(step(1), stage(tmp_path, changed, PARTITIONED))
    written = set(root.rglob("*.parquet")) - before
    by_spark = {path for path in written if path.name.endswith(".snappy.parquet")}
    assert by_spark
    assert by_spark <= synced
    assert root in entered


def test_spark_keeps_every_kind_of_value(root: Path, tmp_path: Path, spark: SparkSession) -> None:
    sink = opened(root, spark, ["whole"])
    kept = {**kinds()[0], "whole": 1}
    put_rows(sink, step(0), stage(tmp_path, [kept, kinds()[0]], KINDS, files=1))
    put_rows(sink, step(1), stage(tmp_path, [{**kinds()[0], "real": 7.5}], KINDS, files=1))
    assert read_all(root) == sorted([kept, {**kinds()[0], "real": 7.5}], key=str)


def test_a_job_that_fails_is_told_and_leaves_nothing(root: Path, tmp_path: Path, spark: SparkSession) -> None:
    sink = opened(root, spark, ["id"])
    put_rows(sink, step(0), stage(tmp_path, in_places("a", "b"), PARTITIONED))
    before = folders(root)
    for file in root.rglob("hf-*/*.parquet"):
        file.write_bytes(b"harmed" * 1000)
    with pytest.raises(SinkUnavailable, match="Spark"):
        sink.prepare(step(1), stage(tmp_path, in_places("c"), PARTITIONED))
    assert folders(root) == before


def test_an_iceberg_table_is_partitioned_by_day_and_upserted_by_spark(tmp_path: Path, spark: SparkSession) -> None:
    uri, warehouse = f"sqlite:///{tmp_path / 'catalog.db'}", (tmp_path / "warehouse").as_uri()
    catalog = load_catalog("test", type="sql", uri=uri, warehouse=warehouse)
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", tz="UTC")), ("note", pa.string())])
    start = datetime.datetime(2026, 1, 1, 22, 0, 0, 5, tzinfo=datetime.UTC)
    rows: list[dict[str, Any]] = [
        {"id": number, "at": start + datetime.timedelta(hours=number), "note": "old"} for number in range(6)
    ]
    rows.append({"id": 9, "at": None, "note": "old"})
    sink = Iceberg(catalog, "ns.words", mode="upsert", key=["id"], partition_by=["day(at)"])
    sink.session = spark
    sink.fence(holder(0), NOTHING)
    put_rows(sink, step(0), stage(tmp_path, rows, schema))
    changed = [{**rows[1], "note": "new"}, {**rows[6], "note": "new", "at": start}]
    put_rows(sink, step(1), stage(tmp_path, changed, schema))
    table = catalog.load_table("ns.words")
    found = sorted(table.scan().to_arrow().to_pylist(), key=str)
    assert found == sorted([rows[0], *rows[2:6], *changed], key=str)
    days = {record["partition"]["at_day"] for record in table.inspect.partitions().to_pylist()}
    assert days == {datetime.date(2026, 1, 1), datetime.date(2026, 1, 2)}
    catalog.close()


def test_spark_keeps_an_empty_text_and_none_in_partitions_of_their_own(tmp_path: Path, spark: SparkSession) -> None:
    uri, warehouse = f"sqlite:///{tmp_path / 'catalog.db'}", (tmp_path / "warehouse").as_uri()
    catalog = load_catalog("test", type="sql", uri=uri, warehouse=warehouse)
    sink = Iceberg(catalog, "ns.words", mode="upsert", key=["id"], partition_by=["place"])
    sink.session = spark
    sink.fence(holder(0), NOTHING)
    rows = in_places("", None, "a", "", None, "long " * 100)
    put_rows(sink, step(0), stage(tmp_path, rows, PARTITIONED, files=1))
    changed = {**rows[0], "hot": True}
    put_rows(sink, step(1), stage(tmp_path, [changed], PARTITIONED, files=1))
    table = catalog.load_table("ns.words")
    assert sorted(table.scan().to_arrow().to_pylist(), key=str) == sorted([changed, *rows[1:]], key=str)
    assert sorted(table.scan(row_filter="place = ''").to_arrow()["id"].to_pylist()) == [0, 3]
    assert sorted(table.scan(row_filter="place is null").to_arrow()["id"].to_pylist()) == [1, 4]
    catalog.close()


def test_spark_tells_two_rows_of_one_key_also_in_years_that_python_does_not_have(
    root: Path, tmp_path: Path, spark: SparkSession
) -> None:
    at = pa.array([400_000_000_000_000_000] * 2, pa.timestamp("us", tz="UTC"))
    sink = opened(root, spark, ["at"])
    with pytest.raises(SinkUnfit, match=r"two rows of an epoch have the key '.14645-06-30"):
        sink.prepare(step(0), staged_table(tmp_path / "staged", pa.table({"id": [1, 2], "at": at})))


# ---- staged by Spark ----

QUERY = """
    SELECT id, CAST(id AS TINYINT) small, CAST(id AS FLOAT) real, id % 2 = 0 yes, CAST(id AS DECIMAL(20, 4)) exact,
        DATE'2026-02-03' day, TIMESTAMP'2026-01-01 12:00:00.123456' + make_interval(0, 0, 0, CAST(id AS INT)) at,
        TIMESTAMP_NTZ'2026-01-01 12:00:00' plain, CAST('b' AS BINARY) data, IF(id = 3, NULL, concat('é', id)) text,
        named_struct('start', TIMESTAMP'2026-01-01 12:00:00', 'end', CAST(NULL AS TIMESTAMP)) window,
        array('a', NULL) tags,
        map('a', id) counts
    FROM range(10)
"""


def staged_by_spark(spark: SparkSession, place: Path) -> StagedRows:
    session = spark.newSession()
    session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    frame = session.sql(QUERY)
    frame.repartition(3).write.parquet(str(place))
    files = sorted(place.glob("*.parquet"))
    counted = [StagedFile(file.name, file.stat().st_size, pq.read_metadata(file).num_rows) for file in files]
    return StagedRows(Staged(str(place), counted, encode_schema(arrow_schema(frame.schema))), Address(str(place)))


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_rows_that_spark_staged_below_the_root_become_the_table_s(
    tmp_path: Path, spark: SparkSession, kind: str
) -> None:
    uri, warehouse = f"sqlite:///{tmp_path / 'catalog.db'}", (tmp_path / "warehouse").as_uri()
    catalog = load_catalog("test", type="sql", uri=uri, warehouse=warehouse)
    tables: dict[str, Callable[[], Any]] = {
        "parquet": lambda: Parquet(str(tmp_path / "table")),
        "delta": lambda: Delta(str(tmp_path / "table")),
        "iceberg": lambda: Iceberg(catalog, "ns.words"),
    }
    sink = tables[kind]()
    sink.fence(holder(0), NOTHING)
    root = Path(sink.root.url.removeprefix("file://"))
    rows = staged_by_spark(spark, root / "hf-0-0-abc")
    sink.check(rows.schema)
    put_rows(sink, step(0), rows)
    elsewhere = staged_by_spark(spark, tmp_path / "elsewhere")
    put_rows(sink, step(1), elsewhere)
    if kind == "parquet":
        found = pa.concat_tables([pq.read_table(file) for file in files(str(root))])
    elif kind == "delta":
        found = DeltaTable(str(root)).to_pyarrow_table()
    else:
        found = catalog.load_table("ns.words").scan().to_arrow()
    wanted = pq.read_table(tmp_path / "elsewhere").to_pylist() * 2
    assert sorted(found.to_pylist(), key=str) == sorted(wanted, key=str)
    assert len(folders(root)) == 2
    assert "hf-0-0-abc" in folders(root)
    catalog.close()
