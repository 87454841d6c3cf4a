"""Under which generation the query of a directory publishes: the newest one that names it, or one of its own.

A directory that a restore made begins from the checkpoint that it was laid down from. One of another query belongs to
another timeline and is refused unless that is asked for. Looking changes nothing; only `stand` claims.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from holdfast.claim import Begin, Reason, take_over
from holdfast.decide.timeline import World, current
from holdfast.errors import MissingRecords, NotActivated, ObjectMissing, OtherTimeline
from holdfast.manifest import Manifest
from holdfast.records import Base, Claim, Owner, unseal
from holdfast.repository.pipeline import Generations, PipelineRecords
from holdfast.store.directory import Directory

__all__ = [
    "OWNER",
    "Join",
    "Refuse",
    "Running",
    "Standing",
    "Survey",
    "TakeOver",
    "decide",
    "identify",
    "stand",
    "survey",
]

OWNER = "_holdfast/owner.json"


@dataclass(frozen=True)
class Running:
    """The query of a directory: its id, and the record of the restore that made the directory, if one did."""

    url: str
    query_id: str
    owner: Owner | None = None

    @property
    def owner_token(self) -> str | None:
        return self.owner.token if self.owner else None


class Standing(NamedTuple):
    """The generation to publish under and the newest checkpoint of its timeline."""

    generation: int
    tip: Manifest | None


@dataclass(frozen=True)
class Join:
    """Publish under the newest generation."""


@dataclass(frozen=True)
class TakeOver:
    """Claim a generation: at the newest checkpoint, at the one that the directory was restored from, or at nothing.

    With `anew` it begins at nothing whatever there is.
    """

    begin: Literal["newest", "restored", "nothing"]
    anew: bool = False


@dataclass(frozen=True)
class Refuse:
    why: str


Decision = Join | TakeOver | Refuse


class Survey(NamedTuple):
    """What is to be done, and the checkpoint that the next one then follows."""

    decision: Decision
    generation: int
    tip: Manifest | None


def identify(directory: Directory, query_id: str) -> Running:
    """Who runs in a directory."""
    try:
        data, _ = directory.read(OWNER)
    except ObjectMissing:
        return Running(directory.url, query_id)
    return Running(directory.url, query_id, unseal(OWNER, data, Owner))


def decide(claims: Sequence[Claim], bases: Mapping[int, Base], who: Running, pipeline_id: str) -> Decision:
    """Whether to go on under the newest of these claims (oldest first), to claim, or to refuse.

    Only claims that have begun say whose the pipeline is. One that has not may never do so: it is claimed over.
    """
    restored_here = who.owner is not None and who.owner.pipeline_id == pipeline_id
    if who.owner is not None and restored_here and who.owner.fork:
        return Refuse("it was forked from this pipeline, and goes on under a name of its own")
    begun = [claim for claim in claims if claim.generation in bases and not bases[claim.generation].void]
    mine = [claim for claim in begun if claim.query_id == who.query_id and claim.owner == who.owner_token]
    if restored_here and not mine:
        return TakeOver("restored")
    if not begun:
        return TakeOver("nothing")
    newest = begun[-1]
    if newest.query_id != who.query_id and mine:
        return Refuse(f"generation {newest.generation} took the pipeline over from it")
    if newest.query_id != who.query_id:
        its = newest.query_id or "no Spark query"
        return Refuse(f"the pipeline's query is {its}, the directory's {who.query_id}")
    if newest not in mine and (restored_here or (newest.owner is not None and mine)):
        return Refuse(f"generation {newest.generation} runs in another directory, restored since")
    return Join() if newest == claims[-1] else TakeOver("newest")


def survey(records: PipelineRecords, who: Running) -> Survey:
    """What the records say of a directory's query, read-only.

    Raises MissingRecords if a newer checkpoint is known and gone, NotActivated if the pipeline is a copy here.
    """
    if not records.exists():
        return Survey(TakeOver("nothing"), -1, None)
    while True:
        known, located = records.generations(), records.locate()
        # A take-over between the two looks would pair a generation with a checkpoint of another timeline.
        if located.generation == current(World(known.claims, known.bases)):
            break
    if located.lost is not None and (located.newest is None or located.lost > located.newest):
        raise MissingRecords(records.keys.prefix, f"the checkpoint {located.lost}, which other records name")
    if not records.newest_is_local(known):
        raise NotActivated(records.name)
    decision = _decide(records, known, who)
    if isinstance(decision, TakeOver) and decision.begin != "newest":
        begin = _begin(records, decision, who)
        return Survey(decision, known.top, records.manifest(begin.slot) if begin.slot else None)
    return Survey(decision, known.top, records.manifest(located.newest) if located.newest else None)


def stand(records: PipelineRecords, who: Running, decision: TakeOver, why: str) -> Standing:
    """Claim a generation for a directory's query.

    Raises OtherTimeline if another query got hold of the pipeline since the survey, Fenced if a later claim came
    before this one had begun.
    """
    records.ensure_identity()
    reason = Reason(why, who.query_id, who.url, who.owner_token)
    generation = take_over(records, reason, _choice(records, decision, who))
    slot = generation.begin.slot
    return Standing(generation.number, records.manifest(slot) if slot else None)


def _choice(records: PipelineRecords, surveyed: TakeOver, who: Running) -> Callable[[], Begin]:
    """Decide once more when the claim stands: what was begun and published since the survey is never left behind."""

    def choose() -> Begin:
        if surveyed.anew:
            return Begin()
        known = records.generations()
        begun = {generation: base for generation, base in known.bases.items() if not base.void}
        decision = _decide(records, Generations(frozenset(begun), begun), who)
        if isinstance(decision, Refuse):
            raise OtherTimeline(who.url, records.name, decision.why)
        return _begin(records, decision, who)

    return choose


def _decide(records: PipelineRecords, known: Generations, who: Running) -> Decision:
    claims = [records.claim(generation) for generation in sorted(known.claims)]
    return decide(claims, known.bases, who, records.identity().pipeline_id)


def _begin(records: PipelineRecords, decision: Join | TakeOver, who: Running) -> Begin:
    if isinstance(decision, Join) or decision.begin == "newest":
        newest = records.locate().newest
        return Begin(newest, records.head(newest).epoch) if newest else Begin()
    owner = who.owner
    if decision.begin == "nothing" or owner is None or records.is_forgotten(owner.at):
        # What it was restored from was dropped since: the directory stands by itself, and so does its timeline.
        return Begin()
    return Begin(owner.at, owner.epoch)
