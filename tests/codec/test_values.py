"""encode_value / decode_value on the values of plain Python."""

from __future__ import annotations

import enum
import math
import os
import struct
import subprocess
import sys
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta, timezone, tzinfo
from decimal import Context, Decimal, localcontext
from random import Random, SystemRandom
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from codec.plain_values import VALUES, identical, sealed
from holdfast.codec import decode_value, encode_value
from holdfast.codec.values import DEEPEST
from holdfast.errors import DamagedState, FormatTooNew, LibraryMissing, NotCheckpointable


def count(n: int) -> bytes:
    return struct.pack("<Q", n)


@given(VALUES)
@example([True, 1, 1.0, 0.0, -0.0, math.nan, math.inf, -math.inf])
@example({"b": 1, "a": 2})
@example("\ud800 alone")
@example([Decimal("-0E+3"), Decimal("sNaN123"), Decimal("-NaN"), Decimal("-Infinity"), Decimal("1.00")])
@example(datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")))
@example({float("nan"): 1})
def test_a_value_comes_back_the_same_and_its_bytes_too(value: object) -> None:
    data = encode_value(value)
    again = decode_value(data)
    assert identical(value, again)
    assert encode_value(again) == data
    assert encode_value(value) == data


def test_the_bits_of_a_nan_are_kept() -> None:
    odd = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_DEAD_BEEF))[0]
    assert struct.pack("<d", decode_value(encode_value(odd))) == struct.pack("<Q", 0xFFF8_0000_DEAD_BEEF)


def test_a_restored_dict_iterates_as_before() -> None:
    assert list(decode_value(encode_value({"z": 1, "a": 2, "m": 3}))) == ["z", "a", "m"]
    assert encode_value({"a": 1, "b": 2}) != encode_value({"b": 2, "a": 1})


def test_sets_built_in_another_order_give_the_same_bytes() -> None:
    # 0 and 8 collide in a small table, so the order of insertion shows.
    assert list({0, 8}) != list({8, 0})
    assert encode_value({0, 8}) == encode_value({8, 0})


def test_the_decimal_context_of_the_caller_does_not_matter() -> None:
    value = Decimal("1E+40")
    data = encode_value(value)
    with localcontext(Context(prec=1, capitals=0, traps=[])):
        assert encode_value(value) == data
        assert decode_value(data) == value
        with pytest.raises(DamagedState):
            decode_value(sealed(b"D" + count(3) + b"abc"))


def test_a_generator_goes_on_where_it_was() -> None:
    generator = Random(7)
    generator.gauss(0, 1)
    again = decode_value(encode_value(generator))
    assert isinstance(again, Random)
    assert [again.gauss(0, 1) for _ in range(5)] == [generator.gauss(0, 1) for _ in range(5)]


class Colour(enum.IntEnum):
    RED = 1


class Odd(tzinfo):
    def utcoffset(self, _: datetime | None) -> timedelta:
        return timedelta(0)


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (object(), "object"),
        (Colour.RED, "Colour"),
        (Point(1, 2), "Point"),
        (SystemRandom(), "SystemRandom"),
        (1j, "complex"),
        (range(3), "range"),
        (memoryview(b""), "memoryview"),
        (len, "builtin_function_or_method"),
        (defaultdict(lambda: 0), "defaultdict whose factory is <lambda>"),
        (datetime(2026, 1, 1, tzinfo=Odd()), "time zone of type Odd"),
    ],
)
def test_what_has_no_encoding_is_named(value: object, kind: str) -> None:
    with pytest.raises(NotCheckpointable) as error:
        encode_value(value)
    assert error.value.kind.startswith(kind)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"orders": [1, {2: (3, object())}]}, "value['orders'][1][2][1]"),
        ([{Colour.RED: 1}], "value[0].key(<Colour.RED: 1>)"),
        ([1, {Colour.RED}], "value[1].element(<Colour.RED: 1>)"),
        ({"window": deque([1, 2, 1j])}, "value['window'][2]"),
        (OrderedDict(a=1j), "value['a']"),
    ],
)
def test_the_path_to_what_has_no_encoding_is_named(value: object, path: str) -> None:
    with pytest.raises(NotCheckpointable) as error:
        encode_value(value)
    assert error.value.kind.endswith(f"(at {path})")


def nested(levels: int) -> object:
    value: object = 0
    for _ in range(levels):
        value = [value]
    return value


def test_values_may_be_nested_up_to_a_bound() -> None:
    assert decode_value(encode_value(nested(DEEPEST))) == nested(DEEPEST)
    with pytest.raises(NotCheckpointable, match="deep"):
        encode_value(nested(DEEPEST + 1))


def test_a_value_that_holds_itself_is_refused() -> None:
    value: list[object] = []
    value.append(value)
    with pytest.raises(NotCheckpointable, match="deep"):
        encode_value(value)


def test_nesting_without_end_is_damage() -> None:
    with pytest.raises(DamagedState, match="deep"):
        decode_value(sealed((b"l" + count(1)) * 100_000 + b"N"))


SAMPLE = {
    "counts": {"a", "b", "c", 1, None},
    "seen": datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=1), "MEZ")),
    "queue": deque([Decimal("1.5"), b"x", 2**70], 5),
}


def test_every_truncation_and_every_flipped_bit_is_damage() -> None:
    data = encode_value(SAMPLE)
    for size in range(len(data)):
        with pytest.raises(DamagedState):
            decode_value(data[:size])
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamagedState):
            decode_value(flipped)
    with pytest.raises(DamagedState):
        decode_value(data + b"\0")


