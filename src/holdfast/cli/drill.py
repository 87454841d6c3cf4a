"""`holdfast drill`: proof that what is kept can be gone on from."""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.common import Session, verb
from holdfast.cli.loading import load_pipeline
from holdfast.cli.render import Styled
from holdfast.errors import BadValue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.drilling import Drilled, Start

__all__ = ["command"]

DAMAGE = 3


@verb(
    "drill",
    click.Argument(["pipelines"], metavar="[PIPELINE]...", nargs=-1),
    click.Option(
        ["--start", "starts"],
        multiple=True,
        metavar="MODULE:ATTR",
        help="Have Spark start this pipeline too, without its sinks, for one batch. Repeatable.",
    ),
    click.Option(["--scratch"], metavar="DIR", help="Where to restore to.  [default: a new folder of the system's]"),
    click.Option(["--keep"], is_flag=True, help="Leave what was restored in the scratch place."),
    click.Option(
        ["--timeout"],
        default="10m",
        show_default=True,
        metavar="DURATION",
        help="How long one batch of --start may take.",
    ),
    click.Option(
        ["--report", "reports"],
        multiple=True,
        metavar="FILE",
        help="Write the report there too: .xml as JUnit, .json as JSON, else as text. Repeatable.",
    ),
    examples="""
    holdfast drill --repo s3://bucket/holdfast
    holdfast drill orders clicks --report drill.xml --report drill.json
    holdfast drill orders --start jobs.orders:pipeline --scratch /mnt/scratch
    """,
)
def command(
    session: Session,
    pipelines: tuple[str, ...],
    starts: tuple[str, ...],
    scratch: str | None,
    keep: bool,
    timeout: str,
    reports: tuple[str, ...],
) -> None:
    """Restore the newest checkpoint of each pipeline into a scratch place, and prove every byte of it.

    With --start Spark goes on from it as well: the pipeline MODULE:ATTR, matched by its name, runs one batch with its
    sinks replaced by nothing, and nothing of that is committed. Whether its sources still hold what comes next is asked
    before. Nothing is claimed and nothing is touched but the scratch place: it may run beside the pipeline, and from a
    copy.

    0 if all are good, 3 if one is damaged, else the exit code of what went wrong first: made for cron.
    """
    from holdfast.decide.schedule import parse_duration
    from holdfast.drilling import drill_pipeline

    repository = session.repository()
    stored = [repository.pipeline(name) for name in dict.fromkeys(pipelines)] or repository.pipelines()
    for each in stored:
        each.require()
    parse_duration(timeout)
    starters = _starters(starts, {each.name for each in stored}, timeout)
    place = Path(scratch) if scratch else Path(tempfile.mkdtemp(prefix="holdfast-drill-"))
    place.mkdir(parents=True, exist_ok=True)
    drills: list[Drilled] = []
    try:
        for each in stored:
            with session.output.progress(f"drill {each.name}") as progress:
                start = starters.get(each.name)
                drills.append(drill_pipeline(each, place.absolute(), start=start, keep=keep, progress=progress))
            if not session.as_json:
                _show(session, drills[-1])
    finally:
        if not keep and not scratch:
            place.rmdir()
    _report(session, drills, reports)
    _end(drills)


def _starters(targets: Sequence[str], names: set[str], timeout: str) -> dict[str, Start]:
    pipelines = {target: load_pipeline(target) for target in targets}
    known = ", ".join(sorted(names)) or "none"
    for target, pipeline in pipelines.items():
        if pipeline.name not in names:
            raise BadValue("--start", f"{target} is the pipeline {pipeline.name!r}, and these are drilled: {known}")
    return {pipeline.name: partial(pipeline.drill, timeout=timeout) for pipeline in pipelines.values()}


def _show(session: Session, drilled: Drilled) -> None:
    from holdfast.report import text_of_drills

    first, *steps = text_of_drills([drilled]).splitlines()
    session.output.line(Styled(first, "green" if drilled.good else "bold red"))
    for line, step in zip(steps, drilled.steps, strict=True):
        if step.error is not None or not session.output.quiet:
            session.output.line(line)


def _report(session: Session, drills: Sequence[Drilled], reports: Sequence[str]) -> None:
    from holdfast.report import describe_drills, junit_of_drills, text_of_drills, to_json

    for report in reports:
        path = Path(report)
        if path.suffix == ".xml":
            text = junit_of_drills(drills)
        elif path.suffix == ".json":
            text = to_json(describe_drills(drills)) + "\n"
        else:
            text = text_of_drills(drills)
        path.write_text(text, encoding="utf-8")
    if session.as_json:
        session.document(describe_drills(drills))
    elif not drills:
        session.output.remark("The repository has no pipelines yet.")


def _end(drills: Sequence[Drilled]) -> None:
    codes = [drilled.error.exit_code for drilled in drills if drilled.error is not None]
    if codes:
        sys.exit(DAMAGE if DAMAGE in codes else codes[0])
