"""What is asked of a pipeline's own code, and what its answer means."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.config import Duration, ReachTable
from holdfast.decide.alerts import WayBack
from holdfast.errors import UserCodeFailed
from holdfast.sidecar.upkeep import Halted, ask_in_a_process, ways_back

JOBS = """
from holdfast import Pipeline

class Orders(Pipeline):
    name = "orders"
    def __init__(self):
        pass
    def reach(self, repository):
        return repository.pipelines()

pipeline = Orders()
"""


def row(*savepoints: str, on_timeline: bool = True, **more: Any) -> dict[str, Any]:
    plain = {"sinks": {}, "sources": [], "replay_until_ms": None}
    return {"savepoints": list(savepoints), "on_timeline": on_timeline, **plain, **more}


def test_savepoints_and_the_newest_checkpoint_are_what_somebody_may_go_back_to() -> None:
    reach = [
        row("abandoned", on_timeline=False, sinks={"table": "off the timeline"}),
        row(sinks={"table": "vacuumed"}),
        row("v1", "v2", sinks={"table": "vacuumed", "db": None}, replay_until_ms=5),
        row(sources=[{"severity": "refuse", "why": "trimmed"}, {"severity": "warn", "why": "compacted"}]),
    ]
    assert ways_back(reach) == [
        WayBack("v1", {"table": "vacuumed"}, [], 5),
        WayBack("v2", {"table": "vacuumed"}, [], 5),
        WayBack("the newest checkpoint", {}, ["trimmed"], None),
    ]
    assert ways_back([]) == []


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("no_such_module_here:x", "there is no module no_such_module_here"),
        ("jobs_that_fail:x", "RuntimeError: no database"),
        ("jobs_that_end:x", "it ended with 7 and told nothing"),
        ("jobs_that_hang:x", "it did not end within 3 s"),
    ],
)
def test_code_that_can_not_be_asked_is_told(tmp_path: Path, code: str, why: str) -> None:
    (tmp_path / "jobs_that_fail.py").write_text("raise RuntimeError('no database')")
    (tmp_path / "jobs_that_end.py").write_text("import os; os._exit(7)")
    (tmp_path / "jobs_that_hang.py").write_text("import time; time.sleep(300)")
    repository = holdfast.open(str(tmp_path / "repository"), create=True)
    seconds = Duration("3s") if "hang" in code else Duration("10m")
    ask = ask_in_a_process(repository, ReachTable(timeout=seconds), tmp_path, threading.Event())
    with pytest.raises(UserCodeFailed, match=why):
        ask("orders", code)


def test_code_is_asked_with_the_key_that_the_sidecar_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_KEY_FILE", str(tmp_path / "of another repository"))
    (tmp_path / "jobs_that_answer.py").write_text(JOBS)
    repository = holdfast.open(str(tmp_path / "vault"), create=True, key=holdfast.Key.generate())
    ask = ask_in_a_process(repository, ReachTable(), tmp_path, threading.Event())
    assert ask("orders", "jobs_that_answer:pipeline") == []


def test_an_answer_is_not_waited_for_when_the_sidecar_ends(tmp_path: Path) -> None:
    (tmp_path / "jobs_that_hang.py").write_text("import time; time.sleep(300)")
    repository = holdfast.open(str(tmp_path / "repository"), create=True)
    stop = threading.Event()
    stop.set()
    with pytest.raises(Halted):
        ask_in_a_process(repository, ReachTable(), tmp_path, stop)("orders", "jobs_that_hang:x")
