"""Which expressions need the time zone of the session: those that do, and none that only carry it."""

from __future__ import annotations

from typing import Any

import pytest

from decide.test_expressions import Flat, column, literal, node
from holdfast.decide.expressions import parse_tree
from holdfast.decide.zones import may_depend_on_zone, needs_zone, zone_name


def needs(tree: Flat, *types: str) -> bool:
    return needs_zone(parse_tree(tree, {}), types)


def zoned(kind: str, *children: Flat, **says: Any) -> Flat:
    return node(kind, *children, timeZoneId="UTC", **says)


A = column("a", 1)


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ("timestamp", "date", True),
        ("timestamp", "string", True),
        ("string", "timestamp", True),
        ("date", "timestamp", True),
        ("timestamp", "timestamp_ntz", True),
        ("timestamp_ntz", "timestamp", True),
        ("array<timestamp>", "array<string>", True),
        ("struct<a:timestamp>", "string", True),
        ("variant", "string", True),
        ("timestamp", "bigint", False),
        ("bigint", "timestamp", False),
        ("decimal(20,6)", "timestamp", False),
        ("void", "timestamp", False),
        ("timestamp", "timestamp", False),
        ("timestamp_ntz", "date", False),
        ("date", "string", False),
        ("string", "date", False),
        ("binary", "string", False),
        ("array<bigint>", "array<string>", False),
    ],
)
def test_a_cast_needs_the_zone_between_instants_and_what_people_read(before: str, after: str, found: bool) -> None:
    assert needs(zoned("Cast", A, dataType=after), after, before) == found
    assert needs(zoned("ParseToTimestamp", A), after, before) == found


def test_a_cast_that_only_counts_seconds_is_not_even_asked_for_its_types() -> None:
    def asked(tree: Flat) -> bool:
        return may_depend_on_zone(parse_tree(tree, {}))

    assert not asked(zoned("Cast", A, dataType="long"))
    assert not asked(node("Upper", A))
    assert asked(zoned("Cast", A, dataType="string"))
    assert asked(zoned("Hour", A))


@pytest.mark.parametrize(
    ("tree", "types", "found"),
    [
        (zoned("Hour", A), ("int", "timestamp"), True),
        (zoned("Hour", A), ("int", "timestamp_ntz"), False),
        (zoned("CurrentDate"), ("date",), True),
        (zoned("LocalTimestamp"), ("timestamp_ntz",), True),
        (zoned("FromUnixTime", A, A), ("string", "bigint", "string"), True),
        (zoned("UnixTimestamp", A, A), ("bigint", "string", "string"), True),
        (zoned("UnixTimestamp", A, A), ("bigint", "timestamp", "string"), False),
        (zoned("ParseToDate", A, A), ("date", "string", "string"), True),
        (zoned("ParseToDate", A), ("date", "string"), False),
        (zoned("StructsToJson", A), ("string", "struct<a:array<timestamp>>"), True),
        (zoned("StructsToJson", A), ("string", "struct<a:bigint>"), False),
        (zoned("JsonToStructs", A), ("struct<a:timestamp>", "string"), True),
        (zoned("JsonToStructs", A), ("struct<a:timestamp_ntz,b:string>", "string"), False),
        (zoned("Sequence", A, A), ("array<bigint>", "bigint", "bigint"), False),
        (zoned("NobodyKnows", A), ("string", "string"), True),
    ],
)
def test_a_function_needs_the_zone_unless_it_is_known_not_to(tree: Flat, types: tuple[str, ...], found: bool) -> None:
    assert needs(tree, *types) == found


@pytest.mark.parametrize(
    ("interval", "found"),
    [
        (literal(5_000_000, "interval second"), False),
        (node("UnaryMinus", literal(7_200_000_000, "interval hour")), False),
        (literal(86_400_000_000, "interval hour"), True),
        (literal(-86_400_000_000, "interval day"), True),
        (literal(1, "interval month"), True),
        (literal("1 days", "interval"), True),
        (A, True),
    ],
)
def test_only_days_and_more_are_longer_in_some_zones(interval: Flat, found: bool) -> None:
    types = ("timestamp", "timestamp", "interval")
    assert needs(zoned("TimestampAddInterval", A, interval), *types) == found


def test_utc_has_one_name() -> None:
    assert {zone_name(name) for name in ("UTC", "Etc/UTC", "GMT", "Z", "+00:00")} == {"UTC"}
    assert zone_name("Europe/London") == "Europe/London"
