"""`holdfast doctor`: what is on this machine, what a store can do, what is missing and what does not fit."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.common import Session, StoreOption, verb
from holdfast.cli.render import Column, Styled
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.config import Config, RepositoryTable
    from holdfast.doctor import Result
    from holdfast.repository.root import GivenKey
    from holdfast.store import RetryPolicy

__all__ = ["command"]

STYLES = {"ok": "green", "none": "dim", "warning": "yellow", "failed": "bold red"}


@verb(
    "doctor",
    click.Argument(["directories"], nargs=-1, metavar="[DIR]..."),
    click.Option(["--config"], metavar="FILE", help="Look at a holdfast.toml and at all that it names."),
    click.Option(
        ["--dir-option"],
        type=StoreOption(),
        multiple=True,
        help="An option of the store that DIR lies in; the value may be env:NAME or file:PATH. Repeatable.",
    ),
    examples="""
    holdfast doctor
    holdfast doctor --repo s3://bucket/holdfast --retry-seconds 10
    holdfast doctor /data/checkpoints/orders --repo s3://bucket/holdfast
    holdfast doctor --config /etc/holdfast.toml --json
    """,
)
def command(
    session: Session,
    directories: tuple[str, ...],
    config: str | None,
    dir_option: tuple[tuple[str, str], ...],
) -> None:
    """Look at this machine and, if a repository is given, try every verb of its store.

    Shows Python, Java, Spark, connectors and libraries and whether their versions fit together, disk space and what a
    sync costs, and the clock. With --repo each verb of the store is tried on throw-away objects, and its clock is
    compared with ours. Each DIR, a checkpoint directory of Spark, is looked at and only read. With --config all that a
    holdfast.toml names is looked at; nobody is told anything, and no code is run. What is wrong comes with what to do
    about it. Ends with 1 if something essential fails.
    """
    results = list(_examined(session, directories, config, dict(dir_option)))
    failed = any(result.status == "failed" for result in results)
    if session.as_json:
        session.document({"ok": not failed, "results": results})
    else:
        _show(session, results)
        if not any(result.what.startswith(("store", "config")) for result in results):
            session.output.remark("Give --repo URL to try a store as well.")
    if failed:
        sys.exit(1)


def _examined(
    session: Session, directories: tuple[str, ...], file: str | None, options: dict[str, str]
) -> Iterator[Result]:
    from holdfast.doctor import (
        Result,
        examine_config,
        examine_directory,
        examine_disk,
        examine_machine,
        examine_repository,
    )

    yield from examine_machine()
    yield from examine_disk()
    url, store_options, retry, table = session.given_url, session.given_options, session.retry(), None
    try:
        if file is not None:
            from holdfast.config import read_config

            config = read_config(file)
        else:
            url, store_options = session.url, session.options
    except HoldfastError as error:
        # What is wrong with a file is a finding; all that it does not name is looked at the same.
        yield Result("config", "failed", error.message, error.hint)
        file = None
    if file is not None:
        retry = _retry(session, config)
        yield from examine_config(config, Path(file), retry)
        if (table := config.repository) is not None:
            url, store_options = table.url, table.options
    for directory in directories:
        yield from examine_directory(f"directory {directory}", directory, options, retry)
    if url:
        yield from examine_repository(url, store_options, retry, _key(session, table))


def _retry(session: Session, config: Config) -> RetryPolicy | None:
    """How long to keep trying: as the command line says, else the file."""
    from holdfast.store import RetryPolicy

    if session.retry_seconds is not None or config.repository is None:
        return session.retry()
    return RetryPolicy(budget_seconds=config.repository.retry.seconds)


def _key(session: Session, table: RepositoryTable | None) -> GivenKey | HoldfastError:
    """The key, or why it can't be had: that is a finding, and what is on this machine is shown all the same."""
    try:
        return session.key(table)
    except HoldfastError as error:
        return error


def _show(session: Session, results: list[Result]) -> None:
    rows = [(r.what, Styled(r.status, STYLES[r.status]), r.found) for r in results]
    session.output.table([Column("what"), Column("result"), Column("found", wraps=True)], rows)
    for result in results:
        if result.advice:
            session.output.line(f"{result.what}: {result.advice}")
