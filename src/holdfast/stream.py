"""One stream of a plain loop: what is registered with it, where it stands, and how a checkpoint of it is taken.

The loop's own thread counts events and captures; publishing may run on another thread, one checkpoint at a time.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias

from holdfast.checkpoint import Checkpoint
from holdfast.checkpointer import Checkpointer
from holdfast.codec import CheckpointState, decode_state, encode_state
from holdfast.decide.fingerprint import Fingerprint
from holdfast.decide.schedule import NANOSECONDS_PER_MS, ScheduleState, due
from holdfast.draft import Description, Draft
from holdfast.errors import BackgroundFailed, BadValue, Damage, Fenced, NotFound
from holdfast.handles import StoredPipeline
from holdfast.manifest import ConnectorOffset, Manifest, SinkStatus
from holdfast.recovery import Demands, Recovered
from holdfast.repository.uploads import Limits
from holdfast.retaining import Retaining
from holdfast.settle import LoopSink
from holdfast.states import Checkpointable
from holdfast.stream_parts import Captured, Counters, Settings

__all__ = ["LOOP", "Offsets", "Stream"]

LOOP = "loop"
"""The driver state that holds a stream's record."""

REGISTERED = "registered"

FIRST_PAUSE_NS, LONGEST_PAUSE_NS = 10**9, 60 * 10**9
"""After a failure: each attempt can hold the loop back for as long as the store is patient, so they keep apart."""

NEVER = 1 << 63

Offsets: TypeAlias = Callable[[], Mapping[str, str]]


