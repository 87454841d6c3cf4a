"""The names of objects in a repository: how they are made, and which names are of our own making.

Nothing else builds a key by hand, and clean-up deletes only keys that `parse` knows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.errors import BadName

__all__ = [
    "NAME_CHARACTERS",
    "PIPELINES",
    "PROBES",
    "REPOSITORY",
    "RINGS",
    "SAVEPOINTS",
    "Kind",
    "Named",
    "PipelineKeys",
    "Slot",
    "check_name",
    "parse",
    "ring_folder",
    "ring_key",
]

REPOSITORY = "holdfast.json"
PIPELINES = "pipelines/"
PROBES = "probe/"
RINGS = "keys/"
SAVEPOINTS = "savepoints"
NAME_CHARACTERS = "-.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"

RESERVED = {"savepoint": {"latest", "now"}}
NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")
TOKEN = r"[0-9a-f]{32}"
NUMBER = r"[0-9]{10}"
SLOT = re.compile(r"([0-9]{1,10})-([0-9]{1,10})")


class Slot(NamedTuple):
    """Where a checkpoint stands: its generation and its number in it. Ordered only within one generation."""

    generation: int
    number: int

    def __str__(self) -> str:
        return f"{self.generation}-{self.number}"

    @classmethod
    def read(cls, text: str) -> Slot:
        """Read G-N back; raise BadName for anything else."""
        found = SLOT.fullmatch(text)
        if not found:
            raise BadName("slot", text)
        return cls(int(found[1]), int(found[2]))


def check_name(what: str, name: str) -> str:
    """Give the name back if it can stand in a key; raise BadName if not."""
    if not NAME.fullmatch(name) or name in RESERVED.get(what, ()):
        raise BadName(what, name)
    return name


def number(n: int) -> str:
    if not 0 <= n < 10**10:
        raise BadName("generation, slot or epoch", str(n))
    return f"{n:010d}"


def ring_folder(token: str) -> str:
    """Where the keys of an encrypted repository lie; `holdfast.json` names the token."""
    return f"{RINGS}{token}/"


def ring_key(token: str, n: int) -> str:
    return f"{ring_folder(token)}{number(n)}.json"


@dataclass(frozen=True)
class PipelineKeys:
    """The keys of one pipeline; its prefix is self-contained."""

    name: str

    def __post_init__(self) -> None:
        check_name("pipeline", self.name)

    @property
    def prefix(self) -> str:
        return f"{PIPELINES}{self.name}/"

    @property
    def identity(self) -> str:
        return f"{self.prefix}pipeline.json"

    @property
    def latest(self) -> str:
        return f"{self.prefix}latest"

    @property
    def generations(self) -> str:
        return f"{self.prefix}generations/"

    def claim(self, generation: int) -> str:
        return f"{self.generations}{number(generation)}.json"

    def base(self, generation: int) -> str:
        return f"{self.generations}{number(generation)}.base.json"

    def generations_from(self, generation: int) -> str:
        """A key to start after that comes before both records of this generation and after all older ones."""
        return f"{self.generations}{number(generation)}"

    @property
    def checkpoints(self) -> str:
        return f"{self.prefix}checkpoints/"

    def slots(self, generation: int) -> str:
        return f"{self.checkpoints}{number(generation)}/"

    def manifest(self, slot: Slot) -> str:
        return f"{self.slots(slot.generation)}{number(slot.number)}.json"

    def slots_from(self, slot: Slot) -> str:
        """A key to start after that comes before this slot's manifest and after all older ones of its generation."""
        return f"{self.slots(slot.generation)}{number(slot.number)}"

    @property
    def data(self) -> str:
        return f"{self.prefix}data/"

    def upload(self, generation: int, token: str) -> str:
        return f"{self.data}{number(generation)}-{token}/"

    @property
    def ledger(self) -> str:
        return f"{self.prefix}ledger/"

    @property
    def savepoints(self) -> str:
        return f"{self.prefix}{SAVEPOINTS}/"

    def savepoint(self, name: str, k: int) -> str:
        return f"{self.savepoints}{check_name('savepoint', name)}/{number(k)}.json"

    @property
    def pins(self) -> str:
        return f"{self.prefix}pins/"

    def pin(self, slot: Slot, token: str) -> str:
        return f"{self.pins}{number(slot.generation)}-{number(slot.number)}.{token}.json"

    @property
    def forgotten(self) -> str:
        return f"{self.prefix}forgotten/"

    def decision(self, slot: Slot, attempt: int = 0) -> str:
        """Where an attempt to forget a slot is decided: forgotten, or kept. A kept one leaves the next attempt open."""
        key = f"{self.forgotten}{number(slot.generation)}-{number(slot.number)}"
        return f"{key}.{number(attempt)}" if attempt else key

    def joined(self, generation: int, count: int, token: str) -> str:
        """Sorts after the decisions of its generation: a listing sees them, or the record that took their place."""
        return f"{self.forgotten}{number(generation)}-joined-{number(count)}.{token}"

    def intent(self, slot: Slot, token: str) -> str:
        return f"{self.decision(slot)}.{token}.intent"

    @property
    def requests(self) -> str:
        return f"{self.prefix}requests/"

    def request(self, token: str) -> str:
        return f"{self.requests}{token}.json"

    def answer(self, token: str) -> str:
        return f"{self.requests}{token}.answer.json"

    @property
    def all_settled(self) -> str:
        return f"{self.prefix}settled/"

    def settled(self, slot: Slot) -> str:
        return f"{self.all_settled}{number(slot.generation)}/{number(slot.number)}.json"

    def failed(self, slot: Slot, token: str) -> str:
        return f"{self.all_settled}{number(slot.generation)}/{number(slot.number)}.{token}.failed.json"

    @property
    def aside(self) -> str:
        return f"{self.prefix}aside/"


