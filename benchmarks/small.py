"""A checkpoint of 1 KiB against the bare durable writes that it consists of, and in memory.

    python -m benchmarks.small [--rounds N] [--bytes N]

Goals: on disk at most twice the bare writes (the manifest: temporary file, write, fsync, link, unlink, fsync of the
folder; the hint: temporary file, write, rename), of as many bytes; in memory under a millisecond. One of the pairs is
32 checkpoints against 32 times the writes. The event loop's manager is shown for comparison: its checkpoint goes
through the codec, and with retention the old ones are pruned too.
"""

# Plain os calls: they are what is measured.
# ruff: noqa: PTH105, PTH108

from __future__ import annotations

import argparse
import itertools
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from benchmarks.pairs import Comparison, alternate, milliseconds, print_table, verdict
from benchmarks.places import scratch

from holdfast import Checkpointer, CheckpointManager, KeepPolicy, Repository
from holdfast import open as open_repository
from holdfast.decide.schedule import Schedule

BATCH = 32
ON_DISK, IN_MEMORY = 2.0, 0.001


class BareWrites:
    """The system calls of one checkpoint's writes, and nothing else; the folder is open already."""

    def __init__(self, folder: Path, manifest: int, hint: int) -> None:
        self._manifest, self._hint = b"m" * manifest, b"h" * hint
        self._temporaries, self._folder = folder / "temporaries", folder / "checkpoints"
        self._temporaries.mkdir(parents=True)
        self._folder.mkdir()
        self._fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        self._numbers = itertools.count()

    def once(self) -> None:
        number = next(self._numbers)
        temporary, name = f"{self._temporaries}/{number}", f"{self._folder}/{number:010}.json"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        os.write(fd, self._manifest)
        os.fsync(fd)
        os.link(temporary, name)
        os.fsync(self._fd)
        os.close(fd)
        os.unlink(temporary)
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        os.write(fd, self._hint)
        os.replace(temporary, f"{self._folder}/latest")
        os.close(fd)


def saving(run: Checkpointer, size: int) -> Callable[[], None]:
    draw = random.Random(1)

    def save() -> None:
        draft = run.begin(0 if run.tip is None else run.tip.epoch + 1)
        draft.save_driver_state("state", draw.randbytes(size))
        run.save_manifest(draft)

    return save


def managing(manager: CheckpointManager, stream: str, size: int) -> Callable[[], None]:
    draw = random.Random(1)
    state = manager.register(stream, "state", {"bytes": b""})
    manager.recover(stream)
    numbers = itertools.count()

    def take() -> None:
        state["bytes"] = draw.randbytes(size)
        manager.on_event(stream, next(numbers))
        manager.checkpoint(stream)

    return take


def times(count: int, act: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        for _ in range(count):
            act()

    return run


def each(act: Callable[[], None], count: int) -> float:
    """The median of single runs, in seconds."""
    spent = []
    for _ in range(count):
        began = time.perf_counter()
        act()
        spent.append(time.perf_counter() - began)
    return median(spent)


def written(repository: Repository) -> tuple[int, int]:
    """The bytes of the last manifest and of the hint."""
    sizes = {info.key: info.size for info in repository.store.list("pipelines/plain/")}
    return [size for key, size in sizes.items() if "/checkpoints/" in key][-1], sizes["pipelines/plain/latest"]


def on_disk(folder: Path, size: int, rounds: int) -> list[tuple[object, ...]]:
    repository = open_repository(str(folder / "repository"), create=True)
    only_on_demand = Schedule()
    with (
        repository.pipeline("plain").recover() as run,
        CheckpointManager(repository, every=only_on_demand, keep=KeepPolicy()) as keeping,
        CheckpointManager(repository, every=only_on_demand) as pruning,
    ):
        save = saving(run, size)
        save()
        bare = times(BATCH, BareWrites(folder / "bare", *written(repository)).once)
        rows = [("checkpoint, file://", *cells(alternate(times(BATCH, save), bare, rounds), ON_DISK))]
        for name, manager in (("manager, all kept", keeping), ("manager, last 10 kept", pruning)):
            take = managing(manager, name.replace(", ", "-").replace(" ", "-"), size)
            rows.append((f"{name}, file://", *cells(alternate(times(BATCH, take), bare, rounds), None)))
    return rows


def cells(found: Comparison, goal: float | None) -> tuple[object, ...]:
    return (
        found.wall,
        found.cpu,
        milliseconds(found.first / BATCH),
        milliseconds(found.second / BATCH),
        "" if goal is None else f"{goal:g} at most",
        "" if goal is None else verdict(found.wall.median <= goal),
    )


def in_memory(size: int, count: int) -> list[tuple[object, ...]]:
    repository = open_repository("memory://", create=True)
    with (
        repository.pipeline("plain").recover() as run,
        CheckpointManager(repository, every=Schedule(), keep=KeepPolicy()) as manager,
    ):
        plain, managed = each(saving(run, size), count), each(managing(manager, "managed", size), count)
    goal = (f"under {milliseconds(IN_MEMORY)}",)
    return [
        ("checkpoint, memory://", milliseconds(plain), *goal, verdict(plain < IN_MEMORY)),
        ("manager, all kept, memory://", milliseconds(managed), "", ""),
    ]


def main() -> None:
    options = argparse.ArgumentParser(description="a small checkpoint against its bare durable writes")
    options.add_argument("--rounds", type=int, default=21)
    options.add_argument("--bytes", type=int, default=1024)
    chosen = options.parse_args()

    with scratch() as folder:
        rows = on_disk(folder, chosen.bytes, chosen.rounds)
    print_table(
        f"a checkpoint of {chosen.bytes} bytes, {chosen.rounds} pairs of {BATCH}; time over time, median (quartiles)",
        ("", "wall", "CPU", "one", "its bare writes", "goal", ""),
        rows,
    )
    print_table(
        "the same in memory, median of 2000 single ones", ("", "one", "goal", ""), in_memory(chosen.bytes, 2000)
    )


if __name__ == "__main__":
    main()
