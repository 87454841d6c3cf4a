"""What is SQLite's own: its types, its one writer, and what is kept to go back."""

from __future__ import annotations

import datetime
import decimal
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.decide.chain import NOTHING
from holdfast.errors import SinkTaken, SinkUnavailable, SinkUnfit
from holdfast.sinks import sqlite as module
from holdfast.sinks.contract import Target
from holdfast.sinks.sql import EPOCH
from holdfast.sinks.sql_marker import MARKERS
from holdfast.sinks.sqlite import SQLite
from holdfast.testing.sinks import SCHEMA, Row, holder, stage, step, words


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sink.db"


@pytest.fixture
def file(path: Path) -> Iterator[sqlite3.Connection]:
    """The file as another program sees it."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def put(sink: SQLite, epoch: int, found: Sequence[Row], folder: Path, schema: pa.Schema = SCHEMA) -> None:
    staged = stage(folder, found, schema)
    sink.commit(step(epoch), sink.prepare(step(epoch), staged), staged)


def rows(file: sqlite3.Connection, statement: str) -> list[tuple[object, ...]]:
    return file.execute(statement).fetchall()


def test_types_that_sqlite_does_not_have_are_text(path: Path, file: sqlite3.Connection, tmp_path: Path) -> None:
    schema = pa.schema(
        [
            ("whole", pa.int32()),
            ("real", pa.float64()),
            ("yes", pa.bool_()),
            ("exact", pa.decimal128(20, 4)),
            ("day", pa.date32()),
            ("data", pa.binary()),
            ("window", pa.struct([("start", pa.timestamp("us", tz="UTC")), ("end", pa.timestamp("us", tz="UTC"))])),
            ("tags", pa.list_(pa.string())),
        ]
    )
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    row = {
        "whole": 7,
        "real": 0.5,
        "yes": True,
        "exact": decimal.Decimal("1234567890.1234"),
        "day": datetime.date(2026, 2, 3),
        "data": b"\x00\xff",
        "window": {"start": start, "end": start},
        "tags": ["a", "b"],
    }
    sink = SQLite(path, "kinds")
    sink.fence(holder(0), NOTHING)
    staged = stage(tmp_path, [row, dict.fromkeys(row)], schema, files=1)
    sink.commit(step(0), sink.prepare(step(0), staged), staged)
    found = rows(file, "SELECT * FROM kinds")
    window = '{"start":"2026-01-01T00:00:00.000000Z","end":"2026-01-01T00:00:00.000000Z"}'
    assert found[0] == (7, 0.5, 1, "1234567890.1234", "2026-02-03", b"\x00\xff", window, '["a","b"]', 0)
    assert found[1] == (*[None] * 8, 0)


def test_values_are_written_so_that_they_can_be_read_and_sorted(
    path: Path, file: sqlite3.Connection, tmp_path: Path
) -> None:
    inside = pa.struct([("data", pa.binary()), ("real", pa.float64())])
    schema = pa.schema(
        [
            ("real", pa.float64()),
            ("exact", pa.decimal128(38, 18)),
            ("local", pa.timestamp("us")),
            ("inside", inside),
            ("counts", pa.map_(pa.string(), pa.int64())),
        ]
    )
    nan = float("nan")
    row = {
        "real": nan,
        "exact": decimal.Decimal(0),
        "local": datetime.datetime(999, 1, 1),
        "inside": {"data": b"\x00\xff", "real": nan},
        "counts": [("k", 1)],
    }
    sink = SQLite(path, "kinds")
    sink.fence(holder(0), NOTHING)
    put(sink, 0, [row, {**row, "real": float("-inf"), "exact": decimal.Decimal("1E-10")}], tmp_path, schema)
    first, second = rows(file, "SELECT * FROM kinds ORDER BY exact")
    told = '{"data":"AP8=","real":null}'
    assert first == (None, "0.000000000000000000", "0999-01-01 00:00:00.000000", told, '{"k":1}', 0)
    assert second[:2] == (float("-inf"), "0.000000000100000000")


@pytest.mark.parametrize(
    ("kind", "value"), [(pa.uint64(), 2**63), (pa.timestamp("us"), 2**62), (pa.date32(), 2**31 - 1)]
)
def test_a_value_without_a_place_is_refused_before_the_decision(
    path: Path, tmp_path: Path, kind: pa.DataType, value: int
) -> None:
    sink = SQLite(path, "t")
    sink.fence(holder(0), NOTHING)
    with pytest.raises(SinkUnfit):
        sink.prepare(step(0), stage(tmp_path, [{"c": value}], pa.schema([("c", kind)])))


def test_a_type_without_a_place_is_refused(path: Path) -> None:
    with pytest.raises(SinkUnfit, match="no type for"):
        SQLite(path, "t").check(pa.schema([("took", pa.duration("us"))]))


def test_a_table_of_the_users_own_takes_rows_and_says_that_it_can_not_go_back(
    path: Path, file: sqlite3.Connection, tmp_path: Path
) -> None:
    file.execute("CREATE TABLE words (id INTEGER, word VARCHAR(20), seen TEXT, note TEXT DEFAULT 'none')")
    sink = SQLite(path, "words")
    sink.fence(holder(0), NOTHING)
    targets = []
    for epoch in range(2):
        staged = stage(tmp_path, words(epoch))
        sink.commit(step(epoch), sink.prepare(step(epoch), staged), staged)
        targets.append(Target(step(epoch).after, 0))
    assert rows(file, "SELECT id, word, note FROM words") == [(0, "w0", "none"), (1, "w1", "none")]
    assert EPOCH in (sink.why_not_back(targets[0]) or "")


def test_rows_that_are_replaced_are_kept_until_they_are_released(
    path: Path, file: sqlite3.Connection, tmp_path: Path
) -> None:
    sink = SQLite(path, "words", mode="upsert", key=["id"])
    sink.fence(holder(0), NOTHING)
    for epoch in range(3):
        staged = stage(tmp_path, words(1, word=f"{epoch}-"))
        sink.commit(step(epoch), sink.prepare(step(epoch), staged), staged)
    kept = f"SELECT {EPOCH}, word FROM words_holdfast_before ORDER BY 1"
    assert rows(file, kept) == [(0, None), (1, "0-1"), (2, "1-1")]
    sink.release(step(1).after)
    assert rows(file, kept) == [(2, "1-1")]
    assert "kept no more" in (sink.why_not_back(Target(step(0).after, 0)) or "")
    assert sink.why_not_back(Target(step(1).after, 0)) is None
    file.execute("DROP TABLE words_holdfast_before")
    assert "is gone" in (sink.why_not_back(Target(step(1).after, 0)) or "")


def test_a_constraint_that_a_row_breaks_loses_nothing(path: Path, file: sqlite3.Connection, tmp_path: Path) -> None:
    file.execute("CREATE TABLE words (id INTEGER CHECK (id < 5), word TEXT, seen TEXT)")
    sink = SQLite(path, "words")
    sink.fence(holder(0), NOTHING)
    with pytest.raises(SinkUnfit, match="CHECK"):
        sink.prepare(step(0), stage(tmp_path, words(1, 9)))
    assert rows(file, "SELECT * FROM words") == []


@pytest.mark.parametrize(
    "rule",
    [
        "CREATE UNIQUE INDEX once ON words (word)",
        "CREATE TRIGGER no BEFORE INSERT ON words WHEN NEW.id > 5 BEGIN SELECT RAISE(ABORT, 'too much'); END",
    ],
)
def test_a_rule_that_a_table_got_later_refuses_rows_before_the_decision(
    path: Path, file: sqlite3.Connection, tmp_path: Path, rule: str
) -> None:
    sink = SQLite(path, "words")
    sink.fence(holder(0), NOTHING)
    put(sink, 0, words(1), tmp_path)
    file.execute(rule)
    with pytest.raises(SinkUnfit):
        sink.prepare(step(1), stage(tmp_path, [{**words(9)[0], "word": "w1"}]))
    put(sink, 1, words(2), tmp_path)


WITHOUT_CASE = "CREATE TABLE words (id INTEGER, word TEXT COLLATE NOCASE PRIMARY KEY, seen TEXT)"


def test_keys_that_the_table_takes_for_one_are_one_on_the_way_back_too(
    path: Path, file: sqlite3.Connection, tmp_path: Path
) -> None:
    file.execute(WITHOUT_CASE)
    sink = SQLite(path, "words", mode="upsert", key=["word"])
    sink.fence(holder(0), NOTHING)
    for epoch, word in enumerate(["w", "W", "w"]):
        put(sink, epoch, words(1, word=word), tmp_path)
    with pytest.raises(SinkUnfit, match="two rows of an epoch have the key"):
        sink.prepare(step(3), stage(tmp_path, [*words(7, word="x"), *({**row, "word": "X7"} for row in words(8))]))
    sink.roll_back(Target(step(0).after, 0))
    assert rows(file, "SELECT id, word FROM words") == [(1, "w1")]


def test_a_key_that_is_unique_by_another_collation_is_refused(
    path: Path, file: sqlite3.Connection, tmp_path: Path
) -> None:
    file.execute("CREATE TABLE words (id INTEGER, word TEXT COLLATE NOCASE, seen TEXT)")
    file.execute("CREATE UNIQUE INDEX once ON words (word COLLATE BINARY)")
    sink = SQLite(path, "words", mode="upsert", key=["word"])
    sink.fence(holder(0), NOTHING)
    with pytest.raises(SinkUnfit, match="the key word of words is unique by another collation"):
        sink.prepare(step(0), stage(tmp_path, words(1)))


def test_a_file_that_another_holds_is_told_and_can_be_tried_again(
    path: Path, file: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.05)
    sink = SQLite(path, "words")
    sink.fence(holder(0), NOTHING)
    staged = stage(tmp_path, words(1))
    token = sink.prepare(step(0), staged)
    file.execute("BEGIN IMMEDIATE")
    with pytest.raises(SinkUnavailable, match="locked"):
        sink.commit(step(0), token, staged)
    file.execute("ROLLBACK")
    sink.commit(step(0), token, staged)
    assert rows(file, "SELECT id FROM words") == [(1,)]


def test_a_reader_that_bars_a_commit_is_told_and_leaves_neither_the_sink_nor_the_file_locked(
    path: Path, file: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.05)
    sink = SQLite(path, "words")
    sink.fence(holder(0), NOTHING)
    put(sink, 0, words(1), tmp_path)
    staged = stage(tmp_path, words(2))
    token = sink.prepare(step(1), staged)
    file.execute("BEGIN")
    assert rows(file, "SELECT id FROM words") == [(1,)]
    for _ in range(2):
        with pytest.raises(SinkUnavailable, match="COMMIT failed: database is locked"):
            sink.commit(step(1), token, staged)
    assert rows(file, "SELECT id FROM words") == [(1,)]
    file.execute("COMMIT")
    file.execute("PRAGMA busy_timeout = 0")
    file.execute("CREATE TABLE others (id INTEGER)")
    marker = sink.look()
    assert marker is not None
    assert marker.at.epoch == 0
    sink.commit(step(1), token, staged)
    assert rows(file, "SELECT id FROM words") == [(1,), (2,)]


def test_what_goes_wrong_first_is_what_is_told(
    path: Path, file: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = SQLite(path, "words")
    sink.fence(holder(0), NOTHING)

    def write(*_: object, **__: object) -> None:
        # A file that is gone already can't be let go of.
        sink._stages.execute("ROLLBACK")
        sink._stages.execute("DETACH DATABASE filed")
        raise SinkUnfit("words", "the first")

    staged = stage(tmp_path, words(1))
    token = sink.prepare(step(0), staged)
    with monkeypatch.context() as broken:
        broken.setattr(sink, "_put", write)
        with pytest.raises(SinkUnfit, match="the first"):
            sink.commit(step(0), token, staged)
    sink.commit(step(0), token, staged)
    assert rows(file, "SELECT id FROM words") == [(1,)]


def test_names_that_need_quotes_are_only_names(path: Path, file: sqlite3.Connection, tmp_path: Path) -> None:
    schema = pa.schema([('a "b"; DROP TABLE x', pa.int64())])
    sink = SQLite(path, 'odd "name"', mode="upsert", key=schema.names)
    sink.fence(holder(0), NOTHING)
    for epoch in range(2):
        staged = stage(tmp_path, [{schema.names[0]: 1}], schema)
        sink.commit(step(epoch), sink.prepare(step(epoch), staged), staged)
    assert rows(file, 'SELECT * FROM "odd ""name"""') == [(1,)]
    assert rows(file, f"SELECT target FROM {MARKERS}") == [('odd "name"',)]


