"""Bytes: a place that keeps objects under keys, on disk, in memory or in a cloud, all behind one contract."""

from __future__ import annotations

from holdfast.store.contract import CHUNK, Buffer, ObjectInfo, Store
from holdfast.store.open import open_store
from holdfast.store.probe import Finding, examine, probe
from holdfast.store.retry import RetryPolicy

__all__ = ["CHUNK", "Buffer", "Finding", "ObjectInfo", "RetryPolicy", "Store", "examine", "open_store", "probe"]
