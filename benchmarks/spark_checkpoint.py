"""From `checkpoint()` to durable in a repository on disk, full and incremental, beside Flink's savepoints.

    python -m benchmarks.spark_checkpoint [--pairs N] [--keys N …]
    HOLDFAST_BENCH_FLINK=/path/to/python    an interpreter that has apache-flink 2.3

Goals: a full checkpoint in half the time of a native savepoint, an incremental one in that of an incremental
checkpoint. A full one is the first into a fresh repository. Both engines count rows by a long key in RocksDB, at the
same pace, and are asked by turns. Flink's files are synced to the disk in addition, since what it tells does not mean
that they are; the time of what it tells alone is shown too. Without Flink its figures from a machine with two cores
stand in for it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import quantiles

from benchmarks.pairs import Ratio, milliseconds, print_table, verdict
from benchmarks.places import scratch
from benchmarks.spark_queries import CountingQuery, spark_session

from holdfast import Attached, Schedule, attach
from holdfast import open as open_repository

ROWS = 10_000
"""A second."""
GOALS = {"full": 0.5, "incremental": 1.0}
KINDS = {"full": "savepoint", "incremental": "checkpoint"}
ELSEWHERE = {"full": {1_000_000: 0.283, 5_000_000: 0.731}, "incremental": {1_000_000: 0.2, 5_000_000: 0.2}}
PROGRAM = "import sys, flink_savepoints as f; f.serve(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])"

Times = dict[str, list[float]]


class Flink:
    """A job of Flink's in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def take(self, kind: str) -> tuple[float, float]:
        """The seconds until Flink tells that it is done, and until that is on the disk."""
        assert self._process.stdin is not None
        print(KINDS[kind], file=self._process.stdin, flush=True)
        answer = self.heard()
        return answer["seconds"], answer["synced"]

    def heard(self) -> dict[str, float]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                answer: dict[str, float] = json.loads(line)
                return answer
        raise RuntimeError("Flink has ended")


@contextlib.contextmanager
def flink(folder: Path, keys: int) -> Iterator[Flink | None]:
    """Flink with so many keys, or None if it is not there."""
    interpreter = os.environ.get("HOLDFAST_BENCH_FLINK")
    if interpreter is None:
        yield None
        return
    command = [interpreter, "-c", PROGRAM, str(keys), str(ROWS), str(folder)]
    here = Path(__file__).parent
    with subprocess.Popen(command, cwd=here, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        running = Flink(process)
        running.heard()
        yield running
        assert process.stdin is not None
        process.stdin.close()


class Query:
    """A query of Spark's, asked for full checkpoints and for incremental ones; both with all that is new in a pair."""

    def __init__(self, query: CountingQuery, folder: Path) -> None:
        self._query = query
        self._folder = folder
        self._kept = self._attach("kept")
        self._kept.checkpoint()
        self.files = self.bytes = 0

    def close(self) -> None:
        self._kept.detach()

    def take(self, kind: str) -> float:
        if kind == "incremental":
            return self._time(self._kept)
        with self._attach("fresh") as fresh:
            seconds = self._time(fresh)
        shutil.rmtree(self._folder / "fresh")
        return seconds

    def _attach(self, name: str) -> Attached:
        repository = open_repository(str(self._folder / name), create=True)
        return attach(self._query.query, repository, pipeline="counts", every=Schedule())

    def _time(self, handle: Attached) -> float:
        began = time.perf_counter()
        checkpoint = handle.checkpoint()
        seconds = time.perf_counter() - began
        self.files, self.bytes = len(checkpoint.manifest.files), checkpoint.bytes
        return seconds

    def await_batch(self) -> None:
        """Wait for the end of a batch, and until the query has told of it: what is asked for is then new."""
        self._query.await_batch(self._query.last_batch + 1)
        time.sleep(0.1)


def measure(query: Query, other: Flink | None, pairs: int) -> tuple[Times, Times, Times]:
    """Both are asked in each pair, the order turned in every second one; the first pair is not counted.

    Gives ours, Flink's until it is on the disk, and Flink's until it tells.
    """
    ours, synced, told = ({kind: list[float]() for kind in GOALS} for _ in range(3))
    for pair in range(pairs + 1):
        for kind in GOALS:
            for side in [query, other][:: 1 if pair % 2 else -1]:
                query.await_batch()
                if isinstance(side, Query):
                    ours[kind].append(side.take(kind))
                elif side is not None:
                    first, second = side.take(kind)
                    told[kind].append(first)
                    synced[kind].append(second)
    for times in (ours, synced, told):
        for each in times.values():
            del each[:1]
    return ours, synced, told


def describe(keys: int, ours: Times, synced: Times, told: Times, size: str) -> Iterator[tuple[object, ...]]:
    for kind, goal in GOALS.items():
        here = [f"{keys} keys, {size}", kind, spread(ours[kind])]
        quoted = ELSEWHERE[kind].get(keys)
        known = synced[kind] or [quoted or 0.0] * len(ours[kind])
        if not known[0]:
            yield (*here, "not known", "", "", "", "", "")
            continue
        ratio = Ratio.of(ours[kind], known)
        there = spread(known) if synced[kind] else f"{milliseconds(known[0])}, elsewhere"
        unsynced = (spread(told[kind]), Ratio.of(ours[kind], told[kind])) if told[kind] else ("", "")
        yield (*here, there, ratio, f"<= {goal}", verdict(ratio.median <= goal), *unsynced)


def spread(times: list[float]) -> str:
    q1, middle, q3 = (f"{cut * 1000:.0f}" for cut in quantiles(times, n=4, method="inclusive"))
    return f"{middle} ms ({q1} - {q3})"


def main() -> None:
    options = argparse.ArgumentParser(description="checkpoints on demand beside Flink's savepoints")
    options.add_argument("--pairs", type=int, default=12)
    options.add_argument("--keys", type=int, nargs="+", default=[1_000_000, 5_000_000])
    chosen = options.parse_args()
    rows: list[tuple[object, ...]] = []
    with scratch() as folder, spark_session(folder) as spark:
        for keys in chosen.keys:
            place = folder / str(keys)
            counting = CountingQuery(spark, place / "checkpoint", keys)
            counting.start(ROWS, "1 second")
            query = Query(counting, place)
            with flink(place / "flink", keys) as other:
                ours, synced, told = measure(query, other, chosen.pairs)
            query.close()
            counting.stop()
            rows.extend(describe(keys, ours, synced, told, f"{query.files} files, {query.bytes / 1e6:.0f} MB"))
    print_table(
        f"from checkpoint() to durable on file://, {chosen.pairs} pairs, median (quartiles)",
        ("", "", "Holdfast", "Flink, synced", "time over time", "goal", "", "Flink, not synced", "over that"),
        rows,
    )


if __name__ == "__main__":
    main()
