"""How far a standby is behind a steady pipeline, what it moves, and what a look costs when nothing is new.

    python -m benchmarks.standby_lag [--checkpoints N] [--interval SECONDS] [--every SECONDS] [--local]

Goals: each checkpoint stands at the standby within two checkpoint intervals of being taken, and the bytes moved,
counted as they leave the one store and reach the other, are those that are new at the source. A checkpoint is taken
every interval, each with a part of its state changed, in a real S3 server, and followed into another prefix of it;
`--local` uses folders instead.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import quantiles

from benchmarks.pairs import print_table, verdict
from benchmarks.places import s3_server, scratch

import holdfast
from holdfast.copying import Copier
from holdfast.draft import PartitionState
from holdfast.handles import open_url
from holdfast.layout import Slot
from holdfast.standby import Event, Failed, Followed, Standby
from holdfast.store import Store, open_store
from holdfast.testing.faults import CountingStore

PARTITIONS = 16
STATE_BYTES = 64 * 1024
DATA = "pipelines/orders/data/"


@contextmanager
def two_stores(local: bool) -> Iterator[tuple[Store, Store]]:
    if local:
        with scratch() as folder:
            yield open_store(str(folder / "a")), open_store(str(folder / "b"))
        return
    with s3_server() as server:
        yield open_store(server.url("a"), server.options), open_store(server.url("b"), server.options)


def steady(run: holdfast.Checkpointer, checkpoints: int, interval: float) -> None:
    """A checkpoint every interval, each with a quarter of its partitions new."""
    due = time.monotonic()
    for epoch in range(checkpoints):
        draft = run.begin(epoch, carry=True)
        changed = range(PARTITIONS) if epoch == 0 else range(epoch % 4, PARTITIONS, 4)
        run.save_partitions(draft, [PartitionState("op", n, os.urandom(STATE_BYTES)) for n in changed])
        run.save_manifest(draft)
        due += interval
        time.sleep(max(0.0, due - time.monotonic()))


def data_bytes(store: Store) -> int:
    return sum(info.size for info in store.list(DATA))


def moved(counted: Counter[str]) -> int:
    return sum(size for key, size in counted.items() if key.startswith(DATA))


def idle_requests(checkpoints: int) -> int:
    """What one round costs with so many checkpoints and nothing new."""
    stores = [CountingStore(open_store("memory://")) for _ in range(2)]
    source, target = (open_url(store, create=True) for store in stores)
    with source.pipeline("orders").recover() as run:
        steady(run, checkpoints, 0)
    copier = Copier(source.pipeline("orders").records, target.pipeline("orders").records)
    copier.copy()
    for store in stores:
        store.reset()
    copier.copy()
    return sum(store.total for store in stores)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--checkpoints", type=int, default=60)
    parser.add_argument("--interval", type=float, default=2.0)
    parser.add_argument("--every", type=float, default=1.0)
    parser.add_argument("--local", action="store_true")
    given = parser.parse_args()
    ages: dict[Slot, float] = {}
    told = failures = 0

    def tell(_pipeline: str, event: Event) -> None:
        nonlocal told, failures
        failures += isinstance(event, Failed)
        if isinstance(event, Followed):
            told += event.copied.bytes
            # Of each that has arrived with this round, not of the newest alone: one that was late counts.
            arrived = {c.slot: c.head.timestamp_ms for c in target.pipeline("orders").checkpoints()}
            now = time.time()
            ages.update({slot: now - taken / 1000 for slot, taken in arrived.items() if slot not in ages})

    with two_stores(given.local) as (first, second):
        source, target = open_url(first, create=True), open_url(second, create=True)
        # The pipeline writes beside these: they count what the standby alone moves.
        ends = CountingStore(first), CountingStore(second)
        standby = Standby(lambda: (open_url(ends[0]), open_url(ends[1])), every_seconds=given.every, tell=tell)
        stop = threading.Event()
        following = threading.Thread(target=standby.run, args=(stop,))
        following.start()
        with source.pipeline("orders").recover() as run:
            steady(run, given.checkpoints, given.interval)
        time.sleep(2 * given.every + given.interval)
        stop.set()
        following.join()
        new = data_bytes(first)
        read, written = moved(ends[0].read_bytes), moved(ends[1].written_bytes)
        records = ends[0].read_bytes.total() + ends[1].written_bytes.total() - read - written
        latest = target.pipeline("orders").latest()
        whole = latest is not None and latest.epoch == given.checkpoints - 1
    seconds = [*ages.values()]
    q1, middle, q3 = quantiles(seconds, n=4, method="inclusive")
    where = "folders" if given.local else "S3"
    few, many, limit = idle_requests(10), idle_requests(100), 2 * given.interval
    level = f"{middle:.2f} ({q1:.2f} - {q3:.2f})"
    is_close = max(seconds) <= limit and whole and len(seconds) == given.checkpoints
    print_table(
        f"{given.checkpoints} checkpoints, one every {given.interval:g} s, followed every {given.every:g} s, {where}",
        ["", "median (quartiles)", "", "goal", ""],
        [
            ["seconds from taken to there", level, f"most {max(seconds):.2f}", f"<= {limit:g}", verdict(is_close)],
            ["bytes read at the source", read, f"new {new}", "the same", verdict(read == new)],
            ["bytes written at the standby", written, f"told {told}", "the same", verdict(written == told == new)],
            ["bytes of records, both ways", records, f"{records / (read + written):.1%}", "", ""],
            ["requests with nothing new", few, f"of 100 checkpoints {many}", "the same", verdict(few == many)],
            ["rounds that failed", failures, "", "0", verdict(failures == 0)],
        ],
    )


if __name__ == "__main__":
    main()
