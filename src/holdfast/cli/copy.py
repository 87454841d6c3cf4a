"""`holdfast copy`: pipelines to another repository."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from holdfast.cli.common import Session, StoreOption, for_each, verb
from holdfast.cli.render import Styled
from holdfast.cli.text import amount, size

if TYPE_CHECKING:
    from holdfast.copying import Copied

__all__ = ["ENDS", "command"]

DAMAGE = 3
ENDS = (
    click.Argument(["source"], metavar="SRC"),
    click.Argument(["target"], metavar="DST"),
    click.Option(["--pipeline", "-p", "pipelines"], multiple=True, metavar="NAME", help="Only this one. Repeatable."),
    click.Option(["--init"], is_flag=True, help="Make the repository DST if it is not there."),
    click.Option(
        ["--from-option"],
        type=StoreOption(),
        multiple=True,
        help="An option of SRC's store; the value may be env:NAME or file:PATH. Repeatable.",
    ),
    click.Option(
        ["--to-option"],
        type=StoreOption(),
        multiple=True,
        help="An option of DST's store; the value may be env:NAME or file:PATH. Repeatable.",
    ),
)
"""From where to where, and what."""


@verb(
    "copy",
    *ENDS,
    repository=False,
    examples="""
    holdfast copy /backup/holdfast s3://bucket/holdfast --init --to-option secret_access_key=env:S3_SECRET
    holdfast copy s3://bucket/holdfast /backup/holdfast -p orders -p clicks
    """,
)
def command(
    session: Session,
    source: str,
    target: str,
    pipelines: tuple[str, ...],
    init: bool,
    from_option: tuple[tuple[str, str], ...],
    to_option: tuple[tuple[str, str], ...],
) -> None:
    """Bring the pipelines of repository DST up to those of SRC: only what is missing, every byte verified.

    It can be cut off and run again to the same end. What SRC has forgotten is removed from DST too. A DST that was
    written by someone else has diverged: 5. A checkpoint that is damaged in SRC is not copied, and the command ends
    with 3. To copy again and again, `holdfast standby` does it at the cost of what is new.
    """
    from holdfast.report import describe_copied

    origin = session.open(source, dict(from_option))
    destination = session.open(target, dict(to_option), create=init)
    names = list(dict.fromkeys(pipelines)) or [pipeline.name for pipeline in origin.pipelines()]
    copied: list[Copied] = []

    def copy(name: str) -> None:
        with session.output.progress(f"copying {name}", in_bytes=False) as progress:
            copied.append(origin.copy_to(destination, name, progress))
        if not session.as_json:
            _show(session, copied[-1])

    failed = for_each(session, names, copy)
    if session.as_json:
        documents = [describe_copied(each) for each in copied] + [failure.document() for failure in failed]
        session.document({"from": origin.url, "to": destination.url, "pipelines": documents})
    elif not names:
        session.output.remark(f"{origin.url} has no pipelines yet.")
    session.end(failed)
    if any(each.damaged for each in copied):
        sys.exit(DAMAGE)


def _show(session: Session, copied: Copied) -> None:
    for lost in copied.damaged:
        session.output.line(Styled(f"{copied.pipeline}@slot:{lost.slot} was not copied: {lost.why}", "bold red"))
    moved = f"{amount(copied.checkpoints, 'checkpoint')}, {amount(copied.objects, 'object')}, {size(copied.bytes)}"
    gone = f"; {amount(len(copied.removed), 'checkpoint')} removed, as in the source" if copied.removed else ""
    session.output.remark(f"{copied.pipeline}: copied {moved}{gone}.")
