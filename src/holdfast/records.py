"""The small records of a repository: one line of JSON each, sealed with its own SHA-256.

A record is written once and never changed. `seal` gives the same bytes for the same fields; `unseal` refuses what was
cut short, flipped, of another kind or of a newer major format, and passes over fields that a newer minor one added.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Any, ClassVar, TypeVar

import msgspec

from holdfast.errors import DamagedRecord, FormatTooNew
from holdfast.layout import Slot

__all__ = [
    "FORMAT",
    "Answer",
    "Base",
    "Claim",
    "Decision",
    "Hint",
    "Intent",
    "Joined",
    "Kept",
    "Outcome",
    "Owner",
    "Pin",
    "PipelineRecord",
    "Record",
    "RepositoryRecord",
    "Request",
    "Savepoint",
    "Settled",
    "VoidSlot",
    "is_a",
    "is_whole",
    "require_whole",
    "seal",
    "seal_line",
    "unseal",
    "unseal_line",
]

FORMAT = "1.0"
MAJOR = 1

_SEAL = re.compile(rb',"sha256":"([0-9a-f]{64})"\}\n')
_SEAL_LENGTH = len(',"sha256":""}\n') + 64


class Record(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What every record shares: its kind, and the token of the writer that made it."""

    kind: ClassVar[str] = ""
    token: str


class RepositoryRecord(Record, frozen=True):
    kind = "repository"
    repository_id: str
    created_ms: int
    encryption: dict[str, Any] = msgspec.field(default_factory=lambda: {"scheme": "none"})


class PipelineRecord(Record, frozen=True):
    kind = "pipeline"
    pipeline_id: str
    name: str
    created_ms: int


class Claim(Record, frozen=True):
    """One claim on a pipeline. `repository_id` is where it was made: elsewhere, the pipeline is a copy.

    `query_id`, `directory` and `owner` (the token of the directory's own Owner record) say which Spark query it is for.
    """

    kind = "claim"
    generation: int
    why: str
    who: str
    repository_id: str
    created_ms: int
    query_id: str | None = None
    directory: str | None = None
    owner: str | None = None


class Base(Record, frozen=True):
    """Where a generation began: at a checkpoint, at nothing, or (void) it never did.

    One that `follows` another adopts its decisions on epochs after the checkpoint, up to the adopted one. `origin` says
    in words where the first one brought its state from, if that was not this pipeline.
    """

    kind = "base"
    generation: int
    void: bool = False
    from_generation: int | None = None
    from_slot: int | None = None
    adopted_epoch: int | None = None
    follows: int | None = None
    origin: str = ""

    @property
    def before(self) -> int | None:
        """The generation that comes before it on its timeline."""
        return self.from_generation if self.follows is None else self.follows

    @property
    def slot(self) -> Slot | None:
        if self.from_generation is None or self.from_slot is None:
            return None
        return Slot(self.from_generation, self.from_slot)


class VoidSlot(Record, frozen=True):
    """Stands where a manifest might still have landed: the slot holds no checkpoint and never will."""

    kind = "void"
    generation: int
    slot: int


class Savepoint(Record, frozen=True):
    """The k-th word on a name; the highest counts: a checkpoint, or that it was removed."""

    kind = "savepoint"
    name: str
    generation: int
    slot: int
    checkpoint_id: str
    created_ms: int
    removed: bool = False
    void: bool = False

    @property
    def at(self) -> Slot:
        return Slot(self.generation, self.slot)


class Pin(Record, frozen=True):
    """Holds a checkpoint. One made by a claim counts only until that claim has a base or is void."""

    kind = "pin"
    generation: int
    slot: int
    why: str
    who: str
    created_ms: int
    claim: int | None = None

    @property
    def at(self) -> Slot:
        return Slot(self.generation, self.slot)


class Intent(Record, frozen=True):
    """A prune means to forget a checkpoint; whether it may is decided at the key of this attempt."""

    kind = "intent"
    generation: int
    slot: int
    attempt: int = 0


class Kept(Record, frozen=True):
    """Stands where a decision might have: this attempt to forget a checkpoint has failed, somebody needs it."""

    kind = "kept"
    generation: int
    slot: int


class Decision(Record, frozen=True):
    """A checkpoint is forgotten; `objects` are the bytes it named."""

    kind = "forgotten"
    generation: int
    slot: int
    objects: list[str]
    why: str = "pruned"


class Joined(Record, frozen=True):
    """Many decisions of one generation in one record: `ranges` of slot numbers, first and last, all forgotten."""

    kind = "joined"
    generation: int
    ranges: list[tuple[int, int]]

    def slots(self, start: int = 0) -> frozenset[Slot]:
        """The slots it speaks of, from a number on."""
        return _slots(self.generation, tuple(self.ranges), start)

    def covers(self, slot: Slot) -> bool:
        return slot.generation == self.generation and any(a <= slot.number <= b for a, b in self.ranges)


