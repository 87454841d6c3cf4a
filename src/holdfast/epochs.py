"""Records of epochs: the links of the chain that every sink keeps, the rows that were staged, the decision to commit.

A decision is written once, before any sink commits; with it everything that must happen is settled.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.records import Record

__all__ = ["NOTHING", "EpochDecision", "Holder", "Link", "Marker", "Staged", "StagedFile", "Step", "Target"]


class Link(msgspec.Struct, frozen=True):
    """Where the sources stood after an epoch. The epoch is part of it: some move no source and still put rows out."""

    epoch: int = -1
    offsets: str = ""

    def __str__(self) -> str:
        return f"epoch {self.epoch} at {self.offsets}" if self.epoch >= 0 else "nothing"


NOTHING = Link()


class Holder(msgspec.Struct, frozen=True):
    """Who may write to a sink: one generation of one pipeline. The token tells two owners of a number apart."""

    pipeline_id: str
    generation: int
    token: str


class Marker(msgspec.Struct, frozen=True):
    """What a sink knows of itself: its holder, the link that it ends with, and the generation that decided that one."""

    holder: Holder
    at: Link
    decided: int


class Step(msgspec.Struct, frozen=True):
    """From one link to the next, as a generation decided it."""

    decided: int
    before: Link
    after: Link

    @property
    def epoch(self) -> int:
        return self.after.epoch


class Target(msgspec.Struct, frozen=True):
    """A place that a sink can go back to: a link, the generation that decided it, and what its commit returned."""

    at: Link
    decided: int
    position: Any = None


class StagedFile(msgspec.Struct, frozen=True):
    """One Parquet file, by its name in the folder.

    `sha256` is of its bytes. It is empty of what executors wrote into an object store: to know it, all of it would have
    to come back through the driver.
    """

    name: str
    size_bytes: int
    rows: int
    sha256: str = ""


class Staged(msgspec.Struct, frozen=True):
    """The rows of an epoch as files: where they lie, what they hold, and the schema as Arrow encodes it.

    `digest` is of the rows in any order: a second run of the same epoch must give the same. It is empty where they went
    into one sink and no state: a second run then takes the place of the first in all that there is.
    """

    url: str
    files: list[StagedFile]
    arrow_schema: str
    digest: str = ""

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


class EpochDecision(Record, frozen=True):
    """One epoch shall be committed: from here on every sink is driven to it, whatever crashes.

    `offsets` and `sources` are the bytes of Spark's own logs for it, by which it can be run again on the same
    boundaries; `tokens` are what each sink prepared, `backs` where each stood before; `tables` the versions of
    reference tables that it read; `states` the driver's states after it. Of two decisions of one generation on the
    same epoch the higher attempt counts.
    """

    kind = "epoch"
    generation: int
    attempt: int
    before: Link
    after: Link
    offsets: bytes
    sources: dict[str, bytes]
    staged: Staged
    tokens: dict[str, Any]
    backs: dict[str, Target] = msgspec.field(default_factory=dict)
    tables: dict[str, str] = msgspec.field(default_factory=dict)
    states: dict[str, bytes] = msgspec.field(default_factory=dict)
    created_ms: int = 0

    @property
    def epoch(self) -> int:
        return self.after.epoch

    @property
    def step(self) -> Step:
        return Step(self.generation, self.before, self.after)
