"""Many small partitions on a real S3 server: the requests of a checkpoint, and packs against an object for each.

    python -m benchmarks.packs [--rounds N] [--partitions N] [--threads N …]

Goals: the same requests for 2 partitions as for 2,000, and at most 6; saving at least 3 times as fast, reading back at
least 8 times. The other way is what one would write without packs: the same store and as many threads, SHA-256 and one
create for each partition, then the list of digests; back, one get and one SHA-256 for each. Both ways take the same
bytes, of 4 to 40 KiB, and new ones each time.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import random
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import msgspec
from benchmarks.pairs import Comparison, alternate, milliseconds, print_table, verdict
from benchmarks.places import S3Server, s3_server

from holdfast import Checkpointer, Limits, Manifest, PartitionState
from holdfast import open as open_repository
from holdfast.repository.artifacts import load_artifacts
from holdfast.store import Store, open_store
from holdfast.testing.faults import CountingStore

REQUESTS, SAVE, READ = 6, 3.0, 8.0


class Bodies:
    """Partitions of 4 to 40 KiB; `renew` them for each save, since bytes that are there already are not sent again."""

    def __init__(self, partitions: int) -> None:
        self._rounds = itertools.count()
        draw = random.Random(1)
        self.now = [draw.randbytes(draw.randint(4, 40) * 1024) for _ in range(partitions)]
        self.bytes = sum(map(len, self.now))

    def renew(self) -> None:
        stamp = next(self._rounds).to_bytes(8, "big")
        self.now = [stamp + body[8:] for body in self.now]


def save_packed(run: Checkpointer, bodies: list[bytes]) -> Manifest:
    draft = run.begin(0 if run.tip is None else run.tip.epoch + 1)
    run.save_partitions(draft, (PartitionState("count", p, body) for p, body in enumerate(bodies)))
    return run.save_manifest(draft)


def read_packed(run: Checkpointer, manifest: Manifest, pool: ThreadPoolExecutor) -> int:
    """As after a restart: the manifest too is read from the store."""
    records = run.records.unread()
    found = records.manifest(manifest.at)
    chains = [chain for partitions in found.operators.values() for chain in partitions.values()]
    wanted = [artifact for chain in chains for artifact in chain]
    return sum(len(data) for _, data in load_artifacts(records.store, records.keys, wanted, pool))


def save_singly(store: Store, prefix: str, bodies: list[bytes], pool: ThreadPoolExecutor) -> None:
    def save(partition: int) -> str:
        body = bodies[partition]
        digest = hashlib.sha256(body).hexdigest()
        if not store.create(f"{prefix}{partition}", body):
            raise RuntimeError("the key was taken")
        return digest

    store.create(f"{prefix}digests", msgspec.json.encode(list(pool.map(save, range(len(bodies))))))


def read_singly(store: Store, prefix: str, pool: ThreadPoolExecutor) -> int:
    digests = msgspec.json.decode(store.get(f"{prefix}digests"), type=list[str])

    def read(partition: int) -> int:
        body = store.get(f"{prefix}{partition}")
        if hashlib.sha256(body).hexdigest() != digests[partition]:
            raise RuntimeError("damaged")
        return len(body)

    return sum(pool.map(read, range(len(digests))))


def requests(url: str, options: Mapping[str, str], partitions: int) -> dict[str, int]:
    """Of the second checkpoint, by verb: the first pays for the pipeline's own beginning."""
    store = CountingStore(open_store(url, options))
    bodies = Bodies(partitions)
    with open_repository(store, create=True).pipeline(f"of-{partitions}").recover() as run:
        save_packed(run, bodies.now)
        store.reset()
        bodies.renew()
        save_packed(run, bodies.now)
    return dict(sorted(store.counts.items()))


def count_requests(server: S3Server, partitions: int) -> None:
    counts = [(n, requests(server.url("counts"), server.options, n)) for n in (2, partitions)]
    met = counts[0][1] == counts[1][1] and sum(counts[0][1].values()) <= REQUESTS
    print_table(
        "requests for one checkpoint",
        ("partitions", "by verb", "total", "goal", ""),
        [
            (n, by_verb(found), sum(found.values()), f"{REQUESTS} at most, the same", verdict(met))
            for n, found in counts
        ],
    )


def by_verb(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {verb}" for verb, count in counts.items())


def compare(server: S3Server, bodies: Bodies, threads: int, rounds: int) -> list[tuple[object, ...]]:
    repository = open_repository(server.url("packs"), create=True, options=server.options)
    store = open_store(server.url("singles"), server.options)
    folders = (f"checkpoint-{n}/" for n in itertools.count())
    with (
        ThreadPoolExecutor(threads) as pool,
        repository.pipeline("orders").recover(limits=Limits(concurrency=threads)) as run,
    ):
        saved = alternate(
            lambda: save_packed(run, bodies.now),
            lambda: save_singly(store, next(folders), bodies.now, pool),
            rounds,
            tidy=bodies.renew,
        )
        manifest = save_packed(run, bodies.now)
        save_singly(store, "read/", bodies.now, pool)
        assert read_packed(run, manifest, pool) == read_singly(store, "read/", pool) == bodies.bytes
        read = alternate(
            lambda: read_packed(run, manifest, pool),
            lambda: read_singly(store, "read/", pool),
            rounds,
        )
    return [("save", threads, *cells(saved, SAVE)), ("read back", threads, *cells(read, READ))]


def cells(found: Comparison, goal: float) -> tuple[object, ...]:
    faster = found.wall.inverse
    return (
        faster,
        found.cpu.inverse,
        milliseconds(found.first),
        milliseconds(found.second),
        f"{goal:g} at least",
        verdict(faster.median >= goal),
    )


def main() -> None:
    options = argparse.ArgumentParser(description="packs against one object for each partition, on S3")
    options.add_argument("--rounds", type=int, default=11)
    options.add_argument("--partitions", type=int, default=2000)
    options.add_argument("--threads", type=int, nargs="+", default=[4, 16])
    chosen = options.parse_args()

    bodies = Bodies(chosen.partitions)
    rows: list[tuple[object, ...]] = []
    with s3_server() as server:
        count_requests(server, chosen.partitions)
    for threads in chosen.threads:
        # A server of its own for each, so that what the others left in it does not count.
        with s3_server() as server:
            rows += compare(server, bodies, threads, chosen.rounds)
    print_table(
        f"{chosen.partitions} partitions, {bodies.bytes / 2**20:.0f} MiB, {chosen.rounds} pairs; "
        "times as fast as one object for each, median (quartiles)",
        ("", "threads", "wall", "client CPU", "packed", "singly", "goal", ""),
        rows,
    )


if __name__ == "__main__":
    main()
