"""What the capture of every batch takes from a running query: by `attach` in its driver, and by `watch` beside it.

    python -m benchmarks.spark_overhead [--pairs N] [--batches N] [--rows N] [--keys N]

Goal: at most 3 % of the throughput of the same query without it. One query runs through it all, as fast as it can, and
is captured by turns of so many batches. What counts are CPU seconds: of the JVM, of this process and of the one that
watches. Between two turns nothing is counted: one with captures begins when the first is done.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from statistics import median
from typing import NamedTuple

from benchmarks.pairs import Ratio, milliseconds, print_table, verdict
from benchmarks.places import scratch
from benchmarks.spark_queries import CountingQuery, cpu_seconds, jvm_of, spark_session

from holdfast import StoredPipeline, attach
from holdfast import open as open_repository

SHARE = 0.03
GOAL = 1 / (1 - SHARE)

Capturing = Callable[[CountingQuery, StoredPipeline], AbstractContextManager[int | None]]
"""Captures within the block, from its beginning on, and gives the process that it has started for that."""


class Cost(NamedTuple):
    """What a turn has cost: wall seconds, CPU seconds, and those of them that were not spent in the JVM."""

    wall: float
    cpu: float
    ours: float


@contextlib.contextmanager
def attached(query: CountingQuery, pipeline: StoredPipeline) -> Iterator[None]:
    with attach(query.query, pipeline.repository, pipeline=pipeline.name, every="1 batch") as handle:
        handle.checkpoint()
        yield


@contextlib.contextmanager
def watched(query: CountingQuery, pipeline: StoredPipeline) -> Iterator[int]:
    where = ["--repo", pipeline.repository.url, "-p", pipeline.name, str(query.directory)]
    command = [sys.executable, "-m", "holdfast", "watch", "-q", "--every", "1 batch", *where]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        wanted = query.last_batch + 1
        while (newest := pipeline.latest()) is None or newest.epoch < wanted:
            time.sleep(0.1)
        yield process.pid
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def left_alone(query: CountingQuery, pipeline: StoredPipeline) -> Iterator[None]:  # noqa: ARG001 - as the others
    yield


class Course:
    """One running query that is captured into one pipeline by turns."""

    def __init__(self, query: CountingQuery, jvm: int, pipeline: StoredPipeline, batches: int) -> None:
        self._query = query
        self._jvm = jvm
        self._pipeline = pipeline
        self._batches = batches
        self.captures = 0

    def run(self, capturing: Capturing) -> Cost:
        """So many batches, counted from the beginning of one."""
        with capturing(self._query, self._pipeline) as beside:
            begin = self._query.last_batch + 1
            self._query.await_batch(begin)
            taken, before = self._taken(), self._spent(beside)
            self._query.await_batch(begin + self._batches)
            after = self._spent(beside)
            self.captures += self._taken() - taken
        return Cost(*(now - then for now, then in zip(after, before, strict=True)))

    def _spent(self, beside: int | None) -> Cost:
        ours = time.process_time() + (cpu_seconds(beside) if beside else 0.0)
        return Cost(time.perf_counter(), cpu_seconds(self._jvm) + ours, ours)

    def _taken(self) -> int:
        return len(self._pipeline.checkpoints()) if self._pipeline.exists() else 0


def compare(name: str, course: Course, capturing: Capturing, pairs: int, batches: int) -> list[object]:
    """The order is turned in every second pair; the first pair is not counted."""
    captured: list[Cost] = []
    alone: list[Cost] = []
    for pair in range(pairs + 1):
        for way, costs in [(capturing, captured), (left_alone, alone)][:: 1 if pair % 2 else -1]:
            costs.append(course.run(way))
    del captured[0], alone[0]
    cpu = Ratio.of([cost.cpu for cost in captured], [cost.cpu for cost in alone])
    wall = Ratio.of([cost.wall for cost in captured], [cost.wall for cost in alone])
    ours = median(cost.ours for cost in captured) - median(cost.ours for cost in alone)
    each = median(cost.cpu for cost in alone) / batches
    taken = course.captures / (pairs + 1) / batches
    return [
        name,
        cpu,
        wall,
        milliseconds(each),
        milliseconds(ours / batches),
        f"{taken:.2f}",
        f"<= {GOAL:.3f}",
        verdict(cpu.median <= GOAL),
    ]


def main() -> None:
    options = argparse.ArgumentParser(description="what captures take from a running query")
    options.add_argument("--pairs", type=int, default=12)
    options.add_argument("--batches", type=int, default=20)
    options.add_argument("--rows", type=int, default=10_000)
    options.add_argument("--keys", type=int, default=1_000_000)
    chosen = options.parse_args()
    rows = []
    with scratch() as folder, spark_session(folder) as spark:
        query = CountingQuery(spark, folder / "checkpoint", chosen.keys)
        query.start(chosen.rows)
        repository = open_repository(str(folder / "repository"), create=True)
        ways: dict[str, Capturing] = {"attach": attached, "watch": watched}
        for name, capturing in ways.items():
            course = Course(query, jvm_of(spark), repository.pipeline(name), chosen.batches)
            rows.append(compare(name, course, capturing, chosen.pairs, chosen.batches))
        query.stop()
    print_table(
        f"every batch of {chosen.rows} rows captured, {chosen.keys} keys, {chosen.pairs} pairs of {chosen.batches}"
        " batches; over the same query left alone, median (quartiles)",
        ("", "CPU", "wall", "CPU of a batch", "of it outside the JVM", "captures a batch", "goal", ""),
        rows,
    )


if __name__ == "__main__":
    main()
