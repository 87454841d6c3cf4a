"""A small world for the epoch protocol: model sinks, a model of Spark's directory, and drivers that run the real code.

A row is its number; an epoch is a range of rows, cut wherever a driver likes unless it was recorded. Every request to
the repository, every call of a sink and every step of the protocol is a point where a driver can be paused or killed.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
import pyarrow as pa

from holdfast.claim import Reason
from holdfast.decide.chain import admit, go_back, raise_fence
from holdfast.decide.start import Known
from holdfast.decide.timeline import World, lineage, newest, timeline
from holdfast.draft import Description
from holdfast.epochs import NOTHING, EpochDecision, Holder, Link, Marker, Staged, StagedFile, Step, Target
from holdfast.errors import HoldfastError, LostRace
from holdfast.handles import open_url
from holdfast.manifest import Manifest, SinkStatus
from holdfast.pipeline.epoch import Batch, Epochs, Staging
from holdfast.pipeline.ledger import Ledger, merged
from holdfast.pipeline.takeover import Found, Taken, take_pipeline
from holdfast.publish import Publisher
from holdfast.sinks.contract import Sink
from holdfast.sinks.staged import StagedRows
from holdfast.store import Address
from holdfast.store.memory import MemoryStore
from holdfast.testing.faults import Around

__all__ = ["Driver", "Killed", "ModelSink", "Scene", "rows_of"]

T = TypeVar("T")
SCHEMA = pa.schema([("n", pa.int64())])


class Killed(BaseException):
    """The driver dies here."""


@dataclass
class Written:
    """What a sink's target holds: its marker, and the rows of each epoch in order."""

    marker: Marker | None = None
    epochs: list[tuple[Link, int, list[int]]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


class ModelSink(Sink):
    """A sink in memory; `rolls_back` says whether it can."""

    def __init__(self, held: Written, rolls_back: bool, reach: Callable[[str], None]) -> None:
        super().__init__("append", ())
        self.held = held
        self.rolls_back = rolls_back
        self._reach = reach
        self._holder: Holder | None = None

    @property
    def target(self) -> str:
        return "model"

    def look(self) -> Marker | None:
        self._reach("look")
        return self.held.marker

    def fence(self, holder: Holder, begin: Link) -> Marker:
        self._reach("fence")
        with self.held.lock:
            self.held.marker = raise_fence(self.name, self.held.marker, holder, begin)
            self._holder = holder
            return self.held.marker

    def check(self, schema: pa.Schema) -> None:
        return

    def prepare(self, step: Step, rows: StagedRows) -> Any:
        self._reach("prepare")
        return {"epoch": step.epoch}

    def commit(self, step: Step, token: Any, rows: StagedRows) -> Any:
        self._reach("commit")
        assert rows.table is not None
        with self.held.lock:
            assert self._holder is not None
            after = admit(self.name, self.held.marker, self._holder, step)
            if after is not None:
                self.held.marker = after
                self.held.epochs.append((step.after, step.decided, rows.table.column("n").to_pylist()))
        return {"at": step.epoch}

    def abort(self, token: Any) -> None:
        return

    def why_not_back(self, target: Target) -> str | None:
        return None if self.rolls_back else "it is a log"

    def roll_back(self, target: Target, *, discard_foreign: bool = False) -> None:
        self._reach("roll back")
        with self.held.lock:
            assert self._holder is not None
            after = go_back(self.name, self.held.marker, self._holder, target.at, target.decided)
            if after is not None:
                self.held.marker = after
                self.held.epochs = [each for each in self.held.epochs if each[0].epoch <= target.at.epoch]


def rows_of(held: Written) -> list[int]:
    return [row for _, _, rows in held.epochs for row in rows]


@dataclass
class Home:
    """Spark's directory: the ranges that were logged, the last epoch that was committed, and the ledger beside it.

    `state` is what the query has in its state: the rows of each epoch as the run gave them that brought it there.
    """

    generation: int
    offsets: dict[int, tuple[int, int]]
    committed: int
    ledger: MemoryStore
    state: dict[int, list[int]]


class Lost(Exception):
    """The directory is gone under the driver."""


@dataclass
class Scene:
    """What outlives every driver."""

    rolls_back: Mapping[str, bool]
    store: MemoryStore = field(default_factory=MemoryStore)
    homes: dict[int, Home] = field(default_factory=dict)
    targets: dict[str, Written] = field(default_factory=dict)
    staged: dict[str, list[int]] = field(default_factory=dict)
    random_rows: bool = False

    def __post_init__(self) -> None:
        open_url(self.store, create=True)
        self.targets = {name: Written() for name in self.rolls_back} | self.targets


class _Stepping(Around):
    def __init__(self, store: Any, reach: Callable[[str], None]) -> None:
        super().__init__(store)
        self._reach = reach

    def _around(self, verb: str, act: Callable[[], T]) -> T:
        self._reach(verb)
        return act()


@dataclass
class _Batch(Batch):
    driver: Driver
    rows: list[int]

    def stage(self, folder: str) -> StagedRows:
        self.driver.require_home()
        rows = [*self.rows]
        if self.driver.scene.random_rows:
            rows = [row + 1000 * random.randrange(1, 1000) for row in rows]
        self.driver.scene.staged[folder] = self.driver.ran = rows
        return _opened(Staged(folder, [StagedFile("f", 1, len(rows))], "", json.dumps(sorted(rows))), rows)


def _opened(staged: Staged, rows: list[int]) -> StagedRows:
    return StagedRows(staged, Address("/nowhere"), pa.table({"n": rows}, schema=SCHEMA))


@dataclass
class _Staging(Staging):
    scene: Scene

    def open(self, staged: Staged) -> StagedRows | None:
        rows = self.scene.staged.get(staged.url)
        return None if rows is None else _opened(staged, rows)

    def remove(self, staged: Staged) -> None:
        self.scene.staged.pop(staged.url, None)


class Driver:
    """One driver: takes the pipeline over and runs it up to an epoch, capturing every `every` epochs."""

    def __init__(
        self, scene: Scene, last: int, *, seed: int = 0, every: int = 2, reach: Callable[[str], None] = lambda _s: None
    ) -> None:
        self.scene = scene
        self.last = last
        self.every = every
        self.chance = random.Random(seed)
        self.home: Home | None = None
        self.ran: list[int] = []
        """What the last run of a batch gave."""
        self._warm: Home | None = None
        self.records = open_url(scene.store).pipeline("p").records
        self.reach_for(reach)
        self.ended: str = ""

    def reach_for(self, reach: Callable[[str], None]) -> None:
        """Have it call this at each of its points."""
        self.reach = reach
        self.records.store = _Stepping(self.scene.store, reach)

    def run(self, rewind_to: int | None = None) -> None:
        """Run to the end, or until it is fenced or its directory is lost, which is what `ended` then says."""
        try:
            self._run(rewind_to)
            self.ended = "done"
        except (HoldfastError, Lost) as why:
            self.ended = type(why).__name__ if isinstance(why, LostRace | Lost) else str(why)

    def _run(self, rewind_to: int | None) -> None:
        sinks = {n: ModelSink(self.scene.targets[n], back, self.reach) for n, back in self.scene.rolls_back.items()}
        for name, sink in sinks.items():
            sink.name = name

        def find(world: World) -> Found:
            return self._find(world, rewind_to)

        goes_back = rewind_to is not None
        taken = take_pipeline(self.records, Reason("start"), sinks, find, rewind=goes_back, reach=self.reach)
        self._lay(taken)
        home = self.require_home()
        publisher = Publisher(self.records, taken.generation.number, taken.found.follows)
        repository = Ledger(self.records.store, "pipelines/p/ledger/")
        local = Ledger(_Stepping(home.ledger, self.reach))
        noted: list[EpochDecision] = []
        epochs = Epochs(
            "p",
            taken.holder,
            taken.sinks,
            [local] if all(self.scene.rolls_back.values()) else [local, repository],
            _Staging(self.scene),
            taken.decided,
            look=None if all(self.scene.rolls_back.values()) else publisher.look_for_claim,
            note=noted.append,
            reach=self.reach,
        )
        try:
            for epoch in range(taken.plan.state.at.epoch + 1, self.last + 1):
                self._epoch(epochs, taken, epoch)
                if epoch % self.every == 0:
                    repository.join(taken.generation.number, noted)
                    repository.remove_alone(noted)
                    local.remove_alone(noted)
                    noted.clear()
                    self._capture(publisher, epochs, epoch)
        finally:
            publisher.close()

    def _find(self, world: World, rewind_to: int | None) -> Found:
        slot = newest(world)
        manifest = self.records.manifest(slot) if slot else None
        if rewind_to is not None:
            chosen = [s for s in timeline(world) if self.records.manifest(s).epoch <= rewind_to]
            manifest = self.records.manifest(chosen[-1])
        repository = Ledger(self.records.store, "pipelines/p/ledger/").read()
        home = self._newest_home(world) if rewind_to is None else None
        local = Ledger(_Stepping(home.ledger, self.reach)).read() if home else []
        decisions = merged(local, repository)
        state = Known("checkpoint", _link_of(manifest)) if manifest else Known("nothing")
        if home is not None and home.committed > state.at.epoch:
            self._warm, state = home, Known("warm", Link(home.committed, str(home.offsets[home.committed][1])))
        return Found(state, manifest, decisions)

    def _newest_home(self, world: World) -> Home | None:
        """The directory of the newest generation on the timeline that has one, if it did not run past its end there."""
        for generation, _, epoch in lineage(world):
            home = self.scene.homes.get(generation)
            if home is not None:
                return home if epoch is None or home.committed <= epoch else None
        return None

    def _lay(self, taken: Taken) -> None:
        """Lay the directory of this generation: the state's own range, and nothing after it."""
        self.reach("lay")
        at, kind, follows = taken.plan.state.at, taken.plan.state.kind, taken.found.follows
        ranges = {at.epoch: (0, int(at.offsets))} if at.epoch >= 0 else {}
        ledger = MemoryStore()
        state: dict[int, list[int]] = {}
        if kind == "warm":
            assert self._warm is not None
            for info in self._warm.ledger.list(""):
                ledger.put(info.key, self._warm.ledger.get(info.key))
            state = {epoch: rows for epoch, rows in self._warm.state.items() if epoch <= at.epoch}
        elif kind == "checkpoint" and follows is not None:
            state = msgspec.json.decode(follows.metadata["state"], type=dict[int, list[int]])
        self.home = Home(taken.generation.number, ranges, at.epoch, ledger, state)
        self.scene.homes[self.home.generation] = self.home

    def require_home(self) -> Home:
        if self.home is None or self.scene.homes.get(self.home.generation) is not self.home:
            raise Lost
        return self.home

    def _epoch(self, epochs: Epochs, taken: Taken, epoch: int) -> None:
        home = self.require_home()
        start = home.offsets[epoch - 1][1] if epoch > 0 else 0
        several = taken.decided.get(epoch)
        if several and epoch <= taken.plan.adopted:
            end = int(several[0].after.offsets)
        else:
            end = start + self.chance.randrange(1, 3)
        home.offsets[epoch] = (start, end)
        batch = _Batch(self, list(range(start, end)))
        batch.before = Link(epoch - 1, str(start)) if epoch > 0 else NOTHING
        batch.after = Link(epoch, str(end))
        batch.offsets = f"{start}-{end}".encode()
        batch.sources, batch.tables, batch.has_state = {}, {}, True
        epochs.run(batch)
        home = self.require_home()
        home.state[epoch], home.committed = self.ran, epoch
        self.reach("spark committed")

    def _capture(self, publisher: Publisher, epochs: Epochs, epoch: int) -> None:
        positions = {name: json.loads(_json(held.at)) for name, held in epochs.sinks.items()}
        link = Link(epoch, str(self.require_home().offsets[epoch][1]))
        draft = publisher.begin(epoch)
        sinks = {name: SinkStatus(status="committed") for name in positions}
        metadata = {"link": _json(link), "state": _json(self.require_home().state)}
        about = Description(sinks=sinks, sink_positions=positions, metadata=metadata, engine="spark")
        publisher.publish(draft, about)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _link_of(manifest: Manifest) -> Link:
    return msgspec.json.decode(manifest.metadata["link"], type=Link)
