"""The public suite finds out sinks that break one rule of the contract; `tests/pages` shows one that keeps all."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BAD = Path(__file__).with_name("bad_sinks.py")
PAGE = ROOT / "docs/how-to/own-sink.md"

RACE = "test_a_commit_and_a_take_over_at_once_are_one_after_the_other"
FOUND_BY = {
    "NoFence": "test_a_stale_holder_commits_nothing",
    "LooksThenWrites": RACE,
    "RowsThenMarker": RACE,
    "MarkerThenRows": "test_a_commit_that_fails_halfway_is_seen_in_no_part_and_can_come_again",
    "SkipsByNumber": "test_the_same_epoch_of_another_timeline_is_not_taken_for_the_one_that_is_held",
    "NoChain": "test_an_epoch_that_does_not_join_on_is_refused",
    "TakesLowerGenerations": "test_a_lower_generation_and_another_owner_of_the_same_are_refused",
    "FencesLate": RACE,
    "InMemory": "test_another_process_commits_by_the_token_alone",
    "OddTokens": "test_rows_are_seen_after_the_commit_and_not_before",
    "RefusesLate": "test_a_name_of_a_column_is_taken_or_refused_before_the_decision",
    "KeepsRows": "test_rows_after_a_target_are_taken_back_and_others_come_in_their_place",
    "LosesOthers": "test_going_back_loses_what_others_changed_only_where_it_may",
}


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The tests that each sink fails."""
    here = tmp_path_factory.mktemp("suite")
    for name, code in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        (here / name).write_text(code, encoding="utf-8")
    shutil.copy(BAD, here / "test_bad_sinks.py")
    tests = [f"test_bad_sinks.py::Test{sink}::{test}" for sink, test in FOUND_BY.items()]
    paths = [path for path in (os.environ.get("PYTHONPATH"), str(here)) if path]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rfE", "--no-header", "--tb=no", *tests],
        cwd=here,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    found: dict[str, set[str]] = {}
    for sink, test in re.findall(r"^(?:FAILED|ERROR) test_bad_sinks\.py::Test(\w+)::(\w+)", done.stdout, re.MULTILINE):
        found.setdefault(sink, set()).add(test)
    return found


@pytest.mark.parametrize(("sink", "test"), FOUND_BY.items())
def test_a_broken_rule_is_found_out_by_the_test_of_that_rule(failed: dict[str, set[str]], sink: str, test: str) -> None:
    assert test in failed.get(sink, ())
