"""What the log of a Delta table says of a file, for readers to prune by: how many rows, and from where to where.

A bound may lie further out than the values do, never within. The reader of `deltalake` that gives Arrow datasets takes
a bound that is missing beside others for none at all, and finds no row by that column: so all columns have bounds, or
none has.
"""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from typing import Any

import pyarrow as pa

from holdfast.sinks.footers import Path, Range

__all__ = ["statistics"]

LONGEST_TEXT = 256
"""Longer texts are cut short."""
LAST_LETTER = "\U0010ffff"
"""Unicode says that it will never be a letter of a text."""
MILLISECOND = datetime.timedelta(milliseconds=1)
DIGITS = 15
"""So many digits of a decimal outlive that readers take it for a fraction."""
PLACES = 4
"""With more of them after the point a number would be written with an exponent."""
LARGEST = {"float": 3.4028234663852886e38, "double": 1.7976931348623157e308}


def statistics(rows: int, found: Mapping[Path, Range]) -> str:
    """What is known of a file, as the log has it."""
    nulls: dict[str, Any] = {}
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    said: dict[str, Any] = {"numRecords": rows, "nullCount": nulls}
    is_whole = True
    for path, at in found.items():
        if at.nulls is not None:
            _set(nulls, path, at.nulls)
        if at.is_empty or _has_no_order(at.kind):
            continue
        if bounds := _bounds(at):
            _set(low, path, bounds[0])
            _set(high, path, bounds[1])
        else:
            is_whole = False
    # Letters as they are: deltalake reads an escaped pair of surrogates as something else.
    return json.dumps(said | {"minValues": low, "maxValues": high} if is_whole else said, ensure_ascii=False)


def _has_no_order(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _bounds(at: Range) -> tuple[Any, Any] | None:
    """Bounds that JSON can say; None if there are none."""
    if pa.types.is_string(at.kind) or pa.types.is_large_string(at.kind):
        # Of long texts a footer says nothing.
        return _text(at.low or ""), _text(LAST_LETTER if at.high is None else at.high, end=LAST_LETTER)
    if at.low is None or at.high is None:
        return None
    if pa.types.is_decimal(at.kind):
        return _rounded(at)
    if pa.types.is_floating(at.kind):
        # What is no number is in no footer, and Spark has it come after all numbers.
        return (at.low, LARGEST[str(at.kind)]) if math.isfinite(at.low) and math.isfinite(at.high) else None
    if pa.types.is_timestamp(at.kind):
        return _milliseconds(at.low), _milliseconds(_next_millisecond(at.high))
    return (at.low.isoformat(), at.high.isoformat()) if pa.types.is_date(at.kind) else (at.low, at.high)


def _text(value: str, end: str = "") -> str:
    return value if len(value) <= LONGEST_TEXT else value[:LONGEST_TEXT] + end


def _rounded(at: Range) -> tuple[float, float] | None:
    with localcontext(prec=80):
        whole = max(len(str(int(abs(at.low)))), len(str(int(abs(at.high)))))
        if whole > DIGITS:
            return None
        places = Decimal(1).scaleb(-min(at.kind.scale, PLACES, DIGITS - whole))
        low, high = at.low.quantize(places, ROUND_FLOOR), at.high.quantize(places, ROUND_CEILING)
        if max(abs(low), abs(high)) >= Decimal(10) ** (at.kind.precision - at.kind.scale):
            return None
    return float(low), float(high)


def _next_millisecond(value: datetime.datetime) -> datetime.datetime:
    """The log has milliseconds, cut short, and not every reader takes that into account.

    At the end of all times there is no next one: what all writers say there has to do.
    """
    is_last = value.replace(tzinfo=None) > datetime.datetime.max - MILLISECOND
    return value if value.microsecond % 1000 == 0 or is_last else value + MILLISECOND


def _milliseconds(value: datetime.datetime) -> str:
    text = value.replace(tzinfo=None).isoformat("T", "milliseconds")
    return f"{text}Z" if value.tzinfo else text.replace("T", " ")


def _set(values: dict[str, Any], path: Path, value: Any) -> None:
    for name in path[:-1]:
        values = values.setdefault(name, {})
    values[path[-1]] = value
