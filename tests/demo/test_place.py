"""What lies in the demo's tables is read as any program would read it, and compared row by row."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import duckdb
import pyarrow as pa
from deltalake import write_deltalake

from holdfast.demo.place import Judged, Place, Rows, compare, lose_a_row

ROWS = [(60, "ann", 2, 300), (60, "bob", 1, 50), (120, "ann", 1, 70)]
TRUTH: Rows = Counter(ROWS)


def table(rows: list[tuple[int, str, int, int]]) -> pa.Table:
    return pa.table(
        dict(zip(("minute", "customer", "orders", "cents"), map(list, zip(*rows, strict=True)), strict=True))
    )


def test_lost_rows_are_told_from_doubled_ones_and_a_row_that_differs_is_both() -> None:
    assert compare(TRUTH, TRUTH) == Judged(3, 4, 0, 0)
    assert compare(TRUTH, Counter()) == Judged(0, 0, 3, 0)
    assert compare(TRUTH, Counter([*ROWS, ROWS[0]])) == Judged(4, 6, 0, 1)
    assert compare(TRUTH, Counter([*ROWS[:2], (120, "ann", 1, 71)])) == Judged(3, 4, 1, 1)
    assert [compare(TRUTH, found).good for found in (TRUTH, Counter())] == [True, False]


def test_a_row_that_is_there_twice_is_read_twice_from_either_table(tmp_path: Path) -> None:
    place, rows = Place(tmp_path), table([*ROWS, ROWS[0]])
    write_deltalake(place.delta, rows)
    with duckdb.connect(place.duckdb) as database:
        database.execute("CREATE TABLE totals AS SELECT *, 'more' AS extra FROM rows")
    assert place.read("duckdb") == place.read("delta") == Counter([*ROWS, ROWS[0]])


def test_sabotage_loses_one_row(tmp_path: Path) -> None:
    place, rows = Place(tmp_path), table(ROWS)
    with duckdb.connect(place.duckdb) as database:
        database.execute("CREATE TABLE totals AS SELECT * FROM rows")
    lose_a_row(place)
    judged = compare(TRUTH, place.read("duckdb"))
    assert (judged.lost, judged.doubled) == (1, 0)
    assert rows.num_rows == 3
