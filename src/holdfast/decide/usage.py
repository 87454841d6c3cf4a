"""What checkpoints cost: which bytes each holds alone, and which it shares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.layout import Slot
from holdfast.manifest import Manifest

__all__ = ["CheckpointUsage", "Usage", "usage"]

DATA = "data/"


@dataclass(frozen=True)
class CheckpointUsage:
    """Bytes of one checkpoint: those that would go with it, its manifest too, and those that others name as well."""

    slot: Slot
    exclusive: int
    shared: int

    @property
    def total(self) -> int:
        return self.exclusive + self.shared


@dataclass(frozen=True)
class Usage:
    """`total` counts every stored object once: exclusive ones of each checkpoint, `shared`, `loose`, and `records`.

    `loose` is data that no checkpoint names; `records` are claims, names, decisions and the like.
    """

    checkpoints: tuple[CheckpointUsage, ...]
    total: int
    shared: int
    loose: int
    records: int


def usage(manifests: Sequence[tuple[str, Manifest]], stored: Mapping[str, int]) -> Usage:
    """Weigh what manifests, each given with its path, name against all that is stored (path to size)."""
    users = Counter(path for _, manifest in manifests for path in manifest.objects)
    each = tuple(
        CheckpointUsage(
            manifest.at,
            stored.get(own, 0) + sum(size for path, size in manifest.objects.items() if users[path] == 1),
            sum(size for path, size in manifest.objects.items() if users[path] > 1),
        )
        for own, manifest in manifests
    )
    named = {*users, *(own for own, _ in manifests)}
    unnamed = {path: size for path, size in stored.items() if path not in named}
    loose = {path for path in unnamed if path.startswith(DATA) and path.removesuffix(".index") not in named}
    return Usage(
        checkpoints=each,
        total=sum(stored.values()),
        shared=sum(size for path, size in stored.items() if users[path] > 1),
        loose=sum(unnamed[path] for path in loose),
        records=sum(size for path, size in unnamed.items() if path not in loose),
    )
