"""For those who extend Holdfast: contract suites for their own backends, and stores that fail on purpose."""

from __future__ import annotations

from holdfast.testing.faults import CountingStore, Crash, CrashingStore, LateStore
from holdfast.testing.store import StoreContract

__all__ = ["CountingStore", "Crash", "CrashingStore", "LateStore", "StoreContract"]
