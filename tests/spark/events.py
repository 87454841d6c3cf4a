"""The events that the workloads read: the same in every run, some late, some too late."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

__all__ = ["EPOCH", "LATENESS", "ROWS", "SECONDS", "Event", "event_file", "events", "files_of"]

EPOCH = 1_700_000_000
"""The event time of the first batch, in seconds."""
SECONDS = 10
"""How far event time moves in a batch."""
ROWS = 30
LATENESS = "20 seconds"
"""The delay of the watermark."""

_LATE = dict.fromkeys((3, 13, 23), 15) | dict.fromkeys((7, 17), 90)


class Event(NamedTuple):
    """One row of input; `at` is its event time in seconds."""

    at: int
    key: str
    value: int


def events(source: str, batch: int) -> list[Event]:
    """The rows of one batch: three come late but before the watermark, two too late; keys fall silent in turn."""
    chance = random.Random(f"{source} {batch}")
    rows = []
    for number in range(ROWS):
        second = batch * SECONDS + chance.randrange(SECONDS) - _LATE.get(number, 0)
        rows.append(Event(EPOCH + max(0, second), f"k{(batch + chance.randrange(4)) % 9}", chance.randrange(20)))
    return rows


def files_of(*sources: str) -> Callable[[Path, int], None]:
    """A function that writes the first n batches into a folder, a file per source and batch; call it again for more."""

    def write(folder: Path, batches: int) -> None:
        for source in sources:
            (folder / source).mkdir(parents=True, exist_ok=True)
            for batch in range(batches):
                if not event_file(folder / source, batch).exists():
                    _write(event_file(folder / source, batch), events(source, batch), EPOCH + batch)

    return write


def event_file(folder: Path, batch: int) -> Path:
    """Where the events of a batch lie."""
    return folder / f"{batch:05}.json"


def _write(file: Path, rows: list[Event], modified: int) -> None:
    draft = file.with_name(f".{file.name}")
    draft.write_text("".join(json.dumps(row._asdict()) + "\n" for row in rows))
    # The file source takes files in the order of their times.
    os.utime(draft, (modified, modified))
    draft.rename(file)
