"""Which expressions give other values in another time zone of the session.

Spark hands the zone to every cast and to every function on times, whether it has a use for it or not. If it counted
everywhere, a query would be another one on every machine with another zone; if it counted nowhere, days of one zone
would be mixed with those of another.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from holdfast.decide.expressions import Node

__all__ = ["may_depend_on_zone", "needs_zone", "zone_name"]

INSTANT = re.compile(r"\btimestamp\b")
"""A timestamp with the session's zone, also within a type; `timestamp_ntz` has none."""
ZONELESS = frozenset(
    {
        *("tinyint", "smallint", "int", "bigint", "float", "double", "boolean", "binary", "void"),
        *("byte", "short", "integer", "long"),
    }
)
"""Types that are cast to and from instants by counting seconds. Spark has two names for some."""
WRITTEN = frozenset(
    {"JsonToStructs", "StructsToJson", "CsvToStructs", "StructsToCsv", "XmlToStructs", "StructsToXml", "Sequence"}
)
"""Of any types: only with times in them is there something to be written in a zone."""
CASTS = frozenset({"ParseToDate", "ParseToTimestamp"})
"""Without a format these are casts."""
SECONDS_OF = frozenset({"UnixTimestamp", "ToUnixTimestamp"})
DAY = 86_400_000_000
UTC = frozenset(
    {
        *("UTC", "UCT", "GMT", "GMT0", "Zulu", "Universal", "Greenwich", "Z", "+00:00"),
        *("Etc/UTC", "Etc/UCT", "Etc/GMT", "Etc/GMT0", "Etc/Zulu", "Etc/Universal", "Etc/Greenwich"),
    }
)


def may_depend_on_zone(node: Node) -> bool:
    """Whether an expression has a zone, and may have a use for it: then `needs_zone` tells, which wants types."""
    if "timeZoneId" not in node.says:
        return False
    return node.kind != "Cast" or not _is_zoneless(str(node.says.get("dataType")))


def needs_zone(node: Node, types: Sequence[str]) -> bool:
    """Whether an expression that has a zone gives other values in another one.

    `types` are its own type and those of its children, as Spark writes them. What is not known to be without need of
    the zone counts as in need of it.
    """
    own, *children = types
    if node.kind == "Cast" or (node.kind in CASTS and len(children) == 1):
        return _cast_needs_zone(children[0], own)
    if node.kind in SECONDS_OF:
        return not INSTANT.search(children[0])
    if node.kind == "TimestampAddInterval" and _is_short(node.children[1]):
        return False
    if node.kind in WRITTEN:
        return any(INSTANT.search(each) or re.search(r"\bdate\b", each) for each in types)
    # On times without a zone alone a function needs none either.
    return any(map(INSTANT.search, types)) or not any("timestamp_ntz" in each for each in children)


def zone_name(zone: str) -> str:
    """A zone by one name: that of UTC differs from machine to machine."""
    return "UTC" if zone in UTC else zone


def _cast_needs_zone(before: str, after: str) -> bool:
    if before == after or _is_zoneless(before) or _is_zoneless(after):
        return False
    # What is in a variant is known only row by row.
    return "variant" in before or any(map(INSTANT.search, (before, after)))


def _is_zoneless(kind: str) -> bool:
    return kind in ZONELESS or kind.startswith(("decimal", "interval"))


def _is_short(interval: Node) -> bool:
    """Whether an interval is a constant of less than a day: only days are longer or shorter in some zones."""
    if interval.kind == "UnaryMinus":
        return _is_short(interval.children[0])
    value = str(interval.says.get("value"))
    kind = str(interval.says.get("dataType"))
    counted = interval.kind == "Literal" and kind.startswith("interval ") and re.fullmatch(r"-?\d+", value)
    return bool(counted) and not {"year", "month"} & set(kind.split()) and abs(int(value)) < DAY
