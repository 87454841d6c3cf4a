"""Taking a pipeline over: the claim, the void, the fence, the choice, the pin, the base. The order is the protocol.

Until the base stands nothing is published, rolled back or run; once it does, whatever a lower generation still writes
counts for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.errors import Fenced, MissingRecords, NotActivated
from holdfast.ids import new_token, now_ms, whoami
from holdfast.layout import Slot
from holdfast.records import Base, Claim, Pin
from holdfast.repository.pipeline import PipelineRecords

CLAIMS = 1000
"""How often one take-over claims at most: a sink may be that many generations ahead of a copy."""

__all__ = ["Begin", "Generation", "GenerationInfo", "Reason", "take_over"]


@dataclass(frozen=True)
class Reason:
    """Who claims and what for; the rest names the Spark query that will publish, as in `records.Claim`."""

    why: str
    query_id: str | None = None
    directory: str | None = None
    owner: str | None = None


@dataclass(frozen=True)
class Begin:
    """Where a generation is to begin: at a checkpoint and an epoch, or (slot None) at nothing.

    `follows` is the generation whose decisions on epochs after the checkpoint it adopts; None: those of the
    checkpoint's own, if any. `origin` says where the state comes from, if not from this pipeline.
    """

    slot: Slot | None = None
    adopted_epoch: int | None = None
    follows: int | None = None
    origin: str = ""


@dataclass(frozen=True)
class Generation:
    """A generation that has begun: its number, the token of its claim, and where it began."""

    number: int
    token: str
    begin: Begin


class GenerationInfo:
    """One generation as people ask for it: who claimed it, what for, and where it began."""

    def __init__(self, claim: Claim, base: Base | None) -> None:
        self.claim = claim
        self.base = base

    @property
    def number(self) -> int:
        return self.claim.generation

    @property
    def began(self) -> str:
        """`at G-N`, `fresh`, `void`, or `not yet`."""
        if self.base is None:
            return "not yet"
        if self.base.void:
            return "void"
        return f"at {self.base.slot}" if self.base.slot else "fresh"

    def __repr__(self) -> str:
        return f"<generation {self.number}, {self.claim.why}, began {self.began}>"


def take_over(
    records: PipelineRecords,
    reason: Reason,
    choose: Callable[[], Begin],
    fence: Callable[[int, str], None] | None = None,
    activate: bool = False,
) -> Generation:
    """Claim the pipeline and begin a generation where `choose` says.

    `choose` is called only after the claim stands and the sinks are fenced, so what it reads is final; it may raise,
    which leaves a claim without a base that the next one voids. `fence(generation, token)` raises every sink to this
    generation. Raises Fenced if a later claim voided this one, NotActivated on a copy unless `activate`; with it,
    claims go on until the sinks accept one.
    """
    for again in range(CLAIMS):
        number, token = _claim(records, reason, activate)
        _void_lower(records, number)
        try:
            if fence is not None:
                fence(number, token)
        except Fenced:
            # The old primary counted on without us: an activation claims until it is above what the sinks have seen.
            if not activate or again == CLAIMS - 1:
                raise
            continue
        begin = choose()
        pin = _pin(records, begin, number, reason)
        if pin and begin.slot and not records.hold(begin.slot):
            # A prune decided on the very checkpoint after it was chosen: choose again.
            records.drop(pin)
            continue
        _begin(records, number, begin)
        if pin:
            records.drop(pin)
        return Generation(number, token, begin)
    raise Fenced(records.name, number, f"{CLAIMS} claims in a row were in vain")


def _claim(records: PipelineRecords, reason: Reason, activate: bool) -> tuple[int, str]:
    while True:
        known = records.generations()
        if max(known.bases, default=-1) > known.top:
            raise MissingRecords(records.keys.claim(max(known.bases)), "a generation has begun whose claim is gone")
        if not activate and not records.newest_is_local(known):
            raise NotActivated(records.name)
        number, token = known.top + 1, new_token()
        claim = Claim(
            token=token,
            generation=number,
            why=reason.why,
            who=whoami(),
            repository_id=records.repository_id,
            created_ms=now_ms(),
            query_id=reason.query_id,
            directory=reason.directory,
            owner=reason.owner,
        )
        if records.create(records.keys.claim(number), claim):
            return number, token


def _void_lower(records: PipelineRecords, number: int) -> None:
    """A lower claim without a base gets a void one; if that create loses, its base was there first and counts."""
    bases = records.generations().bases
    for lower in range(number):
        if lower not in bases:
            records.create(records.keys.base(lower), Base(token=new_token(), generation=lower, void=True))


def _pin(records: PipelineRecords, begin: Begin, number: int, reason: Reason) -> str | None:
    if begin.slot is None:
        return None
    pin = Pin(
        token=new_token(),
        generation=begin.slot.generation,
        slot=begin.slot.number,
        why=reason.why,
        who=whoami(),
        created_ms=now_ms(),
        claim=number,
    )
    key = records.keys.pin(begin.slot, pin.token)
    records.create(key, pin)
    return key


def _begin(records: PipelineRecords, number: int, begin: Begin) -> None:
    base = Base(
        token=new_token(),
        generation=number,
        from_generation=begin.slot.generation if begin.slot else None,
        from_slot=begin.slot.number if begin.slot else None,
        adopted_epoch=begin.adopted_epoch,
        follows=begin.follows,
        origin=begin.origin,
    )
    void = Base(token=new_token(), generation=number, void=True)
    if not records.create_or_void(records.keys.base(number), base, void):
        raise Fenced(records.name, number, "a later claim voided it before it began")
