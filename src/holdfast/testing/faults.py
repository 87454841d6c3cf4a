"""Stores that fail on purpose: a crash at a chosen operation, a create that lands late; and one that counts."""

from __future__ import annotations

import builtins
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, TypeVar

from holdfast.errors import OutcomeUnknown
from holdfast.store import Buffer, ObjectInfo, Store

__all__ = ["Around", "CountingStore", "Crash", "CrashingStore", "LateStore"]

T = TypeVar("T")
AnyBuffer = TypeVar("AnyBuffer", bound=Buffer)


class Crash(BaseException):
    """The process died here; no `except Exception` may catch it."""


class Around(Store):
    """A store around another one, with every operation passing through `_around`."""

    def __init__(self, store: Store) -> None:
        self.url = store.url
        self.can_vanish = store.can_vanish
        self.inner = store

    def _around(self, verb: str, act: Callable[[], T]) -> T:  # noqa: ARG002
        return act()

    def create(self, key: str, data: Buffer) -> bool:
        return self._around("create", lambda: self.inner.create(key, data))

    def put(self, key: str, data: Buffer) -> None:
        self._around("put", lambda: self.inner.put(key, data))

    def get(self, key: str) -> bytes:
        return self._around("get", lambda: self.inner.get(key))

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return self._around("get_ranges", lambda: self.inner.get_ranges(key, ranges))

    def folders(self, prefix: str) -> list[str]:
        return self._around("folders", lambda: self.inner.folders(prefix))

    def list(self, prefix: str, start_after: str = "") -> list[ObjectInfo]:
        return self._around("list", lambda: self.inner.list(prefix, start_after))

    def delete(self, keys: Iterable[str]) -> None:
        self._around("delete", lambda: self.inner.delete(keys))

    def copy(self, source: str, target: str) -> None:
        self._around("copy", lambda: self.inner.copy(source, target))

    def write(self, key: str, chunks: Iterable[Buffer]) -> int:
        return self._around("write", lambda: self.inner.write(key, chunks))

    def read(self, key: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        return self._around("read", lambda: self.inner.read(key, offset, length))

    def close(self) -> None:
        self.inner.close()


class CountingStore(Around):
    """Counts the operations by verb in `counts`, and bytes by key in `read_bytes` and `written_bytes`.

    What is read or sent twice counts twice. `reset` begins anew.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.counts: Counter[str] = Counter()
        self.read_bytes: Counter[str] = Counter()
        self.written_bytes: Counter[str] = Counter()
        self._lock = threading.Lock()

    @property
    def total(self) -> int:
        return self.counts.total()

    def reset(self) -> None:
        with self._lock:
            for counter in (self.counts, self.read_bytes, self.written_bytes):
                counter.clear()

    def create(self, key: str, data: Buffer) -> bool:
        self._count(self.written_bytes, key, data)
        return super().create(key, data)

    def put(self, key: str, data: Buffer) -> None:
        self._count(self.written_bytes, key, data)
        super().put(key, data)

    def get(self, key: str) -> bytes:
        return self._count(self.read_bytes, key, super().get(key))

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        return [self._count(self.read_bytes, key, part) for part in super().get_ranges(key, ranges)]

    def write(self, key: str, chunks: Iterable[Buffer]) -> int:
        return super().write(key, (self._count(self.written_bytes, key, chunk) for chunk in chunks))

    def read(self, key: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        return (self._count(self.read_bytes, key, chunk) for chunk in super().read(key, offset, length))

    def _count(self, counter: Counter[str], key: str, data: AnyBuffer) -> AnyBuffer:
        with self._lock:
            counter[key] += memoryview(data).nbytes
        return data

    def _around(self, verb: str, act: Callable[[], T]) -> T:
        with self._lock:
            self.counts[verb] += 1
        return act()


class CrashingStore(Around):
    """Raises Crash at its operation number `at` (the first is 0), `before` it takes effect or `after` it.

    A dead process does nothing more: every later operation raises Crash too. A run that ends with `crashed` False had
    fewer operations than that, so a test walks `at` upwards until then.
    """

    def __init__(self, store: Store, at: int, when: Literal["before", "after"] = "before") -> None:
        super().__init__(store)
        self._at = at
        self._when = when
        self._done = 0
        self._lock = threading.Lock()
        self.crashed = False

    def _around(self, verb: str, act: Callable[[], T]) -> T:
        with self._lock:
            number, self._done = self._done, self._done + 1
            dead = self.crashed
            self.crashed = dead or number == self._at
        if dead or (number == self._at and self._when == "before"):
            raise Crash(f"before {verb}, operation {number}")
        answer = act()
        if number == self._at:
            raise Crash(f"after {verb}, operation {number}")
        return answer


class LateStore(Around):
    """Loses the replies of creates whose key `delays` picks: each raises OutcomeUnknown and has not landed yet.

    `land()` lets all of them arrive, in the order sent; one whose key is taken by then comes to nothing, as it would
    in a real store. `land()` gives the keys that landed.
    """

    def __init__(self, store: Store, delays: Callable[[str], bool]) -> None:
        super().__init__(store)
        self._delays = delays
        self.under_way: list[tuple[str, bytes]] = []

    def create(self, key: str, data: Buffer) -> bool:
        if not self._delays(key):
            return super().create(key, data)
        self.under_way.append((key, bytes(data)))
        raise OutcomeUnknown(self.url, key, "the reply was lost")

    def land(self) -> Sequence[str]:
        sent, self.under_way = self.under_way, []
        taken = {info.key for info in self.inner.list("")}
        landed = []
        for key, data in sent:
            if key not in taken and self.inner.create(key, data):
                landed.append(key)
                taken.add(key)
        return landed
