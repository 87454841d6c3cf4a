"""Verbs that a sidecar runs in processes of their own: what is asked of a pipeline's code, copies and drills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Key, Repository
from holdfast.config import CopyTable, DrillTable, Duration, ReachTable
from holdfast.errors import VerbFailed
from holdfast.sidecar.outside import Halted, Outside
from holdfast.state.scratch import scratch_folder
from spark.directories import MadeDirectory

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
    outside = Outside(repository, tmp_path, threading.Event())
    with pytest.raises(VerbFailed, match=f"`holdfast list {code} --reach` failed: .*{why}"):
        outside.reach(ReachTable(timeout=seconds), "orders", code)


def test_code_is_asked_with_the_key_that_the_sidecar_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_KEY_FILE", str(tmp_path / "of another repository"))
    (tmp_path / "jobs_that_answer.py").write_text(JOBS)
    repository = holdfast.open(str(tmp_path / "vault"), create=True, key=Key.generate())
    outside = Outside(repository, tmp_path, threading.Event())
    assert outside.reach(ReachTable(), "orders", "jobs_that_answer:pipeline") == []


def test_an_answer_is_not_waited_for_when_the_sidecar_ends(tmp_path: Path) -> None:
    (tmp_path / "jobs_that_hang.py").write_text("import time; time.sleep(300)")
    repository = holdfast.open(str(tmp_path / "repository"), create=True)
    stop = threading.Event()
    stop.set()
    with pytest.raises(Halted):
        Outside(repository, tmp_path, stop).reach(ReachTable(), "orders", "jobs_that_hang:x")


# ---- copies and drills ----


def captured(root: Path, repository: Repository, batches: int = 3) -> MadeDirectory:
    made = MadeDirectory(root / "ck", operators=0)
    for _ in range(batches):
        made.batch()
    holdfast.capture(made.root, repository, pipeline="orders")
    return made


def flip(repository: Path) -> None:
    """Flip a bit in the bytes of the newest checkpoint."""
    pack = max(repository.glob("pipelines/*/data/*/pack-0"))
    data = bytearray(pack.read_bytes())
    data[10] ^= 1
    pack.write_bytes(data)


def test_a_copy_brings_what_is_new_and_is_told(tmp_path: Path) -> None:
    repository = holdfast.open(str(tmp_path / "repository"), create=True)
    made = captured(tmp_path, repository)
    other = holdfast.open(str(tmp_path / "other"), create=True)
    outside = Outside(repository, tmp_path, threading.Event())
    table = CopyTable(url=str(tmp_path / "other"))
    assert outside.copy(table, "orders")["checkpoints"] == 1
    made.batch()
    holdfast.capture(made.root, repository, pipeline="orders")
    assert outside.copy(table, "orders")["checkpoints"] == 1
    assert outside.copy(table, "orders")["objects"] == 0
    assert [c.epoch for c in other.pipeline("orders").checkpoints()] == [
        c.epoch for c in repository.pipeline("orders").checkpoints()
    ]


def test_a_copy_of_what_is_damaged_or_to_nowhere_fails_and_says_why(tmp_path: Path) -> None:
    repository = holdfast.open(str(tmp_path / "repository"), create=True)
    captured(tmp_path, repository)
    outside = Outside(repository, tmp_path, threading.Event())
    table = CopyTable(url=str(tmp_path / "other"))
    with pytest.raises(VerbFailed, match=r"`holdfast copy -p orders` failed: .* is not a Holdfast repository"):
        outside.copy(table, "orders")
    holdfast.open(str(tmp_path / "other"), create=True)
    flip(tmp_path / "repository")
    with pytest.raises(VerbFailed, match=r"orders@slot:0-0 was not copied: .*digest"):
        outside.copy(table, "orders")
    flip(tmp_path / "repository")
    repository.find("orders").savepoint("kept")
    [savepoint] = (tmp_path / "repository/pipelines/orders/savepoints/kept").glob("*.json")
    savepoint.write_bytes(savepoint.read_bytes()[:20])
    with pytest.raises(VerbFailed, match=r"savepoints/kept/\d+\.json was not copied"):
        outside.copy(table, "orders")


def test_a_copy_between_encrypted_repositories_takes_both_keys_and_never_decrypts_unasked(tmp_path: Path) -> None:
    key, others = Key.generate(), Key.generate()
    others.save(tmp_path / "key")
    repository = holdfast.open(str(tmp_path / "vault"), create=True, key=key)
    captured(tmp_path, repository)
    holdfast.open(str(tmp_path / "other"), create=True, key=others)
    holdfast.open(str(tmp_path / "same"), create=True, key=key)
    holdfast.open(str(tmp_path / "plain"), create=True, key=None)
    outside = Outside(repository, tmp_path, threading.Event())
    there = CopyTable(url=str(tmp_path / "other"), key_file=str(tmp_path / "key"))
    for table in (there, CopyTable(url=str(tmp_path / "same"))):
        assert outside.copy(table, "orders")["checkpoints"] == 1
    plain = CopyTable(url=str(tmp_path / "plain"))
    with pytest.raises(VerbFailed, match="a copy would lay everything open"):
        outside.copy(plain, "orders")
    assert outside.copy(CopyTable(url=plain.url, decrypt=True), "orders")["checkpoints"] == 1


def test_no_option_of_a_store_is_among_the_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []

    class Started(subprocess.Popen[bytes]):
        def __init__(self, command: list[str], **more: Any) -> None:
            started.append((command, more["env"]))
            super().__init__(["true"], **more)

    monkeypatch.setattr(subprocess, "Popen", Started)
    repository = holdfast.open(str(tmp_path / "repository"), create=True)
    url = "s3://bucket/other?secret_access_key=in-address&region=here"
    table = CopyTable(url=url, options={"access_key_id": "in-options"})
    with pytest.raises(VerbFailed, match="told nothing"):
        Outside(repository, tmp_path, threading.Event()).copy(table, "orders")
    [(command, environment)] = started
    assert "s3://bucket/other?region=here" in command
    assert not [word for word in command if "in-address" in word or "in-options" in word]
    assert {"in-address", "in-options"} <= set(environment.values())


def test_a_drill_proves_the_newest_checkpoint_and_leaves_nothing_behind(tmp_path: Path) -> None:
    repository = holdfast.open(str(tmp_path / "repository"), create=True)
    captured(tmp_path, repository)
    (tmp_path / "scratch").mkdir()
    outside = Outside(repository, tmp_path, threading.Event())
    table = DrillTable(scratch=str(tmp_path / "scratch"))
    drilled = outside.drill(table, "orders", None)
    assert (drilled["slot"], drilled["ok"]) == ("0-0", True)
    assert [step["name"] for step in drilled["steps"]] == ["find", "restore", "read back"]
    with pytest.raises(VerbFailed, match="there is no module no_such_module_here"):
        outside.drill(table, "orders", "no_such_module_here:x")
    flip(tmp_path / "repository")
    with pytest.raises(VerbFailed, match=r"`holdfast drill orders` failed: restore: .*digest"):
        outside.drill(table, "orders", None)
    assert [*(tmp_path / "scratch").iterdir()] == []


KILLED = """
import os, signal, sys, threading
from pathlib import Path
import holdfast
from holdfast.config import DrillTable
from holdfast.sidecar import outside

