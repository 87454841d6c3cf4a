"""A pipeline that runs: its query, its epochs, and the captures behind it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.checkpoint import Checkpoint
from holdfast.draft import Description, Draft
from holdfast.epochs import Target
from holdfast.errors import HoldfastError
from holdfast.handles import StoredPipeline
from holdfast.manifest import SinkStatus
from holdfast.pipeline.batches import SparkBatch
from holdfast.pipeline.epoch import Epochs
from holdfast.pipeline.links import LINK, encode_link
from holdfast.pipeline.staging import FolderStaging
from holdfast.pipeline.upkeep import Upkeep
from holdfast.spark.attach import Attached, AttachedStatus, Stopped
from holdfast.store import Directory

__all__ = ["Run", "RunStatus", "Running"]

KEPT = 1000
"""How many epochs back the positions of the sinks are known to a capture: it is never so far behind."""


class Running:
    """What foreachBatch calls for every epoch of a generation. Remembers where the sinks stood after each."""

    def __init__(
        self,
        epochs: Epochs,
        directory: Directory,
        staging: FolderStaging,
        epoch: int,
        upkeep: Upkeep,
        add_sources: Callable[[Description], Description],
    ) -> None:
        self.upkeep = upkeep
        self._add_sources = add_sources
        self._epochs = epochs
        self._directory = directory
        self._staging = staging
        self._positions: dict[int, dict[str, Target]] = {}
        self._lock = threading.Lock()
        self.error: Exception | None = None
        self._note(epoch)

    def __call__(self, frame: DataFrame, epoch: int) -> None:
        try:
            self._epochs.run(SparkBatch(frame, epoch, self._directory, self._staging))
        except Exception as error:
            # Spark tells of it in words only.
            self.error = error
            raise
        self._note(epoch)
        self.upkeep.release()

    def positions(self, epoch: int) -> dict[str, Target]:
        """Where each sink stood after an epoch."""
        with self._lock:
            return self._positions[epoch]

    def describe(self, draft: Draft, about: Description) -> Description:
        """Add the sinks to what a checkpoint says: all of them had committed its epoch before its cut was taken."""
        self.upkeep.look()
        about = self._add_sources(about)
        held = self.positions(draft.epoch)
        any_sink = next(iter(held.values()))
        return replace(
            about,
            sinks={name: SinkStatus(status="committed") for name in held},
            sink_epochs=dict.fromkeys(held, draft.epoch),
            sink_positions={name: msgspec.to_builtins(target) for name, target in held.items()},
            metadata={**about.metadata, LINK: encode_link(any_sink.at)},
        )

    def _note(self, epoch: int) -> None:
        with self._lock:
            self._positions[epoch] = {name: held.at for name, held in self._epochs.sinks.items()}
            self._positions.pop(epoch - KEPT, None)


@dataclass(frozen=True)
class RunStatus:
    """How a run stands: its generation, its last epoch with the sinks' positions, and its captures.

    `upkeep_error` is what went wrong when the sinks were last told what to keep for those who go back.
    """

    generation: int
    is_active: bool
    last_epoch: int | None
    sinks: Mapping[str, Any]
    captures: AttachedStatus
    upkeep_error: str | None = None


class Run:
    """One run of a pipeline. Usable from several threads; leaving a `with` stops it."""

    def __init__(
        self,
        pipeline: StoredPipeline,
        generation: int,
        query: StreamingQuery,
        running: Running,
        attached: Attached,
        let_go: Callable[[], None],
    ) -> None:
        self.pipeline = pipeline
        self.generation = generation
        self.query = query
        self._running = running
        self._attached = attached
        self._let_go = let_go

    def __repr__(self) -> str:
        return f"<holdfast run of {self.pipeline.name!r}, generation {self.generation}>"

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def savepoint(self, name: str, timeout: float | None = None) -> Checkpoint:
        """A durable, named checkpoint of the newest epoch that is over at this call, or of a newer one.

        The sinks are told to keep the way back to it; if that raises, the savepoint stands, and they are told again.
        """
        checkpoint = self._attached.checkpoint(savepoint=name, timeout=timeout)
        self._held()
        return checkpoint

    def checkpoint(self, timeout: float | None = None) -> Checkpoint:
        """The same without a name."""
        return self._attached.checkpoint(timeout=timeout)

    def stop(self, savepoint: str | None = None) -> Stopped | None:
        """Stop before the next epoch and leave a checkpoint of the last; None if there never was one."""
        try:
            stopped = self._attached.stop(savepoint)
            if savepoint is not None:
                self._held()
            return stopped
        except HoldfastError:
            self._raise_own()
            raise
        finally:
            self._let_go()

    def await_termination(self, timeout: int | None = None) -> bool:
        """Wait for the query to end, and raise what ended it. False if it has not after so many seconds."""
        try:
            ended = self.query.awaitTermination(timeout) if timeout is not None else self.query.awaitTermination()
        except PySparkException:
            self._attached.detach()
            self._let_go()
            self._raise_own()
            raise
        if ended is not False:
            self._attached.detach()
            self._let_go()
        return ended is not False

    def status(self) -> RunStatus:
        captures = self._attached.status()
        last = captures.last_batch
        sinks = {name: target.position for name, target in self._running.positions(last).items()} if last else {}
        return RunStatus(self.generation, self.query.isActive, last, sinks, captures, self._running.upkeep.error)

    def _held(self) -> None:
        self._running.upkeep.hold()
        self._running.upkeep.warn()

    def _raise_own(self) -> None:
        """What a sink or the protocol said, in its own words and with its code."""
        if isinstance(self._running.error, HoldfastError):
            raise self._running.error
