"""What a sidecar has found out about each pipeline: its looks and its upkeep fill it, its judgement reads it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from holdfast.decide.alerts import Facts, Newest, UpkeepFacts, WayBack
from holdfast.sidecar.fleets import Member

__all__ = ["Known"]


@dataclass
class _Known:
    since_ms: int
    newest: Newest | None = None
    looked: bool = False
    unseen: str = ""
    broken: str = ""
    """The damage that the last look ran into."""
    ways_back: list[WayBack] | None = None
    upkeep: dict[str, UpkeepFacts] = field(default_factory=dict)


class Known:
    """Facts by pipeline. Safe from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pipelines: dict[str, _Known] = {}

    def saw(self, pipeline: str, newest: Newest | None, now_ms: int) -> None:
        """A look went well."""
        with self._lock:
            known = self._of(pipeline, now_ms)
            known.newest, known.looked, known.unseen, known.broken = newest, True, "", ""

    def could_not_see(self, pipeline: str, why: str, now_ms: int, *, is_damage: bool) -> None:
        """A look failed: what was known of the newest checkpoint stays, and grows older."""
        with self._lock:
            known = self._of(pipeline, now_ms)
            known.unseen = why
            if is_damage:
                known.broken = why

    def did(self, kind: str, pipeline: str, now_ms: int, error: str | None = None) -> int:
        """Upkeep was carried out, or failed; gives how often in a row it has."""
        with self._lock:
            known = self._of(pipeline, now_ms)
            failing = 0 if error is None else known.upkeep.get(kind, UpkeepFacts(0, "")).failing + 1
            known.upkeep[kind] = UpkeepFacts(failing, error or "")
            return failing

    def has_tried(self, kind: str, pipeline: str) -> bool:
        """Whether upkeep of a kind was carried out, or failed, since this sidecar began."""
        with self._lock:
            return pipeline in self._pipelines and kind in self._pipelines[pipeline].upkeep

    def can_go_back(self, pipeline: str, ways: list[WayBack], now_ms: int) -> None:
        with self._lock:
            self._of(pipeline, now_ms).ways_back = ways

    def facts(self, member: Member, damage: list[str], *, is_waiting: bool, first_seen_ms: int, now_ms: int) -> Facts:
        """All that is known of a pipeline; `damage` is what the last check found, and what upkeep ran into.

        With `is_waiting` something that looks for damage has not looked yet.
        """
        with self._lock:
            known = self._of(member.name, now_ms)
            found = [known.broken] * bool(known.broken) + damage
            has_looked = known.looked and not is_waiting
            return Facts(
                member.name,
                # That it never had a checkpoint is known only once somebody could look.
                first_seen_ms if known.looked else known.since_ms,
                newest=known.newest,
                looked=known.looked,
                unseen=known.unseen,
                capture=member.capture,
                damage=found if found or has_looked else None,
                ways_back=known.ways_back,
                upkeep=dict(known.upkeep),
            )

    def _of(self, pipeline: str, now_ms: int) -> _Known:
        return self._pipelines.setdefault(pipeline, _Known(now_ms))
