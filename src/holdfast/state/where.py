"""Rows by key: the condition, and the one partition that can hold them.

Spark puts a key into the partition pmod(hash(key), n). That is asked of Spark itself, and believed only where the rows
of the partition bear it out.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any

from holdfast.errors import BadValue

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

__all__ = ["bears_out", "by_key", "leaves", "partition_of"]

SAMPLE = 1000
"""So many rows in their places are proof enough: another rule would put most of them elsewhere."""


def leaves(key: StructType, above: str = "") -> dict[str, DataType]:
    """The fields of a key by the names that people give them; `window.start` lies inside of `window`."""
    from pyspark.sql.types import StructType

    found: dict[str, DataType] = {}
    for field in key.fields:
        if isinstance(field.dataType, StructType):
            found |= leaves(field.dataType, f"{above}{field.name}.")
        else:
            found[above + field.name] = field.dataType
    return found


def by_key(session: SparkSession, key: StructType, given: Mapping[str, Any]) -> Column:
    """The condition that fields of the key have these values. Raises BadValue for a field or value that can't be."""
    from pyspark.sql import functions as f

    known = leaves(key)
    for name in given:
        if name not in known:
            raise BadValue(f"where {name}", f"the key has no such field; it has: {', '.join(known) or 'none'}")
    literals = {name: f.lit(value).try_cast(known[name]) for name, value in given.items()}
    (row,) = session.sql("SELECT 1").select(*literals.values()).collect()
    for name, literal in zip(given, row, strict=True):
        if literal is None and given[name] is not None:
            raise BadValue(f"where {name}", f"{given[name]!r} is no {known[name].simpleString()}")
    terms = (f.col(_path(name)).eqNullSafe(literal) for name, literal in literals.items())
    return reduce(lambda one, other: one & other, terms)


def partition_of(session: SparkSession, key: StructType, given: Mapping[str, Any], partitions: int) -> int | None:
    """The partition that holds a key; None unless all its fields are given."""
    from pyspark.sql import functions as f

    if set(given) != set(leaves(key)):
        return None
    where = f.pmod(f.hash(*_values(key, given)), f.lit(partitions))
    row = session.sql("SELECT 1").select(where).first()
    assert row is not None
    return int(row[0])


def bears_out(rows: DataFrame, partition: int, partitions: int) -> bool:
    """Whether there are rows in what was read of a partition, and those looked at belong there."""
    from pyspark.sql import functions as f

    fields = [f.col(f"key.{_quoted(name)}") for name in rows.schema["key"].dataType.names]  # type: ignore[attr-defined]
    where = f.pmod(f.hash(*fields), f.lit(partitions))
    return {row[0] for row in rows.select(where).limit(SAMPLE).collect()} == {partition}


def _values(key: StructType, given: Mapping[str, Any], above: str = "") -> list[Column]:
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    found = []
    for field in key.fields:
        name = above + field.name
        if isinstance(field.dataType, StructType):
            inner = _values(field.dataType, given, f"{name}.")
            found.append(f.struct(*inner).cast(field.dataType))
        else:
            found.append(f.lit(given[name]).try_cast(field.dataType))
    return found


def _path(name: str) -> str:
    return ".".join(["key", *map(_quoted, name.split("."))])


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
