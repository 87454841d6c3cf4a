"""Rows by key: the condition, and the one partition that can hold them.

Spark puts a key into the partition pmod(hash(key), n). That is asked of Spark itself, and believed only where the rows
of the partition bear it out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.errors import BadValue

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

__all__ = ["bears_out", "by_key", "leaves", "partition_of"]

SAMPLE = 1000
"""So many rows in their places are proof enough: another rule would put most of them elsewhere."""


class Leaf(NamedTuple):
    """A field of a key that has no fields of its own: the names on the way to it, and its type."""

    path: tuple[str, ...]
    kind: DataType

    @property
    def plain(self) -> str:
        return ".".join(self.path)

    @property
    def quoted(self) -> str:
        """As Spark has it, where a name may have a dot in it."""
        return ".".join(map(_quoted, self.path))


def leaves(key: StructType) -> dict[str, Leaf]:
    """The fields of a key by the names that people give them; `window.start` lies inside of `window`.

    A name may have dots of its own. One that is then the name of two fields is shown as Spark quotes it, for both.
    """
    found = [*_leaves(key)]
    spelled = Counter(name for leaf in found for name in (leaf.plain, leaf.quoted))
    return {leaf.plain if spelled[leaf.plain] == 1 else leaf.quoted: leaf for leaf in found}


def by_key(session: SparkSession, key: StructType, given: Mapping[str, Any]) -> Column:
    """The condition that fields of the key have these values. Raises BadValue for a field or value that can't be."""
    from pyspark.sql import functions as f

    meant = _meant(key, given)
    literals = {name: f.lit(value).try_cast(meant[name].kind) for name, value in given.items()}
    (row,) = session.sql("SELECT 1").select(*literals.values()).collect()
    for name, literal in zip(given, row, strict=True):
        if literal is None and given[name] is not None:
            raise BadValue(f"where {name}", f"{given[name]!r} is no {meant[name].kind.simpleString()}")
    terms = (f.col(f"key.{meant[name].quoted}").eqNullSafe(literal) for name, literal in literals.items())
    return reduce(lambda one, other: one & other, terms)


def partition_of(session: SparkSession, key: StructType, given: Mapping[str, Any], partitions: int) -> int | None:
    """The partition that holds a key; None unless all its fields are given. Raises BadValue as `by_key` does."""
    from pyspark.sql import functions as f

    values = {leaf.path: given[name] for name, leaf in _meant(key, given).items()}
    if values.keys() != {leaf.path for leaf in _leaves(key)}:
        return None
    where = f.pmod(f.hash(*_values(key, values)), f.lit(partitions))
    row = session.sql("SELECT 1").select(where).first()
    assert row is not None
    return int(row[0])


def bears_out(rows: DataFrame, partition: int, partitions: int) -> bool:
    """Whether there are rows in what was read of a partition, and those looked at belong there."""
    from pyspark.sql import functions as f

    fields = [f.col(f"key.{_quoted(name)}") for name in rows.schema["key"].dataType.names]  # type: ignore[attr-defined]
    where = f.pmod(f.hash(*fields), f.lit(partitions))
    return {row[0] for row in rows.select(where).limit(SAMPLE).collect()} == {partition}


def _leaves(key: StructType, above: tuple[str, ...] = ()) -> Iterator[Leaf]:
    from pyspark.sql.types import StructType

    for field in key.fields:
        path = (*above, field.name)
        if isinstance(field.dataType, StructType):
            yield from _leaves(field.dataType, path)
        else:
            yield Leaf(path, field.dataType)


def _meant(key: StructType, given: Mapping[str, Any]) -> dict[str, Leaf]:
    """The fields that were given, by the names they were given by: as they are shown, or quoted."""
    shown = leaves(key)
    known = {leaf.quoted: leaf for leaf in shown.values()} | shown
    meant: dict[str, Leaf] = {}
    for name in given:
        several = [each for each, leaf in shown.items() if leaf.plain == name]
        if name not in known and several:
            raise BadValue(f"where {name}", f"several fields of the key are called so: write {' or '.join(several)}")
        if name not in known:
            raise BadValue(f"where {name}", f"the key has no such field; it has: {', '.join(shown) or 'none'}")
        if known[name] in meant.values():
            raise BadValue(f"where {name}", "the same field is given twice")
        meant[name] = known[name]
    return meant


def _values(key: StructType, given: Mapping[tuple[str, ...], Any], above: tuple[str, ...] = ()) -> list[Column]:
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    found = []
    for field in key.fields:
        path = (*above, field.name)
        if isinstance(field.dataType, StructType):
            found.append(f.struct(*_values(field.dataType, given, path)).cast(field.dataType))
        else:
            found.append(f.lit(given[path]).try_cast(field.dataType))
    return found


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
