"""A standby: the pipelines of one repository brought into another as they grow, and how far behind that one is.

It follows until it is told to stop. A store that goes away, at either end, is told, counted and tried again for ever,
and so is a disk that is not mounted; only a pipeline that was activated or written to at the other end is followed no
more. Nothing is printed here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from holdfast.copying import Copied, Copier
from holdfast.errors import (
    BadInput,
    BadName,
    BadValue,
    Damage,
    Diverged,
    HoldfastError,
    ObjectMissing,
    OutcomeUnknown,
    PipelineMissing,
    Refused,
    StoreError,
    StoreUnavailable,
)
from holdfast.handles import Repository
from holdfast.layout import PIPELINES, Slot, check_name
from holdfast.repository.access import each
from holdfast.repository.pipeline import PipelineRecords
from holdfast.repository.presence import require_repository

__all__ = ["Behind", "Ended", "Event", "Failed", "Followed", "Lag", "Listener", "Seen", "Standby", "Waiting"]

FIRST_RETRY, LAST_RETRY = 1.0, 60.0
AT_ONCE = 4
"""How many pipelines are copied at the same time: one that is far behind does not hold the others up."""
TICK = 0.1
TELL_SECONDS = 5.0
"""How often a round that takes long tells how far it is."""


class Seen(NamedTuple):
    """A checkpoint at one of the two ends; None: what it says of itself could not be read."""

    slot: Slot
    epoch: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True)
class Lag:
    """How far the copy of one pipeline is behind.

    The newest checkpoint that the source held `seconds` ago is here, or a newer one, and of what the source is known to
    hold now `bytes` are not: they have not arrived, or are damaged there. None: it could not be told how many, since
    the source went away or can't be read. `source` and `here` are the newest checkpoint at each end, as far as they
    were seen.
    """

    source: Seen | None
    here: Seen | None
    seconds: float
    bytes: int | None


@dataclass(frozen=True)
class Followed:
    """A round went through: what it moved, and how old the newest checkpoint of those was when it had arrived.

    The lag is that of its end. It is not over if `copied.damaged` has what is newest at the source.
    """

    copied: Copied
    lag: Lag
    age_seconds: float | None


@dataclass(frozen=True)
class Behind:
    """A round takes long: so many checkpoints of all that it has to bring are done. Told every few seconds."""

    done: int
    total: int
    lag: Lag


@dataclass(frozen=True)
class Failed:
    """A round failed, and is tried again after so many seconds. `failures` are those since one went through."""

    error: Exception
    retry_seconds: float
    failures: int
    lag: Lag | None


@dataclass(frozen=True)
class Waiting:
    """There is nothing to copy yet, and why; told when the reason changes."""

    why: str


@dataclass(frozen=True)
class Ended:
    """This pipeline is followed no more: the two have diverged."""

    error: HoldfastError


Event: TypeAlias = Followed | Behind | Failed | Waiting | Ended
Listener: TypeAlias = Callable[[str, Event], None]
"""Called with the name of the pipeline, "" for both stores, and what happened, from several threads."""


class _Stop(Exception):
    """Told to stop in the middle of a copy, which can be cut off anywhere."""


class _Follower:
    """One pipeline. `step` is one round, and gives after how many seconds the next is due."""

    def __init__(
        self, source: PipelineRecords, target: PipelineRecords, every: float, tell: Callable[[Event], None]
    ) -> None:
        self._source = source
        self._target = target
        self._copier = Copier(source, target)
        self._every = every
        self._tell = tell
        self._failures = 0
        self._began = time.time()
        self._level_at: float | None = None
        """The newest checkpoint that the source held then is here, or a newer one; None if there was no such time."""
        self._why = ""
        self.due = 0.0
        self.running: Future[float] | None = None
        self.error: HoldfastError | None = None

    def step(self, stop: threading.Event) -> float:
        """Raises Diverged, and what is no failure of a store or a record."""

        began, told = time.time(), time.monotonic()

        def progress(_what: str, done: int, total: int) -> None:
            nonlocal told
            if stop.is_set():
                raise _Stop
            if time.monotonic() >= told + TELL_SECONDS:
                self._tell(Behind(done, total, self._lag()))
                told = time.monotonic()

        try:
            copied = self._copier.copy(progress)
        except _Stop:
            return 0.0
        except PipelineMissing:
            self._wait("the source has no such pipeline yet")
            return self._every
        except (Diverged, BadInput):
            raise
        except Exception as error:  # noqa: BLE001 - told and tried again, whatever it is
            self._failures += 1
            seconds = min(LAST_RETRY, FIRST_RETRY * 2.0 ** min(self._failures - 1, 10))
            self._tell(Failed(error, seconds, self._failures, self._lag()))
            return seconds
        self._failures, self._why = 0, ""
        if not self._ahead():
            self._level_at = began
        lag = self._lag()
        taken_ms = lag.here.timestamp_ms if copied.checkpoints and lag.here is not None else None
        self._tell(Followed(copied, lag, None if taken_ms is None else time.time() - taken_ms / 1000))
        return max(0.0, self._every - (time.time() - began))

    def _wait(self, why: str) -> None:
        if why != self._why:
            self._why = why
            self._tell(Waiting(why))

    def _ahead(self) -> list[Slot]:
        """What is missing here and newer than all that is here; an old one that is damaged holds nobody up."""
        newest = self._copier.newest
        return [slot for slot in self._copier.missing if newest is None or slot > newest]

    def _lag(self) -> Lag:
        """As far as it is known: if the source is away, what was seen of it before is all."""
        newest, ahead = self._copier.newest, self._ahead()
        # What is here was there: whichever of the two answers can tell.
        here = None if newest is None else _seen(newest, self._target, self._source)
        source = _seen(ahead[-1], self._source) if ahead else here
        since = self._level_at
        if since is None:
            # It was level before the first of these was taken, by whoever brought it there.
            taken_ms = _seen(ahead[0], self._source).timestamp_ms if ahead else None
            since = self._began if taken_ms is None else taken_ms / 1000
        return Lag(source, here, max(0.0, time.time() - since), self._missing_bytes())

    def _missing_bytes(self) -> int | None:
        is_away = False

        def new_bytes(slot: Slot) -> int | None:
            nonlocal is_away
            try:
                return None if is_away else self._source.head(slot).bytes_new
            except ObjectMissing:
                # Pruned meanwhile: nothing of it is missing here any more.
                return 0
            except StoreError:
                is_away = True
            except HoldfastError:
                # It can't be read, and nobody knows how much it was.
                pass
            return None

        sizes = each(new_bytes, self._copier.missing)
        return None if None in sizes else sum(size for size in sizes if size is not None)


def _seen(slot: Slot, *ends: PipelineRecords) -> Seen:
    """A checkpoint as the first of these ends tells it that can."""
    for end in ends:
        with suppress(HoldfastError):
            head = end.head(slot)
            return Seen(slot, head.epoch, head.timestamp_ms)
    return Seen(slot)


class Standby:
    """Follows all pipelines of a source, or those of some names, which need not be there yet.

    `ends` opens the repositories, source and target: it is called again for as long as a store does not answer.
    What is encrypted at the source is copied into a target that is not only with `decrypt`.
    """

    def __init__(
        self,
        ends: Callable[[], tuple[Repository, Repository]],
        *,
        every_seconds: float = 10.0,
        pipelines: Sequence[str] = (),
        decrypt: bool = False,
        tell: Listener = lambda _pipeline, _event: None,
    ) -> None:
        self._ends = ends
        self._every = every_seconds
        self._names = [check_name("pipeline", name) for name in dict.fromkeys(pipelines)]
        self._decrypt = decrypt
        self._tell = tell
        self._followers: dict[str, _Follower] = {}
        self._why = ""

    def run(self, stop: threading.Event) -> None:
        """Follow until `stop` is set. Raises Diverged when no pipeline is left to follow, or at the end, if one was."""
        ends = self._open(stop)
        if ends is None:
            return
        looked = float("-inf")
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="holdfast-standby") as pool:
            while not stop.is_set():
                now = time.monotonic()
                if now >= looked + self._every:
                    looked = now
                    self._find(*ends)
                self._tick(pool, stop, now)
                if self._followers and all(each.error for each in self._followers.values()):
                    break
                stop.wait(TICK)
        self._raise_diverged()

    def once(self) -> None:
        """One round over all pipelines. Raises what went wrong, once the others had their turn."""
        never, failed = threading.Event(), list[HoldfastError]()
        source, target = self._ends()
        self._refuse(source, target)
        for name in self._names or [pipeline.name for pipeline in source.pipelines()]:
            stored = source.pipeline(name)
            try:
                stored.require()
                follower = self._follow(stored.records, target.pipeline(name).records, failed)
                follower.step(never)
            except HoldfastError as error:
                self._tell(name, Ended(error))
                failed.append(error)
        if failed:
            raise failed[0]

    def _follow(
        self, source: PipelineRecords, target: PipelineRecords, failed: list[HoldfastError] | None = None
    ) -> _Follower:
        def tell(event: Event) -> None:
            self._tell(source.name, event)
            if failed is not None and isinstance(event, Failed):
                if not isinstance(event.error, HoldfastError):
                    raise event.error
                failed.append(event.error)

        return _Follower(source, target, self._every, tell)

    def _open(self, stop: threading.Event) -> tuple[Repository, Repository] | None:
        failures = 0
        while not stop.is_set():
            try:
                ends = self._ends()
            except (StoreUnavailable, OutcomeUnknown) as error:
                failures += 1
                seconds = min(LAST_RETRY, FIRST_RETRY * 2.0 ** min(failures - 1, 10))
                self._tell("", Failed(error, seconds, failures, None))
                stop.wait(seconds)
                continue
            self._refuse(*ends)
            return ends
        return None

    def _refuse(self, source: Repository, target: Repository) -> None:
        if source.id == target.id:
            raise BadValue("standby", f"{source.url} and {target.url} are the same repository")
        source.require_sealed(target, decrypt=self._decrypt)

    def _find(self, source: Repository, target: Repository) -> None:
        """Take in pipelines that are new. A source that does not answer is told of by those that are followed."""
        try:
            names = self._names or self._new_names(source)
        except HoldfastError as error:
            if not self._followers:
                self._tell("", Failed(error, self._every, 1, None))
            return
        for name in names:
            if name not in self._followers:
                self._followers[name] = self._follow(source.pipeline(name).records, target.pipeline(name).records)
        if not self._followers and not self._why:
            self._why = "the source has no pipeline yet"
            self._tell("", Waiting(self._why))

    def _new_names(self, source: Repository) -> list[str]:
        """Those that are not followed yet; one that can't be read is among them, and tells of it when it is copied."""
        found = []
        require_repository(source.store, source.id)
        for name in source.store.folders(PIPELINES):
            if name not in self._followers:
                with suppress(BadName):
                    try:
                        is_there = source.pipeline(name).exists()
                    except (Damage, Refused):
                        is_there = True
                    found += [name] if is_there else []
        return found

    def _tick(self, pool: ThreadPoolExecutor, stop: threading.Event, now: float) -> None:
        for name, follower in self._followers.items():
            if follower.running is not None and follower.running.done():
                self._finish(name, follower, now)
            if follower.error is None and follower.running is None and now >= follower.due:
                follower.running = pool.submit(follower.step, stop)

    def _finish(self, name: str, follower: _Follower, now: float) -> None:
        assert follower.running is not None
        error = follower.running.exception()
        if error is None:
            follower.due, follower.running = now + follower.running.result(), None
        elif isinstance(error, HoldfastError):
            follower.error, follower.running = error, None
            self._tell(name, Ended(error))
        else:
            raise error

    def _raise_diverged(self) -> None:
        for name, follower in self._followers.items():
            if follower.running is not None and follower.error is None:
                self._finish(name, follower, 0.0)
        for follower in self._followers.values():
            if follower.error is not None:
                raise follower.error
