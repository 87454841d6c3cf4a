"""Spark's types as Arrow's, the way its Parquet files hold them."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import types as t

from holdfast.errors import BadValue

__all__ = ["arrow_schema"]

_PLAIN: dict[type[t.DataType], pa.DataType] = {
    t.BooleanType: pa.bool_(),
    t.ByteType: pa.int8(),
    t.ShortType: pa.int16(),
    t.IntegerType: pa.int32(),
    t.LongType: pa.int64(),
    t.FloatType: pa.float32(),
    t.DoubleType: pa.float64(),
    t.StringType: pa.string(),
    t.BinaryType: pa.binary(),
    t.DateType: pa.date32(),
    # Parquet keeps instants, and names them in UTC, whatever the session's zone.
    t.TimestampType: pa.timestamp("us", tz="UTC"),
    t.TimestampNTZType: pa.timestamp("us"),
}


def arrow_schema(schema: t.StructType) -> pa.Schema:
    """The schema that sinks are given. Raises BadValue for a column of a type that no file can hold."""
    return pa.schema([pa.field(field.name, _arrow(field.name, field.dataType)) for field in schema.fields])


def _arrow(column: str, kind: t.DataType) -> pa.DataType:
    if isinstance(kind, t.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, t.ArrayType):
        return pa.list_(_arrow(column, kind.elementType))
    if isinstance(kind, t.MapType):
        return pa.map_(_arrow(column, kind.keyType), _arrow(column, kind.valueType))
    if isinstance(kind, t.StructType):
        return pa.struct([pa.field(field.name, _arrow(column, field.dataType)) for field in kind.fields])
    for plain, found in _PLAIN.items():
        if isinstance(kind, plain):
            return found
    raise BadValue(f"column {column!r}", f"a {kind.simpleString()} can't be written to a sink: cast it")