@lru_cache(maxsize=32)
def _slots(generation: int, ranges: tuple[tuple[int, int], ...], start: int) -> frozenset[Slot]:
    return frozenset(Slot(generation, n) for first, last in ranges for n in range(max(first, start), last + 1))


class Request(Record, frozen=True):
    """Asks whoever publishes for this pipeline to give the next checkpoint a name."""

    kind = "request"
    savepoint: str
    who: str
    created_ms: int


class Answer(Record, frozen=True):
    kind = "answer"
    generation: int | None = None
    slot: int | None = None
    checkpoint_id: str | None = None
    refused: str | None = None


class Outcome(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What became of one sink: committed, with the position that its commit returned, or failed, and why."""

    status: str
    position: Any = None
    why: str | None = None


class Settled(Record, frozen=True):
    """The outcomes of all sinks of one checkpoint; it settles the checkpoint only when all are committed."""

    kind = "settled"
    generation: int
    slot: int
    outcomes: dict[str, Outcome]


class Owner(Record, frozen=True):
    """Left in a directory by the restore that made it: which checkpoint it began as, and what was edited on the way.

    A `fork` begins a pipeline of its own: it never goes on in the one that it came from.
    """

    kind = "owner"
    pipeline_id: str
    pipeline: str
    repository: str
    generation: int
    slot: int
    epoch: int
    checkpoint_id: str
    query_id: str
    created_ms: int
    fork: bool = False
    edits: list[str] = []

    @property
    def at(self) -> Slot:
        return Slot(self.generation, self.slot)


class Hint(Record, frozen=True):
    kind = "latest"
    generation: int
    slot: int


AnyRecord = TypeVar("AnyRecord", bound=Record)
AnyStruct = TypeVar("AnyStruct", bound=msgspec.Struct)

_encoder = msgspec.json.Encoder(order="deterministic")


def seal_line(kind: str, fields: msgspec.Struct) -> bytes:
    """One sealed line: format and kind first, the digest of all that stands before it last."""
    body = _encoder.encode(fields)
    opening = f'{{"holdfast":"{kind}","format":"{FORMAT}"'.encode()
    line = opening + (b"," + body[1:-1] if len(body) > 2 else b"")
    return line + f',"sha256":"{hashlib.sha256(line).hexdigest()}"}}\n'.encode()


def unseal_line(key: str, kind: str, line: bytes, shape: type[AnyStruct]) -> AnyStruct:
    """Read one sealed line back; `key` only names it in errors."""
    fields = _open(key, line)
    if fields.get("holdfast") != kind:
        raise DamagedRecord(key, f"it is a {fields.get('holdfast')!r} where a {kind!r} belongs")
    try:
        return msgspec.convert(fields, shape)
    except msgspec.ValidationError as error:
        raise DamagedRecord(key, str(error)) from error


def seal(record: Record) -> bytes:
    return seal_line(record.kind, record)


def unseal(key: str, data: bytes, shape: type[AnyRecord]) -> AnyRecord:
    return unseal_line(key, shape.kind, data, shape)


def is_a(shape: type[Record], data: bytes) -> bool:
    """Whether a key that may hold one of two kinds holds this one; asks only for the kind, `unseal` proves it."""
    return data.startswith(f'{{"holdfast":"{shape.kind}",'.encode())


def is_whole(line: bytes) -> bool:
    """Whether a line is sealed and its bytes are those that were; says nothing of what it means."""
    seal = _SEAL.fullmatch(line[-_SEAL_LENGTH:])
    return seal is not None and hashlib.sha256(line[:-_SEAL_LENGTH]).hexdigest().encode() == seal[1]


def require_whole(key: str, line: bytes) -> None:
    """Raise DamagedRecord unless a line is sealed, and its bytes are those that were."""
    if not is_whole(line):
        if _SEAL.fullmatch(line[-_SEAL_LENGTH:]) is None:
            raise DamagedRecord(key, "it is cut short or not a Holdfast record")
        raise DamagedRecord(key, "its bytes do not match its digest")


def _open(key: str, line: bytes) -> dict[str, Any]:
    require_whole(key, line)
    try:
        fields = msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        raise DamagedRecord(key, str(error)) from error
    if not isinstance(fields, dict):
        raise DamagedRecord(key, "it is no JSON object")
    refuse_newer(key, str(fields.get("format", "")))
    return fields


def refuse_newer(what: str, version: str) -> None:
    """Raise FormatTooNew for a major version above ours, DamagedRecord for what is no version."""
    major, _, minor = version.partition(".")
    if not (major.isdecimal() and minor.isdecimal()):
        raise DamagedRecord(what, f"{version!r} is no format version")
    if int(major) > MAJOR:
        raise FormatTooNew(what, version)
