"""Whether bytes are a record that may stand under a name: its digest holds, and its kind is the one that is named."""

from __future__ import annotations

from holdfast.layout import Named
from holdfast.manifest import decode_manifest
from holdfast.records import (
    Answer,
    Base,
    Claim,
    Decision,
    Intent,
    Joined,
    Kept,
    Pin,
    PipelineRecord,
    Record,
    Request,
    Savepoint,
    Settled,
    VoidSlot,
    is_a,
    require_whole,
    unseal,
)

__all__ = ["SHAPES", "prove_record"]

SHAPES: dict[str, type[Record]] = {
    "pipeline": PipelineRecord,
    "claim": Claim,
    "base": Base,
    "savepoint": Savepoint,
    "pin": Pin,
    "intent": Intent,
    "joined": Joined,
    "request": Request,
    "answer": Answer,
    "settled": Settled,
    "failed": Settled,
}
"""The records whose name alone says what they are."""

EITHER: dict[str, type[Record]] = {"decision": Kept, "manifest": VoidSlot}
"""What may stand at a key in the place of the record that its name says."""


def prove_record(key: str, name: Named, data: bytes) -> None:
    """Raise DamagedRecord or FormatTooNew unless these are whole bytes of a record of this name.

    What is in a ledger is a pipeline's to understand: here it counts that its bytes are those that were written.
    """
    shape = SHAPES.get(name.what)
    other = EITHER.get(name.what)
    if shape is not None:
        unseal(key, data, shape)
    elif other is not None and is_a(other, data):
        unseal(key, data, other)
    elif name.what == "decision":
        unseal(key, data, Decision)
    elif name.what == "manifest":
        decode_manifest(key, data)
    else:
        require_whole(key, data)
