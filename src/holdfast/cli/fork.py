"""`holdfast fork`: a checkpoint as the beginning of another pipeline, or of another query."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import click

from holdfast.cli.common import Session, verb
from holdfast.cli.restore import LAYING, laying, show_laid
from holdfast.cli.run import ACCEPT, HOME

__all__ = ["command"]

MODULE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


@verb(
    "fork",
    click.Argument(["reference"], metavar="MODULE:ATTR|REF"),
    click.Argument(["destination"], metavar="[DEST]", required=False),
    click.Option(["--to"], metavar="REF", help="The checkpoint that the pipeline MODULE:ATTR begins at."),
    *HOME,
    ACCEPT,
    click.Option(["--dry-run"], is_flag=True, help="With --to: say what would be done, and do nothing."),
    *LAYING,
    examples="""
    holdfast fork jobs.orders_v2:pipeline --to orders@before-upgrade --dry-run
    holdfast fork jobs.orders_v2:pipeline --to orders@before-upgrade
    holdfast fork orders /data/checkpoints/orders-experiment
    holdfast fork orders@before-upgrade s3a://bucket/checkpoints/orders-4.3 --spark 4.3
    """,
)
def command(
    session: Session,
    reference: str,
    destination: str | None,
    to: str | None,
    checkpoint_dir: str | None,
    dir_option: tuple[tuple[str, str], ...],
    accept: tuple[str, ...],
    dry_run: bool,
    **said: Any,
) -> None:
    """Begin the pipeline MODULE:ATTR, which has a name and sinks of its own, at a checkpoint of another.

    `holdfast run` then goes on from there. Killed at any instant, run it again.

    With REF and DEST: lay a checkpoint of a Spark query down in DEST for another query, which may run beside the first.
    As `holdfast restore`, but the query gets a new id: with the same one, Spark stops the first when both run in one
    application. Give the fork sinks of its own. When you capture it, give it a pipeline name of its own too.
    """
    if to is not None:
        if destination is not None or not MODULE.fullmatch(reference):
            raise click.UsageError("With --to REF comes the pipeline that is to begin there: MODULE:ATTR, and no DEST.")
        _refuse(said, "is for a directory: it does not go with --to.")
        place = {"checkpoint_dir": checkpoint_dir, "options": dict(dir_option)}
        _fork_pipeline(session, reference, to, dry_run, accept=accept, **place)
        return
    if destination is None:
        raise click.UsageError("Give REF and DEST, or MODULE:ATTR and --to REF.")
    ours = {"checkpoint_dir": checkpoint_dir, "dir_option": dir_option, "accept": accept, "dry_run": dry_run}
    _refuse(ours, "is for a pipeline: it goes with MODULE:ATTR and --to.")
    checkpoint = session.repository().find(reference)
    with session.output.progress("fork") as progress:
        forked = checkpoint.fork(destination, progress, **laying(session, said))
    show_laid(session, "Forked", checkpoint, forked)


def _refuse(said: Mapping[str, Any], why: str) -> None:
    """What has no effect must not be said: it may be what somebody counts on."""
    for name, value in said.items():
        if value:
            raise click.UsageError(f"--{name.replace('_', '-')} {why}")


def _fork_pipeline(session: Session, target: str, to: str, dry_run: bool, **said: Any) -> None:
    from holdfast.cli.loading import load_pipeline, said_aside
    from holdfast.cli.plan import show_plan

    repository = session.repository()
    pipeline = load_pipeline(target)
    if dry_run:
        with said_aside():
            plan = pipeline.plan(repository, of=to, **said)
        show_plan(session, plan)
        return
    with said_aside():
        checkpoint = pipeline.fork(repository, of=to, **said)
    name = f"{pipeline.name}@slot:{checkpoint.slot}"
    if session.as_json:
        session.document({"pipeline": pipeline.name, "of": to, "checkpoint": name, "epoch": checkpoint.epoch})
    else:
        session.output.line(f"Forked {to} as {name}, at epoch {checkpoint.epoch}.")
        session.output.remark(f"Go on with: holdfast run {target}")
