"""Tables, record batches and schemas of Arrow, as IPC streams."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from holdfast.codec.reduced import Reduced

__all__ = ["rebuild", "reduce", "stream", "table"]


def reduce(value: Any) -> Reduced | None:
    kind = type(value)
    if kind is pa.Table:
        return Reduced("pyarrow/Table", None, stream(value.schema, value))
    if kind is pa.RecordBatch:
        return Reduced("pyarrow/RecordBatch", None, stream(value.schema, value))
    if kind is pa.Schema:
        return Reduced("pyarrow/Schema", None, stream(value))
    return None


def rebuild(name: str, _head: Any, data: memoryview) -> object:
    match name:
        case "Table":
            return table(data)
        case "RecordBatch":
            return _open(data).read_next_batch()
        case "Schema":
            return _open(data).schema
        case _:
            raise LookupError("no such kind")


def stream(schema: Any, *rows: Any) -> memoryview:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for part in rows:
            writer.write(part)
    return memoryview(sink.getvalue())


def table(data: memoryview) -> Any:
    return _open(data).read_all()


def _open(data: memoryview) -> Any:
    # Arrow points into what it reads: a copy of its own is aligned, and does not hold the whole record in memory.
    return pa.ipc.open_stream(pa.py_buffer(bytes(data)))
