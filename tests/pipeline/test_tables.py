"""Reference tables: read at a version that is recorded with every epoch, and at that one again when it is run again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession

from holdfast import tables
from holdfast.errors import BadValue, VersionGone
from holdfast.pipeline.pipeline import Pipeline
from pipeline.place import Place


@pytest.fixture
def place(tmp_path: Path, spark: SparkSession) -> Place:
    return Place(tmp_path, spark)


def write_prices(place: Place, price: int) -> None:
    rows = pa.table({"key": [f"k{n}" for n in range(9)], "price": pa.array([price] * 9, pa.int64())})
    write_deltalake(str(place.root / "prices"), rows, mode="overwrite")


def priced(place: Place, prices: tables.Table | DataFrame) -> Pipeline:
    plain = place.pipeline()
    return Pipeline(
        "sums",
        sources=plain.sources,
        tables={"prices": prices},
        query=lambda events, prices: events.join(prices, "key").selectExpr(
            "at AS window", "key", "value AS n", "price AS total"
        ),
        sinks=place.sinks(),
    )


def total(place: Place) -> set[object]:
    return {row[3] for row in place.rows("log")}


def test_an_epoch_that_is_run_again_reads_the_version_that_it_had(place: Place) -> None:
    """The directory is lost with epochs decided after the last checkpoint; the prices have changed since."""
    write_prices(place, 1)
    place.inputs(4)
    pipeline = priced(place, tables.Delta(str(place.root / "prices")))
    sinks = {"log": place.sinks()["log"]}
    pipeline.sinks = sinks
    run = place.start(pipeline, every="1 batch")
    assert run.pipeline.latest().manifest.table_offsets["prices"].offsets == {"version": "0"}  # type: ignore[union-attr]
    first = place.rows("log")
    write_prices(place, 5)
    # The checkpoints of the last epochs are lost with the directory: they are run again from the ledger.
    stored = run.pipeline
    for checkpoint in stored.checkpoints()[2:]:
        for info in stored.records.store.list(stored.records.keys.prefix + "checkpoints/"):
            if info.key.endswith(f"{checkpoint.slot.number:010}.json"):
                stored.records.store.delete([info.key])
    stored.records.store.delete([f"{stored.records.keys.prefix}latest"])
    shutil.rmtree(place.home)
    place.inputs(6)
    again = priced(place, tables.Delta(str(place.root / "prices")))
    again.sinks = {"log": place.sinks()["log"]}
    place.start(again, every="1 batch")
    assert {row[3] for row in first} == {1}
    assert [row for row in place.rows("log") if row[3] == 1] == first
    assert total(place) == {1, 5}


def test_a_version_that_is_gone_is_told_by_name(place: Place) -> None:
    write_prices(place, 1)
    write_prices(place, 2)
    table = tables.Delta(str(place.root / "prices"))
    table.name = "prices"
    assert table.version() == "1"
    assert {row.price for row in table.read(place.spark, "0").collect()} == {1}
    DeltaTable(str(place.root / "prices")).vacuum(0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(VersionGone, match="vacuumed"):
        table.read(place.spark, "0")
    assert {row.price for row in table.read(place.spark, "1").collect()} == {2}


def test_a_partitioned_delta_table_is_read_with_the_values_of_its_partitions(place: Place) -> None:
    rows = pa.table({"key": ["a", "b", "c"], "day": ["x", "y", None], "n": pa.array([1, 2, 3], pa.int64())})
    write_deltalake(str(place.root / "parts"), rows, partition_by=["day"])
    found = tables.Delta(str(place.root / "parts")).read(place.spark, "0").collect()
    assert sorted((row.key, row.day, row.n) for row in found) == [("a", "x", 1), ("b", "y", 2), ("c", None, 3)]


def test_an_iceberg_table_is_read_by_its_snapshots(place: Place) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("c", uri=f"sqlite:///{place.root}/catalog.db", warehouse=f"file://{place.root}/warehouse")
    catalog.create_namespace("shop")
    made = catalog.create_table("shop.prices", schema=pa.schema([("key", pa.string()), ("price", pa.int64())]))
    table = tables.Iceberg(catalog, "shop.prices")
    empty = table.version()
    assert table.read(place.spark, empty).collect() == []
    made.append(pa.table({"key": ["a"], "price": [1]}))
    first = table.version()
    made.append(pa.table({"key": ["b"], "price": [2]}))
    assert [row.key for row in table.read(place.spark, first).collect()] == ["a"]
    assert sorted(row.key for row in table.read(place.spark, table.version()).collect()) == ["a", "b"]
    with pytest.raises(VersionGone):
        table.read(place.spark, "17")


def test_a_plain_frame_has_the_version_of_its_files_and_no_other(place: Place) -> None:
    place.spark.range(3).write.parquet(str(place.root / "one"))
    one = tables.Static(place.spark.read.parquet(str(place.root / "one")))
    assert one.read(place.spark, one.version()).count() == 3
    with pytest.raises(VersionGone):
        one.read(place.spark, "files:0")
    assert tables.Static(place.spark.range(2)).version() == "static"


def test_a_table_may_not_be_called_as_a_source_is(place: Place) -> None:
    place.inputs(1)
    plain = place.pipeline()
    with pytest.raises(BadValue, match="events"):
        Pipeline(
            "sums",
            sources=plain.sources,
            tables={"events": place.spark.range(1)},
            query=plain.query,
            sinks=place.sinks(),
        )
