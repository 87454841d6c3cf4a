"""What is DuckDB's own: types that stay nested, and a file that others want to read."""

from __future__ import annotations

import datetime
import decimal
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from holdfast.decide.chain import NOTHING
from holdfast.errors import DamagedArtifact, SinkTaken, SinkUnavailable, SinkUnfit
from holdfast.sinks import DuckDB
from holdfast.sinks import duckdb as module
from holdfast.sinks.contract import Sink, Target, WriteMode
from holdfast.sinks.sql import EPOCH
from holdfast.testing.sinks import SinkContract, holder, stage, step, words
from sinks.killing import kill_at_each_step, kill_at_random, overtake_at_each_step
from sinks.sleeping import sleeping
from sinks.table_driver import truth

Opened = Callable[..., DuckDB]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sink.duckdb"


@pytest.fixture
def opened(path: Path) -> Iterator[Opened]:
    """Sinks of a table, fenced, that are closed in the end."""
    sinks: list[DuckDB] = []

    def make(table: str = "words", **options: Any) -> DuckDB:
        sinks.append(DuckDB(path, table, **options))
        sinks[-1].fence(holder(0), NOTHING)
        return sinks[-1]

    yield make
    for sink in sinks:
        sink.close()


def run(path: Path, statement: str) -> list[tuple[Any, ...]]:
    """What another program sees, or does, once nobody else has the file open."""
    for _ in range(500):
        try:
            with closing(duckdb.connect(path)) as connection:
                return connection.execute(statement).fetchall()
        except duckdb.Error as error:
            if "file handle conflict" not in str(error):
                raise
        time.sleep(0.02)
    raise AssertionError("it is never let go of")


def put(sink: Sink, epoch: int, rows: Sequence[dict[str, Any]], folder: Path, *schema: pa.Schema) -> Target:
    staged = stage(folder, rows, *schema)
    sink.commit(step(epoch), sink.prepare(step(epoch), staged), staged)
    return Target(step(epoch).after, 0)


class TestDuckDB(SinkContract):
    modes = ("append", "upsert", "overwrite")
    races = 6

    @pytest.fixture(autouse=True)
    def _place(self, path: Path) -> None:
        self.path = path

    def open(self, mode: WriteMode, key: Sequence[str]) -> Sink:
        return DuckDB(self.path, "words", mode=mode, key=key)

    def read(self) -> Iterable[dict[str, Any]]:
        if not run(self.path, "SELECT 1 FROM duckdb_tables() WHERE table_name = 'words'"):
            return []
        found = run(self.path, "SELECT id, word, seen FROM words")
        return [{"id": number, "word": word, "seen": seen} for number, word, seen in found]

    def meddle(self) -> bool:
        run(self.path, "UPDATE words SET word = 'theirs'")
        return True


def test_every_type_stays_what_it_is(opened: Opened, path: Path, tmp_path: Path) -> None:
    utc = pa.timestamp("us", tz="UTC")
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    columns: dict[str, tuple[pa.DataType, Any, str]] = {
        "tiny": (pa.int8(), -7, "TINYINT"),
        "big": (pa.int64(), 2**62, "BIGINT"),
        "single": (pa.float32(), 0.5, "FLOAT"),
        "double": (pa.float64(), 0.1, "DOUBLE"),
        "yes": (pa.bool_(), True, "BOOLEAN"),
        "exact": (pa.decimal128(38, 4), decimal.Decimal("1234567890.1200"), "DECIMAL(38,4)"),
        "text": (pa.string(), "it's ✓", "VARCHAR"),
        "data": (pa.binary(), b"\x00\xff", "BLOB"),
        "day": (pa.date32(), datetime.date(2026, 2, 3), "DATE"),
        "clock": (pa.time64("us"), datetime.time(1, 2, 3, 4), "TIME"),
        "zoned": (utc, start, "TIMESTAMP WITH TIME ZONE"),
        "local": (pa.timestamp("us"), start.replace(tzinfo=None), "TIMESTAMP"),
        "took": (pa.duration("us"), datetime.timedelta(hours=3), "INTERVAL"),
        "part": (pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))]), {"a": 1, "b": ["x", None]}, "STRUCT"),
        "tags": (pa.list_(pa.string()), ["a", None], "VARCHAR[]"),
        "counts": (pa.map_(pa.string(), pa.int32()), [("x", 1)], "MAP(VARCHAR, INTEGER)"),
    }
    schema = pa.schema([(name, kind) for name, (kind, *_) in columns.items()])
    row = {name: value for name, (_, value, _) in columns.items()}
    put(opened("kinds"), 0, [row, dict.fromkeys(row)], tmp_path, schema)
    types = [
        kind.partition("(")[0] if kind.startswith("STRUCT") else kind for _, kind, *_ in run(path, "DESCRIBE kinds")
    ]
    assert types == [*(name for *_, name in columns.values()), "BIGINT"]
    first, second = run(path, f"SELECT * EXCLUDE {EPOCH} FROM kinds ORDER BY big")
    assert first == tuple({**row, "counts": {"x": 1}}.values())
    assert second == (None,) * len(row)


