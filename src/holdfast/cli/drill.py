"""`holdfast drill`: proof that what is kept can be gone on from."""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.common import Session, verb
from holdfast.cli.loading import load_pipeline, said_aside
from holdfast.cli.render import Styled
from holdfast.errors import BadValue, HoldfastError, NoPipelines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.checkpoint import Checkpoint
    from holdfast.drilling import Drilled, Start
    from holdfast.handles import Repository, StoredPipeline

__all__ = ["command"]

FAILED, DAMAGE = 1, 3


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
    copy. Of the scratch place only what was restored is removed; a folder of the system's goes whole, and one that a
    killed drill left there goes with the next drill.

    What fails, a MODULE:ATTR that can't be loaded included, is told and keeps no other pipeline from its turn. 0 if all
    are good, 3 if one is damaged, 4 if there is no pipeline, else the exit code of what went wrong first: made for
    cron.
    """
    from holdfast.config import Duration

    Duration.of(timeout)
    for report in reports:
        _refuse_unwritable(report)
    repository = session.repository()
    stored = [repository.pipeline(name) for name in dict.fromkeys(pipelines)] or repository.pipelines()
    with _scratch(scratch, keep=keep) as place:
        drilling = _Drilling(session, place, keep=keep)
        drilling.drill(repository, stored, drilling.starters(starts, {each.name for each in stored}, timeout))
    are_written = _report(session, drilling.drills, reports, str(place) if keep else None)
    _end(drilling.drills, are_written)


@contextmanager
def _scratch(named: str | None, *, keep: bool) -> Iterator[Path]:
    """Where to restore to: the folder that was named, or a new one, which is gone in the end unless it is to be kept.

    What can't be removed is told, and changes nothing of what was found.
    """
    from holdfast.state.scratch import scratch_folder

    if named or keep:
        # Not in one that the next drill would take for left behind.
        place = Path(named or tempfile.mkdtemp(prefix="holdfast-drill-"))
        place.mkdir(parents=True, exist_ok=True)
        yield place.absolute()
        return
    with scratch_folder("drill") as place:
        yield place
    if place.exists():
        click.echo(f"{place} could not be removed", err=True)


class _Drilling:
    """The drills of one command, in the order in which they were made."""

    def __init__(self, session: Session, place: Path, *, keep: bool) -> None:
        self._session = session
        self._place = place
        self._keep = keep
        self.drills: list[Drilled] = []

    def drill(self, repository: Repository, stored: Sequence[StoredPipeline], starters: dict[str, Start]) -> None:
        """Drill each. A repository without any is a failure too: cron would take silence for proof."""
        from holdfast.drilling import drill_pipeline

        for each in stored:
            with self._session.output.progress(f"drill {each.name}") as progress:
                start = starters.get(each.name)
                drilled = drill_pipeline(each, self._place, start=start, keep=self._keep, progress=progress)
            self._add(drilled)
        if not stored:
            self._failed(repository.url, "find", 0.0, NoPipelines(repository.url))

    def starters(self, targets: Sequence[str], names: set[str], timeout: str) -> dict[str, Start]:
        """What starts each pipeline, by its name. A target that starts none is a failed drill of its own."""
        found: dict[str, Start] = {}
        known = ", ".join(sorted(names)) or "none"
        for target in dict.fromkeys(targets):
            began = time.perf_counter()
            try:
                name, start = _starter(target, timeout)
                if name not in names:
                    raise BadValue("--start", f"{target} is the pipeline {name!r}, and these are drilled: {known}")
                if name in found:
                    raise BadValue("--start", f"{target} is the pipeline {name!r}, which another one is too")
                found[name] = start
            except HoldfastError as error:
                self._failed(target, "load", time.perf_counter() - began, error)
        return found

    def _failed(self, name: str, step: str, seconds: float, error: HoldfastError) -> None:
        from holdfast.drilling import Drilled, Step

        self._add(Drilled(name, int(time.time() * 1000), steps=[Step(step, seconds, error=error)]))

    def _add(self, drilled: Drilled) -> None:
        self.drills.append(drilled)
        if not self._session.as_json:
            _show(self._session, drilled)


def _starter(target: str, timeout: str) -> tuple[str, Start]:
    pipeline = load_pipeline(target)
    drill = partial(pipeline.drill, timeout=timeout)

    def start(checkpoint: Checkpoint, place: Path) -> str:
        # It calls the user's query, which may print as well.
        with said_aside():
            return drill(checkpoint, place)

    return pipeline.name, start


def _refuse_unwritable(report: str) -> None:
    """Raise BadValue for a file that could not be written in the end, when all is done."""
    path = Path(report)
    was_there = path.exists()
    try:
        with path.open("ab"):
            pass
        if not was_there:
            path.unlink()
    except OSError as error:
        raise BadValue("--report", f"{report} can't be written: {error.strerror}") from error


def _show(session: Session, drilled: Drilled) -> None:
    from holdfast.report import text_of_drills

    first, *steps = text_of_drills([drilled]).splitlines()
    session.output.line(Styled(first, "green" if drilled.good else "bold red"))
    for line, step in zip(steps, drilled.steps, strict=True):
        if step.error is not None or not session.output.quiet:
            session.output.line(line)


def _report(session: Session, drills: Sequence[Drilled], reports: Sequence[str], kept: str | None) -> bool:
    """Write all reports; whether each could be. One that can't keeps nobody from the others."""
    from holdfast.report import describe_drills, junit_of_drills, text_of_drills, to_json

    document: dict[str, Any] = {**describe_drills(drills), "kept": kept}
    are_written = True
    for report in reports:
        path = Path(report)
        if path.suffix == ".xml":
            text = junit_of_drills(drills)
        elif path.suffix == ".json":
            text = to_json(document) + "\n"
        else:
            text = text_of_drills(drills)
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            are_written = False
            click.echo(f"{report} could not be written: {error.strerror}", err=True)
    if session.as_json:
        session.document(document)
    elif kept is not None:
        session.output.line(f"What was restored is in {kept}")
    return are_written


def _end(drills: Sequence[Drilled], are_written: bool) -> None:
    codes = [drilled.error.exit_code for drilled in drills if drilled.error is not None]
    codes += [] if are_written else [FAILED]
    if codes:
        sys.exit(DAMAGE if DAMAGE in codes else codes[0])
