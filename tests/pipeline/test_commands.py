"""`holdfast run`, `rewind` and `fork` of a pipeline that a module names, as a user runs them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from cli.sample_repository import invoke
from pipeline.place import Place
from sinks.compaction import compact

TESTS = Path(__file__).resolve().parents[1]
MODULE = """
from pathlib import Path
from holdfast.sinks import Delta, Iceberg
from pipeline.place import Place
from spark.session import start_session

here = Path(__file__).parent
catalog = {
    "name": "test", "type": "sql", "uri": f"sqlite:///{here}/catalog.db", "warehouse": (here / "warehouse").as_uri()
}


def pipeline():
    return Place(here, start_session()).pipeline()


def another():
    place = Place(here, start_session())
    return place.pipeline(place.sinks("-fork"), name="fork")


def chatty():
    made = pipeline()
    query = made.query

    def told(*frames, **more):
        print("looking at it")
        return query(*frames, **more)

    made.query = told
    return made


def tables():
    sinks = {"delta": Delta(str(here / "delta")), "iceberg": Iceberg(catalog, "ns.sums")}
    return Place(here, start_session()).pipeline(sinks)
"""


@pytest.fixture
def place(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A pipeline that the module `job` of the current folder names."""
    place = Place(tmp_path, spark)
    (tmp_path / "job.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_REPO", str(tmp_path / "repository"))
    sys.modules.pop("job", None)
    return place


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_pipeline_is_run_rewound_and_forked_by_its_name(place: Place) -> None:
    place.inputs(6)
    first = invoke("run", "job:pipeline", "--trigger", "now", "--every", "1 batch", "--json")
    assert first.code == 0, first.err
    told = lines(first.out)
    assert told[0]["event"] == "started"
    assert told[0]["state"] == "nothing"
    assert told[-1]["event"] == "ended"
    assert told[-1]["epochs"] >= 6
    epochs = [event["epoch"] for event in told if event["event"] == "committed"]
    assert epochs == sorted(epochs)
    rows = place.rows("log")

    planned = invoke("fork", "job:another", "--to", "sums@epoch:3", "--dry-run")
    assert (planned.code, "fork, from epoch 3: fork of sums@slot:" in planned.out) == (0, True), planned.err
    assert "It would begin there." in planned.out
    assert not place.repository.pipeline("fork").exists()
    assert not (place.root / ".holdfast" / "fork").exists()

    forked = invoke("fork", "job:another", "--to", "sums@epoch:3")
    again = invoke("fork", "job:another", "--to", "sums@epoch:3")
    assert (again.code, again.out) == (0, forked.out)
    planned = invoke("fork", "job:another", "--to", "sums@epoch:3", "--dry-run")
    assert (planned.code, "forked already" in planned.out) == (0, True), planned.err
    assert (forked.code, "Forked sums@epoch:3 as fork@slot:0-0, at epoch 3." in forked.out) == (0, True), forked.err

    back = invoke("rewind", "job:pipeline", "--to", "epoch:3")
    assert back.code == 0, back.err
    assert "goes on from checkpoint" in back.out
    assert "rolled back: log, table" in back.out
    assert len(place.rows("log")) < len(rows)

    again = invoke("run", "job:pipeline", "--trigger", "now")
    assert again.code == 0, again.err
    assert place.rows("log") == place.rows("table") == rows

    other = invoke("run", "job:another", "--trigger", "now")
    assert other.code == 0, other.err
    assert set(place.rows("log", "-fork")) <= set(rows)


def test_what_a_query_prints_goes_to_stderr_and_the_document_stays_whole(place: Place) -> None:
    place.inputs(2)
    place.run(every="1 batch", home=place.root / ".holdfast" / "sums")
    back = ("rewind", "job:chatty", "--to", "epoch:1", "--accept", "query")
    for verb in (("plan", "job:chatty"), ("list", "--reach", "job:chatty"), (*back, "--dry-run"), back):
        told = invoke(*verb, "--json")
        assert (isinstance(json.loads(told.out), dict), "looking at it" in told.err) == (True, True), (verb, told)


def test_a_fork_with_too_little_said_is_told_what_to_say(place: Place) -> None:
    assert invoke("fork", "job:another").code == 2
    assert "no DEST" in invoke("fork", "job:another", "dest", "--to", "sums").err


