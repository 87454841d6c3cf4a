"""Under which generation the query of a directory publishes: the newest one that names it, or one of its own.

A directory that a restore made begins from the checkpoint that it was laid down from. One of another query, or one
whose batches went back, belongs to another timeline and is refused unless that is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.claim import Begin, Reason, take_over
from holdfast.errors import ObjectMissing, OtherTimeline
from holdfast.manifest import Manifest
from holdfast.records import Claim, Owner, unseal
from holdfast.repository.pipeline import PipelineRecords
from holdfast.store.directory import Directory

__all__ = ["OWNER", "Join", "Refuse", "Running", "Standing", "TakeOver", "decide", "identify", "stand"]

OWNER = "_holdfast/owner.json"


@dataclass(frozen=True)
class Running:
    """The query of a directory: its id, the record of the restore that made the directory, and its newest batch."""

    url: str
    query_id: str
    owner: Owner | None
    last_committed: int

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
    """Claim a generation: at the newest checkpoint, at the one that the directory was restored from, or at nothing."""

    begin: str


@dataclass(frozen=True)
class Refuse:
    why: str


def identify(directory: Directory, query_id: str, last_committed: int) -> Running:
    """Who runs in a directory."""
    try:
        data, _ = directory.read(OWNER)
    except ObjectMissing:
        return Running(directory.url, query_id, None, last_committed)
    return Running(directory.url, query_id, unseal(OWNER, data, Owner), last_committed)


def decide(
    claims: Sequence[Claim], begun: bool, tip: Manifest | None, who: Running, pipeline_id: str
) -> Join | TakeOver | Refuse:
    """Whether to go on under the newest of these claims (oldest first), to claim, or to refuse.

    `begun` says whether the newest claim has a base; `tip` is the newest checkpoint that counts.
    """
    restored_here = who.owner is not None and who.owner.pipeline_id == pipeline_id
    if who.owner is not None and restored_here and who.owner.fork:
        return Refuse("it was forked from this pipeline, and goes on under a name of its own")
    if not claims:
        return TakeOver("restored" if restored_here else "nothing")
    newest = claims[-1]
    mine = [claim for claim in claims if claim.query_id == who.query_id and claim.owner == who.owner_token]
    if restored_here and not mine:
        return TakeOver("restored")
    if newest.query_id != who.query_id:
        if mine:
            return Refuse(f"generation {newest.generation} took the pipeline over from it")
        return Refuse(f"the pipeline's query is {newest.query_id or 'no Spark query'}, the directory's {who.query_id}")
    if newest not in mine and (restored_here or (newest.owner is not None and mine)):
        return Refuse(f"generation {newest.generation} runs in another directory, restored since")
    if tip is not None and tip.epoch > who.last_committed:
        return Refuse(f"its last batch is {who.last_committed}, and checkpoint {tip.at} holds epoch {tip.epoch}")
    return Join() if begun else TakeOver("newest")


def stand(
    records: PipelineRecords, who: Running, *, why: str, always_claim: bool = False, new_timeline: bool = False
) -> Standing:
    """Find or claim the generation of a directory's query. Raises OtherTimeline if it has none here."""
    pipeline_id = records.ensure_identity().pipeline_id
    tip = _tip(records)
    decision = _decide(records, tip, who, pipeline_id)
    if isinstance(decision, Refuse):
        if not new_timeline:
            raise OtherTimeline(who.url, records.name, decision.why)
        decision = TakeOver("nothing")
    if isinstance(decision, Join) and always_claim:
        decision = TakeOver("newest")
    if isinstance(decision, Join):
        return Standing(records.generations().top, tip)
    reason = Reason(why, who.query_id, who.url, who.owner_token)
    generation = take_over(records, reason, _beginning(records, decision.begin, who))
    begin = generation.begin
    return Standing(generation.number, records.manifest(begin.slot) if begin.slot else None)


def _tip(records: PipelineRecords) -> Manifest | None:
    newest = records.locate().newest
    return records.manifest(newest) if newest else None


def _decide(records: PipelineRecords, tip: Manifest | None, who: Running, pipeline_id: str) -> Join | TakeOver | Refuse:
    known = records.generations()
    claims = [records.claim(generation) for generation in sorted(known.claims)]
    base = known.bases.get(known.top)
    return decide(claims, base is not None and not base.void, tip, who, pipeline_id)


def _beginning(records: PipelineRecords, begin: str, who: Running) -> Callable[[], Begin]:
    def choose() -> Begin:
        if begin == "nothing":
            return Begin()
        if begin == "newest":
            tip = _tip(records)
            return Begin(tip.at, tip.epoch) if tip else Begin()
        owner = who.owner
        if owner is None or records.is_forgotten(owner.at):
            # What it was restored from was dropped since. The directory stands by itself, and so does its timeline.
            return Begin()
        return Begin(owner.at, owner.epoch)

    return choose
