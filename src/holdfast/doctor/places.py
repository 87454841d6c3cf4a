"""Disks and checkpoint directories: is there room, how long does it take to be durable, can it be read."""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from holdfast.doctor.result import Result
from holdfast.errors import HoldfastError
from holdfast.spark.quiet import logs_of
from holdfast.spark.watch_each import find_directories
from holdfast.store import RetryPolicy, open_directory
from holdfast.store.address import LocalAddress, read_address
from holdfast.store.disk import sync

__all__ = ["examine_directory", "examine_disk", "examine_local"]

LOW_DISK = 1024**3
LOW_SHARE = 0.01
SLOW_SYNC_MS = 100.0
SYNCS = 5


def examine_disk() -> Iterator[Result]:
    """The disks that commands use without being told to."""
    for what, place in (("disk here", Path.cwd()), ("disk for scratch", Path(tempfile.gettempdir()))):
        yield from _room(what, place)


def examine_local(what: str, place: Path) -> Iterator[Result]:
    """A folder that is written durably: the room on its disk, and what a sync of it costs."""
    yield from _room(f"{what}: disk", place)
    yield _syncs(f"{what}: sync", place)


def _room(what: str, place: Path) -> Iterator[Result]:
    try:
        free, files = shutil.disk_usage(place).free, os.statvfs(place)
    except OSError as error:
        yield Result(what, "warning", f"{place}: {error.strerror}")
        return
    found = f"{free / 1024**3:,.1f} GiB free at {place}"
    if free < LOW_DISK:
        yield Result(what, "warning", found, "Little space is left: make room before restoring or running here.")
    elif files.f_files and files.f_favail < files.f_files * LOW_SHARE:
        found += f", and room for {files.f_favail:,} more files"
        yield Result(what, "warning", found, "The disk is out of inodes before it is full: remove small files.")
    else:
        yield Result(what, "ok", found)


def _syncs(what: str, place: Path) -> Result:
    """What a sync costs, on a file that has no name: it is never seen, whatever happens to us."""
    flag = getattr(os, "O_TMPFILE", None)
    if flag is None:
        return Result(what, "none", "not tried: this system has no files without a name")
    try:
        fd = os.open(place, os.O_RDWR | flag, 0o600)
    except OSError as error:
        return Result(what, "none", f"not tried: {error.strerror}")
    try:
        took = []
        for _ in range(SYNCS):
            os.write(fd, b"x" * 4096)
            began = time.monotonic()
            sync(fd)
            took.append((time.monotonic() - began) * 1000)
    except OSError as error:
        return Result(what, "failed", f"{error.strerror}", "What is written here is not kept: use another disk.")
    finally:
        os.close(fd)
    milliseconds = statistics.median(took)
    found = f"{milliseconds:.1f} ms to be on the disk"
    if milliseconds > SLOW_SYNC_MS:
        return Result(what, "warning", found, "Each checkpoint waits for a few of these: use a faster disk.")
    return Result(what, "ok", found)


def examine_directory(
    what: str, url: str, options: Mapping[str, str], retry: RetryPolicy | None, *, is_root: bool = False
) -> Iterator[Result]:
    """A checkpoint directory of Spark, or a root of many. It is only read."""
    try:
        directory = open_directory(url, options, retry)
        if is_root:
            yield _root(what, directory.url, len(find_directories(directory)))
        else:
            batches = logs_of(directory).batches
            folders = directory.folders()
            yield _directory(what, directory.url, batches.last_committed, {"offsets", "commits"} <= {*folders})
        local = read_address(url, options, as_hadoop=True)
    except HoldfastError as error:
        yield Result(what, "failed", error.message, error.hint)
        return
    if isinstance(local, LocalAddress) and local.path.is_dir():
        yield from examine_local(what, local.path)


def _root(what: str, url: str, count: int) -> Result:
    if count:
        return Result(what, "ok", f"{url}: {count} checkpoint directories of Spark")
    return Result(what, "warning", f"{url}: there is no Spark checkpoint directory below", "Correct the path.")


def _directory(what: str, url: str, last: int | None, is_spark: bool) -> Result:
    if last is not None:
        return Result(what, "ok", f"{url}: batch {last} is committed")
    if is_spark:
        return Result(what, "ok", f"{url}: no batch is committed yet")
    advice = "Give the query's checkpointLocation; one that has not started yet comes into being with it."
    return Result(what, "warning", f"{url}: this is no checkpoint directory of Spark", advice)
