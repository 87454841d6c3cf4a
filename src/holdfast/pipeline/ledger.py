"""The ledger: each epoch's decision to commit, beside Spark's directory and in the repository.

A decision stands alone (`<g>/<epoch>-<attempt>.json`) until it is joined with others into a segment
(`<g>/<first>-<last>.<token>.joined`), in the folder of the generation that joined them. Which of them count is
`decide.start`'s to say. Where several places hold a decision, it is the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from holdfast.decide.ledger import Entry, parse_entry
from holdfast.epochs import EpochDecision
from holdfast.errors import DamagedRecord, ObjectMissing
from holdfast.ids import new_token
from holdfast.records import Record, seal, unseal
from holdfast.store import Store

__all__ = ["Ledger", "merged"]

_LAST = re.compile(r"\d{10}-(\d{4}\.json|\d{10}\.[0-9a-z]+\.joined)")
LOOKS = 20
"""How often a ledger is read anew because decisions were joined meanwhile."""


class Segment(Record, frozen=True):
    """Decisions that were joined, of one generation or of those that it adopted."""

    kind = "segment"
    decisions: list[EpochDecision]


class Ledger:
    """Decisions in a folder of a store. Safe from several threads."""

    def __init__(self, store: Store, prefix: str = "") -> None:
        self._store = store
        self._prefix = prefix

    @property
    def url(self) -> str:
        return f"{self._store.url}/{self._prefix}".rstrip("/")

    def add(self, decision: EpochDecision) -> None:
        """Create the record of a decision. Raises DamagedRecord if another one stands at its place."""
        key = self._key(decision)
        if not self._store.create(key, seal(decision)):
            raise DamagedRecord(key, "another decision of this very attempt is there")

    def join(self, generation: int, decisions: Sequence[EpochDecision]) -> str:
        """Create a segment of some decisions, written by a generation, and give its key."""
        epochs = [decision.epoch for decision in decisions]
        token = new_token()
        key = f"{self._prefix}{generation:010}/{min(epochs):010}-{max(epochs):010}.{token}.joined"
        if not self._store.create(key, seal(Segment(token=token, decisions=list(decisions)))):
            raise DamagedRecord(key, "another segment is there")
        return key

    def entries(self) -> list[Entry]:
        """What lies there, without reading it."""
        found = (parse_entry(info.key, info.key.removeprefix(self._prefix)) for info in self._store.list(self._prefix))
        return [entry for entry in found if entry is not None]

    def read(self, after: int = -1) -> list[EpochDecision]:
        """All decisions on epochs after this one, whatever they are worth, each once."""
        for _ in range(LOOKS):
            try:
                several = [self._decisions(entry.key) for entry in self.entries() if entry.last > after]
            except ObjectMissing:
                continue  # It was joined with others since it was listed.
            return [decision for decision in merged(*several) if decision.epoch > after]
        raise DamagedRecord(self._prefix, "decisions vanished while they were read, over and over")

    def last_decided(self, after: int) -> EpochDecision | None:
        """The newest decision on an epoch after this one, as far as anybody can tell: for people, not for recovery.

        The folder of the ledger must be that of one generation. Costs one listing, and reads one record at most.
        """
        listed = self._store.list(self._prefix, f"{self._prefix}{after:010}")
        names = [info.key for info in listed if _LAST.fullmatch(info.key.removeprefix(self._prefix))]
        if not names:
            return None
        try:
            return max(self._decisions(names[-1]), key=lambda decision: decision.epoch)
        except ObjectMissing:
            return None  # It was joined with others since it was listed: the next look finds those.

    def remove(self, keys: Iterable[str]) -> None:
        self._store.delete(keys)

    def remove_alone(self, decisions: Iterable[EpochDecision]) -> None:
        """Take away single records, once they stand elsewhere."""
        self._store.delete([self._key(decision) for decision in decisions])

    def _decisions(self, key: str) -> list[EpochDecision]:
        data = self._store.get(key)
        return unseal(key, data, Segment).decisions if key.endswith(".joined") else [unseal(key, data, EpochDecision)]

    def _key(self, decision: EpochDecision) -> str:
        name = f"{decision.generation:010}/{decision.epoch:010}-{decision.attempt:04}.json"
        return f"{self._prefix}{name}"


def merged(*ledgers: Sequence[EpochDecision]) -> list[EpochDecision]:
    """The decisions of several places, each once. Raises DamagedRecord where two places do not agree."""
    found: dict[tuple[int, int, int], EpochDecision] = {}
    for decision in (decision for ledger in ledgers for decision in ledger):
        at = (decision.generation, decision.epoch, decision.attempt)
        known = found.setdefault(at, decision)
        if known.token != decision.token:
            raise DamagedRecord(f"ledger/{at[0]}/{at[1]}-{at[2]}", "two places hold different decisions")
    return list(found.values())