def test_a_table_with_more_columns_than_the_rows_goes_back(
    path: Path, file: sqlite3.Connection, tmp_path: Path
) -> None:
    file.execute("CREATE TABLE words (id INTEGER PRIMARY KEY, word TEXT, seen TEXT, note TEXT DEFAULT 'none')")
    sink = SQLite(path, "words", mode="upsert", key=["id"])
    sink.fence(holder(0), NOTHING)
    for epoch, ids in enumerate([(1, 2), (2, 3)]):
        staged = stage(tmp_path, words(*ids, word=f"{epoch}-"))
        sink.commit(step(epoch), sink.prepare(step(epoch), staged), staged)
    sink.roll_back(Target(step(0).after, 0))
    assert rows(file, "SELECT id, word, note FROM words ORDER BY 1") == [(1, "0-1", "none"), (2, "0-2", "none")]


def test_a_column_that_comes_later_is_kept_as_well(path: Path, file: sqlite3.Connection, tmp_path: Path) -> None:
    sink = SQLite(path, "words", mode="upsert", key=["id"])
    sink.fence(holder(0), NOTHING)
    wider = SCHEMA.append(pa.field("more", pa.int64()))
    for epoch in range(3):
        if epoch == 1:
            file.execute("ALTER TABLE words ADD COLUMN more INTEGER")
        found = [{**words(1, word=f"{epoch}-")[0], "more": epoch}]
        staged = stage(tmp_path, found, wider) if epoch else stage(tmp_path, words(1, word="0-"))
        sink.commit(step(epoch), sink.prepare(step(epoch), staged), staged)
    sink.roll_back(Target(step(1).after, 0))
    assert rows(file, "SELECT word, more FROM words") == [("1-1", 1)]
    sink.roll_back(Target(step(0).after, 0))
    assert rows(file, "SELECT word, more FROM words") == [("0-1", None)]


