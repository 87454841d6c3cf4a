"""`holdfast key`: the keys of an encrypted repository."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.common import Session, verb
from holdfast.cli.render import Column
from holdfast.text import amount

if TYPE_CHECKING:
    from holdfast.encryption.opened_with import Keys

__all__ = ["command"]

TAKES = {"new": "FILE", "list": "", "add": "FILE", "remove": "ID", "rotate": "FILE"}
"""What each action is given beside the repository."""


@verb(
    "key",
    click.Argument(["action"], type=click.Choice(list(TAKES))),
    click.Argument(["what"], required=False, metavar="[FILE|ID]"),
    click.Option(
        ["--keep"], metavar="FILE", multiple=True, help="With rotate: this key opens it from now on too. Repeatable."
    ),
    examples="""
    holdfast key new ~/.holdfast.key
    holdfast key list --repo s3://bucket/holdfast --key-file ~/.holdfast.key
    holdfast key add /safe/emergency.key --key-file ~/.holdfast.key
    holdfast key remove 6f1f0c2d9a3b4e58 --key-file ~/.holdfast.key
    holdfast key rotate ~/.holdfast-2027.key --keep /safe/emergency.key --key-file ~/.holdfast.key
    """,
)
def command(session: Session, action: str, what: str | None, keep: tuple[str, ...]) -> None:
    """Make a key, or change which keys open an encrypted repository. Nothing that is stored is written anew.

    `new FILE` makes a key in a new file. `list` shows the keys that open the repository, by their ids. `add FILE` lets
    the key in FILE open it too. `remove ID` takes a key out. `rotate FILE` lets the key in FILE alone open it, with
    those of --keep, and has all that is written from now on encrypted with a new key of the repository's own: do this
    when a key may have become known. Pipelines that run go on; each needs the new key at its next start.
    """
    takes = TAKES[action]
    if bool(takes) != bool(what):
        raise click.UsageError(f"Write `holdfast key {action} {takes}`.".replace(" `.", "`."))
    if keep and action != "rotate":
        raise click.UsageError("--keep goes with rotate.")
    if action == "new":
        _make(session, what or "")
        return
    keys = _keys(session)
    if action == "list":
        _show(session, keys)
        return
    told = _change(keys, action, what or "", keep)
    if session.as_json:
        session.document({"action": action, "keys": keys.look().keys})
    else:
        session.output.remark(told)


def _make(session: Session, file: str) -> None:
    from holdfast.encryption.keys import Key

    key = Key.generate()
    key.save(file)
    if session.as_json:
        session.document({"key": key.id, "file": file})
        return
    session.output.remark(
        f"Made the key {key.id} in {file}. Keep a copy elsewhere: what it encrypts opens with nothing else."
    )


def _keys(session: Session) -> Keys:
    from holdfast.errors import BadValue

    repository = session.repository()
    if repository.keys is None:
        raise BadValue("key", f"{repository.url} is not encrypted; only `holdfast init --encrypt` makes one that is")
    return repository.keys


def _show(session: Session, keys: Keys) -> None:
    found = keys.look()
    if session.as_json:
        session.document({"keys": found.keys, "used": keys.used, "since_ms": found.created_ms, "newest": found.newest})
        return
    rows = [(each, "opened with it" if each == keys.used else "") for each in found.keys]
    session.output.table([Column("key"), Column("")], rows)
    made = amount(found.newest - 1, "rotation")
    session.output.line(f"{amount(len(found.keys), 'key')} since {session.time(found.created_ms)}; {made} so far")


def _change(keys: Keys, action: str, what: str, keep: tuple[str, ...]) -> str:
    from holdfast.encryption.keys import Key

    if action == "remove":
        keys.remove(what)
        return f"The key {what} opens the repository no more."
    key = Key.from_file(what)
    if action == "add":
        keys.add(key)
        return f"The key {key.id} opens the repository too."
    others = [Key.from_file(file) for file in keep]
    keys.rotate(key, *others)
    opens = ", ".join(each.id for each in (key, *others))
    return f"From now on the repository opens with {opens} alone, and new objects are encrypted anew."