class Kind(NamedTuple):
    """What a key below a pipeline's prefix is, with the numbers and names that stand in it."""

    what: str
    pattern: re.Pattern[str]


class Named(NamedTuple):
    what: str
    slot: Slot | None
    generation: int | None
    token: str
    name: str
    k: int


def _kind(what: str, pattern: str) -> Kind:
    return Kind(what, re.compile(pattern))


KINDS = [
    _kind("pipeline", r"pipeline\.json"),
    _kind("latest", r"latest"),
    _kind("claim", rf"generations/(?P<g>{NUMBER})\.json"),
    _kind("base", rf"generations/(?P<g>{NUMBER})\.base\.json"),
    _kind("manifest", rf"checkpoints/(?P<g>{NUMBER})/(?P<n>{NUMBER})\.json"),
    _kind("data", rf"data/(?P<g>{NUMBER})-(?P<token>{TOKEN})/(?P<name>[a-z]+-[0-9]+)(\.index)?"),
    _kind("ledger", rf"ledger/(?P<g>{NUMBER})/(?P<name>[^/]+)"),
    _kind("savepoint", rf"savepoints/(?P<name>{NAME.pattern})/(?P<k>{NUMBER})\.json"),
    _kind("pin", rf"pins/(?P<g>{NUMBER})-(?P<n>{NUMBER})\.(?P<token>{TOKEN})\.json"),
    _kind("decision", rf"forgotten/(?P<g>{NUMBER})-(?P<n>{NUMBER})(\.(?P<k>{NUMBER}))?"),
    _kind("joined", rf"forgotten/(?P<g>{NUMBER})-joined-(?P<k>{NUMBER})\.(?P<token>{TOKEN})"),
    _kind("intent", rf"forgotten/(?P<g>{NUMBER})-(?P<n>{NUMBER})\.(?P<token>{TOKEN})\.intent"),
    _kind("request", rf"requests/(?P<token>{TOKEN})\.json"),
    _kind("answer", rf"requests/(?P<token>{TOKEN})\.answer\.json"),
    _kind("settled", rf"settled/(?P<g>{NUMBER})/(?P<n>{NUMBER})\.json"),
    _kind("failed", rf"settled/(?P<g>{NUMBER})/(?P<n>{NUMBER})\.(?P<token>{TOKEN})\.failed\.json"),
    _kind("aside", rf"aside/(?P<name>[^/]+)\.(?P<token>{TOKEN})"),
]


BY_FOLDER: dict[str, list[Kind]] = {}
for _each in KINDS:
    BY_FOLDER.setdefault(_each.pattern.pattern.partition("/")[0].replace("\\", ""), []).append(_each)


def parse(relative: str) -> Named | None:
    """Read a key (relative to its pipeline's prefix) back; None for a name that is not of our making."""
    for kind in BY_FOLDER.get(relative.partition("/")[0], ()):
        if found := kind.pattern.fullmatch(relative):
            part = found.groupdict()
            generation = int(part["g"]) if part.get("g") else None
            slot = Slot(generation, int(part["n"])) if generation is not None and part.get("n") else None
            return Named(
                kind.what, slot, generation, part.get("token") or "", part.get("name") or "", int(part.get("k") or 0)
            )
    return None
