"""`holdfast restore`: a checkpoint as plain files."""

from __future__ import annotations

from pathlib import Path

import click

from holdfast.cli.common import Session, verb
from holdfast.cli.text import amount, size

__all__ = ["command"]


@verb(
    "restore",
    click.Argument(["reference"], metavar="REF"),
    click.Argument(["destination"], metavar="DEST", type=click.Path(path_type=Path)),
    examples="""
    holdfast restore orders /tmp/orders
    holdfast restore orders@before-upgrade ./before
    """,
)
def command(session: Session, reference: str, destination: Path) -> None:
    """Write a checkpoint as files into DEST, a new or empty local folder.

    It holds driver/NAME, operators/NAME/PARTITION/ with the snapshot and the deltas after it, files/ and
    manifest.json. What a Python loop saved is there as its record, driver/loop, and taken apart: decoded/loop/states/
    has each registered state, decoded/loop/record.json the position, the offsets and the metadata. Every byte is
    verified, and the folder appears whole or not at all. Nothing else is changed.
    """
    checkpoint = session.repository().find(reference)
    with session.output.progress("restore") as progress:
        restored = checkpoint.restore(destination, progress)
    if session.as_json:
        session.document({**restored._asdict(), "slot": checkpoint.slot, "checkpoint_id": checkpoint.id})
        return
    session.output.remark(
        f"Restored {checkpoint.pipeline.name}@slot:{checkpoint.slot} (epoch {checkpoint.epoch}) "
        f"to {restored.destination}: "
        f"{amount(restored.files, 'file')}, {size(restored.bytes)}, all verified."
    )
