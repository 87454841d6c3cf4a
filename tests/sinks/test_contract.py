"""Every sink keeps the contract."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast.sinks import SQLite
from holdfast.sinks.contract import Sink, WriteMode
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
