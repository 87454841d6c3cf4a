"""`holdfast du`: what checkpoints cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.common import Session, for_each, verb
from holdfast.cli.render import Cell, Column, Styled
from holdfast.text import size

if TYPE_CHECKING:
    from holdfast.decide.usage import Usage

__all__ = ["command"]


@verb(
    "du",
    click.Argument(["pipelines"], nargs=-1, metavar="[PIPELINE]..."),
    examples="""
    holdfast du
    holdfast du orders
    holdfast du orders clicks --json
    """,
)
def command(session: Session, pipelines: tuple[str, ...]) -> None:
    """Show what each checkpoint takes: the bytes that it holds alone, and those that it shares with others.

    Exclusive bytes are what deleting that checkpoint would free, its manifest and the state in it included. Loose
    bytes are data that no checkpoint names: an upload under way, or what a crash left; `holdfast prune` sweeps them.
    Records are claims, names and the like. The total counts every object once. Without PIPELINE: the totals of all.
    """
    from holdfast.report import describe_usage

    repository = session.repository()
    used: list[tuple[str, Usage]] = []

    def weigh(name: str) -> None:
        pipeline = repository.pipeline(name)
        pipeline.require()
        used.append((name, pipeline.usage()))

    failed = for_each(session, dict.fromkeys(pipelines) or [p.name for p in repository.pipelines()], weigh)
    if session.as_json:
        documents = [describe_usage(name, usage) for name, usage in used] + [failure.document() for failure in failed]
        session.document({"url": repository.url, "pipelines": documents})
    elif not used:
        session.output.remark("There is nothing to weigh.")
    elif pipelines:
        for name, usage in used:
            _show_checkpoints(session, name, usage)
    else:
        _show_totals(session, used)
    session.end(failed)


def _show_checkpoints(session: Session, name: str, usage: Usage) -> None:
    columns = [Column("checkpoint"), *_right("total", "shared", "exclusive")]
    rows: list[list[Cell]] = [
        [f"{name}@slot:{each.slot}", size(each.total), size(each.shared), size(each.exclusive)]
        for each in usage.checkpoints
    ]
    session.output.table(columns, rows)
    parts = f"{size(usage.shared)} shared, {size(usage.loose)} loose, {size(usage.records)} records"
    session.output.line(Styled(f"{name}: {size(usage.total)} stored, {parts}", "bold"))


def _show_totals(session: Session, used: list[tuple[str, Usage]]) -> None:
    columns = [Column("pipeline"), *_right("checkpoints", "total", "shared", "loose", "records")]
    rows: list[list[Cell]] = [
        [name, f"{len(usage.checkpoints):,}", *map(size, (usage.total, usage.shared, usage.loose, usage.records))]
        for name, usage in used
    ]
    session.output.table(columns, rows)
    total, loose = sum(usage.total for _, usage in used), sum(usage.loose for _, usage in used)
    session.output.line(Styled(f"all: {size(total)} stored, {size(loose)} loose", "bold"))


def _right(*names: str) -> list[Column]:
    return [Column(name, right=True) for name in names]
