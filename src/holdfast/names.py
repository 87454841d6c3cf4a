"""Names and pins: what holds a checkpoint against retention. The handshake with prune is the point of this module.

A prune creates its intent and then looks for names and pins; a name or pin is created first and then looks for intents
and decisions. Whichever way the two interleave, at least one of them sees the other; a prune that has not decided yet
is beaten to it, and only a decision that stands is too late.
"""

from __future__ import annotations

from holdfast.errors import (
    BeingForgotten,
    CheckpointMissing,
    DamagedRecord,
    FormatTooNew,
    HoldfastError,
    NameTaken,
    ObjectMissing,
    StoreError,
    WrongKey,
)
from holdfast.ids import new_token, now_ms, whoami
from holdfast.layout import Slot, check_name
from holdfast.manifest import Head
from holdfast.records import Answer, Pin, Request, Savepoint
from holdfast.repository.pipeline import PipelineRecords

__all__ = ["answer", "ask", "name_checkpoint", "pin_checkpoint", "remove_name", "remove_pins", "waiting_requests"]


def name_checkpoint(records: PipelineRecords, head: Head, name: str, token: str | None = None) -> Savepoint:
    """Give a checkpoint a name that retention never removes.

    Naming it once more is no error; nor is it when the name was given under this token, to whichever checkpoint: that
    word is given back. Raises NameTaken if the name stands for another, BeingForgotten if a prune got to the
    checkpoint first.
    """
    check_name("savepoint", name)
    records.refuse_copy()
    while True:
        k = _next_word(records, name)
        standing = records.savepoints().get(name)
        if standing is not None:
            if standing.at != head.at and standing.token != token:
                raise NameTaken(name, str(standing.at))
            return standing
        word = Savepoint(
            token=token or new_token(),
            name=name,
            generation=head.generation,
            slot=head.slot,
            checkpoint_id=head.checkpoint_id,
            created_ms=now_ms(),
        )
        if _say(records, word, k):
            return word


def remove_name(records: PipelineRecords, name: str) -> Savepoint:
    """Take a name off its checkpoint, which then falls under retention again."""
    records.refuse_copy()
    while True:
        k = _next_word(records, name)
        standing = records.savepoints().get(name)
        if standing is None:
            raise CheckpointMissing(f"{records.name}@{name}", "there is no such savepoint")
        word = Savepoint(
            token=new_token(),
            name=name,
            generation=standing.generation,
            slot=standing.slot,
            checkpoint_id=standing.checkpoint_id,
            created_ms=now_ms(),
            removed=True,
        )
        if _say(records, word, k):
            return standing


def _next_word(records: PipelineRecords, name: str) -> int:
    """Which word on a name comes next. Ask before looking what the name stands for: a word said in between is then
    either seen by that look or in the way of ours."""
    said = [named.k for _, named, _ in records.listed(records.keys.savepoints, "savepoint") if named.name == name]
    return 1 + max(said, default=-1)


def _say(records: PipelineRecords, word: Savepoint, k: int) -> bool:
    """Create the k-th word on a name and look for a prune; False if another word got there first."""
    key = records.keys.savepoint(word.name, k)
    void = Savepoint(
        token=new_token(), name=word.name, generation=0, slot=0, checkpoint_id="", created_ms=now_ms(), void=True
    )
    if not records.create_or_void(key, word, void):
        return False
    if not word.removed:
        _look(records, word.at, key)
    return True


def _look(records: PipelineRecords, slot: Slot, key: str) -> None:
    if not records.hold(slot):
        records.drop(key)
        raise BeingForgotten(records.reference(slot))


def pin_checkpoint(records: PipelineRecords, slot: Slot, why: str) -> Pin:
    """Hold a checkpoint without naming it. Raises BeingForgotten if a prune got to it first."""
    records.refuse_copy()
    pin = Pin(
        token=new_token(), generation=slot.generation, slot=slot.number, why=why, who=whoami(), created_ms=now_ms()
    )
    key = records.keys.pin(slot, pin.token)
    records.create(key, pin)
    _look(records, slot, key)
    return pin


def remove_pins(records: PipelineRecords, slot: Slot) -> list[Pin]:
    """Let go of all pins that people put on a checkpoint; a claim's own pin is left to its claim."""
    records.refuse_copy()
    pins = [pin for pin in records.pins() if pin.at == slot and pin.claim is None]
    records.drop(*(records.keys.pin(slot, pin.token) for pin in pins))
    return pins


def ask(records: PipelineRecords, savepoint: str, token: str | None = None) -> Request:
    """Ask whoever publishes for this pipeline to name the next checkpoint it takes; the caller drops what it asked."""
    check_name("savepoint", savepoint)
    request = Request(token=token or new_token(), savepoint=savepoint, who=whoami(), created_ms=now_ms())
    records.create(records.keys.request(request.token), request)
    return request


def waiting_requests(records: PipelineRecords) -> list[Request]:
    """Requests without an answer. Look before the state is captured: the answer must not be older than the question."""
    listed = records.listed(records.keys.requests, "request", "answer")
    answered = {named.token for _, named, _ in listed if named.what == "answer"}
    keys = [key for key, named, _ in listed if named.what == "request" and named.token not in answered]
    return [request for key in keys if (request := _request(records, key)) is not None]


def _request(records: PipelineRecords, key: str) -> Request | None:
    try:
        return records.read(key, Request)
    except (ObjectMissing, DamagedRecord, FormatTooNew, WrongKey):
        # Taken back by whoever asked, or nothing that can be answered: `check` reports it, and checkpoints go on, also
        # those of a run that has the key of before a rotation.
        return None


def answer(records: PipelineRecords, request: Request, head: Head) -> Answer:
    """Name a checkpoint as asked, and say so; a name that is taken is answered with the reason.

    Whoever was killed between the two has named another already: the answer is then that one.
    """
    try:
        word = name_checkpoint(records, head, request.savepoint, request.token)
    except StoreError:
        raise
    except HoldfastError as refusal:
        reply = Answer(token=request.token, refused=str(refusal))
    else:
        reply = Answer(
            token=request.token, generation=word.generation, slot=word.slot, checkpoint_id=word.checkpoint_id
        )
    records.create(records.keys.answer(request.token), reply)
    return reply
