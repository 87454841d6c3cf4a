"""What is PostgreSQL's own: its types, tables with rules of their own, names, and secrets."""

from __future__ import annotations

import datetime
import decimal
import random
import uuid
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast.decide.chain import NOTHING
from holdfast.errors import BadValue, SinkUnavailable, SinkUnfit
from holdfast.sinks import Postgres
from holdfast.sinks.contract import Sink, Target, WriteMode
from holdfast.sinks.sql import EPOCH
from holdfast.sinks.sql_marker import MARKERS
from holdfast.sinks.staged import StagedRows
from holdfast.testing.sinks import SCHEMA, SinkContract, holder, stage, step, words
from servers import PostgresServer
from servers.postgres import PASSWORD
from sinks.postgres_hands import Opened, Run, left_over, put


class TestPostgres(SinkContract):
    modes = ("append", "upsert", "overwrite")
    races = 6

    @pytest.fixture(autouse=True)
    def _place(self, postgres_url: str, run: Run) -> None:
        self.url = postgres_url
        self.run = run

    def open(self, mode: WriteMode, key: Sequence[str]) -> Sink:
        return Postgres(self.url, "words", mode=mode, key=key)

    def read(self) -> Iterable[dict[str, Any]]:
        if self.run("SELECT to_regclass('words')::text") == [(None,)]:
            return []
        found = self.run("SELECT id, word, seen::text FROM words")
        return [{"id": number, "word": word, "seen": seen} for number, word, seen in found]

    def meddle(self) -> bool:
        self.run("UPDATE words SET word = 'theirs'")
        return True


# ---- types ----


def test_every_type_comes_in_as_what_it_is(opened: Opened, run: Run, tmp_path: Path) -> None:
    utc = pa.timestamp("us", tz="UTC")
    start = datetime.datetime(1969, 12, 31, 23, 59, 59, 1, tzinfo=datetime.UTC)
    columns: dict[str, tuple[pa.DataType, Any, str, str]] = {
        "tiny": (pa.int8(), -7, "smallint", "-7"),
        "whole": (pa.int32(), 7, "integer", "7"),
        "big": (pa.int64(), 2**62, "bigint", str(2**62)),
        "huge": (pa.uint64(), 2**64 - 1, "numeric(20,0)", str(2**64 - 1)),
        "single": (pa.float32(), 0.5, "real", "0.5"),
        "double": (pa.float64(), float("nan"), "double precision", "NaN"),
        "yes": (pa.bool_(), True, "boolean", "true"),
        "exact": (pa.decimal128(20, 4), decimal.Decimal("-1234567890.1200"), "numeric(20,4)", "-1234567890.1200"),
        "text": (pa.string(), "it's ✓", "text", "it's ✓"),
        "large": (pa.large_string(), "l", "text", "l"),
        "data": (pa.binary(), b"\x00\xff", "bytea", "\\x00ff"),
        "day": (pa.date32(), datetime.date(2026, 2, 3), "date", "2026-02-03"),
        "clock": (pa.time64("us"), datetime.time(1, 2, 3, 4), "time without time zone", "01:02:03.000004"),
        "zoned": (utc, start, "timestamp with time zone", "1969-12-31 23:59:59.000001+00"),
        "local": (
            pa.timestamp("us"),
            start.replace(tzinfo=None),
            "timestamp without time zone",
            "1969-12-31 23:59:59.000001",
        ),
        "took": (pa.duration("us"), datetime.timedelta(hours=3), "interval", "03:00:00"),
        "window": (
            pa.struct([("start", utc), ("end", utc)]),
            {"start": start, "end": None},
            "jsonb",
            '{"end": null, "start": "1969-12-31T23:59:59.000001Z"}',
        ),
        "tags": (pa.list_(pa.string()), ['a "b"', None], "jsonb", '["a \\"b\\"", null]'),
        "counts": (pa.map_(pa.string(), pa.int32()), [("x", 1)], "jsonb", '{"x": 1}'),
    }
    schema = pa.schema([(name, kind) for name, (kind, *_) in columns.items()])
    row = {name: value for name, (_, value, *_) in columns.items()}
    put(opened("kinds"), 0, stage(tmp_path, [row, dict.fromkeys(row)], schema, files=1))
    made = run(
        "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 'kinds'::regclass AND attnum > 0"
    )
    assert [kind for (kind,) in made] == [*(name for *_, name, _ in columns.values()), "bigint"]
    run("SET timezone = 'UTC'")
    first, second = run("SELECT {} FROM kinds".format(", ".join(f'"{name}"::text' for name in columns)))
    assert first == tuple(shown for *_, shown in columns.values())
    assert second == (None,) * len(columns)


