"""Reference tables: read at a version that is recorded with every epoch, and at that one again when it is run again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from holdfast import tables
from holdfast.errors import BadValue, VersionGone
from holdfast.pipeline.ledger import Ledger
from holdfast.pipeline.pipeline import Pipeline
from pipeline.place import Place
from spark.events import events


@pytest.fixture
def place(tmp_path: Path, spark: SparkSession) -> Place:
    return Place(tmp_path, spark)


def write_prices(place: Place, price: int) -> None:
    rows = pa.table({"key": [f"k{n}" for n in range(9)], "price": pa.array([price] * 9, pa.int64())})
    write_deltalake(str(place.root / "prices"), rows, mode="overwrite")


def summed(place: Place, reads: list[str]) -> Pipeline:
    """A running total of prices by key, in the state and put out as it changes; notes the versions that are read."""

    class Watched(tables.Delta):
        def read(self, session: SparkSession, version: str) -> DataFrame:
            reads.append(version)
            return super().read(session, version)

    return Pipeline(
        "sums",
        sources=place.pipeline().sources,
        tables={"prices": Watched(str(place.root / "prices"))},
        query=lambda events, prices: (
            events.join(prices, "key")
            .groupBy("key")
            .agg(F.count("*").alias("n"), F.sum("price").alias("total"))
            .selectExpr("'all' AS window", "key", "n", "total")
        ),
        sinks={"table": place.sinks()["table"]},
        output_mode="update",
    )


def test_epochs_that_are_run_again_read_the_version_that_they_had(place: Place) -> None:
    """The state is lost with epochs after the last checkpoint; the prices have changed since."""
    write_prices(place, 1)
    place.inputs(4)
    run = place.start(summed(place, []), every="1 batch")
    newest = run.pipeline.latest()
    assert newest is not None
    assert newest.manifest.table_offsets["prices"].offsets == {"version": "0"}
    write_prices(place, 5)
    lose_all_after(place, 1)
    place.inputs(6)
    reads: list[str] = []
    again = place.start(summed(place, reads), every="1 batch")
    assert [*again.recovery.replays] == [2, 3]
    assert "0" in reads
    counted = {row[1]: (row[2], row[3]) for row in place.rows("table")}
    first, later = by_key(range(4)), by_key(range(4, 6))
    assert counted == {key: (n, first[key] + 5 * later[key]) for key, n in (first + later).items()}
    assert versions_decided(place) == {2: "0", 3: "0", 4: "1", 5: "1"}


def lose_all_after(place: Place, epoch: int) -> None:
    """Lose Spark's directory, and all checkpoints after an epoch; the decisions on those epochs stand."""
    records = place.repository.pipeline("sums").records
    for checkpoint in place.repository.pipeline("sums").checkpoints():
        if checkpoint.epoch > epoch:
            path = place.root / "repository" / records.keys.manifest(checkpoint.slot)
            path.write_bytes(path.read_bytes()[:100])
    place.home.rename(place.root / "lost")


def by_key(batches: range) -> Counter[str]:
    """How many events of each key there are in some batches of input."""
    return Counter(event.key for batch in batches for event in events("events", batch))


def versions_decided(place: Place) -> dict[int, str]:
    records = place.repository.pipeline("sums").records
    decisions = Ledger(records.store, records.keys.ledger).read(after=1)
    return {decision.epoch: decision.tables["prices"] for decision in decisions}


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
