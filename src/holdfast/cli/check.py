"""`holdfast check`: is everything there, and is it what was written."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from holdfast.cli.common import Session, Verb, verb
from holdfast.cli.render import Column, Styled
from holdfast.cli.text import amount, size

if TYPE_CHECKING:
    from holdfast.check import Checked, Fault
    from holdfast.handles import StoredPipeline

__all__ = ["command"]

DAMAGE = 3
STYLES = {"damage": "bold red", "warning": "yellow", "note": "dim"}


class _Check(Verb):
    """`--read-data` alone means all of it. click would take the word after it for the share."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        spelled = ["--read-data=100" if word == "--read-data" else word for word in args[:end]]
        return super().parse_args(ctx, spelled + args[end:])


@verb(
    "check",
    click.Argument(["pipeline"], required=False, metavar="[PIPELINE]"),
    click.Option(
        ["--read-data"],
        type=click.FloatRange(0, 100),
        default=0.0,
        show_default=False,
        metavar="[=PCT]",
        help="Also read data and compare digests: all of it, or =PCT percent drawn at random.",
    ),
    click.Option(["--repair"], is_flag=True, help="Rebuild what can be rebuilt, set aside what can't be restored."),
    cls=_Check,
    examples="""
    holdfast check
    holdfast check orders --read-data
    holdfast check --read-data=5 --json
    holdfast check orders --read-data --repair
    """,
)
def command(session: Session, pipeline: str | None, read_data: float, repair: bool) -> None:
    """Check one pipeline, or all: every record, and that all objects are there in their size.

    With --read-data the bytes are read too and compared with their digests. With --repair the hint and the indexes of
    packs are rebuilt, and checkpoints that can't be restored are set aside, unless something needs them. Ends with 3
    if damage was found, repaired or not.
    """
    if pipeline is not None and ("/" in pipeline or "://" in pipeline):
        raise click.UsageError(
            f"{pipeline!r} is a directory or an address, and this version checks pipelines of a repository only. "
            "To check a whole repository give it as --repo URL."
        )
    from holdfast.report import describe_checked

    repository = session.repository()
    found = [repository.pipeline(pipeline)] if pipeline else repository.pipelines()
    checked: list[Checked] = []
    for each in found:
        if pipeline:
            _require(each)
        with session.output.progress(f"checking {each.name}") as progress:
            checked.append(each.check(read_percent=read_data, mend=repair, progress=progress))
    damaged = any(report.damaged for report in checked)
    if session.as_json:
        session.document({"ok": not damaged, "pipelines": [describe_checked(report) for report in checked]})
    else:
        for report in checked:
            _show(session, report)
        if not checked:
            session.output.remark("The repository has no pipelines yet.")
    if damaged:
        sys.exit(DAMAGE)


def _require(pipeline: StoredPipeline) -> None:
    from holdfast.errors import Damage

    try:
        pipeline.require()
    except Damage:
        return  # the check itself tells more about it


def _show(session: Session, report: Checked) -> None:
    output = session.output
    worth = [fault for fault in report.faults if fault.severity != "note" or not output.quiet]
    if worth:
        rows = [
            (Styled(fault.severity, STYLES[fault.severity]), fault.kind, fault.where, fault.what, _slots(fault))
            for fault in worth
        ]
        columns = [Column("severity"), Column("kind"), Column("where", wraps=True), Column("what", wraps=True)]
        output.table([*columns, Column("checkpoints", wraps=True)], rows)
    for repaired in report.repaired:
        output.line(Styled(f"repaired  {repaired}", "green"))
    for left in report.left:
        output.line(Styled(f"left      {left}", "yellow"))
    read = f", {size(report.bytes_read)} read" if report.bytes_read else ""
    looked = f"{amount(report.checkpoints, 'checkpoint')}, {amount(report.objects, 'object')}{read}"
    if report.damaged:
        hit = f"; can't be restored: {', '.join(map(str, sorted(report.hit)))}" if report.hit else ""
        output.line(Styled(f"{report.pipeline}: damaged ({looked}){hit}", "bold red"))
    else:
        output.remark(Styled(f"{report.pipeline}: good ({looked})", "green"))


def _slots(fault: Fault) -> str:
    return ", ".join(map(str, fault.checkpoints))
