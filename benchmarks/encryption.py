"""An encrypted repository beside a plain one: the same state saved and restored by turns, on disk.

    python -m benchmarks.encryption [--rounds N] [--artifacts N] [--mib N]

Goal: 0.70 of the plain speed or more, each way. Large artifacts are objects of their own; small ones lie in packs. What
is read was just written: the page cache is warm for both. Each save goes into a repository of its own.
"""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path

from benchmarks.pairs import Comparison, alternate, milliseconds, print_table, verdict
from benchmarks.places import scratch

from holdfast import Key, PartitionState
from holdfast import open as open_repository

GOAL = 0.7
ROUNDS = 11
KIB = 1024
MIB = 1024 * KIB


class Kept:
    """One way to keep a state: in a repository with a key, or without."""

    def __init__(self, folder: Path, bodies: list[bytes], key: Key | None) -> None:
        self._bodies = bodies
        self._key = key
        self._repository = folder / ("encrypted" if key else "plain")
        self._restored = folder / f"{self._repository.name}-restored"

    def make(self) -> None:
        shutil.rmtree(self._repository, ignore_errors=True)
        open_repository(str(self._repository), create=True, key=self._key)

    def save(self) -> None:
        with open_repository(str(self._repository), key=self._key).pipeline("orders").recover() as run:
            draft = run.begin(0)
            run.save_partitions(draft, (PartitionState("count", n, body) for n, body in enumerate(self._bodies)))
            run.save_manifest(draft)

    def restore(self) -> None:
        found = open_repository(str(self._repository), key=self._key).pipeline("orders").latest()
        assert found is not None
        found.restore(self._restored)

    def tidy(self) -> None:
        shutil.rmtree(self._restored, ignore_errors=True)

    def stored(self) -> int:
        return sum(path.stat().st_size for path in self._repository.rglob("*") if path.is_file())


def compare(folder: Path, what: str, bodies: list[bytes], rounds: int) -> list[tuple[object, ...]]:
    encrypted, plain = Kept(folder, bodies, Key.generate()), Kept(folder, bodies, None)

    def make() -> None:
        encrypted.make()
        plain.make()

    def tidy() -> None:
        encrypted.tidy()
        plain.tidy()

    make()
    saved = alternate(encrypted.save, plain.save, rounds, tidy=make)
    encrypted.save()
    plain.save()
    restored = alternate(encrypted.restore, plain.restore, rounds, tidy=tidy)
    size = f"{encrypted.stored() / plain.stored():.4f}"
    return [(f"save {what}", *cells(saved), size), (f"restore {what}", *cells(restored), size)]


def cells(found: Comparison) -> tuple[object, ...]:
    speed = found.wall.inverse
    times = (milliseconds(found.first), milliseconds(found.second))
    return speed, found.cpu.inverse, *times, f"{GOAL} at least", verdict(speed.median >= GOAL)


def main() -> None:
    options = argparse.ArgumentParser(description="an encrypted repository beside a plain one")
    options.add_argument("--rounds", type=int, default=ROUNDS)
    options.add_argument("--artifacts", type=int, default=16, help="how many large artifacts")
    options.add_argument("--mib", type=int, default=32, help="size of each; the small ones hold a quarter of all that")
    chosen = options.parse_args()

    large = [os.urandom(chosen.mib * MIB) for _ in range(chosen.artifacts)]
    small = [os.urandom(64 * KIB) for _ in range(max(2, chosen.artifacts * chosen.mib * 4))]
    with scratch() as folder:
        rows = compare(folder, f"{len(large)} of {chosen.mib} MiB", large, chosen.rounds)
        rows += compare(folder, f"{len(small)} of 64 KiB", small, chosen.rounds)
    print_table(
        f"an encrypted repository beside a plain one on file://, {chosen.rounds} pairs; speed, median (quartiles)",
        ("", "wall", "CPU", "encrypted", "plain", "goal", "", "bytes stored"),
        rows,
    )


if __name__ == "__main__":
    main()
