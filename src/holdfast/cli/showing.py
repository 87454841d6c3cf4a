"""What watches and sidecars tell, as lines for people or as one JSON document a line."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.common import Session
from holdfast.cli.render import Styled, show_block
from holdfast.errors import HoldfastError
from holdfast.text import clean, size

if TYPE_CHECKING:
    from holdfast.sidecar.events import Event
    from holdfast.spark.watch import Captured, Failed

__all__ = ["Shown"]


class Shown:
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

    def say(self, event: str, text: str) -> None:
        """Something about the whole, such as that the file was read anew."""
        if self._session.as_json:
            self._document({"event": event, "why": text})
        else:
            self._session.output.line(f"{self._now()}  {text}")

    def stopped(self) -> None:
        if self._session.as_json:
            self._document({"event": "stopped", "captures": self._captures, "failures": self._failures})
        else:
            self._session.output.remark(f"{self._now()}  stopped: {self._captures} captured, {self._failures} failed")

    def _write(self, pipeline: str, event: Event) -> None:
        from holdfast.sidecar import events as sidecar
        from holdfast.spark.watch import Captured, Ended, Failed, Found, Waiting

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
        elif isinstance(event, Waiting):
            self._session.output.remark(f"{begin}  waiting: {event.why}")
        elif isinstance(event, sidecar.Done):
            self._session.output.line(f"{begin}  {event.kind}: {event.found}")
        elif isinstance(event, sidecar.Undone):
            again = f"; again in {event.retry_seconds:.0f} s"
            click.echo(clean(f"{begin}  {event.kind} failed: {event.error}{again}"), err=True)
        elif isinstance(event, sidecar.AlertChanged):
            style = "bold red" if event.status == "firing" else "green"
            line = f"{begin}  {event.status} {event.alert.key}: {event.alert.summary}"
            self._session.output.line(Styled(line, style))
        elif isinstance(event, sidecar.Taken):
            self._session.output.remark(f"{begin}  told {event.receiver}: {event.status} {event.key}")
        elif isinstance(event, sidecar.NotTaken):
            again = f"; again in {event.retry_seconds:.0f} s"
            click.echo(clean(f"{begin}  {event.receiver} was not told of {event.key}: {event.why}{again}"), err=True)
        else:
            rest = "it looks after all but the captures until it ends"
            self._session.output.line(f"{begin}  another sidecar holds {event.file}: {rest}")

    def _write_line(self, pipeline: str, event: Event) -> None:
        from holdfast.sidecar import events as sidecar
        from holdfast.spark.watch import Captured, Ended, Failed, Found, Waiting

        fields: dict[str, Any]
        if isinstance(event, Captured):
            fields = _fields(event)
        elif isinstance(event, Found):
            fields = {"event": "found", "slot": event.manifest.at, "epoch": event.manifest.epoch}
        elif isinstance(event, Failed):
            fields = {"event": "failed", "error": _error(event), "retry_seconds": event.retry_seconds}
        elif isinstance(event, Ended):
            fields = {"event": "ended", "error": event.error}
        elif isinstance(event, Waiting):
            fields = {"event": "waiting", "why": event.why}
        elif isinstance(event, sidecar.Done):
            fields = {"event": "done", "kind": event.kind, "found": event.found, **event.details}
        elif isinstance(event, sidecar.Undone):
            fields = {"event": "undone", **vars(event)}
        elif isinstance(event, sidecar.AlertChanged):
            fields = {"event": event.status, "key": event.alert.key, "alert": event.alert}
        elif isinstance(event, sidecar.Taken):
            fields = {"event": "told", **vars(event)}
        elif isinstance(event, sidecar.NotTaken):
            fields = {"event": "untold", **vars(event)}
        else:
            fields = {"event": "standing by", "file": event.file}
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
