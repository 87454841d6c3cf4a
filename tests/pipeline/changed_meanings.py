"""More changes of queries: what a plan says in other places than its own text, and what it does not say at all.

Subqueries, options of functions, the session's time zone, and constants that Python functions read. Spark starts with
every one of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BooleanType, LongType

from pipeline.changed_queries import CASES, Case, Query, sums, timed, windows

__all__ = ["EVERY_CASE"]

ZONE = "spark.sql.session.timeZone"


# ---- subqueries ----


def with_tables(events: DataFrame) -> DataFrame:
    events.sparkSession.range(12).createOrReplaceTempView("ids")
    events.sparkSession.range(6, 30).createOrReplaceTempView("later_ids")
    return events


def kept_if(condition: str) -> Query:
    return Query(lambda events: sums(with_tables(events).where(F.expr(condition))))


def looked_up(value: str) -> Query:
    return Query(lambda events: sums(with_tables(events).withColumn("value", F.expr(value))))


def _subqueries() -> Iterator[Case]:
    exists = kept_if("EXISTS (SELECT 1 FROM ids WHERE id = value)")
    of_two = "EXISTS (SELECT 1 FROM ids AS a JOIN later_ids AS b ON a.id = b.id - 6 WHERE {}.id = value)"
    for name, before, after in (
        ("subquery's condition", exists, "EXISTS (SELECT 1 FROM ids WHERE id > value)"),
        ("subquery on another table", exists, "EXISTS (SELECT 1 FROM later_ids WHERE id = value)"),
        ("subquery with another filter", exists, "EXISTS (SELECT 1 FROM ids WHERE id = value AND id > 5)"),
        ("subquery denied", exists, "NOT EXISTS (SELECT 1 FROM ids WHERE id = value)"),
        ("subquery on another outer column", exists, "EXISTS (SELECT 1 FROM ids WHERE id = at % 20)"),
        ("subquery with a column of another table", kept_if(of_two.format("a")), of_two.format("b")),
        (
            "correlated IN",
            kept_if("value IN (SELECT id FROM ids WHERE id < at)"),
            "value IN (SELECT id + 5 FROM ids WHERE id < at)",
        ),
    ):
        yield Case(name, before, kept_if(after), ("filter-below-state",), "wrong")
    yield Case(
        "correlated scalar subquery",
        looked_up("(SELECT max(id) FROM ids WHERE id = value)"),
        looked_up("(SELECT max(id) + 1 FROM ids WHERE id = value)"),
        ("aggregate-changed",),
        "wrong",
    )
    yield Case("the same subquery", exists, kept_if("EXISTS (SELECT 1 FROM ids WHERE id = value)"), (), "right")


# ---- options of functions ----


def parsed(function: Callable[[Column], Column]) -> Query:
    """Grouped by the day in a text that the function reads."""

    def query(events: DataFrame) -> DataFrame:
        day = F.format_string("%02d/02/2023", F.expr("value % 9 + 1"))
        return events.groupBy(function(day).alias("day")).agg(F.count("*").alias("n"))

    return Query(query)


def from_json(form: str, **more: str) -> Query:
    options = {"dateFormat": form, **more}
    return parsed(lambda day: F.from_json(F.concat(F.lit('{"d":"'), day, F.lit('"}')), "d DATE", options)["d"])


def _options() -> Iterator[Case]:
    days, months = "dd/MM/yyyy", "MM/dd/yyyy"
    yield Case("format of from_json", from_json(days), from_json(months), ("key-changed",), "wrong")
    yield Case(
        "format of from_csv",
        parsed(lambda day: F.from_csv(day, "d DATE", {"dateFormat": days})["d"]),
        parsed(lambda day: F.from_csv(day, "d DATE", {"dateFormat": months})["d"]),
        ("key-changed",),
        "wrong",
    )
    yield Case(
        "format of to_json",
        parsed(lambda day: F.to_json(F.struct(F.to_date(day, days)), {"dateFormat": days})),
        parsed(lambda day: F.to_json(F.struct(F.to_date(day, days)), {"dateFormat": months})),
        ("key-changed",),
        "wrong",
    )
    yield Case("the same options", from_json(days, mode="FAILFAST"), from_json(days, mode="FAILFAST"), (), "right")


# ---- the time zone of the session ----


def in_windows(events: DataFrame) -> DataFrame:
    """The time is read within the windows, of which there are several for a row."""
    time = F.to_timestamp(F.concat(F.lit("2023-11-14 22:13:"), F.expr("value + 10")))
    return events.groupBy(F.window(time, "30 seconds", "15 seconds")).agg(F.count("*").alias("n"))


def _zones() -> Iterator[Case]:
    def case(name: str, query: Callable[[DataFrame], DataFrame], found: str, quick: bool = False) -> Case:
        tokyo = Query(query, conf={ZONE: "Asia/Tokyo"})
        return Case(name, Query(query), tokyo, (found,) if found else (), "wrong" if found else "right", quick)

    def by(key: str) -> Callable[[DataFrame], DataFrame]:
        return lambda events: timed(events).groupBy(F.expr(f"{key} AS k")).agg(F.count("*").alias("n"))

    yield case("zone of to_date", by("to_date(time)"), "key-changed", quick=True)
    yield case("zone of hour", by("hour(time)"), "key-changed")
    yield case("zone of a cast to text", by("CAST(time AS STRING)"), "key-changed")
    yield case("zone of a cast within a struct", by("CAST(struct(time) AS STRING)"), "key-changed")
    yield case("zone of to_json", by("to_json(struct(time))"), "key-changed")
    yield case(
        "zone of a timestamp in SQL",
        lambda events: sums(timed(events).where("time > TIMESTAMP '2023-11-14 22:13:25'")),
        "filter-below-state",
    )
    yield case(
        "zone of a timestamp in text",
        lambda events: sums(timed(events).where("time > '2023-11-14 22:13:25'")),
        "filter-below-state",
    )
    yield Case(
        "zone of a time in sliding windows",
        Query(in_windows),
        Query(in_windows, conf={ZONE: "Asia/Tokyo"}),
        ("key-changed", "filter-below-state"),
        "starts",
    )
    yield case("zone without effect", by("CAST(value % 3 AS STRING)"), "")
    yield case("zone of windows", windows, "")
    yield case("zone of seconds", by("unix_timestamp(time + INTERVAL 5 SECONDS)"), "")


# ---- constants that Python functions read ----


@dataclass(frozen=True)
class Limits:
    least: int


def kept_by(allowed: Any) -> Any:
    @F.udf(BooleanType())
    def is_allowed(value):  # type: ignore[no-untyped-def]  # Spark reads hints, and knows few
        return value in allowed

    return is_allowed


def scaled_by(pattern: Any) -> Any:
    @F.udf(LongType())
    def scale(value, pattern=pattern):  # type: ignore[no-untyped-def]
        return 2 if pattern.search(str(value)) else 1

    return scale


def at_least(limits: Limits, value: Any) -> Any:
    return max(value, limits.least)


def lifted_by(lift: Any) -> Any:
    @F.udf(LongType())
    def lifted(value):  # type: ignore[no-untyped-def]
        return lift(value)

    return lifted


SMALL, LARGE = kept_by({1, 2, 3, 4, 5, 6}), kept_by({4, 5, 6, 7, 8, 9})
SMALL_AGAIN = kept_by({6, 5, 4, 3, 2, 1})
EVEN, ODD = scaled_by(re.compile("[02468]$")), scaled_by(re.compile("[13579]$"))
LIFTED, HIGHER, LIFTED_AGAIN = (lifted_by(partial(at_least, Limits(least))) for least in (3, 30, 3))


def _constants() -> Iterator[Case]:
    def kept(function: Any) -> Query:
        return Query(lambda events: sums(events.where(function("value"))))

    def made(function: Any) -> Query:
        return Query(lambda events: sums(events.withColumn("value", function("value"))))

    yield Case("set that a function reads", kept(SMALL), kept(LARGE), ("filter-below-state",), "wrong")
    yield Case("default of a function", made(EVEN), made(ODD), ("aggregate-changed",), "wrong")
    yield Case("argument of a partial", made(LIFTED), made(HIGHER), ("aggregate-changed",), "wrong")
    yield Case("the same set", kept(SMALL), kept(SMALL_AGAIN), (), "right")
    yield Case("the same partial", made(LIFTED), made(LIFTED_AGAIN), (), "right")


EVERY_CASE = [*CASES, *_subqueries(), *_options(), *_zones(), *_constants()]
