"""Watch: the captures of one directory, for ever, beside a query that knows nothing of it.

It follows the query through restarts and clean-ups, and survives its own. A capture that fails is counted and tried
again; only what needs a person ends it. Nothing is printed here: what happens is told to whoever listens.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from holdfast.decide.schedule import Schedule
from holdfast.errors import (
    BadInput,
    FormatTooNew,
    HoldfastError,
    NotActivated,
    NotCapturable,
    OtherTimeline,
)
from holdfast.layout import Slot
from holdfast.manifest import Manifest
from holdfast.names import waiting_requests
from holdfast.repository.pipeline import PipelineRecords
from holdfast.repository.uploads import Limits
from holdfast.spark.capture import LIMITS, Capturer, NotYet, Taken
from holdfast.spark.quiet import Logs, Stillness, logs_of
from holdfast.store.directory import Directory

__all__ = ["Captured", "Ended", "Event", "Failed", "Found", "Listener", "Waiting", "WatchStatus", "Watcher", "nobody"]

NEEDS_A_PERSON = (OtherTimeline, NotCapturable, NotActivated, FormatTooNew, BadInput)
CONFIRM = 2.0
"""A refusal ends the watch only if it still holds this much later: a directory that is being deleted looks rewound."""
FIRST_RETRY, LAST_RETRY = 1.0, 60.0
BOUNDS, BOUNDS_COSTLY = (0.2, 1.0), (1.0, 2.0)
"""The least and the most time between two looks, in seconds; where each look is a request they are further apart."""
ASKED_EVERY = 1.0
"""How often to look whether somebody asks for a savepoint."""


@dataclass(frozen=True)
class Captured:
    """A new checkpoint."""

    taken: Taken
    milliseconds: float


@dataclass(frozen=True)
class Found:
    """The newest whole batch is in a checkpoint already: it was there before, or another capture was faster."""

    manifest: Manifest


@dataclass(frozen=True)
class Waiting:
    """There is nothing to capture yet, and why; told when the reason changes."""

    why: str


@dataclass(frozen=True)
class Failed:
    """A capture failed, and is tried again after so many seconds."""

    error: Exception
    retry_seconds: float


@dataclass(frozen=True)
class Ended:
    """The watch of this directory has ended: somebody has to look."""

    error: HoldfastError


Event: TypeAlias = Captured | Found | Waiting | Failed | Ended
Listener: TypeAlias = Callable[[str, Event], None]
"""Called with the name of the pipeline and what happened. It must not raise."""


def nobody(pipeline: str, event: Event) -> None:
    """Nobody listens."""


@dataclass(frozen=True)
class WatchStatus:
    """How a watch stands. `lag` is how many committed batches come after the newest checkpoint.

    `failing` is how many captures in a row have failed, None before the first look that told anything.
    """

    captures: int
    failures: int
    failing: int | None
    last_error: str | None
    last_checkpoint: Slot | None
    last_epoch: int | None
    last_committed: int | None
    lag: int | None
    ended: bool


class Watcher:
    """Watches one directory for one pipeline. `run` it in a thread of its own; `status` may be asked from any other.

    A schedule in events counts batches. When the directory has been quiet for `quiet_seconds` its last committed batch
    is taken too, whatever the schedule says.
    """

    def __init__(
        self,
        records: PipelineRecords,
        directory: Directory,
        schedule: Schedule,
        *,
        quiet_seconds: float = 90.0,
        new_timeline: bool = False,
        file_sink: Directory | None = None,
        limits: Limits = LIMITS,
        tell: Listener = nobody,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.records = records
        self.directory = directory
        self._schedule = schedule
        self._stillness = Stillness(directory, quiet_seconds)
        self._capturer = Capturer(
            records, directory, why="watch", new_timeline=new_timeline, file_sink=file_sink, limits=limits
        )
        self._tell = tell
        self._clock = clock
        self._captures = self._failures = 0
        self._failing: int | None = None
        self._last_error: str | None = None
        self._newest: Manifest | None = None
        self._last_committed: int | None = None
        self._last_stamp: str | None = None
        self._last_taken = self._last_asked = float("-inf")
        self._told: Slot | Waiting | None = None
        self._refused_since: float | None = None
        self._ended = False

    @property
    def pause(self) -> float:
        """Seconds between two looks."""
        least, most = BOUNDS_COSTLY if self.directory.costly else BOUNDS
        return min(most, max(least, (self._schedule.every_ms or 0) / 10_000))

    def status(self) -> WatchStatus:
        newest, committed = self._newest, self._last_committed
        return WatchStatus(
            captures=self._captures,
            failures=self._failures,
            failing=self._failing,
            last_error=self._last_error,
            last_checkpoint=newest.at if newest else None,
            last_epoch=newest.epoch if newest else None,
            last_committed=committed,
            lag=None if committed is None or newest is None else max(0, committed - newest.epoch),
            ended=self._ended,
        )

    def run(self, stop: threading.Event) -> None:
        """Watch until `stop` is set; a capture under way is finished first. Raises the refusal that ended it."""
        try:
            while not stop.is_set():
                stop.wait(self.step())
        finally:
            self.close()

    def close(self) -> None:
        self._capturer.close()

    def step(self) -> float:
        """Look once, capture if that is due, and give the seconds until the next look. Not from several threads.

        Raises only what needs a person: after that the watch has ended.
        """
        try:
            self._look()
        except NEEDS_A_PERSON as refusal:
            return self._refused(refusal)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told, and the watch goes on
            return self._failed(error)
        self._failing = 0
        self._refused_since = None
        return self.pause

    def _look(self) -> None:
        logs = logs_of(self.directory)
        batches = logs.batches
        self._last_committed = batches.last_committed
        now = self._clock()
        is_quiet = self._is_news(logs) and self._stillness.is_over(logs, now)
        known = batches.last_committed if is_quiet else None
        if self._is_due(logs, known, now) or (batches.whole(known) and self._is_asked(now)):
            self._capture(known)
            self._last_stamp = logs.stamp
        elif batches.last_committed is None:
            self._say_once(Waiting("no batch is committed"))
        elif self._capturer.tip is None:
            self._say_once(Waiting(f"batch {batches.last_committed} is committed, and none has begun after it"))

    def _is_news(self, logs: Logs) -> bool:
        """Whether the last commit is not the newest checkpoint's: it is a later one, or the directory began anew."""
        tip, last = self._capturer.tip, logs.batches.last_committed
        return last is not None and (tip is None or last != tip.epoch or logs.stamp != self._last_stamp)

    def _is_due(self, logs: Logs, known: int | None, now: float) -> bool:
        tip, last, whole = self._capturer.tip, logs.batches.last_committed, logs.batches.whole(known)
        if last is None or not whole or not self._is_news(logs):
            return False
        if tip is None or last <= tip.epoch:
            return True  # what it means that a directory went back, or began anew, the capturer says
        if whole[0] <= tip.epoch:
            return False
        every_ms, every_batches = self._schedule.every_ms, self._schedule.every_events
        return (
            known is not None
            or (every_batches is not None and whole[0] - tip.epoch >= every_batches)
            or (every_ms is not None and (now - self._last_taken) * 1000 >= every_ms)
        )

    def _is_asked(self, now: float) -> bool:
        """Whether somebody waits for a savepoint: the newest whole batch is named, if it is captured already too."""
        if now - self._last_asked < ASKED_EVERY or not self.records.exists():
            return False
        self._last_asked = now
        return bool(waiting_requests(self.records))

    def _capture(self, known: int | None) -> None:
        began = self._clock()
        outcome = self._capturer.take(known)
        ended = self._clock()
        if isinstance(outcome, NotYet):
            self._say_once(Waiting(outcome.why))
            return
        self._last_taken, self._newest = began, outcome.manifest
        if isinstance(outcome, Taken):
            self._captures += 1
            self._told = outcome.manifest.at
            self._tell(self.records.name, Captured(outcome, (ended - began) * 1000))
        else:
            self._say_once(Found(outcome.manifest))

    def _say_once(self, what: Waiting | Found) -> None:
        said = what.manifest.at if isinstance(what, Found) else what
        if said != self._told:
            self._told = said
            self._tell(self.records.name, what)

    def _failed(self, error: Exception) -> float:
        self._failures += 1
        self._failing = (self._failing or 0) + 1
        self._last_error = str(error)
        retry = min(LAST_RETRY, FIRST_RETRY * 2.0 ** min(self._failing - 1, 10))
        self._tell(self.records.name, Failed(error, retry))
        return max(retry, self.pause)

    def _refused(self, refusal: HoldfastError) -> float:
        now = self._clock()
        self._capturer.close()
        if self._refused_since is None:
            self._refused_since = now
        if now - self._refused_since < CONFIRM:
            return CONFIRM
        self._ended = True
        self._last_error = str(refusal)
        self._tell(self.records.name, Ended(refusal))
        raise refusal
