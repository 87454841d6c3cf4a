"""`holdfast prune`: delete what no rule keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.common import Session, for_each, verb
from holdfast.cli.render import Column, Styled
from holdfast.text import amount, size

if TYPE_CHECKING:
    from holdfast.gc import PrunePlan, Removed, Swept

__all__ = ["command"]

RULES = {
    "last": "Keep the newest N.",
    "hourly": "Keep the newest of each hour, for the N newest hours that have one.",
    "daily": "Keep the newest of each day (UTC), for N days that have one.",
    "weekly": "Keep the newest of each ISO week, for N weeks that have one.",
    "monthly": "Keep the newest of each month, for N months that have one.",
}


@verb(
    "prune",
    click.Argument(["pipelines"], nargs=-1, metavar="[PIPELINE]..."),
    *(
        click.Option([f"--keep-{rule}"], type=click.IntRange(min=0), default=0, metavar="N", help=text)
        for rule, text in RULES.items()
    ),
    click.Option(
        ["--keep-within"], metavar="DURATION", help="Keep all that are no older than this before the newest: 36h, 7d."
    ),
    click.Option(["--dry-run", "-n"], is_flag=True, help="Only show the plan."),
    click.Option(["--no-sweep"], is_flag=True, help="Leave bytes that no checkpoint names where they are."),
    examples="""
    holdfast prune --keep-last 10 --keep-daily 7 --dry-run
    holdfast prune orders --keep-within 7d --keep-weekly 8
    holdfast prune orders clicks --keep-last 3 --no-sweep
    """,
)
def command(
    session: Session,
    pipelines: tuple[str, ...],
    keep_within: str | None,
    dry_run: bool,
    no_sweep: bool,
    **counts: int,
) -> None:
    """Delete the checkpoints that no rule keeps, of the named pipelines or of all, and sweep what nothing names.

    The rules add up: what any of them keeps is kept. Always kept are the last two, where the newest generation began,
    and whatever has a savepoint or a pin. The plan is shown with a reason for each checkpoint, then carried out. A
    prune that was cut off is finished by the next one. Copies of pipelines made elsewhere are left to their copier.
    """
    from holdfast.decide.retention import KeepPolicy
    from holdfast.decide.schedule import parse_duration
    from holdfast.report import describe_plan

    within_ms = parse_duration(keep_within) if keep_within else 0
    policy = KeepPolicy(**{rule: counts[f"keep_{rule}"] for rule in RULES}, within_ms=within_ms)
    if policy.empty:
        raise click.UsageError("Which ones to keep? Give at least one --keep rule above 0; nothing was changed.")
    repository = session.repository()
    documents: list[dict[str, Any]] = []

    def prune(name: str) -> None:
        pipeline = repository.pipeline(name)
        pipeline.require()
        if not pipelines and pipeline.is_copy():
            documents.append({"pipeline": name, "is_copy": True})
            if not session.as_json:
                session.output.remark(f"{name} is a copy and is left to its copier.")
            return
        plan = pipeline.prune(policy)
        if not session.as_json:
            _show_plan(session, name, plan)
        removed = None if dry_run else _apply(session, name, plan)
        swept = None if no_sweep else pipeline.sweep(dry_run=dry_run)
        documents.append({"pipeline": name, "plan": describe_plan(plan), "removed": removed, "swept": swept})
        if not session.as_json:
            _show_outcome(session, name, plan, removed, swept)

    failed = for_each(session, dict.fromkeys(pipelines) or [p.name for p in repository.pipelines()], prune)
    if session.as_json:
        documents += [failure.document() for failure in failed]
        session.document({"dry_run": dry_run, "pipelines": documents})
    elif not documents and not failed:
        session.output.remark("The repository has no pipelines yet.")
    session.end(failed)


def _apply(session: Session, name: str, plan: PrunePlan) -> Removed:
    doomed = len({*plan.drops, *plan.interrupted, *plan.leftovers})
    with session.output.progress(f"pruning {name}", in_bytes=False) as progress:
        return plan.apply(lambda what, done: progress(what, done, doomed))


def _show_plan(session: Session, name: str, plan: PrunePlan) -> None:
    rows = [
        (
            Styled("keep", "green") if verdict.keep else Styled("drop", "red"),
            f"{name}@slot:{verdict.candidate.slot}",
            session.time(verdict.candidate.timestamp_ms),
            ", ".join(verdict.reasons),
        )
        for verdict in plan.verdicts
    ]
    if rows:
        session.output.table([Column("plan"), Column("checkpoint"), Column("time"), Column("why", wraps=True)], rows)
    for slot in plan.interrupted:
        session.output.line(Styled(f"{name}@slot:{slot}: a prune of it was interrupted; it is finished now", "yellow"))
    for slot in plan.leftovers:
        session.output.line(Styled(f"{name}@slot:{slot}: it was forgotten, and what landed there goes too", "yellow"))


def _show_outcome(session: Session, name: str, plan: PrunePlan, removed: Removed | None, swept: Swept | None) -> None:
    output = session.output
    kept = sum(1 for verdict in plan.verdicts if verdict.keep)
    loose = f" and {amount(len(swept.objects), 'loose object')}, {size(swept.bytes)}" if swept and swept.objects else ""
    if removed is None:
        plan_told = f"{name}: would keep {kept} and drop {len(plan.drops)}{loose}."
        output.remark(Styled(f"{plan_told} Nothing was changed.", "bold"))
        return
    for slot, why in removed.spared.items():
        output.line(Styled(f"{name}@slot:{slot} was spared: {', '.join(why)}", "yellow"))
    went = f"{amount(len(removed.checkpoints), 'checkpoint')}, {amount(len(removed.objects), 'object')}"
    output.remark(Styled(f"{name}: kept {kept}; removed {went}{loose}.", "bold"))
