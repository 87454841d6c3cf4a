"""A page played as it stands: its Python run, its commands given to the command line, what it shows compared."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from pyspark.sql import SparkSession

import holdfast
from holdfast.cli import cli
from pages.blocks import Block, Command, Page

__all__ = ["Play", "Stage"]

FILE = re.compile(r"# (?P<name>[\w/]+\.py)\n")
CHANGES = [
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}(-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})?"), "ID"),
    (re.compile(r"\d+(\.\d+)? ([KMG]i)?B\b"), "SIZE"),
    (re.compile(r"\d+(\.\d+)? m?s\b"), "AGE"),
    (re.compile(r"\bfiles\b"), "file"),
    (re.compile(r"\d+(,\d{3})*"), "N"),
    (re.compile(r"\s+"), " "),
]
"""What differs from run to run, and stands for itself."""


NOT_TYPED = {
    ("README.md", "make demo"): "tests/demo plays it, and looks for its scenes and the lines of its verdict",
    ("README.md", "make test"): "it is what runs this, and test_blocks compares its form",
}
"""Commands that show what they say and are looked after elsewhere."""


@dataclass
class Play:
    """One page on its stage: a folder of its own, names that its Python finds, and what stands for its addresses."""

    page: Page
    here: Path
    fixture: Callable[[str], Any]
    names: dict[str, Any] = field(default_factory=dict)
    stands_for: dict[str, str] = field(default_factory=dict)
    ends_with: dict[str, int] = field(default_factory=dict)
    """The exit code of commands that begin so, where it is not 0."""
    goes_on: tuple[str, ...] = ()
    """How commands begin that run until they are told to stop: they do so beside those after them, until `end`."""
    ran: set[Block] = field(default_factory=set)
    typed: set[Command] = field(default_factory=set)
    beside: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def spark(self) -> SparkSession:
        session: SparkSession = self.fixture("spark")
        return session

    def repository(self) -> holdfast.Repository:
        """A new repository here, which HOLDFAST_REPO names too."""
        os.environ["HOLDFAST_REPO"] = str(self.here / "repository")
        return holdfast.open("repository", create=True)

    def python(self, *numbers: int, **more: Any) -> None:
        """Run the page's Python, all of it or some blocks by number."""
        blocks = self.page.of("python")
        self.names |= more
        for block in [blocks[number] for number in numbers] if numbers else blocks:
            self._run(block)

    def everything(self, first: int = 0, last: int | None = None) -> None:
        """Play all blocks of Python, commands and SQL, in the order of the page."""
        for block in self.page.blocks[first:last]:
            if block.language == "python":
                self._run(block)
            else:
                self.type(*block.commands)

    def type(self, *commands: Command) -> None:
        """Give commands to the command line, or to a shell, and compare what they say with what the page shows."""
        for command in commands:
            self.typed.add(command)
            text = self._local(os.path.expandvars(command.text))
            if text.startswith("export "):
                for word in shlex.split(text)[1:]:
                    name, _, value = word.partition("=")
                    os.environ[name] = value
            elif text.startswith(self.goes_on or ("\n",)):
                self._start_beside(command, text)
            elif text.startswith("holdfast "):
                self._compare(command, self._holdfast(Command(text)))
            else:
                subprocess.run(text, shell=True, check=True, cwd=self.here)

    def end(self) -> None:
        """Stop what runs beside; it must bear that."""
        for process in self.beside:
            process.terminate()
            process.communicate()
            assert process.returncode == 0, process.args

    def left(self) -> list[str]:
        """Python that nobody has run, and commands that show what they say and that nobody has typed."""
        python = [str(block) for block in self.page.of("python") if block not in self.ran]
        shown = [
            f"{block}: {command.text}"
            for block in self.page.blocks
            for command in block.commands
            if any(command.shown) and command not in self.typed and (self.page.name, command.text) not in NOT_TYPED
        ]
        return python + shown

    def _run(self, block: Block) -> None:
        self.ran.add(block)
        code = self._local(block.code)
        if file := FILE.match(code):
            path = self.here / file["name"]
            path.parent.mkdir(exist_ok=True)
            path.write_text(code)
        else:
            exec(compile(code, str(block), "exec"), self.names)

    def _local(self, text: str) -> str:
        for said, meant in self.stands_for.items():
            text = text.replace(said, meant)
        return text

    def _holdfast(self, command: Command) -> str:
        result = CliRunner().invoke(cli, command.words[1:], prog_name="holdfast")
        expected = next((code for begin, code in self.ends_with.items() if command.text.startswith(begin)), 0)
        assert result.exit_code == expected, f"{command.text}\n{result.output}"
        return result.output

    def _start_beside(self, command: Command, text: str) -> None:
        """Start it, and wait until it has said what the page shows."""
        words = [sys.executable, "-m", "holdfast", *shlex.split(text)[1:]]
        process = subprocess.Popen(words, cwd=self.here, stdout=subprocess.PIPE, text=True)
        self.beside.append(process)
        assert process.stdout is not None
        said = ""
        while self._missing(command, said) is not None:
            said += (line := process.stdout.readline())
            if not line:
                self._compare(command, said)

    def _compare(self, command: Command, output: str) -> None:
        line = self._missing(command, output)
        assert line is None, f"{self.page.name} shows\n{line}\nbut {command.text} said\n{output}"

    def _missing(self, command: Command, output: str) -> str | None:
        """The first line that the page shows and that is not among those that came, in order, if there is one.

        A … stands for any number of lines, and at the end of a line for the rest of it.
        """
        came = iter([masked(line) for line in output.splitlines()])
        for line in command.shown:
            wanted, more, _ = masked(self._local(line)).partition("…")
            if wanted and not any(said.startswith(wanted) if more else said == wanted for said in came):
                return line
        return None


def masked(line: str) -> str:
    for pattern, word in CHANGES:
        line = pattern.sub(word, line)
    return line.strip()


Stage = Callable[[Play], None]
"""Prepares what a page takes for granted, plays it, and looks at what has come of it."""

Names = Mapping[str, Any]