def test_decimals_keep_every_digit(opened: Opened, run: Run, tmp_path: Path) -> None:
    chance, schema = random.Random(7), pa.schema([("n", pa.int64()), ("d", pa.decimal128(38, 12))])
    wide = decimal.Context(prec=60)
    # Digits in runs of zeros and in blocks of four: that is how the server keeps them.
    digits = [int("".join(chance.choice(["0000", "9999", "0", "10", "7"]) for _ in range(12))[:38]) for _ in range(500)]
    values = [decimal.Decimal(chance.choice([1, -1]) * number).scaleb(-12, wide) for number in digits]
    put(opened("exact"), 0, stage(tmp_path, [{"n": n, "d": value} for n, value in enumerate(values)], schema))
    assert [decimal.Decimal(text) for (text,) in run("SELECT d::text FROM exact ORDER BY n")] == values


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (pa.string(), "text", "a\x00b"),
        (pa.struct([("s", pa.string())]), {"s": "text"}, {"s": "a\x00b"}),
        (pa.date32(), datetime.date(1, 1, 1), -2_500_000),
        (pa.timestamp("us"), datetime.datetime(1, 1, 1), -250_000_000_000_000_000),
    ],
)
def test_a_value_that_the_server_refuses_is_refused_before_the_decision(
    opened: Opened, run: Run, tmp_path: Path, kind: pa.DataType, good: object, bad: object
) -> None:
    schema, sink = pa.schema([("c", kind)]), opened("t")
    put(sink, 0, stage(tmp_path, [{"c": good}, {"c": None}], schema))
    with pytest.raises(SinkUnfit):
        sink.prepare(step(1), stage(tmp_path, [{"c": good}, {"c": bad}], schema))
    assert run("SELECT count(*) FROM t") == [(2,)]
    assert left_over(run) == []


def test_text_that_is_no_utf8_is_refused_before_the_decision(opened: Opened, run: Run, tmp_path: Path) -> None:
    table = pa.table({"c": pa.array([b"\xff\xfe"], pa.binary()).view(pa.string())})
    staged = stage(tmp_path, [], table.schema)
    with pytest.raises(SinkUnfit, match="UTF8"):
        opened("t").prepare(step(0), StagedRows(staged.staged, staged.place, table))


def test_rows_that_nothing_can_refuse_are_copied_with_the_commit(opened: Opened, run: Run, tmp_path: Path) -> None:
    sink = opened()
    for epoch in range(2):
        staged = stage(tmp_path, words(epoch))
        token = sink.prepare(step(epoch), staged)
        assert left_over(run) == []
        sink.commit(step(epoch), token, staged)
        sink.commit(step(epoch), token, staged)
    assert run(f"SELECT id, word, {EPOCH} FROM words ORDER BY 1") == [(0, "w0", 0), (1, "w1", 1)]
    run("ALTER TABLE words ADD CHECK (id < 5)")
    sink.prepare(step(2), stage(tmp_path, words(2)))
    assert len(left_over(run)) == 1


def test_a_type_without_a_place_is_refused(opened: Opened) -> None:
    with pytest.raises(SinkUnfit, match="no type for"):
        opened("t", None).check(pa.schema([("odd", pa.month_day_nano_interval())]))


# ---- tables of the user's own ----


