"""The query that is about to run against the one that made the state: compared before anything is claimed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import SparkSession

from holdfast.decide.compatibility import Finding, judge, refused
from holdfast.decide.consent import check_names
from holdfast.decide.fingerprint import Fingerprint
from holdfast.decide.timeline import World, lineage
from holdfast.errors import ObjectMissing, QueryChanged
from holdfast.ids import new_token
from holdfast.pipeline.home import Home
from holdfast.pipeline.takeover import Found
from holdfast.records import Record, seal, unseal
from holdfast.spark.explain import kept

__all__ = ["QueryGuard"]

SINK = "sink "


class QueryRecord(Record, frozen=True):
    """The query that a generation runs in its directory: what a checkpoint says of it may be older."""

    kind = "query"
    generation: int
    fingerprint: dict[str, str]


class QueryGuard:
    """Refuses to go on from the state of another query, but for the changes that are accepted by name.

    Raises BadValue for a name that no change has.
    """

    def __init__(
        self, pipeline: str, spark: SparkSession, home: Home, mine: Fingerprint, accept: Sequence[str] = ()
    ) -> None:
        check_names(accept)
        self._pipeline = pipeline
        self._spark = spark
        self._home = home
        self.mine = mine
        self._accept = tuple(accept)
        self._session: dict[str, str | None] = {}

    def over(self, find: Callable[[World], Found]) -> Callable[[World], Found]:
        """The same search, which raises QueryChanged if what it finds must not be gone on from."""

        def guarded(world: World) -> Found:
            found = find(world)
            self.require(world, found)
            return found

        return guarded

    def require(self, world: World, found: Found) -> None:
        changes = refused(self.compare(world, found) or (), self._accept)
        if changes:
            names = sorted({change.name for change in changes})
            told = [f"{change} ({change.verdict})" for change in changes]
            raise QueryChanged(self._pipeline, str(found.state.at), told, names)

    def compare(self, world: World, found: Found) -> list[Finding] | None:
        """Every change from the query that made this state, and every setting that the state keeps.

        None if it is not known which query that was.
        """
        if found.state.kind == "nothing":
            return []
        before = self._before(world, found)
        if not before:
            return None
        # A query keeps them from its first batch on: those of a directory are those of its checkpoints.
        pinned = kept(found.follows) if found.follows else {}
        # Asked once: each costs a call into Java, and they do not change while a pipeline is taken over.
        self._session.update({n: self._spark.conf.get(n, None) for n in pinned if n not in self._session})
        session = {name: value for name in pinned if (value := self._session[name]) is not None}
        return judge(before, self.mine.parts, pinned, session)

    def note(self, generation: int) -> None:
        """Say which query a generation runs, before it runs: a crash may come before its first checkpoint."""
        record = QueryRecord(token=new_token(), generation=generation, fingerprint=dict(self.mine.parts))
        self._home.address("queries").store().create(_key(generation), seal(record))

    def _before(self, world: World, found: Found) -> dict[str, str]:
        if found.origin:
            # Its sinks are its own, whatever they were there.
            own = {part: text for part, text in self.mine.parts.items() if part.startswith(SINK)}
            there = {part: text for part, text in found.query.items() if not part.startswith(SINK)}
            return there | own if there else {}
        noted = self._noted(world) if found.state.kind == "warm" else None
        return noted or (found.follows.fingerprint if found.follows else {})

    def _noted(self, world: World) -> dict[str, str] | None:
        store = self._home.address("queries").store()
        for generation, _, _ in lineage(world):
            try:
                return unseal(_key(generation), store.get(_key(generation)), QueryRecord).fingerprint
            except ObjectMissing:
                continue
        return None


def _key(generation: int) -> str:
    return f"{generation:010}.json"
