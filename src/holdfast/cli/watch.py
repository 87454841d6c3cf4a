"""`holdfast watch`: captures for ever, as a sidecar."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import click

from holdfast.cli.capture import CAPTURING
from holdfast.cli.common import Session, verb
from holdfast.cli.showing import Shown
from holdfast.cli.told import run_beside_signals
from holdfast.errors import HoldfastError

__all__ = ["command"]


@verb(
    "watch",
    click.Argument(["directory"], required=False, metavar="[DIR]"),
    click.Option(["--config"], metavar="FILE", help="Run all that a holdfast.toml asks for, in place of DIR."),
    click.Option(["--check"], is_flag=True, help="Only say what the file of --config means."),
    click.Option(["--pipeline", "-p"], metavar="NAME", help="The pipeline that the query is."),
    click.Option(["--every"], metavar="WHEN", help='How often: 30s, 5m, "10 batches".'),
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
    holdfast watch --config /etc/holdfast.toml --check
    holdfast watch --config /etc/holdfast.toml
    """,
)
def command(
    session: Session,
    directory: str | None,
    config: str | None,
    check: bool,
    pipeline: str | None,
    every: str | None,
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

    With --config one sidecar does all that a holdfast.toml asks for: captures of many pipelines, retention, checks and
    alerts. SIGHUP has it take up a changed file; one that is wrong is told and the old one goes on.
    """
    if config is not None:
        if directory or pipeline or every or each or new_timeline or dir_option or file_sink or sink_option:
            raise click.UsageError("With --config all else stands in the file: give neither DIR nor its options.")
        from holdfast.cli.sidecar import run_config, show_config

        (show_config if check else run_config)(session, config)
        return
    if check:
        raise click.UsageError("--check goes with --config FILE.")
    if directory is None or every is None:
        raise click.UsageError("Give DIR and --every WHEN, or --config FILE.")
    if each == (pipeline is not None):
        raise click.UsageError("Give -p NAME, or --each, which names the pipelines by their paths.")
    if each and file_sink:
        raise click.UsageError("--file-sink is the sink of one query: it does not go with --each.")
    from holdfast.capturing import watch_directory, watch_each

    shown = Shown(session, alone=not each)
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
    try:
        run_beside_signals(run)
    except HoldfastError as error:
        if not session.as_json:
            raise
        sys.exit(error.exit_code)
    shown.stopped()
