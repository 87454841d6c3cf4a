"""`holdfast doctor`: what is on this machine, what a store can do, and what is missing."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import unquote

from holdfast import __version__
from holdfast.cli.common import Session, verb
from holdfast.cli.render import Column, Styled
from holdfast.text import amount, moment, size

if TYPE_CHECKING:
    from holdfast.handles import Repository

__all__ = ["command"]

NEEDED = ("click", "msgspec", "obstore", "rich")
OPTIONAL = ("cryptography", "numpy", "pyarrow", "pandas", "polars", "pyspark")
LOW_DISK = 1024**3
RELEASED = 1_767_225_600
"""No clock that is right shows a time before 2026."""
FUTURE_MS = 120_000

STYLES = {"ok": "green", "none": "dim", "warning": "yellow", "failed": "bold red"}


class Result(NamedTuple):
    """One thing that was looked at; `none` is a thing that is not there and need not be."""

    what: str
    status: Literal["ok", "none", "warning", "failed"]
    found: str
    advice: str = ""


@verb(
    "doctor",
    examples="""
    holdfast doctor
    holdfast doctor --repo s3://bucket/holdfast --retry-seconds 10
    holdfast doctor --json
    """,
)
def command(session: Session) -> None:
    """Look at this machine and, if a repository is given, try every verb of its store.

    Shows versions, disk space and the clock. With --repo each store verb is tried on throw-away objects, and what
    fails comes with advice. Ends with 1 if something essential fails.
    """
    results = [*_software(), *_disk(), _clock(session)]
    if session.url:
        results += _store(session, session.url)
    failed = any(result.status == "failed" for result in results)
    if session.as_json:
        session.document({"ok": not failed, "results": results})
    else:
        _show(session, results)
    if failed:
        sys.exit(1)


def _show(session: Session, results: list[Result]) -> None:
    rows = [(r.what, Styled(r.status, STYLES[r.status]), r.found) for r in results]
    session.output.table([Column("what"), Column("result"), Column("found", wraps=True)], rows)
    advice = [result for result in results if result.advice]
    for result in advice:
        session.output.line(f"{result.what}: {result.advice}")
    if not session.url:
        session.output.remark("Give --repo URL to try a store as well.")


def _software() -> Iterator[Result]:
    yield Result("python", "ok", f"{platform.python_version()} ({sys.executable})")
    yield Result("holdfast", "ok", __version__)
    for name in NEEDED:
        version = _version(name)
        if version:
            yield Result(name, "ok", version)
        else:
            yield Result(name, "failed", "not installed", f"pip install {name}")
    for name in OPTIONAL:
        version = _version(name)
        yield Result(name, "ok", version) if version else Result(name, "none", "not installed (optional)")


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _disk() -> Iterator[Result]:
    for what, place in (("disk here", os.getcwd()), ("disk for scratch", tempfile.gettempdir())):  # noqa: PTH109
        yield _space(what, place)


def _space(what: str, place: str) -> Result:
    try:
        free = shutil.disk_usage(place).free
    except OSError as error:
        return Result(what, "warning", f"{place}: {error.strerror}")
    found = f"{size(free)} free at {place}"
    if free < LOW_DISK:
        return Result(what, "warning", found, "Little space is left: make room before restoring or running here.")
    return Result(what, "ok", found)


def _clock(session: Session) -> Result:
    now = time.time()
    found = moment(int(now * 1000), utc=session.utc)
    if now < RELEASED:
        return Result(
            "clock", "warning", found, "The clock is behind. Nothing is ordered by it, but signed requests fail."
        )
    return Result("clock", "ok", found)


def _store(session: Session, url: str) -> Iterator[Result]:
    from holdfast.errors import HoldfastError
    from holdfast.handles import open_url
    from holdfast.store import RetryPolicy, examine, open_store

    retry = None if session.retry_seconds is None else RetryPolicy(budget_seconds=session.retry_seconds)
    store = open_store(url, session.options, retry)
    folder = store.url.removeprefix("file://")
    if store.url.startswith("file://") and not Path(unquote(folder)).is_dir():
        # A probe would make it, and a mistyped path is no reason to leave a folder behind.
        yield Result(
            "store", "failed", f"there is no folder {folder}", "Correct the path, or let `holdfast init` make it."
        )
        return
    yield Result("store", "ok", store.url)
    advised: set[str] = set()
    for finding in examine(store):
        if finding.ok:
            yield Result(f"store: {finding.verb}", "ok", "works")
            continue
        advice = finding.error.hint if finding.error else "Holdfast can't keep its promises here; use another store."
        # Ten verbs that fail for one reason need its advice once.
        yield Result(f"store: {finding.verb}", "failed", finding.why, "" if advice in advised else advice)
        advised.add(advice)
    if advised:
        return
    try:
        repository = open_url(store, key=session.key())
    except HoldfastError as error:
        missing = error.exit_code == 4
        yield Result("repository", "warning" if missing else "failed", error.message, error.hint)
        return
    pipelines = repository.pipelines()
    yield Result("repository", "ok", f"{repository.id}, {amount(len(pipelines), 'pipeline')}")
    if repository.keys:
        others = len(repository.keys.look().keys) - 1
        yield Result("encryption", "ok", f"opened with the key {repository.keys.used}; {amount(others, 'other key')}")
    yield from _pipelines(repository)


def _pipelines(repository: Repository) -> Iterator[Result]:
    from holdfast.report import list_pipelines

    now_ms = time.time_ns() // 1_000_000
    for row in list_pipelines(repository):
        if row.problem:
            yield Result(f"pipeline {row.name}", "warning", row.problem, f"Run `holdfast check {row.name}`.")
        elif row.timestamp_ms is not None and row.timestamp_ms > now_ms + FUTURE_MS:
            yield Result(
                f"pipeline {row.name}",
                "warning",
                f"its newest checkpoint is of {moment(row.timestamp_ms, utc=True)}, which is yet to come",
                "This clock or the writer's is off. Nothing is ordered by it, but rules such as --keep-daily are.",
            )
