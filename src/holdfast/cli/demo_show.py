"""How the demo shows itself: live on a terminal, as plain lines anywhere else."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from holdfast.cli.render import Output, rich_console
from holdfast.demo.messages import (
    Began,
    Checkpointed,
    Committed,
    Held,
    News,
    Progressed,
    Ready,
    Rewound,
    Saved,
)
from holdfast.demo.play import SCENES, Nobody, Show
from holdfast.text import amount, clean, size

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

__all__ = ["showing"]

BARS = "▁▂▃▄▅▆▇█"
RATES = 24
"""How many batches the line of rates goes back."""
LANDED = 4
"""How many checkpoints are in sight."""
BAR = 12
WIDEST = 100
NARROW = 80
"""On a terminal that is narrower, a checkpoint has a shorter bar and only its new bytes."""
SHORT_BAR = 6
HARM = ("kill", "lose")
NOW = {
    "run": "Spark starts",
    "recover": "Spark starts again",
    "restore": "Spark starts again",
    "rewind": "Everything goes back to the savepoint",
    "verdict": "Plain Spark reads the same orders",
}
"""What happens first in a scene."""


@contextmanager
def showing(output: Output, *, as_json: bool) -> Iterator[Show]:
    """Who shows a performance: nobody with --json or when quiet."""
    if as_json or output.quiet:
        yield Nobody()
    elif sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        from rich.live import Live

        live = LiveShow(rich_console(sys.stdout))
        with Live(get_renderable=live.render, console=live.console, refresh_per_second=8, transient=True):
            yield live
    else:
        yield PlainShow(output)


def words_of(news: News) -> str | None:
    """News that are worth a line that stays, in words."""
    match news:
        case Began(state="warm"):
            if not news.replays:
                return None
            decided = f"epoch {news.epoch + 1} had been decided, and went to the table that lacked it"
            return f"Spark's directory is whole: it goes on after epoch {news.epoch}; {decided}"
        case Began(state="checkpoint"):
            return f"laid down from checkpoint {news.checkpoint}: it goes on after epoch {news.epoch}"
        case Saved():
            return f"savepoint {news.name!r}: checkpoint {news.slot}, epoch {news.epoch}"
        case Rewound():
            return f"taken back to epoch {news.epoch} in {news.seconds:.1f} s"
        case _:
            return None


class PlainShow:
    """A line for everything that is worth one."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._progress: Progressed | None = None
        self._scenes = 0

    def scene(self, name: str, words: str) -> None:
        self._scenes += 1
        self._output.remark("")
        self._output.remark(f"{self._scenes}/{len(SCENES)} {SCENES[name]}")
        self.note(words)

    def note(self, words: str) -> None:
        for line in _wrapped(words):
            self._output.remark(line)

    def news(self, news: News) -> None:
        if isinstance(news, Progressed):
            self._progress = news
        if isinstance(news, Checkpointed):
            said = f"    checkpoint {news.slot:<4} epoch {news.epoch:>2}  {_sizes(news)}"
            if self._progress is not None:
                rows = amount(self._progress.state_rows, "row")
                said += f"   {self._progress.orders_per_second:,.0f} orders/s, {rows} of state"
            self._output.remark(said)
        elif words := words_of(news):
            self.note(words)
        # Whoever reads it through a pipe wants to see it live as well.
        sys.stdout.flush()


class LiveShow:
    """Scenes scroll by and stay; below them the figures of the moment move."""

    def __init__(self, on: Console) -> None:
        self.console = on
        on.width = min(on.width, WIDEST)
        self._began = time.monotonic()
        self._scenes = 0
        self._now = "Orders are written"
        self._rates: deque[float] = deque(maxlen=RATES)
        self._landed: deque[Checkpointed] = deque(maxlen=LANDED)
        self._count = 0
        self._progress: Progressed | None = None
        self._spinner: Any = None

    def scene(self, name: str, words: str) -> None:
        from rich.padding import Padding
        from rich.text import Text

        self._scenes += 1
        heading = Text().append(f"{self._scenes}/{len(SCENES)} ", "dim")
        self.console.print()
        self.console.print(heading.append(SCENES[name], "bold red" if name in HARM else "bold cyan"))
        self.console.print(Padding(Text(clean(words)), (0, 0, 0, 4)))
        self._now = NOW.get(name, self._now)
        if name in HARM:
            self._rates.append(0.0)

    def note(self, words: str) -> None:
        from rich.padding import Padding
        from rich.text import Text

        self.console.print(Padding(Text("· ", "dim").append(clean(words), "dim"), (0, 0, 0, 4)))

    def news(self, news: News) -> None:
        match news:
            case Ready():
                self._now = f"Spark {news.spark} runs; the pipeline starts"
            case Committed():
                self._now = f"Epoch {news.epoch} is in both tables: {news.rows:,} rows"
            case Held():
                self._now = f"Epoch {news.epoch} is in one table of two"
            case Progressed():
                self._progress = news
                self._rates.append(news.orders_per_second)
            case Checkpointed():
                self._count += 1
                self._landed.append(news)
            case _:
                pass
        if words := words_of(news):
            self.note(words)

    def render(self) -> RenderableType:
        """The moving part, as it is now."""
        from rich.box import ROUNDED
        from rich.console import Group
        from rich.panel import Panel
        from rich.spinner import Spinner
        from rich.table import Table
        from rich.text import Text

        self._spinner = self._spinner or Spinner("dots", style="cyan")
        self._spinner.update(text=Text(clean(self._now)))
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        head = Table.grid(expand=True)
        head.add_column(ratio=1)
        head.add_column(justify="right")
        head.add_row(self._spinner, Text(f"{minutes}:{seconds:02d}", style="dim"))
        figures = Table.grid(padding=(0, 2))
        # What is too wide is cut at its end, and never in what it is called.
        figures.add_column(style="dim", no_wrap=True, min_width=len("checkpoints"))
        figures.add_column(no_wrap=True)
        if self._progress is not None:
            rate = Text(f"{self._rates[-1] if self._rates else 0:>7,.0f} orders/s  ")
            figures.add_row("rate", rate.append(_spark(self._rates), "cyan"))
            state = f"{self._progress.state_rows:>7,} rows, {size(self._progress.state_bytes)} in memory"
            figures.add_row("state", Text(state))
        for place, each in enumerate(self._landed):
            is_narrow = self.console.width < NARROW
            row = Text(f"{each.slot:>7}  epoch {each.epoch:>2}  ")
            row.append_text(_bar(each, SHORT_BAR if is_narrow else BAR))
            row.append(f"  {size(each.bytes_new)} new" + ("" if is_narrow else f" of {size(each.bytes)}"), "dim")
            figures.add_row("checkpoints" if place == 0 else "", row)
        return Panel(Group(head, figures), box=ROUNDED, border_style="dim", title="holdfast demo", title_align="left")


def _wrapped(words: str) -> list[str]:
    return wrap(
        words, WIDEST, initial_indent="    ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )


def _spark(rates: deque[float]) -> str:
    top = max(rates, default=0) or 1
    return "".join(BARS[round(rate / top * (len(BARS) - 1))] for rate in rates)


def _bar(landed: Checkpointed, wide: int) -> Any:
    """How much of a checkpoint was new; the rest it shares with those before."""
    from rich.text import Text

    new = max(1, round(wide * landed.bytes_new / max(1, landed.bytes)))
    return Text("█" * min(new, wide), "green").append("░" * (wide - new), "dim")


def _sizes(landed: Checkpointed) -> str:
    return f"{size(landed.bytes_new):>9} new of {size(landed.bytes):>9}, {landed.seconds * 1000:3.0f} ms"
