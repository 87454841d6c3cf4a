"""The demo's plot: a pipeline that is killed, loses its Spark directory and is rewound; then the verdict.

Every scene does for real what befalls a user; what happens is told to whoever shows it, and nothing is printed here.
"""

from __future__ import annotations

import shutil
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from holdfast.demo.messages import (
    Began,
    Checkpointed,
    Committed,
    Held,
    News,
    Progressed,
    Ready,
    Rewind,
    Rewound,
    RunPlainly,
    Saved,
    Savepoint,
    Start,
    Stop,
    Stopped,
)
from holdfast.demo.orders import CLOSING, MINUTE, beginning, close_orders, write_orders
from holdfast.demo.place import SINKS, Judged, Place, compare, orders_in
from holdfast.demo.process import DriverProcess
from holdfast.errors import DemoFailed
from holdfast.handles import open_url

__all__ = ["FULL", "SCENES", "Costs", "Length", "Nobody", "Outcome", "Play", "Recovered", "Show"]

SAVEPOINT = "before-upgrade"
PACE_SECONDS = 2
"""How often new orders come once the play is over."""

SCENES = {
    "run": "A pipeline runs",
    "kill": "kill -9 in the middle of an epoch",
    "recover": "It recovers",
    "lose": "The machine is lost",
    "restore": "It is restored",
    "rewind": "It is rewound, with both tables",
    "verdict": "The verdict",
}


class Show(Protocol):
    """Who shows a performance. `scene` is one of SCENES, with what happens in it and why it matters."""

    def scene(self, name: str, words: str) -> None: ...

    def note(self, words: str) -> None: ...

    def news(self, news: News) -> None: ...


class Nobody:
    """Shows nothing."""

    def scene(self, name: str, words: str) -> None:
        pass

    def note(self, words: str) -> None:
        pass

    def news(self, news: News) -> None:
        pass


class Length(NamedTuple):
    """How long a performance is: so many files of so many orders, an epoch each, and where things happen to it."""

    files: int
    rows: int
    savepoint: int
    kill: int
    lose: int


FULL = Length(files=20, rows=4000, savepoint=7, kill=11, lose=15)


class Recovered(NamedTuple):
    """From the start of a new process to the first epoch that every sink has; so much of it until Spark ran."""

    seconds: float
    spark_seconds: float


@dataclass
class Costs:
    """What it took."""

    killed_in_epoch: int = -1
    recovered: Recovered | None = None
    restored: Recovered | None = None
    rewound_to_epoch: int = -1
    rewound_seconds: float = 0.0
    checkpoints: list[Checkpointed] = field(default_factory=list)
    state_rows: int = 0
    """At its largest."""
    seconds: float = 0.0

    @property
    def bytes_new(self) -> int:
        return round(statistics.median(each.bytes_new for each in self.checkpoints))

    @property
    def bytes(self) -> int:
        return round(statistics.median(each.bytes for each in self.checkpoints))

    @property
    def checkpoint_seconds(self) -> float:
        return statistics.median(each.seconds for each in self.checkpoints)


@dataclass(frozen=True)
class Outcome:
    """How it ended. `orders` were laid down, and `counted` are in the rows of the uninterrupted run."""

    sinks: dict[str, Judged]
    orders: int
    counted: int
    costs: Costs

    @property
    def good(self) -> bool:
        return self.orders == self.counted and all(judged.good for judged in self.sinks.values())


