"""`holdfast run`: a pipeline until it ends or is told to stop."""

from __future__ import annotations

import threading
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.common import Session, StoreOption, verb
from holdfast.cli.loading import TARGET, load_pipeline
from holdfast.cli.told import told_to_stop
from holdfast.text import clean, size

if TYPE_CHECKING:
    from holdfast.events import Event
    from holdfast.handles import Repository
    from holdfast.pipeline.pipeline import Pipeline
    from holdfast.pipeline.run import Run
    from holdfast.pipeline.starting import Recovery

__all__ = ["ACCEPT", "DISCARD", "HOME", "TRIGGER", "command", "run_until_told", "show_recovery", "trigger_of"]

HOME = (
    click.Option(["--checkpoint-dir"], metavar="DIR", help="Where Spark's directories lie.  [default: .holdfast/NAME]"),
    click.Option(
        ["--dir-option"],
        type=StoreOption(),
        multiple=True,
        help="An option of that store; the value may be env:NAME or file:PATH. Repeatable.",
    ),
)
"""Where a pipeline runs."""

ACCEPT = click.Option(
    ["--accept"], multiple=True, metavar="NAME", help="Accept a change that `holdfast plan` names. Repeatable."
)
DISCARD = click.Option(
    ["--discard-foreign"], is_flag=True, help="Give up what others wrote to a sink that must go back."
)
TRIGGER = click.Option(
    ["--trigger"],
    metavar="WHEN",
    help='"now": all that there is, then end; "10 seconds": so often.  [default: as fast as it goes]',
)
TRIGGERS: dict[str, dict[str, Any]] = {"now": {"availableNow": True}, "once": {"once": True}}
LOOK_SECONDS = 0.2


@verb(
    "run",
    TARGET,
    click.Option(["--every"], default="30s", show_default=True, metavar="WHEN", help='Checkpoints: 30s, "10 batches".'),
    TRIGGER,
    *HOME,
    click.Option(["--adopt"], metavar="DIR", help="First start: go on from this directory of a plain query."),
    click.Option(
        ["--replay"],
        type=click.Choice(["recorded", "free"]),
        default="recorded",
        show_default=True,
        help="Run decided epochs again as they were, or (a changed query) let Spark cut them anew.",
    ),
    ACCEPT,
    DISCARD,
    click.Option(
        ["--way-back"],
        metavar="DURATION",
        help="Keep the way back for so long.  [default: to the oldest checkpoint]",
    ),
    click.Option(["--savepoint"], metavar="NAME", help="Leave a savepoint of this name when it is told to stop."),
    click.Option(["--metrics-port"], type=int, metavar="PORT", help="Answer Prometheus at this port of the machine."),
    examples="""
    holdfast run jobs.orders:pipeline --repo s3://bucket/holdfast
    holdfast run jobs.orders:pipeline --trigger now
    holdfast run jobs.orders:make --every "10 batches" --metrics-port 9108 --json
    holdfast run jobs.orders:pipeline --adopt s3a://bucket/checkpoints/orders
    """,
)
def command(
    session: Session,
    target: str,
    every: str,
    trigger: str | None,
    checkpoint_dir: str | None,
    dir_option: tuple[tuple[str, str], ...],
    adopt: str | None,
    replay: Any,
    accept: tuple[str, ...],
    discard_foreign: bool,
    way_back: str | None,
    savepoint: str | None,
    metrics_port: int | None,
) -> None:
    """Run the pipeline MODULE:ATTR from where it stands, until it ends or is told to stop.

    ATTR is a holdfast.Pipeline, or a function without arguments that returns one; modules of this folder can be named.
    It recovers by itself: from Spark's directory where that is whole, healed if it is damaged, else from the newest
    checkpoint. Whoever ran it before is fenced, in the repository and in every sink. SIGTERM and SIGINT end it after
    the epoch under way, with a checkpoint. With --json every event is one line.
    """
    repository = session.repository()
    run_until_told(
        session,
        load_pipeline(target),
        repository,
        savepoint,
        checkpoint_dir=checkpoint_dir,
        every=every,
        trigger=trigger_of(trigger),
        options=dict(dir_option),
        adopt=adopt,
        replay=replay,
        accept=accept,
        discard_foreign=discard_foreign,
        way_back=way_back,
        metrics_port=metrics_port,
    )


