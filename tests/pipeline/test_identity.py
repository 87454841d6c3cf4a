"""What a query is: every change that matters to the state is found in its plan, and no other is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.decide.compatibility import judge
from holdfast.decide.fingerprint import Fingerprint
from holdfast.pipeline.identity import identify
from pipeline.changed_queries import CASES, Case, Query
from spark.workloads import configured

TESTS = Path(__file__).resolve().parents[1]


def of(query: Query, spark: SparkSession, folder: Path) -> Fingerprint:
    with configured(spark, query.conf):
        return identify(query.build(spark, folder), query.query, query.output_mode, {})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_change_is_found_for_what_it_is(case: Case, spark: SparkSession, tmp_path: Path) -> None:
    for source in ("events", "left", "right"):
        (tmp_path / source).mkdir()
    before, after = of(case.before, spark, tmp_path), of(case.after, spark, tmp_path)
    found = {finding.name for finding in judge(before.parts, after.parts)}
    assert found == set(case.found), {
        name: (before.parts.get(name), after.parts.get(name))
        for name in {*before.parts, *after.parts}
        if before.parts.get(name) != after.parts.get(name)
    }


PROGRAM = """
import json, sys
from pathlib import Path
from spark.session import start_session
from pipeline.changed_queries import CASES
from pipeline.test_identity import of
spark = start_session()
spark.range(int(sys.argv[2])).selectExpr("id + 1").count()
print("RESULT", json.dumps([of(case.after, spark, Path(sys.argv[1])).digest for case in CASES]))
"""


def in_another_process(folder: Path, seed: int) -> list[str]:
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(TESTS)]))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), str(seed)],
        env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": str(seed)},
        capture_output=True,
        text=True,
        check=True,
    )
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("RESULT"))
    found: list[str] = json.loads(line.partition(" ")[2])
    return found


def test_a_fingerprint_is_the_same_in_every_process(spark: SparkSession, tmp_path: Path) -> None:
    for source in ("events", "left", "right"):
        (tmp_path / source).mkdir()
    mine = [of(case.after, spark, tmp_path).digest for case in CASES]
    assert in_another_process(tmp_path, 7) == mine
