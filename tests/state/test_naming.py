"""State whose fields Spark gives the same name, as two sums of one query: each is shown, kept and put back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from cli.sample_repository import invoke
from holdfast.errors import BadValue, StateFixed
from holdfast.state import documents, edit, export, open_state
from holdfast.state.naming import told_apart, with_fields_told_apart
from spark.proof import Truth, after, run_from, tell_truth
from spark.workloads import STORES, WORKLOADS, Workload

CUT = 2
STOP = 4
BATCHES = 6
STORE = "changelog-2"
OTHERS = [pytest.param(store, marks=pytest.mark.soak) for store in STORES if store != STORE]
PARTS = st.sampled_from(["sum", "Sum", "count", "sum_2", "SUM_2", "sum_3", "sum_2_2", "", "_2"])


def summed(events: DataFrame) -> DataFrame:
    return events.groupBy("key").agg(F.sum("value"), F.sum("at"), F.avg("value"), F.count("*"), F.collect_set("value"))


def by_unnamed_keys(events: DataFrame) -> DataFrame:
    """Keys that are no columns have all the same name in state."""
    pair = F.struct((F.col("value") % 2).alias("a"), (F.col("at") % 2).alias("A"))
    counted = events.groupBy(F.upper("key"), F.reverse("key"), pair).agg(
        F.count("*"), F.max(F.struct(F.col("value").alias("b"), F.col("at").alias("b")))
    )
    return counted.toDF("upper", "back", "pair", "n", "most")


def by_dotted_keys(events: DataFrame) -> DataFrame:
    """Names with a dot of their own, at the top and inside, and two that are read alike."""
    inside = F.struct((F.col("value") % 2).alias("a.b")).alias("in")
    alike = F.upper("key").alias("x.y"), F.struct((F.col("at") % 2).alias("y")).alias("x")
    named = events.select(F.col("key").alias("shop.id"), inside, *alike)
    counted = named.groupBy("`shop.id`", "in", "`x.y`", "x").agg(F.count("*"))
    return counted.toDF("shop", "in", "upper", "x", "n")


def with_maps(events: DataFrame) -> DataFrame:
    held = F.create_map("key", "value")
    return events.groupBy("key").agg(F.first(held), F.last(held))


def workload(query: Callable[[DataFrame], DataFrame]) -> Workload:
    events = WORKLOADS["by-key"]

    def build(spark: SparkSession, folder: Path) -> DataFrame:
        schema = "at LONG, key STRING, value LONG"
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return query(reader.json(str(folder / "events")))

    return Workload(query.__name__, "update", build, events.inputs)


TellOf = Callable[[Callable[[DataFrame], DataFrame], str], Truth]


@pytest.fixture(scope="module")
def tell_of(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> TellOf:
    told: dict[tuple[str, str], Truth] = {}

    def tell(query: Callable[[DataFrame], DataFrame], store: str) -> Truth:
        name = (query.__name__, store)
        if name not in told:
            root = tmp_path_factory.mktemp(f"{query.__name__}-{store}")
            told[name] = tell_truth(spark, workload(query), store, root, BATCHES)
        return told[name]

    return tell


def as_it_is(rows: DataFrame) -> DataFrame:
    return rows


def sums_at(truth: Truth, cut: int) -> dict[str, tuple[int, int, float, int, int]]:
    """What the state must hold of each key: the newest that was put out of it."""
    newest = {row[0]: row for batch in range(cut + 1) for row in truth.outputs[batch]}
    return {key: (a, b, float(a), n, n) for key, a, b, _, n, _ in newest.values()}


def sums_in(value: Any) -> tuple[int, int, float, int, int]:
    return value["sum"], value["sum_2"], value["sum_3"], value["count"], value["count_2"]


# ---- the names ----


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (["sum", "count"], ["sum", "count"]),
        (["sum", "sum", "sum", "count", "count"], ["sum", "sum_2", "sum_3", "count", "count_2"]),
        (["sum", "isEmpty", "sum", "isEmpty"], ["sum", "isEmpty", "sum_2", "isEmpty_2"]),
        (["key", "Key", "KEY"], ["key", "Key_2", "KEY_3"]),
        (["sum", "sum_2", "sum"], ["sum", "sum_2", "sum_3"]),
        (["sum", "sum", "SUM_2"], ["sum", "sum_3", "SUM_2"]),
        ([], []),
    ],
)
def test_fields_of_one_name_are_numbered_in_their_order(names: list[str], wanted: list[str]) -> None:
    assert told_apart(names) == wanted


@given(st.lists(st.builds("".join, st.lists(PARTS, max_size=2)), max_size=12))
def test_names_are_always_told_apart_and_one_that_was_there_first_is_never_changed(names: list[str]) -> None:
    found = told_apart(names)
    lower = [name.lower() for name in found]
    assert len(set(lower)) == len(lower) == len(names)
    assert all(new == old or new.startswith(f"{old}_") for new, old in zip(found, names, strict=True))
    first = [name.lower() not in {other.lower() for other in names[:at]} for at, name in enumerate(names)]
    assert [name for name, is_first in zip(found, first, strict=True) if is_first] == [
        name for name, is_first in zip(names, first, strict=True) if is_first
    ]
    assert told_apart(found) == found


def test_names_inside_of_lists_maps_and_structs_are_told_apart_and_other_rows_are_left_alone(
    spark: SparkSession,
) -> None:
    rows = spark.sql(
        "SELECT named_struct('a', 1, 'A', 2, 'in', named_struct('b', 3, 'b', 4)) AS key, "
        "map(named_struct('c', 5, 'c', 6), array(named_struct('d', 7, 'd', 8))) AS value, 9 AS partition_id"
    )
    found = with_fields_told_apart(rows)
    assert found.schema.simpleString() == (
        "struct<key:struct<a:int,A_2:int,in:struct<b:int,b_2:int>>,"
        "value:map<struct<c:int,c_2:int>,array<struct<d:int,d_2:int>>>,partition_id:int>"
    )
    assert repr(tuple(found.collect()[0])) == (
        "(Row(a=1, A_2=2, in=Row(b=3, b_2=4)), {Row(c=5, c_2=6): [Row(d=7, d_2=8)]}, 9)"
    )
    assert with_fields_told_apart(found) is found


# ---- rows ----


@pytest.mark.parametrize("store", [STORE, *OTHERS])
def test_every_value_is_shown_in_rows_documents_and_tables(spark: SparkSession, tell_of: TellOf, store: str) -> None:
    truth = tell_of(summed, store)
    wanted = sums_at(truth, CUT)
    with open_state(truth.pipeline[f"epoch:{CUT}"], spark) as state:
        assert state.rows().schema["value"].dataType.simpleString() == (
            "struct<sum:bigint,sum_2:bigint,sum_3:double,count:bigint,count_2:bigint,buf:binary>"
        )
        assert {row["key"]["key"]: sums_in(row["value"]) for row in state.rows().collect()} == wanted
        assert {row["key"]["key"]: sums_in(row["value"]) for row in documents(state.rows())} == wanted
        [row] = state.rows(where={"key": "k4"}).collect()
        assert sums_in(row["value"]) == wanted["k4"]
    show = ["state", f"proof@epoch:{CUT}", "--repo", truth.pipeline.repository.url, "--where", "key=k4"]
    [document] = invoke(*show, "--json").document["rows"]
    assert sums_in(document["value"]) == wanted["k4"]
    head, line = (text.split() for text in invoke(*show).out.splitlines())
    shown = dict(zip(head, line, strict=True))
    assert [shown[f"value.{name}"] for name in ("sum", "sum_2", "count_2")] == [
        str(wanted["k4"][at]) for at in (0, 1, 4)
    ]


def test_what_changed_is_told_by_every_value(tell_of: TellOf) -> None:
    truth = tell_of(summed, STORE)
    words = ["state", "diff", "proof@epoch:1", f"proof@epoch:{CUT}", "--repo", truth.pipeline.repository.url]
    document = invoke(*words, "--json").document
    rows = {row["key"]["key"]: row for row in document["rows"]}
    old, new = sums_at(truth, 1), sums_at(truth, CUT)
    assert rows.keys() == {key for key in new if old.get(key) != new[key]}
    changed = {key for key, row in rows.items() if row["change"] == "changed"}
    assert changed
    for key, row in rows.items():
        assert sums_in(row["after"]) == new[key]
        assert (sums_in(row["before"]) if key in changed else None) == old.get(key)
    assert '"sum_2":' in invoke(*words).out


@pytest.mark.parametrize("store", [STORE, *OTHERS])
def test_what_is_exported_is_read_with_every_value_by_spark_arrow_and_duckdb(
    spark: SparkSession, tell_of: TellOf, tmp_path: Path, store: str
) -> None:
    truth = tell_of(summed, store)
    export(truth.pipeline[f"epoch:{CUT}"], tmp_path / "rows", spark=spark)
    wanted = sums_at(truth, CUT)
    by_spark = spark.read.parquet(str(tmp_path / "rows")).collect()
    by_arrow = pq.read_table(tmp_path / "rows").to_pylist()
    by_duckdb = duckdb.sql(f"SELECT key, value FROM '{tmp_path}/rows/*.parquet'").fetchall()
    assert {row["key"]["key"]: sums_in(row["value"]) for row in by_spark} == wanted
    assert {row["key"]["key"]: sums_in(row["value"]) for row in by_arrow} == wanted
    assert {key["key"]: sums_in(value) for key, value in by_duckdb} == wanted


def test_keys_of_one_name_can_be_asked_for_and_come_from_one_partition(spark: SparkSession, tell_of: TellOf) -> None:
    truth = tell_of(by_unnamed_keys, "hdfs")
    with open_state(truth.pipeline[f"epoch:{CUT}"], spark) as state:
        upper, back, pair = state.rows().schema["key"].dataType.names  # type: ignore[attr-defined]
        assert (back, pair) == (f"{upper}_2", f"{upper}_3")
        whole = [row for row in state.rows().collect() if row["key"][0] == "K4"]
        some = state.rows(where={back: "4k"})
        assert sorted(map(repr, some.collect())) == sorted(map(repr, whole))
        assert whole
        for row in whole:
            key = {upper: "K4", back: "4k", f"{pair}.a": row["key"][2][0], f"{pair}.A_2": row["key"][2][1]}
            [found] = state.rows(where=key).collect()
            assert found == row
        assert any(partition is not None and partition >= 0 for _, partition in state._laid)


def test_a_key_with_a_dot_in_its_name_can_be_asked_for_and_comes_from_one_partition(
    spark: SparkSession, tell_of: TellOf
) -> None:
    truth = tell_of(by_dotted_keys, STORE)
    show = ["state", f"proof@epoch:{CUT}", "--repo", truth.pipeline.repository.url, "--json"]
    rows = invoke(*show, "--rows", "--limit", "500").document["rows"]
    some = [row for row in rows if row["key"]["shop.id"] == "k4"]
    assert some
    found = invoke(*show, "--where", "shop.id=k4")
    assert found.code == 0, found.err
    assert sorted(map(repr, found.document["rows"])) == sorted(map(repr, some))
    for row in some:
        inside, y = row["key"]["in"]["a.b"], row["key"]["x"]["y"]
        words = ["shop.id=k4", f"in.a.b={inside}", "`x.y`=K4", f"`x`.`y`={y}"]
        [document] = invoke(*show, *(word for each in words for word in ("--where", each))).document["rows"]
        assert document == row
    with open_state(truth.pipeline[f"epoch:{CUT}"], spark) as state:
        key = {"shop.id": "k4", "`in`.`a.b`": inside, "`x.y`": "K4", "`x`.`y`": y}
        assert state.rows(where=key).count() == 1
        assert any(partition is not None and partition >= 0 for _, partition in state._laid)


def test_a_name_that_two_fields_of_a_key_have_is_refused_with_how_to_write_each(tell_of: TellOf) -> None:
    truth = tell_of(by_dotted_keys, STORE)
    show = ["state", f"proof@epoch:{CUT}", "--repo", truth.pipeline.repository.url]
    alike = invoke(*show, "--where", "x.y=K4")
    assert alike.code == 2
    assert "where x.y: several fields of the key are called so: write `x.y` or `x`.`y`" in alike.err
    unknown = invoke(*show, "--where", "shop=k4")
    assert (unknown.code, "it has: shop.id, in.a.b, `x.y`, `x`.`y`" in unknown.err) == (2, True), unknown.err
    twice = invoke(*show, "--where", "shop.id=k4", "--where", "`shop.id`=k4")
    assert (twice.code, "the same field is given twice" in twice.err) == (2, True), twice.err


# ---- put back ----


@pytest.mark.parametrize(
    ("query", "store"),
    [
        (summed, STORE),
        (by_unnamed_keys, "hdfs"),
        *(pytest.param(summed, store, marks=pytest.mark.soak) for store in STORES if store != STORE),
        *(pytest.param(by_unnamed_keys, store, marks=pytest.mark.soak) for store in STORES if store != "hdfs"),
    ],
)
def test_an_edit_that_changes_nothing_runs_on_as_the_uninterrupted_run_through_a_second_restart(
    spark: SparkSession, tell_of: TellOf, tmp_path: Path, query: Callable[[DataFrame], DataFrame], store: str
) -> None:
    truth = tell_of(query, store)
    laid = edit(truth.pipeline[f"epoch:{CUT}"], as_it_is, tmp_path / "edited", spark=spark)
    outputs = run_from(spark, truth, laid.destination, [STOP])
    assert outputs == after(truth.outputs, CUT)
    assert max(outputs) == BATCHES - 1


@pytest.mark.parametrize("store", [STORE, *OTHERS])
def test_a_change_of_the_second_sum_is_seen_and_no_other_value_moves(
    spark: SparkSession, tell_of: TellOf, tmp_path: Path, store: str
) -> None:
    truth = tell_of(summed, store)
    held = sums_at(truth, CUT)

    def add_to_the_second(rows: DataFrame) -> DataFrame:
        return rows.withColumn("value", F.col("value").withField("sum_2", F.col("value.sum_2") + 1000))

    laid = edit(truth.pipeline[f"epoch:{CUT}"], add_to_the_second, tmp_path / "edited", spark=spark)
    outputs = run_from(spark, truth, laid.destination)
    wanted = {
        batch: sorted(((key, a, b + 1000 * (key in held), *more) for key, a, b, *more in rows), key=repr)
        for batch, rows in after(truth.outputs, CUT).items()
    }
    assert outputs == wanted != after(truth.outputs, CUT)


def test_what_can_not_be_put_back_is_refused_by_name(spark: SparkSession, tell_of: TellOf, tmp_path: Path) -> None:
    maps = tell_of(with_maps, "hdfs").pipeline[f"epoch:{CUT}"]
    with open_state(maps, spark) as state:
        assert state.rows().schema["value"].dataType.names == ["first", "valueSet", "last", "valueSet_2"]  # type: ignore[attr-defined]
    with pytest.raises(StateFixed, match="operator 0"):
        edit(maps, as_it_is, tmp_path / "edited", spark=spark)
    sums = tell_of(summed, STORE).pipeline[f"epoch:{CUT}"]
    for transform, why in (
        (lambda rows: rows.withColumn("value", F.col("value.sum_9")), "sum_9"),
        (lambda rows: rows.select("*", F.struct(F.lit("k1").alias("key")).alias("key")), "AMBIGUOUS"),
        (lambda rows: rows.where("raise_error('never so') IS NULL"), "never so"),
    ):
        with pytest.raises(BadValue, match=why):
            edit(sums, transform, tmp_path / "edited", spark=spark)
    assert list(tmp_path.iterdir()) == []
