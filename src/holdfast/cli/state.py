"""`holdfast state`: the state of a Spark query in the hand. Each verb in here starts Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from inspect import cleandoc
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.common import Session, Verb, verb
from holdfast.cli.render import Cell, Column, Styled
from holdfast.cli.restore import show_laid
from holdfast.text import amount, size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.state import Part, State

__all__ = ["command"]

DEFAULT = "show"
LIMIT = 20
STYLES = {"added": "green", "removed": "red", "changed": "yellow"}


class Field(click.ParamType):  # type: ignore[type-arg]  # not generic at run time
    """FIELD=VALUE of a key."""

    name = "FIELD=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        name, equals, given = str(value).partition("=")
        if not (name and equals):
            self.fail("write FIELD=VALUE, such as sku=A-17 or window.start=2026-11-15T10:00Z", param, ctx)
        return name, given


REFERENCE = click.Argument(["reference"], metavar="REF")
PART = (
    click.Option(["--operator"], type=click.IntRange(min=0), metavar="N", help="The stateful operator, by its number."),
    click.Option(
        ["--part"], metavar="NAME", help="A side of a join, a variable of a transformWithState, or @timers, its timers."
    ),
)
WHERE = click.Option(
    ["--where"], type=Field(), multiple=True, help="Only rows with this value in a field of their key. Repeatable."
)
ROWS = click.Option(
    ["--limit"], type=click.IntRange(min=1), default=LIMIT, show_default=True, metavar="N", help="Rows to show at most."
)


@verb(
    "show",
    REFERENCE,
    *PART,
    click.Option(["--rows"], is_flag=True, help="Show rows of one part instead."),
    WHERE,
    ROWS,
    examples="""
    holdfast state orders
    holdfast state orders@before-upgrade --rows --limit 100
    holdfast state orders --where sku=A-17
    holdfast state sessions --operator 1 --part recent --where user=42 --json
    """,
)
def show(
    session: Session,
    reference: str,
    operator: int | None,
    part: str | None,
    rows: bool,
    where: Sequence[tuple[str, str]],
    limit: int,
) -> None:
    """Show the stateful operators of a checkpoint and how many rows each keeps, or the rows themselves.

    Spark's own reader reads a verified copy, which is removed afterwards; nothing is claimed. With --where for all
    fields of the key only the partition that holds it is fetched and read. Times are read and shown in the zone of the
    machine, or in UTC with --utc. Fields that Spark gives the same name are numbered in their order: of two sums the
    second is value.sum_2.
    """
    from holdfast.state import open_state

    checkpoint = session.repository().find(reference)
    with (
        session.output.progress("state") as progress,
        open_state(checkpoint, _spark(session), progress=progress) as state,
    ):
        if rows or where:
            _show_rows(session, state, state.inventory.choose(operator, part), _where(where), limit)
        else:
            _show_parts(session, state, operator, part)


def _show_parts(session: Session, state: State, operator: int | None, name: str | None) -> None:
    inventory = state.inventory
    chosen = [p for p in state.parts if operator in (None, p.operator) and name in (None, p.name)]
    if not chosen:
        inventory.choose(operator, name)
    counted = [(part, state.count(part)) for part in chosen]
    if session.as_json:
        session.document(
            {
                "checkpoint": inventory.checkpoint,
                "epoch": inventory.epoch,
                "parts": [{**_named(inventory.operators, part), "rows": count} for part, count in counted],
            }
        )
        return
    session.output.facts(
        [
            ("checkpoint", inventory.checkpoint),
            ("epoch", str(inventory.epoch)),
            ("store", f"{inventory.provider}, checkpoint format {inventory.checkpoint_format}"),
        ]
    )
    session.output.line()
    columns = [
        Column("operator", right=True),
        Column("kind"),
        Column("part"),
        Column("partitions", right=True),
        Column("rows", right=True),
        Column("bytes", right=True),
    ]
    table: list[list[Cell]] = []
    for part, count in counted:
        about = inventory.operators[part.operator]
        table.append(
            [
                str(part.operator),
                about.kind or about.name or "-",
                part.name or "-",
                str(about.partitions),
                f"{count:,}",
                size(about.bytes),
            ]
        )
    session.output.table(columns, table)


def _show_rows(session: Session, state: State, part: Part, where: Mapping[str, str], limit: int) -> None:
    from holdfast.state import documents
    from holdfast.state.session import explained_by_spark

    with explained_by_spark(state.inventory.checkpoint):
        found = documents(state.rows(part.operator, part.name, where), limit + 1)
    more, found = len(found) > limit, found[:limit]
    if session.as_json:
        about = _named(state.inventory.operators, part)
        session.document({"checkpoint": state.inventory.checkpoint, **about, "rows": found, "more": more})
        return
    _table(session, found)
    if more:
        session.output.remark(f"There are more; --limit N shows more than {limit}, `holdfast state export` writes all.")


@verb(
    "export",
    REFERENCE,
    click.Argument(["destination"], metavar="DEST"),
    *PART,
    WHERE,
    examples="""
    holdfast state export orders ./orders-state
    holdfast state export sessions@v1 /tmp/recent --part recent --where user=42
    """,
)
def export_rows(
    session: Session,
    reference: str,
    destination: str,
    operator: int | None,
    part: str | None,
    where: Sequence[tuple[str, str]],
) -> None:
    """Write the rows of one part as Parquet into DEST, a new local folder, which appears whole or not at all.

    The columns are key, value (or what the part holds) and partition_id. Lists and maps come element by element.
    """
    from holdfast.state import export

    checkpoint = session.repository().find(reference)
    with session.output.progress("export") as progress:
        done = export(
            checkpoint,
            destination,
            operator=operator,
            part=part,
            where=_where(where),
            spark=_spark(session),
            progress=progress,
        )
    if session.as_json:
        session.document(done)
        return
    session.output.remark(
        f"Exported {done.part} of {reference} to {done.destination}: {amount(done.rows, 'row')}, "
        f"{amount(done.files, 'file')}, {size(done.bytes)}."
    )


@verb(
    "diff",
    click.Argument(["before"], metavar="A"),
    click.Argument(["after"], metavar="B"),
    *PART,
    ROWS,
    examples="""
    holdfast state diff orders@before-upgrade orders
    holdfast state diff orders@epoch:41 orders@epoch:42 --operator 1 --limit 100
    holdfast state diff sessions@v1 sessions@v2 --part recent --json
    """,
)
def diff(session: Session, before: str, after: str, operator: int | None, part: str | None, limit: int) -> None:
    """Show which keys one part of the state gained, lost or holds with another value, from checkpoint A to B."""
    from holdfast.state import changed_rows, documents

    repository = session.repository()
    old, new = repository.find(before), repository.find(after)
    with (
        session.output.progress("diff") as progress,
        changed_rows(old, new, operator, part, _spark(session), progress=progress) as changed,
    ):
        found = documents(changed.rows, limit)
    if session.as_json:
        about = {"operator": changed.part.operator, "part": changed.part.name or None, "before": before, "after": after}
        session.document({**about, **changed.counts, "rows": found})
        return
    session.output.line(", ".join(f"{count:,} {change}" for change, count in changed.counts.items()))
    if found:
        session.output.line()
        _table(session, [{**row, "before": _compact(row["before"]), "after": _compact(row["after"])} for row in found])
    if sum(changed.counts.values()) > len(found):
        session.output.remark(f"… and {sum(changed.counts.values()) - len(found):,} more; --limit N shows more.")


@verb(
    "rescale",
    REFERENCE,
    click.Argument(["destination"], metavar="DEST"),
    click.Option(
        ["--partitions"], type=click.IntRange(min=1), required=True, metavar="N", help="How many there are to be."
    ),
    click.Option(["--fork"], is_flag=True, help="Give the query a new id, so that it can run beside the first."),
    click.Option(["--state-only"], is_flag=True, help="Leave the sinks of the pipeline where they are."),
    examples="""
    holdfast state rescale orders /data/checkpoints/orders-64 --partitions 64
    holdfast state rescale orders@before-upgrade ./orders-8 --partitions 8 --fork
    """,
)
def rescale_state(
    session: Session, reference: str, destination: str, partitions: int, fork: bool, state_only: bool
) -> None:
    """Lay a checkpoint down in DEST, a new local folder, with its state in another number of partitions.

    Spark freezes spark.sql.shuffle.partitions at the first start of a query. Here its own repartition (Spark 4.2 and
    later, RocksDB only) changes it in a copy, and all rows are compared before DEST is there. As with `holdfast
    restore` the query keeps its id, and the repository and the old directory are not touched.
    """
    from holdfast.state import rescale

    checkpoint = session.repository().find(reference)
    with session.output.progress("rescale") as progress:
        laid = rescale(
            checkpoint,
            destination,
            partitions,
            spark=_spark(session),
            fork=fork,
            state_only=state_only,
            progress=progress,
        )
    show_laid(session, "Rescaled", checkpoint, laid)


class _Group(Verb, click.Group):
    """The verbs of state; without one, `show` is meant."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(self.commands)


