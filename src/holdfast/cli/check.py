"""`holdfast check`: is everything there, and is it what was written."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from holdfast.cli.common import Session, StoreOption, Verb, for_each, verb
from holdfast.cli.render import Cell, Column, Styled
from holdfast.text import amount, ranges, size

if TYPE_CHECKING:
    from holdfast.check import Checked, Fault
    from holdfast.handles import StoredPipeline
    from holdfast.report import DirectoryChecked
    from holdfast.spark.cut import Operator
    from holdfast.spark.inspect import Inspected
    from holdfast.spark.intact import Proof

__all__ = ["command"]

DAMAGE = 3
STYLES = {"damage": "bold red", "warning": "yellow", "note": "dim"}
MOST_FAULTS = 20
PROOFS: tuple[tuple[Proof, str], ...] = (
    ("checksum", "a checksum beside them"),
    ("inner checksum", "checksums inside"),
    ("form", "their form alone"),
    ("presence", "nothing but that they are there"),
)


class _Check(Verb):
    """`--read-data` alone means all of it. click would take the word after it for the share."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        spelled = ["--read-data=100" if word == "--read-data" else word for word in args[:end]]
        return super().parse_args(ctx, spelled + args[end:])


@verb(
    "check",
    click.Argument(["what"], required=False, metavar="[PIPELINE | DIR]"),
    click.Option(
        ["--read-data"],
        type=click.FloatRange(0, 100),
        default=0.0,
        show_default=False,
        metavar="[=PCT]",
        help="Also read data and compare digests: all of it, or =PCT percent drawn at random.",
    ),
    click.Option(["--repair"], is_flag=True, help="Rebuild what can be rebuilt, set aside what can't be restored."),
    click.Option(
        ["--pipeline", "-p"], metavar="NAME", help="With DIR: compare it with what this pipeline captured of it."
    ),
    click.Option(
        ["--dir-option"],
        type=StoreOption(),
        multiple=True,
        help="An option of the store that DIR lies in; the value may be env:NAME or file:PATH. Repeatable.",
    ),
    cls=_Check,
    examples="""
    holdfast check
    holdfast check orders --read-data
    holdfast check --read-data=5 --json
    holdfast check orders --read-data --repair
    holdfast check /data/checkpoints/orders
    holdfast check s3a://bucket/checkpoints/orders -p orders
    """,
)
def command(
    session: Session,
    what: str | None,
    read_data: float,
    repair: bool,
    pipeline: str | None,
    dir_option: tuple[tuple[str, str], ...],
) -> None:
    """Check pipelines of the repository, or DIR, a checkpoint directory of Spark.

    PIPELINE, or all: every record, and that all objects are there in their size. With --read-data the bytes are read
    too and compared with their digests. With --repair the hint and the indexes of packs are rebuilt, and checkpoints
    that can't be restored are set aside, unless something needs them.

    DIR (with a / in it): which batches are whole, which is the newest that a restart could begin from, and what is
    missing or damaged and what that means. No repository is needed. Every file of the newest whole batch is read and
    compared with the checksums that lie beside it or inside of it; with --read-data those of all batches. Files without
    any checksum are vouched for only by -p NAME, which compares DIR with the newest checkpoint of it.

    Ends with 3 if damage was found, repaired or not; in a directory, if the newest committed batch can't be restored or
    is not what was captured.
    """
    if what is not None and "/" in what:
        if repair:
            raise click.UsageError("--repair is for pipelines. `holdfast restore --heal` mends a directory.")
        if 0 < read_data < 100:
            raise click.UsageError("--read-data=PCT is for pipelines. With a directory --read-data reads all of it.")
        _check_directory(session, what, dict(dir_option), pipeline, read_all=read_data > 0)
        return
    if pipeline or dir_option:
        raise click.UsageError("--pipeline and --dir-option go with a directory: write it with a /, such as ./DIR.")
    _check_pipelines(session, what, read_data, repair)


def _check_pipelines(session: Session, pipeline: str | None, read_data: float, repair: bool) -> None:
    from holdfast.report import describe_checked

    repository = session.repository()
    names = [pipeline] if pipeline else [each.name for each in repository.pipelines()]
    checked: list[Checked] = []

    def examine(name: str) -> None:
        found = repository.pipeline(name)
        _require(found)
        with session.output.progress(f"checking {name}") as progress:
            checked.append(found.check(read_percent=read_data, mend=repair, progress=progress))

    failed = for_each(session, names, examine)
    damaged = any(report.damaged for report in checked)
    if session.as_json:
        documents = [describe_checked(report) for report in checked] + [failure.document() for failure in failed]
        session.document({"ok": not damaged and not failed, "pipelines": documents})
    else:
        for report in checked:
            _show(session, report)
        if not names:
            session.output.remark("The repository has no pipelines yet.")
    if damaged:
        sys.exit(DAMAGE)
    session.end(failed)


