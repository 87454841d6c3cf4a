"""Bytes: a place that keeps objects under keys, on disk, in memory or in a cloud, all behind one contract.

And the files of others, which are only read.
"""

from __future__ import annotations

from holdfast.store.contract import CHUNK, Buffer, ObjectInfo, Store
from holdfast.store.directory import Directory, FileStat, Look
from holdfast.store.open import Address, open_directory, open_store
from holdfast.store.probe import Finding, examine, probe
from holdfast.store.retry import RetryPolicy

__all__ = [
    "CHUNK",
    "Address",
    "Buffer",
    "Directory",
    "FileStat",
    "Finding",
    "Look",
    "ObjectInfo",
    "RetryPolicy",
    "Store",
    "examine",
    "open_directory",
    "open_store",
    "probe",
]
