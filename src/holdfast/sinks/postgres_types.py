"""What PostgreSQL calls the types of Arrow, which of its types can take them, and how their values go over the wire."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.sinks.json_text import json_text

__all__ = ["are_taken", "fits", "on_the_wire", "surely_fit_a_row", "type_of"]

_PLAIN: list[tuple[str, pa.DataType]] = [
    ("boolean", pa.bool_()),
    ("smallint", pa.int16()),
    ("integer", pa.int32()),
    ("bigint", pa.int64()),
    ("real", pa.float32()),
    ("double precision", pa.float64()),
    ("text", pa.string()),
    ("character varying", pa.string()),
    ("character", pa.string()),
    ("citext", pa.string()),
    ("json", pa.string()),
    ("bytea", pa.binary()),
    ("date", pa.date32()),
    ("time without time zone", pa.time64("us")),
    ("timestamp without time zone", pa.timestamp("us")),
    ("timestamp with time zone", pa.timestamp("us", "UTC")),
    ("interval", pa.duration("us")),
]
_WIRE = dict(_PLAIN)
_NAMES = {kind: name for name, kind in reversed(_PLAIN)}

_WHOLE = ("smallint", "integer", "bigint", "numeric")
_TAKEN_BY = {
    **dict.fromkeys(_WHOLE[:3], _WHOLE),
    "real": ("real", "double precision"),
    "text": ("text", "character varying", "character", "citext", "uuid", "json", "jsonb"),
    "jsonb": ("jsonb", "json"),
}

_ALWAYS = ("boolean", "smallint", "integer", "bigint", "numeric", "real", "double precision", "bytea", "interval")
_JULIAN_0, _DAY = -2_440_588, 86_400_000_000
_RANGES = {
    "date": (_JULIAN_0, 2_145_042_906),
    "time without time zone": (0, _DAY),
    "timestamp without time zone": (_JULIAN_0 * _DAY, 2**63),
    "timestamp with time zone": (_JULIAN_0 * _DAY, 2**63),
}
"""Where the server's calendar begins and ends, in days and microseconds since 1970."""
_LARGE = 2**27
"""Bytes of a value from which on one is not sure that it fits into a row."""
_FIXED = (*_WHOLE[:3], *_RANGES, "boolean", "real", "double precision")
_ROW_BYTES, _HEADER_BYTES = 8160, 32
"""The server keeps a row on one page. Of a value of any length it can move all but 24 bytes elsewhere."""


def type_of(kind: pa.DataType) -> str | None:
    """What a column of this kind is called, as PostgreSQL itself writes it; None if there is no such type."""
    if pa.types.is_nested(kind) and not pa.types.is_union(kind):
        return "jsonb"
    if pa.types.is_decimal(kind):
        # A negative scale, which Arrow has, would do, but only from version 15 on.
        return f"numeric({max(kind.precision, kind.precision - kind.scale, kind.scale)},{max(kind.scale, 0)})"
    if pa.types.is_uint64(kind):
        return "numeric(20,0)"
    if pa.types.is_integer(kind):
        bits = kind.bit_width + (1 if pa.types.is_unsigned_integer(kind) else 0)
        return "smallint" if bits <= 16 else "integer" if bits <= 32 else "bigint"
    if pa.types.is_float16(kind):
        return "real"
    if pa.types.is_timestamp(kind):
        return f"timestamp {'with' if kind.tz else 'without'} time zone"
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "text"
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return "bytea"
    families = {pa.types.is_date: "date", pa.types.is_time: "time without time zone", pa.types.is_duration: "interval"}
    return next((name for test, name in families.items() if test(kind)), _NAMES.get(kind))


def fits(wanted: str, found: str) -> bool:
    """Whether a column takes such values whole. What it refuses by itself, as a number that is too large, is fine;
    what it would round or cut without a word is not."""
    family, limits = _read(wanted)
    name, sizes = _read(found)
    if name not in _TAKEN_BY.get(family, (family,)):
        return False
    if name == "numeric" and family == "numeric" and sizes:
        return sizes[1] >= limits[1]
    if name.startswith(("time", "interval")):
        return not sizes or sizes[0] == 6
    return True


def surely_fit_a_row(kinds: Iterable[str]) -> bool:
    """Whether a row with such columns is never too wide, whatever its values; a no is only a doubt."""
    widths = [8 if _read(kind)[0] in _FIXED else 32 for kind in kinds]
    return _HEADER_BYTES + len(widths) // 8 + sum(widths) <= _ROW_BYTES


def on_the_wire(column: pa.Array, kind: str) -> pa.Array:
    """Values as the binary COPY of a column of this type takes them. Raises ArrowInvalid for what it can't hold."""
    name, sizes = _read(kind)
    if name == "uuid":
        return pa.array(map(_uuid, column.to_pylist()), pa.binary())
    if name == "numeric":
        return column if pa.types.is_decimal(column.type) else column.cast(pa.decimal128(20, 0))
    if name in ("json", "jsonb"):
        text = json_text(column) if pa.types.is_nested(column.type) else column.cast(pa.string())
        # One byte says the version of the format; what follows is the text of it.
        return text if name == "json" else pc.binary_join_element_wise("\x01", text, "").cast(pa.binary())
    text = column.cast(_WIRE[name])
    if name.startswith("character") and sizes and pc.any(pc.greater(pc.utf8_length(text), sizes[0])).as_py():
        # The server itself would cut off blanks without a word.
        raise pa.ArrowInvalid(f"a value is too long, {pc.max(pc.utf8_length(text))} characters")
    return text


def are_taken(column: pa.Array, kind: str) -> bool:
    """Whether the server is sure to take values that are on the wire, whatever they are; a no is only a doubt."""
    name, _ = _read(kind)
    if name in ("text", "jsonb"):
        try:
            # A cast looks whether it is UTF-8, and a check of what is text already does.
            text = column.cast(pa.string())
            text.validate(full=True)
        except pa.ArrowInvalid:
            return False
        nothing = "\\u0000" if name == "jsonb" else "\x00"
        large = pc.greater(pc.binary_length(text), _LARGE)
        return not pc.any(pc.or_(pc.match_substring(text, nothing), large)).as_py()
    if name in _RANGES:
        found = pc.min_max(column.view(pa.int64() if column.type.bit_width == 64 else pa.int32())).as_py()
        first, end = _RANGES[name]
        return found["min"] is None or (found["min"] >= first and found["max"] < end)
    if name == "bytea" and pc.any(pc.greater(pc.binary_length(column), _LARGE)).as_py():
        return False
    return name in _ALWAYS


def _read(kind: str) -> tuple[str, list[int]]:
    """The name of a type without its sizes, and these."""
    found = re.search(r"\(([\d,]+)\)", kind)
    if found is None:
        return kind, []
    return kind.replace(found.group(), ""), [int(size) for size in found.group(1).split(",")]


def _uuid(text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        value = bytes.fromhex(text.replace("-", ""))
    except ValueError:
        value = b""
    if len(value) != 16:
        raise pa.ArrowInvalid(f"{text!r} is no UUID")
    return value
