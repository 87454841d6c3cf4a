"""The small world of the walk: a pipeline with a short history, the actors that may work on it, and what must hold."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from holdfast.check import check
from holdfast.checkpointer import Checkpointer
from holdfast.copying import copy_pipeline
from holdfast.decide.retention import KeepPolicy
from holdfast.decide.timeline import current, timeline
from holdfast.draft import Description, PartitionState
from holdfast.errors import (
    BeingForgotten,
    CheckpointMissing,
    Damage,
    Fenced,
    HoldfastError,
    LostRace,
    ObjectMissing,
    OutcomeUnknown,
    StillNeeded,
    Unsettled,
)
from holdfast.gc import delete_checkpoint, plan_prune, sweep
from holdfast.ids import new_token
from holdfast.layout import Slot
from holdfast.manifest import Manifest, SinkStatus
from holdfast.names import name_checkpoint, pin_checkpoint, remove_name
from holdfast.publish import Publisher
from holdfast.recovery import Demands
from holdfast.repair import repair
from holdfast.repository.pipeline import PipelineRecords
from holdfast.repository.root import init_repository, open_repository
from holdfast.repository.uploads import Limits
from holdfast.settle import LoopSink
from holdfast.store import Store
from holdfast.store.memory import MemoryStore

PIPELINE = "p"
LIMITS = Limits(inline=0, concurrency=1)


class SinkHandle(LoopSink):
    """One process's hold on the sink; what it may commit depends on the generation and token it fenced with."""

    def __init__(self, sink: OneSinkState) -> None:
        self.sink = sink
        self.generation = -1
        self.token = ""
        self.staged = 0

    def fence(self, pipeline_id: str, generation: int, token: str) -> Any:
        with self.sink.lock:
            held = self.sink.generation
            if generation < held or (generation == held and token != self.sink.token):
                raise Fenced(PIPELINE, generation, f"the sink is held by generation {held}")
            self.sink.generation = self.generation = generation
            self.sink.token = self.token = token
            return len(self.sink.rows) or None

    def prepare(self, sequence: int) -> Any:
        raise AssertionError("the walk prepares by itself")

    def commit(self, token: Any) -> Any:
        with self.sink.lock:
            self._refuse_stale()
            if token not in self.sink.rows:
                self.sink.append(token, self.generation)
            return self.sink.rows.index(token) + 1

    def roll_back(self, position: Any) -> None:
        with self.sink.lock:
            self._refuse_stale()
            del self.sink.rows[position or 0 :]

    def _refuse_stale(self) -> None:
        if (self.generation, self.token) != (self.sink.generation, self.sink.token):
            raise Fenced(PIPELINE, self.generation, f"the sink is held by generation {self.sink.generation}")


@dataclass
class OneSinkState:
    rows: list[str] = field(default_factory=list)
    generation: int = -1
    token: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)
    stale: list[str] = field(default_factory=list)

    def append(self, token: str, generation: int) -> None:
        self.rows.append(token)
        if generation < self.generation:
            self.stale.append(token)


@dataclass
class Ghost:
    """What actors were told: what the world must then keep."""

    acked: list[Manifest] = field(default_factory=list)
    named: dict[str, Slot] = field(default_factory=dict)
    unnamed: set[str] = field(default_factory=set)
    pinned: list[Slot] = field(default_factory=list)
    rewound: bool = False
    has_sinks: bool = True
    decided: dict[Any, Slot] = field(default_factory=dict)
    sink: OneSinkState = field(default_factory=OneSinkState)


def records_of(store: Store) -> PipelineRecords:
    return open_repository(store).pipeline(PIPELINE)


def clone(store: MemoryStore) -> MemoryStore:
    fresh = MemoryStore()
    for info in store.list(""):
        fresh.put(info.key, store.get(info.key))
    return fresh