class Stream:
    """Counts events, and captures and publishes checkpoints. One thread drives it; `publish` may run on another."""

    def __init__(self, pipeline: StoredPipeline, settings: Settings, limits: Limits | None) -> None:
        self.name = pipeline.name
        self.pipeline = pipeline
        self.settings = settings
        self.states: dict[str, Checkpointable] = {}
        self.sources: dict[str, Offsets] = {}
        self.sinks: dict[str, LoopSink] = {}
        self.begun = self.closed = self.running = False
        self.fenced: Fenced | None = None
        self.failure: BaseException | None = None
        self.retaining: Retaining | None = None
        self.sequence = -1
        self.events = 0
        self.watermark: int | None = None
        self.last: Manifest | None = None
        self._limits = limits
        self._lock = threading.Lock()
        self.tally = Counters()
        self._events_before = 0
        self._checkpointer: Checkpointer | None = None
        self._initial: dict[str, bytes] = {}
        self._requests_seen: frozenset[str] = frozenset()
        # The next look beyond the counting of an event: at this many events, or at this time.
        self._look_at = 0
        self._look_at_ns: int | None = None
        self._since = ScheduleState(0, 0)
        # While checkpoints fail (a pause above zero) this is when to try again, instead of the schedule.
        self._pause_ns = 0
        self._retry_at_ns = NEVER

    # ---- events ----

    def count(self, sequence: int, watermark: int | None) -> bool:
        """Count an event; True if there is something to attend to. This is all that most events cost."""
        if sequence <= self.sequence or not self.running:
            raise self.refusal(sequence)
        self.sequence = sequence
        self.events += 1
        if watermark is not None and (self.watermark is None or watermark > self.watermark):
            self.watermark = watermark
        return self.events >= self._look_at or (
            self._look_at_ns is not None and time.monotonic_ns() >= self._look_at_ns
        )

    def refusal(self, sequence: int | None = None) -> BadValue | Fenced:
        """Why the stream takes no event, or not this one."""
        what = f"stream {self.name!r}"
        if self.fenced is not None:
            return Fenced(self.fenced.pipeline, self.fenced.generation, self.fenced.by)
        if self.closed:
            return BadValue(what, "the manager is closed")
        if not self.running:
            return BadValue(what, "recover it first: that is what claims its pipeline and restores its states")
        return BadValue(what, f"event {sequence} does not come after {self.sequence}, which is counted already")

    def is_due(self) -> bool:
        """Whether to take a checkpoint now: by the schedule or, while they fail, once the pause is over."""
        now_ns = time.monotonic_ns()
        with self._lock:
            if self._pause_ns:
                return now_ns >= self._retry_at_ns
            since = ScheduleState(self.events - self._since.events_since, self._since.last_ns)
            return due(self.settings.schedule, since, now_ns)

    def surface(self) -> None:
        """Raise what failed in the background, once; being fenced is not forgotten."""
        failure = self.unraised()
        if failure is not None:
            raise failure

    def unraised(self) -> BackgroundFailed | Fenced | None:
        """What failed in the background and was not raised yet; whoever asks must raise it."""
        with self._lock:
            cause, self.failure = self.failure, None
            if cause is None:
                return None
            self._set_look()
        failure: BackgroundFailed | Fenced
        if isinstance(cause, Fenced):
            failure = Fenced(cause.pipeline, cause.generation, cause.by)
        else:
            failure = BackgroundFailed(self.name, f"{type(cause).__name__}: {cause}")
        failure.__cause__ = cause
        return failure

    def reset_schedule(self) -> None:
        """Begin to count anew, from now. While checkpoints fail, what is on its way must end before the next try."""
        now_ns = time.monotonic_ns()
        with self._lock:
            self._since = ScheduleState(self.events, now_ns)
            self._retry_at_ns = NEVER
            self._set_look()

    def _fall_behind(self) -> None:
        self._pause_ns = min(2 * self._pause_ns, LONGEST_PAUSE_NS) or FIRST_PAUSE_NS
        self._retry_at_ns = time.monotonic_ns() + self._pause_ns
        self._set_look()

    def _catch_up(self) -> None:
        with self._lock:
            self._pause_ns = 0
            self._set_look()

    def _set_look(self) -> None:
        schedule, since = self.settings.schedule, self._since
        if self._pause_ns:
            self._look_at, self._look_at_ns = NEVER, self._retry_at_ns
        else:
            self._look_at = since.events_since + (schedule.every_events or NEVER)
            every_ms = schedule.every_ms
            self._look_at_ns = None if every_ms is None else since.last_ns + every_ms * NANOSECONDS_PER_MS
        if self.failure is not None:
            self._look_at = 0

    # ---- taking a checkpoint ----

    def take(self) -> Checkpoint:
        """Take a checkpoint here and now. What fails is owed: the first event after a pause tries again."""
        with self.watched():
            draft = self._begin()
            taken = self._publish(draft, self.capture())
        self._catch_up()
        self.reset_schedule()
        self._tidy()
        return taken

    def capture(self) -> Captured:
        """The stream as it stands. Sinks prepare last: what fails before leaves nothing staged."""
        record = CheckpointState(
            stream=self.name,
            sequence=self.sequence,
            created_ns=time.time_ns(),
            watermark_ns=self.watermark,
            event_count=self.events,
            operator_states={name: _saved(name, state) for name, state in self.states.items()},
            source_offsets={source: _offsets(source, ask) for source, ask in self.sources.items()},
            metadata=self.settings.metadata,
        )
        seen = self._requests_seen
        return Captured(record, {name: self._prepare(name, sink) for name, sink in self.sinks.items()}, seen)

    def publish(self, captured: Captured) -> Checkpoint:
        """Bring what was captured earlier to its end; a failure is kept for `surface`."""
        with self.watched():
            try:
                if self.fenced is not None:
                    raise self.refusal()
                draft = self._begin()
                # A request that came after the capture must not be answered with it: the answer would be too old.
                waiting = frozenset(request.token for request in draft.requests)
                draft.requests = [r for r in draft.requests if r.token in captured.requests_seen]
                self._requests_seen = waiting
                taken = self._publish(draft, captured)
            except BaseException as error:
                with self._lock:
                    self.failure = self.failure or error
                raise
        self._catch_up()
        self._tidy()
        return taken

    def _begin(self) -> Draft:
        checkpointer = self._required()
        checkpointer.settle()
        # One whose reply was lost may have been found to stand.
        self._note_tip()
        tip = checkpointer.tip
        return checkpointer.begin(0 if tip is None else tip.epoch + 1)

    def _publish(self, draft: Draft, captured: Captured) -> Checkpoint:
        draft.save_driver_state(LOOP, encode_state(captured.record))
        manifest = self._required().save_manifest(draft, self._description(draft.epoch, captured))
        return Checkpoint(self.pipeline, manifest.at)

    def _description(self, epoch: int, captured: Captured) -> Description:
        record, parts = captured.record, self.fingerprint
        offsets = {
            source: ConnectorOffset(offsets=dict(at), epoch=epoch) for source, at in record.source_offsets.items()
        }
        return Description(
            source_offsets=offsets,
            sinks={name: SinkStatus(status="pending", token=token) for name, token in captured.tokens.items()},
            sink_epochs=dict.fromkeys(captured.tokens, epoch),
            watermark=None if record.watermark_ns is None else record.watermark_ns // NANOSECONDS_PER_MS,
            pipeline_hash=parts.digest,
            fingerprint=parts.parts,
            processed_records=record.event_count,
            metadata=record.metadata,
        )

    @property
    def fingerprint(self) -> Fingerprint:
        """What the stream is made of: the user's parts, and every registered name, so that none is lost unnoticed."""
        mine = self.settings.fingerprint
        parts = dict(mine.parts) if mine else {}
        for kind, names in (("state", self.states), ("source", self.sources), ("sink", self.sinks)):
            parts.update({f"{kind} {name}": REGISTERED for name in names})
        return Fingerprint(dict(sorted(parts.items())))

    def _prepare(self, name: str, sink: LoopSink) -> Any:
        try:
            token = sink.prepare(self.sequence)
        except Exception as error:
            error.add_note(f"sink {name!r} of stream {self.name!r} could not prepare; nothing was published")
            raise
        try:
            # Now, and not only after a crash, commit sees the token as JSON gives it back.
            return json.loads(json.dumps(token, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise BadValue(f"the token of sink {name!r}", f"is no JSON value: {error}") from error

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Count what fails and put off the next try, stop for good when fenced, and take note of whatever landed."""
        try:
            yield
        except BaseException as error:
            with self._lock:
                self.tally.failures += 1
                self._fall_behind()
                if isinstance(error, Fenced) and self.fenced is None:
                    self.tally.fenced += 1
                    self.fenced = error
                    self.running = False
            raise
        finally:
            self._note_tip()

    def _note_tip(self) -> None:
        tip = self._required().tip
        with self._lock:
            if tip is None or (self.last is not None and tip.at == self.last.at):
                return
            self.last = tip
            self._initial = {}
            self.tally.checkpoints += 1
            self.tally.bytes += tip.byte_counts()[0]

    def _tidy(self) -> None:
        if self.retaining is not None:
            self.retaining.after_checkpoint()

    def _required(self) -> Checkpointer:
        if self._checkpointer is None:
            raise self.refusal()
        return self._checkpointer

    # ---- recovery ----

    def recover(self, why: str, demands: Demands) -> tuple[Recovered, CheckpointState | None]:
        """Claim the pipeline, settle the sinks, restore the states: all of it, or the stream does not run."""
        self.stop()
        self._refuse_foreign()
        checkpointer = self.pipeline.recover(why, demands, self.sinks, self._limits)
        try:
            recovered = checkpointer.recovered
            record = self._load(checkpointer, recovered.manifest)
            self._restore(record)
            retaining = Retaining(self.pipeline.records, self.settings.keep)
        except BaseException:
            checkpointer.close()
            raise
        self._begin_at(record, recovered.manifest)
        self.tally.skipped += len(recovered.skipped)
        self._checkpointer, self.retaining = checkpointer, retaining
        self._catch_up()
        self.reset_schedule()
        self.begun = self.running = True
        return recovered, record

    def stop(self) -> None:
        """Take no more events, and let go of the pipeline; nothing may be under way in the background."""
        self.running = False
        if self._checkpointer is not None:
            self._checkpointer.close()

    def _begin_at(self, record: CheckpointState | None, manifest: Manifest | None) -> None:
        self.tally = self.counters
        self.sequence = -1 if record is None else record.sequence
        self.events = self._events_before = 0 if record is None else record.event_count
        self.watermark = None if record is None else record.watermark_ns
        self.last, self.fenced, self.failure = manifest, None, None

    def _refuse_foreign(self) -> None:
        """A mistaken name must not fence whatever else checkpoints under it."""
        with suppress(Damage, NotFound):  # then recovery says what is wrong with it
            newest = self.pipeline.latest()
            if newest is not None and LOOP not in newest.manifest.driver_states:
                raise self._foreign()

    def _foreign(self) -> BadValue:
        return BadValue(f"stream {self.name!r}", "the checkpoints of this pipeline were not taken by a plain loop")

    def _load(self, checkpointer: Checkpointer, manifest: Manifest | None) -> CheckpointState | None:
        if manifest is None:
            return None
        if LOOP not in manifest.driver_states:
            raise self._foreign()
        return decode_state(checkpointer.load_artifact(manifest.driver_states[LOOP]))

    def _restore(self, record: CheckpointState | None) -> None:
        """Restore every state that the record and the stream share. If one can't be, the others are put back."""
        before = {name: _saved(name, state) for name, state in self.states.items()}
        if record is None and not self._initial:
            self._initial = before
            return
        # A second fresh start, with no checkpoint in between, begins where the first one did.
        saved = self._initial if record is None else record.operator_states
        done: list[str] = []
        for name in sorted(self.states.keys() & saved.keys()):
            try:
                self.states[name].restore(bytes(saved[name]))
            except BaseException as error:
                for earlier in done:
                    self.states[earlier].restore(before[earlier])
                error.add_note(f"state {name!r} of stream {self.name!r} could not be restored; all are as before")
                raise
            done.append(name)

    @property
    def counters(self) -> Counters:
        now = Counters(events=self.events - self._events_before)
        if self.retaining is not None:
            now.prunes, now.prune_failures = self.retaining.prunes, self.retaining.failures
        return self.tally + now


def _saved(name: str, state: Checkpointable) -> bytes:
    data = state.checkpoint()
    if not isinstance(data, bytes | bytearray | memoryview):
        raise BadValue(f"state {name!r}", f"checkpoint() must give bytes, not {type(data).__name__}")
    return bytes(data)


def _offsets(source: str, ask: Offsets) -> dict[str, str]:
    offsets: dict[Any, Any] = dict(ask())
    for key, value in offsets.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise BadValue(f"the offsets of source {source!r}", f"{key!r}: {value!r} is not text to text")
    return offsets
