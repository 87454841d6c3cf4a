"""Columns that must have a value: a row is refused exactly if it lacks one, whatever the footer counts."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import SinkUnfit
from holdfast.sinks.footers import staged_footers
from holdfast.sinks.required import refuse_nulls
from holdfast.testing.sinks import stage

NUMBERS = st.one_of(st.none(), st.integers(0, 9))
NODES = ("plain", "list", "element", "map", "value", "struct", "inside", "deep")


def table_schema(strict: frozenset[str]) -> pa.Schema:
    """Columns of every shape; those nodes that are named must have a value."""

    def field(node: str, kind: pa.DataType, name: str = "") -> pa.Field:
        return pa.field(name or node, kind, nullable=node not in strict)

    inside = field("inside", pa.list_(field("deep", pa.int64(), "element")))
    return pa.schema(
        [
            field("plain", pa.int64()),
            field("list", pa.list_(field("element", pa.int64()))),
            field("map", pa.map_(pa.string(), field("value", pa.int64()))),
            field("struct", pa.struct([pa.field("may", pa.int64()), inside])),
        ]
    )


def missing(row: dict[str, Any]) -> set[str]:
    """The nodes of a row that have no value somewhere, though what is around them has one."""
    found = {name for name in ("plain", "list", "map", "struct") if row[name] is None}
    found |= {"element"} if None in (row["list"] or []) else set()
    found |= {"value"} if None in dict(row["map"] or []).values() else set()
    if row["struct"] is not None:
        inside = row["struct"]["inside"]
        found |= {"inside"} if inside is None else {"deep"} if None in inside else set()
    return found


ROWS = st.fixed_dictionaries(
    {
        "plain": NUMBERS,
        "list": st.one_of(st.none(), st.lists(NUMBERS, max_size=2)),
        "map": st.one_of(st.none(), st.dictionaries(st.sampled_from("ab"), NUMBERS).map(lambda m: [*m.items()])),
        "struct": st.one_of(
            st.none(),
            st.fixed_dictionaries({"may": NUMBERS, "inside": st.one_of(st.none(), st.lists(NUMBERS, max_size=2))}),
        ),
    }
)


@given(rows=st.lists(ROWS, min_size=1, max_size=4), strict=st.frozensets(st.sampled_from(NODES)))
def test_rows_are_refused_exactly_if_one_lacks_what_it_must_have(
    rows: list[dict[str, Any]], strict: frozenset[str]
) -> None:
    holes = set().union(*map(missing, rows)) & strict
    with tempfile.TemporaryDirectory() as folder:
        staged = stage(Path(folder), rows, table_schema(frozenset()))
        footers = staged_footers("words", staged)
        if holes:
            with pytest.raises(SinkUnfit, match="must have a value"):
                refuse_nulls("words", table_schema(strict), staged, footers)
        else:
            refuse_nulls("words", table_schema(strict), staged, footers)


def test_nothing_but_footers_is_read_where_they_tell(tmp_path: Path) -> None:
    row = {"plain": 1, "list": [1], "map": [("a", 1)], "struct": {"may": None, "inside": [1]}}
    staged = stage(tmp_path, [row], table_schema(frozenset()), files=1)
    footers = staged_footers("words", staged)
    Path(staged.place.url, staged.staged.files[0].name).unlink()
    refuse_nulls("words", table_schema(frozenset(NODES)), staged, footers)