def test_a_type_that_was_altered_only_in_the_table_is_told_before_the_decision(
    path: Path, file: sqlite3.Connection, tmp_path: Path
) -> None:
    sink = SQLite(path, "words", mode="upsert", key=["id"])
    sink.fence(holder(0), NOTHING)
    staged = stage(tmp_path, words(1))
    sink.commit(step(0), sink.prepare(step(0), staged), staged)
    file.execute("DROP TABLE words")
    file.execute("CREATE TABLE words (id INTEGER PRIMARY KEY, word VARCHAR(9), seen TEXT)")
    with pytest.raises(SinkUnfit, match="alter word in words_holdfast_before as well"):
        sink.prepare(step(1), stage(tmp_path, words(2)))


def test_a_table_is_the_same_however_its_name_is_written(path: Path) -> None:
    SQLite(path, "words").fence(holder(0), NOTHING)
    with pytest.raises(SinkTaken):
        SQLite(path, "Words").fence(holder(0, "pipeline-2"), NOTHING)


def test_to_look_makes_no_file(path: Path) -> None:
    sink = SQLite(path, "words")
    assert sink.look() is None
    sink.check(SCHEMA)
    assert not path.exists()


def test_epochs_are_taken_back_only_in_the_way_they_were_written(
    path: Path, file: sqlite3.Connection, tmp_path: Path
) -> None:
    first = SQLite(path, "words", mode="overwrite")
    first.fence(holder(0), NOTHING)
    for epoch in range(3):
        staged = stage(tmp_path, words(epoch, 9))
        first.commit(step(epoch), first.prepare(step(epoch), staged), staged)
    then = SQLite(path, "words", mode="upsert", key=["id"])
    then.fence(holder(1), NOTHING)
    file.execute("CREATE UNIQUE INDEX by_id ON words (id)")
    assert "mode=overwrite, not with mode=upsert key=id" in (then.why_not_back(Target(step(1).after, 0)) or "")
    for epoch in range(3, 5):
        staged = stage(tmp_path, words(epoch, 9))
        then.commit(step(epoch), then.prepare(step(epoch), staged), staged)
    assert then.why_not_back(Target(step(2).after, 0)) is None
    assert "up to 2 were not written with mode=upsert" in (then.why_not_back(Target(step(1).after, 0)) or "")
    then.roll_back(Target(step(2).after, 0))
    assert rows(file, "SELECT id FROM words ORDER BY 1") == [(2,), (9,)]
