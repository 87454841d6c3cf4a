"""`holdfast list`: pipelines, or the checkpoints of one, and how far back it can go."""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import TYPE_CHECKING

import click

from holdfast.cli.common import Session, verb
from holdfast.cli.loading import load_pipeline, said_aside
from holdfast.cli.render import Cell, Column, Styled
from holdfast.text import age, short_ids, size

if TYPE_CHECKING:
    from holdfast.pipeline.reach import Reach
    from holdfast.report import CheckpointRow, PipelineRow, PositionRow

__all__ = ["command"]

DAMAGE = 3


@verb(
    "list",
    click.Argument(["pipeline"], required=False, metavar="[PIPELINE]"),
    click.Option(["--abandoned"], is_flag=True, help="Also list checkpoints that are off the timeline."),
    click.Option(["--reach"], is_flag=True, help="List how far back the sinks and sources can go instead."),
    examples="""
    holdfast list
    holdfast list orders --abandoned
    holdfast list orders --json
    holdfast list orders --reach
    holdfast list jobs.orders:pipeline --reach
    """,
)
def command(session: Session, pipeline: str | None, abandoned: bool, reach: bool) -> None:
    """List the pipelines of the repository, or the checkpoints of one, oldest first.

    Abandoned checkpoints lie off the timeline, after a rewind for example; they can still be reached by savepoint, id
    or slot. What can't be read is listed with its problem. Where records are missing, all that is left is listed, the
    abandoned ones too, with what is missing. In both cases the command ends with 3.

    With --reach a PIPELINE is listed with the place in each sink that its checkpoints have recorded. Given as
    MODULE:ATTR (a holdfast.Pipeline, or a function that returns one) its sinks and sources are asked: whether they
    can go back to each checkpoint, and until when all that came after it can be read again.
    """
    if reach and pipeline is not None:
        _list_reach(session, pipeline)
        return
    from holdfast.report import list_checkpoints, list_pipelines

    repository = session.repository()
    if pipeline is None:
        if abandoned or reach:
            raise click.UsageError(f"--{'abandoned' if abandoned else 'reach'} needs a PIPELINE.")
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


def _list_reach(session: Session, pipeline: str) -> None:
    repository = session.repository()
    if ":" in pipeline:
        asked = load_pipeline(pipeline)
        with said_aside():
            found = asked.reach(repository)
        if session.as_json:
            session.document({"pipeline": asked.name, "reach": [each.document() for each in found]})
        else:
            _show_reach(session, found)
        return
    from holdfast.report import list_positions

    recorded = list_positions(repository.pipeline(pipeline))
    if session.as_json:
        session.document({"pipeline": pipeline, "positions": recorded})
    else:
        _show_positions(session, recorded)


def _show_reach(session: Session, rows: list[Reach]) -> None:
    columns = [
        Column("slot"),
        Column("epoch", right=True),
        Column("time"),
        Column("savepoints"),
        Column("rewind", wraps=True),
        Column("replay", wraps=True),
    ]
    table: list[list[Cell]] = []
    for row in rows:
        slot = str(row.slot) if row.on_timeline else Styled(f"({row.slot})", "dim")
        rewind = Styled(f"no: {'; '.join(row.why_not)}", "bold red") if row.why_not else Styled("yes", "green")
        names = Styled(", ".join(row.savepoints), "green")
        table.append([slot, str(row.epoch), session.time(row.timestamp_ms), names, rewind, _replay(session, row)])
    session.output.table(columns, table)


def _replay(session: Session, row: Reach) -> Cell:
    if any(finding.severity == "refuse" for finding in row.sources):
        return Styled("no", "bold red")
    if row.until.why:
        return f"can't be told: {row.until.why}"
    return "as long as it is kept" if row.until.ms is None else f"until {session.time(row.until.ms)}"


def _show_positions(session: Session, rows: list[PositionRow]) -> None:
    columns = [Column("slot"), Column("epoch", right=True), Column("savepoints"), Column("sinks", wraps=True)]
    table: list[list[Cell]] = []
    for row in rows:
        slot = row.slot if row.on_timeline else Styled(f"({row.slot})", "dim")
        at = ", ".join(f"{name} at {place}" for name, place in row.sinks.items())
        table.append([slot, _number(row.epoch), Styled(", ".join(row.savepoints), "green"), at or "state only"])
    session.output.table(columns, table)


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
