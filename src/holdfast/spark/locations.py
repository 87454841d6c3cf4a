"""Where files lie, as Spark's logs of files write it (encoded) and as people do (plain), and how that is mapped.

Spark tells files apart by this text alone, so what is written must be, letter for letter, what Spark would write.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote, unquote

from holdfast.errors import BadValue

__all__ = ["Location", "PathMap", "below", "read_entry", "read_plain", "written"]

ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(/.*)?")
FAMILIES = {"s3a": "s3", "s3n": "s3", "abfss": "abfs", "wasbs": "wasb"}
"""Schemes that mean the same place as another one."""
LEGAL = frozenset(string.ascii_letters + string.digits + "_-!.~'()*,;:$&+=@")
"""What Java leaves as it is in the path of a URI; beyond ASCII it is everything but blanks and control characters."""


class Location(NamedTuple):
    """A place in plain words: nothing in it is encoded. A path without a scheme is a local one."""

    scheme: str
    authority: str
    segments: tuple[str, ...]


def read_plain(text: str) -> Location:
    """A place as people name it, and the options of Spark's readers and writers. Raises BadValue for a relative one."""
    if text.startswith("/"):
        return Location("file", "", _segments(text))
    found = ADDRESS.fullmatch(text)
    if found is None:
        raise BadValue(f"path {text!r}", "write it from the root: /data/in, or with its scheme: s3a://bucket/in")
    return Location(found[1].lower(), found[2] or "", _segments(found[3] or ""))


def read_entry(text: str) -> Location:
    """A place as it stands in a log."""
    place = read_plain(text)
    return place._replace(segments=tuple(map(unquote, place.segments)))


def written(place: Location) -> str:
    """A place as people write it."""
    path = "/" + "/".join(place.segments)
    return path if place.scheme == "file" else f"{place.scheme}://{place.authority}{path}"


def below(place: Location, root: Location) -> bool:
    """Whether a place is a root or lies below it; s3:// and s3a:// are the same."""
    return (
        _family(place.scheme) == _family(root.scheme)
        and place.authority == root.authority
        and place.segments[: len(root.segments)] == root.segments
    )


@dataclass(frozen=True)
class PathMap:
    """Places that have moved, old to new, in plain words. Of several that fit, the one with the longest path counts."""

    rules: tuple[tuple[Location, Location], ...]

    @classmethod
    def of(cls, mapping: Mapping[str, str]) -> PathMap:
        return cls(tuple((read_plain(old), read_plain(new)) for old, new in mapping.items()))

    def moved(self, entry: str) -> str | None:
        """The new text of an entry of a log; None if no rule fits.

        What lies below the place keeps its own letters. A scheme that the rule does not change stays as the log has it:
        a query that reads s3a://… would not know s3://… again.
        """
        if not ADDRESS.fullmatch(entry):
            return None
        place = read_entry(entry)
        fitting = [rule for rule in self.rules if below(place, rule[0])]
        if not fitting:
            return None
        old, new = max(fitting, key=lambda rule: len(rule[0].segments))
        rest = read_plain(entry).segments[len(old.segments) :]
        path = "/" + "/".join([*map(_encoded, new.segments), *rest])
        if new.scheme != old.scheme:
            return f"{new.scheme}://{new.authority}{path}"
        slashes = "//" if entry.startswith("//", entry.index(":") + 1) else ""
        return f"{entry.partition(':')[0]}:{slashes}{new.authority}{path}"


def _segments(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part)


def _family(scheme: str) -> str:
    return FAMILIES.get(scheme, scheme)


def _encoded(segment: str) -> str:
    return "".join(char if _is_legal(char) else quote(char, safe="") for char in segment)


def _is_legal(char: str) -> bool:
    return char in LEGAL if char.isascii() else unicodedata.category(char) not in ("Zs", "Zl", "Zp", "Cc")
