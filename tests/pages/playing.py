"""A page played as it stands: its Python run, its commands given to the command line, what it shows compared."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from pyspark.sql import SparkSession

import holdfast
from holdfast.cli import cli
from pages.blocks import Block, Command, Page

__all__ = ["ELSEWHERE", "NOT_TYPED", "ONLY_READ", "Play", "Stage", "differs"]

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


ELSEWHERE = {
    "docs/how-to/alerts.md": "tests/sidecar/test_docs.py",
    "docs/how-to/change-shuffle-partitions.md": "tests/state/test_snippets.py",
    "docs/how-to/edit-state.md": "tests/state/test_snippets.py",
    "docs/how-to/look-into-state.md": "tests/state/test_snippets.py",
    "docs/how-to/sidecar-for-a-cluster.md": "tests/sidecar/test_docs.py",
}
"""Pages whose Python, TOML and shown output is tried where its room is tested; their other commands are typed here."""

ONLY_READ = {
    "docs/reference/cli.md": "written by the code, an example for each option: tests/cli runs every verb",
}
"""Pages whose commands the command line only reads."""

SET_UP = "it asks the registries for packages; tests/test_makefile.py sets a fresh clone up"
NOT_TYPED = {
    ("README.md", "make demo"): "tests/demo plays it, and looks for its scenes and the lines of its verdict",
    ("README.md", "make test"): "it is what runs this, and test_blocks compares its form",
    ("docs/quickstart.md", "python3 -m venv"): SET_UP,
    ("docs/quickstart.md", "pip install"): SET_UP,
    ("docs/how-to/dashboard.md", "pip install"): SET_UP,
    ("docs/how-to/encryption.md", "pip install"): SET_UP,
    ("docs/how-to/move.md", "holdfast restore orders@moved abfss://"): "the address of an account at Azure, which no "
    "server here can have; tests/store/test_directory.py talks to Azurite",
    ("docs/operations.md", "spark-submit"): "it needs a cluster of Kubernetes",
}
"""Commands that are not run here, by how they begin, and why."""


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
    """How commands begin that run until they are told to stop: they do so beside those after them, until `end`.

    Each has to say something first: what the page shows of it, or anything at all.
    """
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
            text = self.local(os.path.expandvars(command.text))
            if text.startswith("export "):
                self._export(text)
            elif text.startswith(self.goes_on or ("\n",)):
                self._start_beside(command, text)
            elif text.startswith("holdfast "):
                self._compare(command, self._holdfast(Command(text)))
            else:
                subprocess.run(text, shell=True, check=True, cwd=self.here)

    def end(self) -> None:
        """Stop what runs beside; it must bear that."""
        while self.beside:
            process = self.beside.pop()
            process.terminate()
            process.communicate()
            assert process.returncode == 0, process.args

    def left(self) -> list[str]:
        """Python that nobody has run, and commands that nobody has typed."""
        elsewhere = self.page.name in ELSEWHERE
        python = [str(block) for block in self.page.of("python") if block not in self.ran]
        commands = [
            f"{block}: {command.text}"
            for block in self.page.blocks
            for command in block.commands
            if command not in self.typed and not self._is_excused(command) and not (elsewhere and any(command.shown))
        ]
        return commands if elsewhere else python + commands

    def _is_excused(self, command: Command) -> bool:
        return any(page == self.page.name and command.text.startswith(begin) for page, begin in NOT_TYPED)

    def _export(self, text: str) -> None:
        """Have a shell work out the values, and take those over that it exported."""
        names = re.findall(r"\s([A-Z_]+)=", text)
        told = subprocess.run(["bash", "-c", f"{text} >&2; env -0"], check=True, capture_output=True, text=True)
        found = dict(each.partition("=")[::2] for each in told.stdout.split("\0"))
        os.environ.update({name: found[name] for name in names})

    def _run(self, block: Block) -> None:
        self.ran.add(block)
        code = self.local(block.code)
        if file := FILE.match(code):
            path = self.here / file["name"]
            path.parent.mkdir(exist_ok=True)
            path.write_text(code)
        else:
            exec(compile(code, str(block), "exec"), self.names)

    def local(self, text: str) -> str:
        """The same with what stands here for the addresses of the page."""
        for said, meant in self.stands_for.items():
            text = text.replace(said, meant)
        return text

    def _holdfast(self, command: Command) -> str:
        result = CliRunner().invoke(cli, command.words[1:], prog_name="holdfast")
        expected = next((code for begin, code in self.ends_with.items() if command.text.startswith(begin)), 0)
        assert result.exit_code == expected, f"{command.text}\n{result.output}"
        return result.output

    def _start_beside(self, command: Command, text: str) -> None:
        """Start it, and wait until it has said what the page shows, or anything."""
        words = [sys.executable, "-m", "holdfast", *shlex.split(text)[1:]]
        process = subprocess.Popen(words, cwd=self.here, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.beside.append(process)
        assert process.stdout is not None
        said = ""
        while not said or self._difference(command, said, ended=False) is not None:
            said += (line := process.stdout.readline())
            if not line:
                self._compare(command, said)
                raise AssertionError(f"{command.text} has ended, and said\n{said}")

    def _compare(self, command: Command, output: str) -> None:
        line = self._difference(command, output)
        assert line is None, f"{self.page.name} shows\n{line}\nbut {command.text} said\n{output}"

    def _difference(self, command: Command, output: str, *, ended: bool = True) -> str | None:
        if not any(command.shown):
            return None
        return differs([self.local(line) for line in command.shown], output.splitlines(), ended=ended)


def differs(shown: Sequence[str], said: Sequence[str], *, ended: bool = True) -> str | None:
    """The first line of what is shown that was not said at its place, if there is one.

    All that was said has to be shown. A line of … stands for any number of lines, and … at the end of one for the rest
    of it, of the last one for all that follows. Empty lines do not count. If it has not `ended`, more may come.
    """
    came = [masked(line) for line in said if line.strip()]
    lines = [line for line in shown if line.strip()]
    open_ended, at, anywhere = not ended or lines[-1].endswith("…"), 0, False
    while lines:
        if lines[0].strip() == "…":
            lines, anywhere = lines[1:], True
            continue
        run = list(takewhile(lambda line: line.strip() != "…", lines))
        lines = lines[len(run) :]
        last = len(came) - len(run)
        if not anywhere:
            places = [at]
        elif lines or open_ended:
            places = list(range(at, last + 1))
        else:
            places = [last] if last >= at else []
        fits = [place for place in places if place <= last and all(map(_is_said, run, came[place:]))]
        if not fits:
            return _first_unsaid(run, came[places[0] :] if len(places) == 1 else [])
        at, anywhere = fits[0] + len(run), False
    return None if open_ended or at == len(came) else f"(nothing, where it said) {came[at]}"


def _is_said(line: str, said: str) -> bool:
    wanted, more, _ = masked(line).partition("…")
    return said.startswith(wanted.strip()) if more else said == wanted


def _first_unsaid(run: Sequence[str], came: Sequence[str]) -> str:
    """The line of a run at which it is no longer what came."""
    fitting = sum(1 for _ in takewhile(bool, map(_is_said, run, came)))
    return run[min(fitting, len(run) - 1)]


def masked(line: str) -> str:
    for pattern, word in CHANGES:
        line = pattern.sub(word, line)
    return line.strip()


Stage = Callable[[Play], None]
"""Prepares what a page takes for granted, plays it, and looks at what has come of it."""

Names = Mapping[str, Any]
