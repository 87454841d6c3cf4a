"""For those who extend Holdfast: contract suites for their own backends and sinks, and stores that fail on purpose."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.testing.faults import CountingStore, Crash, CrashingStore, LateStore
from holdfast.testing.store import StoreContract

if TYPE_CHECKING:
    from holdfast.testing.sinks import SinkContract

__all__ = ["CountingStore", "Crash", "CrashingStore", "LateStore", "SinkContract", "StoreContract"]


def __getattr__(name: str) -> object:
    """The suite of sinks needs Arrow and pytest, which those who test a store may not have."""
    if name != "SinkContract":
        raise AttributeError(f"module 'holdfast.testing' has no attribute {name!r}")
    from holdfast.testing.sinks import SinkContract

    return SinkContract
