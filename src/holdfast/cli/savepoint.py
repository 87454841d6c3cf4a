"""`holdfast savepoint`: names for checkpoints."""

from __future__ import annotations

import click

from holdfast.cli.common import Session, verb

__all__ = ["command"]


@verb(
    "savepoint",
    click.Argument(["reference"], metavar="REF"),
    click.Argument(["name"], required=False, metavar="[NAME]"),
    click.Option(["--remove"], is_flag=True, help="Remove the savepoint that REF (PIPELINE@NAME) names."),
    click.Option(
        ["--timeout"],
        type=click.FloatRange(min=0),
        default=60.0,
        show_default=True,
        metavar="SECONDS",
        help="With PIPELINE@now: how long to wait for the running pipeline.",
    ),
    examples="""
    holdfast savepoint orders before-upgrade
    holdfast savepoint orders@epoch:42 audit-2026
    holdfast savepoint orders@now before-deploy --timeout 120
    holdfast savepoint orders@before-upgrade --remove
    """,
)
def command(session: Session, reference: str, name: str | None, remove: bool, timeout: float) -> None:
    """Give the checkpoint REF a NAME; retention never removes it while it has one.

    PIPELINE@now asks the running pipeline for a new checkpoint and waits until it is taken. --remove takes a name off
    again: the checkpoint stays, and falls under retention.
    """
    if remove == (name is not None):
        raise click.UsageError("Give REF NAME, or PIPELINE@NAME with --remove.")
    if name is None:
        _remove(session, reference)
        return
    from holdfast.decide.references import parse_reference

    repository = session.repository()
    parsed = parse_reference(reference)
    if parsed.kind == "now":
        pipeline = repository.pipeline(parsed.pipeline)
        pipeline.require()
        checkpoint = pipeline.request_savepoint(name, timeout)
    else:
        checkpoint = repository.find(reference)
        checkpoint.savepoint(name)
    if session.as_json:
        session.document(
            {
                "pipeline": parsed.pipeline,
                "savepoint": name,
                "slot": checkpoint.slot,
                "checkpoint_id": checkpoint.id,
                "epoch": checkpoint.epoch,
            }
        )
        return
    session.output.remark(f"{parsed.pipeline}@{name} is the checkpoint {checkpoint.slot}, epoch {checkpoint.epoch}.")


def _remove(session: Session, reference: str) -> None:
    from holdfast.decide.references import parse_reference

    parsed = parse_reference(reference)
    if parsed.kind != "word":
        raise click.UsageError("Which savepoint? Give it as PIPELINE@NAME.")
    pipeline = session.repository().pipeline(parsed.pipeline)
    pipeline.require()
    removed = pipeline.remove_savepoint(parsed.word)
    if session.as_json:
        session.document({"pipeline": parsed.pipeline, "removed": removed.name, "slot": removed.at})
        return
    session.output.remark(f"Removed the savepoint {removed.name}; the checkpoint {removed.at} falls under retention.")
