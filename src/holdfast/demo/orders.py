"""The demo's data: orders that are the same everywhere but for their day, a file a minute, each made by itself."""

from __future__ import annotations

import json
import random
from pathlib import Path

__all__ = ["CLOSING", "LATENESS", "MINUTE", "SCHEMA", "beginning", "close_orders", "write_orders"]

SCHEMA = "id LONG, ts LONG, customer STRING, cents LONG"
LATENESS = "4 minutes"
"""No order comes as late as this, so none is dropped, wherever Spark cuts its batches."""

CLOSING = 2
"""How many files it takes to end the stream."""
JUMP = 5
"""How many minutes that moves the time on: more than the lateness, so every minute before is over."""
CUSTOMERS = 4000
MINUTE = 60
LATEST = 90
SEED = 20261116


def beginning(files: int, now: float) -> int:
    """When the first of so many files begins, for the stream to have ended by now."""
    return (int(now) // MINUTE - files - JUMP) * MINUTE


def write_orders(folder: Path, number: int, rows: int, since: int, seconds: int = MINUTE) -> None:
    """Lay down the file of a minute, or of so many seconds; some of its orders come late, as orders do."""
    dice = random.Random(SEED + number)
    lines = []
    for row in range(rows):
        late = dice.randrange(LATEST) if dice.random() < 0.1 else 0
        at = since + dice.randrange(seconds) - late
        customer = f"c-{min(int(dice.expovariate(4 / CUSTOMERS)), CUSTOMERS - 1):04d}"
        lines.append(_line(number * rows + row, at, customer, dice.randrange(100, 20_000)))
    _lay(folder / f"{number:05d}.json", lines)


def close_orders(folder: Path, number: int, since: int) -> None:
    """End the stream: the first of the closing files moves the time on, and with the second every minute before is put
    out. The orders of these files themselves are not.
    """
    for more in range(CLOSING):
        _lay(folder / f"{number + more:05d}.json", [_line(-1 - more, since + JUMP * MINUTE, "nobody", 0)])


def _line(number: int, at: int, customer: str, cents: int) -> str:
    return json.dumps({"id": number, "ts": at, "customer": customer, "cents": cents}, separators=(",", ":"))


def _lay(path: Path, lines: list[str]) -> None:
    """Whole or not at all: Spark lists the folder meanwhile, and passes over what begins with a dot."""
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}")
    hidden.write_text("\n".join(lines) + "\n")
    hidden.replace(path)
