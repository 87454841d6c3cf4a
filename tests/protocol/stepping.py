"""Real code, one request at a time: actors run in threads and stop at every operation of their store.

A schedule says who goes on and how far. A crash is an actor that is never let go on; a late create is one whose reply
is lost and which lands when the schedule says.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from holdfast.errors import OutcomeUnknown
from holdfast.store import Buffer
from holdfast.store.memory import MemoryStore
from holdfast.testing.faults import Around, Crash

FOREVER = 1 << 60

T = TypeVar("T")


class Gate:
    """Lets one actor's operations through, up to a number."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._allowed = 0
        self._begun = 0
        self._done = 0
        self._waiting = 0
        self._crashed = False
        self.finished = False

    def enter(self) -> int:
        with self._condition:
            mine = self._begun
            self._begun += 1
            self._waiting += 1
            self._condition.notify_all()
            while mine >= self._allowed and not self._crashed:
                self._condition.wait()
            self._waiting -= 1
            if self._crashed:
                raise Crash
            return mine

    def leave(self) -> None:
        with self._condition:
            self._done += 1
            self._condition.notify_all()

    def finish(self) -> None:
        with self._condition:
            self.finished = True
            self._condition.notify_all()

    def let(self, upto: int) -> None:
        """Let operations with a number below `upto` through, and wait until the actor stands still or is finished."""
        with self._condition:
            self._allowed = max(self._allowed, upto)
            self._condition.notify_all()
            still = lambda: self.finished or (self._waiting > 0 and self._done >= self._allowed)  # noqa: E731
            if not self._condition.wait_for(still, timeout=60):
                raise TimeoutError(f"an actor hangs: {self._begun} begun, {self._done} done, {self._waiting} waiting")

    def crash(self) -> None:
        with self._condition:
            self._crashed = True
            self._condition.notify_all()

    @property
    def done(self) -> int:
        return self._done


class SteppingStore(Around):
    """One actor's view of a shared store, every operation of it through the actor's gate."""

    def __init__(self, inner: MemoryStore, gate: Gate, late_at: int | None = None) -> None:
        super().__init__(inner)
        self._gate = gate
        self._late_at = late_at
        self.late: list[tuple[str, bytes]] = []
        self.trace: list[str] = []

    def _around(self, verb: str, act: Callable[[], T]) -> T:
        self._gate.enter()
        try:
            self.trace.append(verb)
            return act()
        finally:
            self._gate.leave()

    def land(self) -> None:
        """What was on its way arrives now, if its key is still free."""
        for key, data in self.late:
            self.inner.create(key, data)
        self.late.clear()

    def create(self, key: str, data: Buffer) -> bool:
        number = self._gate.enter()
        try:
            self.trace.append(f"create {key}")
            if number == self._late_at:
                self.late.append((key, bytes(data)))
                raise OutcomeUnknown(self.url, key, "the reply was lost")
            return self.inner.create(key, data)
        finally:
            self._gate.leave()

    def delete(self, keys: Iterable[str]) -> None:
        # One request each: a killed bulk delete can leave any part of it.
        for key in list(keys):
            self._around(f"delete {key}", functools.partial(self.inner.delete, [key]))

    def write(self, key: str, chunks: Iterable[Buffer]) -> int:
        data = b"".join(bytes(chunk) for chunk in chunks)
        return self._around(f"write {key}", lambda: self.inner.write(key, [data]))

    def read(self, key: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        return iter(self._around(f"read {key}", lambda: list(self.inner.read(key, offset, length))))


class Actor:
    """A piece of real code on a thread of its own, held at its gate."""

    def __init__(self, name: str, act: Callable[[SteppingStore], None], inner: MemoryStore, late_at: int | None = None):
        self.name = name
        self.gate = Gate()
        self.store = SteppingStore(inner, self.gate, late_at)
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(act,), name=name, daemon=True)
        self._thread.start()

    def _run(self, act: Callable[[SteppingStore], None]) -> None:
        try:
            act(self.store)
        except BaseException as error:  # noqa: BLE001 - a crash is one, and the schedule wants to know of all
            self.error = error
        finally:
            self.gate.finish()

    @property
    def finished(self) -> bool:
        return self.gate.finished

    def step(self, count: int = 1) -> None:
        self.gate.let(self.gate.done + count)

    def finish(self) -> None:
        self.gate.let(FOREVER)
        self._thread.join(60)

    def crash(self) -> None:
        self.gate.crash()
        self._thread.join(60)
