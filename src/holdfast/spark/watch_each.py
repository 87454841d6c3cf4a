"""Watch many Spark checkpoint directories, such as all below a root, in one process with a few threads.

They are found anew each minute. Each has its own state; one that is refused or fails never keeps the others from their
turn.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from holdfast.errors import BadValue, HoldfastError, ObjectMissing
from holdfast.spark.watch import Ended, Event, Failed, Listener, Waiting, Watcher, WatchStatus, nobody
from holdfast.store.directory import Directory

__all__ = ["WatchEach", "WatchMany", "find_directories", "pipeline_name"]

SCAN = 60.0
TICK = 0.1
THREADS = 4
DEPTH = 8
"""How many folders below the root a checkpoint directory is looked for."""


def find_directories(root: Directory) -> list[str]:
    """The paths, relative to the root, of all Spark checkpoint directories at it and below; "" is the root itself."""
    return sorted(_below(root, "", 0))


def _below(root: Directory, folder: str, depth: int) -> Iterator[str]:
    inside = root.folders(folder)
    if {"offsets", "commits"} <= set(inside) and _is_there(root, f"{folder}/metadata" if folder else "metadata"):
        yield folder
        return
    for name in inside if depth < DEPTH else ():
        # A restore under way is hidden behind a dot until it is whole.
        if not name.startswith("."):
            yield from _below(root, f"{folder}/{name}" if folder else name, depth + 1)


def _is_there(root: Directory, name: str) -> bool:
    try:
        root.read(name)
    except ObjectMissing:
        return False
    return True


def pipeline_name(root_url: str, relative: str) -> str:
    """The pipeline's name for a directory: its path below the root with dots for slashes, or the root's own name."""
    path = relative or root_url.partition("?")[0].rstrip("/").rpartition("/")[2]
    name = re.sub(r"[^A-Za-z0-9._-]", "_", path.replace("/", "."))
    return f"_{name[1:]}" if name.startswith(".") else name


@dataclass
class _Watched:
    relative: str
    watcher: Watcher
    due: float
    running: Future[float] | None = None


class WatchMany:
    """Watches what `find` finds: the directories that go by the name of each pipeline, which should be one.

    `make(pipeline, directory)` gives the watcher of one. A directory that is refused is told once and tried again after
    each scan: a person may have put it right.
    """

    def __init__(
        self,
        find: Callable[[], Mapping[str, Sequence[str]]],
        make: Callable[[str, str], Watcher],
        *,
        threads: int = THREADS,
        tell: Listener = nobody,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._find = find
        self._make = make
        self._threads = threads
        self._tell = tell
        self._clock = clock
        self._watched: dict[str, _Watched] = {}
        self._refused: dict[str, str] = {}
        self._names: frozenset[str] | None = None
        self.scans_failing: int | None = None
        """How many scans in a row have failed, None before the first; `scan_error` is why."""
        self.scan_error = ""
        self._scan: Future[Mapping[str, Sequence[str]]] | None = None
        self._next_scan = float("-inf")

    def status(self) -> dict[str, WatchStatus]:
        """How each watch stands, by the name of its pipeline."""
        return {name: watched.watcher.status() for name, watched in list(self._watched.items())}

    @property
    def found(self) -> frozenset[str] | None:
        """The pipelines of the last scan, None before the first that went well."""
        return self._names

    def refusals(self) -> dict[str, str]:
        """The pipelines that are not captured because a person has to look, and why."""
        looked = {name for name, status in self.status().items() if status.failing is not None}
        names = (self._names or frozenset()) - looked
        return {name: why for name, why in list(self._refused.items()) if name in names}

    def run(self, stop: threading.Event) -> None:
        """Watch until `stop` is set; captures under way are finished first."""
        try:
            with ThreadPoolExecutor(self._threads, thread_name_prefix="holdfast-watch") as pool:
                while not stop.is_set():
                    self.tick(pool)
                    stop.wait(TICK)
        finally:
            for watched in self._watched.values():
                watched.watcher.close()

    def tick(self, pool: ThreadPoolExecutor) -> None:
        """See what has finished, and begin what is due."""
        now = self._clock()
        for name, watched in list(self._watched.items()):
            if watched.running is not None and watched.running.done():
                self._finish(name, watched, now)
        if self._scan is None and now >= self._next_scan:
            self._scan = pool.submit(self._find)
        if self._scan is not None and self._scan.done():
            self._take_in(self._scan, now)
            self._scan, self._next_scan = None, now + SCAN
        for watched in self._watched.values():
            if watched.running is None and now >= watched.due:
                watched.running = pool.submit(watched.watcher.step)

    def _finish(self, name: str, watched: _Watched, now: float) -> None:
        assert watched.running is not None
        error = watched.running.exception()
        if error is None:
            watched.due, watched.running = now + watched.running.result(), None
        elif isinstance(error, HoldfastError):
            # The watcher has told it, and ended.
            self._drop(name)
        else:
            raise error

    def _take_in(self, scan: Future[Mapping[str, Sequence[str]]], now: float) -> None:
        error = scan.exception()
        if isinstance(error, Exception):
            self.scans_failing, self.scan_error = (self.scans_failing or 0) + 1, str(error)
            self._tell("", Failed(error, SCAN))
            return
        self.scans_failing = 0
        names = scan.result()
        for name in [*self._watched]:
            watched = self._watched[name]
            if watched.relative not in names.get(name, ()) and watched.running is None:
                self._tell(name, Waiting("its directory is gone"))
                self._drop(name)
        if not names and self._names != frozenset():
            self._tell("", Waiting("there is no Spark checkpoint directory below"))
        self._names = frozenset(names)
        self._begin(names, now)

    def _begin(self, names: Mapping[str, Sequence[str]], now: float) -> None:
        for name, relatives in names.items():
            if name in self._watched:
                continue
            if len(relatives) > 1:
                self._refuse(name, BadValue(f"pipeline {name!r}", f"{' and '.join(relatives)} would both be called so"))
                continue
            try:
                self._watched[name] = _Watched(relatives[0], self._make(name, relatives[0]), now)
            except HoldfastError as error:
                self._refuse(name, error)

    def _drop(self, name: str) -> None:
        self._watched.pop(name).watcher.close()

    def tell(self, name: str, event: Event) -> None:
        """What the watchers tell: passed on, but for a refusal that was told before."""
        if isinstance(event, Ended):
            self._refuse(name, event.error)
            return
        self._tell(name, event)

    def _refuse(self, name: str, error: HoldfastError) -> None:
        if self._refused.get(name) != str(error):
            self._refused[name] = str(error)
            self._tell(name, Ended(error))


class WatchEach(WatchMany):
    """Watches all directories below a root, each named by its path there."""

    def __init__(
        self,
        root: Directory,
        make: Callable[[str, str], Watcher],
        *,
        tell: Listener = nobody,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(self._below, make, tell=tell, clock=clock)
        self.root = root

    def _below(self) -> dict[str, list[str]]:
        names: dict[str, list[str]] = {}
        for relative in find_directories(self.root):
            names.setdefault(pipeline_name(self.root.url, relative), []).append(relative)
        return names
