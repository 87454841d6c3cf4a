"""What SQLite makes of the types of Arrow, and of their values."""

from __future__ import annotations

import zlib
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.sinks.json_text import json_text

__all__ = ["affinity", "number_of", "type_of", "values_of"]

_AFFINITIES = [
    ("INT", "INTEGER"),
    ("CHAR", "TEXT"),
    ("CLOB", "TEXT"),
    ("TEXT", "TEXT"),
    ("BLOB", "BLOB"),
    ("REAL", "REAL"),
    ("FLOA", "REAL"),
    ("DOUB", "REAL"),
]
"""Words in the name of a type, in the order in which SQLite looks for them."""


def type_of(kind: pa.DataType) -> str | None:
    """What a column of this kind is called; None if there is no such type."""
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return "INTEGER"
    if pa.types.is_floating(kind):
        return "REAL"
    if _is_binary(kind):
        return "BLOB"
    if pa.types.is_duration(kind) or pa.types.is_interval(kind) or pa.types.is_union(kind):
        return None
    return "TEXT"


def affinity(declared: str) -> str:
    """What SQLite itself takes a declared type for."""
    upper = declared.upper()
    return next((found for word, found in _AFFINITIES if word in upper), "NUMERIC" if upper else "BLOB")


def values_of(column: pa.Array) -> list[Any]:
    """The values of a column as SQLite takes them, so that text sorts as the values do.

    NaN becomes NULL: SQLite has no such number. Raises ArrowInvalid for a time that can't be written in digits.
    """
    kind = column.type
    if pa.types.is_nested(kind):
        return list(json_text(column).to_pylist())
    if pa.types.is_timestamp(kind):
        # In UTC, which is how those with a zone are held.
        return _digits(column.cast(pa.timestamp("us", kind.tz)).cast(pa.timestamp("us")))
    if pa.types.is_date(kind) or pa.types.is_time(kind):
        return _digits(column)
    if pa.types.is_decimal(kind):
        return [None if value is None else f"{value:f}" for value in column.to_pylist()]
    return list(column.to_pylist())


def number_of(column: str, value: Any) -> int:
    """What stands for a value of a column, from 0 to 2**31 - 1; see `SqlFile`."""
    if value is None:
        return 0
    return zlib.crc32(f"{column}={value!r}".encode(errors="surrogatepass")) & 0x7FFF_FFFF


def _digits(column: pa.Array) -> list[Any]:
    """Times as text. Arrow writes words, and raises nothing, where a year is too far away."""
    texts = column.cast(pa.string())
    if pc.any(pc.starts_with(texts, "<")).as_py():
        raise pa.ArrowInvalid("a time is too far away to be written in digits")
    return list(texts.to_pylist())


def _is_binary(kind: pa.DataType) -> bool:
    tests = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)
    return any(test(kind) for test in tests)
