"""What checkpoints cost: which bytes each holds alone, and which it shares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.layout import Slot
from holdfast.manifest import Manifest

__all__ = ["CheckpointUsage", "Usage", "usage"]


@dataclass(frozen=True)
class CheckpointUsage:
    """Bytes of the objects that one checkpoint names: those that would go with it, and those that others name too."""

    slot: Slot
    exclusive: int
    shared: int

    @property
    def total(self) -> int:
        return self.exclusive + self.shared


@dataclass(frozen=True)
class Usage:
    """`total` counts every stored object once; `loose` are those that no checkpoint names."""

    checkpoints: tuple[CheckpointUsage, ...]
    total: int
    shared: int
    loose: int


def usage(manifests: Sequence[Manifest], stored: Mapping[str, int]) -> Usage:
    """Weigh what manifests name against what is stored (path to size)."""
    users = Counter(path for manifest in manifests for path in manifest.objects)
    each = tuple(
        CheckpointUsage(
            manifest.at,
            sum(size for path, size in manifest.objects.items() if users[path] == 1),
            sum(size for path, size in manifest.objects.items() if users[path] > 1),
        )
        for manifest in manifests
    )
    return Usage(
        checkpoints=each,
        total=sum(stored.values()),
        shared=sum(size for path, size in stored.items() if users[path] > 1),
        loose=sum(size for path, size in stored.items() if users[path] == 0),
    )
