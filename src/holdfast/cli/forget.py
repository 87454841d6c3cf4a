"""`holdfast forget`: delete one checkpoint."""

from __future__ import annotations

import sys

import click

from holdfast.cli.common import Session, verb
from holdfast.text import amount

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
    pipeline, head = checkpoint.pipeline, checkpoint.head
    removed = pipeline.plan_forget(checkpoint.slot)
    if not dry_run:
        if not yes and sys.stdin.isatty():
            question = f"Delete {pipeline.name}@slot:{checkpoint.slot} (epoch {head.epoch}) for good?"
            if not click.confirm(question, err=True):
                raise click.ClickException("Not confirmed; nothing was changed.")
        removed = pipeline.forget(checkpoint.slot)
    if session.as_json:
        session.document(
            {
                "pipeline": pipeline.name,
                "slot": checkpoint.slot,
                "checkpoint_id": head.checkpoint_id,
                "dry_run": dry_run,
                "removed": {"checkpoints": removed.checkpoints, "objects": removed.objects},
            }
        )
        return
    for path in removed.objects:
        session.output.remark(f"{'would remove' if dry_run else 'removed'}  {path}")
    word = "Would forget" if dry_run else "Forgot"
    objects = amount(len(removed.objects), "object")
    session.output.remark(f"{word} {pipeline.name}@slot:{checkpoint.slot} and {objects} that only it named.")
