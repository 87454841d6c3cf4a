"""What PostgreSQL refuses is refused before the decision; what others did to rows, or may see of them, is told."""

from __future__ import annotations

import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import adbc_driver_postgresql.dbapi as adbc
import pyarrow as pa
import pytest

from holdfast.decide.chain import NOTHING
from holdfast.errors import SinksAhead, SinkUnfit
from holdfast.sinks import Postgres
from holdfast.sinks.contract import WriteMode, what_bars
from holdfast.testing.sinks import SCHEMA, holder, stage, step, words
from servers.postgres import PASSWORD
from sinks.postgres_hands import Opened, Run, left_over, put

WAYS: list[tuple[WriteMode, tuple[str, ...]]] = [("append", ()), ("upsert", ("c0",)), ("overwrite", ())]


# ---- widths ----


@pytest.mark.parametrize(("mode", "key"), WAYS)
@pytest.mark.parametrize(
    ("columns", "kind", "value", "why"),
    [
        (1700, pa.float64(), 1.0, "at most 1600 columns"),
        (1200, pa.float64(), 1.0, "row is too big"),
        (500, pa.string(), "x" * 24, "row is too big"),
    ],
)
def test_rows_too_wide_for_a_page_are_refused_before_the_decision(
    opened: Opened,
    run: Run,
    tmp_path: Path,
    mode: WriteMode,
    key: tuple[str, ...],
    columns: int,
    kind: pa.DataType,
    value: object,
    why: str,
) -> None:
    schema = pa.schema([(f"c{number}", kind) for number in range(columns)])
    with pytest.raises(SinkUnfit, match=why):
        opened("t", mode=mode, key=key).prepare(step(0), stage(tmp_path, [dict.fromkeys(schema.names, value)], schema))
    assert run("SELECT to_regclass('t')::text") == [(None,)]
    assert left_over(run) == []


def test_a_column_of_our_own_that_is_one_too_many_is_told_before_the_decision(opened: Opened, tmp_path: Path) -> None:
    schema = pa.schema([(f"c{number}", pa.bool_()) for number in range(1600)])
    with pytest.raises(SinkUnfit, match="at most 1600 columns"):
        opened("t").prepare(step(0), stage(tmp_path, [dict.fromkeys(schema.names, True)], schema))


def test_wide_rows_that_just_fit_are_taken(opened: Opened, run: Run, tmp_path: Path) -> None:
    schema = pa.schema([(f"c{number}", pa.float64()) for number in range(1000)])
    put(opened("t"), 0, stage(tmp_path, [dict.fromkeys(schema.names, 1.0)], schema))
    assert run("SELECT c999 FROM t") == [(1.0,)]


@pytest.mark.parametrize("kind", ["varchar(2)", "char(2)"])
def test_blanks_that_the_server_would_cut_off_are_refused(opened: Opened, run: Run, tmp_path: Path, kind: str) -> None:
    run(f"CREATE TABLE t (a {kind})")
    schema, sink = pa.schema([("a", pa.string())]), opened("t")
    with pytest.raises(SinkUnfit, match="a value is too long, 5 characters"):
        sink.prepare(step(0), stage(tmp_path, [{"a": "ab   "}], schema))
    put(sink, 0, stage(tmp_path, [{"a": "öö"}, {"a": None}], schema))
    assert run("SELECT a FROM t ORDER BY 1") == [("öö",), (None,)]


# ---- rights ----


def user_of(url: str, run: Run) -> tuple[str, str]:
    """A user who may do nothing yet, and his address."""
    user = f"u{uuid.uuid4().hex}"
    run(f"CREATE USER {user} PASSWORD 'low-horse'")
    run(f"GRANT CREATE ON SCHEMA public TO {user}")
    return user, url.replace(f"postgres:{PASSWORD}", f"{user}:low-horse")


def test_a_user_who_may_not_write_every_column_is_told_before_anything_runs(postgres_url: str, run: Run) -> None:
    run("CREATE TABLE words (id bigint, word text, seen timestamptz)")
    user, url = user_of(postgres_url, run)
    run(f"GRANT INSERT (id, word) ON words TO {user}")
    with closing(Postgres(url, "words")) as sink:
        with pytest.raises(SinkUnfit, match="may not append rows in words"):
            sink.check(SCHEMA)
        run(f"GRANT INSERT (seen) ON words TO {user}")
        sink.check(SCHEMA)


def test_kept_rows_that_belong_to_another_user_are_told_before_the_decision(
    opened: Opened, postgres_url: str, run: Run, tmp_path: Path
) -> None:
    put(opened(mode="upsert", key=["id"]), 0, stage(tmp_path, words(1)))
    user, url = user_of(postgres_url, run)
    run(f"GRANT ALL ON words, holdfast_sinks TO {user}")
    with closing(Postgres(url, "words", mode="upsert", key=["id"])) as sink:
        sink.fence(holder(1), NOTHING)
        with pytest.raises(SinkUnfit, match="permission denied for table words_holdfast_before"):
            sink.prepare(step(1), stage(tmp_path, words(2)))


def test_rows_that_a_policy_may_hide_are_not_taken_back_only_in_part(
    postgres_url: str, run: Run, tmp_path: Path
) -> None:
    user, url = user_of(postgres_url, run)
    run("CREATE TABLE words (id bigint, word text, seen timestamptz, _holdfast_epoch bigint)")
    run(f"GRANT ALL ON words TO {user}")
    run("ALTER TABLE words ENABLE ROW LEVEL SECURITY")
    run("CREATE POLICY i ON words FOR INSERT WITH CHECK (true)")
    run("CREATE POLICY s ON words FOR SELECT USING (id <> 2)")
    run("CREATE POLICY d ON words FOR DELETE USING (id <> 2)")
    with closing(Postgres(url, "words")) as sink:
        sink.fence(holder(0), NOTHING)
        first = put(sink, 0, stage(tmp_path, words(1)))
        put(sink, 1, stage(tmp_path, words(2, 3)))
        assert "row security" in (sink.why_not_back(first) or "")
        with pytest.raises(SinkUnfit, match="row security"):
            sink.roll_back(first)
    assert run("SELECT id FROM words ORDER BY 1") == [(1,), (2,), (3,)]


