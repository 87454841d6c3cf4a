"""One upload: the bytes of a checkpoint on their way into the store, under names that nobody else will ever use.

Small artifacts gather in a pack, large ones go out at once as objects of their own, tiny ones stand in the manifest.
"""

from __future__ import annotations

import base64
import hashlib
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from holdfast.errors import DamagedRecord
from holdfast.layout import PipelineKeys
from holdfast.manifest import Artifact
from holdfast.repository.packs import PackBuilder
from holdfast.store.contract import CHUNK, Buffer, Store

__all__ = ["Limits", "Upload"]

MIB = 1024 * 1024
STREAM_ABOVE = 256 * MIB
"""Larger objects go out in parts: stores take no single write of any size."""


@dataclass(frozen=True)
class Limits:
    """Where artifacts go by size, and how much happens at once.

    At or under `inline` bytes a state stands in the manifest as base64, as long as all of them together stay under
    `inline_total`; from `single` bytes on it is an object of its own; between them it goes into a pack, which is
    closed at `pack` bytes. `concurrency` uploads run at a time.
    """

    inline: int = 2048
    inline_total: int = 64 * 1024
    single: int = 8 * MIB
    pack: int = 96 * MIB
    concurrency: int = 4


class Upload:
    """Takes bytes in and says where they will lie. Safe from several threads.

    `folder` is a key of `PipelineKeys.upload`. Nothing that it names may be used before `finish` has returned: only
    then is every byte durable. Several processes may share a folder, each with a `first` number of its own to count
    from.
    """

    def __init__(
        self,
        store: Store,
        keys: PipelineKeys,
        folder: str,
        limits: Limits,
        pool: ThreadPoolExecutor,
        *,
        first: int = 0,
    ) -> None:
        self._store = store
        self._limits = limits
        self._pool = pool
        self._prefix = folder
        self._relative = len(keys.prefix)
        self._pack = PackBuilder()
        self._packs = first
        self._singles = first
        self._inlined = 0
        self._running: list[Future[None]] = []
        self._slots = threading.Semaphore(limits.concurrency)
        self._lock = threading.Lock()
        self.objects: dict[str, int] = {}

    @property
    def prefix(self) -> str:
        """The upload's folder, relative to the pipeline's prefix."""
        return self._prefix[self._relative :]

    def add(self, data: Buffer, sha256: str, *, is_delta: bool = False, after: str | None = None) -> Artifact:
        """Take one artifact in. Large ones start on their way at once and hold the caller back at the limit.

        `sha256` must be of these very bytes. A mutable buffer is copied, unless it is large: leave a large one alone
        until `finish` has returned.
        """
        size = memoryview(data).nbytes
        if size >= self._limits.single:
            path = self._start_single(data, size)
            return Artifact(sha256=sha256, size_bytes=size, is_delta=is_delta, after=after, path=path)
        body = data if isinstance(data, bytes) else bytes(data)
        with self._lock:
            if size <= self._limits.inline and self._inlined + size <= self._limits.inline_total:
                self._inlined += size
                text = base64.b64encode(body).decode()
                return Artifact(sha256=sha256, size_bytes=size, is_delta=is_delta, after=after, inline=text)
            path, offset = self._into_pack(body, sha256)
        return Artifact(
            sha256=sha256, size_bytes=size, is_delta=is_delta, after=after, path=path, offset=offset, length=size
        )

    def add_stream(self, chunks: Iterable[Buffer], *, is_delta: bool = False, after: str | None = None) -> Artifact:
        """Take in an artifact larger than memory, as an object of its own; returns once it is written."""
        digest = hashlib.sha256()

        def hashed() -> Iterator[Buffer]:
            for chunk in chunks:
                digest.update(chunk)
                yield chunk

        with self._lock:
            key = self._next_single()
        size = self._store.write(key, hashed())
        path = key[self._relative :]
        with self._lock:
            self.objects[path] = size
        return Artifact(sha256=digest.hexdigest(), size_bytes=size, is_delta=is_delta, after=after, path=path)

    def adopt(self, objects: Mapping[str, int]) -> None:
        """Count objects of this upload that another process has sent."""
        with self._lock:
            self.objects.update(objects)

    def finish(self) -> dict[str, int]:
        """Send what is still gathered, wait for all of it, and give the objects with their sizes.

        Once a part of it has failed this raises every time: bytes that did not arrive must never be named.
        """
        with self._lock:
            self._close_pack()
            running = list(self._running)
        failures = [error for future in running if (error := future.exception())]
        if failures:
            raise failures[0]
        return dict(self.objects)

    def abandon(self) -> None:
        """Remove what was sent so far. Only while no manifest that names it can have been created."""
        with self._lock:
            self._pack = PackBuilder()
            running = list(self._running)
        for future in running:
            future.exception()
        above = self._prefix[: self._relative]
        self._store.delete([above + path for path in self.objects])

    def _next_single(self) -> str:
        self._singles += 1
        return f"{self._prefix}artifact-{self._singles - 1}"

    def _start_single(self, data: Buffer, size: int) -> str:
        self._slots.acquire()
        with self._lock:
            key = self._next_single()
            path = key[self._relative :]
            self.objects[path] = size
            self._send(key, [data])
        return path

    def _into_pack(self, body: bytes, sha256: str) -> tuple[str, int]:
        if self._pack.size + len(body) > self._limits.pack:
            self._close_pack()
        offset = self._pack.add(body, sha256)
        return f"{self.prefix}pack-{self._packs}", offset

    def _close_pack(self) -> None:
        if not len(self._pack):
            return
        key = f"{self._prefix}pack-{self._packs}"
        parts = self._pack.build()
        self.objects[key[self._relative :]] = sum(map(len, parts))
        self._pack = PackBuilder()
        self._packs += 1
        self._slots.acquire()
        self._send(key, parts)

    def _send(self, key: str, parts: Sequence[Buffer]) -> None:
        def run() -> None:
            try:
                if self._store.takes_parts or sum(memoryview(part).nbytes for part in parts) > STREAM_ABOVE:
                    self._store.write(key, _slices(parts))
                elif not self._store.create(key, parts[0] if len(parts) == 1 else b"".join(parts)):
                    raise DamagedRecord(key, "a name that belongs to one upload alone holds other bytes")
            finally:
                self._slots.release()

        try:
            self._running.append(self._pool.submit(run))
        except BaseException:
            # Nothing runs that would give the place back.
            self._slots.release()
            raise


def _slices(parts: Iterable[Buffer]) -> Iterator[Buffer]:
    for part in parts:
        view = memoryview(part).cast("B")
        for start in range(0, view.nbytes, CHUNK):
            yield view[start : start + CHUNK]
