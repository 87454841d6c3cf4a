"""`holdfast fork`: a checkpoint as the beginning of another query."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli.common import Session, verb
from holdfast.cli.restore import LAYING, laying, show_laid

__all__ = ["command"]


@verb(
    "fork",
    click.Argument(["reference"], metavar="REF"),
    click.Argument(["destination"], metavar="DEST"),
    *LAYING,
    examples="""
    holdfast fork orders /data/checkpoints/orders-experiment
    holdfast fork orders@before-upgrade s3a://bucket/checkpoints/orders-4.3 --spark 4.3
    """,
)
def command(session: Session, reference: str, destination: str, **said: Any) -> None:
    """Lay a checkpoint of a Spark query down in DEST for another query, which may run beside the first.

    As `holdfast restore`, but the query gets a new id: with the same one, Spark stops the first when both run in one
    application. Give the fork sinks of its own. When you capture it, give it a pipeline name of its own too.
    """
    checkpoint = session.repository().find(reference)
    with session.output.progress("fork") as progress:
        forked = checkpoint.fork(destination, progress, **laying(session, said))
    show_laid(session, "Forked", checkpoint, forked)
