"""Frames of Polars, as Arrow IPC streams of its own making: PyArrow is not needed."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import polars as pl

from holdfast.codec.reduced import Reduced, Unsupported

__all__ = ["rebuild", "reduce"]


def reduce(value: Any) -> Reduced | None:
    if type(value) is not pl.DataFrame:
        return None
    for name, dtype in value.schema.items():
        if dtype == pl.Object:
            raise Unsupported(f"polars DataFrame with objects in column {name!r}")
    sink = BytesIO()
    value.write_ipc_stream(sink)
    return Reduced("polars/DataFrame", None, sink.getbuffer())


def rebuild(name: str, _head: Any, data: memoryview) -> object:
    if name != "DataFrame":
        raise LookupError("no such kind")
    return pl.read_ipc_stream(BytesIO(data))
