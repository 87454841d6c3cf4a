"""Tables, facts and progress bars: rich on a terminal, plain aligned text in a pipe.

Everything that is shown passes `clean` here. rich is imported only when there is something to render with it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import click

from holdfast.text import clean

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Cell", "Column", "Output", "Progress", "Styled", "is_coloured", "rich_console", "show_block"]

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""


READABLE = 24
"""A column that wraps is not made narrower than this."""


class Styled(NamedTuple):
    """A cell that stands out on a terminal that shows colours."""

    text: str
    style: str


class Column(NamedTuple):
    name: str
    right: bool = False
    wraps: bool = False


Cell = str | Styled


def is_coloured(stream: IO[str]) -> bool:
    """Whether a stream is a terminal on which nobody forbade colours."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def show_block(message: str, code: str, hint: str) -> None:
    """An error as one readable block on stderr."""
    coloured = is_coloured(sys.stderr)
    heading = click.style("Error", fg="red", bold=True) if coloured else "Error"
    click.echo(f"{heading}: {clean(message)} [{code}]", err=True, color=coloured)
    if hint:
        click.echo(f"Hint: {clean(hint)}", err=True)


class Output:
    """Where a command writes its results; with `quiet`, remarks and progress are left out."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet

    def line(self, text: Cell = "") -> None:
        """One line of the result."""
        shown, style = _parts(text)
        if style and is_coloured(sys.stdout):
            rich_console(sys.stdout).print(_text(shown, style), soft_wrap=True)
        else:
            click.echo(shown)

    def remark(self, text: Cell) -> None:
        """A line that tells what was done; left out when quiet."""
        if not self.quiet:
            self.line(text)

    def heading(self, text: str) -> None:
        self.line()
        self.line(Styled(text, "bold"))

    def facts(self, facts: Sequence[tuple[str, Cell]], indent: str = "") -> None:
        """Names and values, the values below each other."""
        width = max((len(name) for name, _ in facts), default=0)
        for name, value in facts:
            shown, style = _parts(value)
            if style and is_coloured(sys.stdout):
                text = _text(f"{indent}{name.ljust(width)}  ", "")
                rich_console(sys.stdout).print(text.append(shown, style), soft_wrap=True)
            else:
                click.echo(f"{indent}{name.ljust(width)}  {shown}".rstrip())

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[Cell]], indent: str = "") -> None:
        if sys.stdout.isatty():
            self._rich_table(columns, rows, indent)
        else:
            self._plain_table(columns, rows, indent)

    def _plain_table(self, columns: Sequence[Column], rows: Sequence[Sequence[Cell]], indent: str) -> None:
        cells = [[column.name for column in columns], *([_parts(cell)[0] for cell in row] for row in rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        for row in cells:
            aligned = (
                cell.rjust(width) if column.right else cell.ljust(width)
                for cell, width, column in zip(row, widths, columns, strict=True)
            )
            click.echo(indent + "  ".join(aligned).rstrip())

    def _rich_table(self, columns: Sequence[Column], rows: Sequence[Sequence[Cell]], indent: str) -> None:
        from rich.padding import Padding
        from rich.table import Table

        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold underline")
        for column in columns:
            justify: Any = "right" if column.right else "left"
            table.add_column(column.name, justify=justify, no_wrap=not column.wraps, overflow="fold")
        for row in rows:
            table.add_row(*(_text(*_parts(cell)) for cell in row))
        console = rich_console(sys.stdout)
        # On a narrow terminal its own wrapping reads better than columns of three letters.
        console.width = max(console.width, _least_width(columns, rows) + len(indent))
        console.print(Padding(table, (0, 0, 0, len(indent))))

    @contextmanager
    def progress(self, title: str, *, in_bytes: bool = True) -> Iterator[Progress]:
        """A bar on stderr while something runs; nothing when stderr is no terminal, or when quiet."""
        if self.quiet or not sys.stderr.isatty():
            yield lambda _what, _done, _total: None
            return
        from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        counted = DownloadColumn(binary_units=True) if in_bytes else MofNCompleteColumn()
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), counted, TimeRemainingColumn())
        with Bars(*columns, console=rich_console(sys.stderr), transient=True) as bars:
            task = bars.add_task(clean(title), total=None)

            def advance(what: str, done: int, total: int) -> None:
                bars.update(task, description=clean(f"{title}: {what}"), completed=done, total=total)

            yield advance


def _least_width(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> int:
    total = 0
    for index, column in enumerate(columns):
        natural = max([len(column.name), *(len(_parts(row[index])[0]) for row in rows)])
        total += 2 + (min(natural, READABLE) if column.wraps else natural)
    return total


def _parts(cell: Cell) -> tuple[str, str]:
    return (clean(cell.text), cell.style) if isinstance(cell, Styled) else (clean(cell), "")


def _text(shown: str, style: str) -> Any:
    from rich.text import Text

    return Text(shown, style=style)


def rich_console(stream: IO[str]) -> Console:
    """rich on a stream: text is text, and colours only where they are wanted."""
    from rich.console import Console

    colours: Any = "auto" if is_coloured(stream) else None
    return Console(file=stream, markup=False, highlight=False, emoji=False, color_system=colours)
