"""`holdfast copy`: pipelines to another repository."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from holdfast.cli.common import Session, for_each, verb
from holdfast.cli.ends import ENDS, Ends
from holdfast.cli.render import Styled
from holdfast.text import amount, size

if TYPE_CHECKING:
    from holdfast.copying import Copied

__all__ = ["command"]

DAMAGE = 3


@verb(
    "copy",
    *ENDS,
    repository=False,
    examples="""
    holdfast copy /backup/holdfast s3://bucket/holdfast --init --to-option secret_access_key=env:S3_SECRET
    holdfast copy s3://bucket/holdfast /backup/holdfast -p orders -p clicks
    holdfast copy /backup/holdfast s3://bucket/vault --init --to-key-file ~/.holdfast.key
    """,
)
def command(session: Session, pipelines: tuple[str, ...], **given: Any) -> None:
    """Bring the pipelines of repository DST up to those of SRC: only what is missing, every byte verified.

    It can be cut off and run again to the same end. What SRC has forgotten is removed from DST too. A DST that was
    written by someone else has diverged: 5. A checkpoint or record that is damaged in SRC is not copied, and the
    command ends with 3. To copy again and again, `holdfast standby` does it at the cost of what is new.

    Each of the two may be encrypted, with keys of their own. A key in the environment (HOLDFAST_KEY_FILE and the like)
    is that of whichever is encrypted and has no other.
    """
    from holdfast.report import describe_copied

    ends = Ends(session, given)
    origin, destination = ends.both()
    names = list(dict.fromkeys(pipelines)) or [pipeline.name for pipeline in origin.pipelines()]
    copied: list[Copied] = []

    def copy(name: str) -> None:
        with session.output.progress(f"copying {name}", in_bytes=False) as progress:
            copied.append(origin.copy_to(destination, name, progress, decrypt=ends.decrypt))
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
        what = lost.key if lost.slot is None else f"{copied.pipeline}@slot:{lost.slot}"
        session.output.line(Styled(f"{what} was not copied: {lost.why}", "bold red"))
    moved = f"{amount(copied.checkpoints, 'checkpoint')}, {amount(copied.objects, 'object')}, {size(copied.bytes)}"
    gone = f"; {amount(len(copied.removed), 'checkpoint')} removed, as in the source" if copied.removed else ""
    session.output.remark(f"{copied.pipeline}: copied {moved}{gone}.")
