"""Checkpoints for a plain Python event loop: register its states, tell it each event, and recover where it stood."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TypeAlias, TypeVar

from holdfast.background import Background
from holdfast.checkpoint import Checkpoint
from holdfast.codec import CheckpointState
from holdfast.decide.fingerprint import Fingerprint
from holdfast.decide.retention import KeepPolicy
from holdfast.decide.schedule import Schedule, parse_every
from holdfast.errors import BackgroundFailed, BadValue, Fenced, ForkedProcess
from holdfast.handles import Repository, open_url
from holdfast.layout import Slot
from holdfast.recovery import Demands, Skipped
from holdfast.repository.uploads import Limits
from holdfast.settle import LoopSink
from holdfast.states import as_checkpointable
from holdfast.stream import Offsets, Stream
from holdfast.stream_parts import Counters, Settings

__all__ = ["CheckpointManager", "Counters", "Every", "RecoveredStream", "StreamStatus", "Taken"]

Every: TypeAlias = str | int | Schedule
"""A number of events, "1000 events", "30 seconds", or a Schedule: both, or (empty) only on demand."""

Taken: TypeAlias = Checkpoint | Future[Checkpoint]
"""A checkpoint that is durable, or with `background` one that is on its way."""

KEEP = KeepPolicy(last=10)

_process = os.getpid()
"""This process, kept here because every event asks for it: the system's answer costs as much as counting one."""


def _note_fork() -> None:
    global _process
    _process = os.getpid()


if hasattr(os, "register_at_fork"):  # where there is no fork there is nothing to note
    os.register_at_fork(after_in_child=_note_fork)

T = TypeVar("T")


@dataclass(frozen=True)
class RecoveredStream:
    """A stream taken over: go on with the event `next_sequence`, which is 0 when there was no checkpoint yet.

    The registered states are restored already; `state` is the whole record, with offsets and metadata.
    """

    stream: str
    next_sequence: int
    state: CheckpointState | None
    checkpoint: Checkpoint | None
    skipped: tuple[Skipped, ...]
    rolled_back: tuple[str, ...]

    @property
    def source_offsets(self) -> Mapping[str, Mapping[str, str]]:
        """Where each source stood after the last event that is included; empty on a fresh start."""
        return {} if self.state is None else self.state.source_offsets


@dataclass(kw_only=True)
class StreamStatus(Counters):
    """One stream as it stands now, with its counters. `pending` checkpoints are captured and not durable yet."""

    stream: str
    running: bool
    next_sequence: int
    event_count: int
    watermark_ns: int | None
    last_checkpoint: Checkpoint | None
    pending: int
    prune_error: str | None


