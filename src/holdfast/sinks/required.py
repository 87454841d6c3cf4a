"""Columns of a table that must have a value: whether every staged row has one, by the footers as far as they tell."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.errors import SinkUnfit
from holdfast.sinks.footers import Path, null_counts
from holdfast.sinks.rewrite import read_staged
from holdfast.sinks.staged import StagedRows

__all__ = ["refuse_nulls"]


def refuse_nulls(sink: str, schema: pa.Schema, rows: StagedRows, footers: Mapping[str, pq.FileMetaData]) -> None:
    """Raise SinkUnfit where a column of the table must have a value and a staged row has none, at any depth.

    `schema` is the table's, whose fields say what may be empty. A footer counts what is missing in a list or a struct
    together with what lies around it: only where that leaves a doubt is such a column read.
    """
    strict = {field: _strict((field.name,), field) for field in schema if field.name in rows.schema.names}
    if not any(strict.values()):
        return
    full = [_full(footer) for footer in footers.values()]
    doubtful = [field for field, paths in strict.items() if any(path not in at for at in full for path in paths)]
    for field in doubtful:
        if not pa.types.is_nested(field.type):
            raise SinkUnfit(sink, f"{field.name} must have a value, and a row has none, or it is not known")
    if doubtful:
        for table in read_staged(rows, [field.name for field in doubtful]):
            for field in doubtful:
                if any(_has_hole(chunk, field) for chunk in table[field.name].chunks):
                    raise SinkUnfit(sink, f"{field.name} must have a value, and a row has none, or lacks one inside")


def _strict(path: Path, field: pa.Field) -> list[Path]:
    """All that must have a value, from a column down; the keys of a map always have one."""
    found = [] if field.nullable else [path]
    kind = field.type
    if pa.types.is_struct(kind):
        return found + [deep for inner in kind for deep in _strict((*path, inner.name), inner)]
    if pa.types.is_map(kind):
        return found + _strict((*path, "value"), kind.item_field)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return found + _strict((*path, "element"), kind.value_field)
    return found


def _full(footer: pq.FileMetaData) -> set[Path]:
    """What has a value in every row: a column without a gap, and all that is around it."""
    leaves = [leaf for leaf, count in null_counts(footer).items() if count == 0]
    return {leaf[:depth] for leaf in leaves for depth in range(1, len(leaf) + 1)}


def _has_hole(values: pa.Array, field: pa.Field) -> bool:
    if values.null_count and not field.nullable:
        return True
    kind = field.type
    if pa.types.is_struct(kind):
        # Where a struct itself is none, its fields are none rightly.
        held = values.drop_null()
        return any(_has_hole(held.field(inner.name), inner) for inner in kind)
    if pa.types.is_map(kind):
        return _has_hole(pa.ListArray.from_arrays(values.offsets, values.items).flatten(), kind.item_field)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _has_hole(values.flatten(), kind.value_field)
    return False
