"""What Holdfast asks of a place that keeps bytes: the whole of it, and no more.

A backend implements `Store`; `holdfast.testing.store` proves that it keeps the contract.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

__all__ = ["CHUNK", "Buffer", "ObjectInfo", "Store"]

Buffer: TypeAlias = bytes | bytearray | memoryview

CHUNK = 8 * 1024 * 1024
"""How much of a streamed object is held at a time."""


class ObjectInfo(NamedTuple):
    key: str
    size: int


class Store(ABC):
    """Bytes under keys. Safe to use from several threads.

    Keys are relative, `/`-separated, of segments that `holdfast.layout` makes; a key is never also a prefix of
    another. Whatever a call has returned is seen by every later call of anybody (read- and list-after-write), and an
    object is never seen in part. A missing object raises ObjectMissing; a failure that is not the caller's raises
    another StoreError and never passes for an answer.
    """

    url: str
    """Where this store lies, without any secret; for people and messages."""

    takes_parts: bool = False
    """Whether `write` costs no more than `create`: what is there in parts need not be joined first."""

    can_vanish: bool = False
    """Whether one that is gone looks like an empty one, and takes writes: a folder on a disk that is not mounted."""

    @abstractmethod
    def create(self, key: str, data: Buffer) -> bool:
        """Write a new object, durably, if the key is free.

        True: the key holds exactly these bytes, by this call or by an earlier one of the same bytes. False: it holds
        others. The caller puts a token of its own into what must be told apart. Raises OutcomeUnknown when the reply
        was lost for good: the object may still land.
        """

    @abstractmethod
    def put(self, key: str, data: Buffer) -> None:
        """Write a hint: the last writer wins, and it need not survive a power cut. Never for a record that counts."""

    @abstractmethod
    def get(self, key: str) -> bytes:
        """The whole object."""

    @abstractmethod
    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Parts of an object, each given as (offset, length), in the order asked.

        A range that reaches past the end comes back short: the caller compares lengths and digests.
        """

    @abstractmethod
    def folders(self, prefix: str) -> list[str]:
        """The names one level below a prefix that have objects below them, sorted; costs nothing per object."""

    @abstractmethod
    def list(self, prefix: str, start_after: str = "") -> list[ObjectInfo]:
        """All objects below a prefix ("" or ending in "/") whose key is greater than `start_after`, sorted by key."""

    @abstractmethod
    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects; those that are not there are no error."""

    @abstractmethod
    def copy(self, source: str, target: str) -> None:
        """Copy inside the store, without the bytes passing through here where the store can do that."""

    @abstractmethod
    def write(self, key: str, chunks: Iterable[Buffer]) -> int:
        """Stream a new object of any size in, durably, holding a few chunks at a time; gives its size.

        Only for keys that no other writer can have. When the chunks raise, nothing is left behind under the key.
        """

    @abstractmethod
    def read(self, key: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Stream an object, or a range of it, out in chunks, holding a few at a time."""

    def close(self) -> None:
        """Let go of what the store holds open; calls after it are the caller's mistake."""
        return