def die(verb, seconds):
    restored = Path(verb.words[verb.words.index("--scratch") + 1]) / "orders"
    restored.mkdir()
    (restored / "metadata").touch()
    os.kill(os.getpid(), signal.SIGKILL)

outside._Verb.run = die
here = Path(sys.argv[1])
made = outside.Outside(holdfast.open(str(here / "repository")), here, threading.Event())
made.drill(DrillTable(scratch=str(here / "scratch") if sys.argv[2] == "named" else None), "orders", None)
"""


@pytest.mark.parametrize("place", ["named", "system"])
def test_what_a_killed_sidecar_left_of_a_drill_is_removed_by_the_next_and_what_a_living_one_holds_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    repository = holdfast.open(str(tmp_path / "repository"), create=True)
    captured(tmp_path, repository)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    environment = {**os.environ, "TMPDIR": str(scratch)}
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), place], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    [left] = scratch.iterdir()
    assert (left / "orders" / "metadata").exists()

    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    named = str(scratch) if place == "named" else None
    with scratch_folder("drill", named) as living:
        assert [*scratch.iterdir()] == [living]
        (living / "rows").touch()
        assert Outside(repository, tmp_path, threading.Event()).drill(DrillTable(scratch=named), "orders", None)["ok"]
        assert (living / "rows").exists()
    assert [*scratch.iterdir()] == []


def test_what_code_prints_is_not_taken_for_the_answer(tmp_path: Path) -> None:
    noise = 'print("hello from the module", flush=True)\nimport os\nos.write(1, b"and from below it\\n")\n'
    (tmp_path / "jobs_that_print.py").write_text(noise + JOBS)
    repository = holdfast.open(str(tmp_path / "repository"), create=True)
    outside = Outside(repository, tmp_path, threading.Event())
    assert outside.reach(ReachTable(), "orders", "jobs_that_print:pipeline") == []


def test_the_last_words_of_a_process_that_told_nothing_are_told_and_no_secret_is_among_them(tmp_path: Path) -> None:
    words = (
        "import os, sys\nprint('a long story\\n' * 100_000 + 'out of memory', os.environ['HOLDFAST_KEY'])\nos._exit(9)"
    )
    (tmp_path / "jobs_that_die.py").write_text(words.replace("'])", "'], file=sys.stderr, flush=True)"))
    key = Key.generate()
    repository = holdfast.open(str(tmp_path / "vault"), create=True, key=key)
    with pytest.raises(VerbFailed) as told:
        Outside(repository, tmp_path, threading.Event()).reach(ReachTable(), "orders", "jobs_that_die:x")
    end = "it ended with 9 and told nothing; the last that it said: a long story / a long story / out of memory …"
    assert told.value.why == end
    assert key.text() not in str(told.value)
