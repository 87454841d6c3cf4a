"""Nested values of a column as JSON, a whole column at a time: row by row it would take longer than the load."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["json_text"]

_ONE_BY_ONE = msgspec.json.Encoder(decimal_format="number")


def json_text(column: pa.Array) -> pa.Array:
    """The JSON of each value, null for null.

    Times are ISO 8601 with all six digits, those with a zone in UTC; binary values base64; NaN and the infinities
    null, since JSON has no such numbers; keys of a map always text. Raises ArrowInvalid for a time without digits.
    """
    kind = column.type
    if pa.types.is_struct(kind):
        return _struct(column)
    if pa.types.is_map(kind):
        keys = json_text(_inside(column, column.keys))
        keys = pc.if_else(pc.starts_with(keys, '"'), keys, _quoted(keys))
        return _list("{", column, _joined(keys, ":", _or_null(_inside(column, column.items))), "}")
    if pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        column = column.cast(pa.list_(kind.value_type))
    if pa.types.is_list(column.type):
        return _list("[", column, _or_null(_inside(column, column.values)), "]")
    return _scalar(column)


def _scalar(column: pa.Array) -> pa.Array:
    kind = column.type
    if _is_text(kind):
        return _quoted(column.cast(pa.string()))
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.string())
    if pa.types.is_floating(kind):
        return pc.if_else(pc.is_finite(column), column.cast(pa.string()), _text("null"))
    if pa.types.is_date(kind) or pa.types.is_time(kind):
        return _joined('"', _digits(column), '"')
    if pa.types.is_timestamp(kind):
        plain = _digits(column.cast(pa.timestamp("us", kind.tz)).cast(pa.timestamp("us")))
        return _joined('"', pc.replace_substring(plain, " ", "T"), 'Z"' if kind.tz else '"')
    return _one_by_one(column)


def _struct(column: pa.Array) -> pa.Array:
    if column.type.num_fields == 0:
        return pc.if_else(column.is_valid(), _text("{}"), _text(None))
    pieces: list[Any] = []
    for number, (field, child) in enumerate(zip(column.type, column.flatten(), strict=True)):
        pieces += [f"{',' if number else '{'}{_ONE_BY_ONE.encode(field.name).decode()}:", _or_null(child)]
    return pc.if_else(column.is_valid(), _joined(*pieces, "}"), _text(None))


def _inside(column: pa.Array, values: pa.Array) -> pa.Array:
    """What the lists of a column hold; if it is a part of another one, the values reach beyond it at both ends."""
    first, end = column.offsets[0].as_py(), column.offsets[-1].as_py()
    return values.slice(first, end - first)


def _list(begin: str, column: pa.Array, values: pa.Array, end: str) -> pa.Array:
    """Values joined by commas."""
    lists = pa.ListArray.from_arrays(pc.subtract(column.offsets, column.offsets[0]), values)
    joined = _joined(begin, pc.binary_join(lists, ","), end)
    return pc.if_else(column.is_valid(), joined, _text(None))


def _quoted(column: pa.Array) -> pa.Array:
    if pc.any(pc.match_substring_regex(column, "[\\x00-\\x1f]")).as_py():
        return _one_by_one(column)
    escaped = pc.replace_substring(pc.replace_substring(column, "\\", "\\\\"), '"', '\\"')
    return _joined('"', escaped, '"')


def _digits(column: pa.Array) -> pa.Array:
    """Times as text. Arrow writes words, and raises nothing, where a year is too far away."""
    texts = column.cast(pa.string())
    if pc.any(pc.starts_with(texts, "<")).as_py():
        raise pa.ArrowInvalid("a time is too far away to be written in digits")
    return texts


def _one_by_one(column: pa.Array) -> pa.Array:
    values = (None if value is None else _ONE_BY_ONE.encode(value).decode() for value in column.to_pylist())
    return pa.array(values, pa.string())


def _or_null(column: pa.Array) -> pa.Array:
    return pc.coalesce(json_text(column), _text("null"))


def _joined(*pieces: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*(_text(p) if isinstance(p, str) else p for p in pieces), _text(""))


def _text(value: str | None) -> pa.Scalar:
    return pa.scalar(value, pa.string())


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))