def test_a_type_without_a_place_is_refused(path: Path) -> None:
    for kind in (pa.null(), pa.decimal256(60, 2)):
        with closing(DuckDB(path, "t")) as sink, pytest.raises(SinkUnfit, match="no type for"):
            sink.check(pa.schema([("odd", kind)]))
    assert not path.exists()


def test_a_table_of_the_users_own_takes_what_its_columns_can_hold(opened: Opened, path: Path, tmp_path: Path) -> None:
    run(path, "CREATE TYPE mood AS ENUM ('good', 'bad')")
    run(
        path,
        "CREATE TABLE own (note VARCHAR DEFAULT 'none', small SMALLINT, exact DECIMAL(12,4), wide DOUBLE, who UUID, "
        "feels mood, CHECK (small < 100))",
    )
    schema = pa.schema(
        [
            ("wide", pa.float32()),
            ("small", pa.int64()),
            ("exact", pa.decimal128(10, 2)),
            ("who", pa.string()),
            ("feels", pa.string()),
        ]
    )
    who = "0d9f4c3a-0000-4000-8000-00000000000a"
    row = {"wide": 0.5, "small": 3, "exact": decimal.Decimal("1.50"), "who": who, "feels": "good"}
    sink = opened("own")
    first = put(sink, 0, [row], tmp_path, schema)
    assert run(path, "SELECT note, small, exact, wide, who::VARCHAR, feels FROM own") == [
        ("none", 3, decimal.Decimal("1.5000"), 0.5, who, "good")
    ]
    for bad in ({"small": 40_000}, {"small": 100}, {"who": "nobody"}, {"feels": "strange"}):
        with pytest.raises(SinkUnfit):
            sink.prepare(step(1), stage(tmp_path, [{**row, **bad}], schema))
    put(sink, 1, [row], tmp_path, schema)
    assert run(path, "SELECT count(*) FROM own") == [(2,)]
    assert EPOCH in (sink.why_not_back(first) or "")


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("DECIMAL(10,2)", pa.decimal128(10, 4)),
        ("TIMESTAMP_S", pa.timestamp("us")),
        ("TIMESTAMP", pa.timestamp("us", tz="UTC")),
        ("FLOAT", pa.float64()),
        ("VARCHAR", pa.int64()),
        ("BIGINT", pa.string()),
        ("STRUCT(a INTEGER)", pa.struct([("b", pa.int32())])),
    ],
)
def test_a_column_that_would_change_values_without_a_word_is_refused(
    path: Path, column: str, kind: pa.DataType
) -> None:
    run(path, f"CREATE TABLE t (c {column})")
    with closing(DuckDB(path, "t")) as sink, pytest.raises(SinkUnfit, match="has other types: c is"):
        sink.check(pa.schema([("c", kind)]))