def save(checkpointer: Checkpointer | Publisher, epoch: int, tag: str, ghost: Ghost) -> Slot:
    """One checkpoint. A loop's: partition 0 grows by a delta, 1 is new each time, 2 stays as it was.

    Beside a sidecar everybody saves whole cuts, since only those may follow a lost slot: partition 2 never changes, and
    the old driver's partition 1 is what it was in the checkpoint it last saw.
    """
    tip = checkpointer.tip
    draft = checkpointer.begin(epoch, carry=ghost.has_sinks)
    body = f"{tag}/{epoch}/".encode() * 20
    if ghost.has_sinks:
        if tip is None or epoch % 3 == 0:
            draft.save_partition(PartitionState("op", 0, b"snapshot of 0 " + body))
        else:
            draft.save_partition(PartitionState("op", 0, b"delta of 0 " + body, is_delta=True))
        draft.save_partition(PartitionState("op", 1, b"snapshot of 1 " + body))
    else:
        seen = f"old/{tip.epoch}/".encode() * 20 if tag == "old" and tip else body
        draft.save_partition(PartitionState("op", 0, b"snapshot of 0 " + body))
        draft.save_partition(PartitionState("op", 1, b"snapshot of 1 " + seen))
    if tip is None or not ghost.has_sinks:
        draft.save_partition(PartitionState("op", 2, b"snapshot of 2 " * 20))
    if isinstance(checkpointer, Publisher):
        manifest = checkpointer.publish(draft, Description())
    elif not ghost.has_sinks:
        manifest = checkpointer.save_manifest(draft)
    else:
        token = f"{tag}-{epoch}-{checkpointer.generation}-{new_token()[:6]}"
        manifest = checkpointer.save_manifest(
            draft, Description(sinks={"out": SinkStatus(status="pending", token=token)})
        )
    ghost.acked.append(manifest)
    return manifest.at


def after(checkpointer: Checkpointer | Publisher, by: int = 1) -> int:
    return by + (checkpointer.tip.epoch if checkpointer.tip else -1)


def start(store: Store, ghost: Ghost, why: str, demands: Demands | None = None) -> Checkpointer:
    sinks = {"out": SinkHandle(ghost.sink)} if ghost.has_sinks else {}
    return Checkpointer.recover(records_of(store), why, demands, sinks, LIMITS)


def history(checkpoints: int = 5) -> tuple[MemoryStore, Ghost, Callable[[Store, Ghost], Checkpointer]]:
    """A pipeline with some checkpoints in generation 0, and how to go on as its old driver."""
    store, ghost = MemoryStore(), Ghost()
    init_repository(store)
    with start(store, ghost, "start") as checkpointer:
        for epoch in range(checkpoints):
            save(checkpointer, epoch, "old", ghost)
        tip = checkpointer.tip
    token = ghost.sink.token
    ghost.decided = dict(zip(ghost.sink.rows, (manifest.at for manifest in ghost.acked), strict=True))

    def resume(view: Store, seen: Ghost) -> Checkpointer:
        # A driver that has been running: it holds its last checkpoint in memory.
        publisher = Publisher(records_of(view), 0, tip, LIMITS)
        handle = SinkHandle(seen.sink)
        handle.generation, handle.token = 0, token
        return Checkpointer(publisher, None, {"out": handle})  # type: ignore[arg-type]

    return store, ghost, resume


def fresh_ghost(ghost: Ghost) -> Ghost:
    rows = list(ghost.sink.rows)
    sink = OneSinkState(rows, ghost.sink.generation, ghost.sink.token)
    return Ghost(acked=list(ghost.acked), decided=dict(ghost.decided), sink=sink)


# ---- actors: each does with real code what a process would ----

Act = Callable[[Store, Ghost], None]


def _quietly(*expected: type[BaseException]) -> contextlib.AbstractContextManager[None]:
    """Losing a race, or not knowing an outcome, is a legal end of an actor."""
    return contextlib.suppress(LostRace, OutcomeUnknown, *expected)


def old(view: Store, ghost: Ghost, epochs: int = 1) -> None:
    with _quietly(Unsettled), RESUME(view, ghost) as checkpointer:
        for _ in range(epochs):
            save(checkpointer, after(checkpointer, 100), "old", ghost)


def busy(view: Store, ghost: Ghost) -> None:
    old(view, ghost, 2)


def new(view: Store, ghost: Ghost) -> None:
    with _quietly(), start(view, ghost, "start") as checkpointer:
        save(checkpointer, after(checkpointer), "new", ghost)


def rewind(view: Store, ghost: Ghost) -> None:
    with _quietly(CheckpointMissing, ObjectMissing):
        records = records_of(view)
        standing = timeline(records.world())
        target = standing[-3] if len(standing) > 2 else standing[0]
        ghost.rewound = True
        with start(view, ghost, "rewind", Demands(to=target)) as checkpointer:
            save(checkpointer, after(checkpointer), "rewound", ghost)


