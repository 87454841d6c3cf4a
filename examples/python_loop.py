"""A plain Python event loop that is killed again and again, and loses nothing.

    make setup                                # once; or: pip install .
    .venv/bin/python examples/python_loop.py --kills 20

A child process handles a stream of orders. It keeps a total per customer in a dict, draws a coupon for each order from
a random generator, and writes one row per order into an SQLite table. This parent kills it (SIGKILL, no chance to clean
up) at random instants, starts it again each time, and at the end compares the totals, the generator and every row with
a run that nobody interrupted.

`run_loop` is the part to copy. `OrdersTable` shows how an output is made exactly once.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import holdfast
from holdfast.errors import Fenced

STREAM = "orders"
CUSTOMERS = 40
EVENTS_PER_KILL = 1000
LONGEST_LIFE = 0.2
"""Seconds. With a pause after each event, no life is long enough to reach the end of the stream."""
PAUSE = 0.0002


@dataclass(frozen=True)
class Order:
    sequence: int
    customer: str
    amount: int


def order(sequence: int) -> Order:
    """The stream of orders: any of them can be read again, as from Kafka or a file."""
    return Order(sequence, f"customer-{sequence * 7919 % CUSTOMERS}", 1 + sequence * 31 % 997)


@dataclass
class State:
    """What the loop knows. All of it goes into each checkpoint."""

    totals: dict[str, int]
    coupons: random.Random

    @classmethod
    def new(cls) -> State:
        return cls({}, random.Random(2024))

    def handle(self, event: Order) -> tuple[int, str, int, int]:
        """Take one order in, and give the row to write for it."""
        self.totals[event.customer] = self.totals.get(event.customer, 0) + event.amount
        return event.sequence, event.customer, event.amount, self.coupons.randrange(10_000)


class OrdersTable(holdfast.LoopSink):
    """Rows in SQLite, exactly once.

    `prepare` stages rows in a table that nobody reads, `commit` moves them over in one transaction with the position.
    A token names its generation and its last sequence, so that it means the same after a crash and in any process.
    """

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        self._generation = -1
        self._token = ""
        self._written: list[tuple[int, str, int, int]] = []
        self._database.executescript(
            """
            CREATE TABLE IF NOT EXISTS orders (sequence, customer, amount, coupon);
            CREATE TABLE IF NOT EXISTS staged (generation, sequence, customer, amount, coupon);
            CREATE TABLE IF NOT EXISTS owner (generation, token);
            CREATE TABLE IF NOT EXISTS position (sequence);
            """
        )

    def write(self, row: tuple[int, str, int, int]) -> None:
        self._written.append(row)

    def fence(self, pipeline_id: str, generation: int, token: str) -> int | None:  # noqa: ARG002 - one pipeline here
        """From now on only this claim may write; gives the last sequence that is visible, None if there is none.

        A generation that another claim holds already is refused: a copy of the repository that was activated counts
        from the same number. What an earlier run wrote and never staged is forgotten: it comes again.
        """
        self._written.clear()
        self._database.execute("BEGIN IMMEDIATE")
        held, by = self._owner()
        if held > generation or (held == generation and by != token):
            self._database.execute("ROLLBACK")
            raise Fenced(STREAM, generation, f"the table belongs to generation {held}")
        self._database.execute("DELETE FROM owner")
        self._database.execute("INSERT INTO owner VALUES (?, ?)", (generation, token))
        sequence = self._position()
        self._database.execute("COMMIT")
        self._generation, self._token = generation, token
        return sequence

    def prepare(self, sequence: int) -> list[int]:
        """Stage what was written. Earlier rows that were staged and not committed stay: the next token covers them."""
        self._begin()
        rows = [(self._generation, *row) for row in self._written]
        self._database.executemany("INSERT INTO staged VALUES (?, ?, ?, ?, ?)", rows)
        self._database.execute("COMMIT")
        self._written.clear()
        return [self._generation, sequence]

    def commit(self, token: list[int]) -> int:
        generation, upto = token
        self._begin()
        done = self._position()
        if done is None or upto > done:
            self._database.execute(
                "INSERT INTO orders SELECT sequence, customer, amount, coupon FROM staged"
                " WHERE generation = ? AND sequence <= ? ORDER BY sequence",
                (generation, upto),
            )
            # What an older generation staged beyond its last checkpoint was never decided on, and comes again.
            self._database.execute("DELETE FROM staged WHERE generation < ? OR sequence <= ?", (self._generation, upto))
            done = upto
            self._set_position(done)
        self._database.execute("COMMIT")
        return done

    def roll_back(self, position: int | None) -> None:
        self._begin()
        self._database.execute("DELETE FROM orders WHERE sequence > ?", (-1 if position is None else position,))
        self._set_position(position)
        self._database.execute("COMMIT")

    def rows(self) -> list[tuple[int, str, int, int]]:
        return list(self._database.execute("SELECT * FROM orders ORDER BY sequence"))

    def close(self) -> None:
        self._database.close()

    def _begin(self) -> None:
        """Start a transaction, unless another run has taken the table over."""
        self._database.execute("BEGIN IMMEDIATE")
        held, by = self._owner()
        if (held, by) != (self._generation, self._token):
            self._database.execute("ROLLBACK")
            raise Fenced(STREAM, self._generation, f"the table belongs to generation {held}")

    def _owner(self) -> tuple[int, str]:
        """The claim that may write: generations are not enough, since copies of a repository count on their own."""
        row = self._database.execute("SELECT generation, token FROM owner").fetchone()
        return (-1, "") if row is None else (row[0], row[1])

    def _position(self) -> int | None:
        row = self._database.execute("SELECT sequence FROM position").fetchone()
        return None if row is None else int(row[0])

    def _set_position(self, sequence: int | None) -> None:
        self._database.execute("DELETE FROM position")
        if sequence is not None:
            self._database.execute("INSERT INTO position VALUES (?)", (sequence,))


def run_loop(repository: str, work: Path, events: int, pause: float) -> None:
    """The loop itself: register what must survive, recover, and tell the manager each event once it is handled."""
    state, table = State.new(), OrdersTable(work / "orders.sqlite")
    progress = os.open(work / "progress", os.O_CREAT | os.O_WRONLY)
    with holdfast.CheckpointManager(repository, every=50) as manager:
        manager.register(STREAM, "totals", state.totals)
        manager.register(STREAM, "coupons", state.coupons)
        manager.register_offsets(STREAM, "generator", lambda: {"next": str(manager.status(STREAM).next_sequence)})
        manager.register_sink(STREAM, "table", table)

        recovered = manager.recover(STREAM)
        say(next_sequence=recovered.next_sequence)
        for sequence in range(recovered.next_sequence, events):
            table.write(state.handle(order(sequence)))
            os.pwrite(progress, struct.pack("<q", sequence + 1), 0)  # only for the parent to count replayed events
            manager.on_event(STREAM, sequence)
            if pause:
                time.sleep(pause)
        manager.checkpoint(STREAM)
    table.close()


def say(**what: int) -> None:
    """Tell the parent something, as one line of JSON."""
    print(json.dumps(what), flush=True)


# ---- the parent ----


@dataclass
class Tally:
    """What happened to the child on its way."""

    kills: int = 0
    handled: int = 0


def live(
    repository: str, work: Path, events: int, kill_after: float | None, tally: Tally, *, at_work: bool = False
) -> None:
    """One life of the child: to the end of the stream, or until it is killed some time after it started.

    With `at_work` the time runs from its first event: on a busy machine it may never get there otherwise.
    """
    progress = work / "progress"
    progress.unlink(missing_ok=True)
    command = [sys.executable, __file__, "--child", "--repo", repository, "--work", str(work), "--events", str(events)]
    if kill_after is not None:
        command += ["--pause", str(PAUSE)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        if child.stdout is None:
            raise RuntimeError("the child has no output")
        child.stdout.readline()
        lines = [child.stdout.readline()] if at_work else []
        if kill_after is not None:
            time.sleep(kill_after)
            child.send_signal(signal.SIGKILL)
        said = [json.loads(line) for line in [*lines, *child.stdout]]
        status = child.wait()
    if kill_after is None and status != 0:
        raise SystemExit(f"the child ended with {status}")
    tally.kills += status == -signal.SIGKILL
    if said and progress.exists() and (written := progress.read_bytes()):
        tally.handled += struct.unpack("<q", written)[0] - int(said[0]["next_sequence"])


@dataclass(frozen=True)
class Verdict:
    """How the interrupted run compares with one that nobody interrupted."""

    lost: int
    doubled: int
    totals_equal: bool
    generator_equal: bool

    @property
    def good(self) -> bool:
        return self.lost == self.doubled == 0 and self.totals_equal and self.generator_equal


def judge(repository: str, work: Path, events: int) -> Verdict:
    """Recover the finished stream here, and compare it with a loop that has no checkpoints and no kills."""
    truth = State.new()
    expected = Counter(truth.handle(order(sequence)) for sequence in range(events))

    state, table = State.new(), OrdersTable(work / "orders.sqlite")
    with holdfast.CheckpointManager(repository) as manager:
        manager.register(STREAM, "totals", state.totals)
        manager.register(STREAM, "coupons", state.coupons)
        manager.register_offsets(STREAM, "generator", dict)
        manager.register_sink(STREAM, "table", table)
        manager.recover(STREAM)
    found = Counter(table.rows())
    table.close()
    return Verdict(
        lost=(expected - found).total(),
        doubled=(found - expected).total(),
        totals_equal=state.totals == truth.totals,
        generator_equal=state.coupons.getstate() == truth.coupons.getstate(),
    )


def report(repository: str, work: Path, events: int, tally: Tally) -> int:
    """Print what happened and how it compares; the exit code says whether all is well."""
    latest = holdfast.open(repository).pipeline(STREAM).latest()
    verdict = judge(repository, work, events)
    print(f"kills        {tally.kills}")
    print(f"events       {events}")
    print(f"replayed     {tally.handled - events}")
    print(f"checkpoints  {0 if latest is None else latest.epoch + 1}")
    print(f"rows lost    {verdict.lost}")
    print(f"rows doubled {verdict.doubled}")
    print(f"totals       {'equal' if verdict.totals_equal else 'DIFFERENT'}")
    print(f"generator    {'equal' if verdict.generator_equal else 'DIFFERENT'}")
    return 0 if verdict.good else 1


def kill_and_restart(repository: str, work: Path, events: int, kills: int, seed: int) -> Tally:
    """Kill the child so many times, each at a random instant of its life, then let it come to the end."""
    chance, tally = random.Random(seed), Tally()
    for number in range(kills):
        live(repository, work, events, chance.uniform(0, LONGEST_LIFE), tally, at_work=number % 2 == 1)
    live(repository, work, events, None, tally)
    return tally


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Kill a Python event loop again and again, and show that it loses nothing."
    )
    parser.add_argument("--kills", type=int, default=20, help="how often to kill it (20)")
    parser.add_argument("--seed", type=int, default=None, help="the same delays before each kill")
    parser.add_argument("--repo", help="where the checkpoints go; a folder of its own if not given")
    parser.add_argument("--work", type=Path, help="where the table goes; a folder of its own if not given")
    parser.add_argument("--events", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--pause", type=float, default=0.0, help=argparse.SUPPRESS)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.child:
        say(started=1)
        run_loop(given.repo, given.work, given.events, given.pause)
        return 0

    with tempfile.TemporaryDirectory(prefix="holdfast-example-") as scratch:
        work = given.work or Path(scratch)
        work.mkdir(parents=True, exist_ok=True)
        repository = given.repo or (work / "repository").absolute().as_uri()
        holdfast.open(repository, create=True)
        events = EVENTS_PER_KILL * (given.kills + 1)
        seed = random.randrange(10**6) if given.seed is None else given.seed
        print(f"seed         {seed}")
        tally = kill_and_restart(repository, work, events, given.kills, seed)
        return report(repository, work, events, tally)


if __name__ == "__main__":
    sys.exit(main())
