"""`holdfast rewind`: a pipeline back at a checkpoint, with all its sinks."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from holdfast.cli.common import Session, verb
from holdfast.cli.loading import TARGET, load_pipeline, said_aside
from holdfast.cli.plan import show_plan
from holdfast.cli.run import ACCEPT, DISCARD, HOME, show_recovery

__all__ = ["command"]


@verb(
    "rewind",
    TARGET,
    click.Option(["--to"], required=True, metavar="REF", help="The checkpoint: SAVEPOINT, epoch:N, time:…, an id."),
    *HOME,
    ACCEPT,
    DISCARD,
    click.Option(["--dry-run"], is_flag=True, help="Say what would be done, and do nothing."),
    examples="""
    holdfast rewind jobs.orders:pipeline --to before-upgrade --dry-run
    holdfast rewind jobs.orders:pipeline --to orders@time:2026-11-15T10:00
    """,
)
def command(
    session: Session,
    target: str,
    to: str,
    checkpoint_dir: str | None,
    dir_option: tuple[tuple[str, str], ...],
    accept: tuple[str, ...],
    discard_foreign: bool,
    dry_run: bool,
) -> None:
    """Take the pipeline MODULE:ATTR back to a checkpoint: its state, its offsets and every sink.

    What came after the checkpoint is given up; `holdfast run` goes on from it. Whoever runs the pipeline now is
    fenced. If a sink can't go back, nothing is touched. Killed at any instant, run it again.

    A plain query has no sinks that could go back: `holdfast restore REF DEST` lays its directory down anew.
    """
    repository = session.repository()
    pipeline = load_pipeline(target)
    word = to.removeprefix(f"{pipeline.name}@")
    said: dict[str, Any] = {"to": word, "checkpoint_dir": checkpoint_dir, "options": dict(dir_option)}
    said |= {"accept": accept, "discard_foreign": discard_foreign}
    if dry_run:
        with said_aside():
            plan = pipeline.plan(repository, **said)
        show_plan(session, plan)
        return
    with said_aside():
        done = pipeline.rewind(repository, **said)
    if session.as_json:
        session.document(asdict(done) | {"replays": len(done.replays)})
    else:
        session.output.line(f"Rewound {pipeline.name}: {show_recovery(done)}.")
        session.output.remark(f"Go on with: holdfast run {target}")
