"""One thread that follows a running query and captures it: on a schedule, on demand, when asked, and at its end.

The query does not wait for it. What fails here is counted, kept and tried again, and never reaches the query.
"""

from __future__ import annotations

import copy
import math
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast import events
from holdfast.decide.schedule import Schedule, ScheduleState, due
from holdfast.errors import (
    BrokenBatch,
    Fenced,
    HoldfastError,
    NotActivated,
    NotAttached,
    NotCapturable,
    NoWholeBatch,
    OtherTimeline,
    StoreError,
)
from holdfast.manifest import Manifest
from holdfast.names import waiting_requests
from holdfast.spark.capture import Capturer, NotYet, Taken
from holdfast.spark.cut import batches_in

if TYPE_CHECKING:
    from holdfast.spark.live import LiveQuery, State

__all__ = ["LAST", "Follower", "Tally"]

LAST = math.inf
"""Asks for the last batch of the query, once it has ended."""

FINAL = (Fenced, OtherTimeline, NotActivated, NotCapturable)
"""What trying again can't change."""

TICK_SECONDS = 1.0
"""How soon the end of the query, or a request from another terminal, is noticed."""
LOOK_SECONDS = 0.02
"""How soon the end of a batch is noticed where somebody waits for it."""
COMMIT_SECONDS = 0.05
"""How soon it is noticed where batches are counted: a look takes little, and they go on for as long as the query."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 60.0
MANY = 1 << 62
EXIT_SECONDS = 30.0
"""How long the interpreter waits at its end for last captures, all together."""


@dataclass
class Tally:
    """What was seen and done so far. `last` may be of an earlier run until this one has taken its first."""

    generation: int | None
    last: Manifest | None
    last_batch: int | None = None
    captures: int = 0
    failures: int = 0
    last_error: str | None = None


@dataclass(eq=False)
class _Demand:
    """Somebody waits for a checkpoint of this batch, or of a newer one."""

    wanted: float
    answer: Future[Manifest] = field(default_factory=Future)


class Follower:
    """Captures one query until it ends, is let go of, or another takes the pipeline over. Safe from several threads.

    The capturer is its own from now on, and is closed at the end. `then` is called once the query has ended and there
    is nothing more to capture of it.
    """

    def __init__(
        self,
        live: LiveQuery,
        capturer: Capturer,
        schedule: Schedule,
        tell: events.Listener = events.nobody,
        then: Callable[[], None] = lambda: None,
    ) -> None:
        self._tell = tell
        self._then = then
        self._live = live
        self._capturer = capturer
        self._schedule = schedule
        self._changed = threading.Condition()
        self._tally = Tally(capturer.generation, capturer.tip)
        self._demands: list[_Demand] = []
        self._woken = self._leaving = self._ended = False
        self._over: HoldfastError | None = None
        self._failure: Exception | None = None
        self._tried: int | None = None
        self._tried_at = self._asked_at = self._retry_at = -math.inf
        self._pause = 0.0
        self._taken_ns = -MANY
        # Commits are seen on the disk, where batches count and the query is at hand to be asked then.
        self._sees = schedule.every_events is not None and not (live.costly or capturer.directory.costly)
        self._thread = threading.Thread(target=self._follow, name="holdfast-attach", daemon=True)
        _following.add(self)
        self._thread.start()

    # ---- for whoever attached ----

    def await_checkpoint(self, wanted: float, timeout: float | None = None) -> Manifest:
        """Give a durable checkpoint of this batch or of a newer one, taking it now; see Attached.checkpoint."""
        demand = _Demand(wanted)
        with self._changed:
            if self._ended and self._tally.last is not None:
                return self._tally.last  # of the last batch: there is nothing newer
            self.refuse_if_over()
            self._demands.append(demand)
            self._tried_at = -math.inf
            self._wake()
        try:
            return demand.answer.result(timeout)
        except TimeoutError:
            raise TimeoutError(f"no checkpoint was durable after {timeout} s") from None
        finally:
            with self._changed:
                self._demands = [other for other in self._demands if other is not demand]

    def refuse_if_over(self) -> None:
        """Raise why nothing is captured any more, if that is so."""
        if self._over is not None:
            raise copy.copy(self._over)

    def leave(self) -> None:
        """Have it capture once more and end."""
        with self._changed:
            self._leaving = True
            self._wake()

    def join(self, timeout: float | None = None) -> Exception | None:
        """Wait for its end and give what the last capture failed with, if it did."""
        self._thread.join(timeout)
        return self._failure

    def tally(self) -> tuple[Tally, HoldfastError | None]:
        """How it stands, and why it is over if it is."""
        with self._changed:
            return copy.copy(self._tally), self._over

    def _wake(self) -> None:
        self._woken = True
        self._changed.notify_all()

    # ---- the thread ----

    def _follow(self) -> None:
        while self._step():
            self._wait()
        self._capturer.close()
        self._capturer.directory.close()
        if self._live.state() != "running":
            self._then()

    def _step(self) -> bool:
        """Look at the query and capture what is due; False when that was the last time."""
        leaving = self._leaving
        ended = False
        try:
            state = self._live.state()
            ended = state != "running"
            known = self._newest_over(state)
            if ended or leaving or self._is_due(known):
                self._capture(known, ended)
        except Exception as error:  # noqa: BLE001 - nothing that goes wrong here may reach the query
            self._note_failure(error)
            if isinstance(error, FINAL):
                self._end(error, error)
            elif leaving or (ended and isinstance(error, BrokenBatch)):
                self._end(NotAttached(self._live.id, "its last batch could not be captured"), error)
            else:
                return True
            return False
        if not ended and not leaving:
            return True
        self._ended = ended
        self._end(NotAttached(self._live.id, "it has ended" if ended else "it was let go of"))
        return False

    def _newest_over(self, state: State) -> int | None:
        """The newest batch that is over.

        A query that was stopped may have committed one more than it told of. One that failed may have, too, but then
        that batch may be what it failed of.
        """
        over = self._live.last_batch()
        if state == "ended":
            committed = batches_in(self._capturer.directory.look()).last_committed
            if committed is not None:
                over = committed if over is None else max(over, min(committed, over + 1))
        with self._changed:
            self._tally.last_batch = over
        return over

    def _is_due(self, known: int | None) -> bool:
        now = time.monotonic()
        with self._changed:
            if self._demands:
                return known != self._tried or now >= self._tried_at + TICK_SECONDS
            if now < self._retry_at:
                return False
            if self._is_scheduled(known):
                return True
        return self._is_asked(now)

    def _is_scheduled(self, known: int | None) -> bool:
        """Whether the schedule wants a batch now that is not captured yet; the first one does not wait."""
        last = self._tally.last
        if known is None or (last is not None and known <= last.epoch):
            return False
        new = known - last.epoch if last is not None else MANY
        return due(self._schedule, ScheduleState(new, self._taken_ns), time.monotonic_ns())

    def _is_asked(self, now: float) -> bool:
        """Whether a savepoint was asked for from another terminal."""
        if now < self._asked_at + TICK_SECONDS:
            return False
        self._asked_at = now
        records = self._capturer.records
        return records.exists() and bool(waiting_requests(records))

    def _capture(self, known: int | None, ended: bool) -> None:
        self._tried, self._tried_at = known, time.monotonic()
        began_ns = time.monotonic_ns()
        outcome = self._capturer.take(known)
        with self._changed:
            self._tally.generation = self._capturer.generation
            self._pause, self._retry_at, self._tally.last_error = 0.0, -math.inf, None
            if isinstance(outcome, NotYet):
                self._refuse_loss(known, outcome.why, ended)
                return
            self._tally.last = outcome.manifest
            if isinstance(outcome, Taken):
                self._tally.captures += 1
                self._taken_ns = began_ns
            answered = [demand for demand in self._demands if demand.wanted <= outcome.manifest.epoch]
            self._demands = [demand for demand in self._demands if demand not in answered]
        for demand in answered:
            demand.answer.set_result(outcome.manifest)
        if isinstance(outcome, Taken):
            self._tell_taken(outcome, (time.monotonic_ns() - began_ns) / 1e9)
        if isinstance(outcome, Taken) and outcome.broken:
            raise BrokenBatch(self._capturer.directory.url, outcome.manifest.epoch + 1, outcome.broken)

    def _tell_taken(self, taken: Taken, seconds: float) -> None:
        manifest = taken.manifest
        size = sum(artifact.size_bytes for _, artifact in manifest.artifacts())
        self._tell(
            events.CheckpointTaken(manifest.at, manifest.epoch, size, taken.files_read, taken.bytes_read, seconds)
        )

    def _refuse_loss(self, known: int | None, why: str, ended: bool) -> None:
        """A query that has ended leaves nothing newer: a batch that was over must be captured, or told to be missed."""
        last = self._tally.last
        if ended and known is not None and (last is None or last.epoch < known):
            raise NoWholeBatch(self._capturer.directory.url, why)

    def _note_failure(self, error: Exception) -> None:
        with self._changed:
            self._tally.failures += 1
            self._tally.last_error = str(error) if isinstance(error, HoldfastError) else repr(error)
            self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS) or FIRST_PAUSE_SECONDS
            self._retry_at = time.monotonic() + self._pause
            failed, self._demands = self._demands, []
        for demand in failed:
            demand.answer.set_exception(error)
        self._tell(events.CaptureFailed(error))

    def _end(self, over: HoldfastError, failure: Exception | None = None) -> None:
        with self._changed:
            self._over, self._failure = over, failure
            waiting, self._demands = self._demands, []
            last = self._tally.last
        nothing = NoWholeBatch(self._capturer.directory.url, "the query ended before its first batch was over")
        for demand in waiting:
            if self._ended and last is not None:
                demand.answer.set_result(last)
            else:
                demand.answer.set_exception(nothing if self._ended else over)
        if isinstance(over, Fenced):
            self._tell(events.TakenOver(over.by))

    def _wait(self) -> None:
        """Wait until there may be something to do."""
        until = time.monotonic() + self._seconds_to_wait()
        is_woken = False
        while not is_woken and (left := until - time.monotonic()) > 0:
            with self._changed:
                nap = min(left, COMMIT_SECONDS) if self._sees else left
                is_woken = self._changed.wait_for(lambda: self._woken, nap)
                self._woken = False
            is_woken |= self._sees and self._has_committed()

    def _seconds_to_wait(self) -> float:
        now = time.monotonic()
        if now < self._retry_at:
            return self._retry_at - now
        batches_count = self._schedule.every_events is not None and not self._sees
        if (self._demands or batches_count) and not self._live.costly:
            return LOOK_SECONDS
        if self._schedule.every_ms is None:
            return TICK_SECONDS
        return max(LOOK_SECONDS, min(TICK_SECONDS, self._taken_ns / 1e9 + self._schedule.every_ms / 1e3 - now))

    def _has_committed(self) -> bool:
        """Whether a batch was committed since the query was asked last.

        A look at one file on a disk takes a hundredth of what the question costs on both sides, so it comes first.
        """
        last = self._tally.last_batch
        try:
            name = f"commits/{0 if last is None else last + 1}"
            return self._capturer.directory.look("commits").stat(name) is not None
        except StoreError:
            return True  # what is wrong there is told by the capture


_following: weakref.WeakSet[Follower] = weakref.WeakSet()


def _leave_all() -> None:
    """Let the last captures end before the interpreter does."""
    until = time.monotonic() + EXIT_SECONDS
    followers = list(_following)
    for follower in followers:
        follower.leave()
    for follower in followers:
        follower.join(max(0.0, until - time.monotonic()))


# An ordinary exit function comes too late: the thread pools that uploads need have been shut down by then.
threading._register_atexit(_leave_all)  # type: ignore[attr-defined]
