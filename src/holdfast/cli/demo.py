"""`holdfast demo`: see it work, on a real Spark."""

from __future__ import annotations

import queue
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.common import Session, verb
from holdfast.cli.render import Cell, Column, Styled
from holdfast.cli.told import told_to_stop
from holdfast.text import amount, size

if TYPE_CHECKING:
    from holdfast.demo.place import Place
    from holdfast.demo.play import Outcome, Play, Recovered

__all__ = ["command"]


@verb(
    "demo",
    click.Option(
        ["--dir", "folder"],
        metavar="DIR",
        type=click.Path(path_type=Path),
        help="Play in this new or empty folder and leave it there.  [default: a temporary one]",
    ),
    click.Option(
        ["--keep"],
        is_flag=True,
        help="Let the pipeline run on with the dashboard; the folder stays.",
    ),
    click.Option(["--sabotage"], is_flag=True, help="Delete a row of a table before the verdict, which must turn bad."),
    examples="""
    holdfast demo
    holdfast demo --dir ./demo --keep
    holdfast demo --json
    """,
    repository=False,
    store=False,
)
def command(session: Session, folder: Path | None, keep: bool, sabotage: bool) -> None:
    """Run a real pipeline through a kill, a lost machine and a rewind, and compare it with an uninterrupted run.

    Generated orders are summed up in Spark's state into a DuckDB table and a Delta table, with checkpoints in a
    repository beside them. The driver is killed with SIGKILL between the two tables, in the middle of an epoch; the
    whole Spark directory is deleted; the pipeline is rewound to a savepoint, with both tables. Exit code 0: neither
    table has lost a row or has one twice. Takes a minute or two. Needs `pip install 'holdfast[demo]'`.
    """
    from holdfast.cli.demo_show import showing
    from holdfast.demo.place import Place, lose_a_row
    from holdfast.demo.play import FULL, Play
    from holdfast.demo.process import require_libraries
    from holdfast.errors import PlaceNotEmpty

    java = require_libraries()
    if folder is not None and folder.exists() and any(folder.iterdir()):
        raise PlaceNotEmpty(str(folder))
    root = (folder or Path(tempfile.mkdtemp(prefix="holdfast-demo-"))).absolute()
    root.mkdir(parents=True, exist_ok=True)
    good = False
    try:
        with Play(Place(root), FULL, meddle=lose_a_row if sabotage else None) as play:
            with showing(session.output, as_json=session.as_json) as play.show:
                play.show.note(f"Java {java.version} ({java.origin}), everything in {root}")
                outcome = play.perform()
            good = outcome.good
            if keep:
                _keep(session, Place(root), play, outcome)
            else:
                _show_outcome(session, outcome)
    finally:
        if folder is None and good and not keep:
            shutil.rmtree(root, ignore_errors=True)
        elif folder is None and not session.as_json:
            session.output.remark(f"What is left to look at: {root}")
    sys.exit(0 if good else 1)


def _keep(session: Session, place: Place, play: Play, outcome: Outcome) -> None:
    """Show the outcome and where the dashboard is, and let the pipeline run on until told to stop."""
    from holdfast.cli.demo_show import showing

    if not session.as_json:
        _show_outcome(session, outcome)
    with told_to_stop() as stop, _dashboard(place, stop) as address:
        if session.as_json:
            _show_outcome(session, outcome, address)
        else:
            session.output.line()
            session.output.line(f"The pipeline runs on, with new orders: look at it at {address}")
            session.output.remark("Ctrl-C stops it.")
        sys.stdout.flush()
        with showing(session.output, as_json=session.as_json) as play.show:
            play.go_on(stop)


@contextmanager
def _dashboard(place: Place, stop: threading.Event) -> Iterator[str]:
    """Serve the dashboard during the block, which begins once it listens and is given its address."""
    import holdfast
    from holdfast.dashboard.server import serve

    said: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    with ThreadPoolExecutor(1, thread_name_prefix="holdfast-dashboard") as pool:
        serving = pool.submit(serve, holdfast.open(str(place.repository)), ready=said.put, stop=stop)
        serving.add_done_callback(lambda _ended: said.put(None))
        try:
            address = said.get()
            if address is not None:
                yield address
        finally:
            stop.set()
        serving.result()


def _show_outcome(session: Session, outcome: Outcome, dashboard: str | None = None) -> None:
    if session.as_json:
        session.document({**_document(outcome), "dashboard": dashboard})
        return
    output, costs = session.output, outcome.costs
    output.line()
    output.table(
        [Column("sink"), *(Column(name, right=True) for name in ("rows", "orders", "lost", "doubled"))],
        [
            [name, f"{each.rows:,}", f"{each.orders:,}", _wrong(each.lost), _wrong(each.doubled)]
            for name, each in outcome.sinks.items()
        ],
    )
    output.line()
    checkpoint = f"{size(costs.bytes_new)} new of {size(costs.bytes)}, {costs.checkpoint_seconds * 1000:.0f} ms"
    output.facts(
        [
            ("verdict", _verdict(outcome)),
            ("recovered", _recovered(costs.recovered, f"killed in epoch {costs.killed_in_epoch}")),
            ("restored", _recovered(costs.restored, "without its Spark directory")),
            ("rewound", f"{costs.rewound_seconds:.1f} s, both tables, to epoch {costs.rewound_to_epoch}"),
            ("a checkpoint", f"{checkpoint} (the median of {len(costs.checkpoints)}), and the query does not wait"),
            ("state", f"{costs.state_rows:,} rows at its largest"),
            ("took", f"{costs.seconds:.0f} s, with three starts of Spark"),
        ]
    )


def _wrong(count: int) -> Cell:
    return Styled(f"{count:,}", "bold red") if count else "0"


def _verdict(outcome: Outcome) -> Cell:
    if outcome.good:
        return Styled("good: nothing is lost, nothing is doubled", "bold green")
    wrong = [
        f"{name} has lost {amount(judged.lost, 'row')} and has {judged.doubled:,} too many"
        for name, judged in outcome.sinks.items()
        if not judged.good
    ]
    if outcome.counted != outcome.orders:
        wrong.append(f"the uninterrupted run has {outcome.counted:,} orders of {outcome.orders:,}")
    return Styled(f"BAD: {'; '.join(wrong)}", "bold red")


def _recovered(recovered: Recovered | None, what: str) -> str:
    assert recovered is not None
    own = recovered.seconds - recovered.spark_seconds
    parts = f"{recovered.spark_seconds:.1f} s for Spark to start, {own:.1f} s to the next epoch"
    return f"{recovered.seconds:.1f} s, {what} ({parts})"


def _document(outcome: Outcome) -> dict[str, Any]:
    costs = outcome.costs
    assert costs.recovered is not None
    assert costs.restored is not None
    return {
        "good": outcome.good,
        "orders": outcome.orders,
        "orders_counted": outcome.counted,
        "sinks": {name: judged._asdict() for name, judged in outcome.sinks.items()},
        "killed_in_epoch": costs.killed_in_epoch,
        "recovered": costs.recovered._asdict(),
        "restored": costs.restored._asdict(),
        "rewound": {"epoch": costs.rewound_to_epoch, "seconds": costs.rewound_seconds},
        "checkpoints": {
            "count": len(costs.checkpoints),
            "median_bytes_new": costs.bytes_new,
            "median_bytes": costs.bytes,
            "median_seconds": costs.checkpoint_seconds,
        },
        "state_rows": costs.state_rows,
        "seconds": costs.seconds,
    }
