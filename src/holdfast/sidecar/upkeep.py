"""What is done for a pipeline besides capturing it: look at its newest checkpoint, check, prune, ask its way back.

Each is one call that gives what came of it, and raises what kept it from being done.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from holdfast.check import Fault, verify_integrity
from holdfast.config import ReachTable
from holdfast.decide.alerts import Newest, WayBack
from holdfast.decide.retention import KeepPolicy
from holdfast.encryption.keys import COMMAND, FILE, TEXT
from holdfast.errors import HoldfastError, UserCodeFailed
from holdfast.gc import Removed
from holdfast.handles import Repository, StoredPipeline
from holdfast.layout import Slot
from holdfast.sidecar.memory import Damaged
from holdfast.text import portable

__all__ = ["Asker", "Halted", "ask_in_a_process", "check", "look", "prune", "said", "ways_back"]

KEY_VARIABLES = {TEXT, FILE, COMMAND}
NEWEST = "the newest checkpoint"
HALT = 0.2

Asker = Callable[[str, str], Sequence[Mapping[str, Any]]]
"""Given a pipeline and its MODULE:ATTR: the reach of each of its checkpoints, as `Reach.document` has it."""


class Halted(Exception):
    """The sidecar is to end, and this can be done another time."""


def look(stored: StoredPipeline) -> Newest | None:
    """The newest checkpoint that counts; a few requests, however many there are."""
    newest = stored.latest() if stored.exists() else None
    return None if newest is None else Newest(str(newest.slot), newest.epoch, newest.head.timestamp_ms)


def check(stored: StoredPipeline, read_percent: float, before: Damaged | None, stop: threading.Event) -> Damaged:
    """What is damaged now. What was hit before is read whole: a share drawn at random may miss what another found."""

    def go_on(_what: str, _done: int, _total: int) -> None:
        if stop.is_set():
            raise Halted

    reports = [stored.check(read_percent=read_percent, progress=go_on)]
    standing = {str(slot): slot for slot in stored.world().counted()}
    hit_before = [standing[slot] for slot in before.slots if slot in standing] if before else []
    reports += [verify_integrity(stored.records, slot, go_on) for slot in hit_before]
    faults: dict[Fault, None] = {fault: None for report in reports for fault in report.damaged}
    hit: set[Slot] = set().union(*(report.hit for report in reports))
    return Damaged([portable(f"{fault.where}: {fault.what}") for fault in faults], [str(slot) for slot in sorted(hit)])


def prune(stored: StoredPipeline, policy: KeepPolicy) -> Removed | None:
    """Remove what no rule keeps and what nothing names; None for a copy, which is left to its copier."""
    if stored.is_copy():
        return None
    removed = stored.prune(policy).apply()
    stored.sweep()
    return removed


def ways_back(reach: Sequence[Mapping[str, Any]]) -> list[WayBack]:
    """What somebody may want to go back to, as it stands: every savepoint, and the newest checkpoint.

    What lies off the timeline is left out: that a sink can't go there is no news.
    """
    standing = [row for row in reach if row["on_timeline"]]
    found = []
    for row in standing:
        names = list(row["savepoints"]) or ([NEWEST] if row is standing[-1] else [])
        stuck = {sink: why for sink, why in row["sinks"].items() if why is not None}
        gone = [source["why"] for source in row["sources"] if source["severity"] == "refuse"]
        found += [WayBack(name, stuck, gone, row["replay_until_ms"]) for name in names]
    return found


def ask_in_a_process(repository: Repository, table: ReachTable, folder: Path, stop: threading.Event) -> Asker:
    """Ask by `holdfast list MODULE:ATTR --reach` in a process of its own.

    So the sidecar itself stays without Spark and without anybody's code, and nothing that these do can end it.
    """
    address, key = repository.address, repository.key

    def ask(pipeline: str, code: str) -> Sequence[Mapping[str, Any]]:
        command = [sys.executable, "-m", "holdfast", "list", code, "--reach", "--json"]
        environment = {name: value for name, value in os.environ.items() if name not in KEY_VARIABLES}
        environment["HOLDFAST_REPO"] = address.url
        if key is not None:
            environment[TEXT] = key.text()
        for number, (name, value) in enumerate(address.options.items()):
            # Not as an argument: others can see those.
            environment[f"HOLDFAST_REACH_{number}"] = value
            command += ["--repo-option", f"{name}=env:HOLDFAST_REACH_{number}"]
        out, ended = _run(command, environment, folder, table.timeout.seconds, stop)
        try:
            document = msgspec.json.decode(out)
        except msgspec.DecodeError:
            raise UserCodeFailed(code, f"it ended with {ended} and told nothing") from None
        if "error" in document:
            raise UserCodeFailed(code, document["error"]["message"])
        if document["pipeline"] != pipeline:
            raise UserCodeFailed(code, f"it makes the pipeline {document['pipeline']!r}, not {pipeline!r}")
        rows: Sequence[Mapping[str, Any]] = document["reach"]
        return rows

    return ask


def _run(
    command: Sequence[str], environment: Mapping[str, str], folder: Path, seconds: float, stop: threading.Event
) -> tuple[bytes, int]:
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        cwd=folder,
        start_new_session=True,
    )
    waited = 0.0
    while True:
        try:
            out, _ = process.communicate(timeout=HALT)
            return out, process.returncode
        except subprocess.TimeoutExpired:
            waited += HALT
        if stop.is_set() or waited > seconds:
            # With its whole group: Spark's own process is a child of it.
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            if stop.is_set():
                raise Halted
            raise UserCodeFailed(command[4], f"it did not end within {seconds:g} s")


def said(error: Exception) -> str:
    """An error in words for an alert or a line."""
    return error.message if isinstance(error, HoldfastError) else f"{type(error).__name__}: {error}"
