"""How far the sources had got at a checkpoint, as numbers that can be drawn over time."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from holdfast.checkpoint import Checkpoint

__all__ = ["Course", "course_at", "position", "sample"]

_WHOLE = re.compile(r"-?[0-9]{1,18}")
_LSN = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")

T = TypeVar("T")


class Course(msgspec.Struct, kw_only=True, frozen=True):
    """The place of each source at one checkpoint: the sum over its partitions, None where it is no number."""

    slot: str
    epoch: int
    timestamp_ms: int
    sources: dict[str, int | None]


def course_at(checkpoint: Checkpoint) -> Course:
    """Reads the whole manifest: ask for a few, and keep what you get, since it never changes."""
    manifest = checkpoint.manifest
    places = {name: position(offset.offsets) for name, offset in sorted(manifest.source_offsets.items())}
    return Course(slot=str(checkpoint.slot), epoch=manifest.epoch, timestamp_ms=manifest.timestamp_ms, sources=places)


def position(offsets: Mapping[str, str]) -> int | None:
    """One number for where a source stands: offsets of partitions added up, a position in PostgreSQL's log as bytes."""
    total = 0
    for value in offsets.values():
        if _WHOLE.fullmatch(value):
            total += int(value)
        elif found := _LSN.fullmatch(value):
            total += (int(found[1], 16) << 32) + int(found[2], 16)
        else:
            return None
    return total if offsets else None


def sample(items: Sequence[T], most: int) -> list[T]:
    """At most so many of them, evenly spread, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    return [items[round(index * (len(items) - 1) / (most - 1))] for index in range(most)]