class CheckpointManager:
    """Takes checkpoints of event loops and brings them back. Close it when done, or use it in a `with`.

    Each stream is one pipeline of the repository: a Repository, the address of one, or None for a private one in
    memory. Register everything, `recover`, then call `on_event` after each event. Several threads may each drive
    streams of their own; one stream belongs to one thread, since its states must hold still while they are captured.

    With `background` only the capture happens in the loop: upload, publish, commits and clean-up run on one thread,
    and at most `max_pending` captured checkpoints wait for it; then `on_event` blocks. Sinks must then bear `prepare`
    and `commit` on two threads. What still waits when the interpreter ends without `close` is lost.

    A forked child must make a manager of its own: this one raises ForkedProcess there, and its `close` does nothing.
    """

    def __init__(
        self,
        repository: Repository | str | None = None,
        *,
        every: Every = "30 seconds",
        keep: KeepPolicy = KEEP,
        background: bool = False,
        max_pending: int = 2,
        limits: Limits | None = None,
    ) -> None:
        self._settings = Settings(_schedule(every), keep)
        self._background = Background(max_pending) if background else None
        self._owns_store = not isinstance(repository, Repository)
        if repository is None:
            repository = open_url("memory://", create=True)
        self.repository = open_url(repository) if isinstance(repository, str) else repository
        self._limits = limits
        self._streams: dict[str, Stream] = {}
        self._lock = threading.Lock()
        self._process = _process
        self._closed = False

    def __enter__(self) -> CheckpointManager:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except (BackgroundFailed, Fenced) as failure:
            if error is None:
                raise
            # What broke the loop comes first; what failed behind it is told with it.
            error.add_note(f"and meanwhile: {failure}")

    # ---- before a stream runs ----

    def register(self, stream: str, name: str, state: T) -> T:
        """Have a state saved with each checkpoint and restored by `recover`, in place; gives it back.

        Anything with `checkpoint` and `restore`, or what `as_checkpointable` takes: dicts, lists, generators, arrays.
        """
        into = self._idle(stream)
        into.states[_new(stream, "state", name, into.states)] = as_checkpointable(state)
        return state

    def register_offsets(self, stream: str, source: str, offsets: Offsets) -> None:
        """Have the position of a source saved: `offsets()` gives it as text by text, for all events counted so far."""
        into = self._idle(stream)
        into.sources[_new(stream, "source", source, into.sources)] = offsets

    def register_sink(self, stream: str, name: str, sink: LoopSink) -> None:
        """Have an output committed with each checkpoint, exactly once.

        A token must stand for all that was written up to its sequence and is not visible yet: a checkpoint between
        may have failed, and is then never committed.
        """
        into = self._idle(stream)
        into.sinks[_new(stream, "sink", name, into.sinks)] = sink

    def configure(
        self,
        stream: str,
        *,
        every: Every | None = None,
        keep: KeepPolicy | None = None,
        fingerprint: Fingerprint | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        """Give a stream its own schedule, retention, fingerprint or metadata; what is None stays as it is."""
        into = self._idle(stream)
        old = into.settings
        into.settings = replace(
            old,
            schedule=old.schedule if every is None else _schedule(every),
            keep=old.keep if keep is None else keep,
            fingerprint=old.fingerprint if fingerprint is None else fingerprint,
            metadata=old.metadata if metadata is None else dict(metadata),
        )

    # ---- running ----

    def recover(
        self,
        stream: str,
        *,
        to: Slot | str | None = None,
        max_fallback: int | None = None,
        allow_changed: bool = False,
        accept_duplicates: bool = False,
    ) -> RecoveredStream:
        """Take a stream over at its newest whole checkpoint, settle its sinks and restore its states, all or none.

        Whoever ran it before is fenced. `to` goes back to another checkpoint: a slot, or a word such as a savepoint,
        "epoch:42" or the start of an id. A state, source or sink that is registered and not in the checkpoint, or the
        other way round, raises FingerprintMismatch before anything is claimed; with `allow_changed` a new state stays
        as it is and one that is no longer registered is only in the `state` that this returns.
        """
        it = self._stream(stream)
        if it.closed:
            raise it.refusal()
        if self._background is not None:
            self._background.drain(stream)
        if isinstance(to, str):
            it.pipeline.require()
            to = it.pipeline[to].slot
        demands = Demands(
            to=to,
            fingerprint=it.fingerprint,
            allow_changed=allow_changed,
            max_fallback=max_fallback,
            accept_duplicates=accept_duplicates,
        )
        recovered, record = it.recover("start" if to is None else "rewind", demands)
        return RecoveredStream(
            stream=stream,
            next_sequence=it.sequence + 1,
            state=record,
            checkpoint=None if recovered.manifest is None else Checkpoint(it.pipeline, recovered.manifest.at),
            skipped=recovered.skipped,
            rolled_back=recovered.rolled_back,
        )

    def on_event(self, stream: str, sequence: int, watermark: int | None = None) -> Taken | None:
        """Count an event that the loop has just handled, and take a checkpoint if one is due.

        Call it once per event, after the states have taken it in, with sequences that only go up (BadValue). The
        watermark is in nanoseconds since 1970. The event is counted even if this raises what a checkpoint met with
        (SinkFailed, StoreError, BackgroundFailed): do not repeat it; go on. An event after a pause, 1 s at first and
        up to 60 s, tries again, driving a sink that failed before anything else. After Fenced the stream is over
        until it is recovered anew.
        """
        if self._process != _process:
            self._refuse_forked()
        it = self._streams.get(stream)
        if it is None:
            raise _unknown(stream)
        if not it.count(sequence, watermark):
            return None
        it.surface()
        return self._take(it) if it.is_due() else None

    def checkpoint(self, stream: str) -> Taken:
        """Take a checkpoint now, whatever the schedule says; from the thread that drives the stream."""
        self._refuse_forked()
        it = self._known(stream)
        it.surface()
        if not it.running:
            raise it.refusal()
        return self._take(it)

    def _take(self, it: Stream) -> Taken:
        if self._background is None:
            return it.take()
        if self._background.reserve(it.name):
            it.tally.backpressure_waits += 1
        try:
            with it.watched():
                captured = it.capture()
        except BaseException:
            self._background.release(it.name)
            raise
        it.reset_schedule()
        return self._background.submit(it.name, lambda: it.publish(captured))

    def wait(self, stream: str | None = None, timeout: float | None = None) -> None:
        """Return once every checkpoint of a stream, or of all, is durable.

        Raises the first failure that was not raised yet (BackgroundFailed, or Fenced), or TimeoutError.
        """
        self._refuse_forked()
        if self._background is not None:
            self._background.drain(stream, timeout)
        for it in [*self._streams.values()] if stream is None else [self._known(stream)]:
            it.surface()

    def close(self) -> None:
        """Finish what was captured, let go of all streams, and raise what failed and was not raised yet.

        It takes no last checkpoint: ask for one first if the events since the last are not to be handled again.
        """
        if self._process != _process:
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if self._background is not None:
            self._background.close()
        for it in self._streams.values():
            it.closed = True
            it.stop()
        if self._owns_store:
            self.repository.store.close()
        failures = [failure for it in self._streams.values() if (failure := it.unraised())]
        for other in failures[1:]:
            failures[0].add_note(f"and also: {other}")
        if failures:
            raise failures[0]

    # ---- looking ----

    @property
    def counters(self) -> Counters:
        """The counters of all streams together."""
        return sum((it.counters for it in [*self._streams.values()]), Counters())

    def status(self, stream: str) -> StreamStatus:
        """Where a stream stands."""
        it = self._known(stream)
        return StreamStatus(
            **vars(it.counters),
            stream=stream,
            running=it.running,
            next_sequence=it.sequence + 1,
            event_count=it.events,
            watermark_ns=it.watermark,
            last_checkpoint=None if it.last is None else Checkpoint(it.pipeline, it.last.at),
            pending=0 if self._background is None else self._background.pending(stream),
            prune_error=None if it.retaining is None else it.retaining.error,
        )

    def _refuse_forked(self) -> None:
        """Before any lock: threads that held one, or would have to answer, do not live on in a forked child."""
        if self._process != _process:
            raise ForkedProcess(self.repository.url)

    def _stream(self, name: str) -> Stream:
        self._refuse_forked()
        with self._lock:
            if name not in self._streams:
                self._streams[name] = Stream(self.repository.pipeline(name), self._settings, self._limits)
                self._streams[name].closed = self._closed
            return self._streams[name]

    def _known(self, name: str) -> Stream:
        it = self._streams.get(name)
        if it is None:
            raise _unknown(name)
        return it

    def _idle(self, stream: str) -> Stream:
        it = self._stream(stream)
        if it.begun or it.closed:
            raise BadValue(f"stream {stream!r}", "it was recovered already: register and configure before that")
        return it


def _schedule(every: Every) -> Schedule:
    return every if isinstance(every, Schedule) else parse_every(every)


def _unknown(stream: str) -> BadValue:
    return BadValue(f"stream {stream!r}", "it is not known here: register what belongs to it, and recover it")


def _new(stream: str, kind: str, name: str, taken: Mapping[str, object]) -> str:
    if not name or name in taken:
        why = f"the {kind} {name!r} is registered already" if name else f"a {kind} needs a name"
        raise BadValue(f"stream {stream!r}", why)
    return name
