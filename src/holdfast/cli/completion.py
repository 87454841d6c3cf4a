"""`holdfast completion`: the completion script of a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from holdfast.cli.common import Session, verb

__all__ = ["command"]


@verb(
    "completion",
    click.Argument(["shell"], type=click.Choice(["bash", "zsh", "fish"])),
    repository=False,
    store=False,
    examples="""
    holdfast completion bash > ~/.local/share/bash-completion/completions/holdfast
    holdfast completion zsh > "${fpath[1]}/_holdfast"
    holdfast completion fish > ~/.config/fish/completions/holdfast.fish
    """,
)
def command(session: Session, shell: str) -> None:
    """Print the script that teaches a shell to complete verbs and options of holdfast.

    Write it where the shell looks for completions, as in the examples, and open a new shell.
    """
    from holdfast.cli import cli

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(cli, {}, "holdfast", "_HOLDFAST_COMPLETE").source()
    if session.as_json:
        session.document({"shell": shell, "script": script})
    else:
        click.echo(script)
