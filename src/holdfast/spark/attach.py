"""Attach to a running query: captures in the background, savepoints on demand, and a stop that leaves one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, TypeAlias

from holdfast.checkpoint import Checkpoint
from holdfast.decide.schedule import Schedule, parse_every
from holdfast.errors import CannotAttach, Fenced, ForkedProcess, HoldfastError, NameTaken
from holdfast.events import Listener, nobody, teller
from holdfast.handles import Repository, StoredPipeline, open_url
from holdfast.ids import now_ms
from holdfast.layout import Slot, check_name
from holdfast.manifest import Manifest
from holdfast.spark.capture import Capturer
from holdfast.spark.cut import batches_in
from holdfast.spark.distribute import Sender, sender_for
from holdfast.spark.following import LAST, Follower
from holdfast.store import Address, open_directory

if TYPE_CHECKING:
    from holdfast.spark.live import LiveQuery

__all__ = ["Attached", "AttachedStatus", "Every", "Stopped", "attach"]

Every: TypeAlias = str | int | Schedule
"""A number of batches, "10 batches", "30 seconds", or a Schedule: both, or (empty) only on demand."""


@dataclass(frozen=True)
class AttachedStatus:
    """How the captures of a query stand. `last_batch` is the newest one that is known to be over.

    The last checkpoint may be of an earlier run until this one has taken its first. `fenced` says who took the pipeline
    over. What failed is tried again as long as `capturing` holds; `last_error` is None once that went well. `movers`
    tells who moves large captures: the driver, the executors, or the driver because the executors can't.
    """

    query_id: str
    directory: str
    generation: int | None
    capturing: bool
    fenced: str | None
    last_batch: int | None
    last_slot: Slot | None
    last_epoch: int | None
    last_age_seconds: float | None
    captures: int
    failures: int
    last_error: str | None
    movers: str


@dataclass(frozen=True)
class Stopped:
    """A query that was stopped: the checkpoint of its last batch, and whether it had begun another.

    What was begun and not committed is no part of the checkpoint: Spark runs it anew after the next start.
    """

    checkpoint: Checkpoint
    epoch: int
    interrupted: bool


def attach(
    query: object,
    repository: Repository | str,
    *,
    pipeline: str,
    every: Every = "30 seconds",
    directory: str | None = None,
    options: Mapping[str, str] | None = None,
    new_timeline: bool = False,
    distribute: bool | None = None,
    listener: Listener = nobody,
) -> Attached:
    """Keep checkpoints of a running query in a repository, from now on and until it ends or is let go of.

    Any query that was started with PySpark will do, as it is. This claims the pipeline: whoever captured it before is
    fenced. A query of another id, or one that went back, raises OtherTimeline unless `new_timeline`. On Spark Connect
    the checkpoint location must be given as `directory`; `options` are those of the store that it lies in, such as an
    endpoint. The handle that this returns need not be kept: the captures go on without it.

    With `distribute` Spark's executors send the bytes of each capture, and the driver none; by default they send only
    captures of half a gigabyte or more, in a cluster, with both places in object stores. The options of both places go
    to them, credentials too. `listener` is told of each checkpoint, of captures that fail, and of a take-over.
    """
    # Here, since the rest of Holdfast does without pyspark.
    from holdfast.spark.live import live_query

    schedule = every if isinstance(every, Schedule) else parse_every(every)
    live = live_query(query)
    location = directory or live.location
    if location is None:
        raise CannotAttach("a query on Spark Connect does not tell where its checkpoint lies: give it as directory=…")
    opened = open_url(repository) if isinstance(repository, str) else repository
    place = open_directory(location, options)
    here = Address(location, options or {})
    sender = sender_for(live.context, here if here.is_everywhere else Address(place.url), opened.address, distribute)
    stored = opened.pipeline(pipeline)
    capturer = Capturer(
        stored.records,
        place,
        why="attach",
        always_claim=True,
        new_timeline=new_timeline,
        spark_version=live.spark_version,
        mover=sender,
    )
    # What refuses the directory shall do so here, and not unseen in the background.
    capturer.enter()
    return Attached(live, stored, capturer, schedule, sender, teller(listener))


class Attached:
    """The captures of one running query. Usable from several threads; leaving a `with` lets go of the query.

    It need not be kept. When the query ends by itself, or the interpreter does, its last batch is captured; `then` is
    called after the query's own end.
    """

    def __init__(
        self,
        live: LiveQuery,
        pipeline: StoredPipeline,
        capturer: Capturer,
        schedule: Schedule,
        sender: Sender | None = None,
        tell: Listener = nobody,
        then: Callable[[], None] = lambda: None,
    ) -> None:
        self.pipeline = pipeline
        self._live = live
        self._directory = capturer.directory
        self._sender = sender
        self._process = os.getpid()
        self._follower = Follower(live, capturer, schedule, tell, then)

    def __repr__(self) -> str:
        return f"<holdfast attached to query {self._live.id} as {self.pipeline.name!r}>"

    def __enter__(self) -> Attached:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.detach()
        except HoldfastError as failure:
            if error is None:
                raise
            # What broke the block comes first; what failed behind it is told with it.
            error.add_note(f"and meanwhile: {failure}")

    def checkpoint(self, savepoint: str | None = None, timeout: float | None = None) -> Checkpoint:
        """A durable checkpoint of the newest batch that is over at this call, or of a newer one.

        Before the first batch is over this waits for it. Raises what the capture met with, Fenced if the pipeline was
        taken over, NotAttached after `detach`, NoWholeBatch if the query ends before its first batch, TimeoutError.
        """
        self._refuse_forked()
        if savepoint is not None:
            check_name("savepoint", savepoint)
        over = self._live.last_batch()
        return self._named(self._follower.await_checkpoint(-1 if over is None else over, timeout), savepoint)

    def stop(self, savepoint: str | None = None) -> Stopped:
        """Stop the query, before its next batch if it has a foreachBatch, and leave a checkpoint of its last one.

        The batch that is running takes its time; `query.stop()` from another thread cuts it short. Do not call this
        from within the foreachBatch function: that could never end then. If the capture fails the query is stopped all
        the same, and this can be called again.
        """
        self._refuse_forked()
        if savepoint is not None:
            self._refuse_taken(savepoint)
        self._follower.refuse_if_over()
        cleanly = self._live.state() == "running" and self._live.stop()
        manifest = self._follower.await_checkpoint(LAST)
        return Stopped(self._named(manifest, savepoint), manifest.epoch, not cleanly and self._went_on(manifest.epoch))

    def detach(self) -> None:
        """Capture the last batch that is over and let go of the query, which goes on.

        Raises what that capture met with; the query is let go of all the same. After the query's end this only waits
        for its last batch to be captured.
        """
        self._refuse_forked()
        self._follower.leave()
        failure = self._follower.join()
        if failure is not None:
            raise failure

    def status(self) -> AttachedStatus:
        """How the captures stand. Asks neither the query nor the repository."""
        tally, over = self._follower.tally()
        last = tally.last
        return AttachedStatus(
            query_id=self._live.id,
            directory=self._directory.url,
            generation=tally.generation,
            capturing=over is None,
            fenced=over.by if isinstance(over, Fenced) else None,
            last_batch=tally.last_batch,
            last_slot=last.at if last else None,
            last_epoch=last.epoch if last else None,
            last_age_seconds=max(0, now_ms() - last.timestamp_ms) / 1000 if last else None,
            captures=tally.captures,
            failures=tally.failures,
            last_error=tally.last_error,
            movers=_movers(self._sender),
        )

    def _named(self, manifest: Manifest, savepoint: str | None) -> Checkpoint:
        checkpoint = Checkpoint(self.pipeline, manifest.at)
        if savepoint is not None:
            checkpoint.savepoint(savepoint)
        return checkpoint

    def _went_on(self, epoch: int) -> bool:
        """Whether a batch after this one was begun."""
        batches = batches_in(self._directory.look())
        begun = max((*batches.offsets, self._live.last_batch() or -1), default=-1)
        return begun > epoch or not self._live.logs_first

    def _refuse_taken(self, savepoint: str) -> None:
        """Before the query is stopped: a name that can't be given would leave it stopped and without a savepoint."""
        check_name("savepoint", savepoint)
        standing = self.pipeline.savepoints().get(savepoint)
        if standing is not None:
            raise NameTaken(savepoint, str(standing.at))

    def _refuse_forked(self) -> None:
        """A forked child has neither the thread that captures nor a way to the query."""
        if os.getpid() != self._process:
            raise ForkedProcess(self.pipeline.repository.url)


def _movers(sender: Sender | None) -> str:
    if sender is None:
        return "the driver"
    return "the executors" if sender.why_not is None else f"the driver: {sender.why_not}"
