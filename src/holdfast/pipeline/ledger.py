"""The ledger: each epoch's decision to commit, beside Spark's directory and in the repository.

Which of them count is `decide.start`'s to say. A record is created once; where both places hold it, it is the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from holdfast.epochs import EpochDecision
from holdfast.errors import DamagedRecord
from holdfast.records import seal, unseal
from holdfast.store import Store

__all__ = ["Ledger", "merged"]

_NAME = re.compile(r"(?P<g>\d{10})/(?P<epoch>\d{10})-(?P<attempt>\d{4})\.json")


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

    def read(self, after: int = -1) -> list[EpochDecision]:
        """All decisions on epochs after this one, whatever they are worth."""
        found = []
        for info in self._store.list(self._prefix):
            name = _NAME.fullmatch(info.key.removeprefix(self._prefix))
            if name and int(name["epoch"]) > after:
                found.append(unseal(info.key, self._store.get(info.key), EpochDecision))
        return found

    def remove(self, decisions: Iterable[EpochDecision]) -> None:
        self._store.delete([self._key(decision) for decision in decisions])

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
