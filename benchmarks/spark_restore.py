"""A verified restore of a Spark checkpoint beside `cp -r && sync` of the same directory, rclone and restic.

    python -m benchmarks.spark_restore [--rounds N] [--megabytes N] [--keys N]

Goals: at most 1.5 times `cp -r && sync`; faster than rclone and restic where they are installed. Where the times are
within a tenth of the goal, CPU seconds decide. One directory is made by hand, of large tables and many small deltas as
RocksDB leaves them with many partitions; the other is of a query.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.pairs import alternate, milliseconds, print_table, verdict
from benchmarks.places import scratch
from benchmarks.spark_queries import CountingQuery, spark_session
from tests.spark.directories import ROCKSDB, MadeDirectory

from holdfast import open as open_repository
from holdfast.checkpoint import Checkpoint
from holdfast.spark.capture import Capturer, Taken
from holdfast.store.local_directory import LocalDirectory

GOAL = 1.5
FASTER = 1.0
CLOSE = 0.1
PASSWORD = {"RESTIC_PASSWORD": "benchmark"}


def make(root: Path, megabytes: int) -> Path:
    """A directory whose snapshots name large tables; deltas after them are small and many."""
    directory = MadeDirectory(root, provider=ROCKSDB, partitions=100, stores=("left", "right"))
    directory.batch()
    directory.table_bytes = megabytes * 1024 * 1024 // 200
    directory.snapshot()
    for _ in range(9):
        directory.batch()
    directory.start()
    return directory.root


def query(folder: Path, keys: int) -> Path:
    """The directory of a query that counts rows by so many keys."""
    with spark_session(folder) as spark:
        counting = CountingQuery(spark, folder / "checkpoint", keys)
        counting.start(10_000)
        counting.stop()
    return counting.directory


def capture(directory: Path, repository: Path) -> Checkpoint:
    pipeline = open_repository(str(repository), create=True).pipeline("orders")
    capturer = Capturer(pipeline.records, LocalDirectory(directory))
    assert isinstance(capturer.take(), Taken)
    capturer.close()
    checkpoint = pipeline.latest()
    assert checkpoint is not None
    return checkpoint


def run(*command: str | Path, env: dict[str, str] | None = None) -> None:
    subprocess.run([str(part) for part in command], check=True, capture_output=True, env={**os.environ, **(env or {})})


def program(name: str) -> str | None:
    """Where a program is: beside this Python, or on the path."""
    beside = str(Path(sys.executable).parent)
    return shutil.which(name, path=os.pathsep.join([beside, os.environ.get("PATH", "")]))


def others(folder: Path, cut: Path, place: Path) -> dict[str, tuple[Callable[[], None], float]]:
    """What brings the same files to a place by other means, on disk as well, and how much faster that may be."""

    def copy() -> None:
        run("cp", "-r", cut, place)
        run("sync")

    found: dict[str, tuple[Callable[[], None], float]] = {"cp -r && sync": (copy, GOAL)}
    if rclone := program("rclone"):

        def copy_by_rclone() -> None:
            run(rclone, "copy", cut, place, "--local-no-check-updated")
            run("sync")

        found["rclone copy && sync"] = (copy_by_rclone, FASTER)
    if restic := program("restic"):
        kept = folder / "restic"
        run(restic, "init", "--repo", kept, env=PASSWORD)
        run(restic, "backup", "--repo", kept, cut, env=PASSWORD)

        def restore_by_restic() -> None:
            run(restic, "restore", "latest", "--repo", kept, "--target", place, env=PASSWORD)
            run("sync")

        found["restic restore && sync"] = (restore_by_restic, FASTER)
    return found


def compare(name: str, folder: Path, directory: Path, rounds: int) -> None:
    checkpoint = capture(directory, folder / "repository")
    place, cut = folder / "place", folder / "cut"
    # What is compared holds the same files: the cut, and not what Spark keeps beside it.
    checkpoint.restore(str(cut))

    def restore() -> None:
        checkpoint.restore(str(place))

    def tidy() -> None:
        shutil.rmtree(place)

    rows = []
    for beside, (bring, goal) in others(folder, cut, place).items():
        found = alternate(restore, bring, rounds, tidy=tidy)
        near = abs(found.wall.median / goal - 1) < CLOSE
        met = verdict((found.cpu if near else found.wall).median <= goal)
        times = (milliseconds(found.first), milliseconds(found.second))
        rows.append((beside, found.wall, *times, found.cpu, f"<= {goal}", f"{met}, by CPU" if near else met))
    size = f"{len(checkpoint.manifest.files)} files, {checkpoint.bytes / 1e6:.0f} MB"
    print_table(
        f"restore of {name}, {size}, verified; over the other, {rounds} pairs",
        ("beside", "wall, median (quartiles)", "ours", "theirs", "CPU", "goal", ""),
        rows,
    )


def main() -> None:
    options = argparse.ArgumentParser(description="restore beside copying")
    options.add_argument("--rounds", type=int, default=11)
    options.add_argument("--megabytes", type=int, default=400)
    options.add_argument("--keys", type=int, default=1_000_000)
    chosen = options.parse_args()
    with scratch() as folder:
        directory = make(folder / "checkpoint", chosen.megabytes)
        compare("a directory of 200 stores", folder, directory, chosen.rounds)
    with scratch() as folder:
        directory = query(folder, chosen.keys)
        compare(f"a query with {chosen.keys} keys", folder, directory, chosen.rounds)


if __name__ == "__main__":
    main()
