"""`holdfast pin`: hold a checkpoint without naming it."""

from __future__ import annotations

import click

from holdfast.cli.common import Session, verb
from holdfast.text import amount

__all__ = ["command"]


@verb(
    "pin",
    click.Argument(["reference"], metavar="REF"),
    click.Option(["--why"], metavar="TEXT", help="Why it is held; shown wherever the pin is."),
    click.Option(["--remove"], is_flag=True, help="Let go of all pins that people put on it."),
    examples="""
    holdfast pin orders@epoch:42 --why "audit until June"
    holdfast pin orders@epoch:42 --remove
    """,
)
def command(session: Session, reference: str, why: str | None, remove: bool) -> None:
    """Hold the checkpoint REF against retention until the pin is removed.

    A checkpoint can have many pins; each says why. --remove takes all of them off, but for those of a take-over under
    way, which belong to it.
    """
    if remove and why is not None:
        raise click.UsageError("--why says why a pin is set; it can't be given with --remove.")
    checkpoint = session.repository().find(reference)
    name = f"{checkpoint.pipeline.name}@slot:{checkpoint.slot}"
    if remove:
        removed = checkpoint.unpin()
        if session.as_json:
            session.document({"checkpoint": name, "slot": checkpoint.slot, "removed": [pin.why for pin in removed]})
        else:
            session.output.remark(f"Removed {amount(len(removed), 'pin')} from {name}.")
        return
    pin = checkpoint.pin(why or "pinned")
    if session.as_json:
        session.document({"checkpoint": name, "slot": checkpoint.slot, "why": pin.why, "who": pin.who})
    else:
        session.output.remark(f"Pinned {name}: {pin.why}")