def test_a_window_can_be_a_key(opened: Opened, path: Path, tmp_path: Path) -> None:
    utc = pa.timestamp("us", tz="UTC")
    schema = pa.schema([("window", pa.struct([("start", utc), ("end", utc)])), ("n", pa.int64())])
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    sink = opened("sums", mode="upsert", key=["window"])
    for epoch, counts in enumerate([{0: 1, 1: 1}, {1: 2, 2: 2}]):
        begins = {start + datetime.timedelta(minutes=minute): count for minute, count in counts.items()}
        put(sink, epoch, [{"window": {"start": b, "end": None}, "n": n} for b, n in begins.items()], tmp_path, schema)
    found = 'SELECT n FROM sums ORDER BY "window".start'
    assert run(path, found) == [(1,), (2,), (2,)]
    sink.roll_back(Target(step(0).after, 0))
    assert run(path, found) == [(1,), (1,)]


def test_a_key_is_the_primary_key_and_takes_many_changes(opened: Opened, path: Path, tmp_path: Path) -> None:
    sink = opened(mode="upsert", key=["id"])
    for epoch in range(8):
        put(sink, epoch, words(*range(epoch, 200), word=f"{epoch}-"), tmp_path)
    sink.roll_back(Target(step(5).after, 0))
    expected = sorted((number, f"{min(number, 5)}-{number}") for number in range(200))
    assert run(path, "SELECT id, word FROM words ORDER BY 1") == expected
    assert run(
        path,
        "SELECT constraint_column_names FROM duckdb_constraints() WHERE table_name = 'words' "
        "AND constraint_type = 'PRIMARY KEY'",
    ) == [(["id"],)]


def test_a_key_with_a_collation_is_refused(path: Path) -> None:
    run(path, 'CREATE TABLE words (id BIGINT, word VARCHAR COLLATE NOCASE, "odd (1)" VARCHAR COLLATE NOCASE)')
    schema = pa.schema([("id", pa.int64()), ("word", pa.string()), ("odd (1)", pa.string())])
    for name in schema.names[1:]:
        sink = DuckDB(path, "words", mode="upsert", key=[name])
        with closing(sink), pytest.raises(SinkUnfit, match="of words has a collation"):
            sink.check(schema)


def test_a_rule_that_a_table_got_later_refuses_rows_before_the_decision(
    opened: Opened, path: Path, tmp_path: Path
) -> None:
    sink = opened()
    put(sink, 0, words(1), tmp_path)
    run(path, "CREATE UNIQUE INDEX once ON words (word)")
    with pytest.raises(SinkUnfit):
        sink.prepare(step(1), stage(tmp_path, words(1)))
    put(sink, 1, words(2), tmp_path)


def test_a_staged_file_that_is_damaged_is_told(opened: Opened, tmp_path: Path) -> None:
    staged = stage(tmp_path, words(*range(10)))
    damaged = Path(staged.place.url) / staged.staged.files[1].name
    damaged.write_bytes(b"PAR1" + damaged.read_bytes()[4:-4])
    with pytest.raises(DamagedArtifact):
        opened().prepare(step(0), staged)


def test_names_that_need_quotes_are_only_names(tmp_path: Path) -> None:
    path, schema = tmp_path / "it's ?1.duckdb", pa.schema([('a "b"; DROP TABLE x', pa.int64())])
    with closing(DuckDB(path, 'odd "name" ?1 $1', mode="upsert", key=schema.names)) as sink:
        sink.fence(holder(0), NOTHING)
        for epoch in range(2):
            put(sink, epoch, [{schema.names[0]: 1}], tmp_path, schema)
    assert run(path, 'SELECT * FROM "odd ""name"" ?1 $1"') == [(1,)]


def test_a_table_is_the_same_however_its_name_is_written(opened: Opened, path: Path) -> None:
    opened("words")
    with closing(DuckDB(path, "Words")) as other, pytest.raises(SinkTaken):
        other.fence(holder(0, "pipeline-2"), NOTHING)


# ---- the file ----


