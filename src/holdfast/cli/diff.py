"""`holdfast diff`: what changed between two checkpoints."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click

from holdfast.cli.common import Session, verb
from holdfast.cli.render import Cell, Column, Styled
from holdfast.text import size

if TYPE_CHECKING:
    from holdfast.report import Difference
    from holdfast.report.difference import Change

__all__ = ["command"]

STYLES = {"added": "green", "removed": "red", "changed": "yellow"}
MOST_ARTIFACTS = 40
MOST_OFFSETS = 64


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
    removed or changed, the bytes, and which parts of the fingerprint differ. Of checkpoints captured from Spark: the
    files of each operator, summed up, and the settings that changed. Only manifests are read.
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
            *([] if it.state else [("records", f"{it.records:+,}")]),
            ("watermark", _watermark(session, it)),
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
        rows: list[list[Cell]] = [[name, *_cells(change)] for name, change in moved[:MOST_OFFSETS]]
        summed = [name for name in it.totals if len(it.sources[name]) > 1]
        rows += [[name, Styled("all", "bold"), "", "", Styled(f"{it.totals[name]:+,}", "bold")] for name in summed]
        output.table(columns, rows, indent="  ")
        if len(moved) > MOST_OFFSETS:
            output.remark(f"  … and {len(moved) - MOST_OFFSETS} more; --json has each.")
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
    if it.settings:
        output.heading("Settings")
        for change in it.settings:
            output.line(f"  {change.name}: {change.before or 'none'} -> {change.after or 'none'}")
    if it.state:
        _show_state(session, it)
    else:
        _show_artifacts(session, it)


def _show_state(session: Session, it: Difference) -> None:
    """Thousands of files: only their numbers and sizes."""
    session.output.heading("Files")
    columns = [Column("of")] + [
        Column(name, right=True) for name in ("added", "bytes", "removed", "bytes", "same", "bytes")
    ]
    rows: list[list[Cell]] = [
        [
            "logs" if each.operator is None else f"operator {each.operator}",
            Styled(f"{each.added:,}", STYLES["added"] if each.added else ""),
            size(each.bytes_added),
            Styled(f"{each.removed:,}", STYLES["removed"] if each.removed else ""),
            size(each.bytes_removed),
            f"{each.same:,}",
            size(each.bytes_same),
        ]
        for each in it.state
    ]
    session.output.table(columns, rows, indent="  ")
    session.output.remark("  --json names every file.")


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


def _watermark(session: Session, it: Difference) -> str:
    change = it.watermark
    if change is None:
        return "unchanged"
    if it.state:
        before, after = (session.time(int(ms)) if ms else "none" for ms in (change.before, change.after))
        advanced = "" if change.advanced is None else f" ({change.advanced / 1000:+,.1f} s)"
        return f"{before} -> {after}{advanced}"
    advanced = "" if change.advanced is None else f" ({change.advanced:+,})"
    return f"{change.before or 'none'} -> {change.after or 'none'}{advanced}"
