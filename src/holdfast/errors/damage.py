"""Bytes are not what they were: exit 3."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.errors.base import HoldfastError

__all__ = [
    "BrokenBatch",
    "BrokenChain",
    "Damage",
    "DamagedArtifact",
    "DamagedCopy",
    "DamagedRecord",
    "DamagedState",
    "MissingRecords",
    "NothingRestorable",
]


class Damage(HoldfastError):
    """Something durable is missing or is not what was written."""

    exit_code = 3


@dataclass(eq=False)
class DamagedRecord(Damage):
    key: str
    why: str
    code = "HF-2001"
    template = "{key} is damaged: {why}"
    advice = "Run `holdfast check --repair`: it rebuilds what can be rebuilt and sets the rest aside."


@dataclass(eq=False)
class DamagedArtifact(Damage):
    path: str
    why: str
    code = "HF-2002"
    template = "{path}: {why}"
    advice = "Recovery falls back to an older checkpoint; `holdfast check --read-data` lists what else is hit."


@dataclass(eq=False)
class BrokenChain(Damage):
    operator: str
    partition: int
    why: str
    code = "HF-2003"
    template = "the chain of operator {operator!r}, partition {partition}, is broken: {why}"
    advice = "Take an older checkpoint, or save a snapshot of this partition before its next delta."


@dataclass(eq=False)
class NothingRestorable(Damage):
    pipeline: str
    tried: Sequence[str]
    code = "HF-2004"
    template = "pipeline {pipeline!r}: none of the checkpoints that may be taken can be restored; tried {tried}"
    advice = "Never read as a fresh start. See `holdfast check`; raise max_fallback if it is set, or name one by id."


@dataclass(eq=False)
class MissingRecords(Damage):
    place: str
    why: str
    code = "HF-2005"
    template = "{place}: records are missing: {why}"
    advice = "Absent is not empty: nothing was started afresh. Restore the missing objects, or see `holdfast check`."


@dataclass(eq=False)
class DamagedState(Damage):
    why: str
    code = "HF-2006"
    template = "the binary state record is damaged: {why}"
    advice = "Take an older checkpoint."


@dataclass(eq=False)
class BrokenBatch(Damage):
    directory: str
    epoch: int
    why: Sequence[str]
    code = "HF-2007"
    template = "{directory}: batch {epoch} is committed but can't be restored: {why}"
    advice = "Spark could not restart from it either. `holdfast restore --heal` brings back files that were captured."


@dataclass(eq=False)
class DamagedCopy(Damage):
    url: str
    key: str
    why: str
    code = "HF-2008"
    template = "{key} is damaged in the copy, {url}: {why}"
    advice = "If the copy was never activated, delete that object there and copy again; else copy to a new place."
