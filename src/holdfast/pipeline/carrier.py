"""Decisions on their way into the repository: in the background as they are made, and joined with each capture.

Beside Spark's directory a decision is as durable as Spark's own logs; here it outlives the directory. No sink waits
for it: what has not arrived when the directory is lost is taken back in the sinks, and run anew.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from holdfast.epochs import EpochDecision
from holdfast.errors import HoldfastError
from holdfast.pipeline.ledger import Ledger

__all__ = ["Carrier"]

EVERY_SECONDS = 5.0
"""Fast epochs go together: each object costs a request."""
TRIM_EVERY = 64


class Carrier:
    """Brings the decisions of one generation into a ledger. `note` and `join` from any thread; close it when done.

    `local` is where they stand beside Spark's directory; `trim` is called now and then to keep both short. A failure in
    the background is told by the next `join`, which tries all of it again.
    """

    def __init__(self, generation: int, ledger: Ledger, local: Ledger, trim: Callable[[], None]) -> None:
        self._trim = trim
        self._joins = 0
        self._ledger = ledger
        self._local = local
        self._generation = generation
        self._noted: list[EpochDecision] = []
        """All since the last join, in order."""
        self._sent = 0
        """How many of them have arrived, in small segments."""
        self._small: list[str] = []
        self._wake = threading.Condition()
        self._writing = threading.Lock()
        self._ends = False
        self._thread = threading.Thread(target=self._follow, name="holdfast-ledger", daemon=True)
        self._thread.start()

    def note(self, decision: EpochDecision) -> None:
        with self._wake:
            self._noted.append(decision)
            self._wake.notify()

    def join(self) -> None:
        """Have all decisions that were noted in one segment: once this returns they outlive the directory.

        Where they stood before they are taken away.
        """
        with self._writing:
            with self._wake:
                joined, small = list(self._noted), list(self._small)
            if not joined:
                return
            if len(small) != 1 or self._sent < len(joined):
                self._ledger.join(self._generation, joined)
                self._ledger.remove(small)
            self._ledger.remove_alone(joined)
            self._local.remove_alone(joined)
            with self._wake:
                del self._noted[: len(joined)]
                self._sent = 0
                self._small.clear()
            if self._joins % TRIM_EVERY == 0:
                self._trim()
            self._joins += 1

    def close(self) -> None:
        """End, with what is there sent as far as it goes: the directory holds it as well."""
        with self._wake:
            self._ends = True
            self._wake.notify()
        self._thread.join()

    def _follow(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._ends or self._sent < len(self._noted))
                ends = self._ends
            # If the store is away, the next capture sends it all, and tells of it if it can't.
            with contextlib.suppress(HoldfastError):
                self._send()
            if ends:
                return
            with self._wake:
                self._wake.wait_for(lambda: self._ends, timeout=EVERY_SECONDS)

    def _send(self) -> None:
        with self._writing:
            with self._wake:
                new = self._noted[self._sent :]
            if new:
                key = self._ledger.join(self._generation, new)
                with self._wake:
                    self._sent += len(new)
                    self._small.append(key)
