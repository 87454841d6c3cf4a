"""Checkpoint directories as Spark leaves them, made by hand: for what no running query would do on demand."""

from __future__ import annotations

import io
import json
import os
import uuid
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["HDFS", "ROCKSDB", "MadeDirectory", "changelog_v2"]

_STATE = "org.apache.spark.sql.execution.streaming.state"
HDFS = f"{_STATE}.HDFSBackedStateStoreProvider"
ROCKSDB = f"{_STATE}.RocksDBStateStoreProvider"
KEYED = {"type": "struct", "fields": [{"name": "k", "type": "long", "nullable": True, "metadata": {}}]}
KEYLESS = {"type": "struct", "fields": []}


def changelog_v2(lineage: dict[int, str], body: bytes = b"rows") -> bytes:
    """A changelog of checkpoint format 2: its head names the versions before it. The LZ4 block is stored as it is."""
    text = json.dumps([{"version": v, "checkpointUniqueId": i} for v, i in sorted(lineage.items())]).encode()
    plain = b"\x00\x02v3" + len(text).to_bytes(2, "big") + text + body
    sizes = len(plain).to_bytes(4, "little") * 2
    return b"LZ4Block" + bytes([0x10 | 0x05]) + sizes + b"\0\0\0\0" + plain


@dataclass
class MadeDirectory:
    """One query: `batch()` runs the next batch, `snapshot()` is the maintenance thread, `purge()` the clean-up."""

    root: Path
    provider: str = HDFS
    changelog: bool = True
    checkpoint_format: int = 1
    partitions: int = 2
    stores: tuple[str, ...] = ("default",)
    operators: int = 1
    keyless: bool = False
    query_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    table_bytes: int = 0
    snapshot_version: int = 1
    next_batch: int = 0
    ids: dict[tuple[int, int, str, int], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.write("metadata", json.dumps({"id": self.query_id}))
        for operator in range(self.operators):
            info = [{"storeName": s, "numColsPrefixKey": 0, "numPartitions": self.partitions} for s in self.stores]
            about = {"operatorInfo": {"operatorId": operator, "operatorName": "stateStoreSave"}, "stateStoreInfo": info}
            self.write(f"state/{operator}/_metadata/metadata", f"v1\n{json.dumps(about)}")
            schema = json.dumps(KEYLESS if self.keyless else KEYED).encode()
            for store in self.stores:
                self.write(f"{self.folder(operator, 0, store)}/_metadata/schema", b"\0\x02v2" + schema)

    def write(self, name: str, data: bytes | str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{uuid.uuid4()}.tmp")
        temporary.write_bytes(data.encode() if isinstance(data, str) else data)
        temporary.rename(path)

    def remove(self, name: str) -> None:
        (self.root / name).unlink()

    def names(self) -> set[str]:
        return {str(path.relative_to(self.root)) for path in self.root.rglob("*") if path.is_file()}

    def folder(self, operator: int, partition: int, store: str) -> str:
        return f"state/{operator}/{partition}" + ("" if store == "default" else f"/{store}")

    def stems(self, version: int) -> list[str]:
        """The beginnings of the names of all state files of a version, up to and with the dot."""
        found = []
        for operator in range(self.operators):
            for partition in range(1 if self.keyless else self.partitions):
                for store in self.stores:
                    unique = self.ids.get((operator, partition, store, version), "")
                    found.append(f"{self.folder(operator, partition, store)}/{version}{unique and '_'}{unique}.")
        return found

    def start(self) -> int:
        """Begin the next batch: its offsets are written, its state and its commit are not."""
        batch = self.next_batch
        conf = {
            "spark.sql.streaming.stateStore.providerClass": self.provider,
            "spark.sql.shuffle.partitions": str(self.partitions),
            "spark.sql.streaming.stateStore.compression.codec": "lz4",
            "spark.sql.streaming.stateStore.encodingFormat": "unsaferow",
        }
        head = {"batchWatermarkMs": 1000 * batch, "batchTimestampMs": 1_700_000_000_000 + batch, "conf": conf}
        self.write(f"sources/0/{batch}", f'v1\n{{"path":"file:///in/{batch}.json","timestamp":1,"batchId":{batch}}}')
        self.write(f"offsets/{batch}", f'v1\n{json.dumps(head)}\n{{"logOffset":{batch}}}')
        return batch

    def batch(self) -> int:
        """Run the next batch to its end."""
        batch = self.start()
        version = batch + 1
        ids: dict[str, list[list[str]]] = {}
        for operator in range(self.operators):
            for partition in range(1 if self.keyless else self.partitions):
                for store in self.stores:
                    if self.checkpoint_format == 2:
                        unique = str(uuid.uuid4())
                        self.ids[operator, partition, store, version] = unique
                        rows = ids.setdefault(str(operator), [])
                        rows += [[] for _ in range(partition + 1 - len(rows))]
                        rows[partition].append(unique)
                    self._state(operator, partition, store, version)
        about: dict[str, object] = {"nextBatchWatermarkMs": 1000 * (batch + 1)}
        if ids:
            about["stateUniqueIds"] = ids
        self.write(f"commits/{batch}", f"v{2 if ids else 1}\n{json.dumps(about)}")
        self.next_batch += 1
        return batch

    def _state(self, operator: int, partition: int, store: str, version: int) -> None:
        unique = self.ids.get((operator, partition, store, version), "")
        stem = f"{self.folder(operator, partition, store)}/{version}{unique and '_'}{unique}."
        rows = f"rows {operator} {partition} {store} {version} {uuid.uuid4()}".encode()
        if self.provider == HDFS:
            self.write(stem + "delta", rows)
        elif not self.changelog:
            self._zip(operator, partition, store, version)
        elif self.checkpoint_format == 2:
            before = {
                v: i
                for (o, p, s, v), i in self.ids.items()
                if (o, p, s) == (operator, partition, store) and v < version
            }
            self.write(stem + "changelog", changelog_v2(before, rows))
        else:
            self.write(stem + "changelog", rows)

    def snapshot(self, version: int | None = None) -> int:
        """Write the snapshots of a version, as the maintenance thread does some time after it."""
        version = self.next_batch if version is None else version
        for operator in range(self.operators):
            for partition in range(1 if self.keyless else self.partitions):
                for store in self.stores:
                    if self.provider == HDFS:
                        name = f"{self.folder(operator, partition, store)}/{version}.snapshot"
                        self.write(name, f"all {operator} {partition} {store} {version}")
                    else:
                        self._zip(operator, partition, store, version)
        return version

    def _zip(self, operator: int, partition: int, store: str, version: int) -> None:
        folder = self.folder(operator, partition, store)
        unique = self.ids.get((operator, partition, store, version), "")
        sst = f"00000{version}-{uuid.uuid4()}.sst"
        data = f"table {operator} {partition} {store} {version}".encode() * 8 + os.urandom(self.table_bytes)
        self.write(f"{folder}/SSTs/{sst}", data)
        named = [{"localFileName": "1.sst", "dfsSstFileName": sst, "sizeBytes": len(data)}]
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("CURRENT", "MANIFEST-000005\n")
            archive.writestr("metadata", f"v{self.snapshot_version}\n" + json.dumps({"sstFiles": named, "numKeys": 1}))
        self.write(f"{folder}/{version}{unique and '_'}{unique}.zip", packed.getvalue())

    def purge(self, before: int) -> None:
        """Remove the logs of batches before this one, and state that no later version needs."""
        for log in ("offsets", "commits"):
            for path in (self.root / log).iterdir():
                if path.name.isdecimal() and int(path.name) < before:
                    path.unlink()
