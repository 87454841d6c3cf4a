"""What is done for a pipeline besides capturing it: look at its newest checkpoint, check, prune.

Each is one call that gives what came of it, and raises what kept it from being done.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.check import Fault, verify_integrity
from holdfast.decide.alerts import Newest, WayBack
from holdfast.decide.retention import KeepPolicy
from holdfast.errors import HoldfastError
from holdfast.gc import Removed
from holdfast.handles import StoredPipeline
from holdfast.layout import Slot
from holdfast.sidecar.memory import Damaged
from holdfast.sidecar.outside import Halted
from holdfast.text import portable

__all__ = ["check", "look", "prune", "said", "ways_back"]

NEWEST = "the newest checkpoint"


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


def said(error: Exception) -> str:
    """An error in words for an alert or a line."""
    return error.message if isinstance(error, HoldfastError) else f"{type(error).__name__}: {error}"
