"""A kill at any step leaves the repository as it was and no destination; the same again then goes through."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.state import edit, rescale
from state.conftest import Tell
from state.test_editing import CUT, as_it_is, objects

EDIT_STEPS = ["laid", "rows written", "made again", "put there", "made small", "compared", "before it is moved"]
RESCALE_STEPS = ["laid", "repartitioned", "all compared", "before it is moved"]
OFTEN = {("edit", "put there"), ("rescale", "repartitioned")}
"""Each costs a Spark of its own: those in the middle of the work are always tried, the others in soaks."""

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
    given = [truth.pipeline.repository.url, f"proof@epoch:{CUT}", str(destination), verb, step]
    done = subprocess.run(
        [sys.executable, "-m", "state.victim", json.dumps(given)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr[-2000:]
    assert not destination.exists()
    assert objects(truth) == before

    checkpoint = truth.pipeline[f"epoch:{CUT}"]
    if verb == "edit":
        edit(checkpoint, as_it_is, destination, spark=spark)
    else:
        rescale(checkpoint, destination, 2, spark=spark)
    assert [path.name for path in destination.parent.iterdir()] == ["changed"]
