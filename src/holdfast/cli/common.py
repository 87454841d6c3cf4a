"""What the verbs share: the options that they all have, how a repository is opened, and how they are declared."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from holdfast.cli.render import Output, show_block
from holdfast.errors import HoldfastError, StoreError
from holdfast.text import moment

if TYPE_CHECKING:
    from holdfast.config import RepositoryTable
    from holdfast.handles import Repository
    from holdfast.repository.root import GivenKey
    from holdfast.store import RetryPolicy

__all__ = ["Failed", "Session", "StoreOption", "Verb", "for_each", "verb"]


class Session:
    """What a verb is run with: where the repository is, and how to show things."""

    def __init__(self, common: dict[str, Any]) -> None:
        self.as_json: bool = common["json"]
        self.utc: bool = common["utc"]
        self.output = Output(quiet=common["quiet"])
        self.given_url: str | None = common.get("repo") or None
        self.given_options: dict[str, str] = dict(common.get("repo_option", ()))
        self.retry_seconds: float | None = common.get("retry_seconds")
        self._key_file: str | None = common.get("key_file")
        self._key_command: str | None = common.get("key_command")

    def repository(self) -> Repository:
        """The repository that --repo, HOLDFAST_REPO or the file of HOLDFAST_CONFIG names."""
        return self.open(self.require_url(), self.options, key=self.key())

    @property
    def url(self) -> str | None:
        return self._table.url if self._table else self.given_url

    @property
    def options(self) -> dict[str, str]:
        return {**self._table.options, **self.given_options} if self._table else self.given_options

    @cached_property
    def _table(self) -> RepositoryTable | None:
        """What the file of HOLDFAST_CONFIG says of the repository, if nothing nearer names one."""
        file = os.environ.get("HOLDFAST_CONFIG")
        if self.given_url or not file:
            return None
        from holdfast.config import read_repository

        return read_repository(file)

    def require_url(self) -> str:
        if not self.url:
            raise click.UsageError("Which repository? Give --repo URL, or set HOLDFAST_REPO or HOLDFAST_CONFIG.")
        return self.url

    def open(
        self, url: str, options: dict[str, str], *, create: bool = False, key: GivenKey = "environment"
    ) -> Repository:
        # Everything below pulls in the store and the records, which --help and usage errors do without.
        from holdfast.handles import open_url

        return open_url(url, create=create, options=options, retry=self.retry(), key=key)

    def key(self, table: RepositoryTable | None = None) -> GivenKey:
        """The key of the repository: as --key-file or --key-command gives it, else the file, else the environment.

        `table` is what a file says of the repository, if it is not the file of HOLDFAST_CONFIG.
        """
        from holdfast.encryption.keys import Key

        file, command, said = self._key_file, self._key_command, table or self._table
        if file and command:
            raise click.UsageError("Give --key-file or --key-command, not both.")
        if said is not None and not (file or command):
            file, command = said.key_file, said.key_command
        if file:
            return Key.from_file(file)
        return Key.from_command(command) if command else "environment"

    def retry(self) -> RetryPolicy | None:
        """How long to keep trying, if that was said."""
        from holdfast.store import RetryPolicy

        return None if self.retry_seconds is None else RetryPolicy(budget_seconds=self.retry_seconds)

    def document(self, value: Any) -> None:
        """The one JSON document of a command that was given --json."""
        from holdfast.report import to_json

        click.echo(to_json(value))

    def document_line(self, fields: dict[str, Any]) -> None:
        """One of the lines of a command that writes a JSON document for each thing that happens, with its time."""
        from holdfast.report import iso_time, to_json_line

        click.echo(to_json_line({"time": iso_time(int(time.time() * 1000)), **fields}))

    def end(self, failed: Sequence[Failed]) -> None:
        """End with the exit code of the first failure, if there is one."""
        if failed:
            sys.exit(failed[0].error.exit_code)

    def time(self, timestamp_ms: int | None) -> str:
        return moment(timestamp_ms, utc=self.utc)


class Failed(NamedTuple):
    """A pipeline that could not be dealt with, and why."""

    pipeline: str
    error: HoldfastError

    def document(self) -> dict[str, Any]:
        return {"pipeline": self.pipeline, "error": self.error}


def for_each(session: Session, names: Iterable[str], act: Callable[[str], None]) -> list[Failed]:
    """Act on each pipeline; one that fails does not keep the others from their turn.

    With a single one, or when the store itself is the failure, the error is raised as it is. The caller ends with
    `Session.end`.
    """
    chosen = list(names)
    failed: list[Failed] = []
    for name in chosen:
        try:
            act(name)
        except StoreError:
            raise
        except HoldfastError as error:
            if len(chosen) == 1:
                raise
            failed.append(Failed(name, error))
            if not session.as_json:
                show_block(f"{name}: {error.message}", error.code, error.hint)
    return failed


class StoreOption(click.ParamType):  # type: ignore[type-arg]  # not generic at run time
    """KEY=VALUE for a store. `env:NAME` and `file:PATH` as the value keep a secret out of argv and history.

    What was given is never repeated in a message: it may be the secret.
    """

    name = "KEY=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        key, equals, given = str(value).partition("=")
        if not (key and equals):
            self.fail("write KEY=VALUE, KEY=env:NAME or KEY=file:PATH", param, ctx)
        kind, _, where = given.partition(":")
        if kind == "env":
            if where not in os.environ:
                self.fail(f"{key}: the environment has no {where}", param, ctx)
            return key, os.environ[where]
        if kind == "file":
            try:
                return key, Path(where).expanduser().read_text(encoding="utf-8").rstrip("\r\n")
            except (OSError, UnicodeDecodeError) as error:
                why = error.strerror if isinstance(error, OSError) else "it is not text"
                self.fail(f"{key}: {where} can't be read: {why}", param, ctx)
        return key, given


class Verb(click.Command):
    """A command with a section of examples in its help."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        with formatter.section("Examples"):
            for example in self.examples:
                formatter.write(f"  {example}\n")


