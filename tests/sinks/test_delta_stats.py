"""What a Delta table says of its files: readers that prune by it find every row."""

from __future__ import annotations

import datetime
import json
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.decide.chain import NOTHING
from holdfast.sinks.delta import Delta
from holdfast.sinks.delta_stats import LAST_LETTER, LONGEST_TEXT, statistics
from holdfast.sinks.footers import Range
from holdfast.testing.sinks import holder, stage, step
from sinks.table_rows import put_rows

COLUMNS = pa.schema(
    [
        ("whole", pa.int64()),
        ("real", pa.float64()),
        ("small", pa.float32()),
        ("yes", pa.bool_()),
        ("exact", pa.decimal128(20, 6)),
        ("wide", pa.decimal128(38, 18)),
        ("text", pa.string()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("data", pa.binary()),
    ]
)
LETTERS = st.characters(codec="utf-8", exclude_characters=[LAST_LETTER])
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "whole": st.integers(-(2**63), 2**63 - 1),
    "real": st.floats(),
    "small": st.floats(width=32),
    "yes": st.booleans(),
    "exact": st.decimals(-(10**13), 10**13, places=6),
    "wide": st.decimals(-(10**19), 10**19, places=18),
    "text": st.one_of(
        st.text(LETTERS, max_size=3), st.text(LETTERS, min_size=1, max_size=3).map(lambda text: text * 2000)
    ),
    "day": st.dates(),
    "at": st.datetimes(timezones=st.just(datetime.UTC)),
    "data": st.binary(max_size=3),
}
ROWS = st.fixed_dictionaries({name: st.one_of(st.none(), values) for name, values in VALUES.items()})
NOTHING_IN_IT = dict.fromkeys(COLUMNS.names)
LAST = datetime.datetime.max.replace(tzinfo=datetime.UTC)


def is_as(name: str, value: Any) -> ds.Expression:
    column = ds.field(name)
    if value is None:
        return column.is_null()
    return column.is_nan() if value != value else column == pa.scalar(value, COLUMNS.field(name).type)


@settings(max_examples=40)
@given(rows=st.lists(ROWS, min_size=1, max_size=3))
@example(rows=[NOTHING_IN_IT | {"real": float("nan"), "at": LAST, "text": "long" * 2000}])
@example(rows=[NOTHING_IN_IT | {"real": 1.0}, NOTHING_IN_IT | {"real": float("inf")}])
@example(rows=[NOTHING_IN_IT | {"text": "\U0001f41a"}])
@example(rows=[NOTHING_IN_IT | {"yes": True, "wide": Decimal("3.333333333333333333")}])
def test_every_row_is_found_by_every_value_in_it(rows: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        sink = Delta(f"{folder}/table")
        sink.fence(holder(0), NOTHING)
        put_rows(sink, step(0), stage(Path(folder), rows, COLUMNS, files=1))
        table = DeltaTable(f"{folder}/table").to_pyarrow_dataset()
        for name in COLUMNS.names:
            for row in rows:
                assert table.to_table(filter=is_as(name, row[name])).num_rows >= 1, (name, row[name])


def said_of(kind: pa.DataType, low: Any, high: Any) -> tuple[Any, Any]:
    said = json.loads(statistics(2, {("it",): Range(low, high, 0, 2, kind)}))
    return said["minValues"]["it"], said["maxValues"]["it"]


@given(st.decimals(-(10**14), 10**14, places=18), st.decimals(-(10**14), 10**14, places=18))
def test_the_bounds_of_a_decimal_never_lie_within(one: Decimal, other: Decimal) -> None:
    low, high = said_of(pa.decimal128(38, 18), min(one, other), max(one, other))
    assert Decimal(repr(low)) <= min(one, other)
    assert Decimal(repr(high)) >= max(one, other)
    assert "e" not in f"{low!r}{high!r}"


@given(st.text(LETTERS, min_size=LONGEST_TEXT + 1, max_size=LONGEST_TEXT + 9))
def test_the_bounds_of_a_long_text_never_lie_within(text: str) -> None:
    low, high = said_of(pa.string(), text, text)
    assert low <= text <= high
    assert len(high) == LONGEST_TEXT + 1


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        (pa.float64(), None, None),
        (pa.float64(), 0.0, float("inf")),
        (pa.timestamp("us"), None, None),
        (pa.decimal128(38, 0), Decimal(10) ** 30, Decimal(10) ** 30),
        (pa.decimal128(6, 5), Decimal("9.99999"), Decimal("9.99999")),
    ],
)
def test_where_a_bound_can_not_be_said_none_is(kind: pa.DataType, low: Any, high: Any) -> None:
    found = {("it",): Range(low, high, 0, 2, kind), ("other",): Range(1, 2, 0, 2, pa.int64())}
    assert json.loads(statistics(2, found)) == {"numRecords": 2, "nullCount": {"it": 0, "other": 0}}


def test_what_spark_has_come_after_all_numbers_is_not_pruned_away() -> None:
    assert said_of(pa.float64(), 0.5, 1.5) == (0.5, 1.7976931348623157e308)


def test_of_texts_that_no_footer_tells_all_is_possible() -> None:
    assert said_of(pa.string(), None, None) == ("", LAST_LETTER)
