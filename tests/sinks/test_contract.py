"""Every sink keeps the contract."""

from __future__ import annotations

import os.path
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import SinkUnfit
from holdfast.sinks import Delta, DuckDB, Iceberg, Kafka, Parquet, Postgres, SQLite
from holdfast.sinks.contract import Sink, WriteMode, refuse_same
from holdfast.testing.sinks import SinkContract


class TestSQLite(SinkContract):
    modes = ("append", "upsert", "overwrite")
    races = 10

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "sink.db"

    def open(self, mode: WriteMode, key: Sequence[str]) -> Sink:
        return SQLite(self.path, "words", mode=mode, key=key)

    def read(self) -> Iterable[dict[str, Any]]:
        with closing(sqlite3.connect(self.path)) as db:
            db.row_factory = sqlite3.Row
            if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'words'").fetchone():
                return []
            return [dict(row) for row in db.execute("SELECT * FROM words")]

    def meddle(self) -> bool:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as db:
            db.execute("UPDATE words SET word = 'theirs'")
        return True


# ---- one target ----

SERVER = "postgresql://user:secret@host:5432"


def catalog(folder: Path, place: str) -> dict[str, str]:
    return {"name": "lake", "type": "sql", "uri": f"sqlite:///{folder}/{place}.db", "warehouse": f"file://{folder}/w"}


SAME: dict[str, Callable[[Path], tuple[Sink, Sink]]] = {
    "a path from here": lambda at: (SQLite(at / "f.db", "t"), SQLite(os.path.relpath(at / "f.db"), "t")),
    "a link": lambda at: (DuckDB(at / "f.db", "t"), DuckDB(at / "link" / "f.db", "t")),
    "upper and lower case": lambda at: (DuckDB(at / "f.db", "t"), DuckDB(at / "f.db", "T")),
    "a slash at the end": lambda at: (Delta(f"{at}/t"), Delta(f"{at}/t/")),
    "an address": lambda at: (Parquet(f"{at}/t"), Parquet((at / "t").as_uri())),
    "two kinds": lambda at: (Parquet(f"{at}/t"), Delta(f"{at}/t")),
    "a bucket": lambda _: (Delta("s3://b/t", options={"region": "r"}), Delta("s3a://b/t/", options={"region": "s"})),
    "a topic": lambda _: (Kafka("host:9092", "t"), Kafka("host:9092", "t", marker_topic="m")),
    "a table of a server": lambda _: (Postgres(f"{SERVER}/d", "s.t"), Postgres(f"{SERVER}/d", "t", schema="s")),
    "a table of a catalog": lambda at: (Iceberg(catalog(at, "c"), "n.t"), Iceberg(catalog(at, "c"), "n.t")),
}
APART: dict[str, Callable[[Path], tuple[Sink, Sink]]] = {
    "tables of a file": lambda at: (SQLite(at / "f.db", "t"), SQLite(at / "f.db", "s")),
    "files": lambda at: (DuckDB(at / "f.db", "t"), DuckDB(at / "g.db", "t")),
    "folders": lambda at: (Delta(f"{at}/t"), Delta(f"{at}/t/below")),
    "servers": lambda _: tuple(Delta("s3://b/t", options={"endpoint": f"http://{n}:9000"}) for n in "ab"),  # type: ignore[return-value]
    "topics": lambda _: (Kafka("host:9092", "t"), Kafka("host:9092", "s")),
    "databases": lambda _: (Postgres(f"{SERVER}/d", "t"), Postgres(f"{SERVER}/e", "t")),
    "ports": lambda _: tuple(Postgres(f"postgresql:///d?host=/s&port={n}", "t") for n in (1, 2)),  # type: ignore[return-value]
    "catalogs": lambda at: (Iceberg(catalog(at, "c"), "n.t"), Iceberg(catalog(at, "d"), "n.t")),
}


@pytest.mark.parametrize("spelled", SAME)
def test_two_sinks_on_one_target_are_refused_however_it_is_spelled(tmp_path: Path, spelled: str) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    a, b = SAME[spelled](tmp_path)
    with closing(a), closing(b), pytest.raises(SinkUnfit, match="is that of 'a' too"):
        refuse_same({"a": a, "b": b})


@pytest.mark.parametrize("by", APART)
def test_targets_that_only_look_alike_are_two(tmp_path: Path, by: str) -> None:
    a, b = APART[by](tmp_path)
    with closing(a), closing(b):
        refuse_same({"a": a, "b": b})
