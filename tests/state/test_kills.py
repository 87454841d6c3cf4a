"""A kill at any step leaves the repository as it was and no destination; the same again then goes through."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.state import edit, rescale
from spark.proof import Truth, after, run_from
from spark.soaking import soak_chance, soak_rounds
from state.conftest import Tell
from state.test_editing import CUT, as_it_is, objects

EDIT_STEPS = ["laid", "rows written", "made again", "put there", "made small", "compared", "before it is moved"]
RESCALE_STEPS = ["laid", "repartitioned", "all compared", "before it is moved"]
OFTEN = {("edit", "put there"), ("rescale", "repartitioned")}
"""Each costs a Spark of its own: those in the middle of the work are always tried, the others in soaks."""

AT_RANDOM = [
    ("edit", "by-key", "hdfs"),
    ("edit", "window", "rocksdb"),
    ("edit", "tws-rows", "changelog-2"),
    ("rescale", "window", "rocksdb"),
    ("rescale", "tws-rows", "changelog-2"),
]
"""State in HDFS's own store is not rescaled."""

STEPS = [("edit", step) for step in EDIT_STEPS] + [("rescale", step) for step in RESCALE_STEPS]


@pytest.mark.parametrize(
    ("verb", "step"), [pytest.param(*each, marks=() if each in OFTEN else pytest.mark.soak) for each in STEPS]
)
def test_a_kill_leaves_the_source_untouched_and_no_half_destination(
    spark: SparkSession, tell: Tell, tmp_path: Path, verb: str, step: str
) -> None:
    truth = tell("window", "changelog-2")
    before = objects(truth)
    destination = tmp_path / "place" / "changed"
    temporary = tmp_path / "scratch"
    temporary.mkdir()
    victim = begin(truth, destination, temporary, verb, step)
    out, _ = victim.communicate()
    assert victim.returncode == -signal.SIGKILL, out
    assert not destination.exists()
    assert objects(truth) == before
    change(spark, truth, destination, verb)


@pytest.mark.soak
@pytest.mark.parametrize(("verb", "name", "store"), AT_RANDOM)
def test_a_kill_at_any_instant_leaves_the_source_untouched_and_no_half_destination(
    spark: SparkSession, tell: Tell, tmp_path: Path, verb: str, name: str, store: str
) -> None:
    """The driver alone, whose Java goes on until it notices, or both at once."""
    truth, chance, rounds = tell(name, store), soak_chance(), soak_rounds(10)
    before, counts = objects(truth), Counter[str]()
    temporary = tmp_path / "scratch"
    temporary.mkdir()
    destination = tmp_path / "place" / "whole"
    seconds = lasting(truth, destination, temporary, verb)
    runs_on(spark, truth, destination, verb)
    for number in range(rounds):
        destination = tmp_path / f"place-{number}" / "changed"
        victim = begin(truth, destination, temporary, verb, "")
        time.sleep(chance.uniform(0, seconds))
        if chance.random() < 0.5:
            victim.kill()
        else:
            os.killpg(victim.pid, signal.SIGKILL)
        out, _ = victim.communicate()
        assert objects(truth) == before
        if destination.exists():
            assert [path.name for path in destination.parent.iterdir()] == ["changed"]
        else:
            assert "done" not in out
            change(spark, truth, destination, verb)
        counts["had ended" if "done" in out else "killed"] += 1
        if number in (0, rounds - 1):
            runs_on(spark, truth, destination, verb)
        shutil.rmtree(destination.parent)
    assert counts["killed"]
    print(f"{verb} of {name} on {store}, {rounds} rounds in {seconds:.1f} s each: {dict(counts)}")


def begin(truth: Truth, destination: Path, temporary: Path, verb: str, step: str) -> subprocess.Popen[str]:
    """A process that has Spark at hand, and sets about it now."""
    given = [truth.pipeline.repository.url, f"proof@epoch:{CUT}", str(destination), verb, step]
    victim = subprocess.Popen(
        [sys.executable, "-m", "state.victim", json.dumps(given)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert victim.stdout is not None
    assert victim.stdout.readline() == "begun\n"
    return victim


def lasting(truth: Truth, destination: Path, temporary: Path, verb: str) -> float:
    """How long it takes if nobody interferes."""
    victim, began = begin(truth, destination, temporary, verb, ""), time.monotonic()
    assert victim.communicate()[0] == "done\n"
    return time.monotonic() - began


def change(spark: SparkSession, truth: Truth, destination: Path, verb: str) -> None:
    """The same again, to its end: nothing of the one that was killed is left beside it."""
    checkpoint = truth.pipeline[f"epoch:{CUT}"]
    if verb == "edit":
        edit(checkpoint, as_it_is, destination, spark=spark)
    else:
        rescale(checkpoint, destination, 2, spark=spark)
    assert [path.name for path in destination.parent.iterdir()] == ["changed"]


def runs_on(spark: SparkSession, truth: Truth, destination: Path, verb: str) -> None:
    """What is there is whole: the query goes on from it as if nothing had been."""
    moved = {batch + (verb == "rescale"): rows for batch, rows in after(truth.outputs, CUT).items()}
    assert run_from(spark, truth, str(destination)) == moved
