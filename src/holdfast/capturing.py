"""Captures from outside, for users: one checkpoint of a Spark query's checkpoint directory, or a watch of it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath

from holdfast.checkpoint import Checkpoint
from holdfast.decide.schedule import Schedule, parse_duration, parse_every
from holdfast.errors import BadValue, NameTaken, NoWholeBatch
from holdfast.handles import Repository, StoredPipeline
from holdfast.layout import check_name
from holdfast.repository.uploads import Limits
from holdfast.restore import Progress
from holdfast.spark.capture import LIMITS, Capturer, NotYet, Taken
from holdfast.spark.cut import Batches
from holdfast.spark.quiet import Stillness, logs_of
from holdfast.spark.watch import Listener, Watcher, nobody
from holdfast.spark.watch_each import WatchEach
from holdfast.store import RetryPolicy, open_directory
from holdfast.store.directory import Directory

__all__ = ["Capture", "capture", "capture_once", "watch_directory", "watch_each"]

Place = str | PathLike[str] | Directory

POLL = 0.5
SHARED = Limits(inline=LIMITS.inline, concurrency=2)
"""Each directory of many has threads of its own, which wait most of the time."""


@dataclass(frozen=True)
class Capture:
    """What a capture took, or found there already.

    `left_out` is a newer batch that is committed, but may not be over: nothing says that the query has stopped.
    """

    checkpoint: Checkpoint
    is_new: bool
    files: int
    files_read: int
    bytes_read: int
    milliseconds: float
    left_out: int | None
    broken: tuple[str, ...] = ()


def capture(
    directory: Place,
    repository: Repository,
    *,
    pipeline: str,
    savepoint: str | None = None,
    stopped: bool = False,
    quiet: str | None = None,
    new_timeline: bool = False,
    options: Mapping[str, str] | None = None,
    file_sink: Place | None = None,
    sink_options: Mapping[str, str] | None = None,
) -> Checkpoint:
    """Take the newest whole batch of a Spark checkpoint directory as a checkpoint; the query may be running.

    The last committed batch counts as whole only if another has begun after it, if you say that the query has
    `stopped`, or if nothing has changed for `quiet` ("90s"), which is waited for. If a checkpoint holds the batch
    already, that one is given (and named). `options` are those of the directory's store. Of a `file_sink` that the
    query writes to the log is kept along, so that a restore can cut it back.
    """
    return capture_once(
        directory,
        repository,
        pipeline=pipeline,
        savepoint=savepoint,
        stopped=stopped,
        quiet=quiet,
        new_timeline=new_timeline,
        options=options,
        file_sink=file_sink,
        sink_options=sink_options,
    ).checkpoint


def capture_once(
    directory: Place,
    repository: Repository,
    *,
    pipeline: str,
    savepoint: str | None = None,
    stopped: bool = False,
    quiet: str | None = None,
    new_timeline: bool = False,
    options: Mapping[str, str] | None = None,
    file_sink: Place | None = None,
    sink_options: Mapping[str, str] | None = None,
    retry: RetryPolicy | None = None,
    progress: Progress | None = None,
) -> Capture:
    """The same, with what it cost. `progress` is told of the seconds that were waited for quiet."""
    if stopped and quiet is not None:
        raise BadValue("stopped and quiet", "a query that has stopped need not be waited for")
    is_over = stopped or quiet is not None
    place, stored = _open(directory, options, retry), repository.pipeline(pipeline)
    logs = logs_of(place).batches
    if savepoint is not None:
        _refuse_taken(stored, savepoint, logs.whole(logs.last_committed if is_over else None))
    if quiet is not None and logs.offsets:
        logs = _wait_for_quiet(place, parse_duration(quiet) / 1000, progress)
    sink = None if file_sink is None else _open(file_sink, sink_options, retry)
    capturer = Capturer(stored.records, place, new_timeline=new_timeline, file_sink=sink)
    began = time.monotonic()
    try:
        outcome = capturer.take(logs.last_committed if is_over else None)
    finally:
        capturer.close()
    if isinstance(outcome, NotYet):
        raise NoWholeBatch(place.url, outcome.why)
    checkpoint = Checkpoint(stored, outcome.manifest.at)
    if savepoint is not None:
        checkpoint.savepoint(savepoint)
    taken = outcome if isinstance(outcome, Taken) else None
    return Capture(
        checkpoint=checkpoint,
        is_new=taken is not None,
        files=len(outcome.manifest.files),
        files_read=taken.files_read if taken else 0,
        bytes_read=taken.bytes_read if taken else 0,
        milliseconds=(time.monotonic() - began) * 1000,
        left_out=outcome.committed if outcome.committed > checkpoint.epoch else None,
        broken=taken.broken if taken else (),
    )


def watch_directory(
    directory: Place,
    repository: Repository,
    *,
    pipeline: str,
    every: str | int | Schedule,
    quiet: str = "90s",
    new_timeline: bool = False,
    options: Mapping[str, str] | None = None,
    file_sink: Place | None = None,
    sink_options: Mapping[str, str] | None = None,
    retry: RetryPolicy | None = None,
    limits: Limits = LIMITS,
    tell: Listener = nobody,
) -> Watcher:
    """A watcher of one directory, which need not be there yet: `run` it in a thread."""
    return Watcher(
        repository.pipeline(pipeline).records,
        _open(directory, options, retry),
        every if isinstance(every, Schedule) else parse_every(every),
        quiet_seconds=parse_duration(quiet) / 1000,
        new_timeline=new_timeline,
        file_sink=None if file_sink is None else _open(file_sink, sink_options, retry),
        limits=limits,
        tell=tell,
    )


def watch_each(
    root: str | PathLike[str],
    repository: Repository,
    *,
    every: str | int | Schedule,
    quiet: str = "90s",
    new_timeline: bool = False,
    options: Mapping[str, str] | None = None,
    retry: RetryPolicy | None = None,
    tell: Listener = nobody,
) -> WatchEach:
    """A watch of every Spark checkpoint directory below a root: `run` it in a thread."""
    place = _open(root, options, retry)

    def make(pipeline: str, relative: str) -> Watcher:
        # Only the address of a cloud has options behind a question mark; on a disk it is part of a name.
        address, question, query = fspath(root).partition("?") if place.costly else (fspath(root), "", "")
        below = f"{address.rstrip('/')}/{relative}" if relative else address
        return watch_directory(
            below + question + query,
            repository,
            pipeline=pipeline,
            every=every,
            quiet=quiet,
            new_timeline=new_timeline,
            options=options,
            retry=retry,
            limits=SHARED,
            tell=each.tell,
        )

    each = WatchEach(place, make, tell=tell)
    return each


def _open(directory: Place, options: Mapping[str, str] | None, retry: RetryPolicy | None) -> Directory:
    return directory if isinstance(directory, Directory) else open_directory(fspath(directory), options, retry)


def _refuse_taken(stored: StoredPipeline, savepoint: str, whole: Sequence[int]) -> None:
    """A name that stands for another checkpoint than the one that would be given it: told before any work."""
    check_name("savepoint", savepoint)
    standing = stored.savepoints().get(savepoint)
    if standing is None:
        return
    newest = stored.latest()
    if newest is None or newest.slot != standing.at or (whole and whole[0] > newest.epoch):
        raise NameTaken(savepoint, str(standing.at))


def _wait_for_quiet(place: Directory, seconds: float, progress: Progress | None) -> Batches:
    stillness = Stillness(place, seconds)
    while True:
        now = time.monotonic()
        logs = logs_of(place)
        if stillness.is_over(logs, now):
            return logs.batches
        if progress is not None:
            progress("waiting until nothing changes", int(stillness.lasted(now)), int(seconds))
        time.sleep(min(POLL, seconds / 10))
