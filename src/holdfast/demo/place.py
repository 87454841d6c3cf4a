"""The folder of a performance: what lies where in it, and what its tables hold."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, TypeAlias

__all__ = ["COLUMNS", "PIPELINE", "SINKS", "TABLE", "Judged", "Place", "Rows", "compare", "lose_a_row", "orders_in"]

PIPELINE = "orders"
TABLE = "totals"
SINKS = ("duckdb", "delta")
COLUMNS = "minute, customer, orders, cents"

Row: TypeAlias = tuple[int, str, int, int]
Rows: TypeAlias = Counter[Row]


class Place(NamedTuple):
    """All that a performance reads and writes lies in one folder."""

    root: Path

    @property
    def orders(self) -> Path:
        return self.root / "orders"

    @property
    def repository(self) -> Path:
        return self.root / "repository"

    @property
    def home(self) -> Path:
        """Spark's directory of the pipeline."""
        return self.root / "spark"

    @property
    def duckdb(self) -> Path:
        return self.root / "orders.duckdb"

    @property
    def delta(self) -> Path:
        return self.root / "orders.delta"

    @property
    def plain_home(self) -> Path:
        return self.root / "uninterrupted" / "spark"

    @property
    def truth(self) -> Path:
        """The rows of the uninterrupted run."""
        return self.root / "uninterrupted" / "rows.json"

    @property
    def log(self) -> Path:
        return self.root / "spark.log"

    def read(self, sink: str) -> Rows:
        """What any other program finds in a sink."""
        return self._read_duckdb() if sink == "duckdb" else self._read_delta()

    def read_truth(self) -> Rows:
        return Counter(tuple(json.loads(line)) for line in self.truth.read_text().splitlines())

    def _read_duckdb(self) -> Rows:
        import duckdb

        with closing(duckdb.connect(self.duckdb, read_only=True)) as database:
            return Counter(database.execute(f"SELECT {COLUMNS} FROM {TABLE}").fetchall())

    def _read_delta(self) -> Rows:
        import pyarrow as pa
        from deltalake import DeltaTable

        table = pa.table(DeltaTable(self.delta).scan().read_all())
        return Counter(zip(*(table[name].to_pylist() for name in COLUMNS.split(", ")), strict=True))


class Judged(NamedTuple):
    """What a sink holds beside what it should."""

    rows: int
    orders: int
    lost: int
    doubled: int

    @property
    def good(self) -> bool:
        return self.lost == self.doubled == 0


def compare(truth: Rows, found: Rows) -> Judged:
    """Rows of the truth that are not there, and rows that are there too much; one that differs is both."""
    return Judged(found.total(), orders_in(found), (truth - found).total(), (found - truth).total())


def orders_in(rows: Rows) -> int:
    """How many orders the rows sum up."""
    return sum(orders * times for (_, _, orders, _), times in rows.items())


def lose_a_row(place: Place) -> None:
    """Delete a row of the DuckDB table, behind its back."""
    import duckdb

    with closing(duckdb.connect(place.duckdb)) as database:
        database.execute(f"DELETE FROM {TABLE} WHERE rowid = (SELECT min(rowid) FROM {TABLE})")