def capture(view: Store, ghost: Ghost, times: int = 1) -> None:
    """A sidecar: publishes under the generation that runs and claims nothing. Beside it nobody's sinks are Pending."""
    with _quietly(Unsettled, ObjectMissing):
        records = records_of(view)
        located = records.locate()
        assert located.generation is not None
        tip = records.manifest(located.newest) if located.newest else None
        publisher = Publisher(records, located.generation, tip, LIMITS)
        try:
            for _ in range(times):
                save(publisher, after(publisher), "capture", ghost)
        finally:
            publisher.close()


def prune(view: Store, ghost: Ghost) -> None:
    with _quietly():
        plan_prune(records_of(view), KeepPolicy(last=1)).apply()


def sweeper(view: Store, ghost: Ghost) -> None:
    with _quietly():
        sweep(records_of(view))


def namer(view: Store, ghost: Ghost) -> None:
    """Names each of the older checkpoints in turn until one is to be had: those a prune is after."""
    records = records_of(view)
    for slot in timeline(records.world())[:2]:
        with _quietly(ObjectMissing, Damage):
            name_checkpoint(records, records.head(slot), f"s-{slot}")
            ghost.named[f"s-{slot}"] = slot


def unnamer(view: Store, ghost: Ghost) -> None:
    records = records_of(view)
    for name in list(records.savepoints()):
        ghost.unnamed.add(name)
        with _quietly(CheckpointMissing):
            remove_name(records, name)


def pinner(view: Store, ghost: Ghost) -> None:
    records = records_of(view)
    with _quietly(ObjectMissing):
        for slot in timeline(records.world())[:1]:
            pin_checkpoint(records, slot, "kept")
            ghost.pinned.append(slot)


def forgetter(view: Store, ghost: Ghost) -> None:
    records = records_of(view)
    with _quietly(StillNeeded, BeingForgotten, CheckpointMissing):
        for slot in timeline(records.world())[1:2]:
            delete_checkpoint(records, slot)


def copier(view: Store, ghost: Ghost) -> None:
    """Copies into a place of its own; whatever arrives there must be whole, whenever it stops."""
    target = COPIES[id(ghost)]
    with _quietly():
        copy_pipeline(records_of(view), records_of(target))


def mender(view: Store, ghost: Ghost) -> None:
    records = records_of(view)
    with _quietly():
        repair(records, check(records, read_percent=100))


def then(*acts: Act) -> Act:
    def all_of(view: Store, ghost: Ghost) -> None:
        for act in acts:
            act(view, ghost)

    all_of.__name__ = "+".join(act.__name__ for act in acts)
    return all_of


def captures(view: Store, ghost: Ghost) -> None:
    capture(view, ghost, 4)


ACTS: dict[str, Act] = {
    act.__name__: act
    for act in (
        old, busy, new, rewind, capture, captures, prune, sweeper, namer, unnamer, pinner, forgetter, copier, mender,
        then(capture, prune), then(captures, prune), then(new, prune), then(new, prune, sweeper), then(rewind, prune),
        then(rewind, prune, sweeper), then(namer, prune), then(prune, prune), then(new, new, prune),
    )
}  # fmt: skip

STORE, GHOST, RESUME = history()
COPIES: dict[int, MemoryStore] = {}


def taken_over() -> tuple[MemoryStore, Ghost]:
    """A second world: generation 1 has begun and not yet published."""
    store, ghost = clone(STORE), fresh_ghost(GHOST)
    start(store, ghost, "start").close()
    return store, ghost


TAKEN_OVER = taken_over()


def copy_target(ghost: Ghost) -> MemoryStore:
    target = MemoryStore()
    init_repository(target)
    COPIES[id(ghost)] = target
    return target


# ---- what must hold, in every state ----


