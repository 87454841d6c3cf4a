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
    examples="""
    holdfast init /backup/holdfast
    holdfast init s3://bucket/holdfast --repo-option endpoint=http://127.0.0.1:9000 --repo-option region=us-east-1
    holdfast init --repo s3://bucket/holdfast --repo-option secret_access_key=file:~/.s3-secret
    """,
)
def command(session: Session, url: str | None) -> None:
    """Make a repository at URL (or --repo) and prove that the store can hold it.

    Every verb that Holdfast needs of a store is tried on throw-away objects, above all that create-if-absent holds
    when several writers race. A store that fails is refused. A repository that is there already is left as it is.
    """
    repository = session.open(url or session.require_url(), session.options, create=True)
    if session.as_json:
        proven = [finding.verb for finding in repository.proven]
        session.document(
            {"url": repository.url, "repository_id": repository.id, "made": bool(proven), "proven": proven}
        )
        return
    output = session.output
    if not repository.proven:
        output.remark(f"{repository.url} is a repository already, {repository.id}; nothing was changed.")
        return
    for finding in repository.proven:
        output.remark(Styled(f"proven  {finding.verb}: {PROVEN.get(finding.verb, 'works')}", "green"))
    output.remark(f"Made the repository {repository.id} at {repository.url}")
