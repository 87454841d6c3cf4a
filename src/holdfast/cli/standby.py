"""`holdfast standby`: a repository that follows another, and what takes over from it."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from holdfast.cli.common import Session, verb
from holdfast.cli.ends import ENDS, Ends
from holdfast.cli.loading import load_pipeline
from holdfast.cli.render import show_block
from holdfast.cli.run import ACCEPT, DISCARD, HOME, TRIGGER, run_until_told, trigger_of
from holdfast.cli.told import run_beside_signals
from holdfast.errors import (
    BadKey,
    Damage,
    FormatTooNew,
    HoldfastError,
    KeyMissing,
    NotACopy,
    NotEncrypted,
    NotFound,
    StoreError,
    WouldDecrypt,
    WrongKey,
)
from holdfast.text import amount, clean, size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.copying import Uncopied
    from holdfast.handles import Repository
    from holdfast.standby import Event, Failed, Followed, Lag

__all__ = ["command"]

PATIENCE = 10.0
"""For how long one request to a store is tried again: the loop is patient enough, and must hear that it shall stop."""
LAST_LOOK = 5.0
"""The same for the source of an activation, which is more likely gone than not."""
DAMAGE = 3
UNFETCHED = (StoreError, NotFound, Damage, FormatTooNew, BadKey, KeyMissing, WrongKey, NotEncrypted, WouldDecrypt)
"""What may be wrong with the source of an activation without stopping it."""


@verb(
    "standby",
    *ENDS,
    click.Option(["--every"], default="10s", show_default=True, metavar="DURATION", help="How often to look: 10s, 5m."),
    click.Option(["--once"], is_flag=True, help="One round, then end: with what went wrong, if something did."),
    click.Option(["--activate"], metavar="MODULE:ATTR", help="Take this pipeline over and run it from DST."),
    click.Option(
        ["--checkpoints", "checkpoints"],
        default="30s",
        show_default=True,
        metavar="WHEN",
        help="With --activate: how often to take one.",
    ),
    TRIGGER,
    *HOME,
    ACCEPT,
    DISCARD,
    repository=False,
    examples="""
    holdfast standby s3://bucket/holdfast az://container/standby --init
    holdfast standby s3://bucket/holdfast /backup/holdfast --every 5m -p orders -p clicks --json
    holdfast standby s3://bucket/holdfast az://container/standby --activate jobs.orders:pipeline
    """,
)
def command(
    session: Session,
    pipelines: tuple[str, ...],
    every: str,
    once: bool,
    activate: str | None,
    checkpoints: str,
    trigger: str | None,
    checkpoint_dir: str | None,
    dir_option: tuple[tuple[str, str], ...],
    accept: tuple[str, ...],
    discard_foreign: bool,
    **given: Any,
) -> None:
    """Keep repository DST up with SRC, until it is told to stop.

    Each round brings what is new at SRC, every byte verified, at the cost of what is new. A line tells of each
    checkpoint that has arrived and of the lag; with --json each round is one line for each pipeline. What fails, at
    either end, is shown and tried again for ever: both stores may go away and come back, disks that are not mounted
    included. SIGTERM and SIGINT end it. A checkpoint that is damaged in SRC is not copied; with --once the command then
    ends with 3. A pipeline that was activated or written to in DST has diverged and is followed no more: with the last
    one of them the command ends, with 5.

    With --activate the pipeline MODULE:ATTR is taken over, now: what SRC still has is fetched if it answers and can be
    read, and what may be missing is said. The sinks are fenced, so whoever ran the pipeline before can write to none of
    them any more; what they hold beyond the copy is taken back, and is run again. It then runs as `holdfast run` does,
    from DST, and is started again with `holdfast run --repo DST`. Refused (6) if DST is no copy, or a sink can't go
    back.
    """
    ends = Ends(session, given, PATIENCE)
    if activate is not None:
        if once or pipelines:
            raise click.UsageError("--once and -p do not go with --activate: MODULE:ATTR names the pipeline.")
        run: dict[str, Any] = {"checkpoint_dir": checkpoint_dir, "every": checkpoints, "trigger": trigger_of(trigger)}
        run |= {"options": dict(dir_option), "accept": accept, "discard_foreign": discard_foreign}
        _activate(session, ends, activate, run)
        return
    from holdfast.config import Duration
    from holdfast.standby import Standby

    shown = _Shown(session, once)
    seconds = Duration.of(every).seconds
    standby = Standby(ends.both, every_seconds=seconds, pipelines=pipelines, decrypt=ends.decrypt, tell=shown.tell)
    try:
        if once:
            standby.once()
            sys.exit(DAMAGE if shown.is_damaged else 0)
        run_beside_signals(standby.run)
    except HoldfastError as error:
        if error not in shown.told:
            raise
        sys.exit(error.exit_code)
    shown.stopped()


# ---- taking over ----


def _activate(session: Session, ends: Ends, target: str, run: dict[str, Any]) -> None:
    repository = ends.target_alone()
    pipeline = load_pipeline(target)
    stored = repository.pipeline(pipeline.name)
    stored.require()
    known = stored.records.generations()
    if not stored.records.began_elsewhere(known):
        raise NotACopy(pipeline.name, repository.url)
    fetched = _Fetched("it was taken over from here before, in vain")
    if stored.is_copy():
        fetched = _fetch_the_rest(ends, repository, pipeline.name)
    _say_what_is_lost(session, repository, pipeline.name, fetched)
    run_until_told(session, pipeline, repository, None, activate=True, **run)


class _Fetched(NamedTuple):
    """What an activation could not have of its source: why nothing more was fetched, and what is damaged there."""

    missed: str | None
    damaged: Sequence[Uncopied] = ()


def _fetch_the_rest(ends: Ends, repository: Repository, name: str) -> _Fetched:
    """Copy what the source still has. What is wrong with the source alone is told; one that has diverged stops it.

    A take-over that needs the source is none: it may be away, damaged, locked by another key or written by a newer
    Holdfast, and what is here can be run all the same.
    """
    try:
        copied = ends.source(LAST_LOOK).copy_to(repository, name, decrypt=ends.decrypt)
    except UNFETCHED as error:
        return _Fetched(error.message)
    return _Fetched(None, copied.damaged)


def _say_what_is_lost(session: Session, repository: Repository, name: str, fetched: _Fetched) -> None:
    latest = repository.pipeline(name).latest()
    taken_ms = latest.head.timestamp_ms if latest else None
    age = None if taken_ms is None else max(0.0, time.time() - taken_ms / 1000)
    missed, damaged = fetched
    if session.as_json:
        fields = {"slot": latest.slot if latest else None, "epoch": latest.epoch if latest else None}
        lacking = {"source_error": missed, "damaged": [{"slot": slot, "why": why} for slot, why in damaged]}
        _document({"event": "activating", "pipeline": name, **fields, "age_seconds": age, **lacking})
        return
    at = f"{latest.slot}, epoch {latest.epoch}, taken {age:.0f} s ago" if latest and age is not None else "none"
    session.output.remark(f"{name}: the newest checkpoint here: {at}")
    for slot, why in damaged:
        click.echo(clean(f"{name}: {slot} is damaged at the source, and is not here: {why}"), err=True)
    if missed is not None:
        click.echo(clean(f"{name}: the source was not asked for more: {missed}"), err=True)
    if missed is not None or any(latest is None or slot > latest.slot for slot, _ in damaged):
        click.echo(f"{name}: what it ran after that is taken back in the sinks, and run again from here", err=True)
    else:
        session.output.remark(f"{name}: all {'else ' if damaged else ''}that the source holds is here")


# ---- showing ----


def _document(fields: dict[str, Any]) -> None:
    from holdfast.report import iso_time, to_json_line

    click.echo(to_json_line({"time": iso_time(int(time.time() * 1000)), **fields}))


class _Shown:
    """Shows events, one line each."""

    def __init__(self, session: Session, once: bool) -> None:
        self._session = session
        self._once = once
        self._lock = threading.Lock()
        self._checkpoints = self._bytes = self._failures = 0
        self._is_level: set[str] = set()
        self.is_damaged = False
        self.told: list[Exception] = []
        """Errors that may be raised as well: those that ended something, and those of a single round."""

    def tell(self, pipeline: str, event: Event) -> None:
        from holdfast.standby import Ended, Failed, Followed

        with self._lock:
            if isinstance(event, Ended) or (self._once and isinstance(event, Failed)):
                self.told.append(event.error)
            if isinstance(event, Followed):
                self._checkpoints += event.copied.checkpoints
                self._bytes += event.copied.bytes
                self.is_damaged |= bool(event.copied.damaged)
            self._failures += isinstance(event, Failed)
            if self._session.as_json:
                _document({**_fields(event), "pipeline": pipeline or None})
            else:
                self._write(pipeline, event)

    def stopped(self) -> None:
        done = {"checkpoints": self._checkpoints, "bytes": self._bytes, "failures": self._failures}
        if self._session.as_json:
            _document({"event": "stopped", **done})
        else:
            self._session.output.remark(
                f"{self._now()}  stopped: {amount(self._checkpoints, 'checkpoint')}, {size(self._bytes)} copied, "
                f"{amount(self._failures, 'failure')}"
            )

    def _write(self, pipeline: str, event: Event) -> None:
        from holdfast.standby import Behind, Ended, Failed, Followed

        begin = f"{self._now()}  {pipeline or 'all'}"
        if isinstance(event, Followed):
            self._write_followed(begin, pipeline, event)
        elif isinstance(event, Behind):
            self._is_level.discard(pipeline)
            self._session.output.remark(
                f"{begin}  {event.done} of {amount(event.total, 'checkpoint')}; {_lag(event.lag)}"
            )
        elif isinstance(event, Failed):
            self._is_level.discard(pipeline)
            lag = f"; {_lag(event.lag)}" if event.lag is not None else ""
            again = f"again in {event.retry_seconds:.0f} s"
            click.echo(clean(f"{begin}  failed: {event.error}; {again}{lag}"), err=True)
        elif isinstance(event, Ended):
            show_block(f"{pipeline}: {event.error.message}", event.error.code, event.error.hint)
        else:
            self._session.output.remark(f"{begin}  waiting: {event.why}")

    def _write_followed(self, begin: str, pipeline: str, event: Followed) -> None:
        for lost in event.copied.damaged:
            self._is_level.discard(pipeline)
            click.echo(clean(f"{begin}  {lost.slot} was not copied: {lost.why}"), err=True)
        if event.copied.checkpoints or event.copied.removed:
            self._session.output.line(clean(f"{begin}  {_followed(event)}"))
        elif pipeline not in self._is_level:
            self._session.output.remark(clean(f"{begin}  {_newest(event.lag)}; {_lag(event.lag)}"))
        self._is_level.add(pipeline)

    def _now(self) -> str:
        return self._session.time(int(time.time() * 1000))


def _followed(event: Followed) -> str:
    copied = event.copied
    age = f", {event.age_seconds:.1f} s after it was taken" if event.age_seconds is not None else ""
    moved = f"{amount(copied.checkpoints, 'checkpoint')}, {amount(copied.objects, 'object')}, {size(copied.bytes)}"
    gone = f", {len(copied.removed)} removed" if copied.removed else ""
    return f"{_newest(event.lag)}{age}: {moved}{gone}; {_lag(event.lag)}"


def _newest(lag: Lag) -> str:
    return "nothing is there yet" if lag.here is None else f"epoch {lag.here.epoch} is here ({lag.here.slot})"


def _lag(lag: Lag) -> str:
    known = f", newest at the source: epoch {lag.source.epoch}" if lag.source and lag.source != lag.here else ""
    return f"lag {lag.seconds:.0f} s, {size(lag.bytes)}{known}"


def _fields(event: Event) -> dict[str, Any]:
    from holdfast.report import plain
    from holdfast.standby import Behind, Ended, Failed, Followed

    if isinstance(event, Followed):
        moved = {name: value for name, value in plain(event.copied).items() if name != "pipeline"}
        return {"event": "followed", **moved, **_lag_fields(event.lag), "age_seconds": event.age_seconds}
    if isinstance(event, Behind):
        return {"event": "behind", "done": event.done, "total": event.total, **_lag_fields(event.lag)}
    if isinstance(event, Failed):
        lag = _lag_fields(event.lag) if event.lag is not None else {}
        again = {"retry_seconds": event.retry_seconds, "failures": event.failures}
        return {"event": "failed", "error": _error(event), **again, **lag}
    if isinstance(event, Ended):
        return {"event": "ended", "error": event.error}
    return {"event": "waiting", "why": event.why}


def _lag_fields(lag: Lag) -> dict[str, Any]:
    from holdfast.report import plain

    return {
        "source": plain(lag.source),
        "here": plain(lag.here),
        "lag_seconds": round(lag.seconds, 3),
        "lag_bytes": lag.bytes,
    }


def _error(event: Failed) -> Any:
    if isinstance(event.error, HoldfastError):
        return event.error
    return {"code": HoldfastError.code, "message": f"unexpected {type(event.error).__name__}: {event.error}"}
