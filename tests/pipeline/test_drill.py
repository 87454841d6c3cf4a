"""Drills that start Spark: beside the running pipeline, from what was recorded, and with a source that is gone."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from cli.sample_repository import invoke
from holdfast import Repository
from holdfast.drilling import Drilled, drill_pipeline
from holdfast.errors import SourcesGone
from holdfast.pipeline.ledger import Ledger
from holdfast.store import open_store
from pipeline.place import Place
from pipeline.proof import ALWAYS, Died, Proof, Prove, die_at
from spark.events import event_file
from spark.workloads import STORES, configured

SECONDS = 60
MODULE = """
from pathlib import Path
from pipeline.place import Place
from spark.session import start_session


def pipeline():
    return Place(Path(__file__).parent, start_session()).pipeline()
"""


def objects(repository: Repository) -> dict[str, bytes]:
    return {info.key: repository.store.get(info.key) for info in repository.store.list("")}


def until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_drill_beside_the_running_pipeline_starts_spark_and_changes_nothing(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path, spark)
    (tmp_path / "job.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    sys.modules.pop("job", None)
    place.inputs(3)
    stored = place.repository.pipeline("sums")
    with configured(spark, STORES["changelog-2"]):
        run = place.pipeline().start(place.repository, checkpoint_dir=place.home, every="1 batch", trigger=ALWAYS)
        try:
            until(lambda: (newest := run.status().last_epoch) is not None and newest >= 2)
            # Until nothing moves any more: whatever changes after this is the drill's doing.
            before: dict[str, bytes] = {}
            while before != (now := objects(place.repository)):
                before = now
                time.sleep(1)
            rows = place.rows(), {path: path.read_bytes() for path in (tmp_path / "inputs").rglob("*.json")}
            word = ("drill", "--repo", place.repository.url, "--start", "job:pipeline", "--scratch", "scratch")
            answer = invoke(*word)
            assert answer.code == 0, answer.out + answer.err
            assert "sums: good " in answer.out
            assert "nothing new to read" in answer.out
            assert objects(place.repository) == before
            assert (place.rows(), {path: path.read_bytes() for path in (tmp_path / "inputs").rglob("*.json")}) == rows
            assert [*(tmp_path / "scratch").iterdir()] == []
            assert invoke(*word, "--start", "job:another").code == 2
            place.inputs(4)
            epoch = stored.checkpoints()[-1].epoch
            until(lambda: stored.checkpoints()[-1].epoch > epoch)
            assert run.is_active
        finally:
            run.stop()


def drilled(proof: Proof, spark: SparkSession) -> Drilled:
    return drill_pipeline(proof.stored, proof.root / "scratch", start=proof.pipeline(spark).drill)


def test_the_next_batch_that_was_decided_is_run_as_it_was_and_one_whose_files_are_gone_is_told(
    spark: SparkSession, prove: Prove
) -> None:
    proof = prove("sqlite", "parquet")
    proof.inputs(6)
    with pytest.raises((PySparkException, Died)):
        proof.run(proof.pipeline(spark, reach=die_at("committed", 5)), every="3 batches")
    # As the driver does every few seconds.
    records = proof.stored.records
    known, there = Ledger(open_store(str(proof.home / "ledger"))), Ledger(records.store, records.keys.ledger)
    for decision in known.read():
        there.add(decision)
    before, rows = objects(proof.repository), proof.rows()
    found = drilled(proof, spark)
    assert found.error is None
    assert found.epoch is not None
    assert f"Spark ran batch {found.epoch + 1} into nothing: " in found.steps[-1].said
    assert (objects(proof.repository), proof.rows()) == (before, rows)

    event_file(proof.root / "events", found.epoch + 1).unlink()
    found = drilled(proof, spark)
    assert isinstance(found.error, SourcesGone)
    assert (found.steps[-1].name, found.error.exit_code) == ("start", 6)
    assert objects(proof.repository) == before
