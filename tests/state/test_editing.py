"""State that was edited: Spark starts from it, and every batch after that is what the edit makes of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import holdfast
from holdfast.errors import BadURL, BadValue, PlaceNotEmpty, StateFixed
from holdfast.records import Owner, unseal
from holdfast.spark.succession import OWNER
from holdfast.state import edit, open_state
from spark.proof import Truth, after, run_from
from spark.workloads import COMBINATIONS
from state.conftest import BATCHES, Tell

CUT = 3
STOP = 5
EDITED = [("by-key", "hdfs", None), ("window-twice", "rocksdb", 1), ("tws-rows", "changelog-2", None)]
EDITABLE: dict[str, list[int | None]] = {
    "by-key": [None],
    "by-key-complete": [None],
    "over-all": [None],
    "window": [None],
    "window-twice": [0, 1],
    "dedup-window": [0],
    "tws-pandas": [None],
    "tws-rows": [None],
}
"""The operators that can be edited; None where the query has no other."""
MORE = [
    (name, store, operator)
    for name, store in COMBINATIONS
    for operator in EDITABLE.get(name, [])
    if (name, store, operator) not in EDITED
]
FIXED = [("join-left-3", "rocksdb", "only aggregations"), ("session-window", "changelog", "only aggregations")]
MORE_FIXED = [("dedup", "changelog", "only aggregations"), ("tws-ttl", "changelog", "go by the clock")]


def as_it_is(rows: DataFrame) -> DataFrame:
    return rows


def plain(rows: DataFrame) -> list[str]:
    return sorted(map(repr, rows.collect()))


def objects(truth: Truth) -> dict[str, bytes]:
    root = Path(truth.pipeline.repository.url.removeprefix("file://"))
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("name", "store", "operator"), [*EDITED, *(pytest.param(*m, marks=pytest.mark.soak) for m in MORE)]
)
def test_an_edit_that_changes_nothing_runs_on_as_the_uninterrupted_run_through_a_second_restart(
    spark: SparkSession, tell: Tell, tmp_path: Path, name: str, store: str, operator: int | None
) -> None:
    truth = tell(name, store)
    before = objects(truth)
    laid = edit(truth.pipeline[f"epoch:{CUT}"], as_it_is, tmp_path / "edited", operator=operator, spark=spark)
    assert laid.epoch == CUT
    assert objects(truth) == before
    assert [path.name for path in tmp_path.iterdir()] == ["edited"]
    outputs = run_from(spark, truth, laid.destination, [STOP])
    assert outputs == after(truth.outputs, CUT)
    assert max(outputs) >= BATCHES - 1


def test_a_changed_aggregate_is_seen_in_every_batch_that_touches_its_key(
    spark: SparkSession, tell: Tell, tmp_path: Path
) -> None:
    truth = tell("by-key", "hdfs")

    def add_to_k4(rows: DataFrame) -> DataFrame:
        more = F.when(F.col("key.key") == "k4", 1000).otherwise(0)
        return rows.withColumn("value", F.col("value").withField("sum", F.col("value.sum") + more))

    laid = edit(truth.pipeline[f"epoch:{CUT}"], add_to_k4, tmp_path / "edited", spark=spark)
    outputs = run_from(spark, truth, laid.destination)
    wanted = {
        batch: sorted((row[0], row[1], row[2] + 1000 * (row[0] == "k4"), row[3]) for row in rows)
        for batch, rows in after(truth.outputs, CUT).items()
    }
    assert {batch: sorted(rows) for batch, rows in outputs.items()} == wanted
    owner = unseal(OWNER, (tmp_path / "edited" / OWNER).read_bytes(), Owner)
    assert owner.epoch == CUT
    assert "add_to_k4" in owner.edits[0]


def test_a_key_taken_out_of_all_variables_and_timers_begins_anew(
    spark: SparkSession, tell: Tell, tmp_path: Path
) -> None:
    truth = tell("tws-rows", "changelog-2")
    checkpoint = truth.pipeline[f"epoch:{CUT}"]
    with open_state(checkpoint, spark) as state:
        held = {row["key"]["key"]: row["value"] for row in state.rows(part="sums").collect()}
    laid = edit(checkpoint, lambda rows: rows.where("key.key <> 'k4'"), tmp_path / "edited", spark=spark)
    outputs = run_from(spark, truth, laid.destination)
    assert "k4" in held

    def sums(batches: dict[int, list[tuple[object, ...]]], key: str) -> list[tuple[object, ...]]:
        return [row for batch in sorted(batches) for row in batches[batch] if row[0] == key and not row[1]]

    told = after(truth.outputs, CUT)
    for key in held.keys() - {"k4"}:
        assert [r for b in sorted(outputs) for r in outputs[b] if r[0] == key] == [
            r for b in sorted(told) for r in told[b] if r[0] == key
        ]
    less = [(k, f, n - held["k4"]["n"], t - held["k4"]["total"]) for k, f, n, t in sums(told, "k4")]  # type: ignore[operator]
    assert sums(outputs, "k4") == less
    assert less


def test_what_was_edited_is_captured_and_goes_on_as_the_pipeline_did(
    spark: SparkSession, tell: Tell, tmp_path: Path
) -> None:
    truth = tell("by-key", "hdfs")
    shutil.copytree(truth.pipeline.repository.url.removeprefix("file://"), tmp_path / "repository")
    repository = holdfast.open(str(tmp_path / "repository"))
    checkpoint = repository.find(f"proof@epoch:{CUT}")
    for fork, pipeline in ((True, "proof-edited"), (False, "proof")):
        place = tmp_path / pipeline
        laid = edit(checkpoint, lambda rows: rows.where("key.key <> 'k4'"), place, spark=spark, fork=fork)
        # The batch has the same number as the checkpoint's, and is not the same.
        taken = holdfast.capture(laid.destination, repository, pipeline=pipeline, stopped=True)
        assert taken.slot != checkpoint.slot or fork
        assert taken.epoch == CUT
        assert taken.verify().faults == []
        with open_state(checkpoint, spark) as one, open_state(taken, spark) as other:
            assert plain(other.rows()) == plain(one.rows().where("key.key <> 'k4'")) != plain(one.rows())
        again = holdfast.capture(laid.destination, repository, pipeline=pipeline, stopped=True)
        assert again.slot == taken.slot


@pytest.mark.parametrize(
    ("name", "store", "why"), [*FIXED, *(pytest.param(*m, marks=pytest.mark.soak) for m in MORE_FIXED)]
)
def test_what_can_not_be_made_again_from_rows_is_refused(
    spark: SparkSession, tell: Tell, tmp_path: Path, name: str, store: str, why: str
) -> None:
    with pytest.raises(StateFixed, match=why):
        edit(tell(name, store).pipeline[f"epoch:{CUT}"], as_it_is, tmp_path / "edited", spark=spark)
    assert not (tmp_path / "edited").exists()


def test_rows_that_can_not_be_its_state_are_refused_and_leave_nothing(
    spark: SparkSession, tell: Tell, tmp_path: Path
) -> None:
    checkpoint = tell("by-key", "hdfs").pipeline[f"epoch:{CUT}"]
    bad = {
        "not a DataFrame": lambda rows: rows.collect(),
        "value is struct<count:bigint": lambda rows: rows.withColumn("value", F.col("value").dropFields("max")),
        "value is not there": lambda rows: rows.select("key"),
        "has 2 rows": lambda rows: rows.union(rows.where("key.key = 'k1'")),
    }
    for why, transform in bad.items():
        with pytest.raises(BadValue, match=why):
            edit(checkpoint, transform, tmp_path / "edited", spark=spark)
    with pytest.raises(BadURL, match="local folder"):
        edit(checkpoint, as_it_is, "s3a://bucket/edited", spark=spark)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "edited").mkdir()
    (tmp_path / "edited" / "mine").touch()
    with pytest.raises(PlaceNotEmpty):
        edit(checkpoint, as_it_is, tmp_path / "edited", spark=spark)
    assert [path.name for path in (tmp_path / "edited").iterdir()] == ["mine"]