def _require(pipeline: StoredPipeline) -> None:
    from holdfast.errors import Damage

    # One of a newer format is not looked at, and least of all repaired: what its records mean is not known here.
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


# ---- a directory ----


def _check_directory(
    session: Session, url: str, options: dict[str, str], pipeline: str | None, *, read_all: bool
) -> None:
    from holdfast.report import check_directory, describe_directory
    from holdfast.store import open_directory

    directory = open_directory(url, options, session.retry())
    records = None
    if pipeline:
        chosen = session.repository().pipeline(pipeline)
        chosen.require()
        records = chosen.records
    with session.output.progress("check") as progress:
        checked = check_directory(directory, records, read_all=read_all, progress=progress)
    if session.as_json:
        session.document(describe_directory(checked))
    else:
        _show_directory(session, checked)
    if checked.damaged:
        sys.exit(DAMAGE)


def _show_directory(session: Session, checked: DirectoryChecked) -> None:
    output, it = session.output, checked.inspected
    if not output.quiet:
        _show_batches(session, checked)
    worth = [fault for fault in checked.faults if fault.severity != "note" or not output.quiet]
    worth.sort(key=lambda fault: [*STYLES].index(fault.severity))
    for fault in worth[:MOST_FAULTS]:
        output.line()
        many = "batches" if len(fault.batches) > 1 else "batch"
        where = f" ({many} {ranges(fault.batches)})" if fault.batches else ""
        output.line(Styled(f"{fault.severity}: {fault.name}{where}", STYLES[fault.severity]))
        output.line(f"  {fault.what}")
        if fault.means:
            output.line(f"  -> {fault.means}")
    if len(worth) > MOST_FAULTS:
        output.line()
        output.line(f"… and {len(worth) - MOST_FAULTS} more; --json has each.")
    output.remark("")
    verdict = checked.verdict
    if checked.damaged:
        output.line(Styled(f"{it.directory}: damaged: {verdict}", "bold red"))
        output.remark(f"Hint: {_advice(checked)}")
    else:
        output.remark(Styled(f"{it.directory}: good: {verdict}", "green"))


def _advice(checked: DirectoryChecked) -> str:
    if checked.healable:
        return "`holdfast restore --heal DIR -p NAME` brings back what was captured. Stop the query first."
    if checked.compared is None:
        return "if it was captured, `holdfast check DIR -p NAME` compares it with what the repository holds."
    return f"`holdfast restore {checked.checkpoint} NEW_DIRECTORY` goes back to what was captured, in a new place."


def _show_batches(session: Session, checked: DirectoryChecked) -> None:
    it = checked.inspected
    newest = "none" if it.newest_whole is None else str(it.newest_whole)
    whole = ranges(it.whole) or "none"
    if len(it.looked_at) < len(it.committed):
        whole += " (older ones were not looked at: --read-data does)"
    facts: list[tuple[str, Cell]] = [
        ("directory", Styled(it.directory, "bold")),
        ("query", it.query_id or Styled("not known", "bold red")),
    ]
    if it.owner is not None:
        facts.append(("restored", f"from {it.owner.pipeline}@slot:{it.owner.at}, epoch {it.owner.epoch}"))
    facts += [
        ("committed", ranges(it.committed) or "none"),
        ("planned", _planned(it)),
        ("whole", whole),
        ("newest whole", Styled(newest, "" if it.newest_whole == it.newest_committed else "bold red")),
    ]
    if it.cleaned:
        facts.append(("cleaned up", f"{ranges(it.cleaned)}: Spark has removed their state"))
    facts += [(f"operator {o.number}", _operator(o)) for o in it.operators]
    if it.provider:
        facts.append(("state", f"{it.provider}, checkpoint format {it.checkpoint_format}"))
    facts.append(("read", f"{amount(it.files_read, 'file')}, {size(it.bytes_read)}"))
    if it.files:
        facts += [
            ("proven", ", ".join(f"{it.proofs[proof]} by {words}" for proof, words in PROOFS if it.proofs[proof]))
        ]
    if checked.compared is not None:
        facts.append(("compared with", f"{checked.checkpoint}, epoch {checked.compared.manifest.epoch}"))
    session.output.facts(facts)


def _planned(it: Inspected) -> str:
    if it.planned is None:
        return "none"
    ahead = it.planned - (-1 if it.newest_committed is None else it.newest_committed)
    return f"{it.planned} (begun, and not committed: a restart runs it)" if ahead == 1 else str(it.planned)


def _operator(operator: Operator) -> str:
    stores = f", {len(operator.stores)} stores each" if len(operator.stores) > 1 else ""
    return f"{operator.name or 'its name is not known'}, {amount(operator.partitions, 'partition')}{stores}"
