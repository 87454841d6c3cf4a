"""Rows staged once: in a table that adopts them, in one file while epochs are small, else by the executors."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.functions import udf

from holdfast.epochs import Staged
from holdfast.pipeline import staging
from holdfast.pipeline.epoch import OtherRows
from holdfast.pipeline.ledger import Ledger
from holdfast.pipeline.pipeline import Pipeline
from holdfast.pipeline.staging import FolderStaging, StagingPlace
from holdfast.sinks import Delta, Parquet, SQLite
from holdfast.sinks.contract import Sink
from holdfast.sinks.parquet import files
from holdfast.store import Address
from pipeline.place import Place

SMALL = [(10, 1000)] * staging.LOOK_BACK


@pytest.fixture
def place(tmp_path: Path, spark: SparkSession) -> Place:
    return Place(tmp_path, spark)


def folder(path: Path, sizes: list[tuple[int, int]] | None = None) -> FolderStaging:
    return FolderStaging(StagingPlace(Address(str(path)), f"file:{path}"), sizes=sizes or [])


def frame(spark: SparkSession, rows: int) -> DataFrame:
    return spark.range(0, rows, 1, 3).selectExpr(
        "id", "map('a', id) AS m", "array(id) AS l", "struct(id AS x, CAST(NULL AS STRING) AS y) AS s",
        "timestamp_micros(id) AS t", "CAST(id AS DECIMAL(20, 2)) AS d", "CAST('x' AS BINARY) AS b",
    )  # fmt: skip


def test_rows_are_the_same_through_arrow_and_by_the_executors(tmp_path: Path, spark: SparkSession) -> None:
    one = folder(tmp_path / "one", SMALL).stage(frame(spark, 100), "hf-0-0-a")
    other = folder(tmp_path / "other").stage(frame(spark, 100), "hf-0-0-b")
    assert one.table is not None
    assert other.table is None
    assert len(one.staged.files) == 1
    assert (one.staged.digest, one.staged.rows) == (other.staged.digest, 100)
    assert one.staged.arrow_schema == other.staged.arrow_schema
    first, second = (sorted(map(str, rows.reader().read_all().to_pylist())) for rows in (one, other))
    assert first == second
    reopened = folder(tmp_path / "one").open(one.staged)
    assert reopened is not None
    assert sorted(map(str, reopened.reader().read_all().to_pylist())) == first


def test_a_second_run_gives_the_same_digest_whichever_way_it_takes(tmp_path: Path, spark: SparkSession) -> None:
    digests = {folder(tmp_path, sizes).stage(frame(spark, 50), f"hf-0-{n}-a").staged.digest for n, sizes in
               enumerate(([], SMALL))}  # fmt: skip
    assert len(digests) == 1
    assert folder(tmp_path).stage(frame(spark, 49), "hf-0-9-a").staged.digest not in digests


def test_rows_for_one_sink_and_no_state_are_not_summed_up_until_there_is_a_state(
    tmp_path: Path, spark: SparkSession
) -> None:
    used = FolderStaging(StagingPlace(Address(str(tmp_path)), f"file:{tmp_path}"), compares=False)
    assert used.stage(frame(spark, 10), "hf-0-0-a", has_state=False).staged.digest == ""
    assert used.stage(frame(spark, 10), "hf-0-1-a", has_state=True).staged.digest.startswith("10:")


@pytest.mark.parametrize("sinks", [1, 2])
def test_a_pipeline_without_state_sums_rows_up_only_for_several_sinks(place: Place, sinks: int) -> None:
    place.inputs(2)
    several: dict[str, Sink] = {f"db{n}": SQLite(place.root / f"{n}.db", "rows") for n in range(sinks)}
    place.run(appended(place, several))
    records = place.repository.pipeline("sums").records
    found = Ledger(records.store, records.keys.ledger).read(-1)
    assert {bool(decision.staged.digest) for decision in found} == {sinks > 1}


def test_rows_for_a_table_that_can_not_give_them_back_are_always_summed_up(place: Place) -> None:
    """A sink that is added later could not tell its rows from those of another run."""
    with closing(sqlite3.connect(place.root / "own.db")) as db:
        db.execute("CREATE TABLE rows (at INTEGER, key TEXT, value INTEGER)")
    place.inputs(2)
    place.run(appended(place, {"db": SQLite(place.root / "own.db", "rows")}))
    records = place.repository.pipeline("sums").records
    found = Ledger(records.store, records.keys.ledger).read(-1)
    assert {bool(decision.staged.digest) for decision in found} == {True}


def test_an_epoch_that_is_larger_than_it_was_thought_is_left_to_the_executors(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "FEW_ROWS", 100)
    used = folder(tmp_path, SMALL)
    rows = used.stage(frame(spark, 101), "hf-0-0-a")
    assert rows.table is None
    assert rows.staged.rows == 101
    assert used.stage(frame(spark, 5), "hf-0-1-a").table is None


def test_an_epoch_that_was_run_twice_and_gave_other_rows_is_found_out_where_there_is_state(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its state may be that of the first run, and the rows are those of the second."""
    monkeypatch.setattr(staging, "FEW_ROWS", 100)
    chance = udf(lambda _id: random.random(), "double").asNondeterministic()
    other = spark.range(0, 101, 1, 3).select("id", chance("id").alias("v"))
    with pytest.raises(OtherRows):
        folder(tmp_path, SMALL).stage(other, "hf-0-0-a", has_state=True)
    assert [*tmp_path.rglob("*.parquet")] == [], "nothing of it stays"
    assert folder(tmp_path, SMALL).stage(other, "hf-0-1-a", has_state=False).staged.rows == 101
    assert folder(tmp_path).stage(other, "hf-0-2-a", has_state=True).staged.rows == 101, "run once"


