"""Reference tables: what a query joins in beside its stream, read at a version that is recorded with every epoch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.tables.contract import Table
    from holdfast.tables.delta import Delta
    from holdfast.tables.iceberg import Iceberg
    from holdfast.tables.static import Static

_WHERE = {"Delta": "delta", "Iceberg": "iceberg", "Static": "static", "Table": "contract"}

__all__ = ["Delta", "Iceberg", "Static", "Table"]


def __getattr__(name: str) -> object:
    where = _WHERE.get(name)
    if where is None:
        raise AttributeError(f"module 'holdfast.tables' has no attribute {name!r}")
    value = getattr(import_module(f"holdfast.tables.{where}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
