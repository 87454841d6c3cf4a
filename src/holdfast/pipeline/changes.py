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
from holdfast.layout import Slot
from holdfast.pipeline.home import Home, new_directory
from holdfast.pipeline.takeover import Found
from holdfast.records import Record, seal, unseal
from holdfast.repository.pipeline import PipelineRecords
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
        self,
        records: PipelineRecords,
        spark: SparkSession,
        home: Home,
        mine: Fingerprint,
        accept: Sequence[str] = (),
    ) -> None:
        check_names(accept)
        self._records = records
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
            raise QueryChanged(self._records.name, str(found.state.at), told, names)

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
        """The query that made what lies in the directory that the timeline ran in last; None if that is not known.

        Of those that ran in that very directory the last counts. Who has noted nothing has run nothing: it was a
        rewind, or was killed before. If none has, the directory is as it was laid, and the query is its checkpoint's.
        What a generation ran in another directory, or in another folder, says nothing of this one.
        """
        directory: str | None = None
        for generation, _, _ in lineage(world):
            ran_in = self._home.runs_in(generation)
            directory = directory or ran_in
            if ran_in is None or ran_in != directory:
                continue
            noted = self._noted_by(generation)
            if noted is not None:
                return noted
            if directory == new_directory(generation):
                base = world.bases.get(generation)
                return self._laid_from(base.slot if base else None)
        return None

    def _noted_by(self, generation: int) -> dict[str, str] | None:
        try:
            record = self._home.address("queries").store().get(_key(generation))
        except ObjectMissing:
            return None
        return unseal(_key(generation), record, QueryRecord).fingerprint

    def _laid_from(self, slot: Slot | None) -> dict[str, str] | None:
        """The query of a checkpoint; None for one that was pruned since, as it may once a newer one stands there."""
        try:
            return self._records.manifest(slot).fingerprint if slot is not None else None
        except ObjectMissing:
            return None


def _key(generation: int) -> str:
    return f"{generation:010}.json"
