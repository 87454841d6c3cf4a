"""What every database does with columns: those of the user's own, those that come and go, and the way back for all."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import adbc_driver_postgresql.dbapi as adbc
import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.decide.chain import NOTHING
from holdfast.errors import SinksAhead, SinkUnfit
from holdfast.sinks import DuckDB, Postgres, SQLite
from holdfast.sinks.contract import Target, what_bars
from holdfast.sinks.sql import SqlSink
from holdfast.testing.sinks import holder, stage, step

TWO = pa.schema([("id", pa.int64()), ("a", pa.string())])
THREE = TWO.append(pa.field("b", pa.string()))
OWN = "CREATE TABLE t (id BIGINT PRIMARY KEY, a TEXT, note TEXT DEFAULT 'none')"


class Place(NamedTuple):
    """One database: its sinks, fenced by the next generation, and what another program does there."""

    sink: Callable[..., SqlSink]
    run: Callable[[str], list[tuple[Any, ...]]]


@pytest.fixture(params=["sqlite", "duckdb", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    sinks: list[SqlSink] = []
    kind, path = str(request.param), tmp_path / "sink.db"
    url = str(request.getfixturevalue("postgres_url")) if kind == "postgres" else ""

    def make(**options: Any) -> SqlSink:
        made: SqlSink = Postgres(url, "t", **options) if url else _FILES[kind](path, "t", **options)
        made.fence(holder(len(sinks)), NOTHING)
        sinks.append(made)
        return made

    def run(statement: str) -> list[tuple[Any, ...]]:
        if kind == "duckdb":
            with closing(duckdb.connect(path)) as file:
                return file.execute(statement).fetchall()
        if kind == "sqlite":
            with closing(sqlite3.connect(path, isolation_level=None)) as local:
                return local.execute(statement).fetchall()
        with adbc.connect(url, autocommit=True) as server, server.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    yield Place(make, run)
    for sink in sinks:
        sink.close()


_FILES: dict[str, type[SQLite] | type[DuckDB]] = {"sqlite": SQLite, "duckdb": DuckDB}


def put(sink: SqlSink, epoch: int, folder: Path, *rows: dict[str, Any]) -> Target:
    """An epoch of rows, which all have the columns of the first."""
    schema = pa.schema([(name, pa.int64() if name == "id" else pa.string()) for name in rows[0]])
    staged = stage(folder, rows, schema, files=1)
    sink.commit(step(epoch), sink.prepare(step(epoch), staged), staged)
    return Target(step(epoch).after, 0)


# ---- upsert ----


def test_a_column_that_comes_later_is_given_back_to_rows_that_were_kept_before_it_came(
    place: Place, tmp_path: Path
) -> None:
    place.run("CREATE TABLE t (id BIGINT PRIMARY KEY, a TEXT, b TEXT DEFAULT 'new' NOT NULL)")
    sink = place.sink(mode="upsert", key=["id"])
    first = put(sink, 0, tmp_path, {"id": 1, "a": "0"}, {"id": 2, "a": "0"})
    place.run("UPDATE t SET b = 'mine' WHERE id = 1")
    put(sink, 1, tmp_path, {"id": 1, "a": "1"}, {"id": 2, "a": "1"})
    place.run("DELETE FROM t WHERE id = 2")
    put(sink, 2, tmp_path, {"id": 1, "a": "2", "b": "q"}, {"id": 2, "a": "2", "b": "q"})
    assert sink.why_not_back(first) is None
    sink.roll_back(first)
    assert place.run("SELECT id, a, b FROM t ORDER BY 1") == [(1, "0", "mine"), (2, "0", "new")]


def test_columns_that_the_rows_do_not_have_are_left_alone(place: Place, tmp_path: Path) -> None:
    place.run(OWN)
    sink = place.sink(mode="upsert", key=["id"])
    first = put(sink, 0, tmp_path, {"id": 1, "a": "0"}, {"id": 2, "a": "0"})
    place.run("UPDATE t SET note = 'mine' WHERE id = 1")
    put(sink, 1, tmp_path, {"id": 1, "a": "1"}, {"id": 3, "a": "1"})
    notes = "SELECT id, a, note FROM t ORDER BY 1"
    assert place.run(notes) == [(1, "1", "mine"), (2, "0", "none"), (3, "1", "none")]
    place.run("UPDATE t SET note = 'later' WHERE id = 1")
    # Some databases tell only that a row was changed, and not in which column.
    sink.roll_back(first, discard_foreign=True)
    assert place.run(notes) == [(1, "0", "later"), (2, "0", "none")]


def test_a_table_that_does_not_keep_keys_apart_is_refused(place: Place) -> None:
    place.run("CREATE TABLE t (id BIGINT, a TEXT)")
    with pytest.raises(SinkUnfit, match="no PRIMARY KEY or UNIQUE constraint on exactly id"):
        place.sink(mode="upsert", key=["id"]).check(TWO)


# ---- overwrite ----


def test_a_table_that_is_written_as_a_whole_gets_its_other_columns_back(place: Place, tmp_path: Path) -> None:
    place.run(OWN)
    sink = place.sink(mode="overwrite")
    first = put(sink, 0, tmp_path, {"id": 1, "a": "0"}, {"id": 2, "a": "0"})
    place.run("UPDATE t SET note = 'mine' WHERE id = 1")
    before = place.run("SELECT * FROM t ORDER BY 1")
    put(sink, 1, tmp_path, {"id": 3, "a": "1"})
    put(sink, 2, tmp_path, {"id": 1, "a": "2"})
    sink.roll_back(first)
    assert place.run("SELECT * FROM t ORDER BY 1") == before


def test_a_column_that_the_table_gained_has_its_default_in_rows_from_before(place: Place, tmp_path: Path) -> None:
    sink = place.sink(mode="overwrite")
    first = put(sink, 0, tmp_path, {"id": 1, "a": "0"})
    put(sink, 1, tmp_path, {"id": 2, "a": "1"})
    place.run("ALTER TABLE t ADD COLUMN b TEXT DEFAULT 'none'")
    put(sink, 2, tmp_path, {"id": 3, "a": "2", "b": "q"})
    sink.roll_back(first)
    assert place.run("SELECT id, a, b FROM t") == [(1, "0", "none")]


# ---- ways back that are none ----


@pytest.mark.parametrize(("mode", "key"), [("upsert", ["id"]), ("overwrite", [])])
def test_a_column_that_the_table_lost_is_told_before_anything_goes_back(
    place: Place, tmp_path: Path, mode: str, key: list[str]
) -> None:
    sink = place.sink(mode=mode, key=key)
    first = put(sink, 0, tmp_path, {"id": 1, "a": "0", "b": "0"})
    put(sink, 1, tmp_path, {"id": 1, "a": "1", "b": "1"})
    place.run("ALTER TABLE t DROP COLUMN b")
    put(sink, 2, tmp_path, {"id": 1, "a": "2"})
    assert "has no column b any more" in (sink.why_not_back(first) or "")
    with pytest.raises(SinkUnfit, match="has no column b any more"):
        sink.roll_back(first)
    assert place.run("SELECT id, a FROM t") == [(1, "2")]
    place.run("ALTER TABLE t_holdfast_before DROP COLUMN b")
    assert sink.why_not_back(first) is None
    sink.roll_back(first)
    assert place.run("SELECT id, a FROM t") == [(1, "0")]


def test_a_value_that_must_be_there_now_and_was_not_is_told_before_anything_goes_back(
    place: Place, tmp_path: Path
) -> None:
    place.run("CREATE TABLE t (id BIGINT PRIMARY KEY, a TEXT)")
    sink = place.sink(mode="upsert", key=["id"])
    first = put(sink, 0, tmp_path, {"id": 1, "a": None})
    put(sink, 1, tmp_path, {"id": 1, "a": "1"})
    place.run("CREATE TABLE t2 (id BIGINT PRIMARY KEY, a TEXT NOT NULL)")
    place.run("INSERT INTO t2 SELECT * FROM t")
    place.run("DROP TABLE t")
    place.run("ALTER TABLE t2 RENAME TO t")
    assert sink.why_not_back(first) == "the column a must have a value now, and rows that would be put back have none"


def test_a_table_that_does_not_tell_the_epochs_of_its_rows_is_known_for_it_before_anything_is_written(
    place: Place, tmp_path: Path
) -> None:
    assert place.sink(mode="append").keeps_way_back(), "a table that it will make"
    place.run("CREATE TABLE t (id BIGINT PRIMARY KEY, a TEXT)")
    assert not place.sink(mode="append").keeps_way_back()
    assert place.sink(mode="upsert", key=["id"]).keeps_way_back()
    sink = place.sink(mode="append")
    first = put(sink, 0, tmp_path, {"id": 1, "a": "0"})
    put(sink, 1, tmp_path, {"id": 2, "a": "1"})
    assert "has no column" in (sink.why_not_back(first) or "")


def test_a_table_that_is_gone_is_not_made_anew_as_if_nothing_had_been_in_it(place: Place, tmp_path: Path) -> None:
    sink = place.sink()
    put(sink, 0, tmp_path, {"id": 1, "a": "0"})
    staged = stage(tmp_path, [{"id": 2, "a": "1"}], TWO)
    token = sink.prepare(step(1), staged)
    place.run("DROP TABLE t")
    for act in (lambda: sink.check(TWO), lambda: sink.commit(step(1), token, staged)):
        with pytest.raises(SinkUnfit, match="the table t is gone, and with it all rows up to epoch 0"):
            act()


def test_another_way_of_writing_begins_without_what_the_one_before_has_kept(place: Place, tmp_path: Path) -> None:
    place.run(OWN)
    put(place.sink(mode="overwrite"), 0, tmp_path, {"id": 1, "a": "0"})
    sink = place.sink(mode="upsert", key=["id"])
    for epoch in (1, 2):
        last = put(sink, epoch, tmp_path, {"id": 1, "a": str(epoch)})
        place.run(f"UPDATE t SET note = 'since {epoch}'")
    put(sink, 3, tmp_path, {"id": 1, "a": "3"})
    sink.roll_back(last)
    assert place.run("SELECT a, note FROM t") == [("2", "since 2")]
    assert sink.why_not_back(Target(step(0).after, 0)) is None
    sink.roll_back(Target(step(0).after, 0))
    # The note is the user's, and not what upsert has written.
    assert place.run("SELECT a, note FROM t") == [("0", "since 2")]


# ---- always ----

CELLS = st.dictionaries(st.integers(1, 4), st.text("xyz", max_size=2) | st.none(), min_size=1)
EPOCHS = st.lists(st.tuples(st.sampled_from(["a", "b", "ab"]), CELLS), min_size=2, max_size=7)


@pytest.mark.parametrize("mode", ["upsert", "overwrite"])
@settings(max_examples=30)
@given(epochs=EPOCHS, notes=st.lists(st.integers(1, 4)), back=st.integers(0, 5))
def test_going_back_always_gives_what_stood_there_whatever_columns_came_and_went(
    mode: str, epochs: list[tuple[str, dict[int, str | None]]], notes: list[int], back: int
) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(sqlite3.connect(f"{folder}/f.db", isolation_level=None)) as file,
        closing(SQLite(f"{folder}/f.db", "t", mode=mode, key=["id"] if mode == "upsert" else [])) as sink,  # type: ignore[arg-type]
    ):
        file.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT, b TEXT DEFAULT 'none', note TEXT DEFAULT 'none')")
        sink.fence(holder(0), NOTHING)
        seen: list[list[tuple[Any, ...]]] = []
        for epoch, (columns, cells) in enumerate(epochs):
            rows = [{"id": key, **dict.fromkeys(columns, cell)} for key, cell in cells.items()]
            put(sink, epoch, Path(folder), *rows)
            for key in notes if epoch == 0 else []:
                file.execute("UPDATE t SET note = 'mine' WHERE id = ?", (key,))
            seen.append(file.execute("SELECT * FROM t ORDER BY 1").fetchall())
        for chosen in (min(back, len(epochs) - 1), 0):
            target = Target(step(chosen).after, 0)
            assert sink.why_not_back(target) is None
            sink.roll_back(target)
            assert file.execute("SELECT * FROM t ORDER BY 1").fetchall() == seen[chosen]


# ---- names ----


@pytest.mark.parametrize("name", ["_holdfast_epoch", "_holdfast_existed", ""])
def test_names_of_our_own_and_no_name_at_all_are_refused_before_anything_runs(place: Place, name: str) -> None:
    with pytest.raises(SinkUnfit):
        place.sink().check(TWO.append(pa.field(name, pa.int64())))


# ---- rows of others ----


def theirs(sink: SqlSink, target: Target) -> list[str]:
    return list(sink.foreign_since(target))


def test_rows_that_others_changed_or_took_out_are_told_and_not_lost_without_a_word(
    place: Place, tmp_path: Path
) -> None:
    sink = place.sink(mode="upsert", key=["id"])
    first = put(sink, 0, tmp_path, *({"id": key, "a": "0"} for key in (1, 2, 3, 4)))
    second = put(sink, 1, tmp_path, *({"id": key, "a": None if key == 3 else "1"} for key in (1, 2, 3, 5)))
    place.run("INSERT INTO t (id, a) VALUES (9, 'theirs')")
    place.run("UPDATE t SET a = 'theirs' WHERE id = 4")
    assert theirs(sink, first) == [], "no row that goes back"
    place.run("UPDATE t SET a = 'theirs' WHERE id IN (3, 5)")
    place.run("DELETE FROM t WHERE id = 2")
    assert theirs(sink, second) == [], "nothing has to go"
    assert theirs(sink, first) == ["2 rows changed in t", "1 rows taken out in t"]
    assert "2 rows changed in t" in (what_bars(sink, first) or "")
    assert what_bars(sink, first, discard_foreign=True) is None
    put(sink, 2, tmp_path, {"id": 3, "a": "2"})
    assert theirs(sink, second) == []
    sink.roll_back(second)
    assert place.run("SELECT a FROM t WHERE id = 3") == [("theirs",)], "as it was found"
    with pytest.raises(SinksAhead, match="rows changed in t"):
        sink.roll_back(first)
    sink.roll_back(first, discard_foreign=True)
    assert place.run("SELECT id, a FROM t ORDER BY 1") == [(1, "0"), (2, "0"), (3, "0"), (4, "theirs"), (9, "theirs")]


def test_rows_that_others_put_into_a_table_that_is_written_as_a_whole_are_told(place: Place, tmp_path: Path) -> None:
    sink = place.sink(mode="overwrite")
    first = put(sink, 0, tmp_path, {"id": 1, "a": "0"}, {"id": 2, "a": "0"})
    second = put(sink, 1, tmp_path, {"id": 3, "a": "1"})
    put(sink, 2, tmp_path, {"id": 4, "a": "2"}, {"id": 5, "a": None})
    assert theirs(sink, first) == []
    sink.roll_back(second)
    assert theirs(sink, first) == [], "put back by the sink itself"
    place.run("INSERT INTO t (id, a) VALUES (9, NULL)")
    assert len(theirs(sink, first)) == 1
    put(sink, 2, tmp_path, {"id": 4, "a": "2"})
    assert theirs(sink, first) == [], "the epoch took their rows"
    place.run("UPDATE t SET a = 'theirs'")
    assert len(theirs(sink, first)) == 1
    assert "discard_foreign" in (what_bars(sink, first) or "")


def test_a_table_of_one_row_and_one_of_none_are_told_apart(place: Place, tmp_path: Path) -> None:
    sink = place.sink(mode="overwrite")
    first = put(sink, 0, tmp_path, {"id": 1, "a": "0"})
    put(sink, 1, tmp_path, {"id": None, "a": None})
    assert theirs(sink, first) == []
    place.run("INSERT INTO t VALUES (NULL, NULL)")
    assert len(theirs(sink, first)) == 1


@pytest.mark.parametrize("steps", [1, 2])
def test_columns_that_come_and_go_are_no_change_by_others(place: Place, tmp_path: Path, steps: int) -> None:
    place.run("CREATE TABLE t (id BIGINT PRIMARY KEY, a TEXT, b TEXT DEFAULT 'new')")
    sink = place.sink(mode="upsert", key=["id"])
    first = put(sink, 0, tmp_path, {"id": 1, "a": "0"})
    targets = [put(sink, 1, tmp_path, {"id": 1, "a": "1"}, {"id": 2, "a": "1"})]
    place.run("UPDATE t SET b = 'mine' WHERE id = 2")
    targets.append(put(sink, 2, tmp_path, {"id": 1, "a": "2", "b": "q"}, {"id": 3, "a": "2", "b": None}))
    targets.append(put(sink, 3, tmp_path, {"id": 4, "a": "3"}, {"id": 3, "a": "3"}))
    if "postgres" not in sink.target:
        # There any change of a row counts, whichever column it is of.
        assert theirs(sink, first) == []
    for target in reversed(targets[-1 - steps : -1]):
        sink.roll_back(target)
    if "postgres" not in sink.target:
        assert theirs(sink, first) == []
    place.run("UPDATE t SET a = 'theirs' WHERE id = 1")
    assert theirs(sink, first)[0].endswith("changed in t")


def test_a_table_with_very_many_columns_is_looked_at_too(tmp_path: Path) -> None:
    wide = {"id": 1} | {f"c{number}": f"{number}" for number in range(1200)}
    for kind in _FILES.values():
        with closing(kind(tmp_path / f"{kind.__name__}.db", "t", mode="upsert", key=["id"])) as sink:
            sink.fence(holder(0), NOTHING)
            first = put(sink, 0, tmp_path, wide)
            put(sink, 1, tmp_path, wide | {"c7": "other"})
            assert theirs(sink, first) == []


CHANGES = {
    "two columns swapped": ("UPDATE t SET a = b, b = a", {"a": "x", "b": "y"}),
    "empty text for nothing": ("UPDATE t SET a = ''", {"a": None, "b": "y"}),
    "nothing for empty text": ("UPDATE t SET a = NULL", {"a": "", "b": "y"}),
    "the case of a letter": ("UPDATE t SET a = 'X'", {"a": "x", "b": "y"}),
    "a space at the end": ("UPDATE t SET a = 'x '", {"a": "x", "b": "y"}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_least_change_is_a_change(place: Place, tmp_path: Path, change: str) -> None:
    statement, row = CHANGES[change]
    sink = place.sink(mode="upsert", key=["id"])
    first = put(sink, 0, tmp_path, {"id": 1, "a": "before", "b": "before"})
    put(sink, 1, tmp_path, {"id": 1, **row})
    assert theirs(sink, first) == []
    place.run(statement)
    assert theirs(sink, first) == ["1 rows changed in t"]


def test_what_an_older_version_kept_bars_no_way(place: Place, tmp_path: Path) -> None:
    sink = place.sink(mode="upsert", key=["id"])
    targets = [put(sink, epoch, tmp_path, {"id": 1, "a": f"{epoch}"}) for epoch in range(2)]
    mark = "_holdfast_xid" if "postgres" in sink.target else "_holdfast_wrote"
    place.run(f"ALTER TABLE t_holdfast_before DROP COLUMN {mark}")
    place.run("UPDATE t SET a = 'theirs'")
    assert theirs(sink, targets[0]) == []
    put(sink, 2, tmp_path, {"id": 2, "a": "2"})
    assert theirs(sink, targets[0]) == []
    sink.roll_back(targets[0])
    assert place.run("SELECT id, a FROM t") == [(1, "0")]