@pytest.mark.parametrize(
    "option", [("--set-offset", "0:t:0=1"), ("--map-path", "/a=/b"), ("--spark", "4.3"), ("--state-only",)]
)
def test_a_fork_of_a_pipeline_takes_no_option_that_it_would_pass_over(place: Place, option: tuple[str, ...]) -> None:
    refused = invoke("fork", "job:another", "--to", "sums", *option)
    assert (refused.code, f"{option[0]} is for a directory" in refused.err) == (2, True)


@pytest.mark.parametrize("option", [("--accept", "source-added"), ("--checkpoint-dir", "there"), ("--dry-run",)])
def test_a_fork_of_a_directory_takes_no_option_that_it_would_pass_over(place: Place, option: tuple[str, ...]) -> None:
    refused = invoke("fork", "sums", "dest", *option)
    assert (refused.code, f"{option[0]} is for a pipeline" in refused.err) == (2, True)


def test_a_rewind_that_is_only_planned_is_told_the_same_consent_as_one_that_is_done(place: Place) -> None:
    place.inputs(4)
    place.run(every="1 batch", home=place.root / ".holdfast" / "sums")
    max((place.root / "inputs" / "events").glob("*.json"), key=os.path.getmtime).unlink()
    rewind = ("rewind", "job:pipeline", "--to", "epoch:1", "--dry-run")
    refused = invoke(*rewind)
    assert (refused.code, "to accept it: source:events:files-gone" in refused.out) == (6, True), refused.err
    accepted = invoke(*rewind, "--accept", "source:events:files-gone")
    assert (accepted.code, "It would start." in accepted.out) == (0, True), accepted.err


def test_tables_that_others_compacted_go_back_and_rows_of_others_only_if_they_may_be_lost(place: Place) -> None:
    def run(files: int) -> None:
        place.inputs(files)
        done = invoke("run", "job:tables", "--trigger", "now", "--every", "1 batch")
        assert done.code == 0, done.err

    def tables() -> tuple[DeltaTable, Table]:
        return DeltaTable(str(place.root / "delta")), load_catalog(**sys.modules["job"].catalog).load_table("ns.sums")

    def counts() -> list[int]:
        delta, iceberg = tables()
        return [delta.to_pyarrow_table().num_rows, iceberg.scan().to_arrow().num_rows]

    rewind = ("rewind", "job:tables", "--to", "epoch:4")
    run(7)
    whole = counts()
    delta, iceberg = tables()
    assert delta.optimize.compact()["numFilesRemoved"] > 1
    compact(iceberg)
    back = invoke(*rewind)
    assert (back.code, "rolled back: delta, iceberg" in back.out) == (0, True), back.err
    before = counts()
    assert 0 < before[0] == before[1] < whole[0]

    run(7)
    assert counts() == whole
    delta, iceberg = tables()
    write_deltalake(str(place.root / "delta"), delta.to_pyarrow_table().slice(0, 2), mode="append")
    iceberg.append(iceberg.scan().to_arrow().slice(0, 2))
    theirs = [count + 2 for count in whole]
    for dry in (("--dry-run",), ()):
        refused = invoke(*rewind, *dry)
        told = refused.out + refused.err
        assert (refused.code, "WRITE in version" in told, "append in snapshot" in told) == (6, True, True), told
        assert counts() == theirs
    planned = invoke(*rewind, "--dry-run", "--discard-foreign")
    assert (planned.code, "It would start." in planned.out, counts()) == (0, True, theirs), planned.err
    done = invoke(*rewind, "--discard-foreign")
    assert (done.code, counts()) == (0, before), done.err
    run(7)
    assert counts() == whole


@pytest.mark.timeout(300)
def test_a_run_that_is_told_to_stop_ends_with_a_savepoint_after_the_epoch_under_way(place: Place) -> None:
    place.inputs(4)
    command = [sys.executable, "-m", "holdfast", "run", "job:pipeline", "--json", "--savepoint", "v1"]
    known = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([*([known] if known else []), str(TESTS)])
    process = subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if json.loads(line)["event"] == "committed":
            break
    process.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err[-3000:]
    assert lines(out)[-1]["event"] == "ended"
    latest = place.repository.pipeline("sums").latest()
    assert latest is not None
    assert place.repository.find("sums@v1").slot == latest.slot
