"""Values without parts, each as the bytes of one block: text, bytes, large numbers, dates and times, UUIDs.

`unpack` may raise ValueError, ArithmeticError, struct.error or OSError on bytes that `pack` never made.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Context, Decimal, InvalidOperation
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from holdfast.codec.reduced import Unsupported
from holdfast.codec.wire import Buffer
from holdfast.errors import LibraryMissing

__all__ = ["ATOMS", "Atom"]


class Atom(NamedTuple):
    tag: bytes
    kind: type
    pack: Callable[[Any], Buffer]
    unpack: Callable[[memoryview], object]


DATE = struct.Struct("<HBB")
TIME = struct.Struct("<BBBIB")
TIMEDELTA = struct.Struct("<iII")
OFFSET = struct.Struct("<q")
MICROSECOND = timedelta(microseconds=1)

# The caller's own decimal context must not change the bytes ("e" for "E") or let nonsense pass for NaN.
EXACT = Context(capitals=1, traps=[InvalidOperation])


def _pack_int(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)


def _unpack_int(data: memoryview) -> int:
    return int.from_bytes(data, "little", signed=True)


def _pack_text(value: str) -> bytes:
    # A str of Python may hold lone surrogates (undecodable file names do); they come back as they were.
    return value.encode("utf-8", "surrogatepass")


def _unpack_text(data: memoryview) -> str:
    return str(data, "utf-8", "surrogatepass")


def _same(value: Buffer) -> Buffer:
    return value


def _pack_decimal(value: Decimal) -> bytes:
    return EXACT.to_sci_string(value).encode("ascii")


def _unpack_decimal(data: memoryview) -> Decimal:
    return Decimal(str(data, "ascii"), EXACT)


def _pack_uuid(value: UUID) -> bytes:
    return value.bytes


def _unpack_uuid(data: memoryview) -> UUID:
    return UUID(bytes=bytes(data))


def _pack_date(value: date) -> bytes:
    return DATE.pack(value.year, value.month, value.day)


def _unpack_date(data: memoryview) -> date:
    return date(*DATE.unpack(data))


def _pack_timedelta(value: timedelta) -> bytes:
    return TIMEDELTA.pack(value.days, value.seconds, value.microseconds)


def _unpack_timedelta(data: memoryview) -> timedelta:
    return timedelta(*TIMEDELTA.unpack(data))


def _pack_clock(value: time | datetime) -> bytes:
    clock = TIME.pack(value.hour, value.minute, value.second, value.microsecond, value.fold)
    return clock + _pack_zone(value.tzinfo)


def _unpack_time(data: memoryview) -> time:
    hour, minute, second, microsecond, fold = TIME.unpack(data[: TIME.size])
    return time(hour, minute, second, microsecond, _unpack_zone(data[TIME.size :]), fold=fold)


def _pack_datetime(value: datetime) -> bytes:
    return _pack_date(value) + _pack_clock(value)


def _unpack_datetime(data: memoryview) -> datetime:
    return datetime.combine(_unpack_date(data[: DATE.size]), _unpack_time(data[DATE.size :]))


def _pack_zone(zone: tzinfo | None) -> bytes:
    """Nothing for none, `z` and the key of a zone, `o` and an offset, or `n` with an offset and its name."""
    if zone is None:
        return b""
    if type(zone) is ZoneInfo and zone.key:
        return b"z" + zone.key.encode("utf-8")
    if type(zone) is timezone:
        offset, name = zone.utcoffset(None), zone.tzname(None)
        packed = OFFSET.pack(offset // MICROSECOND)
        return b"o" + packed if name == timezone(offset).tzname(None) else b"n" + packed + _pack_text(name)
    raise Unsupported(f"time zone of type {type(zone).__qualname__} (take zoneinfo or datetime.timezone)")


def _unpack_zone(data: memoryview) -> tzinfo | None:
    if not data:
        return None
    form, body = bytes(data[:1]), data[1:]
    if form == b"z":
        return _zone(str(body, "utf-8"))
    offset = OFFSET.unpack(body[: OFFSET.size])[0] * MICROSECOND
    name = body[OFFSET.size :]
    if form == b"n":
        return timezone(offset, _unpack_text(name))
    if form == b"o" and not name:
        return timezone(offset)
    raise ValueError("no time zone")


def _zone(key: str) -> ZoneInfo:
    try:
        return ZoneInfo(key)
    except ZoneInfoNotFoundError as error:
        raise LibraryMissing("tzdata", f"a time in the zone {key!r}", "the zone is not known") from error


ATOMS = (
    Atom(b"I", int, _pack_int, _unpack_int),
    Atom(b"s", str, _pack_text, _unpack_text),
    Atom(b"b", bytes, _same, bytes),
    Atom(b"a", bytearray, _same, bytearray),
    Atom(b"D", Decimal, _pack_decimal, _unpack_decimal),
    Atom(b"U", UUID, _pack_uuid, _unpack_uuid),
    Atom(b"y", date, _pack_date, _unpack_date),
    Atom(b"c", time, _pack_clock, _unpack_time),
    Atom(b"m", datetime, _pack_datetime, _unpack_datetime),
    Atom(b"e", timedelta, _pack_timedelta, _unpack_timedelta),
)
