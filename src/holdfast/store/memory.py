"""A store in this process's memory, for tests and trials: `memory://name` is the same place all over the process."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence

from holdfast.errors import ObjectMissing, StoreFailure
from holdfast.store.contract import CHUNK, Buffer, ObjectInfo, Store
from holdfast.store.keys import check_key, check_prefix

__all__ = ["MemoryStore"]


class _Shelf:
    """The objects of one place: a dict for the bytes, a sorted list of keys for listing."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.objects: dict[str, bytes] = {}
        self.keys: list[str] = []

    def set(self, key: str, data: bytes) -> None:
        if key not in self.objects:
            insort(self.keys, key)
        self.objects[key] = data

    def below(self, prefix: str, start_after: str) -> Iterator[str]:
        after = max(start_after, prefix)
        for i in range(bisect_right(self.keys, after), len(self.keys)):
            if not self.keys[i].startswith(prefix):
                return
            yield self.keys[i]


_SHELVES: dict[str, _Shelf] = {}
_SHELVES_LOCK = threading.Lock()


class MemoryStore(Store):
    """Bytes in a dict. Stores of one name share their objects; one without a name keeps them to itself.

    Nothing survives the process, and a forked or spawned child sees a place of its own.
    """

    def __init__(self, name: str = "") -> None:
        self.url = f"memory://{name}"
        if name:
            with _SHELVES_LOCK:
                self._shelf = _SHELVES.setdefault(name, _Shelf())
        else:
            self._shelf = _Shelf()

    def create(self, key: str, data: Buffer) -> bool:
        check_key(key)
        wanted = bytes(data)
        with self._shelf.lock:
            held = self._shelf.objects.get(key)
            if held is None:
                self._shelf.set(key, wanted)
                return True
        return held == wanted

    def put(self, key: str, data: Buffer) -> None:
        check_key(key)
        with self._shelf.lock:
            self._shelf.set(key, bytes(data))

    def get(self, key: str) -> bytes:
        try:
            return self._shelf.objects[check_key(key)]
        except KeyError:
            raise ObjectMissing(self.url, key) from None

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        data = self.get(key)
        return [data[offset : offset + length] for offset, length in ranges]

    def folders(self, prefix: str) -> list[str]:
        check_prefix(prefix)
        found: list[str] = []
        shelf = self._shelf
        with shelf.lock:
            at = bisect_right(shelf.keys, prefix)
            while at < len(shelf.keys) and shelf.keys[at].startswith(prefix):
                name, slash, _ = shelf.keys[at][len(prefix) :].partition("/")
                if slash:
                    found.append(name)
                    # "0" comes right after "/", so this skips all that is in the folder at once.
                    at = bisect_left(shelf.keys, f"{prefix}{name}0", at)
                else:
                    at += 1
        return sorted(found)

    def list(self, prefix: str, start_after: str = "") -> list[ObjectInfo]:
        check_prefix(prefix)
        shelf = self._shelf
        with shelf.lock:
            return [ObjectInfo(key, len(shelf.objects[key])) for key in shelf.below(prefix, start_after)]

    def delete(self, keys: Iterable[str]) -> None:
        shelf = self._shelf
        for key in keys:
            with shelf.lock:
                if shelf.objects.pop(check_key(key), None) is not None:
                    del shelf.keys[bisect_left(shelf.keys, key)]

    def copy(self, source: str, target: str) -> None:
        self.put(target, self.get(source))

    def write(self, key: str, chunks: Iterable[Buffer]) -> int:
        data = b"".join(chunks)
        if not self.create(key, data):
            raise StoreFailure(self.url, f"write {key}", "the key is taken")
        return len(data)

    def read(self, key: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        data = self.get(key)
        end = len(data) if length is None else min(len(data), offset + length)
        for start in range(offset, end, CHUNK):
            yield data[start : min(end, start + CHUNK)]
