"""What the sinks keep for those who go back: told to them from time to time, while a pipeline runs."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping

from holdfast.decide.way_back import oldest_way_back
from holdfast.epochs import Link, Target
from holdfast.errors import HoldfastError, ObjectMissing
from holdfast.handles import StoredPipeline
from holdfast.layout import Slot
from holdfast.pipeline.links import link_of_manifest
from holdfast.pipeline.takeover import targets_in
from holdfast.sinks.contract import Sink

__all__ = ["Upkeep", "WayBackLimited"]

EVERY = 20
"""After so many checkpoints it is looked again what may be let go of: each look is a few requests."""


class WayBackLimited(UserWarning):
    """A savepoint whose sinks may not keep the way back to it for as long as it is kept itself."""


class Upkeep:
    """Has the sinks of a run keep what savepoints and checkpoints need, and let go of the rest.

    `look` comes from whoever captures, `release` from whoever commits: what a sink changes, one thread changes. What
    fails is told by `error`, and done again the next time. `clear` is called with `look`, and takes away what older
    generations left in Spark's folder.
    """

    def __init__(
        self,
        stored: StoredPipeline,
        sinks: Mapping[str, Sink],
        way_back_ms: int | None = None,
        clear: Callable[[], None] = lambda: None,
    ) -> None:
        self.error: str | None = None
        self._stored = stored
        self._sinks = sinks
        self._way_back_ms = way_back_ms
        self._clear = clear
        self._looks = 0
        self._lock = threading.Lock()
        self._before: Link | None = None
        self._telling = threading.Lock()

    def look(self) -> None:
        """Find out what may be let go of; called with every checkpoint."""
        due, self._looks = self._looks % EVERY == 0, self._looks + 1
        if not due:
            return
        try:
            self.hold()
            before = self._oldest()
        except HoldfastError as error:
            self.error = str(error)
            return
        with self._lock:
            self._before = before
        try:
            self._clear()
        except HoldfastError as error:
            self.error = str(error)

    def release(self) -> None:
        """Let go of what was found to be needed no more; called between two epochs."""
        with self._lock:
            before, self._before = self._before, None
        if before is None:
            return
        try:
            for sink in self._sinks.values():
                sink.release(before)
            self.error = None
        except HoldfastError as error:
            self.error = str(error)

    def hold(self) -> None:
        """Have every sink keep the way back to the savepoints that there are, however they were made."""
        # Read and told as one: an older list that is told after a newer one would let go of the newest savepoint.
        with self._telling:
            known = {name: self._targets(savepoint.at) for name, savepoint in self._stored.savepoints().items()}
            for name, sink in self._sinks.items():
                sink.hold({savepoint: targets[name] for savepoint, targets in known.items() if name in targets})

    def warn(self) -> None:
        """Say what may take the way back away from a savepoint that was just made."""
        for name, sink in self._sinks.items():
            for caution in sink.cautions():
                warnings.warn(f"sink {name!r}: {caution}", WayBackLimited, stacklevel=3)

    def _targets(self, slot: Slot) -> dict[str, Target]:
        records = self._stored.records
        try:
            return targets_in(records.manifest(slot))
        except ObjectMissing:
            # A name whose checkpoint is lost, and not pruned, is no reason to let go of anything.
            if records.is_forgotten(slot):
                return {}
            raise

    def _oldest(self) -> Link | None:
        records = self._stored.records
        slot = oldest_way_back(
            records.world(),
            lambda each: records.head(each).epoch,
            lambda each: records.head(each).timestamp_ms,
            self._way_back_ms,
        )
        return link_of_manifest(records.manifest(slot)) if slot else None
