"""A verified restore of a Spark checkpoint beside `cp -r && sync` of the same directory, rclone and restic.

    python -m benchmarks.spark_restore [--rounds N] [--megabytes N]

Goals: at most 1.5 times `cp -r && sync`; faster than rclone and restic where they are installed. Few large tables and
many small deltas, as RocksDB leaves them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
from pathlib import Path

from benchmarks.pairs import alternate, milliseconds, print_table, verdict
from benchmarks.places import scratch
from tests.spark.directories import ROCKSDB, MadeDirectory

from holdfast import open as open_repository
from holdfast.checkpoint import Checkpoint
from holdfast.spark.capture import Capturer, Taken
from holdfast.store.local_directory import LocalDirectory

GOAL = 1.5
PASSWORD = {"RESTIC_PASSWORD": "benchmark"}


def make(root: Path, megabytes: int) -> MadeDirectory:
    """A directory whose snapshots name large tables; deltas after them are small and many."""
    directory = MadeDirectory(root, provider=ROCKSDB, partitions=100, stores=("left", "right"))
    directory.batch()
    directory.table_bytes = megabytes * 1024 * 1024 // 200
    directory.snapshot()
    for _ in range(9):
        directory.batch()
    return directory


def run(*command: str | Path, env: dict[str, str] | None = None) -> None:
    subprocess.run([str(part) for part in command], check=True, capture_output=True, env={**os.environ, **(env or {})})


def main() -> None:
    options = argparse.ArgumentParser(description="restore beside copying")
    options.add_argument("--rounds", type=int, default=11)
    options.add_argument("--megabytes", type=int, default=400)
    chosen = options.parse_args()
    with scratch() as folder:
        directory = make(folder / "checkpoint", chosen.megabytes)
        pipeline = open_repository(str(folder / "repository"), create=True).pipeline("orders")
        capturer = Capturer(pipeline.records, LocalDirectory(directory.root))
        assert isinstance(capturer.take(known=directory.next_batch), Taken)
        capturer.close()
        checkpoint = pipeline.latest()
        assert isinstance(checkpoint, Checkpoint)
        size = f"{len(checkpoint.manifest.files)} files, {checkpoint.bytes / 1e6:.0f} MB"
        place = folder / "place"
        # What is compared holds the same files: the cut, and not what Spark keeps beside it.
        checkpoint.restore(str(folder / "cut"))

        def tidy() -> None:
            shutil.rmtree(place, ignore_errors=True)

        def restore() -> None:
            checkpoint.restore(str(place))

        def copy() -> None:
            run("cp", "-r", folder / "cut", place)
            run("sync")

        others = {"cp -r && sync": (copy, GOAL)}
        if shutil.which("rclone"):

            def rclone() -> None:
                run("rclone", "copy", folder / "cut", place, "--local-no-check-updated")
                run("sync")

            others["rclone copy && sync"] = (rclone, 1.0)
        if shutil.which("restic"):
            run("restic", "init", "--repo", folder / "restic", env=PASSWORD)
            run("restic", "backup", "--repo", folder / "restic", folder / "cut", env=PASSWORD)

            def restic() -> None:
                run("restic", "restore", "latest", "--repo", folder / "restic", "--target", place, env=PASSWORD)
                run("sync")

            others["restic restore && sync"] = (restic, 1.0)
        rows = []
        for name, (other, goal) in others.items():
            found = alternate(restore, other, chosen.rounds, tidy=tidy)
            met = verdict(found.wall.median <= goal)
            rows.append((name, found.wall, milliseconds(found.first), milliseconds(found.second), f"<= {goal}", met))
    print_table(
        f"restore of {size}, verified; over the other, {chosen.rounds} pairs",
        ("beside", "wall, median (quartiles)", "ours", "theirs", "goal", ""),
        rows,
    )


if __name__ == "__main__":
    main()
