"""The group of all verbs: each is imported only when it is asked for, and here is where every failure ends."""

from __future__ import annotations

import sys
from importlib import import_module
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any

import click

from holdfast._version import __version__

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = ["cli", "main"]

VERBS = {
    "demo": "See it work: a real pipeline is killed, loses its machine, is rewound, and loses nothing.",
    "init": "Make a repository and prove that the store can hold it.",
    "doctor": "Look at this machine and at a store, and say what is missing.",
    "capture": "Take a checkpoint of a Spark query's checkpoint directory.",
    "watch": "Take checkpoints of a Spark query's directory for ever, as a sidecar.",
    "list": "List pipelines, or the checkpoints of one.",
    "show": "Show everything about one checkpoint.",
    "diff": "Show what changed between two checkpoints.",
    "du": "Show what checkpoints cost in bytes.",
    "check": "Check that everything is there and is what was written.",
    "restore": "Lay a checkpoint down in a new place: a directory that Spark starts from, or plain files.",
    "state": "Look into the state of a Spark query: rows, by key, as Parquet, compared, in other partitions.",
    "plan": "Say what would happen if a changed query started from a checkpoint.",
    "run": "Run a pipeline: exactly once over all its sinks, recovering by itself.",
    "rewind": "Take a pipeline back to a checkpoint: its state, its offsets and every sink.",
    "fork": "Begin another pipeline, or another query, from a checkpoint.",
    "savepoint": "Give a checkpoint a name that retention never removes.",
    "pin": "Hold a checkpoint against retention without naming it.",
    "forget": "Delete one checkpoint.",
    "prune": "Delete the checkpoints that no rule keeps.",
    "copy": "Copy pipelines to another repository.",
    "key": "Make a key for an encrypted repository, and say which keys open it.",
    "dashboard": "Show the repository in a browser, live.",
    "standby": "Follow a repository with a copy, and take its pipelines over from there.",
    "drill": "Prove that the newest checkpoints can be restored, and that Spark starts from them.",
    "completion": "Print the completion script of a shell.",
}
"""Every verb and its short help, so that the list of them can be shown without importing any."""

INTERRUPTED = 130
PIPE_CLOSED = 141


class _Verbs(click.Group):
    """A group that imports a verb when it is called, and ends every failure as its kind demands."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in VERBS:
            return None
        verb = import_module(f"holdfast.cli.{cmd_name}").command
        assert isinstance(verb, click.Command)
        return verb

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        from click.shell_completion import CompletionItem

        return [CompletionItem(name, help=text) for name, text in VERBS.items() if name.startswith(incomplete)]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta["holdfast.words"] = list(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except (click.exceptions.Exit, SystemExit):
            raise
        except (KeyboardInterrupt, click.Abort):
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            ctx.exit(PIPE_CLOSED)
        except Exception as error:  # noqa: BLE001 - the one place where every failure ends, and none is swallowed
            from holdfast.cli.failures import show_failure

            ctx.exit(show_failure(error, ctx.meta["holdfast.words"]))
        return result


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="holdfast")
def cli() -> None:
    """Keep streaming pipelines recoverable: verified, incremental checkpoints in any object store.

    Name the repository with --repo URL or HOLDFAST_REPO: a path, or file://, s3://, gs://, az://. Without both it is
    the one of the holdfast.toml that HOLDFAST_CONFIG names.
    A REF names a checkpoint: PIPELINE (its newest), PIPELINE@SAVEPOINT, PIPELINE@ID-PREFIX,
    PIPELINE@epoch:N, PIPELINE@slot:G-N or PIPELINE@time:2026-11-15T10:00 (UTC, if no zone is given).

    Exit codes: 0 good, 1 error, 2 usage, 3 damage found, 4 not found, 5 fenced or lost a race, 6 refused for safety.
    """


def main() -> None:
    """The entry point of `holdfast` and of `python -m holdfast`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A terminal that can't show a character must not end a command.
            stream.reconfigure(errors="backslashreplace")
    cli(prog_name="holdfast")
