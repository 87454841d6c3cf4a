"""Patience: every transient failure of a store is tried again, for a bounded time, and never passes for an answer."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

from holdfast.errors import ObjectMissing, OutcomeUnknown, StoreError, StoreFailure, StoreUnavailable
from holdfast.store.contract import CHUNK, Buffer, ObjectInfo, Store

__all__ = ["Patience", "RetryPolicy", "RetryingStore", "Transient"]

T = TypeVar("T")


class Transient(Exception):
    """What a raw store raises for a failure that may pass; it never leaves a Patience.

    `may_have_landed` is False only when it is sure that the request never reached the store.
    """

    def __init__(self, why: str, may_have_landed: bool = True) -> None:
        super().__init__(why)
        self.may_have_landed = may_have_landed


@dataclass(frozen=True)
class RetryPolicy:
    """How long to keep trying, and how to space the attempts: twice as far apart each time, at random below that.

    The budget is for one operation; a request under way when it ends is still waited for.
    """

    budget_seconds: float = 60
    first_delay: float = 0.1
    max_delay: float = 10

    def delay(self, attempt: int) -> float:
        """How long to wait after this attempt (0, 1, …); random, so that many writers do not come back at once."""
        return random.uniform(0, min(self.max_delay, self.first_delay * 2.0 ** min(attempt, 60)))


class Patience:
    """Tries one operation of a place again, as the policy says, for as long as it ends in Transient."""

    def __init__(
        self,
        url: str,
        policy: RetryPolicy,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = url
        self._policy = policy
        self._sleep = sleep
        self._clock = clock

    def __call__(self, action: str, attempt: Callable[[], T]) -> T:
        began = self._clock()
        tries = 0
        while True:
            try:
                return attempt()
            except Transient as failure:
                spent = self._clock() - began
                left = self._policy.budget_seconds - spent
                if left <= 0:
                    raise StoreUnavailable(self._url, action, spent, str(failure)) from failure
            self._sleep(min(left, self._policy.delay(tries)))
            tries += 1


class RetryingStore(Store):
    """A store that rides out the transient failures of the one inside it; permanent ones come through at once."""

    def __init__(
        self,
        store: Store,
        policy: RetryPolicy | None = None,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.url = store.url
        self._store = store
        self._clock = clock
        self._persist = Patience(store.url, policy or RetryPolicy(), sleep=sleep, clock=clock)

    def create(self, key: str, data: Buffer) -> bool:
        in_doubt = False

        def attempt() -> bool:
            nonlocal in_doubt
            if in_doubt:
                # An earlier attempt may have landed. Looking costs less than sending again, and a store that refuses
                # a large body early can break the connection on every attempt.
                try:
                    return self._store.get(key) == data
                except ObjectMissing:
                    pass
            try:
                return self._store.create(key, data)
            except Transient as failure:
                in_doubt = in_doubt or failure.may_have_landed
                raise

        try:
            return self._persist(f"create {key}", attempt)
        except StoreError as error:
            if in_doubt:
                raise OutcomeUnknown(self.url, key, error.message) from error
            raise

    def put(self, key: str, data: Buffer) -> None:
        self._persist(f"put {key}", lambda: self._store.put(key, data))

    def get(self, key: str) -> bytes:
        return self._persist(f"get {key}", lambda: self._store.get(key))

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return self._persist(f"get {key}", lambda: self._store.get_ranges(key, ranges))

    def folders(self, prefix: str) -> list[str]:
        return self._persist(f"list {prefix}", lambda: self._store.folders(prefix))

    def list(self, prefix: str, start_after: str = "") -> list[ObjectInfo]:
        return self._persist(f"list {prefix}", lambda: self._store.list(prefix, start_after))

    def delete(self, keys: Iterable[str]) -> None:
        doomed = tuple(keys)
        self._persist(f"delete {len(doomed)} objects", lambda: self._store.delete(doomed))

    def copy(self, source: str, target: str) -> None:
        self._persist(f"copy {source}", lambda: self._store.copy(source, target))

    def write(self, key: str, chunks: Iterable[Buffer]) -> int:
        rest = iter(chunks)
        first, size = [], 0
        for chunk in rest:
            first.append(chunk)
            size += len(chunk)
            if size >= CHUNK:
                break
        else:
            # All of it is at hand and can be sent as often as need be.
            if not self.create(key, b"".join(first)):
                raise StoreFailure(self.url, f"write {key}", "the key is taken")
            return size
        # The chunks pass by once: the store inside repeats what fails, a part at a time.
        began = self._clock()
        try:
            return self._store.write(key, chain(first, rest))
        except Transient as failure:
            raise StoreUnavailable(self.url, f"write {key}", self._clock() - began, str(failure)) from failure

    def read(self, key: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        # In ranges, so that a body that breaks is taken up where it stood.
        while length is None or length > 0:
            asked = CHUNK if length is None else min(CHUNK, length)
            [chunk] = self.get_ranges(key, [(offset, asked)])
            if chunk:
                yield chunk
            if len(chunk) < asked:
                return
            offset += asked
            length = None if length is None else length - asked

    def close(self) -> None:
        self._store.close()