def test_rows_that_nearly_all_lie_in_one_partition_are_left_to_the_executors_whole(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more than its share of any partition is fetched, so that many of them can't add up to what no driver holds."""
    monkeypatch.setattr(staging, "FEW_ROWS", 30)
    monkeypatch.setattr(staging, "UNEVEN", 1)
    used = folder(tmp_path, SMALL)
    uneven = used.stage(frame(spark, 25).coalesce(1), "hf-0-0-a")
    assert (uneven.table, uneven.staged.rows) == (None, 25)
    assert used.stage(frame(spark, 6), "hf-0-1-a").table is None, "it is not tried again at once"
    even = folder(tmp_path, SMALL).stage(frame(spark, 25), "hf-0-2-a")
    assert even.table is not None
    assert even.staged.digest == uneven.staged.digest


def test_an_epoch_without_rows_has_a_digest_and_nothing_to_read(tmp_path: Path, spark: SparkSession) -> None:
    for sizes in ([], SMALL):
        rows = folder(tmp_path, sizes).stage(frame(spark, 10).where("id < 0"), f"hf-0-{len(sizes)}-a")
        assert rows.staged.rows == 0
        assert rows.reader().read_all().num_rows == 0


def test_what_the_executors_wrote_is_synced_before_anything_is_decided_on_it(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(staging, "sync_below", synced.append)
    folder(tmp_path).stage(frame(spark, 10), "hf-0-0-a")
    assert synced == [tmp_path / "hf-0-0-a"]


@pytest.mark.parametrize("sizes", [SMALL, []], ids=["through arrow", "by the executors"])
def test_staged_bytes_that_are_not_those_that_were_decided_are_not_opened(
    tmp_path: Path, spark: SparkSession, sizes: list[tuple[int, int]]
) -> None:
    staged = folder(tmp_path, sizes).stage(frame(spark, 100), "hf-0-0-a").staged
    assert folder(tmp_path).open(staged) is not None
    file = tmp_path / "hf-0-0-a" / staged.files[-1].name
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    assert folder(tmp_path).open(staged) is None
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    assert folder(tmp_path).open(staged) is not None


def test_what_was_staged_elsewhere_and_is_gone_is_none(tmp_path: Path, spark: SparkSession) -> None:
    used = folder(tmp_path)
    rows = used.stage(frame(spark, 10), "hf-0-0-a")
    used.remove(rows.staged)
    assert used.open(rows.staged) is None
    used.remove(Staged(str(tmp_path / "never"), [], ""))


def appended(place: Place, sinks: dict[str, Sink]) -> Pipeline:
    plain = place.pipeline()
    return Pipeline("sums", sources=plain.sources, query=lambda events: events, sinks=sinks)


@pytest.mark.parametrize("few", [True, False], ids=["through Arrow", "by the executors"])
def test_with_three_sinks_every_row_is_computed_once(place: Place, few: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "FEW_ROWS", 20_000 if few else -1)
    computed = place.spark.sparkContext.accumulator(0)

    def note(value: int) -> int:
        computed.add(1)
        return value

    noted = F.udf(
        note, "long", useArrow=False
    ).asNondeterministic()  # or the optimizer may have it run again, or not at all
    root = place.root
    sinks: dict[str, Sink] = {
        "delta": Delta(str(root / "delta")),
        "parquet": Parquet(str(root / "parquet")),
        "db": SQLite(root / "db.db", "rows"),
    }
    place.inputs(5)

    def query(events: DataFrame) -> DataFrame:
        return events.withColumn("value", noted("value"))

    place.run(Pipeline("sums", sources=place.pipeline().sources, query=query, sinks=sinks))
    assert DeltaTable(str(root / "delta")).count() == 150
    assert computed.value == 150


@pytest.mark.parametrize("few", [True, False], ids=["through Arrow", "by the executors"])
def test_a_table_adopts_what_was_staged_in_it_and_the_others_get_a_copy(
    place: Place, few: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "FEW_ROWS", 20_000 if few else -1)
    root = place.root
    sinks: dict[str, Sink] = {
        "delta": Delta(str(root / "delta")),
        "parquet": Parquet(str(root / "parquet")),
        "db": SQLite(root / "db.db", "rows"),
    }
    place.inputs(5)
    place.run(appended(place, sinks))
    # The first that adopts files has them staged in it. It commits last: by then the others have read them.
    delta = [Path(uri) for uri in DeltaTable(str(root / "delta")).file_uris()]
    copies = [Path(file) for file in files(str(root / "parquet"))]
    assert sum(pq.read_metadata(path).num_rows for path in delta) == 150
    assert sum(pq.read_metadata(path).num_rows for path in copies) == 150
    assert not any((place.home / "staging").glob("*/*"))
    inside = set((root / "delta").rglob("*.parquet"))
    assert inside == set(delta)
    # A leading _ or . would hide what is left over from whoever cleans up the table.
    assert all(path.relative_to(root / "delta").parts[0].startswith("hf-") for path in inside)
    again: dict[str, Sink] = {"delta": Delta(str(root / "delta")), "parquet": Parquet(str(root / "parquet"))}
    again["db"] = SQLite(root / "db.db", "rows")
    place.inputs(7)
    place.run(appended(place, again))
    assert DeltaTable(str(root / "delta")).to_pyarrow_table().num_rows == 210
