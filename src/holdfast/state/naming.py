"""Names for the fields of state that tell them apart: Spark gives two sums of one query the same.

In JSON, in Parquet and in Spark itself a name that is there twice hides a value, or nothing can be read at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

__all__ = ["told_apart", "with_fields_told_apart"]


def with_fields_told_apart(rows: DataFrame) -> DataFrame:
    """Rows in which no struct has two fields of one name; those that have none are left as they are.

    Fields keep their places and values: only names change, as `told_apart` says.
    """
    from pyspark.sql import functions as f

    kinds = {field.name: (field.dataType, _renamed(field.dataType)) for field in rows.schema.fields}
    # A struct is cast to another by the places of its fields.
    changed = {name: f.col(name).cast(new) for name, (old, new) in kinds.items() if new != old}
    return rows.withColumns(changed) if changed else rows


def told_apart(names: Sequence[str]) -> list[str]:
    """These names with a number after those that were there before: `sum`, `sum_2`, `sum_3`.

    `Sum` counts as `sum`, as it does for Spark. A number that another field has in its name is left out.
    """
    taken, seen, found = {name.lower() for name in names}, set[str](), []
    for name in names:
        new, number = name, 2
        if name.lower() in seen:
            while (new := f"{name}_{number}").lower() in taken:
                number += 1
        seen.add(name.lower())
        taken.add(new.lower())
        found.append(new)
    return found


def _renamed(kind: DataType) -> DataType:
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        return _fields_renamed(kind)
    if isinstance(kind, ArrayType):
        return ArrayType(_renamed(kind.elementType), kind.containsNull)
    if isinstance(kind, MapType):
        return MapType(_renamed(kind.keyType), _renamed(kind.valueType), kind.valueContainsNull)
    return kind


def _fields_renamed(struct: StructType) -> StructType:
    from pyspark.sql.types import StructField, StructType

    names = told_apart(struct.names)
    fields = zip(names, struct.fields, strict=True)
    return StructType([StructField(name, _renamed(f.dataType), f.nullable, f.metadata) for name, f in fields])
