"""What would happen is told beforehand, and a query that does not fit the state is refused with nothing touched."""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from cli.sample_repository import invoke
from holdfast.errors import BadValue, QueryChanged
from holdfast.pipeline.pipeline import Pipeline
from holdfast.pipeline.plan import PipelinePlan
from holdfast.sinks import SQLite
from holdfast.spark.explain import kept
from pipeline.place import NOW, Place
from spark.workloads import STORES, configured

SNAPSHOT = re.compile(r"/state/.*(\.zip|/SSTs/)")
CHANGED = ["aggregate-changed", "filter-below-state"]


@pytest.fixture
def place(tmp_path: Path, spark: SparkSession) -> Place:
    return Place(tmp_path, spark)


def changed(events: DataFrame) -> DataFrame:
    late = events.where("value > 9").withColumn("time", F.timestamp_seconds("at")).withWatermark("time", "20 seconds")
    groups = late.groupBy(F.window("time", "15 seconds"), "key")
    return groups.agg(F.count("*").alias("n"), F.max("value").alias("total"))


def with_query(place: Place, query: Callable[[DataFrame], DataFrame]) -> Pipeline:
    pipeline = place.pipeline()
    pipeline.query = query
    return pipeline


def everything(root: Path) -> dict[str, str]:
    """Every file below a folder with its digest; the lock has no content and comes and goes.

    Spark's own maintenance, which runs by the clock in this process, lays snapshots into the state of a query that has
    stopped: they are left out.
    """
    files = (path for path in sorted(root.rglob("*")) if path.is_file() and path.name != "lock")
    told = {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    return {name: digest for name, digest in told.items() if not SNAPSHOT.search(name)}


def test_a_changed_query_is_refused_before_anything_is_touched_and_runs_once_it_is_accepted(place: Place) -> None:
    place.inputs(3)
    place.run()
    place.inputs(5)
    before, pipeline = everything(place.root), with_query(place, changed)
    with pytest.raises(QueryChanged) as refused:
        place.run(pipeline)
    assert refused.value.names == CHANGED
    assert "accept=" in refused.value.hint
    assert everything(place.root) == before
    with pytest.raises(QueryChanged):
        start(place, pipeline, accept=CHANGED[:1])
    start(place, pipeline, accept=CHANGED)
    # From now on it is the query, and needs no consent; the old one does.
    start(place, pipeline)
    with pytest.raises(QueryChanged):
        place.run()
    assert [g.number for g in place.repository.pipeline("sums").generations()] == [0, 1, 2]


def start(place: Place, pipeline: Pipeline, accept: list[str] | tuple[str, ...] = (), home: Path | None = None) -> None:
    with configured(place.spark, STORES["changelog-2"]):
        run = pipeline.start(
            place.repository, checkpoint_dir=home or place.home, every="1 batch", trigger=NOW, accept=accept
        )
        run.await_termination()


def test_an_accepted_change_is_known_in_the_directory_before_any_checkpoint_says_so(place: Place) -> None:
    place.inputs(3)
    place.run()
    newest = place.repository.pipeline("sums").latest()
    assert newest is not None
    place.inputs(5)
    start(place, with_query(place, changed), accept=CHANGED)
    for manifest in sorted((place.root / "repository/pipelines/sums/checkpoints/0000000001").iterdir()):
        manifest.unlink()
    (place.root / "repository/pipelines/sums/latest").unlink()
    with pytest.raises(QueryChanged):
        place.run()


def cut_off(pipeline: Pipeline, step: str) -> None:
    """Have a pipeline die when it reaches a step."""

    def reach(name: str) -> None:
        if name == step:
            raise RuntimeError(step)

    pipeline._reach = reach


@pytest.mark.parametrize("how", ["rewound", "killed when it was laid", "killed before it was noted"])
def test_a_directory_has_the_query_of_the_checkpoint_that_was_laid_there_and_not_of_who_ran_in_the_folder_before(
    place: Place, how: str
) -> None:
    """The folder has a query of its own, and the state in it comes from another folder, where that was changed."""
    place.inputs(3)
    place.run()
    place.inputs(5)
    pipeline = with_query(place, changed)
    start(place, pipeline, accept=CHANGED, home=place.root / "elsewhere")
    if how == "rewound":
        newest = place.repository.pipeline("sums").latest()
        assert newest is not None
        newest.savepoint("before")
        pipeline.rewind(place.repository, to="before", checkpoint_dir=place.home)
    else:
        cut_off(pipeline, "noted" if how.endswith("noted") else "laid")
        with pytest.raises(RuntimeError):
            start(place, pipeline)
        pipeline = with_query(place, changed)
    plan = place.pipeline().plan(place.repository, checkpoint_dir=place.home)
    assert (plan.refused, plan.accept) == (True, CHANGED)
    with pytest.raises(QueryChanged):
        place.run()
    assert not pipeline.plan(place.repository, checkpoint_dir=place.home).refused
    start(place, pipeline)


def test_a_changed_query_that_was_killed_before_it_was_noted_has_changed_nothing(place: Place) -> None:
    place.inputs(3)
    place.run()
    pipeline = with_query(place, changed)
    cut_off(pipeline, "noted")
    with pytest.raises(RuntimeError):
        start(place, pipeline, accept=CHANGED)
    assert not place.pipeline().plan(place.repository, checkpoint_dir=place.home).refused
    assert pipeline.plan(place.repository, checkpoint_dir=place.home).accept == CHANGED


def test_a_name_that_no_change_has_is_refused(place: Place) -> None:
    place.inputs(1)
    with pytest.raises(BadValue, match="fliter"):
        start(place, place.pipeline(), accept=["fliter-below-state"])


def test_a_plan_tells_the_changes_the_sinks_and_the_epochs_and_touches_nothing(place: Place) -> None:
    place.inputs(4)
    place.run(every="3 batches")
    before = everything(place.root)
    with configured(place.spark, {"spark.sql.shuffle.partitions": "7"}):
        plan = with_query(place, changed).plan(place.repository, checkpoint_dir=place.home)
    assert everything(place.root) == before
    assert (plan.state, plan.verdict, plan.refused, plan.accept) == ("warm", "silently wrong", True, CHANGED)
    assert ("spark.sql.shuffle.partitions", "3", "7") in told_as_kept(plan)
    assert {action.sink: action.refused for action in plan.sinks} == {"log": False, "table": False}
    assert "It would be refused, unless each is accepted by name" in str(plan)


def told_as_kept(plan: PipelinePlan) -> list[tuple[str, str | None, str | None]]:
    kept = [finding for finding in plan.findings if finding.verdict == "kept from the checkpoint"]
    return [(finding.where, finding.before, finding.after) for finding in kept]


OTHERWISE = {"true": "false", "false": "true", "min": "max", "lz4": "zstd", "unsaferow": "avro", "1": "2"}
KEPT = {
    "spark.sql.shuffle.partitions",
    "spark.sql.streaming.aggregation.stateFormatVersion",
    "spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion",
    "spark.sql.streaming.join.stateFormatVersion",
    "spark.sql.streaming.multipleWatermarkPolicy",
    "spark.sql.streaming.stateStore.checkpointFormatVersion",
    "spark.sql.streaming.stateStore.compression.codec",
    "spark.sql.streaming.stateStore.providerClass",
    "spark.sql.streaming.stateStore.rocksdb.formatVersion",
}
"""What a query keeps, said by name; a Spark may have more. `test_changes_in_spark.py` tries what comes of it."""


def test_every_setting_that_spark_keeps_is_told_with_what_the_session_has(place: Place) -> None:
    place.inputs(2)
    place.run()
    newest = place.repository.pipeline("sums").latest()
    assert newest is not None
    pinned = kept(newest.manifest)
    del pinned["spark.sql.streaming.queryEvolution.enableSourceEvolution"]  # Spark refuses to start with another.
    assert pinned.keys() >= KEPT
    others = {name: OTHERWISE.get(value, "1") for name, value in pinned.items()}
    others["spark.sql.streaming.stateStore.providerClass"] = next(iter(STORES["hdfs"].values()))
    with configured(place.spark, others):
        plan = place.pipeline().plan(place.repository, checkpoint_dir=place.home)
    assert told_as_kept(plan) == [(name, pinned[name], others[name]) for name in sorted(pinned)]
    assert (plan.verdict, plan.refused) == ("kept from the checkpoint", False)


def test_a_plan_of_a_pipeline_that_never_ran_makes_nothing(place: Place) -> None:
    place.inputs(1)
    before = sorted(place.root.rglob("*"))
    plan = place.pipeline().plan(place.repository, checkpoint_dir=place.home)
    assert sorted(place.root.rglob("*")) == before
    assert (plan.state, plan.verdict, plan.refused, plan.checkpoint) == ("nothing", "compatible", False, None)
    assert "It would start." in str(plan)


def test_a_plan_to_a_checkpoint_says_which_sinks_go_back(place: Place) -> None:
    place.inputs(4)
    place.run(every="1 batch")
    first = place.repository.pipeline("sums").checkpoints()[0]
    first.savepoint("early")
    plan = place.pipeline().plan(place.repository, to="early", checkpoint_dir=place.home)
    assert (plan.state, plan.epoch, plan.verdict) == ("checkpoint", first.epoch, "compatible")
    assert {action.does for action in plan.sinks} == {f"goes back to epoch {first.epoch}"}


def test_a_plan_after_the_loss_of_the_directory_names_the_epochs_that_run_again(place: Place) -> None:
    place.inputs(5)
    place.run(every="1 batch")
    stored = place.repository.pipeline("sums")
    for checkpoint in [c for c in stored.checkpoints() if c.epoch > 2]:
        (place.root / f"repository/pipelines/sums/checkpoints/0000000000/{checkpoint.slot.number:010}.json").unlink()
    for run in place.home.glob("run-*"):
        # Spark's maintenance may still be writing there.
        shutil.rmtree(run, ignore_errors=True)
    (place.root / "repository/pipelines/sums/latest").unlink()
    plan = place.pipeline().plan(place.repository, checkpoint_dir=place.home)
    assert (plan.state, plan.epoch, list(plan.replays)[:1]) == ("checkpoint", 2, [3])


def test_a_sink_that_is_in_the_way_is_named(place: Place) -> None:
    place.inputs(2)
    place.run()
    sinks = {**place.sinks(), "log": SQLite(place.root / "another.db", "sums")}
    plan = place.pipeline(sinks).plan(place.repository, checkpoint_dir=place.home)
    assert plan.refused
    assert [action.sink for action in plan.sinks if action.refused] == ["log"]


MODULE = """
from pathlib import Path
from pyspark.sql import SparkSession
from pipeline.place import Place
from pipeline.test_plan import changed, with_query

place = Place(Path({root!r}), SparkSession.active())
pipeline = place.pipeline()

def another():
    return with_query(place, changed)
"""


def test_the_command_line_ends_with_6_where_a_start_would_be_refused(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.inputs(2)
    place.run()
    (tmp_path / "jobs_to_plan.py").write_text(MODULE.format(root=str(place.root)), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("HOLDFAST_REPO", str(place.root / "repository"))
    where = ["--checkpoint-dir", str(place.home)]
    same = invoke("plan", "jobs_to_plan:pipeline", *where)
    assert (same.code, "It would start." in same.out) == (0, True)
    refused = invoke("plan", "jobs_to_plan:another", *where, "--json")
    assert (refused.code, refused.document["verdict"], refused.document["accept"]) == (6, "silently wrong", CHANGED)
    newest = place.repository.pipeline("sums").latest()
    assert newest is not None
    back = invoke("plan", "jobs_to_plan:another", *where, "--to", f"sums@epoch:{newest.epoch}")
    assert (back.code, "sums@slot:0-" in back.out) == (6, True)