def test_a_table_of_the_users_own_takes_what_its_columns_can_hold(opened: Opened, run: Run, tmp_path: Path) -> None:
    run("CREATE DOMAIN price AS numeric(12,4)")
    run(
        """CREATE TABLE own (serial bigint GENERATED ALWAYS AS IDENTITY, small smallint, exact numeric, cost price,
        name varchar(5), who uuid, doc jsonb, raw json, part jsonb, note text NOT NULL DEFAULT 'none',
        doubled int GENERATED ALWAYS AS (small * 2) STORED)"""
    )
    schema = pa.schema(
        [
            ("part", pa.list_(pa.int64())),
            ("small", pa.int64()),
            ("exact", pa.int32()),
            ("cost", pa.decimal128(10, 2)),
            ("name", pa.string()),
            ("who", pa.string()),
            ("doc", pa.string()),
            ("raw", pa.string()),
        ]
    )
    row = {
        "part": [1, 2],
        "small": 3,
        "exact": 4,
        "cost": decimal.Decimal("1.50"),
        "name": "abcde",
        "who": "0d9F4c3a-0000-4000-8000-00000000000a",
        "doc": '{"b":1,"a":2}',
        "raw": '{"b":1}',
    }
    sink = opened("own")
    first = put(sink, 0, stage(tmp_path, [row, dict.fromkeys(row)], schema, files=1))
    assert run("SELECT * FROM own")[0] == (
        *(1, 3, "4", "1.5000", "abcde", uuid.UUID(row["who"])),
        *('{"a": 2, "b": 1}', '{"b":1}', "[1, 2]", "none", 6),
    )
    for bad, why in (
        ({"small": 40_000}, "small is smallint.*40000"),
        ({"name": "abcdef"}, "too long"),
        ({"who": "nobody"}, "no UUID"),
        ({"doc": "{"}, "json"),
    ):
        with pytest.raises(SinkUnfit, match=why):
            sink.prepare(step(1), stage(tmp_path, [{**row, **bad}], schema))
    assert left_over(run) == []
    put(sink, 1, stage(tmp_path, [row], schema))
    assert EPOCH in (sink.why_not_back(first) or "")


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("numeric(10,2)", pa.decimal128(10, 4)),
        ("timestamp(3)", pa.timestamp("us")),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestamptz", pa.timestamp("us")),
        ("real", pa.float64()),
        ("bigint", pa.float64()),
        ("double precision", pa.int64()),
        ("text", pa.int64()),
        ("date", pa.timestamp("us")),
        ("text[]", pa.list_(pa.string())),
    ],
)
def test_a_column_that_would_change_values_without_a_word_is_refused(
    opened: Opened, run: Run, column: str, kind: pa.DataType
) -> None:
    run(f"CREATE TABLE t (c {column})")
    with pytest.raises(SinkUnfit, match="has other types: c is"):
        opened("t", None).check(pa.schema([("c", kind)]))


PLAIN = "CREATE TABLE words (id bigint, word text, seen timestamptz)"
RULES = {
    "NOT NULL": ["CREATE TABLE words (id bigint, word text, seen timestamptz NOT NULL)"],
    "CHECK": ["CREATE TABLE words (id bigint CHECK (id < 5), word text, seen timestamptz)"],
    "CHECK on a column of its own": [
        "CREATE TABLE words (id bigint, word text, seen timestamptz, top bigint DEFAULT 5, CHECK (id < top))"
    ],
    "PRIMARY KEY": ["CREATE TABLE words (id bigint PRIMARY KEY, word text, seen timestamptz)"],
    "a unique index on an expression": [PLAIN, "CREATE UNIQUE INDEX ON words ((id % 8))"],
    "a deferred foreign key": [
        "CREATE TABLE ids (id bigint PRIMARY KEY)",
        "INSERT INTO ids VALUES (1)",
        PLAIN,
        "ALTER TABLE words ADD FOREIGN KEY (id) REFERENCES ids DEFERRABLE INITIALLY DEFERRED",
    ],
    "a trigger": [
        PLAIN,
        """CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$
           BEGIN IF NEW.id > 5 THEN RAISE 'too much'; END IF; RETURN NEW; END $$""",
        "CREATE TRIGGER no BEFORE INSERT ON words FOR EACH ROW EXECUTE FUNCTION no()",
    ],
    "no partition": [
        f"{PLAIN} PARTITION BY RANGE (id)",
        "CREATE TABLE few PARTITION OF words FOR VALUES FROM (0) TO (5)",
    ],
    "a value too long for an index": [PLAIN, "CREATE INDEX ON words (word)"],
}


