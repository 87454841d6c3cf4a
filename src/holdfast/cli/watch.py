"""`holdfast watch`: captures for ever, as a sidecar."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.capture import CAPTURING
from holdfast.cli.common import Session, verb
from holdfast.cli.render import show_block
from holdfast.cli.told import told_to_stop
from holdfast.errors import HoldfastError
from holdfast.text import clean, size

if TYPE_CHECKING:
    from holdfast.spark.watch import Captured, Event, Failed

__all__ = ["command"]


@verb(
    "watch",
    click.Argument(["directory"], metavar="DIR"),
    click.Option(["--pipeline", "-p"], metavar="NAME", help="The pipeline that the query is."),
    click.Option(["--every"], required=True, metavar="WHEN", help='How often: 30s, 5m, "10 batches".'),
    click.Option(
        ["--quiet", "quiet_for"],
        default="90s",
        show_default=True,
        metavar="DURATION",
        help="When nothing in DIR has changed for so long, take the last committed batch too.",
    ),
    click.Option(["--each"], is_flag=True, help="Watch every Spark checkpoint directory below DIR."),
    *CAPTURING,
    examples="""
    holdfast watch /data/checkpoints/orders -p orders --every 30s
    holdfast watch s3a://bucket/checkpoints/orders -p orders --every "10 batches" --json
    holdfast watch /data/checkpoints --each --every 5m
    """,
)
def command(
    session: Session,
    directory: str,
    pipeline: str | None,
    every: str,
    quiet_for: str,
    each: bool,
    new_timeline: bool,
    dir_option: tuple[tuple[str, str], ...],
    file_sink: str | None,
    sink_option: tuple[tuple[str, str], ...],
) -> None:
    """Take checkpoints of the Spark query whose checkpointLocation is DIR, until it is told to stop.

    It works from the files alone, beside the query: start it before or after, restart either at any time. What fails
    is shown and tried again. SIGTERM and SIGINT end it after the capture under way. It ends by itself only when a
    person is needed: DIR belongs to another query or was rewound (6). While it runs, `holdfast savepoint PIPELINE@now
    NAME` gets its savepoint.

    With --each the pipelines are named by their paths below DIR, with dots for slashes. New directories are found
    within a minute, and one that is refused does not stop the others. With --json every event is one line.
    """
    if each == (pipeline is not None):
        raise click.UsageError("Give -p NAME, or --each, which names the pipelines by their paths.")
    if each and file_sink:
        raise click.UsageError("--file-sink is the sink of one query: it does not go with --each.")
    from holdfast.capturing import watch_directory, watch_each

    shown = _Shown(session, alone=not each)
    given: dict[str, Any] = {
        "every": every,
        "quiet": quiet_for,
        "new_timeline": new_timeline,
        "options": dict(dir_option),
        "retry": session.retry(),
        "tell": shown.tell,
    }
    repository = session.repository()
    run: Callable[[threading.Event], None]
    if pipeline is None:
        run = watch_each(directory, repository, **given).run
    else:
        given |= {"file_sink": file_sink, "sink_options": dict(sink_option)}
        run = watch_directory(directory, repository, pipeline=pipeline, **given).run
    with told_to_stop() as stop, ThreadPoolExecutor(1, thread_name_prefix="holdfast-watch") as pool:
        # Not in this thread: a signal handler that sets the event must not find its lock held by the one it interrupts.
        running = pool.submit(run, stop)
        try:
            running.result()
        except HoldfastError as error:
            if not session.as_json:
                raise
            sys.exit(error.exit_code)
    shown.stopped()


class _Shown:
    """Shows events, one line each. With `alone`, what ends the watch is left to the end of the command."""

    def __init__(self, session: Session, *, alone: bool) -> None:
        self._session = session
        self._alone = alone
        self._lock = threading.Lock()
        self._captures = self._failures = 0

    def tell(self, pipeline: str, event: Event) -> None:
        from holdfast.spark.watch import Captured, Failed

        with self._lock:
            self._captures += isinstance(event, Captured)
            self._failures += isinstance(event, Failed)
            if self._session.as_json:
                self._write_line(pipeline, event)
            else:
                self._write(pipeline, event)

    def stopped(self) -> None:
        if self._session.as_json:
            self._document({"event": "stopped", "captures": self._captures, "failures": self._failures})
        else:
            self._session.output.remark(f"{self._now()}  stopped: {self._captures} captured, {self._failures} failed")

    def _write(self, pipeline: str, event: Event) -> None:
        from holdfast.spark.watch import Captured, Ended, Failed, Found

        begin = f"{self._now()}  {pipeline or 'all'}"
        if isinstance(event, Captured):
            self._session.output.line(f"{begin}  {_captured(event)}")
        elif isinstance(event, Found):
            at, epoch = event.manifest.at, event.manifest.epoch
            self._session.output.remark(f"{begin}  epoch {epoch} is held by {at} already")
        elif isinstance(event, Failed):
            click.echo(clean(f"{begin}  failed: {event.error}; again in {event.retry_seconds:.0f} s"), err=True)
        elif isinstance(event, Ended):
            if not self._alone:
                show_block(f"{pipeline}: {event.error.message}", event.error.code, event.error.hint)
        else:
            self._session.output.remark(f"{begin}  waiting: {event.why}")

    def _write_line(self, pipeline: str, event: Event) -> None:
        from holdfast.spark.watch import Captured, Ended, Failed, Found

        if isinstance(event, Captured):
            fields = _fields(event)
        elif isinstance(event, Found):
            fields = {"event": "found", "slot": event.manifest.at, "epoch": event.manifest.epoch}
        elif isinstance(event, Failed):
            fields = {"event": "failed", "error": _error(event), "retry_seconds": event.retry_seconds}
        elif isinstance(event, Ended):
            fields = {"event": "ended", "error": event.error}
        else:
            fields = {"event": "waiting", "why": event.why}
        self._document({**fields, "pipeline": pipeline or None})

    def _document(self, fields: dict[str, Any]) -> None:
        from holdfast.report import iso_time, to_json_line

        click.echo(to_json_line({"time": iso_time(int(time.time() * 1000)), **fields}))

    def _now(self) -> str:
        return self._session.time(int(time.time() * 1000))


def _captured(event: Captured) -> str:
    taken = event.taken
    behind = taken.committed - taken.manifest.epoch
    said = (
        f"epoch {taken.manifest.epoch} is {taken.manifest.at}: {taken.files_read:,} of {taken.files:,} files read "
        f"({size(taken.bytes_read)}), {event.milliseconds:.0f} ms"
    )
    said += f", {behind} behind" if behind > 1 else ""
    return said + "".join(f"; a newer batch can't be restored: {why}" for why in taken.broken)


def _fields(event: Captured) -> dict[str, Any]:
    taken = event.taken
    return {
        "event": "captured",
        "slot": taken.manifest.at,
        "checkpoint_id": taken.manifest.checkpoint_id,
        "epoch": taken.manifest.epoch,
        "committed": taken.committed,
        "files": taken.files,
        "files_read": taken.files_read,
        "bytes_read": taken.bytes_read,
        "milliseconds": round(event.milliseconds, 1),
        "broken": taken.broken,
    }


def _error(event: Failed) -> Any:
    if isinstance(event.error, HoldfastError):
        return event.error
    return {"code": HoldfastError.code, "message": f"unexpected {type(event.error).__name__}: {event.error}"}
