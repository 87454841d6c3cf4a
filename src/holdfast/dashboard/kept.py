"""A store that remembers small records: nothing is ever rewritten, so what was read once need not be read again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from holdfast.layout import PIPELINES, parse
from holdfast.manifest import HEAD_LIMIT
from holdfast.records import is_whole
from holdfast.store import Buffer, ObjectInfo, Store

__all__ = ["Kept", "KeptReads"]

MOST_BYTES = 32 * 1024 * 1024
LARGEST = 64 * 1024
OVERHEAD = 300
"""What an entry costs beside its bytes, roughly: small records must not fill the memory unseen."""

LASTING = frozenset({"claim", "base", "savepoint", "pin", "settled", "failed", "decision", "joined"})
"""Records that are found by a listing before they are read: one that was deleted since is not asked for again."""

K = TypeVar("K")
V = TypeVar("V")


class Kept(Generic[K, V]):
    """Values that are used again and again, up to a weight; what was not used for longest goes first."""

    def __init__(self, most: int, weigh: Callable[[V], int] = lambda _value: 1) -> None:
        self._most = most
        self._weigh = weigh
        self._weight = 0
        self._values: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def put(self, key: K, value: V) -> None:
        with self._lock:
            replaced = self._values.pop(key, None)
            self._weight += self._weigh(value) - (self._weigh(replaced) if replaced is not None else 0)
            self._values[key] = value
            while self._weight > self._most and self._values:
                _, oldest = self._values.popitem(last=False)
                self._weight -= self._weigh(oldest)

    def __len__(self) -> int:
        return len(self._values)


class KeptReads(Store):
    """Another store, with the heads of manifests and small lasting records read once.

    For looking only: whoever changes something must see what the store holds now.
    """

    def __init__(self, store: Store, most_bytes: int = MOST_BYTES) -> None:
        self.url = store.url
        self._store = store
        self._kept: Kept[str, bytes] = Kept(most_bytes, lambda data: len(data) + OVERHEAD)

    def get(self, key: str) -> bytes:
        if not _is_lasting(key):
            return self._store.get(key)
        data = self._kept.get(key)
        if data is None:
            data = self._store.get(key)
            if len(data) <= LARGEST and is_whole(data):
                self._kept.put(key, data)
        return data

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        if list(ranges) != [(0, HEAD_LIMIT)]:
            return self._store.get_ranges(key, ranges)
        head = self._kept.get(key)
        if head is None:
            [data] = self._store.get_ranges(key, ranges)
            line, newline, _ = data.partition(b"\n")
            head = line + newline
            if not is_whole(head):
                return [data]  # It may be whole on the next look.
            self._kept.put(key, head)
        return [head]

    def folders(self, prefix: str) -> list[str]:
        return self._store.folders(prefix)

    def list(self, prefix: str, start_after: str = "") -> list[ObjectInfo]:
        return self._store.list(prefix, start_after)

    def read(self, key: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        return self._store.read(key, offset, length)

    def create(self, key: str, data: Buffer) -> bool:
        raise NotImplementedError

    def put(self, key: str, data: Buffer) -> None:
        raise NotImplementedError

    def delete(self, keys: Iterable[str]) -> None:
        raise NotImplementedError

    def copy(self, source: str, target: str) -> None:
        raise NotImplementedError

    def write(self, key: str, chunks: Iterable[Buffer]) -> int:
        raise NotImplementedError


def _is_lasting(key: str) -> bool:
    _, _, relative = key.removeprefix(PIPELINES).partition("/")
    name = parse(relative)
    return name is not None and name.what in LASTING
