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
    doubtful = []
    for field in schema:
        if field.name in rows.schema.names and (strict := _strict((field.name,), field)):
            counted = [null_counts(footer) for footer in footers.values()]
            if all(_is_full(counts, path) for counts in counted for path in strict):
                continue
            if not pa.types.is_nested(field.type):
                raise SinkUnfit(sink, f"{field.name} must have a value, and a row has none, or it is not known")
            doubtful.append(field)
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


def _is_full(counts: Mapping[Path, int | None], path: Path) -> bool:
    """Whether something that lies within always has a value, so that what is around it has one too."""
    return any(count == 0 for leaf, count in counts.items() if leaf[: len(path)] == path)


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
