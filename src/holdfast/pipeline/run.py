"""A pipeline that runs: its query, its epochs, and the captures behind it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgspec
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.checkpoint import Checkpoint
from holdfast.decide.fingerprint import Fingerprint
from holdfast.decide.query_identity import has_operators
from holdfast.draft import Description, Draft
from holdfast.epochs import Target
from holdfast.errors import Fenced, HoldfastError, SparkGone
from holdfast.events import EpochCommitted, EpochFailed, Listener, TakenOver
from holdfast.handles import StoredPipeline
from holdfast.manifest import ConnectorOffset, SinkStatus
from holdfast.pipeline.batches import SparkBatch
from holdfast.pipeline.driver_states import DriverStates
from holdfast.pipeline.epoch import Epochs
from holdfast.pipeline.links import LINK, encode_link
from holdfast.pipeline.metrics import Metrics
from holdfast.pipeline.staging import FolderStaging
from holdfast.pipeline.starting import Recovery
from holdfast.pipeline.upkeep import Upkeep
from holdfast.spark.attach import Attached, AttachedStatus, Stopped
from holdfast.spark.capture import Add
from holdfast.store import Directory

__all__ = ["Run", "RunStatus", "Running"]

KEPT = 1000
"""How many epochs back the positions of the sinks are known to a capture that begins: it is never so far behind."""


class _Noted(NamedTuple):
    """How things stood after an epoch."""

    sinks: Mapping[str, Target]
    states: Mapping[str, bytes]


class Running:
    """What foreachBatch calls for every epoch of a generation. Remembers how things stood after each.

    `directory` is where Spark logs the epochs; `look` raises Fenced if another has claimed the pipeline.
    """

    def __init__(
        self,
        epochs: Epochs,
        directory: Directory,
        staging: FolderStaging,
        states: DriverStates,
        upkeep: Upkeep,
        epoch: int,
        *,
        query: Fingerprint,
        tables: Mapping[str, str],
        add_sources: Callable[[Description], Description],
        join: Callable[[], None],
        look: Callable[[], None],
        tell: Listener,
    ) -> None:
        self.upkeep = upkeep
        self.tables = tables
        """The versions of reference tables that epochs are run with."""
        self._query = query
        self._add_sources = add_sources
        self._epochs = epochs
        self._directory = directory
        self._staging = staging
        self._states = states
        self._join = join
        self._look = look
        self._tell = tell
        self._noted: dict[int, _Noted] = {}
        self._newest = epoch, dict[str, Target]()
        self._lock = threading.Lock()
        self.error: Exception | None = None
        self._note(epoch)

    def __call__(self, frame: DataFrame, epoch: int) -> None:
        began = time.perf_counter()
        try:
            decision = self._epochs.run(self._batch(frame, epoch))
        except Exception as error:
            # Spark tells of it in words only.
            fenced = error if isinstance(error, Fenced) else self._overtaken()
            self.error = fenced or error
            self._tell(TakenOver(fenced.by) if fenced is not None else EpochFailed(epoch, error))
            if fenced is None or fenced is error:
                raise
            raise fenced from error
        self._note(epoch)
        staged, seconds = decision.staged, time.perf_counter() - began
        self._tell(EpochCommitted(epoch, staged.rows, staged.size_bytes, seconds, dict(self._epochs.seconds)))
        self.upkeep.release()

    def _batch(self, frame: DataFrame, epoch: int) -> SparkBatch:
        stateful = has_operators(self._query.parts)
        return SparkBatch(frame, epoch, self._directory, self._staging, self.tables, stateful=stateful)

    def _overtaken(self) -> Fenced | None:
        """Whoever takes a pipeline over drives its epochs on and clears up: what fails here then fails for that."""
        try:
            self._look()
        except Fenced as fenced:
            return fenced
        except HoldfastError:
            return None  # What failed first says more.
        return None

    def newest(self) -> tuple[int, Mapping[str, Target]]:
        """The newest epoch that is over, and where each sink stands since."""
        with self._lock:
            return self._newest

    def describe(self, epoch: int) -> Add | None:
        """Take what is known of an epoch, for a checkpoint that begins now: its upload may outlast what is kept of it.

        What this gives adds to the checkpoint what its files do not say: the query, the sinks, which had all committed
        its epoch by then, the reference tables, and the driver's states. The decisions are in the repository before.
        None for an epoch of which that is not known: one that was run again while a sink was ahead of it.
        """
        with self._lock:
            noted = self._noted.get(epoch)
        if noted is None:
            return None

        def add(draft: Draft, about: Description) -> Description:
            self._join()
            self.upkeep.look()
            with self._lock:
                for past in [past for past in self._noted if past < epoch]:
                    del self._noted[past]
            for name, data in noted.states.items():
                draft.save_driver_state(name, data)
            return self._described(noted, epoch, self._add_sources(about))

        return add

    def _described(self, noted: _Noted, epoch: int, about: Description) -> Description:
        any_sink = next(iter(noted.sinks.values()))
        return replace(
            about,
            sinks={name: SinkStatus(status="committed") for name in noted.sinks},
            sink_epochs=dict.fromkeys(noted.sinks, epoch),
            sink_positions={name: msgspec.to_builtins(target) for name, target in noted.sinks.items()},
            metadata={**about.metadata, LINK: encode_link(any_sink.at)},
            table_offsets={
                name: ConnectorOffset(offsets={"version": version}) for name, version in self.tables.items()
            },
            pipeline_hash=self._query.digest,
            fingerprint=self._query.parts,
        )

    def _note(self, epoch: int) -> None:
        with self._lock:
            sinks = {name: held.at for name, held in self._epochs.sinks.items()}
            self._newest = epoch, sinks
            if all(target.at.epoch == epoch for target in sinks.values()):
                self._noted[epoch] = _Noted(sinks, self._states.save())
            self._noted.pop(epoch - KEPT, None)


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
        recovery: Recovery,
        query: StreamingQuery,
        running: Running,
        attached: Attached,
        metrics: Metrics,
        let_go: Callable[[], None],
    ) -> None:
        self.pipeline = pipeline
        self.recovery = recovery
        """What was found and done before it ran."""
        self.generation = recovery.generation
        self.query = query
        self._running = running
        self._attached = attached
        self.metrics = metrics
        """Its figures, for Prometheus: `metrics.serve(port)` answers until it ends."""
        self._let_go = let_go

    def __repr__(self) -> str:
        return f"<holdfast run of {self.pipeline.name!r}, generation {self.generation}>"

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    @property
    def is_active(self) -> bool:
        """Whether its query runs. If it does not, `await_termination` tells why."""
        try:
            return bool(self.query.isActive)
        except Py4JError:
            return False

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
        except Py4JError as error:
            raise self._gone(error) from error
        finally:
            # A name that is refused is refused before the query is stopped.
            if not self.is_active:
                self._let_go()

    def await_termination(self, timeout: int | None = None) -> bool:
        """Wait for the query to end, and raise what ended it. False if it has not after so many seconds."""
        try:
            ended = self.query.awaitTermination(timeout) if timeout is not None else self.query.awaitTermination()
        except PySparkException:
            # What ended the query says more than the capture after it, which fails too if the store is gone.
            with suppress(HoldfastError):
                self._attached.detach()
            self._let_go()
            self._raise_own()
            raise
        except Py4JError as error:
            self._let_go()
            raise self._gone(error) from error
        if ended is not False:
            self._attached.detach()
            self._let_go()
        return ended is not False

    def status(self) -> RunStatus:
        """How it stands. The repository is not asked."""
        epoch, sinks = self._running.newest()
        return RunStatus(
            self.generation,
            self.is_active,
            epoch if epoch >= 0 else None,
            {name: target.position for name, target in sinks.items()},
            self._attached.status(),
            self._running.upkeep.error,
        )

    def _held(self) -> None:
        self._running.upkeep.hold()
        self._running.upkeep.warn()

    def _gone(self, error: Exception) -> SparkGone:
        said = (line.strip() for line in str(error).splitlines())
        return SparkGone(self.pipeline.name, next((line for line in said if line), type(error).__name__))

    def _raise_own(self) -> None:
        """What a sink or the protocol said, in its own words and with its code."""
        if isinstance(self._running.error, HoldfastError):
            raise self._running.error
