"""A store and the repository in it: each verb tried on throw-away objects, its clock compared, its records read."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence

from holdfast.doctor.places import examine_local
from holdfast.doctor.result import Result
from holdfast.encryption.opened_with import Keys
from holdfast.errors import HoldfastError
from holdfast.handles import Repository, open_url
from holdfast.layout import PROBES
from holdfast.report import list_pipelines
from holdfast.report.plain import iso_time
from holdfast.repository.root import GivenKey
from holdfast.store import Finding, RetryPolicy, Store, examine, open_directory, open_store
from holdfast.store.address import LocalAddress, MemoryAddress, read_address
from holdfast.text import amount

__all__ = ["examine_repository"]

FUTURE_MS = 120_000
SKEW_SECONDS = 60.0
"""Signed requests are refused at fifteen minutes; long before that, ages and retention by time are off."""

NEEDED_TO_WRITE = {"create", "delete"}
NEEDED_TO_READ = {"get", "get_ranges", "list", "folders"}
UNFIT = "Holdfast can't keep its promises here; use another store."


def examine_repository(
    url: str, options: Mapping[str, str], retry: RetryPolicy | None, key: GivenKey | HoldfastError = "environment"
) -> Iterator[Result]:
    """Try a store, then look at what is in it. For a key that can't be had give why: all else is looked at."""
    if isinstance(key, HoldfastError):
        yield Result("key", "failed", key.message, key.hint)
    try:
        store, address = open_store(url, options, retry), read_address(url, options)
    except HoldfastError as error:
        yield Result("store", "failed", error.message, error.hint)
        return
    if isinstance(address, LocalAddress) and not address.path.is_dir():
        # A probe would make it, and a mistyped path is no reason to leave a folder behind.
        found = f"there is no folder {address.path}"
        yield Result("store", "failed", found, "Correct the path, or let `holdfast init` make it.")
        return
    yield Result("store", "ok", store.url)
    if isinstance(address, LocalAddress):
        yield from examine_local("store", address.path)
    findings = examine(store)
    yield from _verbs(findings)
    works = {finding.verb for finding in findings if finding.ok}
    if works >= NEEDED_TO_WRITE and not isinstance(address, MemoryAddress):
        yield _skew(store, url, options, retry)
    if works >= NEEDED_TO_READ and not isinstance(key, HoldfastError):
        yield from _inside(store, key)


def _verbs(findings: Sequence[Finding]) -> Iterator[Result]:
    advised: set[str] = set()
    for finding in findings:
        what = f"store: {finding.verb}"
        if finding.ok:
            yield Result(what, "ok", "works")
        elif not finding.tried:
            yield Result(what, "none", finding.why)
        else:
            advice = finding.error.hint if finding.error else UNFIT
            # Ten verbs that fail for one reason need its advice once.
            yield Result(what, "failed", finding.why, "" if advice in advised else advice)
            advised.add(advice)


def _skew(store: Store, url: str, options: Mapping[str, str], retry: RetryPolicy | None) -> Result:
    """How far the store's clock is from ours, by the time that it gives a new object."""
    key = f"{PROBES}{secrets.token_hex(16)}/clock"
    try:
        before = time.time()
        store.create(key, b"what time is it?")
        after = time.time()
        as_path = str(local.path) if isinstance(local := read_address(url, options), LocalAddress) else url
        stat = open_directory(as_path, options, retry).look(key.rpartition("/")[0]).stat(key)
    except HoldfastError as error:
        return Result("store: clock", "warning", error.message, error.hint)
    finally:
        with contextlib.suppress(HoldfastError):
            store.delete([key])
    if stat is None:
        return Result("store: clock", "warning", "it could not be told")
    theirs = stat.modified_ns / 1e9
    # In a cloud times are whole seconds.
    skew = 0.0 if before - 1 <= theirs <= after + 1 else theirs - (before + after) / 2
    if abs(skew) <= SKEW_SECONDS:
        return Result("store: clock", "ok", f"{abs(skew):.0f} s from ours" if skew else "the same as ours")
    side = "ahead of" if skew > 0 else "behind"
    advice = (
        "Set the clocks by NTP. Nothing is ordered by them, but signed requests fail at 15 minutes, and ages, alerts "
        "and rules such as --keep-daily are off."
    )
    return Result("store: clock", "warning", f"{abs(skew):.0f} s {side} ours", advice)


def _inside(store: Store, key: GivenKey) -> Iterator[Result]:
    try:
        repository = open_url(store, key=key)
    except HoldfastError as error:
        missing = error.exit_code == 4
        yield Result("repository", "warning" if missing else "failed", error.message, error.hint)
        return
    try:
        names = [pipeline.name for pipeline in repository.pipelines()]
    except HoldfastError as error:
        yield Result("repository", "failed", error.message, error.hint)
        return
    yield Result("repository", "ok", f"{repository.id}, {amount(len(names), 'pipeline')}")
    if repository.keys:
        yield _encryption(repository.keys)
    yield from _pipelines(repository)


def _encryption(keys: Keys) -> Result:
    try:
        others = len(keys.look().keys) - 1
    except HoldfastError as error:
        return Result("encryption", "failed", error.message, error.hint)
    return Result("encryption", "ok", f"opened with the key {keys.used}; {amount(others, 'other key')}")


def _pipelines(repository: Repository) -> Iterator[Result]:
    now_ms = time.time_ns() // 1_000_000
    try:
        rows = list_pipelines(repository)
    except HoldfastError as error:
        yield Result("pipelines", "failed", error.message, error.hint)
        return
    for row in rows:
        if row.problem:
            yield Result(f"pipeline {row.name}", "warning", row.problem, f"Run `holdfast check {row.name}`.")
        elif row.timestamp_ms is not None and row.timestamp_ms > now_ms + FUTURE_MS:
            yield Result(
                f"pipeline {row.name}",
                "warning",
                f"its newest checkpoint is of {iso_time(row.timestamp_ms)}, which is yet to come",
                "This clock or the writer's is off. Nothing is ordered by it, but rules such as --keep-daily are.",
            )
