"""The demo's data: orders that are the same on every machine, a file a minute, any of which can be made by itself."""

from __future__ import annotations

import json
import random
from pathlib import Path

__all__ = ["DAY", "LATENESS", "SCHEMA", "close_orders", "write_orders"]

SCHEMA = "id LONG, ts LONG, customer STRING, cents LONG"
LATENESS = "4 minutes"
"""No order comes as late as this, so none is dropped, wherever Spark cuts its batches."""

DAY = 1440
"""In minutes, and so in files."""
CUSTOMERS = 4000
MINUTE = 60
LATEST = 90
BEGINNING = 1_767_225_600
SEED = 20261116


def write_orders(folder: Path, number: int, rows: int) -> None:
    """Lay down the file of a minute; some of its orders come late, as orders do."""
    dice = random.Random(SEED + number)
    lines = []
    for row in range(rows):
        late = dice.randrange(LATEST) if dice.random() < 0.1 else 0
        at = BEGINNING + number * MINUTE + dice.randrange(MINUTE) - late
        customer = f"c-{min(int(dice.expovariate(4 / CUSTOMERS)), CUSTOMERS - 1):04d}"
        lines.append(_line(number * rows + row, at, customer, dice.randrange(100, 20_000)))
    _lay(folder / f"{number:05d}.json", lines)


def close_orders(folder: Path, number: int) -> int:
    """End the stream and give how many files that took: the first moves the time on by a day, and with the second
    every minute before it is put out. The orders of these files themselves never are.
    """
    for more in (0, 1):
        at = BEGINNING + (number + DAY) * MINUTE
        _lay(folder / f"{number + more:05d}.json", [_line(-1 - more, at, "nobody", 0)])
    return 2


def _line(number: int, at: int, customer: str, cents: int) -> str:
    return json.dumps({"id": number, "ts": at, "customer": customer, "cents": cents}, separators=(",", ":"))


def _lay(path: Path, lines: list[str]) -> None:
    """Whole or not at all: Spark lists the folder meanwhile, and passes over what begins with a dot."""
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}")
    hidden.write_text("\n".join(lines) + "\n")
    hidden.replace(path)