def violations(store: Store, ghost: Ghost) -> Iterator[str]:
    records = records_of(store)
    world = records.world()
    standing = timeline(world)
    if not standing:
        yield "G2: nothing is left on the timeline"
    for slot in standing:
        if lost := _lacks(records, slot):
            yield f"G1: {slot} counts but {lost}"
        elif token := _decided(records, slot):
            ghost.decided[token] = slot
    for name, slot in list(ghost.named.items()):
        if name in ghost.unnamed:
            continue
        if slot not in world.counted():
            yield f"G4: savepoint {name} was acknowledged and {slot} is gone"
        elif lost := _lacks(records, slot):
            yield f"G4: savepoint {name} of {slot} was acknowledged, but {lost}"
    for slot in list(ghost.pinned):
        if slot not in world.counted() or _lacks(records, slot):
            yield f"G4: the pin on {slot} was acknowledged and its bytes are gone"
    for manifest in list(ghost.acked):
        slot = manifest.at
        if slot not in standing and slot not in world.forgotten and not ghost.rewound:
            yield f"G2: {slot} was reported durable and counts no more"
        if slot in world.forgotten and records.doomed_objects(slot) not in ([], sorted(manifest.objects)):
            yield f"G2: {slot} was reported durable in a slot that had been forgotten for another"
    epochs = [records.head(slot).epoch for slot in standing]
    if epochs != sorted(epochs):
        yield f"G2: the timeline goes back: epochs {epochs}"
    begun = current(world)
    base = world.bases[begun].slot if begun is not None else None
    if base is not None and base not in world.counted():
        yield f"G4: the newest generation began from {base}, which is gone"
    located = records.locate()
    if located.generation != current(world) or located.newest != (standing[-1] if standing else None):
        yield f"G2: {located.newest} is found as newest where the records say {standing[-1:]}"
    doubled = {row for row in ghost.sink.rows if ghost.sink.rows.count(row) > 1}
    if ghost.sink.stale:
        yield f"G3: a stale generation committed {ghost.sink.stale} to the sink"
    if doubled:
        yield f"G5: {doubled} stand twice in the sink"
    if (target := COPIES.get(id(ghost))) is not None:
        yield from _copy_violations(target)


def _copy_violations(target: MemoryStore) -> Iterator[str]:
    records = records_of(target)
    if records.store.folders("pipelines/"):
        world = records.world()
        for slot in timeline(world):
            if lost := _lacks(records, slot):
                yield f"G1: {slot} counts in the copy but {lost}"
        hint = records.hint()
        if hint and Slot(hint.generation, hint.slot) not in {*world.slots, *world.forgotten}:
            yield f"G2: the hint of the copy names {hint.generation}-{hint.slot}, which it does not hold"


def _lacks(records: PipelineRecords, slot: Slot) -> str | None:
    try:
        manifest = records.manifest(slot)
        for where, artifact in manifest.artifacts():
            if artifact.path is None:
                continue
            data = records.store.get(records.keys.prefix + artifact.path)
            at = artifact.offset or 0
            if hashlib.sha256(data[at : at + artifact.size_bytes]).hexdigest() != artifact.sha256:
                return f"{where} is damaged"
        faults = [f for f in manifest.validate() if f.severity == "error"]
        return str(faults[0]) if faults else None
    except HoldfastError as error:
        return str(error)


def final_violations(store: MemoryStore, ghost: Ghost) -> Iterator[str]:
    """After everything a new driver starts, and the sink ends with each checkpoint of the timeline, once."""
    yield from violations(store, ghost)
    try:
        new(store, ghost)
        yield from violations(store, ghost)
        yield from _sink_violations(store, ghost) if ghost.has_sinks else ()
        prune(store, ghost)
        sweeper(store, ghost)
    except HoldfastError as error:
        yield f"G2: a new driver could not start: {error!r}"
        return
    yield from violations(store, ghost)
    yield from _sink_violations(store, ghost) if ghost.has_sinks else ()


def _sink_violations(store: MemoryStore, ghost: Ghost) -> Iterator[str]:
    records = records_of(store)
    world = records.world()
    decided = [token for slot in timeline(world) if (token := _decided(records, slot))]
    counted = [row for row in ghost.sink.rows if row in decided]
    strange = [row for row in ghost.sink.rows if row not in decided and ghost.decided.get(row) not in world.forgotten]
    if counted != decided or strange:
        yield f"G5: the timeline decided {decided}, the sink holds {ghost.sink.rows}, of which {strange} count nowhere"


def _decided(records: PipelineRecords, slot: Slot) -> Any:
    status = records.manifest(slot).sink_commit_statuses.get("out")
    return status.token if status else None