@pytest.mark.parametrize("rule", RULES)
def test_a_row_that_the_table_refuses_is_refused_before_the_decision(
    opened: Opened, run: Run, tmp_path: Path, rule: str
) -> None:
    for statement in RULES[rule]:
        run(statement)
    sink = opened()
    put(sink, 0, stage(tmp_path, words(1)))
    bad = {"id": 9 if "NULL" not in rule else 2, "word": "w", "seen": None if "NULL" in rule else words(9)[0]["seen"]}
    if rule == "a value too long for an index":
        bad["word"] = random.Random(1).randbytes(9000).hex()
    if rule == "PRIMARY KEY":
        bad["id"] = 1
    with pytest.raises(SinkUnfit):
        sink.prepare(step(1), stage(tmp_path, [bad]))
    assert run("SELECT id FROM words") == [(1,)]
    assert left_over(run) == []


def test_a_column_that_needs_a_value_and_a_view_are_refused(opened: Opened, run: Run) -> None:
    run("CREATE TABLE words (id bigint, word text, seen timestamptz, who text NOT NULL)")
    with pytest.raises(SinkUnfit, match="who in words need a value"):
        opened("words", None).check(SCHEMA)
    run("CREATE VIEW looked AS SELECT id, word, seen FROM words")
    with pytest.raises(SinkUnfit, match="looked is no table"):
        opened("looked", None).check(SCHEMA)


def test_a_column_that_the_table_computes_is_refused(opened: Opened, run: Run, tmp_path: Path) -> None:
    run("CREATE TABLE words (id bigint GENERATED ALWAYS AS IDENTITY, word text, seen timestamptz)")
    with pytest.raises(SinkUnfit, match="cannot insert"):
        opened().prepare(step(0), stage(tmp_path, words(1)))


# ---- upsert ----


def test_upsert_needs_a_key_that_the_table_has_as_well(opened: Opened, run: Run) -> None:
    run("CREATE TABLE words (id bigint, word text, seen timestamptz, UNIQUE (id, word))")
    with pytest.raises(SinkUnfit, match="no PRIMARY KEY or UNIQUE constraint on exactly id"):
        opened("words", None, mode="upsert", key=["id"]).check(SCHEMA)
    opened("words", None, mode="upsert", key=["word", "id"]).check(SCHEMA)


def test_upsert_leaves_other_columns_and_whoever_refers_to_a_row(opened: Opened, run: Run, tmp_path: Path) -> None:
    run("CREATE TABLE words (id bigint PRIMARY KEY, word text, seen timestamptz, note text DEFAULT 'none')")
    run("CREATE TABLE notes (id bigint REFERENCES words ON DELETE CASCADE)")
    sink = opened(mode="upsert", key=["id"])
    first = put(sink, 0, stage(tmp_path, words(1, 2)))
    run("UPDATE words SET note = 'mine' WHERE id = 1")
    run("INSERT INTO notes VALUES (1)")
    put(sink, 1, stage(tmp_path, words(1, 3, word="x")))
    assert run("SELECT id, word, note FROM words ORDER BY 1") == [
        (1, "x1", "mine"),
        (2, "w2", "none"),
        (3, "x3", "none"),
    ]
    sink.roll_back(first)
    assert run("SELECT id, word, note FROM words ORDER BY 1") == [(1, "w1", "mine"), (2, "w2", "none")]
    assert run("SELECT id FROM notes") == [(1,)]


def test_a_window_can_be_a_key(opened: Opened, run: Run, tmp_path: Path) -> None:
    utc = pa.timestamp("us", tz="UTC")
    schema = pa.schema([("window", pa.struct([("start", utc), ("end", utc)])), ("sku", pa.string()), ("n", pa.int64())])
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    sink = opened("sums", mode="upsert", key=["window", "sku"])
    for epoch, counts in enumerate([{0: 1, 1: 1}, {1: 2, 2: 2}]):
        rows = []
        for minute, count in counts.items():
            begin = start + datetime.timedelta(minutes=minute)
            window = {"start": begin, "end": begin + datetime.timedelta(minutes=1)}
            rows.append({"window": window, "sku": "a", "n": count})
        target = put(sink, epoch, stage(tmp_path, rows, schema))
    found = "SELECT (\"window\"->>'start')::timestamptz::text, n FROM sums ORDER BY 1"
    run("SET timezone = 'UTC'")
    assert [count for _, count in run(found)] == [1, 2, 2]
    assert run(found)[2][0] == "2026-01-01 00:02:00+00"
    assert run("SELECT count(*) FROM pg_index WHERE indrelid = 'sums'::regclass AND indisprimary") == [(1,)]
    put(sink, 2, stage(tmp_path, [], schema))
    sink.roll_back(Target(step(0).after, 0))
    assert [count for _, count in run(found)] == [1, 1]
    assert target.at.epoch == 1