def test_a_later_version_is_refused_as_such() -> None:
    with pytest.raises(FormatTooNew):
        decode_value(sealed(b"N", version=2))


@pytest.mark.parametrize(
    ("why", "body"),
    [
        ("no value", b""),
        ("trailing bytes", b"NN"),
        ("an unknown tag", b"\xff"),
        ("a cut number", b"i\0"),
        ("a huge text", b"s" + count(2**64 - 1)),
        ("a huge list", b"l" + count(2**63) + b"N"),
        ("a huge dict", b"d" + count(2**62) + b"NN"),
        ("a huge set", b"S" + count(2**62) + b"N"),
        ("text that is not UTF-8", b"s" + count(1) + b"\xff"),
        ("a list as a key", b"d" + count(1) + b"l" + count(0) + b"N"),
        ("a key twice", b"d" + count(2) + b"NNNN"),
        ("an element twice", b"S" + count(2) + b"NN"),
        ("a set in a set", b"S" + count(1) + b"S" + count(0)),
        ("a date that is none", b"y" + count(4) + b"\0\0\0\0"),
        ("a short date", b"y" + count(3) + b"abc"),
        ("a short UUID", b"U" + count(3) + b"abc"),
        ("an unknown kind", b"x" + count(3) + b"a/b" + b"N" + count(0)),
        ("an unknown type of a known library", b"x" + count(13) + b"collections/x" + b"N" + count(0)),
        ("a deque of a dict", b"x" + count(17) + b"collections/deque" + b"d" + count(0) + count(0)),
        ("a generator without a state", b"x" + count(13) + b"random/Random" + b"N" + count(0)),
        ("a zone that is a path", b"c" + count(13) + bytes(8) + b"z/etc"),
    ],
)
def test_nonsense_with_a_right_checksum_is_damage(why: str, body: bytes) -> None:
    with pytest.raises(DamagedState):
        decode_value(sealed(body))


def test_a_zone_that_this_machine_lacks_is_not_damage() -> None:
    known = encode_value(datetime(2026, 1, 1, tzinfo=ZoneInfo("Europe/Berlin")))
    body = known[4:-4].replace(b"Berlin", b"Utopia")
    with pytest.raises(LibraryMissing, match="Utopia") as error:
        decode_value(sealed(body))
    assert "tzdata" in error.value.hint


def test_a_zone_that_is_a_folder_of_zones_is_refused() -> None:
    # Depending on Python's version and where the zones come from it is an unknown zone or no zone at all.
    with pytest.raises((DamagedState, LibraryMissing)):
        decode_value(sealed(b"c" + count(15) + bytes(8) + b"zEurope"))


@given(st.binary())
def test_random_bytes_are_only_ever_damage(data: bytes) -> None:
    with pytest.raises((DamagedState, FormatTooNew)):
        decode_value(data)


TAGS = st.sampled_from(list(b"NTFifIsbaDUycmeltdSZx"))


@given(st.lists(st.one_of(TAGS, st.sampled_from([0, 1, 2, 3, 8, 255]), st.integers(0, 255))).map(bytes))
@settings(max_examples=500)
def test_random_bodies_decode_or_are_damage(body: bytes) -> None:
    with suppress(DamagedState):
        decode_value(sealed(body))


@given(VALUES, st.data())
@settings(max_examples=500, suppress_health_check=[HealthCheck.too_slow])
def test_bytes_changed_behind_the_checksum_decode_or_are_damage(value: object, data: st.DataObject) -> None:
    body = bytearray(encode_value(value)[4:-4])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at] = data.draw(st.integers(0, 255))
    with suppress(DamagedState, LibraryMissing):  # a zone whose name was changed is one that is not known here
        decode_value(sealed(bytes(body)))


ECHO = """
import struct, sys
from holdfast.codec import decode_value, encode_value
into, out = sys.stdin.buffer, sys.stdout.buffer
while head := into.read(8):
    data = encode_value(decode_value(into.read(*struct.unpack("<Q", head))))
    out.write(struct.pack("<Q", len(data)) + data)
    out.flush()
"""


@pytest.fixture(scope="module")
def other_process() -> Iterator[subprocess.Popen[bytes]]:
    """It decodes what it is given and encodes it again, with hashes of its own."""
    process = subprocess.Popen(
        [sys.executable, "-c", ECHO],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    yield process
    process.communicate()
    assert process.returncode == 0


@given(value=VALUES)
@example({"one", "two", "three", "four", "five", b"six", (7, "seven")})
def test_another_process_with_other_hashes_gives_the_same_bytes(
    other_process: subprocess.Popen[bytes], value: object
) -> None:
    assert other_process.stdin is not None
    assert other_process.stdout is not None
    data = encode_value(value)
    other_process.stdin.write(count(len(data)) + data)
    other_process.stdin.flush()
    (size,) = struct.unpack("<Q", other_process.stdout.read(8))
    assert other_process.stdout.read(size) == data


def test_importing_the_codec_and_the_states_imports_no_library() -> None:
    script = """
import sys, holdfast.codec, holdfast.states
holdfast.codec.decode_value(holdfast.codec.encode_value([1, {"a": 2.5}]))
print([name for name in ("numpy", "pyarrow", "pandas", "polars") if name in sys.modules])
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
