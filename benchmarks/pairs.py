"""Fair comparison on a noisy machine: two things run by turns, and the ratios of the pairs are what counts."""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

__all__ = ["Comparison", "Ratio", "alternate", "milliseconds", "print_table", "verdict"]


@dataclass(frozen=True)
class Ratio:
    """How long the first took over the second: the median of the pairs and their quartiles."""

    median: float
    q1: float
    q3: float

    @classmethod
    def of(cls, first: Sequence[float], second: Sequence[float]) -> Ratio:
        q1, middle, q3 = quantiles([a / b for a, b in zip(first, second, strict=True)], n=4, method="inclusive")
        return cls(middle, q1, q3)

    @property
    def inverse(self) -> Ratio:
        """The speed of the first as a share of the second's."""
        return Ratio(1 / self.median, 1 / self.q3, 1 / self.q1)

    def __str__(self) -> str:
        return f"{self.median:.3f} ({self.q1:.3f} - {self.q3:.3f})"


@dataclass(frozen=True)
class Comparison:
    """The first over the second, and the median wall seconds of each."""

    wall: Ratio
    cpu: Ratio
    rounds: int
    first: float
    second: float


def alternate(
    a: Callable[[], object],
    b: Callable[[], object],
    rounds: int = 15,
    *,
    tidy: Callable[[], object] = lambda: None,
) -> Comparison:
    """Time `a` over `b` in pairs, the order turned in every second pair, after one round that is not counted.

    `tidy` runs after each of them, outside of the time.
    """
    times: dict[Callable[[], object], list[tuple[float, float]]] = {a: [], b: []}
    for run in (a, b):
        run()
        tidy()
    gc.collect()
    gc.disable()
    try:
        for pair in range(rounds):
            for run in (a, b) if pair % 2 == 0 else (b, a):
                times[run].append(_time(run))
                tidy()
    finally:
        gc.enable()
    wall, cpu = (Ratio.of([t[i] for t in times[a]], [t[i] for t in times[b]]) for i in (0, 1))
    return Comparison(wall, cpu, rounds, *(median(t[0] for t in times[run]) for run in (a, b)))


def _time(run: Callable[[], object]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), _cpu_seconds()
    result = run()
    spent = time.perf_counter() - wall, _cpu_seconds() - cpu
    del result  # giving memory back is not part of either
    return spent


def _cpu_seconds() -> float:
    """Of this process and of the programs that it has run to their end."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def verdict(met: bool) -> str:
    return "met" if met else "MISSED"


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds >= 0.1 else f"{seconds * 1000:.3g} ms"


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    table = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    print(title)
    for row in table:
        print("  " + "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
