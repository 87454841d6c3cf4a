"""Which decisions on epochs may go: those that no checkpoint could be gone on from with, and those that were joined."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from holdfast.decide.timeline import World, lineage

__all__ = ["Entry", "joined_elsewhere", "parse_entry", "removable"]

_ALONE = re.compile(r"(?P<g>\d{10})/(?P<first>\d{10})-\d{4}\.json")
_JOINED = re.compile(r"(?P<g>\d{10})/(?P<first>\d{10})-(?P<last>\d{10})\.[0-9a-z]+\.joined")


class Entry(NamedTuple):
    """One object of a ledger: who wrote it, and the epochs that it reaches from and to."""

    key: str
    generation: int
    first: int
    last: int


def parse_entry(key: str, name: str) -> Entry | None:
    """What an object is, by its name in the folder of a ledger; None if it is no part of one."""
    match = _ALONE.fullmatch(name) or _JOINED.fullmatch(name)
    if match is None:
        return None
    first = int(match["first"])
    return Entry(key, int(match["g"]), first, int(match.groupdict().get("last", first)))


def joined_elsewhere(some: Iterable[Entry], entries: Sequence[Entry]) -> Sequence[Entry]:
    """Those of some entries whose epochs a longer segment of the same generation holds as well."""
    return [entry for entry in some if any(_holds(other, entry) for other in entries)]


def _holds(other: Entry, entry: Entry) -> bool:
    if other.generation != entry.generation or other.first > entry.first or entry.last > other.last:
        return False
    is_longer = other.last - other.first > entry.last - entry.first
    return is_longer or (_is_alone(entry) and not _is_alone(other))


def _is_alone(entry: Entry) -> bool:
    return not entry.key.endswith(".joined")


def removable(world: World, entries: Iterable[Entry], oldest: int | None) -> Sequence[Entry]:
    """The entries that no start needs: those up to the oldest checkpoint that may be gone on from, and those of
    generations that the timeline has left. None: there is no checkpoint, and all may be needed.

    What a generation that has not begun might still write, or one that is newer than all that have, stays.
    """
    steps = lineage(world)
    if not steps:
        return []
    current, mine = steps[0][0], {generation for generation, _, _ in steps}
    return [
        entry
        for entry in entries
        if entry.generation <= current
        and (entry.generation not in mine or (oldest is not None and entry.last <= oldest))
    ]