# ---- what is kept ----


def test_numbers_that_the_table_gives_by_itself_are_given_back(opened: Opened, run: Run, tmp_path: Path) -> None:
    run(
        """CREATE TABLE words (n bigint GENERATED ALWAYS AS IDENTITY, s serial, id bigint, word text, seen timestamptz,
        twice bigint GENERATED ALWAYS AS (id * 2) STORED)"""
    )
    sink = opened(mode="overwrite")
    first = put(sink, 0, stage(tmp_path, words(1, 2)))
    before = run("SELECT n, s, id, twice FROM words ORDER BY 1")
    put(sink, 1, stage(tmp_path, words(3)))
    sink.roll_back(first)
    assert run("SELECT n, s, id, twice FROM words ORDER BY 1") == before


def test_kept_rows_are_compared_as_the_table_compares_them(opened: Opened, run: Run, tmp_path: Path) -> None:
    run('CREATE TABLE words (id bigint, word text COLLATE "C" PRIMARY KEY, seen timestamptz)')
    put(opened(mode="upsert", key=["word"]), 0, stage(tmp_path, words(1)))
    collated = "SELECT attcollation::int FROM pg_attribute WHERE attname = 'word' AND attrelid = '{}'::regclass"
    assert run(collated.format("words_holdfast_before")) == run(collated.format("words"))


def test_a_key_that_is_unique_by_another_collation_is_refused(opened: Opened, run: Run) -> None:
    run("CREATE TABLE words (id bigint, word text, seen timestamptz)")
    run('CREATE UNIQUE INDEX ON words (word COLLATE "C")')
    with pytest.raises(SinkUnfit, match="no PRIMARY KEY or UNIQUE constraint on exactly word"):
        opened("words", None, mode="upsert", key=["word"]).check(SCHEMA)


# ---- rows of others ----


def test_rows_that_others_changed_or_took_out_are_told_and_not_lost_without_a_word(
    opened: Opened, run: Run, tmp_path: Path
) -> None:
    sink = opened(mode="upsert", key=["id"])
    first = put(sink, 0, stage(tmp_path, words(1, 2, 3, 4)))
    second = put(sink, 1, stage(tmp_path, words(1, 2, 3, 5, word="x")))
    assert list(sink.foreign_since(first)) == []
    run("INSERT INTO words VALUES (9, 'theirs')")
    run("UPDATE words SET word = 'theirs' WHERE id = 4")
    assert list(sink.foreign_since(first)) == [], "no row that goes back"
    run("UPDATE words SET word = 'theirs' WHERE id IN (1, 5)")
    run("DELETE FROM words WHERE id = 2")
    assert list(sink.foreign_since(second)) == [], "nothing has to go"
    assert list(sink.foreign_since(first)) == ["2 rows changed in words", "1 rows taken out in words"]
    assert "2 rows changed in words" in (what_bars(sink, first) or "")
    assert what_bars(sink, first, discard_foreign=True) is None
    put(sink, 2, stage(tmp_path, words(1, word="y")))
    assert list(sink.foreign_since(second)) == []
    sink.roll_back(second)
    assert run("SELECT word FROM words WHERE id = 1") == [("theirs",)], "as it was found"
    assert list(sink.foreign_since(first)) == ["1 rows changed in words", "1 rows taken out in words"]


@pytest.mark.parametrize("mode", ["upsert", "overwrite"])
def test_who_is_changing_a_row_when_the_sink_goes_back_is_waited_for_and_seen(
    opened: Opened, postgres_url: str, run: Run, tmp_path: Path, mode: WriteMode
) -> None:
    sink = opened(mode=mode, key=["id"] if mode == "upsert" else [])
    first = put(sink, 0, stage(tmp_path, words(1, 2)))
    put(sink, 1, stage(tmp_path, words(1, 2, word="x")))
    with ThreadPoolExecutor(1) as pool, adbc.connect(postgres_url) as other:
        with other.cursor() as cursor:
            cursor.execute("UPDATE words SET word = 'theirs' WHERE id = 1")
            under_way = pool.submit(sink.roll_back, first)
            while not under_way.done() and not run("SELECT 1 FROM pg_locks WHERE NOT granted"):
                time.sleep(0.01)
        other.commit()
        with pytest.raises(SinksAhead, match="1 rows changed in words"):
            under_way.result()
    assert run("SELECT id, word FROM words ORDER BY 1") == [(1, "theirs"), (2, "x2")]
    sink.roll_back(first, discard_foreign=True)
    assert run("SELECT id, word FROM words ORDER BY 1") == [(1, "w1"), (2, "w2")]


def test_rows_that_others_put_into_a_table_that_is_written_as_a_whole_are_told(
    opened: Opened, run: Run, tmp_path: Path
) -> None:
    sink = opened(mode="overwrite")
    first = put(sink, 0, stage(tmp_path, words(1, 2)))
    second = put(sink, 1, stage(tmp_path, words(3)))
    put(sink, 2, stage(tmp_path, words(4, 5)))
    sink.roll_back(second)
    assert list(sink.foreign_since(first)) == [], "put back by the sink itself"
    run("INSERT INTO words VALUES (9, 'theirs')")
    run("UPDATE words SET word = 'theirs' WHERE id = 3")
    assert list(sink.foreign_since(first)) == ["2 rows changed in words"]
