"""The demo's data: orders that are the same on every machine, and the totals that a run of the query leaves behind."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

__all__ = ["Totals", "Verdict", "compare", "read_totals", "write_orders"]

SKUS = 400
SECONDS_PER_FILE = 20
BEGINNING = 1_767_225_600

Key: TypeAlias = tuple[str, str]
Totals: TypeAlias = dict[Key, tuple[int, int]]
"""For each minute and article: how many orders, and their cents."""


def write_orders(folder: Path, files: int, rows: int) -> int:
    """Write `files` files of `rows` orders each and give the number of orders; some come late, as orders do."""
    folder.mkdir(parents=True, exist_ok=True)
    dice = random.Random(20261116)
    for number in range(files):
        lines = []
        for row in range(rows):
            late = dice.randrange(0, 45) if dice.random() < 0.1 else 0
            at = BEGINNING + number * SECONDS_PER_FILE + dice.randrange(SECONDS_PER_FILE) - late
            sku = f"sku-{min(int(dice.expovariate(8 / SKUS)), SKUS - 1):03d}"
            order = {"id": number * rows + row, "ts": at, "sku": sku, "cents": dice.randrange(100, 20_000)}
            lines.append(json.dumps(order, separators=(",", ":")))
        (folder / f"{number:05d}.json").write_text("\n".join(lines) + "\n")
    return files * rows


def read_totals(folder: Path) -> Totals:
    """The last word of all batches on every minute and article."""
    totals: Totals = {}
    for path in sorted(folder.glob("batch-*.json")):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            totals[row["minute"], row["sku"]] = (row["orders"], row["cents"])
    return totals


class Verdict(NamedTuple):
    """What a run gave beside the truth, in orders."""

    orders: int
    lost: int
    doubled: int
    differing: int

    @property
    def good(self) -> bool:
        return self.lost == self.doubled == self.differing == 0


def compare(truth: Mapping[Key, tuple[int, int]], ours: Mapping[Key, tuple[int, int]]) -> Verdict:
    """Count the orders that are lost or doubled, and the totals that differ in any way."""
    lost = doubled = differing = 0
    for key in {*truth, *ours}:
        (expected, cents), (found, our_cents) = truth.get(key, (0, 0)), ours.get(key, (0, 0))
        lost += max(0, expected - found)
        doubled += max(0, found - expected)
        differing += (expected, cents) != (found, our_cents)
    return Verdict(sum(count for count, _ in ours.values()), lost, doubled, differing)
