"""The pages that people read and the fenced blocks in them: their language, their commands, and what is shown below."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import click

from holdfast.cli import cli

__all__ = ["PAGES", "ROOT", "Block", "Command", "Page", "known_options", "parse_command"]

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<code>.*?)^(?P=indent)```$", re.DOTALL | re.MULTILINE)
SHELL = {"bash", "console"}
COMMENT = re.compile(r"(?:^|\s)#(?:\s.*)?$")


@dataclass(frozen=True)
class Command:
    """One command as it would be typed, and the lines that the page shows below it."""

    text: str
    shown: tuple[str, ...] = ()

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text)


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    code: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @cached_property
    def commands(self) -> list[Command]:
        """The commands in it: after a prompt, or, in a script and in a block of no language, line by line."""
        lines = self.code.replace("\\\n", " ").splitlines()
        if any(line.startswith("$ ") for line in lines):
            return list(_prompted(lines))
        if self.language in SHELL or (not self.language and lines[0].startswith("holdfast ")):
            return [Command(text) for line in lines if (text := _bare(line))]
        return []


def _prompted(lines: list[str]) -> Iterator[Command]:
    text, shown = "", []
    for line in [*lines, "$ "]:
        if not line.startswith("$ "):
            shown.append(line)
            continue
        if text:
            yield Command(text, tuple(shown))
        text, shown = _bare(line.removeprefix("$ ")), []


def _bare(line: str) -> str:
    return " ".join(COMMENT.sub("", line).split())


@dataclass(frozen=True)
class Page:
    name: str

    @cached_property
    def text(self) -> str:
        return (ROOT / self.name).read_text(encoding="utf-8")

    @cached_property
    def prose(self) -> str:
        return FENCE.sub("", self.text)

    @cached_property
    def blocks(self) -> list[Block]:
        found = []
        for match in FENCE.finditer(self.text):
            indent = len(match["indent"])
            code = "".join(line[indent:] for line in match["code"].splitlines(keepends=True))
            found.append(Block(self.name, self.text.count("\n", 0, match.start()) + 1, match["language"], code))
        return found

    def of(self, *languages: str) -> list[Block]:
        return [block for block in self.blocks if block.language in languages]


PAGES = [
    Page(path.relative_to(ROOT).as_posix()) for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
]


def parse_command(words: list[str]) -> click.Context:
    """Have the command line itself read a command, short of running it. Raises click's UsageError."""
    program, name, *rest = words
    assert program == "holdfast"
    verb = cli.get_command(click.Context(cli), name)
    if verb is None:
        raise click.UsageError(f"there is no verb {name}")
    given = [re.sub(r"(?<==)(?:env|file):\S+", "env:PATH", word) for word in rest]
    assert "PATH" in os.environ
    # With its settings: a verb keeps the help option that it is first given.
    return verb.make_context(name, given, parent=click.Context(cli, info_name="holdfast", **cli.context_settings))


def known_options(name: str) -> set[str]:
    """All options of a verb."""
    verb = cli.get_command(click.Context(cli), name)
    assert verb is not None
    return {option for param in verb.params for option in (*param.opts, *param.secondary_opts)} | {"--help", "-h"}
