"""All pipelines of a repository as they were last seen. Nobody looks, nothing is asked of the store.

Whoever looks at a page has its pipelines looked at anew; the others are swept in the background. A sweep asks for one
hint a pipeline, and looks closer only where it has moved.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from holdfast.decide.health import STATUSES, Health, Status, judge
from holdfast.errors import BadName
from holdfast.handles import Repository
from holdfast.ids import now_ms
from holdfast.layout import PIPELINES, check_name
from holdfast.records import Hint
from holdfast.report import Glance, glance, next_step

__all__ = ["Fleet", "Row", "Rules"]

CONCURRENCY = 8
FRESH_SECONDS = 2.0
"""What was seen this short a time ago is shown again."""
CLOSE_LOOK_SECONDS = 30.0
"""How long an unmoved hint is taken for an unmoved pipeline that is on show: a take-over does not move it."""
SWEEP_SECONDS = 30.0
SWEEP_CLOSELY_SECONDS = 300.0
FIRST_SWEEP_SECONDS = 0.5
"""How long the first page waits for the first sweep: small repositories are seen whole at once."""


@dataclass(frozen=True)
class Rules:
    """What counts as late: older than this, or (None) than a pipeline's own usual interval suggests."""

    max_age_ms: int | None = None


@dataclass(frozen=True)
class Seen:
    """A pipeline and when it was looked at. `hint` is what its hint said then; `given_up` and `fenced` are how many
    checkpoints were seen to be given up, and generations to outlive their end, since the first look."""

    glance: Glance
    hint: Hint | None
    looked: float
    looked_closely: float
    given_up: int = 0
    fenced: int = 0


@dataclass(frozen=True)
class Row:
    """A pipeline for the eye: what was seen, and what that means now. `seen` is None before the first look.

    `looked` changes with every close look: what was read after it need not be read again before the next one.
    """

    name: str
    seen: Glance | None = None
    health: Health | None = None
    given_up: int = 0
    fenced: int = 0
    looked: float = 0.0

    @property
    def rank(self) -> tuple[int, str]:
        return (STATUSES.index(self.health.status) if self.health else len(STATUSES), self.name)


class Fleet:
    """Looks at pipelines and remembers what it saw: one small struct each. Safe from several threads; close it."""

    def __init__(self, repository: Repository, rules: Rules | None = None) -> None:
        self._repository = repository
        self._rules = rules or Rules()
        self._seen: dict[str, Seen | None] = {}
        """None: a folder in which there is no pipeline any more."""
        self._found_by_check: dict[str, str] = {}
        self._names: tuple[float, list[str]] | None = None
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(CONCURRENCY, thread_name_prefix="holdfast-look")
        self._sweeper = ThreadPoolExecutor(1, thread_name_prefix="holdfast-sweep")
        self._sweep: Future[None] | None = None
        self._swept = float("-inf")
        self._closed = threading.Event()

    def close(self) -> None:
        self._closed.set()
        self._sweeper.shutdown(wait=True, cancel_futures=True)
        self._pool.shutdown(wait=True, cancel_futures=True)

    # ---- reading ----

    def names(self) -> list[str]:
        """All names, from one listing; what is no name of a pipeline is left out."""
        with self._lock:
            if self._names is not None and time.monotonic() - self._names[0] < FRESH_SECONDS:
                return self._names[1]
        found = [name for name in self._repository.store.folders(PIPELINES) if _is_name(name)]
        with self._lock:
            self._names = (time.monotonic(), found)
            for gone in self._seen.keys() - set(found):
                del self._seen[gone]
        return found

    def rows(self) -> list[Row]:
        """Every pipeline, the ones that need somebody first. Those not looked at yet come last."""
        names = self.names()
        self._begin_sweep(names)
        rows = [self._row(name) for name in names]
        return sorted((row for row in rows if row is not None), key=lambda row: row.rank)

    def look(self, names: Iterable[str]) -> list[Row]:
        """Some pipelines as they are now; those that are not there are left out."""
        wanted = list(names)
        self._look(wanted, FRESH_SECONDS, CLOSE_LOOK_SECONDS)
        return [row for name in wanted if (row := self._row(name)) is not None and row.seen is not None]

    def counts(self, rows: Sequence[Row]) -> Mapping[Status, int]:
        found = dict.fromkeys(STATUSES, 0)
        for row in rows:
            if row.health:
                found[row.health.status] += 1
        return found

    def note_check(self, name: str, problem: str | None) -> None:
        """Remember what a check of a pipeline found, or that it found nothing any more."""
        with self._lock:
            if problem is None:
                self._found_by_check.pop(name, None)
            else:
                self._found_by_check[name] = problem
            self._seen.pop(name, None)

    def forget(self, name: str) -> None:
        """Look anew next time: something was changed from here."""
        with self._lock:
            self._seen.pop(name, None)

    def _row(self, name: str) -> Row | None:
        with self._lock:
            if name not in self._seen:
                return Row(name)
            seen, problem = self._seen[name], self._found_by_check.get(name)
        if seen is None:
            return None
        vitals = seen.glance.vitals(self._rules.max_age_ms)
        if problem and not vitals.problem:
            vitals = replace(vitals, problem=problem)
        health = next_step(judge(name, vitals, now_ms()), seen.glance)
        return Row(name, seen.glance, health, seen.given_up, seen.fenced, seen.looked_closely)

    # ---- looking ----

    def _begin_sweep(self, names: list[str]) -> None:
        with self._lock:
            first = self._sweep is None
            due = time.monotonic() - self._swept > SWEEP_SECONDS
            if not self._closed.is_set() and (self._sweep is None or (self._sweep.done() and due)):
                self._sweep = self._sweeper.submit(self._sweep_all, names)
            sweep = self._sweep
        if first and sweep is not None:
            done = threading.Event()
            sweep.add_done_callback(lambda _: done.set())
            done.wait(FIRST_SWEEP_SECONDS)

    def _sweep_all(self, names: list[str]) -> None:
        for start in range(0, len(names), CONCURRENCY):
            if self._closed.is_set():
                return
            self._look(names[start : start + CONCURRENCY], SWEEP_SECONDS, SWEEP_CLOSELY_SECONDS)
        self._swept = time.monotonic()

    def _look(self, names: Sequence[str], fresh: float, close: float) -> None:
        now = time.monotonic()
        with self._lock:
            stale = [name for name in names if (it := self._seen.get(name)) is None or now - it.looked > fresh]
        for name, seen in zip(stale, self._pool.map(lambda name: self._look_at(name, close), stale), strict=True):
            with self._lock:
                self._seen[name] = seen

    def _look_at(self, name: str, close: float) -> Seen | None:
        now = time.monotonic()
        pipeline = self._repository.pipeline(name)
        with self._lock:
            before = self._seen.get(name)
        hint = pipeline.records.hint()
        if before is not None and before.hint == hint and now - before.looked_closely < close:
            return replace(before, looked=now)
        found = glance(pipeline)
        if found is None:
            return None
        if before is None:
            return Seen(found, hint, now, now)
        return Seen(
            found,
            hint,
            now,
            now,
            before.given_up + len(set(found.given_up) - set(before.glance.given_up)),
            before.fenced + len(set(found.outlived) - set(before.glance.outlived)),
        )


def _is_name(name: str) -> bool:
    try:
        check_name("pipeline", name)
    except BadName:
        return False
    return True
