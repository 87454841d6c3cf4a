"""`holdfast drill --start` of a pipeline whose source is gone: what it ends with, and what each report says."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from cli.sample_repository import Answer, invoke, take_checkpoints
from holdfast import Repository
from holdfast.errors import SourcesGone
from holdfast.pipeline.ledger import Ledger
from holdfast.store import open_store
from pipeline.place import Place
from pipeline.proof import Died, die_at
from servers import kafka_conf
from spark.events import event_file
from spark.session import start_session

MODULE = """
from pathlib import Path
from pipeline.place import Place
from spark.session import start_session


def pipeline():
    return Place(Path(__file__).parent, start_session()).pipeline()
"""
REPORTS = ("drill.txt", "drill.json", "drill.xml")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one session of this process, as the tests of `spark` want it too: Spark is started only once."""
    session = start_session(kafka_conf())
    yield session
    session.stop()


@pytest.fixture
def place(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A pipeline that died after its newest checkpoint, with more epochs decided, and a loop beside it."""
    (tmp_path / "job.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    sys.modules.pop("job", None)
    place = Place(tmp_path, spark)
    take_checkpoints(place.repository.pipeline("orders"), 0, 1)
    place.inputs(6)
    pipeline = place.pipeline()
    pipeline._reach = die_at("committed", 5)
    with pytest.raises((PySparkException, Died)):
        place.run(pipeline, every="3 batches")
    for sink in pipeline.sinks.values():
        sink.close()
    # As the driver does every few seconds.
    records = place.repository.pipeline("sums").records
    known, there = Ledger(open_store(str(place.home / "ledger"))), Ledger(records.store, records.keys.ledger)
    for decision in known.read():
        there.add(decision)
    return place


def objects(repository: Repository) -> dict[str, bytes]:
    return {info.key: repository.store.get(info.key) for info in repository.store.list("")}


def drill(place: Place) -> Answer:
    """Drill all there is, with three reports, and see that nothing but those is new."""
    before, rows = objects(place.repository), place.rows()
    words = ["drill", "--repo", place.repository.url, "--start", "job:pipeline", "--scratch", "scratch"]
    answer = invoke(*words, *(word for report in REPORTS for word in ("--report", report)))
    assert (objects(place.repository), place.rows()) == (before, rows)
    assert [*Path("scratch").iterdir()] == []
    # Whatever is wrong with one, the loop beside it has its turn.
    assert "orders: good 0-1" in answer.out
    return answer


def test_a_file_that_comes_next_and_is_gone_fails_the_start_and_every_report_says_which(place: Place) -> None:
    latest = place.repository.pipeline("sums").latest()
    assert latest is not None
    file = event_file(place.root / "inputs" / "events", latest.epoch + 1)
    file.unlink()
    answer = drill(place)
    gone = f"source events: 1 of 1 files that are to be read again are gone, such as {file.as_uri()}"
    message = f"pipeline 'sums' can't read again what it has to: {gone}"
    assert (answer.code, answer.err) == (SourcesGone.exit_code, "") == (6, "")
    for text in (answer.out, Path("drill.txt").read_text()):
        assert f"sums: FAILED {latest.slot}, epoch {latest.epoch}, taken " in text
        # What is kept is good: that alone is no proof, and is told all the same.
        assert f"a restart goes on after batch {latest.epoch}" in text
        [line] = [line for line in text.splitlines() if line.startswith("  start ")]
        assert line.endswith(f" s  HF-5030: {message}")
    document = json.loads(Path("drill.json").read_text())
    assert (document["ok"], [each["ok"] for each in document["pipelines"]]) == (False, [True, False])
    steps = document["pipelines"][1]["steps"]
    assert [step["name"] for step in steps] == ["find", "restore", "read back", "start"]
    assert [step["error"] for step in steps[:-1]] == [None, None, None]
    error = steps[-1]["error"]
    assert (error["code"], error["message"]) == ("HF-5030", message)
    assert error["fields"] == {"pipeline": "sums", "findings": [gone], "slugs": ["source:events:files-gone"]}
    suites = {suite.get("name"): suite for suite in ElementTree.parse("drill.xml").getroot()}
    assert [(suite.get("tests"), suite.get("failures")) for suite in suites.values()] == [("2", "0"), ("4", "1")]
    [case] = [case for case in suites["sums"] if case.find("failure") is not None]
    failure = case.find("failure")
    assert failure is not None
    assert (case.get("name"), failure.get("type"), failure.get("message")) == ("start", "HF-5030", message)


def test_a_folder_of_inputs_that_is_gone_is_told_as_code_that_can_not_be_loaded_and_what_is_kept_is_good(
    place: Place,
) -> None:
    folder = place.root / "inputs" / "events"
    folder.rename(place.root / "lost")
    answer = drill(place)
    assert answer.code == 1
    for text in (answer.out, Path("drill.txt").read_text()):
        assert "job:pipeline: FAILED" in text
        assert "HF-1108: job:pipeline raised AnalysisException: [PATH_NOT_FOUND]" in text
        assert str(folder) in text
        assert "sums: good " in text
    document = json.loads(Path("drill.json").read_text())
    found = {each["pipeline"]: each for each in document["pipelines"]}
    assert {name: each["ok"] for name, each in found.items()} == {"job:pipeline": False, "orders": True, "sums": True}
    [step] = found["job:pipeline"]["steps"]
    assert (document["ok"], step["name"], step["error"]["code"]) == (False, "load", "HF-1108")
    [failure] = ElementTree.parse("drill.xml").getroot().iter("failure")
    assert failure.get("type") == "HF-1108"
    assert str(folder) in str(failure.get("message"))
