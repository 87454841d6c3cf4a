"""A store around another one, in which objects and names are encrypted: the protocol runs on it unchanged."""

from __future__ import annotations

import builtins
import contextlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence

from holdfast.encryption.envelope import (
    FRAME,
    SEALED,
    BrokenEnvelope,
    Opening,
    Stretch,
    enclose,
    enclosed,
    opened,
    plain_size,
)
from holdfast.encryption.names import HiddenNames
from holdfast.encryption.ring import Ring
from holdfast.errors import DamagedRecord, ObjectMissing, OutcomeUnknown, StoreError
from holdfast.layout import REPOSITORY, RINGS
from holdfast.store.contract import Buffer, ObjectInfo, Store

__all__ = ["EncryptedStore"]


class EncryptedStore(Store):
    """Keys, sizes and bytes are plain on this side and encrypted on the other; only the root and its keys stay as is.

    What does not open raises DamagedRecord: changed, cut short, or written under another name or in another repository.
    `reread` gives the repository's keys as they stand now, for an object that was encrypted after a rotation.
    """

    def __init__(self, store: Store, ring: Ring, reread: Callable[[], Ring] | None = None) -> None:
        self.url = store.url
        self.takes_parts = store.takes_parts
        self.can_vanish = store.can_vanish
        self.inner = store
        self._ring = ring
        self._reread = reread
        self._names = HiddenNames(ring)

    def create(self, key: str, data: Buffer) -> bool:
        if _stays_plain(key):
            return self.inner.create(key, data)
        with self._naming(key):
            hidden = self._names.hide(key)
            while not self.inner.create(hidden, enclose(self._ring, key, data)):
                # No two envelopes are alike: what is there may carry the same bytes all the same.
                try:
                    held = self.inner.get(hidden)
                except ObjectMissing:
                    continue  # deleted since
                except StoreError as error:
                    raise OutcomeUnknown(self.url, key, error.message) from error
                return self._carries(key, held, data) and self.inner.create(hidden, held)
        return True

    def put(self, key: str, data: Buffer) -> None:
        self.inner.put(self._names.hide(key), data if _stays_plain(key) else enclose(self._ring, key, data))

    def get(self, key: str) -> bytes:
        with self._naming(key):
            data = self.inner.get(self._names.hide(key))
        return data if _stays_plain(key) else self._opened(key, data)

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        if _stays_plain(key):
            return self.inner.get_ranges(key, ranges)
        spans = _spans(ranges)
        asked = [(first * SEALED, (end - first) * SEALED) for first, end in spans]
        with self._naming(key):
            fetched = self.inner.get_ranges(self._names.hide(key), asked)

        opening = Opening(self._ring_with, key)
        starts = [first * FRAME for first, _ in spans]
        with _damage(key):
            stretches = [
                Stretch(opening, first, data, last=None if len(data) == length else True)
                for (first, _), (_, length), data in zip(spans, asked, fetched, strict=True)
            ]
            return [
                stretches[bisect_right(starts, offset) - 1].cut(offset, length) if length > 0 else b""
                for offset, length in ranges
            ]

    def folders(self, prefix: str) -> builtins.list[str]:
        hidden = self._names.hide_prefix(prefix)
        shown = (self._names.show(f"{hidden}{name}/") for name in self.inner.folders(hidden))
        return sorted(key.removeprefix(prefix).rstrip("/") for key in shown if key is not None)

    def list(self, prefix: str, start_after: str = "") -> builtins.list[ObjectInfo]:
        hidden = self._names.hide_prefix(prefix)
        after = start_after.removeprefix(prefix)
        # Elsewhere the store's order is not ours, and where to start is not known there.
        start = f"{hidden}{after}" if self._names.keeps_order(prefix) and after != start_after else ""
        shown = ((self._names.show(info.key), info.size) for info in self.inner.list(hidden, start))
        return sorted(
            ObjectInfo(key, size if _stays_plain(key) else plain_size(size))
            for key, size in shown
            if key is not None and key > start_after
        )

    def delete(self, keys: Iterable[str]) -> None:
        self.inner.delete(self._names.hide(key) for key in keys)

    def copy(self, source: str, target: str) -> None:
        try:
            self.put(target, self.get(source))
        except DamagedRecord:
            # It is set aside as it is: under its new name it will not open either.
            self.inner.copy(self._names.hide(source), self._names.hide(target))

    def write(self, key: str, chunks: Iterable[Buffer]) -> int:
        if _stays_plain(key):
            return self.inner.write(key, chunks)
        size = 0

        def counted() -> Iterator[Buffer]:
            nonlocal size
            for chunk in chunks:
                size += len(chunk)
                yield chunk

        self.inner.write(self._names.hide(key), enclosed(self._ring, key, counted()))
        return size

    def read(self, key: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        if _stays_plain(key):
            yield from self.inner.read(key, offset, length)
            return
        [(first, end)] = _spans([(offset, 1 if length is None else max(1, length))])
        asked = None if length is None else (end - first) * SEALED
        skipped, left = offset - first * FRAME, length
        with self._naming(key):
            for data in self._frames(key, first, self.inner.read(self._names.hide(key), first * SEALED, asked), asked):
                piece = data[skipped:] if left is None else data[skipped : skipped + left]
                skipped = max(0, skipped - len(data))
                left = None if left is None else left - len(piece)
                if piece:
                    yield piece

    def close(self) -> None:
        self.inner.close()

    def _frames(self, key: str, first: int, chunks: Iterable[bytes], asked: int | None) -> Iterator[bytes]:
        """What the frames of a stream carry, from one of them on."""
        with _damage(key):
            yield from opened(Opening(self._ring_with, key), first, chunks, asked)

    def _carries(self, key: str, held: bytes, data: Buffer) -> bool:
        try:
            return self._opened(key, held) == data
        except DamagedRecord:
            return False

    def _opened(self, key: str, data: bytes) -> bytes:
        with _damage(key):
            return Stretch(Opening(self._ring_with, key), 0, data, last=True).whole()

    def _ring_with(self, number: int) -> Ring:
        """The keys that are known; if this one is not among them, those that stand now."""
        if number not in self._ring.keys and self._reread is not None:
            self._ring = self._reread()
        return self._ring

    @contextlib.contextmanager
    def _naming(self, key: str) -> Iterator[None]:
        """Errors name objects as they are called here."""
        try:
            yield
        except ObjectMissing:
            raise ObjectMissing(self.url, key) from None
        except OutcomeUnknown as error:
            raise OutcomeUnknown(self.url, key, error.why) from error


@contextlib.contextmanager
def _damage(key: str) -> Iterator[None]:
    try:
        yield
    except BrokenEnvelope as broken:
        raise DamagedRecord(key, str(broken)) from None


def _stays_plain(key: str) -> bool:
    return key == REPOSITORY or key.startswith(RINGS)


def _spans(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Which frames, first and one past the last, carry these ranges (offset, length); ascending, and none twice."""
    spans: list[tuple[int, int]] = []
    needed = sorted((o // FRAME, (o + length - 1) // FRAME + 1) for o, length in ranges if length > 0)
    for first, end in needed:
        if spans and first <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        else:
            spans.append((first, end))
    return spans
