"""A drill: the newest checkpoint of a pipeline restored into a scratch place, and every byte of it proven.

It claims nothing and changes nothing but the scratch place. What is found goes into a report; nothing is raised for
it, so that one pipeline that can't be restored does not hide another.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.checkpoint import Checkpoint
from holdfast.errors import CheckpointMissing, Damage, DamagedArtifact, HoldfastError
from holdfast.handles import StoredPipeline
from holdfast.recovery import Demands, choose
from holdfast.repository.artifacts import load_artifacts
from holdfast.restore import Restored
from holdfast.spark.inspect import inspect
from holdfast.store import open_directory

__all__ = ["Drilled", "Start", "Step", "drill_pipeline"]

Progress = Callable[[str, int, int], None]
Start = Callable[[Checkpoint, Path], str]
"""Starts Spark from a directory that a checkpoint was laid down in, and says what it did. Raises if it can't."""


@dataclass(frozen=True)
class Step:
    """One thing that was tried: what came of it, and the error that it ended with, if it did."""

    name: str
    seconds: float
    said: str = ""
    error: HoldfastError | None = None


@dataclass
class Drilled:
    """What a drill of one pipeline has shown. It is good only if every step was."""

    pipeline: str
    started_ms: int
    slot: str | None = None
    epoch: int | None = None
    taken_ms: int | None = None
    files: int = 0
    bytes: int = 0
    steps: list[Step] = field(default_factory=list)

    @property
    def error(self) -> HoldfastError | None:
        return next((step.error for step in self.steps if step.error is not None), None)

    @property
    def good(self) -> bool:
        return self.error is None

    @property
    def seconds(self) -> float:
        return sum(step.seconds for step in self.steps)


def drill_pipeline(
    pipeline: StoredPipeline,
    scratch: Path,
    *,
    start: Start | None = None,
    keep: bool = False,
    progress: Progress | None = None,
) -> Drilled:
    """Restore the newest checkpoint below `scratch` and prove it; with `start`, that Spark starts from it.

    The place is removed in the end, unless it is to be kept.
    """
    drilled = Drilled(pipeline.name, int(time.time() * 1000))
    place = scratch / pipeline.name
    try:
        _drill(pipeline, place, drilled, start, progress)
    finally:
        if not keep:
            shutil.rmtree(place, ignore_errors=True)
    return drilled


def _drill(
    pipeline: StoredPipeline, place: Path, drilled: Drilled, start: Start | None, progress: Progress | None
) -> None:
    found: list[Checkpoint] = []
    with _step(drilled, "find") as say:
        latest = pipeline.latest()
        if latest is None:
            raise CheckpointMissing(pipeline.name, "the pipeline has no checkpoint yet")
        found.append(latest)
        drilled.slot, drilled.epoch, drilled.taken_ms = str(latest.slot), latest.epoch, latest.head.timestamp_ms
        say(f"{latest.slot}, epoch {latest.epoch}")
    if not drilled.good:
        _say_what_is_left(pipeline, drilled)
        return
    checkpoint = found[0]
    with _step(drilled, "restore") as say:
        laid = checkpoint.restore(place, progress, state_only=True)
        if not isinstance(laid, Restored):
            _prove_the_rest(checkpoint)
        drilled.files, drilled.bytes = laid.files, laid.bytes
        say(f"{laid.files} files, {laid.bytes} bytes, all verified")
    if not drilled.good:
        _say_what_is_left(pipeline, drilled)
        return
    if isinstance(laid, Restored):
        return
    with _step(drilled, "read back") as say:
        inspected = inspect(open_directory(str(place)), read_all=True)
        for fault in inspected.damaged:
            raise DamagedArtifact(fault.name, fault.what)
        say(f"a restart goes on after batch {inspected.newest_whole}")
    if start is not None and drilled.good:
        with _step(drilled, "start") as say:
            say(start(checkpoint, place))


def _prove_the_rest(checkpoint: Checkpoint) -> None:
    """What is no file of Spark's directory: the driver's states."""
    records, states = checkpoint.pipeline.records, checkpoint.manifest.driver_states
    for _ in load_artifacts(records.store, records.keys, states.values()):
        continue


def _say_what_is_left(pipeline: StoredPipeline, drilled: Drilled) -> None:
    """What a start would do now: the newest is damaged, and an older one may not be."""
    if not isinstance(drilled.error, Damage):
        return
    with _step(drilled, "fall back") as say:
        left = choose(pipeline.records, Demands()).manifest
        say(f"a start would fall back to {left.at}, epoch {left.epoch}" if left else "nothing is left to start from")


@contextmanager
def _step(drilled: Drilled, name: str) -> Iterator[Callable[[str], None]]:
    began, said = time.perf_counter(), list[str]()
    error: HoldfastError | None = None
    try:
        yield said.append
    except HoldfastError as raised:
        error = raised
    drilled.steps.append(Step(name, time.perf_counter() - began, "; ".join(said), error))
