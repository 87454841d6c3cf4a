"""Small helpers that build repositories, checkpoints and damage for the tests of the protocol."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from holdfast.checkpointer import Checkpointer
from holdfast.decide.timeline import World
from holdfast.draft import Description, PartitionState
from holdfast.errors import Fenced
from holdfast.handles import Repository, StoredPipeline, open_url
from holdfast.ids import new_id, new_token, now_ms
from holdfast.layout import REPOSITORY, PipelineKeys, Slot
from holdfast.manifest import Artifact, Manifest, SinkStatus, encode_manifest
from holdfast.records import Base, Claim, PipelineRecord, RepositoryRecord, seal
from holdfast.repository.uploads import Limits
from holdfast.settle import LoopSink
from holdfast.store import Store, open_store

NAME = "orders"
FIRST = Slot(0, 0)
PACKED = Limits(inline=0)
"""Nothing but the empty state stands in the manifest: small states lie in packs, where they can be damaged."""


def make_repo(store: Store | None = None) -> Repository:
    """An empty repository, without the probe that `init` makes."""
    store = store or open_store("memory://")
    store.create(REPOSITORY, seal(RepositoryRecord(token=new_token(), repository_id=new_id(), created_ms=now_ms())))
    return open_url(store)


def start(repo: Repository, *, limits: Limits = PACKED, **keywords: Any) -> Checkpointer:
    """Take the pipeline over with eyes that have read nothing yet."""
    return repo.pipeline(NAME).recover(limits=limits, **keywords)


def look(repo: Repository) -> StoredPipeline:
    """The pipeline as somebody else would see it now."""
    return repo.pipeline(NAME)


def state(epoch: int, partition: int = 0, size: int = 100) -> bytes:
    """Bytes that no other epoch or partition has."""
    seed = hashlib.sha256(f"{epoch}/{partition}".encode()).digest()
    return (seed * (size // len(seed) + 1))[:size]


def save(
    run: Checkpointer,
    epoch: int,
    partitions: int | Mapping[int, bytes] = 1,
    about: Description | None = None,
    *,
    carry: bool = False,
) -> Manifest:
    """One checkpoint with a snapshot of each partition of the operator "count"."""
    if isinstance(partitions, int):
        partitions = {partition: state(epoch, partition) for partition in range(partitions)}
    draft = run.begin(epoch, carry=carry)
    run.save_partitions(draft, [PartitionState("count", p, data) for p, data in partitions.items()])
    return run.save_manifest(draft, about)


def filled(epochs: int = 3, store: Store | None = None) -> Repository:
    """A repository with one finished run of this many checkpoints, epochs 0, 1, 2, …"""
    repo = make_repo(store)
    with start(repo) as run:
        for epoch in range(epochs):
            save(run, epoch)
    return repo


def epochs(pipeline: StoredPipeline) -> list[int]:
    return [checkpoint.epoch for checkpoint in pipeline.checkpoints()]


def keys(store: Store, part: str = "") -> list[str]:
    return [info.key for info in store.list("") if part in info.key]


def dump(store: Store) -> dict[str, bytes]:
    """All that a store holds."""
    return {info.key: store.get(info.key) for info in store.list("")}


def manifest_key(slot: Slot, name: str = NAME) -> str:
    return keys_of(name).manifest(slot)


def keys_of(name: str = NAME) -> PipelineKeys:
    return PipelineKeys(name)


def flipped(data: bytes, at: int, bit: int = 0) -> bytes:
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


def flip(store: Store, key: str, at: int = 20) -> None:
    """One bit of a stored object turns over."""
    data = store.get(key)
    store.put(key, flipped(data, at % len(data)))


def truncate(store: Store, key: str, by: int = 1) -> None:
    store.put(key, store.get(key)[:-by])


def data_key(manifest: Manifest, partition: int = 0, position: int = -1) -> str:
    """The key of the object that holds a partition's state."""
    path = manifest.operators["count"][partition][position].path
    assert path is not None
    return keys_of().prefix + path


def damage_state(store: Store, manifest: Manifest, partition: int = 0) -> None:
    """Turn one bit over in the state that this very manifest names."""
    artifact = manifest.operators["count"][partition][-1]
    flip(store, data_key(manifest, partition), (artifact.offset or 0) + 1)


def artifact(data: bytes, path: str = f"data/0000000000-{'0' * 32}/artifact-0", **more: Any) -> Artifact:
    return Artifact(sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data), path=path, **more)


