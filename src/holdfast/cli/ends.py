"""The two repositories of a copy: how they are named on the command line, and opened with their keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.common import Session, StoreOption

if TYPE_CHECKING:
    from holdfast.handles import Repository

__all__ = ["ENDS", "Ends"]

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
    click.Option(["--from-key-file"], metavar="PATH", help="The key of SRC, if that is encrypted."),
    click.Option(["--to-key-file"], metavar="PATH", help="The key of DST; with --init, what to encrypt it with."),
    click.Option(["--decrypt"], is_flag=True, help="Copy out of an encrypted SRC into a DST that is not."),
)
"""From where to where, and what."""


class Ends:
    """Opens the two, by what `ENDS` were given. `patience` is how many seconds one request is tried again for."""

    def __init__(self, session: Session, given: dict[str, Any], patience: float | None = None) -> None:
        self._session = session
        self._patience = patience
        self._source = given["source"], dict(given["from_option"]), given["from_key_file"]
        self._target = given["target"], dict(given["to_option"]), given["to_key_file"]
        self._init = bool(given["init"])
        self.decrypt = bool(given["decrypt"])

    def source(self, patience: float | None = None) -> Repository:
        """The source. With a patience of its own, no request waits much longer than that for a byte either."""
        url, options, key_file = self._source
        if patience is not None:
            options = {**_impatient(url, options, patience), **options}
        return self._open(url, options, key_file, patience=patience)

    def both(self) -> tuple[Repository, Repository]:
        """Both of them. Raises WouldDecrypt before anything is made, and NotEncrypted for a key that opens neither."""
        from holdfast.encryption.keys import has_key
        from holdfast.errors import NotEncrypted, WouldDecrypt
        from holdfast.store.address import redact

        origin = self.source()
        url, _, key_file = self._target
        if self._init and origin.keys and not (self.decrypt or key_file or has_key()):
            raise WouldDecrypt(origin.url, redact(url))
        destination = self._open(*self._target, create=self._init)
        if has_key() and origin.keys is None and destination.keys is None:
            raise NotEncrypted(destination.url)
        return origin, destination

    def target_alone(self) -> Repository:
        """The target, where the source may be gone: it is never made, and must be encrypted if a key is given.

        Raises NotEncrypted: without the source nobody knows whether the key is that one's. `--decrypt` says that it is.
        """
        from holdfast.encryption.keys import has_key
        from holdfast.errors import NotEncrypted

        destination = self._open(*self._target)
        if has_key() and destination.keys is None and not self.decrypt:
            raise NotEncrypted(destination.url)
        return destination

    def _open(
        self,
        url: str,
        options: dict[str, str],
        key_file: str | None,
        *,
        create: bool = False,
        patience: float | None = None,
    ) -> Repository:
        from holdfast.encryption.keys import Key
        from holdfast.errors import NotEncrypted
        from holdfast.handles import open_url
        from holdfast.store import RetryPolicy

        patience = patience or self._patience
        retry = self._session.retry() or (RetryPolicy(budget_seconds=patience) if patience else None)
        if key_file is not None:
            return open_url(url, create=create, options=options, retry=retry, key=Key.from_file(key_file))
        try:
            return open_url(url, create=create, options=options, retry=retry)
        except NotEncrypted:
            # The key in the environment is that of the other one.
            return open_url(url, options=options, retry=retry, key=None)


def _impatient(url: str, options: dict[str, str], patience: float) -> dict[str, str]:
    """An option that ends requests to a store which takes them and stays silent, unless it was said when."""
    from holdfast.store.address import CloudAddress, read_address

    address = read_address(url, options)
    if not isinstance(address, CloudAddress) or "read_timeout" in address.options:
        return {}
    return {"read_timeout": f"{2000 * patience:.0f}ms"}
