"""From read models and results to plain JSON values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from holdfast.errors import HoldfastError
from holdfast.layout import Slot
from holdfast.text import encodable

__all__ = ["iso_time", "plain", "to_json", "to_json_line"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# JSON itself escapes only what lies below the space; a terminal also obeys these.
_UNSAFE = re.compile("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


def plain(value: Any) -> Any:
    """Structs, dataclasses and named tuples as dicts, slots as G-N, errors as code, message, hint and fields.

    Private fields are left out: what a plan carries for its own use may be secret.
    """
    if isinstance(value, Slot):
        return str(value)
    if isinstance(value, HoldfastError):
        return {"code": value.code, "message": value.message, "hint": value.hint, "fields": plain(value.fields)}
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if is_dataclass(value) and not isinstance(value, type):
        shown = [field.name for field in fields(value) if not field.name.startswith("_")]
        return {name: plain(getattr(value, name)) for name in shown}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, Mapping):
        return {encodable(str(key)): plain(inner) for key, inner in value.items()}
    if isinstance(value, Set):
        return sorted((plain(inner) for inner in value), key=str)
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value if value is None or isinstance(value, bool | int | float) else encodable(str(value))


def to_json(value: Any) -> str:
    """One JSON document, indented, that is safe to show on a terminal: no control character is in it as such."""
    return _safe(msgspec.json.format(msgspec.json.encode(plain(value)), indent=2))


def to_json_line(value: Any) -> str:
    """The same in one line, without its end: for one document after the other."""
    return _safe(msgspec.json.encode(plain(value)))


def _safe(document: bytes) -> str:
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", document.decode())


def iso_time(timestamp_ms: int | None) -> str | None:
    """The moment in UTC as ISO 8601; None also for one that lies outside the calendar."""
    if timestamp_ms is None:
        return None
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
