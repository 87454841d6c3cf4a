"""JSON of whole columns says what JSON of each value does."""

from __future__ import annotations

import datetime
import decimal
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.sinks.json_text import json_text

DAY = datetime.datetime(1969, 12, 31, 23, 59, 59, 1)
INNER = pa.struct([('a "b"\\', pa.bool_()), ("n", pa.list_(pa.int64()))])

KINDS: dict[str, tuple[pa.DataType, Any, Any]] = {
    "struct": (INNER, {'a "b"\\': True, "n": [1, None]}, {'a "b"\\': True, "n": [1, None]}),
    "empty struct": (pa.struct([]), {}, {}),
    "list": (pa.list_(INNER), [None, {'a "b"\\': None, "n": []}], [None, {'a "b"\\': None, "n": []}]),
    "large list": (pa.large_list(pa.string()), ["x", None], ["x", None]),
    "fixed list": (pa.list_(pa.float32(), 2), [0.5, None], [0.5, None]),
    "map": (pa.map_(pa.string(), INNER), [('k"', None)], {'k"': None}),
    "map of numbers": (pa.map_(pa.int32(), pa.float64()), [(1, float("nan")), (2, 1e20)], {"1": None, "2": 1e20}),
    "map of days": (pa.map_(pa.date32(), pa.int64()), [(DAY.date(), 1)], {"1969-12-31": 1}),
    "map of structs": (
        pa.map_(INNER, pa.int64()),
        [({'a "b"\\': True, "n": []}, 1)],
        {r'{"a \"b\"\\":true,"n":[]}': 1},
    ),
    "exact": (pa.list_(pa.decimal128(20, 4)), [decimal.Decimal("1.5000")], [1.5]),
    "zoned": (
        pa.list_(pa.timestamp("ns", tz="America/New_York")),
        [DAY.replace(tzinfo=datetime.UTC)],
        ["1969-12-31T23:59:59.000001Z"],
    ),
    "local": (pa.list_(pa.timestamp("s")), [DAY.replace(microsecond=0)], ["1969-12-31T23:59:59.000000"]),
    "day": (pa.list_(pa.date32()), [DAY.date()], ["1969-12-31"]),
    "clock": (pa.list_(pa.time64("us")), [DAY.time()], ["23:59:59.000001"]),
    "data": (pa.list_(pa.binary()), [b"\x00"], ["AA=="]),
    "took": (pa.list_(pa.duration("us")), [datetime.timedelta(days=1)], ["P1D"]),
}


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_says_what_it_holds_also_as_a_part_of_another_column(name: str) -> None:
    kind, value, shown = KINDS[name]
    column = pa.array([value, None, value, value], kind)
    for part in (column, column.slice(1), column.slice(2, 1), column.slice(0, 0)):
        found = [None if text is None else json.loads(text) for text in json_text(part).to_pylist()]
        assert found == [None if each is None else shown for each in part.to_pylist()]


@given(st.lists(st.text(st.characters(codec="utf-8")) | st.none(), max_size=5))
def test_any_text_comes_back(texts: list[str | None]) -> None:
    [found] = json_text(pa.array([texts], pa.list_(pa.string()))).to_pylist()
    assert json.loads(found) == texts


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.timestamp("us", tz="UTC"), pa.date32()])
def test_a_time_that_has_no_digits_is_refused(kind: pa.DataType) -> None:
    far = pa.array([10**9 if pa.types.is_date(kind) else 10**18], pa.int32() if pa.types.is_date(kind) else pa.int64())
    with pytest.raises(pa.ArrowInvalid, match="too far away"):
        json_text(far.cast(kind))
