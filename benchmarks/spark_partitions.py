"""A capture of many small state files: 200 partitions of 4 stores, with few and with many batches kept by Spark.

    python -m benchmarks.spark_partitions [--rounds N] [--partitions N]

Goals: no growth with the number of batches that Spark keeps; an incremental capture reads and sends only what is new.
The directory is made by hand: a batch adds one delta to each of the 800 stores, and a snapshot every ten. The log of
its file source is compacted as often.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median

from benchmarks.pairs import alternate, milliseconds, print_table, verdict
from benchmarks.places import scratch
from tests.spark.directories import ROCKSDB, MadeDirectory

from holdfast import open as open_repository
from holdfast.spark.capture import Capturer, Taken
from holdfast.store import open_store
from holdfast.store.local_directory import LocalDirectory
from holdfast.testing.faults import CountingStore

STORES = ("left-keys", "left-values", "right-keys", "right-values")
FEW, MANY = 10, 120
NO_GROWTH = 1.1
LOGS = 3
"""What a batch adds beside its state: its offsets, its commit, and the entry of its source."""


class Query:
    """A directory with so many batches kept, and a capturer that follows it."""

    def __init__(self, root: Path, kept: int, partitions: int) -> None:
        self.directory = MadeDirectory(root / "checkpoint", provider=ROCKSDB, partitions=partitions, stores=STORES)
        for _ in range(kept):
            self.run_batch()
        self.store = CountingStore(open_store(str(root / "repository")))
        pipeline = open_repository(self.store, create=True).pipeline("orders")
        self.capturer = Capturer(pipeline.records, LocalDirectory(self.directory.root))
        self.new_files: list[int] = []
        self.take()

    def run_batch(self) -> None:
        batch = self.directory.batch()
        if batch % 10 == 9:
            self.directory.snapshot(batch - 1)
            entry = self.directory.root / f"sources/0/{batch}"
            entry.rename(entry.with_suffix(".compact"))

    def is_captured(self) -> bool:
        return self.capturer.tip is not None and self.capturer.tip.epoch == self.directory.next_batch - 1

    def take(self) -> Taken:
        taken = self.capturer.take(known=self.directory.next_batch)
        assert isinstance(taken, Taken)
        self.new_files.append(taken.files_read)
        return taken


def main() -> None:
    options = argparse.ArgumentParser(description="captures of many small state files")
    options.add_argument("--rounds", type=int, default=20)
    options.add_argument("--partitions", type=int, default=200)
    chosen = options.parse_args()
    with scratch() as folder:
        few = Query(folder / "few", FEW, chosen.partitions)
        many = Query(folder / "many", MANY, chosen.partitions)

        def next_batch() -> None:
            # One batch for each capture. Both are at the same place between two snapshots: their chains are as long.
            for query in (few, many):
                if query.is_captured():
                    query.run_batch()

        next_batch()
        found = alternate(many.take, few.take, chosen.rounds, tidy=next_batch)
        print_table(
            f"one more batch of {len(STORES)} x {chosen.partitions} stores captured, {chosen.rounds} pairs,"
            " median (quartiles)",
            ("", "time", "new files", "for each", "CPU over CPU", "goal", ""),
            [
                (f"{FEW} batches kept", *each(few, found.second), "", "", ""),
                (
                    f"{MANY} batches kept",
                    *each(many, found.first),
                    found.cpu,
                    f"<= {NO_GROWTH}",
                    verdict(found.cpu.median <= NO_GROWTH),
                ),
            ],
        )
        print_table(
            "what an incremental capture reads and sends",
            ("", "files", "bytes", "requests", "goal", ""),
            incremental(many, chosen.partitions * len(STORES)),
        )


def each(query: Query, seconds: float) -> tuple[str, str, str]:
    files = median(query.new_files[1:])
    return milliseconds(seconds), f"{files:.0f}", f"{seconds / files * 1e6:.0f} us"


def incremental(query: Query, stores: int) -> list[tuple[object, ...]]:
    """One more capture of a batch without snapshots, beside the whole directory."""
    query.take()
    while query.directory.next_batch % 10 == 9:
        query.run_batch()
        query.take()
    query.run_batch()
    query.store.reset()
    taken = query.take()
    files = [path for path in query.directory.root.rglob("*") if path.is_file()]
    cut, sent = taken.manifest.files.values(), taken.manifest.objects
    own = sum(size for path, size in sent.items() if path.startswith(taken.manifest.upload))
    verbs = ", ".join(f"{count} {verb}" for verb, count in sorted(query.store.counts.items()))
    new = stores + LOGS
    return [
        ("whole directory", len(files), sum(path.stat().st_size for path in files), "", "", ""),
        ("the cut", taken.files, sum(artifact.size_bytes for artifact in cut), "", "", ""),
        ("read", taken.files_read, taken.bytes_read, "", f"<= {new} files", verdict(taken.files_read <= new)),
        ("sent, beside the manifest", "1 pack", own, verbs, "", ""),
    ]


if __name__ == "__main__":
    main()
