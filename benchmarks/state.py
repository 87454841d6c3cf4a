"""Large state on disk, saved, verified and restored, against hashing and moving the same bytes with two threads.

    python -m benchmarks.state [--rounds N] [--artifacts N] [--mib N]

Goal: 0.70 of the bare speed or more, each way. Bare saving is SHA-256, write and fsync of each artifact; bare reading
is read and SHA-256; bare restoring is read, SHA-256, write and fsync. All have two threads and work in pieces of 8 MiB,
or on what is in memory already. What is read was just written: the page cache is warm for both ways. What is written
goes to the disk for both. Holdfast works as it does by default, on four artifacts at a time; saving also with two.
Restoring is shown beside bare reading too, for scale.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from benchmarks.pairs import Comparison, alternate, milliseconds, print_table, verdict
from benchmarks.places import scratch

from holdfast import Checkpoint, Checkpointer, Limits, PartitionState, Repository
from holdfast import open as open_repository

GOAL = 0.7
PIECE = 8 * 1024 * 1024
MIB = 1024 * 1024


class Bare:
    """What the same bytes cost without a repository: two threads, an artifact at a time each."""

    def __init__(self, folder: Path, bodies: list[bytes], pool: ThreadPoolExecutor) -> None:
        self._folder = folder
        self._bodies = bodies
        self._pool = pool

    def save(self) -> None:
        self._folder.mkdir()
        self._each(lambda n: self._write(self._folder / str(n), self._bodies[n]))

    def read(self) -> None:
        self._each(self._read)

    def restore(self, into: Path) -> None:
        into.mkdir()
        self._each(lambda n: self._copy(n, into / str(n)))

    def remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _each(self, act: Callable[[int], None]) -> None:
        for _ in self._pool.map(act, range(len(self._bodies))):
            pass

    def _write(self, path: Path, body: bytes) -> None:
        hashlib.sha256(body).digest()
        with path.open("wb", buffering=0) as file:
            file.write(body)
            os.fsync(file.fileno())

    def _read(self, number: int) -> None:
        digest = hashlib.sha256()
        with (self._folder / str(number)).open("rb", buffering=0) as file:
            while piece := file.read(PIECE):
                digest.update(piece)
        digest.digest()

    def _copy(self, number: int, target: Path) -> None:
        digest = hashlib.sha256()
        with (self._folder / str(number)).open("rb", buffering=0) as file, target.open("wb", buffering=0) as copy:
            while piece := file.read(PIECE):
                digest.update(piece)
                copy.write(piece)
            os.fsync(copy.fileno())
        digest.digest()


def save(run: Checkpointer, bodies: list[bytes]) -> None:
    draft = run.begin(0 if run.tip is None else run.tip.epoch + 1)
    run.save_partitions(draft, (PartitionState("count", n, body) for n, body in enumerate(bodies)))
    run.save_manifest(draft)


def latest(repository: Repository) -> Checkpoint:
    found = repository.pipeline("orders").latest()
    assert found is not None
    return found


def compare(folder: Path, bodies: list[bytes], rounds: int) -> list[tuple[object, ...]]:
    rows = []
    with ThreadPoolExecutor(2) as pool:
        bare = Bare(folder / "bare", bodies, pool)
        # Each save goes into a repository of its own: the same bytes again would only be referred to.
        repository = folder / "repository"

        def save_to_new(limits: Limits | None = None) -> None:
            with open_repository(str(repository)).pipeline("orders").recover(limits=limits) as run:
                save(run, bodies)

        def clear() -> None:
            shutil.rmtree(repository, ignore_errors=True)
            bare.remove()
            open_repository(str(repository), create=True)

        clear()
        two = Limits(concurrency=2)
        for name, limits in (("save", None), ("save, two at a time", two)):
            found = alternate(partial(save_to_new, limits), bare.save, rounds, tidy=clear)
            rows.append((name, "SHA-256, write, fsync", *cells(found)))
        save_to_new()
        bare.save()
        checkpoint = latest(open_repository(str(repository)))
        assert not checkpoint.verify().damaged
        rows.append(("verify", "read, SHA-256", *cells(alternate(checkpoint.verify, bare.read, rounds))))

        target = folder / "restored"
        read_and_write = alternate(
            lambda: checkpoint.restore(target),
            lambda: bare.restore(target),
            rounds,
            tidy=lambda: shutil.rmtree(target),
        )
        rows.append(("restore to files", "read, SHA-256, write, fsync", *cells(read_and_write)))
        read_alone = alternate(
            lambda: checkpoint.restore(target),
            bare.read,
            rounds,
            tidy=lambda: shutil.rmtree(target, ignore_errors=True),
        )
        rows.append(("restore to files", "read, SHA-256 alone", *cells(read_alone, None)))
    return rows


def cells(found: Comparison, goal: float | None = GOAL) -> tuple[object, ...]:
    speed = found.wall.inverse
    return (
        speed,
        found.cpu.inverse,
        milliseconds(found.first),
        milliseconds(found.second),
        "" if goal is None else f"{goal} at least",
        "" if goal is None else verdict(speed.median >= goal),
    )


def main() -> None:
    options = argparse.ArgumentParser(description="large state against hashing and moving the same bytes")
    options.add_argument("--rounds", type=int, default=11)
    options.add_argument("--artifacts", type=int, default=16)
    options.add_argument("--mib", type=int, default=64, help="size of each artifact")
    chosen = options.parse_args()

    bodies = [os.urandom(chosen.mib * MIB) for _ in range(chosen.artifacts)]
    with scratch() as folder:
        rows = compare(folder, bodies, chosen.rounds)
    print_table(
        f"{chosen.artifacts} artifacts of {chosen.mib} MiB on file://, {chosen.rounds} pairs, page cache warm; "
        "speed, median (quartiles)",
        ("", "against", "wall", "CPU", "Holdfast", "bare", "goal", ""),
        rows,
    )


if __name__ == "__main__":
    main()
