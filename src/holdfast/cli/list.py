"""`holdfast list`: pipelines, or the checkpoints of one."""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import TYPE_CHECKING

import click

from holdfast.cli.common import Session, verb
from holdfast.cli.render import Cell, Column, Styled
from holdfast.cli.text import age, short_ids, size

if TYPE_CHECKING:
    from holdfast.report import CheckpointRow, PipelineRow

__all__ = ["command"]

DAMAGE = 3


@verb(
    "list",
    click.Argument(["pipeline"], required=False, metavar="[PIPELINE]"),
    click.Option(["--abandoned"], is_flag=True, help="Also list checkpoints that are off the timeline."),
    examples="""
    holdfast list
    holdfast list orders --abandoned
    holdfast list orders --json
    """,
)
def command(session: Session, pipeline: str | None, abandoned: bool) -> None:
    """List the pipelines of the repository, or the checkpoints of one, oldest first.

    Abandoned checkpoints lie off the timeline, after a rewind for example; they can still be reached by savepoint, id
    or slot. What can't be read is listed with its problem. Where records are missing, all that is left is listed, the
    abandoned ones too, with what is missing. In both cases the command ends with 3.
    """
    from holdfast.report import list_checkpoints, list_pipelines

    repository = session.repository()
    if pipeline is None:
        if abandoned:
            raise click.UsageError("--abandoned needs a PIPELINE.")
        pipelines = list_pipelines(repository)
        if session.as_json:
            session.document({"url": repository.url, "pipelines": pipelines})
        else:
            _show_pipelines(session, pipelines)
        damaged = any(row.problem for row in pipelines)
    else:
        stored = repository.pipeline(pipeline)
        stored.require()
        missing = stored.missing()
        checkpoints = list_checkpoints(stored, with_abandoned=abandoned or bool(missing))
        if session.as_json:
            session.document({"pipeline": pipeline, "checkpoints": checkpoints, "missing": missing})
        else:
            _show_checkpoints(session, pipeline, checkpoints, missing)
        damaged = bool(missing) or any(row.problem for row in checkpoints)
    if damaged:
        sys.exit(DAMAGE)


def _show_pipelines(session: Session, rows: list[PipelineRow]) -> None:
    if not rows:
        session.output.remark("The repository has no pipelines yet.")
        return
    now_ms = time.time_ns() // 1_000_000
    columns = [
        Column("pipeline"),
        Column("checkpoints", right=True),
        Column("epoch", right=True),
        Column("age", right=True),
        Column("bytes", right=True),
        Column("generation", right=True),
        Column("savepoints", wraps=True),
    ]
    table: list[list[Cell]] = []
    for row in rows:
        name = f"{row.name} (copy)" if row.is_copy else row.name
        if row.problem:
            table.append([name, "?", "?", "?", size(row.bytes), "?", Styled(f"damaged: {row.problem}", "bold red")])
            continue
        table.append(
            [
                Styled(name, "bold"),
                f"{row.checkpoints:,}",
                _number(row.epoch),
                age(row.timestamp_ms, now_ms),
                size(row.bytes),
                _number(row.generation),
                Styled(", ".join(row.savepoints), "green"),
            ]
        )
    session.output.table(columns, table)


def _show_checkpoints(session: Session, pipeline: str, rows: list[CheckpointRow], missing: list[str]) -> None:
    if rows:
        _show_table(session, rows)
        if any(not row.on_timeline for row in rows):
            why = "off the timeline, as far as it can be told" if missing else "abandoned: they are off the timeline"
            session.output.remark(f"Slots in brackets are {why}.")
    elif not missing:
        session.output.remark(f"Pipeline {pipeline} has no checkpoints yet.")
    for what in missing:
        session.output.line(Styled(f"problem: missing: {what}", "bold red"))


def _show_table(session: Session, rows: list[CheckpointRow]) -> None:
    ids = short_ids(row.checkpoint_id for row in rows if row.checkpoint_id)
    columns = [
        Column("slot"),
        Column("id"),
        Column("epoch", right=True),
        Column("time"),
        Column("new", right=True),
        Column("shared", right=True),
        Column("sinks"),
        Column("parent"),
        Column("held by", wraps=True),
    ]
    table: list[list[Cell]] = []
    for row in rows:
        slot = row.slot if row.on_timeline else Styled(f"({row.slot})", "dim")
        if row.problem:
            table.append([slot, "?", "?", "?", "?", "?", "", "?", Styled(f"damaged: {row.problem}", "bold red")])
            continue
        held = [f"savepoint {name}" for name in row.savepoints] + [f"pin: {why}" for why in row.pins]
        table.append(
            [
                slot,
                ids[row.checkpoint_id or ""],
                _number(row.epoch),
                session.time(row.timestamp_ms),
                size(row.bytes_new),
                size(row.bytes_shared),
                _sinks(row),
                row.parent or "-",
                Styled(", ".join(held), "green"),
            ]
        )
    session.output.table(columns, table)


def _sinks(row: CheckpointRow) -> Cell:
    if not row.sinks_total:
        return "-"
    counts = Counter(row.sinks.values())
    unseen = row.sinks_total - len(row.sinks)
    shown = [f"{count} {status}" for status, count in sorted(counts.items())] + ([f"{unseen} more"] if unseen else [])
    style = "bold red" if counts["failed"] else "yellow" if counts["pending"] else ""
    return Styled(", ".join(shown), style)


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)
