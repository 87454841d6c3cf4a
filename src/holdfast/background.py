"""One thread that finishes checkpoints in the order in which they were captured, with a bound on how many wait."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from holdfast.errors import BadValue

__all__ = ["Background"]

T = TypeVar("T")


class Background:
    """Runs jobs one after the other. At most `max_pending` are unfinished at any time, over all streams.

    Room is reserved before the state is captured: so no more than that many captured states are ever held. Who has
    reserved must submit or release. A job deals with its own failure; here it only ends up in the future.
    """

    def __init__(self, max_pending: int) -> None:
        if max_pending < 1:
            raise BadValue("max_pending", f"must be at least 1, not {max_pending}")
        self._max_pending = max_pending
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="holdfast-background")
        self._changed = threading.Condition()
        self._unfinished: Counter[str] = Counter()

    def pending(self, stream: str | None = None) -> int:
        """How many are reserved or not finished yet."""
        with self._changed:
            return self._count(stream)

    def reserve(self, stream: str) -> bool:
        """Wait for room and take it; says whether it had to wait."""
        with self._changed:
            waited = not self._has_room()
            self._changed.wait_for(self._has_room)
            self._unfinished[stream] += 1
        return waited

    def release(self, stream: str) -> None:
        """Give back room that is not needed after all."""
        with self._changed:
            self._unfinished[stream] -= 1
            self._changed.notify_all()

    def submit(self, stream: str, job: Callable[[], T]) -> Future[T]:
        """Run a job in room that was reserved; the room is free again once the job has ended, well or badly."""

        def run() -> T:
            try:
                return job()
            finally:
                self.release(stream)

        try:
            return self._pool.submit(run)
        except RuntimeError:
            self.release(stream)
            raise

    def drain(self, stream: str | None = None, timeout: float | None = None) -> None:
        """Return once nothing is unfinished. Raises TimeoutError; what is under way then goes on."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._count(stream) == 0, timeout):
                raise TimeoutError(f"{self._count(stream)} checkpoints were not durable after {timeout} s")

    def close(self) -> None:
        """Finish what was submitted and end the thread."""
        self._pool.shutdown(wait=True)

    def _has_room(self) -> bool:
        return self._unfinished.total() < self._max_pending

    def _count(self, stream: str | None) -> int:
        return self._unfinished.total() if stream is None else self._unfinished[stream]