class Play:
    """One performance in an empty folder. Leaving a `with` ends whatever still runs.

    `meddle` is called before the verdict, to see it turn bad.
    """

    def __init__(
        self,
        place: Place,
        length: Length,
        *,
        meddle: Callable[[Place], None] | None = None,
    ) -> None:
        self.show: Show = Nobody()
        self._place = place
        self._length = length
        self._meddle = meddle
        self._costs = Costs()
        self._began = 0
        self._driver: DriverProcess | None = None

    def __enter__(self) -> Play:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._driver is not None:
            self._driver.kill()

    def perform(self) -> Outcome:
        """Play all scenes. Raises DemoFailed when a driver does what it should not."""
        began = time.monotonic()
        length = self._length
        open_url(str(self._place.repository), create=True)
        self._began = beginning(length.files, time.time())
        for number in range(length.files):
            write_orders(self._place.orders, number, length.rows, self._minute(number))
        self._run_and_kill()
        self._recover()
        self._lose()
        self._restore()
        self._rewind()
        self._run_plainly()
        if self._meddle is not None:
            self._meddle(self._place)
        outcome = judge(self._place, length, self._costs)
        self._costs.seconds = time.monotonic() - began
        return outcome

    def go_on(self, stop: threading.Event) -> None:
        """After the performance: run on with new orders until told to stop, and leave a checkpoint then."""
        driver = self._running
        driver.do(Start())
        number = self._length.files + CLOSING
        while not stop.wait(PACE_SECONDS):
            since = int(time.time()) - PACE_SECONDS
            write_orders(self._place.orders, number, self._length.rows, since, PACE_SECONDS)
            number += 1
            driver.pass_on()
        driver.do(Stop())
        driver.until(Stopped)

    # ---- the scenes ----

    def _run_and_kill(self) -> None:
        length = self._length
        self.show.scene(
            "run",
            f"{length.files * length.rows:,} orders in {length.files} files are summed up by minute and customer, in "
            "Spark's state, and the sums go to two sinks: a DuckDB table and a Delta table.",
        )
        driver = self._next_driver()
        driver.do(Start(hold=f"committed {SINKS[0]}", hold_at=length.kill))
        held = saved = None
        for heard in driver.news():
            if isinstance(heard, Committed) and heard.epoch == length.savepoint:
                driver.do(Savepoint(SAVEPOINT))
            held = heard if isinstance(heard, Held) else held
            saved = heard if isinstance(heard, Saved) else saved
            if held and saved:
                break
        self._costs.killed_in_epoch = length.kill
        self.show.scene(
            "kill",
            f"DuckDB has the rows of epoch {length.kill} and Delta does not. Plain Spark would run the batch again, "
            "and DuckDB would have them twice.",
        )
        driver.kill()

    def _recover(self) -> None:
        self.show.scene("recover", "The same call starts it again, and finds out by itself what is to be done.")
        self._costs.recovered = self._started_again("warm")
        self._running.until(Committed, lambda heard: heard.epoch >= self._length.lose)

    def _lose(self) -> None:
        self._running.kill()
        lost = sum(path.stat().st_size for path in self._place.home.rglob("*") if path.is_file())
        shutil.rmtree(self._place.home)
        self.show.scene(
            "lose",
            f"The driver is killed again, and its whole Spark directory is deleted: {lost / 1e6:.1f} MB of state, "
            "offsets and commits. Plain Spark would start from nothing.",
        )

    def _restore(self) -> None:
        self.show.scene(
            "restore", "The same call once more: state and offsets come from the repository, every byte verified."
        )
        self._costs.restored = self._started_again("checkpoint")
        self._running.until(Committed, lambda heard: heard.epoch >= self._length.files - 1)
        self._stop()

    def _rewind(self) -> None:
        driver, before = self._running, self._rows_in_sinks()
        self.show.scene(
            "rewind",
            f"Say that all since the savepoint {SAVEPOINT!r} was wrong: state, offsets and both tables go back to it. "
            "Then it runs on, to the end of the orders.",
        )
        driver.do(Rewind(SAVEPOINT))
        rewound = driver.until(Rewound)
        self._costs.rewound_to_epoch, self._costs.rewound_seconds = rewound.epoch, rewound.seconds
        after = self._rows_in_sinks()
        for sink in SINKS:
            self.show.note(f"{sink}: {before[sink]:,} rows before, {after[sink]:,} now")
            if not after[sink] < before[sink]:
                raise DemoFailed("the rewind", f"{sink} had {before[sink]} rows before it and has {after[sink]} now")
        close_orders(self._place.orders, self._length.files, self._minute(self._length.files))
        last = self._length.files + CLOSING - 1
        driver.do(Start())
        driver.until(Committed, lambda heard: heard.epoch >= last)
        self._stop()

    def _run_plainly(self) -> None:
        self.show.scene(
            "verdict",
            "The same orders once more, by plain Spark and uninterrupted: what both tables should hold.",
        )
        self._running.do(RunPlainly())
        self._running.until(Stopped)

    # ---- what they share ----

    def _started_again(self, state: str) -> Recovered:
        began_at = time.monotonic()
        driver = self._next_driver()
        spark_seconds = time.monotonic() - began_at
        driver.do(Start())
        # It runs decided epochs again before it has begun, and may have committed none by then.
        began = recovered = None
        for heard in driver.news():
            if isinstance(heard, Committed):
                recovered = recovered or Recovered(time.monotonic() - began_at, spark_seconds)
            began = heard if isinstance(heard, Began) else began
            if began and recovered:
                break
        assert began is not None
        assert recovered is not None
        if began.state != state:
            raise DemoFailed("the start", f"it went on from {began.state!r}, not from {state!r}")
        return recovered

    def _minute(self, number: int) -> int:
        return self._began + number * MINUTE

    def _stop(self) -> None:
        self._running.do(Stop())
        self._running.until(Stopped)

    def _rows_in_sinks(self) -> dict[str, int]:
        return {sink: self._place.read(sink).total() for sink in SINKS}

    @property
    def _running(self) -> DriverProcess:
        assert self._driver is not None
        return self._driver

    def _next_driver(self) -> DriverProcess:
        """Another driver, once its Spark runs."""
        self._driver = DriverProcess(self._place, self._heard)
        self._driver.until(Ready)
        return self._driver

    def _heard(self, news: News) -> None:
        if isinstance(news, Checkpointed):
            self._costs.checkpoints.append(news)
        elif isinstance(news, Progressed):
            self._costs.state_rows = max(self._costs.state_rows, news.state_rows)
        self.show.news(news)


def judge(place: Place, length: Length, costs: Costs) -> Outcome:
    """Compare what lies in the sinks with the rows of the uninterrupted run."""
    truth = place.read_truth()
    judged = {sink: compare(truth, place.read(sink)) for sink in SINKS}
    return Outcome(judged, length.files * length.rows, orders_in(truth), costs)
