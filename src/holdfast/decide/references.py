"""What a reference to a checkpoint means: read here, resolved against the records elsewhere."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from holdfast.errors import BadReference
from holdfast.layout import Slot, check_name

__all__ = ["Reference", "parse_reference"]

Kind = Literal["latest", "now", "word", "epoch", "slot", "time"]


@dataclass(frozen=True)
class Reference:
    """A pipeline and which of its checkpoints is meant.

    A `word` is a savepoint's name or, if there is none of that name, the beginning of a checkpoint's id.
    """

    pipeline: str
    kind: Kind = "latest"
    word: str = ""
    epoch: int = 0
    slot: Slot | None = None
    time_ms: int = 0

    def __str__(self) -> str:
        return self.pipeline if not self.word else f"{self.pipeline}@{self.word}"


def parse_reference(text: str) -> Reference:
    """Read `orders`, `orders@before-upgrade`, `orders@0193a`, `orders@epoch:42`, `orders@time:2026-11-15T10:00`, …"""
    pipeline, at, word = text.partition("@")
    check_name("pipeline", pipeline)
    if not at or word == "latest":
        return Reference(pipeline)
    if word == "now":
        return Reference(pipeline, "now", word)
    kind, colon, value = word.partition(":")
    if not colon:
        return Reference(pipeline, "word", check_name("savepoint", word))
    if kind == "epoch" and value.isdecimal():
        return Reference(pipeline, "epoch", word, epoch=int(value))
    if kind == "slot" and (found := re.fullmatch(r"(\d{1,10})-(\d{1,10})", value)):
        return Reference(pipeline, "slot", word, slot=Slot(int(found[1]), int(found[2])))
    if kind == "time":
        return Reference(pipeline, "time", word, time_ms=_milliseconds(text, value))
    raise BadReference(text, f"{word!r} is not understood")


def _milliseconds(text: str, value: str) -> int:
    try:
        moment = datetime.fromisoformat(value)
    except ValueError as error:
        raise BadReference(text, f"{value!r} is no time such as 2026-11-15T10:00") from error
    # A time without a zone is UTC, on every machine alike.
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)
