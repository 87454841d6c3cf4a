"""A drill: the newest checkpoint of a pipeline restored into a scratch place, and every byte of it proven.

It claims nothing and changes nothing but the scratch place. What is found goes into a report; nothing is raised for
it, so that one pipeline that can't be restored does not hide another.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.checkpoint import PYTHON, Checkpoint
from holdfast.errors import CheckpointMissing, Damage, DamagedArtifact, DrillFailed, HoldfastError
from holdfast.handles import StoredPipeline
from holdfast.recovery import Demands, choose
from holdfast.repository.artifacts import load_artifacts
from holdfast.restore import Restored
from holdfast.spark.inspect import inspect
from holdfast.spark.lay import Laid
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

    It is restored into a folder with the pipeline's name, which must be new or empty. What was restored is removed in
    the end, unless it is to be kept; what was there before is never touched.
    """
    drilled = Drilled(pipeline.name, int(time.time() * 1000))
    place = _Place(scratch / pipeline.name)
    try:
        _drill(pipeline, place, drilled, start, progress)
    finally:
        if not keep:
            place.clear()
    return drilled


class _Place:
    """Where a checkpoint is restored to, and whether what is there is ours."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._was_there = path.is_dir()
        self.is_ours = False
        """Set once something was restored into it. Until then all that is there is somebody else's."""

    def clear(self) -> None:
        """Remove what was restored; an empty folder that was there before is empty again."""
        if not self.is_ours:
            return
        if not self._was_there:
            shutil.rmtree(self.path, ignore_errors=True)
            return
        # What can't be removed stays, and is no reason to say anything else of the pipeline than what was found.
        with suppress(OSError):
            for found in [*self.path.iterdir()]:
                if found.is_dir() and not found.is_symlink():
                    shutil.rmtree(found, ignore_errors=True)
                else:
                    found.unlink(missing_ok=True)


def _drill(
    pipeline: StoredPipeline, place: _Place, drilled: Drilled, start: Start | None, progress: Progress | None
) -> None:
    checkpoint = _find(pipeline, drilled)
    laid = _restore(checkpoint, place, drilled, progress) if checkpoint is not None else None
    if checkpoint is None or laid is None:
        _say_what_is_left(pipeline, drilled)
        return
    if isinstance(laid, Restored):
        return
    with _Tried(drilled, "read back") as step:
        inspected = inspect(open_directory(str(place.path)), read_all=True)
        for fault in inspected.damaged:
            raise DamagedArtifact(fault.name, fault.what)
        step.said = f"a restart goes on after batch {inspected.newest_whole}"
    if start is not None and drilled.good:
        with _Tried(drilled, "start") as step:
            step.said = _started(pipeline.name, start, checkpoint, place.path)


def _started(name: str, start: Start, checkpoint: Checkpoint, place: Path) -> str:
    try:
        return start(checkpoint, place)
    except HoldfastError:
        raise
    except Exception as error:
        # It runs the user's query and asks the user's sources: whatever these raise, the others have their turn.
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise DrillFailed(name, ": ".join([type(error).__name__, *lines[:1]])) from error


def _find(pipeline: StoredPipeline, drilled: Drilled) -> Checkpoint | None:
    with _Tried(drilled, "find") as step:
        pipeline.require()
        latest = pipeline.latest()
        if latest is None:
            raise CheckpointMissing(pipeline.name, "the pipeline has no checkpoint yet")
        drilled.slot, drilled.epoch, drilled.taken_ms = str(latest.slot), latest.epoch, latest.head.timestamp_ms
        step.said = f"{latest.slot}, epoch {latest.epoch}"
        return latest
    return None


def _restore(
    checkpoint: Checkpoint, place: _Place, drilled: Drilled, progress: Progress | None
) -> Restored | Laid | None:
    with _Tried(drilled, "restore") as step:
        laid: Restored | Laid
        if checkpoint.manifest.engine == PYTHON:
            laid = checkpoint.restore(place.path, progress)
        else:
            # With the id of the running query, Spark would stop that one where both are in one driver.
            laid = checkpoint.fork(place.path, progress, state_only=True)
        place.is_ours = True
        if isinstance(laid, Laid):
            _prove_the_rest(checkpoint)
        drilled.files, drilled.bytes = laid.files, laid.bytes
        step.said = f"{laid.files} files, {laid.bytes} bytes, all verified"
        return laid
    return None


def _prove_the_rest(checkpoint: Checkpoint) -> None:
    """What is no file of Spark's directory: the driver's states."""
    records, states = checkpoint.pipeline.records, checkpoint.manifest.driver_states
    for _ in load_artifacts(records.store, records.keys, states.values()):
        continue


def _say_what_is_left(pipeline: StoredPipeline, drilled: Drilled) -> None:
    """What a start would do now: the newest is damaged, and an older one may not be."""
    if not isinstance(drilled.error, Damage):
        return
    with _Tried(drilled, "fall back") as step:
        left = choose(pipeline.records, Demands()).manifest
        step.said = f"a start would fall back to {left.at}, epoch {left.epoch}" if left else "nothing is left"


class _Tried:
    """Notes a step when it is over, with the error that ended it: nothing of Holdfast's own gets past it."""

    def __init__(self, drilled: Drilled, name: str) -> None:
        self._drilled = drilled
        self._name = name
        self.said = ""

    def __enter__(self) -> _Tried:
        self._began = time.perf_counter()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        if error is not None and not isinstance(error, HoldfastError):
            return False
        self._drilled.steps.append(Step(self._name, time.perf_counter() - self._began, self.said, error))
        return True
