"""Which types of columns the table formats have: both the same."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["why_not_in_tables"]

_PLAIN = (
    pa.types.is_boolean,
    pa.types.is_signed_integer,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_date32,
    pa.types.is_decimal128,
)


def why_not_in_tables(kind: pa.DataType, name: str) -> str:
    """Why a table of the format of this name can't have such a column; "" if it can."""
    if pa.types.is_timestamp(kind):
        return "" if kind.unit == "us" else f"{name} has microseconds"
    if pa.types.is_map(kind):
        return why_not_in_tables(kind.key_type, name) or why_not_in_tables(kind.item_type, name)
    if pa.types.is_struct(kind):
        return next((why for field in kind if (why := why_not_in_tables(field.type, name))), "")
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return why_not_in_tables(kind.value_type, name)
    return "" if any(is_plain(kind) for is_plain in _PLAIN) else f"{name} has no such type"
