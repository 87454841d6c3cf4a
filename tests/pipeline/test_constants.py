"""What Python code reads beside its source: constants of every kind count, in the same way in every process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.pipeline.code import read_code
from holdfast.pipeline.constants import MOST, held_in, plainly
from pipeline.test_code import Load, code, load

__all__ = ["load"]

USER = """
    import re
    from collections import deque
    from dataclasses import dataclass, field
    from datetime import date, datetime, time, timedelta, timezone
    from decimal import Decimal
    from enum import Enum, IntEnum
    from functools import lru_cache, partial, wraps
    from pathlib import Path
    from typing import NamedTuple
    from zoneinfo import ZoneInfo

    class Color(Enum):
        RED = 1
        BLUE = 2

    class TokenKind(IntEnum):
        WORD = 1
        SIGN = 2

    @dataclass(frozen=True)
    class Limits:
        least: int
        most: object = None
        seen: int = field(default=0, compare=False)
        password: str = ""

    @dataclass(slots=True)
    class Slotted:
        least: int

    class Pair(NamedTuple):
        least: int
        most: int

    def small(value):
        return value < 3

    def large(value):
        return value > 3

    def chosen(limit, value):
        return value > limit

    READ = CONSTANT

    def clean(value):
        return value in READ, small, large

    def query(events):
        return clean(events)
    """


def with_constant(constant: str) -> str:
    return USER.replace("CONSTANT", constant)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{1, 2}", "{1, 3}"),
        ("frozenset({'a'})", "frozenset({'b'})"),
        ("re.compile('a+')", "re.compile('b+')"),
        ("re.compile('a+')", "re.compile('a+', re.IGNORECASE)"),
        ("re.compile(b'a')", "re.compile('a')"),
        ("{1: 2}", "{1: 3}"),
        ("{(1, 2): 'a'}", "{(1, 3): 'a'}"),
        ("Decimal('1.5')", "Decimal('1.50')"),
        ("date(2024, 1, 1)", "date(2024, 1, 2)"),
        ("datetime(2024, 1, 1)", "datetime(2024, 1, 1, 1)"),
        ("datetime(2024, 1, 1, tzinfo=timezone.utc)", "datetime(2024, 1, 1)"),
        ("datetime(2024, 1, 1, tzinfo=ZoneInfo('Asia/Tokyo'))", "datetime(2024, 1, 1, tzinfo=ZoneInfo('UTC'))"),
        ("time(1, 2)", "time(1, 3)"),
        ("timedelta(hours=1)", "timedelta(hours=2)"),
        ("b'one'", "b'two'"),
        ("Color.RED", "Color.BLUE"),
        ("TokenKind.WORD", "TokenKind.SIGN"),
        ("Limits(1)", "Limits(2)"),
        ("Limits(1, {2})", "Limits(1, {3})"),
        ("Slotted(1)", "Slotted(2)"),
        ("Pair(1, 2)", "Pair(1, 3)"),
        ("Path('a')", "Path('b')"),
        ("range(3)", "range(4)"),
        ("float('inf')", "float('nan')"),
        ("deque([1])", "deque([2])"),
        ("[{'a': {1, 2}}]", "[{'a': {1, 3}}]"),
        ("[small, large]", "[large, small]"),
        ("{'rule': small}", "{'rule': large}"),
        ("small", "large"),
        ("partial(chosen, 3)", "partial(chosen, 4)"),
        ("partial(chosen, limit=3)", "partial(chosen, limit=4)"),
        ("partial(chosen, limit=3)", "partial(chosen, value=3)"),
    ],
)
def test_a_constant_of_any_kind_is_part_of_the_function_that_reads_it(load: Load, old: str, new: str) -> None:
    before, again, after = (code(load, with_constant(each)) for each in (old, old, new))
    assert before == again
    assert before.of("clean") != after.of("clean")
    assert before.of("small") == after.of("small")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("{'a', 'b', 'c', 'd'}", "{'d', 'c', 'b', 'a'}"),
        ("{3: {'x', 'y'}, 1: 'b'}", "{1: 'b', 3: {'y', 'x'}}"),
        ("Limits(1, seen=1)", "Limits(1, seen=2)"),
        ("Limits(1, password='one')", "Limits(1, password='two')"),
        ("Limits(1, lambda: 1)", "Limits(1, lambda: 1)"),
        ("{'password': 'one'}", "{'password': 'two'}"),
        ("'postgres://me:one@here/db'", "'postgres://me:two@here/db'"),
    ],
)
def test_what_is_equal_or_secret_or_does_not_count_is_no_change(load: Load, one: str, other: str) -> None:
    assert code(load, with_constant(one)) == code(load, with_constant(other))


READERS = {
    "default": "def clean(value, limit=LIMIT): return value in limit",
    "keyword default": "def clean(value, *, limit=LIMIT): return value in limit",
    "closure": "def make(limit):\n    def clean(value): return value in limit\n    return clean\nclean = make(LIMIT)",
    "attribute of a class": "class Own:\n    limit = LIMIT\ndef clean(value): return value in Own.limit",
    "property of a class": (
        "class Own:\n    @property\n    def limit(self): return LIMIT\ndef clean(value): return value in Own().limit"
    ),
    "decorator": (
        "from functools import wraps\n"
        "def within(limit):\n"
        "    def wrap(function):\n"
        "        @wraps(function)\n"
        "        def wrapper(value): return function(value) in limit\n"
        "        return wrapper\n"
        "    return wrap\n"
        "@within(LIMIT)\n"
        "def clean(value): return value"
    ),
    "library's decorator": (
        "from functools import lru_cache\n@lru_cache\ndef clean(value, limit=frozenset(LIMIT)): return value in limit"
    ),
    "bound method": (
        "from dataclasses import dataclass\n"
        "@dataclass\n"
        "class Own:\n"
        "    limit: object\n"
        "    def clean(self, value): return value in self.limit\n"
        "clean = Own(LIMIT).clean"
    ),
    "partial": (
        "from functools import partial, update_wrapper\n"
        "def full(limit, value): return value in limit\n"
        "clean = partial(full, LIMIT)\n"
        "update_wrapper(clean, full)\n"
        "clean.__name__ = 'clean'"
    ),
    "user-defined function": (
        "from pyspark.sql.functions import udf\n"
        "from pyspark.sql.types import BooleanType\n"
        "@udf(BooleanType())\ndef clean(value, limit=LIMIT): return value in limit"
    ),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_constant_counts_however_it_gets_into_a_function(load: Load, reader: str) -> None:
    def text(limit: str) -> str:
        return f"LIMIT = {limit}\n{READERS[reader]}\ndef query(events): return clean(events)\n"

    before, again, after = (code(load, text(limit)) for limit in ("{1, 2}", "{2, 1}", "{1, 3}"))
    assert before.of("clean") == again.of("clean") != after.of("clean")


def test_the_body_of_a_decorator_counts(load: Load) -> None:
    text = f"LIMIT = {{1}}\n{READERS['decorator']}\ndef query(events): return clean(events)\n"
    assert code(load, text).of("clean") != code(load, text.replace("function(value) in", "-function(value) in")).of(
        "clean"
    )
    assert "clean" in code(load, text).functions


OF_A_MODULE = """
    import package_of_a_user as own

    def clean(value):
        return value > own.settings_of_a_user.LIMIT

    def query(events):
        return clean(events)
    """


def test_a_constant_in_a_module_of_the_users_own_counts(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def read(limit: int) -> str:
        for name, text in (
            ("settings_of_a_user", f"LIMIT = {limit}\nOTHER = {limit}"),
            ("package_of_a_user", "import settings_of_a_user"),
        ):
            monkeypatch.delitem(sys.modules, name, raising=False)
            (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        return code(load, OF_A_MODULE).of("clean")

    assert read(3) == read(3) != read(4)


def test_a_function_that_was_typed_in_is_told_by_its_constants_too() -> None:
    def typed(text: str) -> str:
        names: dict[str, object] = {"__name__": "__main__"}
        exec(compile(text, "<stdin>", "exec"), names)
        return read_code(names["query"]).everything  # type: ignore[arg-type]

    assert typed("def query(v): return v * 2") != typed("def query(v): return v * 3")


PROCESS = """
import importlib, sys
sys.path.insert(0, sys.argv[1])
from holdfast.pipeline.code import read_code
print(read_code(importlib.import_module("queries_of_a_user").query).of("clean"))
"""


def test_constants_are_told_alike_in_every_process(tmp_path: Path) -> None:
    constant = (
        "{'a', 'b', 'c', frozenset({'d', 'e'}), Color.RED, Pair(1, 2)}, {1: {'x', 'y'}}, partial(chosen, {'p', 'q'})"
    )
    (tmp_path / "queries_of_a_user.py").write_text(textwrap.dedent(with_constant(constant)), encoding="utf-8")
    command = [sys.executable, "-c", PROCESS, str(tmp_path)]
    found = {
        subprocess.run(
            command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1


class Jealous:
    """Whatever is asked of it fails: nothing may be."""

    def _refuse(self, *_: object) -> object:
        raise AssertionError("code of the user's was run")

    __repr__ = __str__ = __iter__ = __len__ = __eq__ = __getattr__ = __getattribute__ = _refuse  # type: ignore[assignment]
    __hash__ = object.__hash__


class JealousDict(dict):  # type: ignore[type-arg]
    __repr__ = __iter__ = items = keys = values = Jealous._refuse  # type: ignore[assignment]


READ = [Jealous(), JealousDict({1: {2}}), JealousDict({"a": Jealous()})]


def reading(value: object) -> object:
    return value in READ


def test_nothing_of_the_users_is_run() -> None:
    before = read_code(reading).everything
    READ[1][1].add(3)  # type: ignore[index]
    assert plainly(READ) is None
    assert plainly(JealousDict({1: {2}})) == plainly({1: {2}})
    assert read_code(reading).everything == before


def test_what_is_too_long_is_told_by_its_length() -> None:
    assert plainly([0] * (MOST + 1)) == plainly([1] * (MOST + 1)) == {"length": MOST + 1}
    assert plainly(set(range(MOST + 1))) == {"length": MOST + 1}
    assert plainly([0] * 1_000) != plainly([1] * 1_000)


def test_what_holds_itself_has_an_end() -> None:
    looped: list[object] = [1]
    looped += [looped, looped]
    assert plainly(looped) == {"length": 3}
    assert list(held_in(looped)) == [looped, looped]


CONSTANTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=5) | st.dates(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.integers() | st.text(max_size=3), inner, max_size=4),
    max_leaves=10,
)


@given(st.lists(st.integers() | st.text(max_size=4) | st.dates(), unique=True), st.randoms())
def test_a_set_is_always_told_alike_in_whatever_order_it_was_filled(items: list[object], chance: object) -> None:
    other = items.copy()
    chance.shuffle(other)  # type: ignore[attr-defined]
    assert plainly(set(items)) == plainly(set(other))
    assert plainly(dict.fromkeys(items, 1)) == plainly(dict.fromkeys(other, 1))


@given(CONSTANTS, CONSTANTS)
def test_constants_that_read_differently_are_never_told_alike(one: object, other: object) -> None:
    if repr(one) != repr(other) and one != other:
        assert plainly(one) != plainly(other)
