"""`holdfast forget`: delete one checkpoint."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from holdfast.cli.common import Session, verb
from holdfast.cli.text import amount

if TYPE_CHECKING:
    from holdfast.gc import Removed
    from holdfast.handles import Checkpoint

__all__ = ["command"]


@verb(
    "forget",
    click.Argument(["reference"], metavar="REF"),
    click.Option(["--dry-run", "-n"], is_flag=True, help="Only show what would be removed."),
    click.Option(["--yes", "-y"], is_flag=True, help="Do not ask."),
    examples="""
    holdfast forget orders@epoch:42 --dry-run
    holdfast forget orders@slot:0-3 --yes
    """,
)
def command(session: Session, reference: str, dry_run: bool, yes: bool) -> None:
    """Delete the checkpoint REF and the bytes that only it names, and say what went.

    Refused with 6 for what is needed: the last two, a savepoint, a pin, or where the newest generation began. On a
    terminal it asks first, unless --yes is given.
    """
    checkpoint = session.repository().find(reference)
    pipeline = checkpoint.pipeline
    removed = pipeline.plan_forget(checkpoint.slot)
    if dry_run:
        _tell(session, checkpoint, removed, dry_run=True)
        return
    if not yes and sys.stdin.isatty():
        question = f"Delete {pipeline.name}@slot:{checkpoint.slot} (epoch {checkpoint.epoch}) for good?"
        if not click.confirm(question, err=True):
            raise click.ClickException("Not confirmed; nothing was changed.")
    # Once it is gone its manifest can't be read any more.
    checkpoint.head  # noqa: B018
    _tell(session, checkpoint, pipeline.forget(checkpoint.slot), dry_run=False)


def _tell(session: Session, checkpoint: Checkpoint, removed: Removed, *, dry_run: bool) -> None:
    name = f"{checkpoint.pipeline.name}@slot:{checkpoint.slot}"
    if session.as_json:
        session.document(
            {
                "checkpoint": name,
                "slot": checkpoint.slot,
                "checkpoint_id": checkpoint.id,
                "dry_run": dry_run,
                "removed": {"checkpoints": removed.checkpoints, "objects": removed.objects},
            }
        )
        return
    for path in removed.objects:
        session.output.remark(f"{'would remove' if dry_run else 'removed'}  {path}")
    word = "Would forget" if dry_run else "Forgot"
    session.output.remark(f"{word} {name} and {amount(len(removed.objects), 'object')} that only it named.")
