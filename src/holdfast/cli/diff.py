"""`holdfast diff`: what changed between two checkpoints."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click

from holdfast.cli.common import Session, verb
from holdfast.cli.render import Cell, Column, Styled
from holdfast.cli.text import size

if TYPE_CHECKING:
    from holdfast.report import Difference
    from holdfast.report.difference import Change

__all__ = ["command"]

STYLES = {"added": "green", "removed": "red", "changed": "yellow"}
MOST_ARTIFACTS = 40


@verb(
    "diff",
    click.Argument(["before"], metavar="A"),
    click.Argument(["after"], metavar="B"),
    examples="""
    holdfast diff orders@before-upgrade orders
    holdfast diff orders@epoch:41 orders@epoch:42
    holdfast diff orders@slot:0-3 orders@slot:1-0 --json
    """,
)
def command(session: Session, before: str, after: str) -> None:
    """Show what changed from checkpoint A to checkpoint B, both given as a REF.

    By how much the offsets advanced, the watermark, which operator partitions, driver states and files were added,
    removed or changed, the bytes, and which parts of the fingerprint differ. Only manifests are read.
    """
    from holdfast.report import compare

    repository = session.repository()
    found = compare(repository.find(before), repository.find(after))
    if session.as_json:
        session.document(found)
    else:
        _show(session, found)


def _show(session: Session, it: Difference) -> None:
    output = session.output
    output.facts(
        [
            ("from", Styled(it.before, "bold")),
            ("to", Styled(it.after, "bold")),
            ("epochs", f"{it.epochs:+,}"),
            ("time", f"{it.milliseconds / 1000:+,.1f} s"),
            ("records", f"{it.records:+,}"),
            ("watermark", _change(it.watermark) if it.watermark else "unchanged"),
            (
                "bytes",
                f"{size(it.bytes_same)} the same, {size(it.bytes_added)} added, {size(it.bytes_removed)} removed",
            ),
        ]
    )
    moved = [(name, change) for name, changes in (*it.sources.items(), *it.tables.items()) for change in changes]
    if moved:
        output.heading("Offsets")
        columns = [Column("source"), Column("position"), *_before_after(), Column("advanced", right=True)]
        output.table(columns, [[name, *_cells(change)] for name, change in moved], indent="  ")
    for heading, changes in (
        ("Source watermarks", it.source_watermarks),
        ("Sink epochs", it.sink_epochs),
        ("Fingerprint", it.fingerprint),
    ):
        if changes:
            output.heading(heading)
            columns = [Column("name"), *_before_after(), Column("advanced", right=True)]
            shown = len(columns) if any(change.advanced is not None for change in changes) else len(columns) - 1
            output.table(columns[:shown], [_cells(change)[:shown] for change in changes], indent="  ")
    _show_artifacts(session, it)


def _show_artifacts(session: Session, it: Difference) -> None:
    output = session.output
    output.heading("Artifacts")
    if not it.artifacts:
        output.line("  all the same")
        return
    counts = Counter[str](change.change for change in it.artifacts)
    output.line("  " + ", ".join(f"{counts[kind]} {kind}" for kind in STYLES if counts[kind]))
    columns = [
        Column("change"),
        Column("what"),
        Column("name", wraps=True),
        Column("partition", right=True),
        Column("before", right=True),
        Column("after", right=True),
    ]
    rows: list[list[Cell]] = [
        [
            Styled(a.change, STYLES[a.change]),
            a.what,
            a.name,
            "" if a.partition is None else str(a.partition),
            "-" if a.change == "added" else size(a.bytes_before),
            "-" if a.change == "removed" else size(a.bytes_after),
        ]
        for a in it.artifacts[:MOST_ARTIFACTS]
    ]
    output.table(columns, rows, indent="  ")
    if len(it.artifacts) > MOST_ARTIFACTS:
        output.remark(f"  … and {len(it.artifacts) - MOST_ARTIFACTS} more; --json has each.")


def _before_after() -> list[Column]:
    return [Column("before", right=True, wraps=True), Column("after", right=True, wraps=True)]


def _cells(change: Change) -> list[Cell]:
    advanced = "" if change.advanced is None else f"{change.advanced:+,}"
    return [change.name, change.before or "-", change.after or "-", advanced]


def _change(change: Change) -> str:
    advanced = "" if change.advanced is None else f" ({change.advanced:+,})"
    return f"{change.before or 'none'} -> {change.after or 'none'}{advanced}"
