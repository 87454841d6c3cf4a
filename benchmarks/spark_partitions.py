"""A capture of many small state files: 200 partitions of 4 stores, with few and with many batches kept by Spark.

    python -m benchmarks.spark_partitions [--rounds N] [--partitions N]

Goal: no growth with the number of batches that Spark keeps. The directory is made by hand: a batch adds one delta to
each of the 800 stores, and a snapshot every ten. Bytes and requests of an incremental capture are shown beside the
directory's.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from benchmarks.pairs import alternate, milliseconds, print_table, verdict
from benchmarks.places import scratch
from tests.spark.directories import ROCKSDB, MadeDirectory

from holdfast import open as open_repository
from holdfast.spark.capture import Capturer, Taken
from holdfast.store import open_store
from holdfast.store.local_directory import LocalDirectory
from holdfast.testing.faults import CountingStore

STORES = ("left-keys", "left-values", "right-keys", "right-values")
FEW, MANY = 12, 120
NO_GROWTH = 1.1


class Query:
    """A directory with so many batches kept, and a capturer that follows it."""

    def __init__(self, root: Path, kept: int, partitions: int) -> None:
        self.directory = MadeDirectory(root / "checkpoint", provider=ROCKSDB, partitions=partitions, stores=STORES)
        for _ in range(kept):
            self.run_batch()
        self.store = CountingStore(open_store(str(root / "repository")))
        pipeline = open_repository(self.store, create=True).pipeline("orders")
        self.capturer = Capturer(pipeline.records, LocalDirectory(self.directory.root))
        self.last = self.take()

    def run_batch(self) -> None:
        batch = self.directory.batch()
        if batch % 10 == 9:
            self.directory.snapshot(batch - 1)

    def take(self) -> Taken:
        taken = self.capturer.take(known=self.directory.next_batch)
        assert isinstance(taken, Taken)
        return taken

    def capture(self) -> Callable[[], None]:
        def run() -> None:
            self.last = self.take()

        return run


def main() -> None:
    options = argparse.ArgumentParser(description="captures of many small state files")
    options.add_argument("--rounds", type=int, default=20)
    options.add_argument("--partitions", type=int, default=200)
    chosen = options.parse_args()
    with scratch() as folder:
        few = Query(folder / "few", FEW, chosen.partitions)
        many = Query(folder / "many", MANY, chosen.partitions)

        def next_batch() -> None:
            # Both are at the same place between two snapshots, so that their chains are of the same length.
            few.run_batch()
            many.run_batch()

        next_batch()
        found = alternate(many.capture(), few.capture(), chosen.rounds, tidy=next_batch)
        for query in (few, many):
            query.capture()()
        per_file = found.second / few.last.files_read
        print_table(
            f"one more batch of {len(STORES)} x {chosen.partitions} stores captured, {chosen.rounds} pairs",
            ("", "time", "per new file", "CPU over CPU", "goal", ""),
            [
                (f"{FEW} batches kept", milliseconds(found.second), f"{per_file * 1e6:.0f} us", "", "", ""),
                (
                    f"{MANY} batches kept",
                    milliseconds(found.first),
                    f"{found.first / many.last.files_read * 1e6:.0f} us",
                    found.cpu,
                    f"<= {NO_GROWTH}",
                    verdict(found.cpu.median <= NO_GROWTH),
                ),
            ],
        )
        next_batch()
        many.store.reset()
        taken = many.take()
        files = [path for path in many.directory.root.rglob("*") if path.is_file()]
        print_table(
            "what an incremental capture reads and sends",
            ("", "files", "bytes", "requests"),
            [
                ("whole directory", len(files), sum(path.stat().st_size for path in files), "-"),
                ("the cut", taken.files, sum(a.size_bytes for a in taken.manifest.files.values()), "-"),
                ("read and sent", taken.files_read, taken.bytes_read, sum(many.store.counts.values())),
            ],
        )


if __name__ == "__main__":
    main()
