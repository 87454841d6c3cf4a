"""Frames of pandas, through Arrow. A frame that Arrow would change on the way is refused, not changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyarrow as pa

from holdfast.codec.kinds.arrow import stream, table
from holdfast.codec.reduced import Reduced, Unsupported

__all__ = ["rebuild", "reduce"]

# What an object column may hold: these come back as the objects they were. (NaN among them comes back as None.)
OBJECTS = {"string", "bytes", "decimal", "date", "time", "empty"}


def reduce(value: Any) -> Reduced | None:
    if type(value) is not pd.DataFrame:
        return None
    for place, column in _parts(value):
        if column.dtype == object and (held := pd.api.types.infer_dtype(column)) not in OBJECTS:
            raise Unsupported(f"pandas DataFrame with objects ({held}) in {place}")
    try:
        arrow = pa.Table.from_pandas(value)
        again = arrow.slice(0, 0).to_pandas()
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise Unsupported(f"pandas DataFrame that Arrow can't hold ({error})") from error
    if (loss := _loss(value, again)) is not None:
        raise Unsupported(f"pandas DataFrame whose {loss} would not come back the same through Arrow")
    return Reduced("pandas/DataFrame", None, stream(arrow.schema, arrow))


def rebuild(name: str, _head: Any, data: memoryview) -> object:
    if name != "DataFrame":
        raise LookupError("no such kind")
    return table(data).to_pandas()


def _parts(frame: Any) -> Iterator[tuple[str, Any]]:
    for at, name in enumerate(frame.columns):
        yield f"column {name!r}", frame.iloc[:, at]
    for name, labels in (("the index", frame.index), ("the column labels", frame.columns)):
        for level in range(labels.nlevels):
            yield name, labels.get_level_values(level)


def _loss(frame: Any, again: Any) -> str | None:
    """Compare with what Arrow gives back for no rows: it shows every type and label, at no cost per row."""
    if not again.columns.equals(frame.columns) or list(again.columns.names) != list(frame.columns.names):
        return "column labels"
    for at, name in enumerate(frame.columns):
        if again.dtypes.iloc[at] != frame.dtypes.iloc[at]:
            return f"column {name!r}"
    # A range is kept as its bounds, which no rows can't show.
    if not isinstance(frame.index, pd.RangeIndex) and _kind(again.index) != _kind(frame.index):
        return "index"
    return None if again.attrs == frame.attrs else "attrs"


def _kind(index: Any) -> tuple[object, ...]:
    levels = [index.get_level_values(level).dtype for level in range(index.nlevels)]
    return type(index), list(index.names), levels
