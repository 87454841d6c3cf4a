"""`holdfast standby`: a repository that follows another, and what takes over from it."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.activating import activate as take_over
from holdfast.cli.common import Session, verb
from holdfast.cli.ends import ENDS, Ends
from holdfast.cli.render import show_block
from holdfast.cli.run import ACCEPT, DISCARD, HOME, TRIGGER, trigger_of
from holdfast.cli.told import run_beside_signals
from holdfast.errors import HoldfastError
from holdfast.text import amount, clean, size

if TYPE_CHECKING:
    from holdfast.standby import Event, Failed, Followed, Lag

__all__ = ["command"]

PATIENCE = 10.0
"""For how long one request to a store is tried again: the loop is patient enough, and must hear that it shall stop."""
DAMAGE = 3


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
    included. SIGTERM and SIGINT end it. A checkpoint or record that is damaged in SRC is not copied; with --once the
    command then ends with 3. A pipeline that was activated or written to in DST has diverged and is followed no more:
    with the last one of them the command ends, with 5.

    With --activate the pipeline MODULE:ATTR is taken over, now: what SRC still has is fetched if it answers within 5 s
    and can be read, for a minute at most, and what may be missing is said. The sinks are fenced, so whoever ran the
    pipeline before can write to none of them any more; what they hold beyond the copy is taken back, and is run again.
    It then runs as `holdfast run` does, from DST, and is started again with `holdfast run --repo DST`. Refused (6) if
    DST is no copy, or a sink can't go back.
    """
    ends = Ends(session, given, PATIENCE)
    if activate is not None:
        if once or pipelines:
            raise click.UsageError("--once and -p do not go with --activate: MODULE:ATTR names the pipeline.")
        run: dict[str, Any] = {"checkpoint_dir": checkpoint_dir, "every": checkpoints, "trigger": trigger_of(trigger)}
        run |= {"options": dict(dir_option), "accept": accept, "discard_foreign": discard_foreign}
        take_over(session, ends, activate, run)
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


# ---- showing ----


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
                self._session.document_line({**_fields(event), "pipeline": pipeline or None})
            else:
                self._write(pipeline, event)

    def stopped(self) -> None:
        done = {"checkpoints": self._checkpoints, "bytes": self._bytes, "failures": self._failures}
        if self._session.as_json:
            self._session.document_line({"event": "stopped", **done})
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
            what = lost.key if lost.slot is None else lost.slot
            click.echo(clean(f"{begin}  {what} was not copied: {lost.why}"), err=True)
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
    if lag.here is None:
        return "nothing is there yet"
    return f"{lag.here.slot} is here" if lag.here.epoch is None else f"epoch {lag.here.epoch} is here ({lag.here.slot})"


def _lag(lag: Lag) -> str:
    behind = "an unknown number of bytes" if lag.bytes is None else size(lag.bytes)
    if lag.source is None or lag.source == lag.here:
        return f"lag {lag.seconds:.0f} s, {behind}"
    at = str(lag.source.slot) if lag.source.epoch is None else f"epoch {lag.source.epoch}"
    return f"lag {lag.seconds:.0f} s, {behind}, newest at the source: {at}"


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
