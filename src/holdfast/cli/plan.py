"""`holdfast plan`: what would become of a checkpoint's state under the query as it is now."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.common import Session, verb
from holdfast.cli.loading import TARGET, load_pipeline, said_aside
from holdfast.cli.render import Styled
from holdfast.cli.run import HOME

if TYPE_CHECKING:
    from holdfast.pipeline.plan import PipelinePlan

__all__ = ["command", "show_plan"]

WOULD_BE_REFUSED = 6
STYLES = {"silently wrong": "red", "needs reset": "red", "needs migration": "red", "kept from the checkpoint": "yellow"}


@verb(
    "plan",
    TARGET,
    click.Option(
        ["--to"], metavar="REF", help="From this checkpoint, as a rewind would: PIPELINE@SAVEPOINT and so on."
    ),
    *HOME,
    examples="""
    holdfast plan jobs.orders:pipeline
    holdfast plan jobs.orders:make_pipeline --to orders@before-upgrade
    holdfast plan jobs.orders:pipeline --checkpoint-dir s3a://bucket/checkpoints/orders --json
    """,
)
def command(
    session: Session, target: str, to: str | None, checkpoint_dir: str | None, dir_option: tuple[Any, ...]
) -> None:
    """Say what would happen if the pipeline MODULE:ATTR started now, from where it stands or from a checkpoint.

    ATTR is a holdfast.Pipeline, or a function without arguments that returns one; modules of this folder can be named.
    The query is compared with the one that made the state, operator by operator and setting by setting: some changes
    are harmless, some Spark refuses, and some it accepts and then gives wrong results. Nothing is run, claimed or
    touched. Ends with 6 if a start would be refused.
    """
    repository = session.repository()
    pipeline = load_pipeline(target)
    word = to.removeprefix(f"{pipeline.name}@") if to is not None else None
    with said_aside():
        plan = pipeline.plan(repository, to=word, checkpoint_dir=checkpoint_dir, options=dict(dir_option))
    show_plan(session, plan)


def show_plan(session: Session, plan: PipelinePlan) -> None:
    """Show a plan, and end with 6 if it would be refused."""
    if session.as_json:
        session.document(plan.document())
    else:
        for line in str(plan).splitlines():
            session.output.line(Styled(line, STYLES.get(line.partition(":")[0], "")))
    if plan.refused:
        sys.exit(WOULD_BE_REFUSED)
