"""The proof of a restore: an uninterrupted run is the truth, and what goes on from a cut must give the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

import holdfast
from holdfast.handles import StoredPipeline
from holdfast.spark.capture import Capturer, Taken
from holdfast.spark.lay import lay_down
from holdfast.store.local_directory import LocalDirectory
from spark.workloads import BATCHES, Outputs, Workload, run

__all__ = ["Truth", "after", "run_from", "run_on", "tell_truth"]


class Stopped(Exception):
    """Raised inside a batch, to end a query in the middle of it."""


@dataclass(frozen=True)
class Truth:
    """An uninterrupted run, and the checkpoints that were taken of it on the way."""

    workload: Workload
    store: str
    inputs: Path
    outputs: Outputs
    pipeline: StoredPipeline
    batches: int = BATCHES


def tell_truth(spark: SparkSession, workload: Workload, store: str, root: Path, batches: int = BATCHES) -> Truth:
    """Run a workload to its end, and capture every batch when the next has begun."""
    pipeline = holdfast.open(str(root / "repository"), create=True).pipeline("proof")
    capturer = Capturer(pipeline.records, LocalDirectory(root / "truth"))

    def capture(batch: int) -> None:
        if batch > 0:
            taken = capturer.take()
            assert isinstance(taken, Taken), taken
            assert taken.manifest.epoch == batch - 1

    try:
        outputs = run(spark, workload, store, root / "inputs", str(root / "truth"), upto=batches, on_batch=capture)
    finally:
        capturer.close()
    return Truth(workload, store, root / "inputs", outputs, pipeline, batches)


def run_on(spark: SparkSession, truth: Truth, cut: int, place: Path, stops: Sequence[int] = ()) -> Outputs:
    """Restore a cut and run on to the end, stopped in the middle of some batches and started again after each."""
    laid = lay_down(truth.pipeline.records, truth.pipeline[f"epoch:{cut}"].manifest, str(place))
    return run_from(spark, truth, laid.destination, stops)


def run_from(spark: SparkSession, truth: Truth, directory: str, stops: Sequence[int] = ()) -> Outputs:
    """Run on from a directory to the end, stopped in the middle of some batches and started again after each."""
    outputs: Outputs = {}
    for stop in [*stops, None]:
        where = (truth.workload, truth.store, truth.inputs, directory)
        try:
            run(spark, *where, upto=truth.batches, on_batch=_door(stop), into=outputs)
        except Stopped:
            continue
    return outputs


def _door(stop: int | None) -> Callable[[int], None]:
    def enter(batch: int) -> None:
        if batch == stop:
            raise Stopped

    return enter


def after(outputs: Outputs, cut: int) -> Outputs:
    """What was put out after a batch."""
    return {batch: rows for batch, rows in outputs.items() if batch > cut}
