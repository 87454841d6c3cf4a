"""A store in S3, Google Cloud Storage or Azure, through obstore. Imported only when such a store is opened."""

from __future__ import annotations

import builtins
import contextlib
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import ObjectStore

from holdfast.errors import ObjectMissing, OutcomeUnknown, StoreError, StoreFailure
from holdfast.store.cloud_errors import range_is_past_the_end
from holdfast.store.cloud_requests import Requests
from holdfast.store.contract import CHUNK, Buffer, ObjectInfo, Store
from holdfast.store.keys import check_key, check_prefix
from holdfast.store.retry import Transient

__all__ = ["CloudStore"]

NEARBY = 256 * 1024
"""Ranges no further apart than this are fetched with one request: the bytes between cost less than another one."""

PARTS_AT_ONCE = 4


class CloudStore(Store):
    """Objects in a bucket or container. A raw store: it raises Transient, which a RetryingStore turns into patience.

    `client` makes one attempt per request. `streamer` is the same place with retries of its own, since the parts of a
    streamed upload can't be repeated from outside.
    """

    def __init__(self, url: str, client: ObjectStore, streamer: ObjectStore, delete_batch: int) -> None:
        self.url = url
        self._client = client
        self._streamer = streamer
        self._delete_batch = delete_batch
        self._call = Requests(url)

    def create(self, key: str, data: Buffer) -> bool:
        check_key(key)
        try:
            self._call("create", key, lambda: self._put_new(key, data))
        except _Taken:
            try:
                return self.get(key) == data
            except ObjectMissing:
                # Any conflict reads as "already exists": two writers at once, an object being deleted.
                raise Transient(f"{key} is said to exist, but is not there") from None
            except StoreError as error:
                raise OutcomeUnknown(self.url, key, error.message) from error
        return True

    def put(self, key: str, data: Buffer) -> None:
        check_key(key)
        self._call("put", key, lambda: obstore.put(self._client, key, data, use_multipart=False))

    def get(self, key: str) -> bytes:
        check_key(key)
        return self._call("get", key, lambda: bytes(obstore.get(self._client, key).bytes()))

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        check_key(key)
        try:
            return self._call("get", key, lambda: self._fetch(key, ranges))
        except _PastTheEnd:
            size = self._size(key)
            inside = [(min(offset, size), max(0, min(length, size - offset))) for offset, length in ranges]
            return self._call("get", key, lambda: self._fetch(key, inside))

    def folders(self, prefix: str) -> list[str]:
        check_prefix(prefix)
        listed = self._call("list", prefix, lambda: obstore.list_with_delimiter(self._client, prefix))
        return sorted(path.rstrip("/").rpartition("/")[2] for path in listed["common_prefixes"])

    def list(self, prefix: str, start_after: str = "") -> list[ObjectInfo]:
        check_prefix(prefix)
        offset = _start_before(prefix, start_after)

        def listed() -> Iterator[ObjectInfo]:
            for chunk in obstore.list(self._client, prefix, offset=offset, chunk_size=1000):
                for meta in chunk:
                    yield ObjectInfo(meta["path"], meta["size"])

        found = self._call("list", prefix, lambda: sorted(listed()))
        return [
            info
            for info in found
            if info.key > start_after and info.key.startswith(prefix) and not _is_marker(info, found)
        ]

    def delete(self, keys: Iterable[str]) -> None:
        rest = (check_key(key) for key in keys)
        while batch := [*islice(rest, self._delete_batch)]:
            try:
                self._call("delete", f"{len(batch)} objects", partial(obstore.delete, self._client, batch))
            except ObjectMissing:
                # Some stores stop at a key that is not there, and do not say which of the others they have removed.
                for key in batch:
                    self._delete_one(key)

    def copy(self, source: str, target: str) -> None:
        check_key(source)
        check_key(target)
        self._call("copy", source, lambda: obstore.copy(self._client, source, target))

    def write(self, key: str, chunks: Iterable[Buffer]) -> int:
        check_key(key)
        size = 0
        writer = self._call(
            "write",
            key,
            lambda: obstore.open_writer(self._streamer, key, buffer_size=CHUNK, max_concurrency=PARTS_AT_ONCE),
        )
        try:
            for chunk in chunks:
                self._call("write", key, partial(writer.write, chunk))
                size += len(chunk)
        except BaseException as error:
            # Leaving the writer's own `with` by an exception is how it is told to give the upload up.
            with contextlib.suppress(BaseError, OSError):
                writer.__exit__(type(error), error, error.__traceback__)
            raise
        try:
            self._call("write", key, writer.close)
        except (Transient, StoreFailure, ObjectMissing):
            # The reply to the last request may be lost, and its repetition then finds no upload to finish.
            if not self._holds(key, size):
                raise
        return size

    def read(self, key: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        left = self._size(key) - offset
        left = left if length is None else min(left, length)
        while left > 0 and (chunk := self.get_ranges(key, [(offset, min(left, CHUNK))])[0]):
            yield chunk
            offset += len(chunk)
            left -= len(chunk)

    def _put_new(self, key: str, data: Buffer) -> None:
        try:
            obstore.put(self._client, key, data, mode="create", use_multipart=False)
        except (AlreadyExistsError, PreconditionError) as error:
            raise _Taken from error

    def _fetch(self, key: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        spans = _join(ranges)
        if not spans:
            obstore.head(self._client, key)
            return [b"" for _ in ranges]
        starts, ends = zip(*spans, strict=True)
        # Joined here and not by obstore, which panics when one of several ranges lies past the end.
        try:
            parts = obstore.get_ranges(self._client, key, starts=starts, ends=ends, coalesce=0)
        except (BaseError, ValueError) as error:
            if range_is_past_the_end(error):
                raise _PastTheEnd from error
            raise
        fetched = [memoryview(part) for part in parts]

        def cut(offset: int, length: int) -> bytes:
            at = max(0, bisect_right(starts, offset) - 1)
            return bytes(fetched[at][offset - starts[at] :][:length])

        return [cut(offset, length) if length else b"" for offset, length in ranges]

    def _size(self, key: str) -> int:
        return self._call("head", key, lambda: obstore.head(self._client, key)["size"])

    def _holds(self, key: str, size: int) -> bool:
        try:
            return self._size(key) == size
        except ObjectMissing:
            return False

    def _delete_one(self, key: str) -> None:
        try:
            self._call("delete", key, lambda: obstore.delete(self._client, key))
        except ObjectMissing:
            return


class _Taken(Exception):
    """The store says that the key is taken."""


class _PastTheEnd(Exception):
    """A range begins where the object has already ended."""


BELOW_SLASH = re.compile(r"[\x20-.]")


def _start_before(prefix: str, start_after: str) -> str | None:
    """Where to have the server start so as not to miss a key greater than `start_after`; None is at the beginning.

    It only saves requests: what comes is filtered and sorted here, since not every server heeds it and not every one
    sorts. SeaweedFS goes by folder: it has `a/` before `a-b/`, and leaves out a folder that it is told to start after.
    So the start is cut before any character that sorts below "/", and moved a little further down.
    """
    if not start_after.startswith(prefix):
        return None
    start = BELOW_SLASH.split(start_after[len(prefix) :])[0].rstrip("0")  # below "0" there would be "/"
    last = start[-1:]
    if not (last.isascii() and last.isalnum()):
        return None
    return f"{prefix}{start[:-1]}{chr(ord(last) - 1)}~"


def _is_marker(info: ObjectInfo, found: Sequence[ObjectInfo]) -> bool:
    # Some writers leave an empty object for every folder. A key of ours is never also the folder of another.
    if info.size:
        return False
    inside = bisect_left(found, ObjectInfo(f"{info.key}/", 0))
    return inside < len(found) and found[inside].key.startswith(f"{info.key}/")


def _join(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The spans (start, end) to fetch for these ranges (offset, length): near ones together, empty ones not at all."""
    spans: list[tuple[int, int]] = []
    for start, end in sorted((offset, offset + length) for offset, length in ranges if length > 0):
        if spans and start - spans[-1][1] <= NEARBY:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        else:
            spans.append((start, end))
    return spans