def verb(
    name: str,
    *params: click.Parameter,
    examples: str,
    repository: bool = True,
    store: bool = True,
    cls: type[Verb] = Verb,
) -> Callable[[Callable[..., None]], click.Command]:
    """Declare a verb: its own parameters, then those that all share. The function gets a Session first.

    `repository` adds --repo and its options; `store` is for verbs that talk to a store in another way. A verb with a
    --quiet of its own leaves only -q for silence.
    """
    own = {option for param in params for option in param.opts}
    silence = _SILENT if "--quiet" in own else _QUIET
    shared = [*(_REPOSITORY if repository else ()), *(_STORE if store else ()), *_OUTPUT, silence, _DEBUG]
    taken = {param.name for param in shared if param.name}

    def declare(function: Callable[..., None]) -> click.Command:
        def callback(**given: Any) -> None:
            common = {name: given.pop(name) for name in taken}
            function(Session(common), **given)

        lines = [line for line in cleandoc(examples).splitlines() if line]
        text = cleandoc(function.__doc__ or "")
        return cls(name, params=[*params, *shared], callback=callback, help=text, examples=lines)

    return declare


_REPOSITORY = (
    click.Option(["--repo"], metavar="URL", envvar="HOLDFAST_REPO", show_envvar=True, help="The repository."),
    click.Option(
        ["--repo-option"],
        type=StoreOption(),
        multiple=True,
        help="An option of the store, such as credentials; the value may be env:NAME or file:PATH. Repeatable.",
    ),
    click.Option(
        ["--key-file"],
        metavar="PATH",
        help="The key of an encrypted repository.  [env var: HOLDFAST_KEY_FILE, or HOLDFAST_KEY for the key itself]",
    ),
    click.Option(
        ["--key-command"],
        metavar="COMMAND",
        help="A command that prints the key.  [env var: HOLDFAST_KEY_COMMAND]",
    ),
)

_STORE = (
    click.Option(
        ["--retry-seconds"],
        type=click.FloatRange(min=0),
        metavar="SECONDS",
        help="How long to keep trying when the store fails.  [default: 60]",
    ),
)

_OUTPUT = (
    click.Option(["--json"], is_flag=True, help="Write one JSON document to stdout; errors too."),
    click.Option(["--utc"], is_flag=True, help="Show times in UTC, not in the local zone."),
)

_QUIET = click.Option(["--quiet", "-q"], is_flag=True, help="No remarks and no progress: only results and errors.")
_SILENT = click.Option(["-q", "quiet"], is_flag=True, help="No remarks and no progress: only results and errors.")
_DEBUG = click.Option(["--debug"], is_flag=True, help="Show the traceback of an error.")
