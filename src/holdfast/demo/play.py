"""The demo's plot: the truth, a run that is captured from outside, the kill, the loss, the restore, the verdict.

Every scene does for real what a user would do; what happens is told to whoever listens, and nothing is printed here.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from holdfast.capturing import watch_directory
from holdfast.demo.orders import Verdict, compare, read_totals, write_orders
from holdfast.errors import DemoFailed, LibraryMissing
from holdfast.handles import Repository, open_url
from holdfast.spark.java import use_java
from holdfast.spark.watch import Captured, Event

__all__ = ["Outcome", "Play", "Teller"]

FILES = 30
ROWS = 2000
KILL_AFTER = 12
"""The batch in whose middle the driver is killed, or a later one, once something was captured."""
PIPELINE = "orders"

Teller = Callable[[str, str], None]
"""Told the kind of a piece of news (scene, batch, checkpoint, done) and its words."""


@dataclass(frozen=True)
class Outcome:
    """How the demo ended."""

    verdict: Verdict
    orders: int
    checkpoints: int
    restored_epoch: int
    killed_in_batch: int
    seconds: float
    bytes_new: int
    bytes_directory: int


@dataclass
class Play:
    """One performance, in a folder of its own. `sabotage` loses an order on purpose, to see the verdict turn bad."""

    folder: Path
    tell: Teller
    sabotage: bool = False
    began: float = field(default_factory=time.monotonic)

    def perform(self) -> Outcome:
        """Play all scenes and give the outcome; raises DemoFailed when a driver ends in another way than it should."""
        if find_spec("pyspark") is None:
            raise LibraryMissing("pyspark", "the demo", "it is not installed")
        java = use_java()
        self.tell("scene", f"Java {java.version} ({java.origin}), repository in {self.folder / 'repository'}")
        orders = write_orders(self.folder / "orders", FILES, ROWS)
        self.tell("scene", f"The truth first: {orders:,} orders, summed up by minute and article without interruption")
        self._run_to_end(self.folder / "truth-checkpoint", self.folder / "truth")

        repository = open_url(str(self.folder / "repository"), create=True)
        checkpoint, outputs = self.folder / "checkpoint", self.folder / "outputs"
        self.tell("scene", "The same query again; `holdfast watch` captures it from outside while it runs")
        killed_in = self._run_and_kill(repository, checkpoint, outputs)

        size = sum(path.stat().st_size for path in checkpoint.rglob("*") if path.is_file())
        shutil.rmtree(checkpoint)
        self.tell("scene", f"The checkpoint directory is deleted: {size / 1024:,.0f} KiB of state, offsets, commits")

        newest = repository.find(PIPELINE)
        restored = self.folder / "restored"
        newest.restore(str(restored))
        self.tell(
            "scene", f"Restored {PIPELINE}@slot:{newest.slot} (batch {newest.epoch}), every byte verified; on it goes"
        )
        began_with = self._run_to_end(restored, outputs)
        if began_with != newest.epoch + 1:
            raise DemoFailed("the restored query", f"it began with batch {began_with}, not after batch {newest.epoch}")
        if self.sabotage:
            _lose_an_order(outputs)
        verdict = compare(read_totals(self.folder / "truth"), read_totals(outputs))
        checkpoints = repository.pipeline(PIPELINE).checkpoints()
        return Outcome(
            verdict=verdict,
            orders=orders,
            checkpoints=len(checkpoints),
            restored_epoch=newest.epoch,
            killed_in_batch=killed_in,
            seconds=time.monotonic() - self.began,
            bytes_new=sum(c.head.bytes_new for c in checkpoints),
            bytes_directory=size,
        )

    def _run_to_end(self, checkpoint: Path, outputs: Path) -> object:
        """Run the query until its input ends, and give the number of the first batch that it ran."""
        first: object = None
        with self._driver(checkpoint, outputs) as driver:
            for said in _lines(driver):
                first = said.get("begin") if first is None else first
                if "batch" in said:
                    self.tell("batch", _batch(said))
            if driver.wait() != 0:
                raise DemoFailed("the query", f"its driver ended with {driver.returncode}; see {self._log}")
        return first

    def _run_and_kill(self, repository: Repository, checkpoint: Path, outputs: Path) -> int:
        """Run the query with a watch beside it, and kill its driver in the middle of a batch."""
        landed = threading.Event()

        def heard(_: str, event: Event) -> None:
            if isinstance(event, Captured):
                landed.set()
                manifest = event.taken.manifest
                new, shared = manifest.byte_counts()
                size = f"{new / 1024:,.0f} KiB new, {shared / 1024:,.0f} KiB shared"
                self.tell("checkpoint", f"{manifest.at}: batch {manifest.epoch}, {size}, {event.milliseconds:.0f} ms")

        stop = threading.Event()
        watcher = watch_directory(checkpoint, repository, pipeline=PIPELINE, every=1, tell=heard)
        thread = threading.Thread(target=watcher.run, args=(stop,), name="holdfast-demo-watch", daemon=True)
        thread.start()
        try:
            with self._driver(checkpoint, outputs) as driver:
                for said in _lines(driver):
                    if "batch" in said:
                        self.tell("batch", _batch(said))
                    began = said.get("begin")
                    if isinstance(began, int) and began >= KILL_AFTER and landed.is_set():
                        _kill(driver)
                        self.tell("scene", f"kill -9: the driver dies in the middle of batch {began}")
                        return began
                raise DemoFailed("the query", f"it ended before it could be killed; see {self._log}")
        finally:
            stop.set()
            thread.join()

    @property
    def _log(self) -> Path:
        return self.folder / "spark.log"

    @contextmanager
    def _driver(self, checkpoint: Path, outputs: Path) -> Iterator[subprocess.Popen[str]]:
        command = [sys.executable, "-m", "holdfast.demo.driver"]
        command += [str(self.folder / "orders"), str(checkpoint), str(outputs)]
        with self._log.open("a") as log:
            driver = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable},
                start_new_session=True,
            )
        try:
            yield driver
        finally:
            _kill(driver)
            if driver.stdout is not None:
                driver.stdout.close()


def _kill(driver: subprocess.Popen[str]) -> None:
    """Kill the driver and its JVM, which is a child of it and would otherwise finish the batch."""
    with suppress(ProcessLookupError):
        os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()


def _lines(driver: subprocess.Popen[str]) -> Iterator[dict[str, object]]:
    for line in driver.stdout or ():
        try:
            said = json.loads(line)
        except ValueError:
            continue
        if isinstance(said, dict):
            yield said


def _batch(said: dict[str, object]) -> str:
    return f"batch {said['batch']}: {said['totals']} totals changed"


def _lose_an_order(outputs: Path) -> None:
    """Take one order out of the newest totals."""
    path = max(path for path in outputs.glob("batch-*.json") if path.stat().st_size)
    first, *rest = path.read_text().splitlines()
    row = json.loads(first)
    row["orders"] -= 1
    path.write_text("\n".join([json.dumps(row), *rest]) + "\n")