def run_until_told(
    session: Session, pipeline: Pipeline, repository: Repository, savepoint: str | None, **start: Any
) -> None:
    """Start a pipeline, as `Pipeline.start` takes it, show what happens, and stop it when told to."""
    shown = _Shown(session, pipeline.name)
    with told_to_stop() as stop:
        run = pipeline.start(repository, listener=shown.tell, **start)
        shown.begun(run)
        if _await(run, stop):
            run.stop(savepoint)
        else:
            run.await_termination()
    shown.ended(run)


def _await(run: Run, stop: threading.Event) -> bool:
    """Wait until it is told to stop (True) or ends by itself."""
    while not stop.wait(LOOK_SECONDS):
        if not run.is_active:
            return False
    return True


def trigger_of(said: str | None) -> dict[str, Any] | None:
    return None if said is None else TRIGGERS.get(said, {"processingTime": said})


def show_recovery(recovery: Recovery) -> str:
    """What a start found and did, in a line."""
    found = {
        "nothing": "begins at nothing",
        "warm": f"goes on in Spark's directory after epoch {recovery.epoch}",
        "healed": f"goes on in Spark's directory after epoch {recovery.epoch}, healed from {recovery.checkpoint}",
        "checkpoint": f"goes on from checkpoint {recovery.checkpoint} at epoch {recovery.epoch}",
        "origin": f"begins at epoch {recovery.epoch}: {recovery.origin}",
    }[recovery.state]
    said = [f"generation {recovery.generation} {found}"]
    said += [f"{len(recovery.replays)} decided epochs were run again"] if recovery.replays else []
    said += [f"rolled back: {', '.join(recovery.rolled_back)}"] if recovery.rolled_back else []
    said += [f"checkpoint {skipped.slot} was passed over: {skipped.why}" for skipped in recovery.skipped]
    return "; ".join(said)


def _first_line(error: Exception) -> str:
    """What Spark says goes on with its trace."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


class _Shown:
    """Shows what happens, one line each."""

    def __init__(self, session: Session, name: str) -> None:
        self._session = session
        self._name = name
        self._epochs = self._rows = self._checkpoints = 0

    def begun(self, run: Run) -> None:
        if self._session.as_json:
            recovery = asdict(run.recovery) | {"replays": len(run.recovery.replays)}
            self._document({"event": "started", **recovery})
        else:
            self._session.output.remark(f"{self._now()}  {self._name}  {show_recovery(run.recovery)}")

    def tell(self, event: Event) -> None:
        from holdfast.events import CaptureFailed, CheckpointTaken, EpochCommitted, EpochFailed

        begin = f"{self._now()}  {self._name}"
        if isinstance(event, EpochCommitted):
            self._epochs, self._rows = self._epochs + 1, self._rows + event.rows
            text = f"epoch {event.epoch}: {event.rows:,} rows, {event.seconds * 1000:.0f} ms"
            fields: dict[str, Any] = {"event": "committed", **asdict(event)}
        elif isinstance(event, CheckpointTaken):
            self._checkpoints += 1
            read = f"{event.files_read:,} files read ({size(event.bytes_read)})"
            text = f"checkpoint {event.slot} of epoch {event.epoch}: {read}, {event.seconds * 1000:.0f} ms"
            fields = {"event": "checkpoint", **asdict(event)}
        elif isinstance(event, EpochFailed):
            text = f"epoch {event.epoch} failed: {_first_line(event.error)}"
            fields = {"event": "epoch failed", "epoch": event.epoch, "error": _first_line(event.error)}
        elif isinstance(event, CaptureFailed):
            text = f"a capture failed, and is tried again: {event.error}"
            fields = {"event": "capture failed", "error": str(event.error)}
        else:
            text, fields = f"taken over: {event.by}", {"event": "taken over", "by": event.by}
        if self._session.as_json:
            self._document(fields)
        elif isinstance(event, EpochCommitted | CheckpointTaken):
            self._session.output.line(clean(f"{begin}  {text}"))
        else:
            click.echo(clean(f"{begin}  {text}"), err=True)

    def ended(self, run: Run) -> None:
        if self._session.as_json:
            done = {"epochs": self._epochs, "rows": self._rows, "checkpoints": self._checkpoints}
            self._document({"event": "ended", "generation": run.generation, **done})
        else:
            self._session.output.remark(
                f"{self._now()}  {self._name}  ended: {self._epochs} epochs, {self._rows:,} rows, "
                f"{self._checkpoints} checkpoints"
            )

    def _document(self, fields: dict[str, Any]) -> None:
        from holdfast.report import iso_time, to_json_line

        click.echo(to_json_line({"time": iso_time(int(time.time() * 1000)), "pipeline": self._name, **fields}))

    def _now(self) -> str:
        return self._session.time(int(time.time() * 1000))
