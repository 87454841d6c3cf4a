"""A pipeline from files into real sinks of chosen kinds; as a program of its own it dies, or falls asleep, at a step.

`python -m pipeline.proof ORDER`, an Order as JSON. It ends with the exit code of the error that stopped it.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import holdfast
from holdfast.epochs import EpochDecision
from holdfast.errors import HoldfastError
from holdfast.handles import StoredPipeline
from holdfast.pipeline import staging
from holdfast.pipeline.ledger import Ledger
from holdfast.pipeline.pipeline import Pipeline
from holdfast.pipeline.run import Run
from holdfast.sinks import delta, iceberg
from holdfast.store import RetryPolicy
from pipeline.targets import KINDS, Row, Target, make_target, name_of, open_sink, rows_in
from spark.events import LATENESS, files_of
from spark.workloads import STORES, configured

__all__ = [
    "BY_AN_EXECUTOR",
    "CROWDS",
    "FOR_EXECUTORS",
    "THREES",
    "Died",
    "Proof",
    "Prove",
    "Truth",
    "by_chance",
    "die_at",
    "read_events",
    "steps_of",
    "steps_of_a_take_over",
    "summed",
]

TESTS = Path(__file__).resolve().parents[1]
NAME = "sums"
EVENTS = files_of("events")
NOW = {"availableNow": True}
ALWAYS = {"processingTime": "0 seconds"}
SECONDS = 240
PAIRS = [
    ("kafka", "delta"),
    ("postgres upsert", "iceberg"),
    ("duckdb", "parquet in s3"),
    ("delta overwrite", "postgres overwrite"),
    ("delta by key", "iceberg by key"),
]
THREES = [
    ("delta", "postgres", "kafka"),
    ("iceberg in s3", "sqlite", "parquet"),
    ("delta upsert", "duckdb upsert", "delta in s3"),
]
CROWDS = [*((kind,) for kind in KINDS), *PAIRS, *THREES]
"""Sinks of every kind alone, and of different kinds together."""
FOR_EXECUTORS = [*THREES, ("delta by key", "iceberg by key"), ("delta upsert", "iceberg upsert")]
"""Those that are proven with Spark's executors as well, which write for each of these in another way."""
BY_AN_EXECUTOR = re.compile(r"part-\d{5}-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}[.-]c\d{3}\.snappy\.parquet")
"""The name of a file that one of them wrote."""
CONF = {
    **STORES["changelog-2"],
    # A batch without data, run wherever a run comes to its end, moves which late rows the next one drops: then no
    # uninterrupted run would be the truth. `test_pipeline.py` has them.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}


def summed(events: DataFrame) -> DataFrame:
    """Sums of windows, each put out once, when the watermark has passed it."""
    timed = events.withColumn("time", F.timestamp_seconds("at")).withWatermark("time", LATENESS)
    sums = timed.groupBy(F.window("time", "15 seconds"), "key").agg(F.count("*").alias("n"), F.sum("value").alias("t"))
    return sums.selectExpr("CAST(window.start AS LONG) AS start", "key", "n", "t AS total")


def by_chance(events: DataFrame) -> DataFrame:
    """Sums that no second run gives again: each run of the query has a seed of its own."""
    return summed(events.withColumn("value", F.col("value") + (F.rand() * 1_000_000).cast("long")))


QUERIES = {query.__name__: query for query in (summed, by_chance)}


def read_events(spark: SparkSession, inputs: Path, per_batch: int) -> DataFrame:
    reader = spark.readStream.schema("at LONG, key STRING, value LONG").option("maxFilesPerTrigger", per_batch)
    return reader.json(str(inputs / "events"))


def steps_of(sinks: Iterable[str]) -> list[str]:
    """The steps of an epoch, by the names that the protocol calls them."""
    sinks = list(sinks)
    # With a sink that can't go back a decision must stand in two places.
    decided = ["half decided", "decided"] if "kafka" in sinks else ["decided"]
    return ["begin", "staged", "prepared", *decided, "looked", *(f"committed {name}" for name in sinks), "committed"]


def steps_of_a_take_over(sinks: Iterable[str], *, goes_back: bool = False) -> list[str]:
    """The steps of a start before its first epoch; with `goes_back` one whose sinks stand beyond what is known."""
    sinks = list(sinks)
    back = [f"rolled back {name}" for name in sinks] if goes_back else []
    return ["claimed", *(f"fenced {name}" for name in sinks), "fenced", "begun", *back, "laid", "noted"]


class Truth:
    """What plain Spark puts out that nobody interrupts: of so many files, one a batch, or cut in other ways."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self._spark = spark
        self._root = root
        self._known: dict[tuple[object, ...], list[Row]] = {}

    def __call__(self, files: int, output_mode: str = "append") -> list[Row]:
        return self.cut((files, 1), output_mode=output_mode)

    def cut(self, *parts: tuple[int, int], output_mode: str = "append", every_version: bool = False) -> list[Row]:
        """Each part is up to how many files it reads, and how many of them make a batch.

        In mode complete the last batch has it all, in mode update each has what became of some keys: the last of it,
        or `every_version`.
        """
        known = (parts, output_mode, every_version)
        if known not in self._known:
            found: list[Row] = []
            place = self._root / f"{len(self._known)}"

            def collect(batch: DataFrame, _epoch: int) -> None:
                rows = [*map(_row, batch.collect())]
                new = {row[:2] for row in rows}
                if output_mode != "append" and not every_version:
                    found[:] = [row for row in found if output_mode == "update" and row[:2] not in new]
                found.extend(rows)

            for upto, per_batch in parts:
                EVENTS(place, upto)
                with configured(self._spark, CONF):
                    writer = summed(read_events(self._spark, place, per_batch)).writeStream.outputMode(output_mode)
                    writer = writer.foreachBatch(collect)
                    writer = writer.option("checkpointLocation", str(place / "checkpoint"))
                    writer.trigger(availableNow=True).start().awaitTermination()
            self._known[known] = sorted(found)
        return self._known[known]


def _row(row: tuple[int, str, int, int]) -> Row:
    return (row[0], row[1], row[2], row[3])


class Died(Exception):
    """A pipeline came to its end here."""


def die_at(step: str, times: int = 1) -> Callable[[str], None]:
    """A `reach` that ends a pipeline of this process at a step, reached for so many times."""
    left = times

    def reach(name: str) -> None:
        nonlocal left
        left -= name == step
        if name == step and left == 0:
            raise Died(step)

    return reach


class Order(NamedTuple):
    """What the program shall do: run with these targets, and at a step for so many times send itself a signal."""

    root: str
    targets: dict[str, Target]
    home: str = "home"
    step: str = ""
    times: int = 1
    signal: int = signal.SIGKILL
    options: dict[str, str] = {}  # noqa: RUF012 - never changed
    conf: dict[str, str] = {}  # noqa: RUF012 - never changed
    repository: str = ""
    repository_options: dict[str, str] = {}  # noqa: RUF012 - never changed
    query: str = "summed"
    output_mode: str = "append"
    by_executors: bool = False
    on_and_on: bool = False


class Proof:
    """Inputs, a repository, Spark's directories and the targets of a pipeline.

    The directories lie in a folder, or `remotely`, where only a program of its own gets to: with `options` for Holdfast
    and `conf` for its Spark. `query` is what it runs if nothing else is asked for.
    """

    def __init__(self, root: Path, targets: Mapping[str, Target]) -> None:
        self.root = root
        self.targets = dict(targets)
        self.home = root / "home"
        self.remotely = ""
        self.options: dict[str, str] = {}
        self.conf: dict[str, str] = {}
        self.query = summed
        is_overwritten = any(target.mode == "overwrite" for target in self.targets.values())
        self.output_mode = "complete" if is_overwritten else "append"
        """What its targets need of the query, if nothing else is asked for."""
        self.by_executors = False
        self.keep_in(str(root / "repository"), {})

    def keep_in(self, url: str, options: dict[str, str]) -> None:
        """Have the repository there. Nobody waits for long if its store goes away."""
        self.repository = holdfast.open(url, create=True, options=options, retry=RetryPolicy(budget_seconds=2))
        self._repository = url, options

    @classmethod
    def of(cls, kinds: tuple[str, ...], root: Path, server: Callable[[str], object]) -> Proof:
        return cls(root, {name_of(kind): make_target(kind, root, server) for kind in kinds})

    @property
    def stored(self) -> StoredPipeline:
        return self.repository.pipeline(NAME)

    def leave_to_executors(self, change: Callable[[Any, str, int], None] = setattr) -> None:
        """Have Spark's executors stage every epoch and write tables anew, however few rows there are.

        This changes the process, and those that it starts for this.
        """
        change(staging, "FEW_ROWS", -1)
        for module in (delta, iceberg):
            change(module, "SMALL", 0)
        if all(target.mode == "upsert" for target in self.targets.values()):
            # Otherwise no key comes twice, and nothing is ever written anew.
            self.output_mode = "update"
        self.by_executors = True

    def decisions(self) -> list[EpochDecision]:
        """Those that the repository knows."""
        records = self.stored.records
        return Ledger(records.store, records.keys.ledger).read()

    def staged(self) -> list[str]:
        """The names of all files that were staged for an epoch which was decided, as far as the repository knows."""
        return [file.name for decision in self.decisions() for file in decision.staged.files]

    def inputs(self, batches: int) -> None:
        EVENTS(self.root, batches)

    def rows(self) -> dict[str, list[Row]]:
        """What a reader finds in each target."""
        return {name: rows_in(target) for name, target in self.targets.items()}

    def differing(self, truth: list[Row]) -> dict[str, tuple[set[Row], list[Row]]]:
        """The targets that do not hold the truth: what they lack, and what they have too much."""
        wrong = {}
        for name, rows in self.rows().items():
            if rows != truth:
                surplus = [*rows]
                for row in truth:
                    with suppress(ValueError):
                        surplus.remove(row)
                wrong[name] = (set(truth) - set(rows), surplus)
        return wrong

    def lose_home(self) -> None:
        """Move the folder away: Spark's upkeep may still be at work in it, and would race who removes it."""
        self.home.rename(self.root / f"lost-{time.monotonic_ns()}")

    def damage_checkpoints(self, after: int) -> None:
        """Cut short the records of all checkpoints after an epoch."""
        records = self.stored.records
        for checkpoint in self.stored.checkpoints():
            if checkpoint.epoch > after:
                path = self.root / "repository" / records.keys.manifest(checkpoint.slot)
                path.write_bytes(path.read_bytes()[:100])

    # ---- in this process ----

    def pipeline(
        self,
        spark: SparkSession,
        *,
        per_batch: int = 1,
        query: Callable[[DataFrame], DataFrame] | None = None,
        reach: Callable[[str], None] | None = None,
        **more: Any,
    ) -> Pipeline:
        sources = {"events": read_events(spark, self.root, per_batch)}
        sinks = {name: open_sink(target) for name, target in self.targets.items()}
        more.setdefault("output_mode", self.output_mode)
        made = Pipeline(NAME, sources=sources, query=query or self.query, sinks=sinks, **more)
        if reach is not None:
            made._reach = reach
        return made

    def run(self, pipeline: Pipeline, *, home: Path | None = None, every: str = "2 batches", **more: Any) -> Run:
        """Run to the end of what there is. Raises what ended it before."""
        place = self.remotely or home or self.home
        more.setdefault("options", self.options)
        more.setdefault("trigger", NOW)
        try:
            with configured(pipeline.sources["events"].sparkSession, CONF):
                run = pipeline.start(self.repository, checkpoint_dir=place, every=every, **more)
                run.await_termination()
            return run
        finally:
            for sink in pipeline.sinks.values():
                sink.close()

    def rewind(self, pipeline: Pipeline, to: str) -> None:
        try:
            pipeline.rewind(self.repository, to=to, checkpoint_dir=self.home)
        finally:
            for sink in pipeline.sinks.values():
                sink.close()

    # ---- in a process of its own ----

    def dies(self, step: str, times: int = 2) -> bool:
        """Run it until it is killed at a step, reached for so many times; False if it came to its end before."""
        with self._program(step, times, signal.SIGKILL) as process:
            return _ended(process) == -signal.SIGKILL

    def dies_by_chance(self, chance: random.Random, within: float) -> bool:
        """Run it and kill it at some instant after Spark has started; False if it came to its end before."""
        with self._program() as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "running\n"
            with suppress(subprocess.TimeoutExpired):
                process.wait(chance.uniform(0, within))
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            return _ended(process) == -signal.SIGKILL

    def race(self, drivers: int) -> list[int]:
        """Run it so many times at once; gives their exit codes."""
        with ExitStack() as stack:
            processes = [stack.enter_context(self._program()) for _ in range(drivers)]
            return [_ended(process) for process in processes]

    @contextmanager
    def asleep(self, step: str, times: int = 2) -> Iterator[Callable[[], int]]:
        """Run it until it falls asleep at a step, JVM and all; what is given wakes it, and gives its exit code."""
        with self._program(step, times, signal.SIGSTOP) as process:
            _, status = os.waitpid(process.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status), f"it ended with {status} and never came to {step!r}"

            def wake() -> int:
                os.killpg(process.pid, signal.SIGCONT)
                return _ended(process)

            yield wake

    @contextmanager
    def on_and_on(self) -> Iterator[Callable[[], int]]:
        """Run it for ever; what is given waits for its end, and gives its exit code."""
        with self._program(on_and_on=True) as process:
            yield lambda: _ended(process)

    @contextmanager
    def _program(
        self, step: str = "", times: int = 1, then: signal.Signals = signal.SIGKILL, *, on_and_on: bool = False
    ) -> Iterator[subprocess.Popen[str]]:
        home = self.remotely or str(self.home)
        about = (self.options, self.conf, *self._repository, self.query.__name__, self.output_mode, self.by_executors)
        order = Order(str(self.root), self.targets, home, step, times, then, *about, on_and_on)
        paths = [path for path in (os.environ.get("PYTHONPATH"), str(TESTS)) if path]
        with (self.root / "log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "pipeline.proof", msgspec.json.encode(order).decode()],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        with process:
            try:
                yield process
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


Prove: TypeAlias = Callable[..., Proof]


def _ended(process: subprocess.Popen[str]) -> int:
    code = process.wait(SECONDS)
    # The JVM of one that was killed may not have gone yet, and a file that it has open is not free before it has.
    with suppress(ProcessLookupError):
        while True:
            os.killpg(process.pid, 0)
            time.sleep(0.01)
    return code


def signal_at(step: str, times: int, then: int) -> Callable[[str], None]:
    """Send a signal to this program and its JVM when a step is reached for so many times."""
    left = times

    def reach(name: str) -> None:
        nonlocal left
        left -= name == step
        if name == step and left == 0:
            os.killpg(os.getpgrp(), then)
            # It may reach another thread first, and this one would be well into the next step by then.
            time.sleep(1)

    return reach


def main(given: str) -> int:
    from spark.session import start_session

    order = msgspec.json.decode(given, type=Order)
    proof = Proof(Path(order.root), order.targets)
    proof.keep_in(order.repository, order.repository_options)
    if order.by_executors:
        proof.leave_to_executors()
    proof.query, proof.output_mode = QUERIES[order.query], order.output_mode
    if "://" in order.home:
        proof.remotely, proof.options = order.home, order.options
    else:
        proof.home = Path(order.home)
    spark = start_session(order.conf)
    print("running", flush=True)
    try:
        pipeline = proof.pipeline(spark, reach=signal_at(order.step, order.times, order.signal))
        proof.run(pipeline, trigger=ALWAYS if order.on_and_on else NOW)
    except HoldfastError as error:
        print(repr(error), file=sys.stderr, flush=True)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