@contextmanager
def another_process(path: Path, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """One that has the file open until it is told to end."""
    program = f"import duckdb\nc = duckdb.connect({str(path)!r}, **{options})\nprint('open', flush=True)\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        try:
            yield process
        finally:
            process.kill()


def test_readers_get_in_between_and_a_file_that_another_holds_is_told_and_can_be_tried_again(
    opened: Opened, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.1)
    sink = opened()
    put(sink, 0, words(1), tmp_path)
    staged = stage(tmp_path, words(2))
    token = sink.prepare(step(1), staged)
    for options in ({}, {"read_only": True}):
        with another_process(path, **options) as process, pytest.raises(SinkUnavailable, match=f"PID {process.pid}"):
            sink.commit(step(1), token, staged)
    with closing(duckdb.connect(path)), pytest.raises(SinkUnavailable, match="already attached"):
        sink.commit(step(1), token, staged)
    sink.commit(step(1), token, staged)
    assert run(path, "SELECT id FROM words ORDER BY 1") == [(1,), (2,)]


def test_one_that_lets_go_is_waited_for(opened: Opened, path: Path, tmp_path: Path) -> None:
    sink = opened()
    with another_process(path) as process:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.close()
        put(sink, 0, words(1), tmp_path)
    assert run(path, "SELECT id FROM words") == [(1,)]


def test_a_file_that_can_not_be_made_or_is_none_is_told(tmp_path: Path) -> None:
    (tmp_path / "junk").write_text("no database" * 1000)
    for place in (tmp_path / "nowhere" / "sink.duckdb", tmp_path / "junk"):
        with closing(DuckDB(place, "words")) as sink, pytest.raises(SinkUnavailable):
            sink.fence(holder(0), NOTHING)
    assert [found.name for found in tmp_path.iterdir()] == ["junk"]


def test_a_disk_that_is_full_loses_nothing_and_the_same_commit_goes_through_later(
    opened: Opened, path: Path, tmp_path: Path
) -> None:
    sink = opened()
    put(sink, 0, words(1), tmp_path)
    chance = random.Random(1)
    staged = stage(tmp_path, [{**row, "word": chance.randbytes(32).hex()} for row in words(*range(2, 50_000))])
    token = sink.prepare(step(1), staged)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 4096, before[1]))
    try:
        with pytest.raises(SinkUnavailable):
            sink.commit(step(1), token, staged)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert run(path, "SELECT id FROM words") == [(1,)]
    sink.commit(step(1), token, staged)
    assert run(path, "SELECT count(*), count(DISTINCT id) FROM words") == [(49_999, 49_999)]


# ---- drivers that sleep, or are killed ----


@pytest.fixture
def spec(path: Path) -> dict[str, str]:
    return {"kind": "duckdb", "path": str(path), "table": "words"}


def test_a_driver_that_sleeps_in_its_commit_is_told_by_its_number_and_not_waited_for_without_end(
    spec: dict[str, str], path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.1)
    with closing(DuckDB(path, "words")) as taker:
        with sleeping(spec, tmp_path, "commit") as zombie, pytest.raises(SinkUnavailable, match=f"PID {zombie.pid}"):
            taker.fence(holder(1), NOTHING)
        # Killed, as somebody who reads that would do.
        assert taker.fence(holder(1), NOTHING).at == NOTHING
    assert run(path, "SELECT 1 FROM duckdb_tables() WHERE table_name = 'words'") == []


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_driver_that_is_killed_at_each_step_loses_and_doubles_nothing(
    spec: dict[str, str], path: Path, tmp_path: Path, mode: str
) -> None:
    kill_at_each_step({**spec, "mode": mode}, tmp_path)
    assert run(path, "SELECT id, word FROM words ORDER BY 1") == truth(5, mode)


def test_drivers_that_are_killed_at_random_lose_and_double_nothing(
    spec: dict[str, str], path: Path, tmp_path: Path
) -> None:
    kill_at_random({**spec, "mode": "upsert"}, tmp_path, seed=12)
    assert run(path, "SELECT id, word FROM words ORDER BY 1") == truth(25, "upsert")


def test_a_driver_that_wakes_after_it_was_overtaken_commits_nothing(
    spec: dict[str, str], path: Path, tmp_path: Path
) -> None:
    overtake_at_each_step(spec, tmp_path)
    assert run(path, "SELECT id, word FROM words ORDER BY 1") == truth(6, "append")
