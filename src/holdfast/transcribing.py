"""Records transcribed from one repository into another: each is proven by its own digest before it stands there.

What does not verify is read again, since a bit can turn over on the way as well as in the store. What is damaged at the
source is noted and not written. What is damaged at the target is told as that, and never taken for divergence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import NamedTuple

from holdfast.errors import (
    DamagedCopy,
    DamagedRecord,
    Diverged,
    FormatTooNew,
    HoldfastError,
    RepositoryGone,
)
from holdfast.layout import Slot
from holdfast.records import Base, Claim, unseal
from holdfast.repository.access import each
from holdfast.repository.pipeline import PipelineRecords
from holdfast.repository.presence import require_repository
from holdfast.repository.proof import prove_record

__all__ = ["Begun", "Transcriber", "Uncopied"]

UNREADABLE = (DamagedRecord, FormatTooNew)


class Uncopied(NamedTuple):
    """What is damaged at the source and was not copied: a checkpoint, or (without a slot) the record at a key."""

    slot: Slot | None
    why: str
    key: str


class Begun(NamedTuple):
    """The generations of the source: `same` are those whose claim is the same at both ends.

    `bases` are those that may be copied. Of the generation `end` and of all above it nothing may be; None: all may.
    """

    claims: frozenset[int]
    same: frozenset[int]
    bases: dict[int, Base]
    end: int | None

    def may_copy(self, generation: int | None) -> bool:
        return self.end is None or (generation is not None and generation < self.end)


class Transcriber:
    """Brings single records of a pipeline from a source to a target. Not for several threads at once.

    `created` are the keys that were brought since `begin`, with their sizes, `damaged` what could not be.
    """

    def __init__(self, source: PipelineRecords, target: PipelineRecords) -> None:
        self._source = source
        self._target = target
        self.created: dict[str, int] = {}
        self.damaged: list[Uncopied] = []

    def begin(self, damaged: list[Uncopied]) -> None:
        """A new round: nothing is created, and what is damaged is noted in this list."""
        self.created, self.damaged = {}, damaged

    def look(self) -> None:
        """Raise RepositoryGone unless both are where they were opened."""
        require_repository(self._source.store, self._source.repository_id)
        with self.at_target():
            require_repository(self._target.store, self._target.repository_id)

    @contextmanager
    def at_target(self) -> Iterator[None]:
        """What is damaged is so at the target: raises DamagedCopy for it."""
        try:
            yield
        except DamagedRecord as error:
            raise DamagedCopy(self._target.store.url, error.key, error.why) from error

    def note(self, key: str, error: HoldfastError, slot: Slot | None = None) -> None:
        """Something is damaged at the source, and is not copied."""
        self.damaged.append(Uncopied(slot, str(error), key))

    # ---- one record ----

    def proven(self, key: str) -> bytes:
        """The bytes of a record of the source. Raises DamagedRecord, FormatTooNew, and ObjectMissing."""
        return _proven(self._source, key)

    def whole(self, key: str) -> bytes | None:
        """The same; None if they are damaged, which is noted."""
        try:
            return self.proven(key)
        except UNREADABLE as error:
            self.note(key, error)
            return None

    def bring(self, key: str) -> bool:
        """Create a record at the target with the source's own bytes; False if they are damaged, which is noted."""
        data = self.whole(key)
        if data is None:
            return False
        self.create(key, data)
        return True

    def create(self, key: str, data: bytes) -> None:
        """Create a record with bytes that were proven. Raises Diverged, or DamagedCopy, if others are there."""
        if not self._target.store.create(key, data):
            with self.at_target():
                theirs = _proven(self._target, key)
            # The same after all: what it was compared with had changed on the way.
            if theirs != data:
                raise Diverged(key)
        self.created[key] = len(data)

    # ---- claims and bases ----

    def generations(self, compared: Set[int]) -> Begun:
        """Bring claims, then bases, ascending, and say of which generations more may be brought.

        `compared` are those whose claim is known to be the same. Raises Diverged.
        """
        source, target = self._source, self._target
        # The target first: whatever stands there, brought by another copier even, stood at the source before.
        with self.at_target():
            there = target.generations()
        claims, bases, unread = self._at_source()
        self._refuse_more([target.keys.claim(g) for g in sorted(there.claims - claims)])
        self._refuse_more([target.keys.base(g) for g in sorted(there.bases.keys() - bases.keys() - unread)])
        brought, doubtful = set(there.claims), set[int]()
        for generation in sorted(claims - compared):
            if generation in there.claims:
                doubtful |= set() if self._is_same_claim(generation) else {generation}
            elif self.bring(source.keys.claim(generation)):
                brought.add(generation)
        for generation in sorted(there.bases.keys() & bases.keys()):
            if there.bases[generation] != bases[generation]:
                raise Diverged(target.keys.base(generation))
        # A claim that can't be compared is still known to be the same by what only its owner could have written.
        doubtful -= there.bases.keys() & bases.keys()
        # Written once, and proven when it was brought: the one at the target stands for the one that is damaged now.
        bases |= {g: there.bases[g] for g in (unread & there.bases.keys()) - doubtful}
        end = _end(brought, bases, doubtful | (unread - bases.keys()))
        for generation in sorted(bases.keys() - there.bases.keys()):
            if (end is None or generation < end) and not self.bring(source.keys.base(generation)):
                end = generation
        mine = {g: base for g, base in bases.items() if end is None or g < end}
        return Begun(claims, frozenset(brought - doubtful), mine, end)

    def _at_source(self) -> tuple[frozenset[int], dict[int, Base], set[int]]:
        """The claims, the bases, and the generations whose base can't be read."""
        source, claims, begun = self._source, set[int](), list[int]()
        for _, name, _ in source.listed(source.keys.generations, "claim", "base"):
            if name.generation is not None:
                claims |= {name.generation} if name.what == "claim" else set()
                begun += [name.generation] if name.what == "base" else []
        found = each(self._base, begun)
        bases = {g: base for g, base in zip(begun, found, strict=True) if isinstance(base, Base)}
        for generation, error in zip(begun, found, strict=True):
            if not isinstance(error, Base):
                self.note(source.keys.base(generation), error)
        return frozenset(claims), bases, set(begun) - bases.keys()

    def _base(self, generation: int) -> Base | DamagedRecord | FormatTooNew:
        try:
            return self._source.read(self._source.keys.base(generation), Base)
        except UNREADABLE as error:
            return error

    def _refuse_more(self, keys: Sequence[str]) -> None:
        """Raise for records of the target that were not listed at the source, which may have been away then."""
        for key in keys:
            self.look()
            if self._source.is_there(key):
                raise RepositoryGone(self._source.store.url, f"it was away while {key} was looked for")
            raise Diverged(key)

    def _is_same_claim(self, generation: int) -> bool:
        """Raises Diverged if it is another one; False if the source's can't be read, which is noted."""
        key = self._source.keys.claim(generation)
        with self.at_target():
            theirs = self._target.fetched(key, lambda data: unseal(key, data, Claim))
        mine = self.whole(key)
        if mine is not None and unseal(key, mine, Claim) != theirs:
            raise Diverged(key)
        return mine is not None


def _end(claims: Set[int], bases: Mapping[int, Base], doubtful: Set[int]) -> int | None:
    """The first generation of which nothing may be copied, given the claims that are at the target.

    What is above it waits too: the target is then as it stood before that generation, and not something that never was.

    - A claim whose source is damaged and that stands at the target may be somebody else's there.
    - Without its base nobody can tell what a generation goes on from, nor what those above it do.
    - Without its claim the next owner of the copy would claim the same number, and find records of another there. That
      does not hold for an old one: once a later generation has begun, nothing but its number is asked of a claim.

    Other damaged records hold nothing up. Without a decision on an epoch a start goes on up to the gap; without a name,
    an outcome or a decision to forget, the target is as it stood before that was written.
    """
    ends = set(doubtful)
    newest = max((g for g in claims & bases.keys() if not bases[g].void and g < min(ends, default=g + 1)), default=-1)
    ends |= {g for g in bases if g > newest and g not in claims}
    return min(ends, default=None)


def _proven(records: PipelineRecords, key: str) -> bytes:
    name = records.parse(key)
    if name is None:
        raise DamagedRecord(key, "it is not a name of our own making")

    def whole(data: bytes) -> bytes:
        prove_record(key, name, data)
        return data

    return records.fetched(key, whole)