def test_rows_that_are_replaced_are_kept_until_they_are_released(opened: Opened, run: Run, tmp_path: Path) -> None:
    sink = opened(mode="upsert", key=["id"])
    for epoch in range(3):
        put(sink, epoch, stage(tmp_path, words(1, word=f"{epoch}-")))
    kept = f"SELECT {EPOCH}, word FROM words_holdfast_before ORDER BY 1"
    assert run(kept) == [(0, None), (1, "0-1"), (2, "1-1")]
    sink.release(step(1).after)
    assert run(kept) == [(2, "1-1")]
    assert "kept no more" in (sink.why_not_back(Target(step(0).after, 0)) or "")
    assert sink.why_not_back(Target(step(1).after, 0)) is None
    run("DROP TABLE words_holdfast_before")
    assert "is gone" in (sink.why_not_back(Target(step(1).after, 0)) or "")


# ---- names ----


def test_a_schema_is_named_with_the_table_or_beside_it(opened: Opened, run: Run, tmp_path: Path) -> None:
    run('CREATE SCHEMA "Sales"')
    for table, options in (("Sales.words", {}), ("more.words", {"schema": "Sales"}), ("words", {})):
        put(opened(table, **options), 0, stage(tmp_path, words(1)))
    assert run('SELECT id FROM "Sales".words') == run('SELECT id FROM "Sales"."more.words"') == [(1,)]
    assert run(f'SELECT target FROM "Sales".{MARKERS} ORDER BY 1') == [("more.words",), ("words",)]
    assert run(f"SELECT target FROM public.{MARKERS}") == [("words",)]
    with pytest.raises(SinkUnfit, match="there is no schema nowhere"):
        opened("nowhere.words", None).check(SCHEMA)


def test_names_that_need_quotes_are_only_names(opened: Opened, run: Run, tmp_path: Path) -> None:
    schema = pa.schema([('a "b"; DROP TABLE x', pa.int64())])
    sink = opened('odd "name" ?1 $1', mode="upsert", key=schema.names)
    for epoch in range(2):
        put(sink, epoch, stage(tmp_path, [{schema.names[0]: 1}], schema))
    assert run('SELECT * FROM "odd ""name"" ?1 $1"') == [(1,)]


def test_long_names_stay_apart(opened: Opened, run: Run, tmp_path: Path) -> None:
    names = ["ö" * 31 + "a", "ö" * 31 + "b"]
    for name in names:
        sink = opened(name, mode="upsert", key=["id"])
        sink.prepare(step(0), stage(tmp_path, words(7)))
        put(sink, 0, stage(tmp_path, words(1, 2)))
        put(sink, 1, stage(tmp_path, words(2, word="x")))
        sink.roll_back(Target(step(0).after, 0))
    assert [run(f'SELECT word FROM "{name}" ORDER BY id') for name in names] == [[("w1",), ("w2",)]] * 2
    for bad in ("ö" * 32, ""):
        with pytest.raises(BadValue):
            opened(bad)


def test_errors_say_the_name_that_the_pipeline_gave_it(opened: Opened, run: Run) -> None:
    run("CREATE TABLE words (id bigint)")
    sink = opened("words", None)
    sink.name = "db"
    with pytest.raises(SinkUnfit, match="sink 'db'"):
        sink.check(SCHEMA)
    with pytest.raises(SinkUnfit, match="sink 'db': invalid byte"):
        sink.fence(holder(0, "\x00"), NOTHING)


# ---- rights ----


