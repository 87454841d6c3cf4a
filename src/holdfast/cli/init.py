"""`holdfast init`: make a repository."""

from __future__ import annotations

import click

from holdfast.cli.common import Session, verb
from holdfast.cli.render import Styled

__all__ = ["command"]

PROVEN = {
    "create": "a new object is never written over another one",
    "create, raced": "of several writers at once exactly one wins",
    "get": "what was written reads back, what was not is missing",
    "get_ranges": "parts of an object can be read",
    "list": "a new object is listed at once",
    "folders": "folders are told without listing all below them",
    "put": "a replaced object is seen at once",
    "copy": "objects are copied inside the store",
    "write": "large objects are streamed in and out",
    "delete": "deleted objects are gone",
}


@verb(
    "init",
    click.Argument(["url"], required=False, metavar="[URL]"),
    click.Option(["--encrypt"], is_flag=True, help="Insist on a key: nothing is made without one."),
    examples="""
    holdfast init /backup/holdfast
    holdfast init s3://bucket/holdfast --repo-option endpoint=http://127.0.0.1:9000 --repo-option region=us-east-1
    holdfast init --repo s3://bucket/holdfast --repo-option secret_access_key=file:~/.s3-secret
    holdfast init s3://bucket/holdfast --encrypt --key-file ~/.holdfast.key
    """,
)
def command(session: Session, url: str | None, encrypt: bool) -> None:
    """Make a repository at URL (or --repo) and prove that the store can hold it.

    Every verb that Holdfast needs of a store is tried on throw-away objects, above all that create-if-absent holds
    when several writers race. A store that fails is refused. A repository that is there already is left as it is.

    With a key (see `holdfast key`) it is encrypted: bytes and names can't be read without that key.
    """
    from holdfast.encryption.keys import has_key
    from holdfast.errors import KeyMissing
    from holdfast.store.address import redact

    where, key = url or session.require_url(), session.key()
    if encrypt and key == "environment" and not has_key():
        raise KeyMissing(redact(where))
    repository = session.open(where, session.options, create=True, key=key)
    opened_with = repository.keys.used if repository.keys else None
    if session.as_json:
        proven = [finding.verb for finding in repository.proven]
        session.document(
            {
                "url": repository.url,
                "repository_id": repository.id,
                "made": bool(proven),
                "proven": proven,
                "key": opened_with,
            }
        )
        return
    output = session.output
    if not repository.proven:
        output.remark(f"{repository.url} is a repository already, {repository.id}; nothing was changed.")
        return
    for finding in repository.proven:
        output.remark(Styled(f"proven  {finding.verb}: {PROVEN.get(finding.verb, 'works')}", "green"))
    output.remark(f"Made the repository {repository.id} at {repository.url}")
    if opened_with:
        output.remark(f"It is encrypted, and opens with the key {opened_with}. Keep a copy of that key elsewhere:")
        output.remark("without it nothing can ever be read.")
