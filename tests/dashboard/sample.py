"""A repository as a team leaves it after some weeks: pipelines in every state of health, history, sinks, damage."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from builders import flip, make_repo
from holdfast.handles import Repository, StoredPipeline
from holdfast.ids import new_id, new_token
from holdfast.layout import Slot
from holdfast.manifest import Artifact, ConnectorOffset, Manifest, Parent, SinkStatus, encode_manifest
from holdfast.records import Base, Claim, Pin, PipelineRecord, Savepoint, seal
from holdfast.store import Store

__all__ = ["HOSTILE", "HOSTILE_KEY", "Writer", "make_fleet", "make_hostile", "make_many"]

HOSTILE = '<script>window.hacked=1</script>"onload="window.hacked=1" \'x\' {{7*7}} \u202egnp.exe'
"""A name as an enemy would choose it, wherever a record lets one choose."""

HOSTILE_KEY = '<script>window.hacked=1<script>"onload="window.hacked=1"'
"""The same for one who writes objects into the store, under whatever name."""


class Writer:
    """Writes the records of one pipeline directly: any history, at any time, however large."""

    def __init__(self, repository: Repository, name: str, now_ms: int, *, operators: int = 2, partitions: int = 24):
        self.repository = repository
        self.pipeline: StoredPipeline = repository.pipeline(name)
        self.keys = self.pipeline.records.keys
        self.store = repository.store
        self.now_ms = now_ms
        self.operators = operators
        self.partitions = partitions
        self.pipeline_id = new_id()
        self.identifier = name
        self.slots: dict[Slot, Manifest] = {}
        self.put(
            self.keys.identity, PipelineRecord(token=new_token(), pipeline_id=self.pipeline_id, name=name, created_ms=0)
        )

    def put(self, key: str, record: Any) -> None:
        self.store.put(key, seal(record))

    def claim(self, generation: int, why: str = "start", began: Slot | None = None, **more: Any) -> None:
        """One take-over; without a base (`begun=False`) it was cut off."""
        begun, origin, age_ms = more.pop("begun", True), more.pop("origin", ""), more.pop("age_ms", 0)
        claim = Claim(
            token=new_token(),
            generation=generation,
            why=why,
            who=more.pop("who", "etl@driver-7"),
            repository_id=self.repository.id,
            created_ms=self.now_ms - age_ms,
            directory=more.pop("directory", f"s3a://lake/checkpoints/{self.pipeline.name}"),
            **more,
        )
        self.put(self.keys.claim(generation), claim)
        if begun:
            base = Base(
                token=new_token(),
                generation=generation,
                from_generation=began.generation if began else None,
                from_slot=began.number if began else None,
                origin=origin,
            )
            self.put(self.keys.base(generation), base)

    def checkpoint(self, slot: Slot, epoch: int, age_ms: int, parent: Slot | None = None, **more: Any) -> Manifest:
        manifest = self.manifest(slot, epoch, age_ms, parent, **more)
        self.store.put(self.keys.manifest(slot), encode_manifest(manifest))
        self.slots[slot] = manifest
        return manifest

    def manifest(self, slot: Slot, epoch: int, age_ms: int, parent: Slot | None = None, **more: Any) -> Manifest:
        upload = f"data/{slot.generation:010}-{new_token()}/"
        taken = self.now_ms - age_ms
        before = self.slots.get(parent) if parent else None
        fields: dict[str, Any] = {
            "checkpoint_id": new_id(),
            "generation": slot.generation,
            "slot": slot.number,
            "epoch": epoch,
            "timestamp_ms": taken,
            "identifier": self.identifier,
            "pipeline_id": self.pipeline_id,
            "pipeline_hash": hashlib.sha256(self.pipeline.name.encode()).hexdigest(),
            "upload": upload,
            "parent": Parent(generation=parent.generation, slot=parent.number, checkpoint_id=before.checkpoint_id)
            if parent and before
            else None,
            "source_offsets": {
                "orders": ConnectorOffset(
                    offsets={f"orders:{n}": str(48_000 + epoch * 130 + n * 7) for n in range(6)},
                    metadata={"kind": "kafka"},
                ),
                "customers": ConnectorOffset(offsets={"lsn": f"0/{0x16B3748 + epoch * 4096:X}"}),
            },
            "sink_commit_statuses": {
                "lake.orders_by_hour": SinkStatus(status="committed"),
                "postgres.totals": SinkStatus(status="committed"),
            },
            "sink_positions": {"lake.orders_by_hour": {"version": 1200 + epoch}, "postgres.totals": {"epoch": epoch}},
            "sink_epochs": {"lake.orders_by_hour": epoch, "postgres.totals": epoch},
            "watermark": taken - 4_000 - (epoch * 977) % 9_000,
            "operators": self._operators(upload, epoch),
            "vnode_count": self.partitions,
            "processed_records": 900 * epoch,
            "took_ms": 180 + (epoch * 37) % 260,
            "metadata": {"spark.sql.shuffle.partitions": str(self.partitions)},
            "fingerprint": {"operators": "window, dedup", "sources": "orders, customers"},
        }
        made = {**fields, **more}
        artifacts = [one for parts in made["operators"].values() for chain in parts.values() for one in chain]
        made["objects"] = {one.path: 1_000_000 for one in artifacts if one.path}
        made["source_names"] = sorted(made["source_offsets"])
        made["sink_names"] = sorted(made["sink_commit_statuses"])
        return Manifest(**made)

    def _operators(self, upload: str, epoch: int) -> dict[str, dict[int, list[Artifact]]]:
        names = ["window by hour", "dedup by order id", "join customers"][: self.operators]
        return {
            name: {n: self._chain(f"{name}/{n}", upload, epoch, n) for n in range(self.partitions)} for name in names
        }

    def _chain(self, what: str, upload: str, epoch: int, n: int) -> list[Artifact]:
        size = 18_000 + (n * 7919 + len(what) * 104_729) % 61_000 * (9 if n == 5 else 1) + epoch * 400
        digest = hashlib.sha256(f"{what}/{epoch // 6}".encode()).hexdigest()
        path = f"data/0000000000-{digest[:32]}/pack-0" if epoch % 6 else f"{upload}pack-0"
        chain = [Artifact(sha256=digest, size_bytes=size, path=path, offset=0, length=size)]
        if n % 3 == epoch % 3:
            new = 900 + (epoch * 613 + n * 211) % 5_000
            sha256 = hashlib.sha256(f"{what}/{epoch}/delta".encode()).hexdigest()
            chain.append(
                Artifact(
                    sha256=sha256,
                    size_bytes=new,
                    is_delta=True,
                    after=digest[:16],
                    path=f"{upload}pack-0",
                    offset=size,
                    length=new,
                )
            )
        return chain

    def run(self, generation: int, epochs: range, every_ms: int, last_age_ms: int, began: Slot | None = None) -> Slot:
        """Checkpoints of one generation, the last one so long ago; gives its slot."""
        parent = began
        for number, epoch in enumerate(epochs):
            slot = Slot(generation, number)
            age_ms = last_age_ms + (len(epochs) - 1 - number) * every_ms
            self.checkpoint(slot, epoch, age_ms, parent)
            parent = slot
        assert parent is not None
        return parent

    def name(self, slot: Slot, name: str, shown: str | None = None) -> None:
        manifest = self.slots[slot]
        word = Savepoint(
            token=new_token(),
            name=shown or name,
            generation=slot.generation,
            slot=slot.number,
            checkpoint_id=manifest.checkpoint_id,
            created_ms=manifest.timestamp_ms,
        )
        self.put(self.keys.savepoint(name, 0), word)

    def pin(self, slot: Slot, why: str) -> None:
        token = new_token()
        pin = Pin(token=token, generation=slot.generation, slot=slot.number, why=why, who="ann@laptop", created_ms=0)
        self.put(self.keys.pin(slot, token), pin)

    def hint(self, slot: Slot) -> None:
        self.pipeline.records.put_hint(slot)


def make_fleet(store: Store, now_ms: int) -> Repository:
    """`orders` has a long history with a rewind; the others are late, damaged, unfinished, new, or forked."""
    repository = make_repo(store)
    minute = 60_000
    orders = Writer(repository, "orders", now_ms)
    orders.claim(0, age_ms=300 * minute)
    orders.run(0, range(18), 5 * minute, 215 * minute)
    orders.claim(1, "start", Slot(0, 17), age_ms=200 * minute)
    orders.run(1, range(18, 40), 3 * minute, 120 * minute, Slot(0, 17))
    orders.claim(2, "rewind to before-upgrade", Slot(1, 9), age_ms=110 * minute, who="ann@laptop")
    orders.run(2, range(28, 44), 3 * minute, 55 * minute, Slot(1, 9))
    orders.claim(3, "start", Slot(2, 15), age_ms=50 * minute)
    last = orders.run(3, range(44, 74), minute, 21_000, Slot(2, 15))
    orders.name(Slot(1, 9), "before-upgrade")
    orders.name(Slot(3, 12), "nightly-audit")
    orders.pin(Slot(3, 20), "audit")
    orders.hint(last)

    clicks = Writer(repository, "clicks", now_ms, operators=1, partitions=200)
    clicks.claim(0, age_ms=90 * minute)
    clicks.hint(clicks.run(0, range(40), minute, 8_000))

    payments = Writer(repository, "payments", now_ms)
    payments.claim(0, "watch", age_ms=900 * minute)
    payments.hint(payments.run(0, range(25), minute, 190 * minute))

    broken = Writer(repository, "inventory", now_ms)
    broken.claim(0, age_ms=90 * minute)
    newest = broken.run(0, range(14), minute, 30_000)
    broken.hint(newest)
    flip(store, broken.keys.manifest(Slot(0, 9)), 40)
    flip(store, broken.keys.manifest(newest), 40)

    cut = Writer(repository, "shipments", now_ms)
    cut.claim(0, age_ms=60 * minute)
    cut.hint(cut.run(0, range(9), minute, 26 * minute))
    cut.claim(1, "start", begun=False, age_ms=25 * minute)

    fork = Writer(repository, "orders-backfill", now_ms)
    fork.claim(0, "fork", origin="fork of orders@slot:1-9", age_ms=40 * minute)
    fork.hint(fork.run(0, range(28, 40), minute, 12_000))

    Writer(repository, "returns", now_ms).claim(0, age_ms=30_000)
    return repository


def make_hostile(store: Store, now_ms: int) -> Repository:
    """One pipeline, every text of which that a writer may choose is hostile, and objects with hostile names."""
    repository = make_repo(store)
    it = Writer(repository, "orders", now_ms)
    it.identifier = HOSTILE
    it.claim(0, HOSTILE, who=HOSTILE, directory=HOSTILE, origin=HOSTILE, age_ms=60_000)
    offsets = {HOSTILE: ConnectorOffset(offsets={HOSTILE: "12"}, metadata={"kind": HOSTILE, HOSTILE: HOSTILE})}
    texts: Mapping[str, Any] = {
        "source_offsets": offsets,
        "table_offsets": offsets,
        "sink_commit_statuses": {HOSTILE: SinkStatus(status="failed", why=HOSTILE)},
        "sink_positions": {HOSTILE: {HOSTILE: HOSTILE}},
        "sink_epochs": {HOSTILE: 1},
        "metadata": {HOSTILE: HOSTILE},
        "fingerprint": {HOSTILE: HOSTILE},
        "pipeline_hash": HOSTILE,
        "spark_version": HOSTILE,
    }
    last = Slot(0, 0)
    for number in range(3):
        last = Slot(0, number)
        operators = {HOSTILE: it._operators("data/", number)["window by hour"]}
        it.checkpoint(last, number, 9_000 - number * 3_000, operators=operators, **texts)
    it.name(last, "named", HOSTILE)
    it.pin(last, HOSTILE)
    it.hint(last)
    store.put(f"{it.keys.savepoints}{HOSTILE_KEY}/0000000000.json", store.get(it.keys.savepoint("named", 0)))
    store.put(f"pipelines/{HOSTILE_KEY}/pipeline.json", store.get(it.keys.identity))
    return repository


def make_many(store: Store, pipelines: int, checkpoints: int, now_ms: int) -> Repository:
    """So many pipelines with so many small checkpoints each."""
    repository = make_repo(store)
    for index in range(pipelines):
        writer = Writer(repository, f"pipeline-{index:04}", now_ms, operators=1, partitions=2)
        writer.claim(0, age_ms=checkpoints * 60_000)
        writer.hint(writer.run(0, range(checkpoints), 60_000, 5_000))
        writer.slots.clear()
    return repository