def test_a_user_who_may_not_write_is_told_before_anything_runs(
    opened: Opened, postgres_server: PostgresServer, postgres_url: str, run: Run, tmp_path: Path
) -> None:
    user = f"u{uuid.uuid4().hex}"
    run(f"CREATE USER {user} PASSWORD 'low-horse'")
    run("CREATE TABLE words (id bigint, word text, seen timestamptz)")
    url = postgres_url.replace(f"postgres:{PASSWORD}", f"{user}:low-horse")
    with closing(Postgres(url, "words")) as sink:
        with pytest.raises(SinkUnfit, match="may not append rows in words"):
            sink.check(SCHEMA)
        run(f"GRANT INSERT ON words TO {user}")
        sink.check(SCHEMA)
    with closing(Postgres(url, "more")) as sink, pytest.raises(SinkUnfit, match="may not make tables in public"):
        sink.check(SCHEMA)


@pytest.mark.parametrize(("mode", "key"), [("append", ()), ("upsert", ("id",))])
def test_a_user_who_may_not_delete_is_told_before_a_rewind(
    opened: Opened, postgres_url: str, run: Run, tmp_path: Path, mode: WriteMode, key: tuple[str, ...]
) -> None:
    owner = opened("words", mode=mode, key=key)
    first, last = (put(owner, epoch, stage(tmp_path, words(epoch))) for epoch in (0, 1))
    user = f"u{uuid.uuid4().hex}"
    run(f"CREATE USER {user} PASSWORD 'low-horse'")
    run(f"GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO {user}")
    url = postgres_url.replace(f"postgres:{PASSWORD}", f"{user}:low-horse")
    with closing(Postgres(url, "words", mode=mode, key=key)) as sink:
        assert sink.why_not_back(first) == "the user of the database may not take rows out of it"
        assert sink.why_not_back(last) is None, "nothing has to go"
        assert not sink.keeps_way_back()
        run(f"GRANT DELETE ON ALL TABLES IN SCHEMA public TO {user}")
        assert sink.why_not_back(first) is None
        assert sink.keeps_way_back()
        sink.fence(holder(1), NOTHING)
        sink.roll_back(first)
    assert run("SELECT id FROM words") == [(0,)]


# ---- secrets ----


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:sec%zzret@127.0.0.1:1/db",
        "postgresql://u:sec/ret@127.0.0.1:1/db",
        "postgresql://u:sec@ret@127.0.0.1:1/db",
        "postgresql://u:sec?ret@127.0.0.1:1/db",
        "postgresql://u:sec#ret@127.0.0.1:1/db",
        "postgresql://u:secret@[::1/db",
        "postgresql://u:secret@127.0.0.1:sec/db",
        "postgresql:/u:secret@127.0.0.1:1/db",
        "host=127.0.0.1 password=secret",
        "mysql://u:secret@127.0.0.1:1/db",
    ],
)
def test_an_address_that_can_be_read_in_two_ways_is_refused_without_a_word_of_it(url: str) -> None:
    with pytest.raises(BadValue) as caught:
        Postgres(url, "t")
    assert "sec" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_passwords_are_never_shown(postgres_server: PostgresServer, postgres_url: str, tmp_path: Path) -> None:
    sink = Postgres(postgres_url, "words")
    sink.fence(holder(0), NOTHING)
    token = sink.prepare(step(0), stage(tmp_path, words(1)))
    shown = [sink.target, repr(sink), repr(token), repr(sink.look())]
    assert sink.target.startswith(f"postgresql://127.0.0.1:{postgres_server.port}/t-")
    for url in (
        postgres_url.replace(PASSWORD, "wrong-horse"),
        f"{postgres_url}?sslmode=verify-full&sslpassword=wrong-horse&sslrootcert=/nowhere/wrong-horse",
        postgres_server.url(port=1).replace(PASSWORD, "wrong-horse"),
        "postgresql:///db?host=/wrong-horse&password=wrong-horse",
    ):
        with pytest.raises(SinkUnavailable) as caught:
            Postgres(url, "words").look()
        error: BaseException | None = caught.value
        while error is not None:
            shown.append(f"{error} {error!r}")
            error = None if error.__suppress_context__ else error.__cause__ or error.__context__
    assert not [text for text in shown if PASSWORD in text or "wrong-horse" in text]
    sink.close()
