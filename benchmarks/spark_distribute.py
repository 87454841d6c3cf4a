"""State that no driver should carry: captures and restores by the executors of a standalone cluster of two workers.

    python -m benchmarks.spark_distribute [--megabytes N N N]

Goal: the bytes that pass through the driver, and its memory, stay flat while the state grows. The same by the driver's
own threads stands beside it. Bytes are what the driver's Python and Java read and wrote, on disk and on the network,
and memory is how much its Python has grown at the most.
"""

from __future__ import annotations

import argparse
import os
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.pairs import milliseconds, print_table, verdict
from benchmarks.places import scratch
from tests.servers import spark_cluster
from tests.spark.directories import ROCKSDB, MadeDirectory
from tests.spark.session import start_session

from holdfast import open as open_repository
from holdfast.handles import StoredPipeline
from holdfast.spark.capture import Capturer, Taken
from holdfast.spark.distribute import Layer, Sender, sender_for
from holdfast.spark.executors import Executors
from holdfast.spark.java import use_java
from holdfast.spark.lay import lay_down
from holdfast.store import Address
from holdfast.store.local_directory import LocalDirectory

MIB = 1024 * 1024
PARTITIONS = 8
FLAT = 8
"""How many MiB more the driver may move or hold for the largest state than for the smallest."""


@dataclass(frozen=True)
class Cost:
    seconds: float
    moved: float
    held: float


class Driver:
    """What the driver's two processes have read and written, and how large its Python has become."""

    def __init__(self, java: int) -> None:
        self._processes = ("self", java)

    def cost_of(self, act: Callable[[], object]) -> Cost:
        peak, over = [self._resident()], threading.Event()

        def watch() -> None:
            while not over.wait(0.005):
                peak[0] = max(peak[0], self._resident())

        before, held, began = self._moved(), self._resident(), time.perf_counter()
        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            act()
        finally:
            over.set()
            watcher.join()
        return Cost(time.perf_counter() - began, (self._moved() - before) / MIB, (peak[0] - held) / MIB)

    def _moved(self) -> int:
        lines = [line for pid in self._processes for line in Path(f"/proc/{pid}/io").read_text().splitlines()]
        return sum(int(line.split()[1]) for line in lines if line.startswith(("rchar", "wchar")))

    def _resident(self) -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def make(root: Path, megabytes: int) -> MadeDirectory:
    directory = MadeDirectory(root, provider=ROCKSDB, partitions=PARTITIONS)
    directory.batch()
    directory.table_bytes = megabytes * MIB // PARTITIONS
    directory.snapshot()
    directory.batch()
    return directory


def capture(pipeline: StoredPipeline, directory: MadeDirectory, sender: Sender | None) -> None:
    capturer = Capturer(pipeline.records, LocalDirectory(directory.root), mover=sender)
    taken = capturer.take(known=directory.next_batch)
    capturer.close()
    assert isinstance(taken, Taken)


def main() -> None:
    options = argparse.ArgumentParser(description="captures and restores by the executors")
    options.add_argument("--megabytes", type=int, nargs="+", default=[64, 256, 1024])
    sizes = options.parse_args().megabytes
    use_java()
    found: dict[tuple[str, str], list[Cost]] = {}
    with scratch() as folder, spark_cluster(folder / "cluster") as cluster:
        spark = start_session(cluster.conf, cluster.master)
        driver = Driver(int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()))  # type: ignore[union-attr]
        executors = Executors.of(spark)
        repository = open_repository(str(folder / "repository"), create=True)
        for size in sizes:
            directory = make(folder / f"checkpoint-{size}", size)
            sender = sender_for(spark.sparkContext, Address(str(directory.root)), repository.address, True)
            for who, mover, layer in (
                ("executors", sender, Layer(executors, repository.address)),
                ("driver", None, None),
            ):
                pipeline = repository.pipeline(f"{who}-{size}")
                place = folder / f"{who}-{size}"

                def save(pipeline: StoredPipeline = pipeline, mover: Sender | None = mover) -> None:
                    capture(pipeline, directory, mover)  # noqa: B023 - called within this round

                def restore(
                    pipeline: StoredPipeline = pipeline, place: Path = place, layer: Layer | None = layer
                ) -> None:
                    latest = pipeline.latest()
                    assert latest is not None
                    lay_down(pipeline.records, latest.manifest, str(place), layer=layer)

                found.setdefault(("capture", who), []).append(driver.cost_of(save))
                found.setdefault(("restore", who), []).append(driver.cost_of(restore))
                shutil.rmtree(place)
            shutil.rmtree(directory.root)
        spark.stop()
    rows = []
    for (what, who), costs in found.items():
        flat = max(costs[-1].moved - costs[0].moved, costs[-1].held - costs[0].held) <= FLAT
        goal = (f"flat within {FLAT} MiB", verdict(flat)) if who == "executors" else ("", "")
        for size, cost in zip(sizes, costs, strict=True):
            took = milliseconds(cost.seconds)
            rows.append((f"{what} by the {who}", f"{size} MiB", f"{cost.moved:.1f}", f"{cost.held:.1f}", took, *goal))
    print_table(
        f"state moved by two workers, {PARTITIONS} partitions; MiB through the driver and MiB that it grew by",
        ("", "state", "moved", "grew", "took", "goal", ""),
        rows,
    )


if __name__ == "__main__":
    main()