command = _Group(
    "state",
    commands=[show, export_rows, diff, rescale_state],
    help=cleandoc("""
    Look into the state of a Spark query: how many rows each operator keeps, and which.

    `holdfast state REF` is `holdfast state show REF`. A verified copy of the checkpoint is read by Spark, on this
    machine, and removed afterwards. Nothing is claimed and the repository is not written to.
    """),
    examples=[
        "holdfast state orders",
        "holdfast state orders --where sku=A-17",
        "holdfast state export orders ./orders-state",
        "holdfast state diff orders@before-upgrade orders",
        "holdfast state rescale orders /data/checkpoints/orders-64 --partitions 64",
    ],
)


def _spark(session: Session) -> SparkSession:
    from holdfast.state import some_session

    return some_session(zone="UTC" if session.utc else None)


def _where(given: Sequence[tuple[str, str]]) -> dict[str, str]:
    if len({name for name, _ in given}) < len(given):
        raise click.UsageError("--where: the same field is given twice.")
    return dict(given)


def _named(operators: Mapping[int, Any], part: Part) -> dict[str, Any]:
    about = operators[part.operator]
    return {
        "operator": part.operator,
        "name": about.name,
        "kind": about.kind,
        "part": part.name or None,
        "partitions": about.partitions,
        "bytes": about.bytes,
    }


def _table(session: Session, rows: Sequence[Mapping[str, Any]]) -> None:
    """Rows with their structs taken apart: a column for each field."""
    flat = [_flat(row) for row in rows]
    names = list(dict.fromkeys(name for row in flat for name in row))
    if not flat:
        session.output.remark("No rows.")
        return
    numbers = {name for name in names if all(isinstance(row.get(name), int | float | None) for row in flat)}
    columns = [Column(name, right=name in numbers, wraps=name not in numbers) for name in names]
    session.output.table(columns, [[_cell(name, row.get(name)) for name in names] for row in flat])


def _flat(value: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, inner in value.items():
        if isinstance(inner, Mapping) and inner:
            found |= _flat(inner, f"{above}{name}.")
        else:
            found[above + name] = inner
    return found


def _cell(name: str, value: Any) -> Cell:
    text = value if isinstance(value, str) else _compact(value)
    return Styled(text, STYLES.get(text, "")) if name == "change" else text


def _compact(value: Any) -> str:
    return "-" if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
