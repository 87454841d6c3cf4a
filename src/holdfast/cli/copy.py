"""`holdfast copy`: pipelines to another repository."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from holdfast.cli.common import Session, StoreOption, for_each, verb
from holdfast.cli.render import Styled
from holdfast.text import amount, size

if TYPE_CHECKING:
    from holdfast.copying import Copied
    from holdfast.handles import Repository

__all__ = ["command"]

DAMAGE = 3


@verb(
    "copy",
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
    click.Option(["--from-key-file"], metavar="PATH", help="The key of SRC, if that is encrypted."),
    click.Option(["--to-key-file"], metavar="PATH", help="The key of DST; with --init, what to encrypt it with."),
    click.Option(["--decrypt"], is_flag=True, help="Copy out of an encrypted SRC into a DST that is not."),
    repository=False,
    examples="""
    holdfast copy /backup/holdfast s3://bucket/holdfast --init --to-option secret_access_key=env:S3_SECRET
    holdfast copy s3://bucket/holdfast /backup/holdfast -p orders -p clicks
    holdfast copy /backup/holdfast s3://bucket/vault --init --to-key-file ~/.holdfast.key
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
    from_key_file: str | None,
    to_key_file: str | None,
    decrypt: bool,
) -> None:
    """Bring the pipelines of repository DST up to those of SRC: only what is missing, every byte verified.

    It can be cut off and run again to the same end. What SRC has forgotten is removed from DST too. A DST that was
    written by someone else has diverged: 5. A checkpoint that is damaged in SRC is not copied, and the command ends
    with 3.

    Each of the two may be encrypted, with keys of their own. A key in the environment (HOLDFAST_KEY_FILE and the like)
    is that of whichever is encrypted and has no other.
    """
    from holdfast.encryption.keys import has_key
    from holdfast.errors import NotEncrypted, WouldDecrypt
    from holdfast.report import describe_copied
    from holdfast.store.address import redact

    origin = _open(session, source, dict(from_option), from_key_file)
    if init and origin.keys and not (decrypt or to_key_file or has_key()):
        # Before anything is made.
        raise WouldDecrypt(origin.url, redact(target))
    destination = _open(session, target, dict(to_option), to_key_file, create=init)
    if has_key() and origin.keys is None and destination.keys is None:
        raise NotEncrypted(destination.url)
    names = list(dict.fromkeys(pipelines)) or [pipeline.name for pipeline in origin.pipelines()]
    copied: list[Copied] = []

    def copy(name: str) -> None:
        with session.output.progress(f"copying {name}", in_bytes=False) as progress:
            copied.append(origin.copy_to(destination, name, progress, decrypt=decrypt))
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


def _open(
    session: Session, url: str, options: dict[str, str], key_file: str | None, *, create: bool = False
) -> Repository:
    from holdfast.encryption.keys import Key
    from holdfast.errors import NotEncrypted

    if key_file is not None:
        return session.open(url, options, create=create, key=Key.from_file(key_file))
    try:
        return session.open(url, options, create=create)
    except NotEncrypted:
        # The key in the environment is that of the other one.
        return session.open(url, options, key=None)


def _show(session: Session, copied: Copied) -> None:
    for lost in copied.damaged:
        session.output.line(Styled(f"{copied.pipeline}@slot:{lost.slot} was not copied: {lost.why}", "bold red"))
    moved = f"{amount(copied.checkpoints, 'checkpoint')}, {amount(copied.objects, 'object')}, {size(copied.bytes)}"
    gone = f"; {amount(len(copied.removed), 'checkpoint')} removed, as in the source" if copied.removed else ""
    session.output.remark(f"{copied.pipeline}: copied {moved}{gone}.")
