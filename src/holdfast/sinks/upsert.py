"""Replacing rows by key in tables of immutable files: which keys can be, and in which files one may be."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.errors import SinkUnfit
from holdfast.sinks.footers import Path, ranges
from holdfast.sinks.rewrite import key_leaves

__all__ = ["key_bounds", "overlapping", "refuse_key"]

SLACK = datetime.timedelta(milliseconds=1)
"""Logs may have times in milliseconds, cut short."""


class Ranged(Protocol):
    """A file with what its table says of it: nested by column, as far as it is known."""

    @property
    def partition(self) -> Mapping[str, Any]: ...
    @property
    def low(self) -> Mapping[str, Any]: ...
    @property
    def high(self) -> Mapping[str, Any]: ...


AnyFile = TypeVar("AnyFile", bound=Ranged)


def refuse_key(sink: str, schema: pa.Schema, key: Sequence[str]) -> None:
    """Raise SinkUnfit for a key that the rows do not have, or that rows can't be told apart by."""
    missing = [column for column in key if column not in schema.names]
    if missing:
        raise SinkUnfit(sink, f"its key names {', '.join(missing)}, and the rows have {', '.join(schema.names)}")
    for path in key_leaves(schema, key):
        kind = _kind(schema, path)
        if pa.types.is_nested(kind) or pa.types.is_floating(kind):
            raise SinkUnfit(sink, f"its key has {'.'.join(path)}, and a {kind} tells no rows apart")


def key_bounds(
    footers: Iterable[pq.FileMetaData], schema: pa.Schema, key: Sequence[str]
) -> dict[Path, tuple[Any, Any]]:
    """From where to where the keys of staged rows go, for those columns of the key that files are told apart by."""
    found = [ranges(footer) for footer in footers]
    bounds: dict[Path, tuple[Any, Any]] = {}
    for path in key_leaves(schema, key):
        lows, highs = [at[path].low for at in found], [at[path].high for at in found]
        # Logs have decimals as numbers that may be rounded.
        if None not in lows and None not in highs and lows and not pa.types.is_decimal(_kind(schema, path)):
            bounds[path] = (min(lows), max(highs))
    return bounds


def overlapping(files: Iterable[AnyFile], bounds: Mapping[Path, tuple[Any, Any]]) -> list[AnyFile]:
    """The files in which a key within these bounds may be, for all that is known of them."""
    return [file for file in files if all(_may_hold(file, path, *at) for path, at in bounds.items())]


def _may_hold(file: Ranged, path: Path, low: Any, high: Any) -> bool:
    if path[0] in file.partition:
        value = _plain(file.partition[path[0]])
        return value is not None and bool(_plain(low) <= value <= _plain(high))
    first, last = _plain(_at(file.low, path)), _plain(_at(file.high, path))
    if isinstance(last, datetime.datetime):
        # What ends with the last time that there is may hold all that come after `first`.
        last = last + SLACK if last <= datetime.datetime.max - SLACK else None
    return (first is None or bool(first <= _plain(high))) and (last is None or bool(_plain(low) <= last))


def _at(values: Mapping[str, Any], path: Path) -> Any:
    found: Any = values
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _plain(value: Any) -> Any:
    """Times are compared as they are in UTC, whether they say so or not."""
    return value.replace(tzinfo=None) if isinstance(value, datetime.datetime) else value


def _kind(schema: pa.Schema, path: Path) -> pa.DataType:
    kind = schema.field(path[0]).type
    for name in path[1:]:
        kind = kind.field(name).type
    return kind
