"""What the suite of a sink works with: rows, steps and holders, and handles of the sink under test."""

from __future__ import annotations

import datetime
import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.decide.chain import NOTHING, Holder, Link, Step
from holdfast.sinks.contract import Sink, Target, WriteMode
from holdfast.sinks.staged import Staged, StagedFile, StagedRows, encode_schema
from holdfast.store import Address

__all__ = ["SCHEMA", "Row", "SinkHands", "holder", "stage", "step", "words"]

SCHEMA = pa.schema([("id", pa.int64()), ("word", pa.string()), ("seen", pa.timestamp("us", tz="UTC"))])
SEEN = datetime.datetime(2026, 11, 15, 10, 30, 0, 250_000, tzinfo=datetime.UTC)

Row = Mapping[str, Any]


def holder(generation: int, pipeline: str = "pipeline-1", token: str = "") -> Holder:
    """The holder of a generation; give a token to have two that share the number."""
    return Holder(pipeline, generation, token or f"{generation:032x}")


def step(epoch: int, decided: int = 0, offsets: str | None = None, before: str | None = None) -> Step:
    """The step to an epoch from the one before it."""
    link = Link(epoch - 1, f"at {epoch - 1}" if before is None else before) if epoch > 0 else NOTHING
    return Step(decided, link, Link(epoch, f"at {epoch}" if offsets is None else offsets))


def stage(folder: Path, rows: Sequence[Row], schema: pa.Schema = SCHEMA, files: int = 2) -> StagedRows:
    """Rows written as Parquet into some files of a folder of their own, as a pipeline stages them."""
    place = Path(tempfile.mkdtemp(prefix="hf-", dir=folder))
    written = []
    for number in range(files):
        table = pa.Table.from_pylist([dict(row) for row in rows[number::files]], schema=schema)
        path = place / f"part-{number:05}.parquet"
        pq.write_table(table, path)
        written.append(StagedFile(path.name, path.stat().st_size, table.num_rows))
    return StagedRows(Staged(str(place), written, encode_schema(schema)), Address(str(place)))


def words(*ids: int, word: str = "w") -> list[dict[str, Any]]:
    return [{"id": number, "word": f"{word}{number}", "seen": SEEN} for number in ids]


class SinkHands:
    """A target, by `open` and `read`, and what tests do to it."""

    modes: Sequence[WriteMode] = ("append",)
    rolls_back = True
    has_columns = True
    races = 20

    def open(self, mode: WriteMode, key: Sequence[str]) -> Sink:
        """A new handle of one and the same target, which is empty, or not there, when a test begins."""
        raise NotImplementedError

    def read(self) -> Iterable[Row]:
        """The rows that a reader of the target sees now, with the columns of SCHEMA at least."""
        raise NotImplementedError

    def meddle(self) -> bool:
        """Change a row as another writer would, and give True; False where nobody else can write there."""
        return False

    @pytest.fixture(autouse=True)
    def _handles(self, tmp_path: Path) -> Iterator[None]:
        self.folder = tmp_path
        self._open: list[Sink] = []
        yield
        for sink in self._open:
            sink.close()

    def handle(self, mode: WriteMode = "append") -> Sink:
        sink = self.open(mode, ["id"] if mode == "upsert" else [])
        self._open.append(sink)
        return sink

    def fenced(self, generation: int = 0, mode: WriteMode = "append") -> Sink:
        sink = self.handle(mode)
        sink.fence(holder(generation), NOTHING)
        return sink

    def seen(self) -> list[tuple[int, str]]:
        return sorted((row["id"], row["word"]) for row in self.read())

    def whole(self) -> list[tuple[Any, ...]]:
        """What is seen with all columns of SCHEMA, by its id."""
        return sorted((tuple(row[name] for name in SCHEMA.names) for row in self.read()), key=lambda row: row[0])

    def prepare(self, sink: Sink, to: Step, rows: StagedRows) -> Any:
        """Prepare; gives the token as another process reads it in the decision."""
        return json.loads(json.dumps(sink.prepare(to, rows)))

    def put(self, sink: Sink, to: Step, rows: Sequence[Row], schema: pa.Schema = SCHEMA) -> Target:
        """Prepare and commit; gives the way back to here, as another process reads it."""
        staged = stage(self.folder, rows, schema)
        position = sink.commit(to, self.prepare(sink, to, staged), staged)
        return Target(to.after, to.decided, json.loads(json.dumps(position)))

    def only(self, *modes: WriteMode) -> list[WriteMode]:
        return [mode for mode in modes if mode in self.modes]