def plain_manifest(slot: Slot = FIRST, **more: Any) -> Manifest:
    """A manifest that holds together and says little."""
    fields: dict[str, Any] = {
        "checkpoint_id": "0193a5b0-0000-7000-8000-000000000001",
        "generation": slot.generation,
        "slot": slot.number,
        "epoch": slot.number,
        "timestamp_ms": 1_763_000_000_000,
        "identifier": NAME,
        "pipeline_id": "0193a5b0-0000-7000-8000-000000000000",
        "pipeline_hash": "f" * 64,
    }
    return Manifest(**{**fields, **more})


def seed_checkpoints(repo: Repository, count: int) -> None:
    """A pipeline with one generation and many checkpoints, written directly."""
    pipeline = repo.pipeline(NAME)
    at, store = pipeline.records.keys, repo.store
    identity = PipelineRecord(token=new_token(), pipeline_id=new_id(), name=NAME, created_ms=0)
    store.create(at.identity, seal(identity))
    claim = Claim(token=new_token(), generation=0, why="start", who="me", repository_id=repo.id, created_ms=0)
    store.create(at.claim(0), seal(claim))
    store.create(at.base(0), seal(Base(token=new_token(), generation=0)))
    for number in range(count):
        slot = Slot(0, number)
        manifest = plain_manifest(slot, pipeline_id=identity.pipeline_id, checkpoint_id=new_id())
        store.create(at.manifest(slot), encode_manifest(manifest))
    pipeline.records.put_hint(Slot(0, count - 1))


class Table(LoopSink):
    """A sink in memory: staged rows, then committed ones, once each; it fences and can go back."""

    def __init__(self) -> None:
        self.generation = -1
        self.token = ""
        self.staged: dict[str, int] = {}
        self.committed: list[int] = []
        self.commits: list[str] = []
        self.events: list[str] = []
        self.failing: Exception | None = None

    def fence(self, pipeline_id: str, generation: int, token: str) -> Any:
        if generation < self.generation or (generation == self.generation and token != self.token):
            raise Fenced(pipeline_id, generation, f"the sink is held by generation {self.generation}")
        self.generation, self.token = generation, token
        self.events.append(f"fence {generation}")
        return self.position()

    def position(self) -> Any:
        return self.committed[-1] if self.committed else None

    def prepare(self, sequence: int) -> Any:
        token = f"rows-{sequence}"
        self.staged[token] = sequence
        return token

    def commit(self, token: Any) -> Any:
        self.commits.append(token)
        if self.failing is not None:
            raise self.failing
        self.events.append(f"commit {token}")
        sequence = int(str(token).removeprefix("rows-"))
        if sequence not in self.committed:
            self.committed.append(sequence)
        return sequence

    def roll_back(self, position: Any) -> None:
        self.events.append(f"back to {position}")
        self.committed = [sequence for sequence in self.committed if position is not None and sequence <= position]


class Versioned(Table):
    """Each commit makes a version that stays, and its number is the position: it can jump to any of them."""

    def __init__(self) -> None:
        super().__init__()
        self.versions: list[list[int]] = [[]]
        self.at = 0

    def position(self) -> Any:
        return self.at or None

    def can_jump(self) -> bool:
        return True

    def commit(self, token: Any) -> Any:
        super().commit(token)
        if self.committed != self.versions[self.at]:
            self.at = len(self.versions)
            self.versions.append(list(self.committed))
        return self.at

    def roll_back(self, position: Any) -> None:
        self.events.append(f"to version {position}")
        if self.failing is not None:
            raise self.failing
        self.at = position
        self.committed = list(self.versions[position])


class OneWay(Table):
    """The same, but what is committed stays."""

    roll_back = LoopSink.roll_back


class Silent(OneWay):
    """One way, and it does not even tell where it stands."""

    def position(self) -> Any:
        return None


def sinking(sequence: int, **tables: Table) -> Description:
    """What a checkpoint says of its sinks: each prepared up to a sequence, and pending."""
    statuses = {name: SinkStatus(status="pending", token=table.prepare(sequence)) for name, table in tables.items()}
    return Description(sinks=statuses)


def world_of(*generations: tuple[int, Slot | None]) -> World:
    """Generations by how many checkpoints they have and where they began."""
    bases = {
        number: Base(
            token="t",
            generation=number,
            from_generation=began.generation if began else None,
            from_slot=began.number if began else None,
        )
        for number, (_, began) in enumerate(generations)
    }
    slots = {Slot(number, n) for number, (count, _) in enumerate(generations) for n in range(count)}
    return World(claims=set(bases), bases=bases, slots=slots)
