"""Directories of real queries of each kind, made once by a real Spark: whoever damages one takes a copy."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeAlias

from holdfast.handles import StoredPipeline
from holdfast.manifest import Manifest
from holdfast.spark.capture import Capturer, Taken
from holdfast.store.directory import Directory

__all__ = ["KINDS", "UPTO", "Sample", "bring_back", "capture", "run_on", "samples"]

Rows: TypeAlias = dict[str, list[object]]

KINDS = {"hdfs": ("window", "hdfs"), "tws": ("tws-pandas", "changelog-2"), "join": ("join-left-2", "changelog")}
UPTO = 7
"""How many batches of input they have read."""


@dataclass(frozen=True)
class Sample:
    """A directory at `checkpoint`, and the same kept at `pristine`: some of what Spark writes holds its own path."""

    workload: str
    store: str
    inputs: Path
    checkpoint: Path
    pristine: Path


@cache
def samples() -> dict[str, Sample]:
    """One of each kind. They are shared by all tests: bring them back before and after a change."""
    root = Path(tempfile.mkdtemp(prefix="holdfast-samples-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    found = {
        kind: Sample(workload, store, root / kind / "inputs", root / kind / "checkpoint", root / kind / "pristine")
        for kind, (workload, store) in KINDS.items()
    }
    _run(found, UPTO)
    for sample in found.values():
        shutil.copytree(sample.checkpoint, sample.pristine)
    return found


def run_on(batches: int) -> dict[str, Rows]:
    """Have Spark go on in each directory as it is now, for so many batches of input; gives the rows of each batch."""
    return _run(samples(), UPTO + batches)


def _run(chosen: Mapping[str, Sample], upto: int) -> dict[str, Rows]:
    """In a process of its own: when it has ended, all that it had to write is on disk."""
    given = [[s.workload, s.store, str(s.inputs), str(s.checkpoint), upto] for s in chosen.values()]
    done = subprocess.run(
        [sys.executable, "-m", "spark.samples", json.dumps(given)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(zip(chosen, json.loads(done.stdout.splitlines()[-1]), strict=True))


@contextmanager
def bring_back(sample: Sample) -> Iterator[Path]:
    """The directory as Spark left it, at its own path; whatever is done to it is undone at the end."""
    _copy(sample)
    try:
        yield sample.checkpoint
    finally:
        _copy(sample)


def _copy(sample: Sample) -> None:
    shutil.rmtree(sample.checkpoint, ignore_errors=True)
    shutil.copytree(sample.pristine, sample.checkpoint)


def capture(pipeline: StoredPipeline, directory: Directory) -> Manifest:
    """A checkpoint of the last batch of a directory whose query has stopped."""
    capturer = Capturer(pipeline.records, directory)
    taken = capturer.take(known=10**9)
    capturer.close()
    assert isinstance(taken, Taken), taken
    return taken.manifest


def _serve(given: list[tuple[str, str, str, str, int]]) -> None:
    from spark.session import start_session
    from spark.workloads import WORKLOADS, run

    spark = start_session()
    outputs = [
        run(spark, WORKLOADS[workload], store, Path(inputs), checkpoint, upto=upto)
        for workload, store, inputs, checkpoint, upto in given
    ]
    spark.stop()
    print(json.dumps(outputs, default=str))


if __name__ == "__main__":
    _serve(json.loads(sys.argv[1]))
