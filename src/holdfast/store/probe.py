"""Proof, by trying, that a store does what a repository needs; above all create-if-absent, also under a race."""

from __future__ import annotations

import builtins
import secrets
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import NamedTuple, TypeVar

from holdfast.errors import (
    HoldfastError,
    ObjectMissing,
    OutcomeUnknown,
    StoreError,
    StoreUnavailable,
    UnsafeStore,
)
from holdfast.layout import PROBES
from holdfast.store.contract import Store
from holdfast.text import amount

__all__ = ["Finding", "examine", "probe"]

T = TypeVar("T")


class Finding(NamedTuple):
    """What came of trying one verb: `why` says what is wrong, `error` is what the store raised, if it did.

    Without `tried` the verb itself may be right: it needs another one that is not.
    """

    verb: str
    ok: bool
    why: str = ""
    error: HoldfastError | None = None
    tried: bool = True


class _Unproven(Exception):
    """Nothing can be said of a verb, for want of another one."""


NOTHING_THERE = "not tried: nothing could be created"
UNREAD = "not proven: what it wrote could not be read back"


def probe(store: Store, rounds: int = 5, threads: int = 4) -> Sequence[Finding]:
    """Raise UnsafeStore if the store can't hold a repository; the store's own error if it can't be used at all.

    A store that is merely lucky passes a race now and then: the more rounds, the surer. Leaves nothing behind where
    that can be deleted.
    """
    findings = examine(store, rounds, threads)
    # What could not be tried is so for what was.
    for finding in sorted(findings, key=lambda finding: not finding.tried):
        if finding.error is not None:
            raise finding.error
        if not finding.ok:
            raise UnsafeStore(store.url, f"{finding.verb}: {finding.why}")
    return findings


def examine(store: Store, rounds: int = 5, threads: int = 4) -> Sequence[Finding]:
    """Try every verb and say what came of it, without raising; what can't be tried is reported as such.

    The finding on `delete` says what is left behind, if something is.
    """
    trial = _Trial(store, f"{PROBES}{secrets.token_hex(16)}/", rounds, threads)
    findings: dict[str, Finding] = {}
    unreachable: StoreError | None = None
    try:
        for verb, attempt in trial.attempts.items():
            if unreachable is not None:
                why = "not tried: the store can't be reached"
                findings[verb] = Finding(verb, False, why, unreachable, tried=False)
                continue
            findings[verb] = _tried(verb, attempt)
            if isinstance(error := findings[verb].error, StoreUnavailable):
                unreachable = error
    finally:
        left = trial.clean() if unreachable is None else sorted(trial.made)
    if left:
        said = f"{amount(len(left), 'object')} {'may be' if unreachable else 'is' if len(left) == 1 else 'are'}"
        why = "; ".join(filter(None, [findings["delete"].why, f"{said} left behind below {trial.place}"]))
        findings["delete"] = findings["delete"]._replace(ok=False, why=why)
    return [*findings.values()]


def _tried(verb: str, attempt: Callable[[], str]) -> Finding:
    try:
        why = attempt()
    except _Unproven as unproven:
        return Finding(verb, False, str(unproven), tried=False)
    except HoldfastError as error:
        return Finding(verb, False, error.message, error)
    return Finding(verb, not why, why)


class _Trial:
    """The attempts, each giving what is wrong, or "" when all is well.

    Each is about its own verb. What it needs besides, an object that is there or a look at what was written, is got in
    whichever way the store has, so that one verb that is denied is not taken for all of them.
    """

    def __init__(self, store: Store, place: str, rounds: int, threads: int) -> None:
        self.store = store
        self.place = place
        self.rounds = rounds
        self.threads = threads
        self.made: set[str] = set()
        """All keys that something was written to, or may have been."""
        self.creates = False
        """Whether create-if-absent holds for one writer alone."""
        self.attempts: dict[str, Callable[[], str]] = {
            "create": self.create,
            "create, raced": self.race,
            "get": self.get,
            "get_ranges": self.get_ranges,
            "read": self.read,
            "list": self.list,
            "folders": self.folders,
            "put": self.put,
            "copy": self.copy,
            "write": self.write,
            "delete": self.delete,
        }

    # ---- what several need ----

    def key(self, name: str) -> str:
        return f"{self.place}{name}"

    def making(self, key: str, act: Callable[[], T]) -> T:
        """Write to a key, and remember that it has to be deleted."""
        try:
            done = act()
        except (StoreUnavailable, OutcomeUnknown):
            self.made.add(key)
            raise
        self.made.add(key)
        return done

    def seed(self, name: str, data: bytes) -> str:
        """An object that is there, by whichever verb can make one; gives its key."""
        key = self.key(name)
        ways: list[Callable[[], object]] = [
            lambda: self.store.create(key, data),
            lambda: self.store.put(key, data),
            lambda: self.store.write(key, [data]),
        ]
        _first([partial(self.making, key, way) for way in ways], NOTHING_THERE)
        return key

    def look(self, key: str) -> bytes:
        """What a key holds, by whichever verb can tell."""
        return _first([lambda: self.store.get(key), lambda: b"".join(self.store.read(key))], UNREAD)

    def there(self) -> builtins.list[str]:
        """The keys that are there. Where nobody can tell of one, it is taken to be."""
        return _first([self._listed, lambda: [key for key in sorted(self.made) if self._is_there(key)]], "")

    def _listed(self) -> builtins.list[str]:
        return [info.key for info in self.store.list(self.place)]

    def _is_there(self, key: str) -> bool:
        try:
            self.look(key)
        except ObjectMissing:
            return False
        except _Unproven:
            return True
        return True

    def clean(self) -> builtins.list[str]:
        """Delete all that is there still; gives what can't be."""
        try:
            if keys := self.there():
                with suppress(HoldfastError):  # already among the findings
                    self.store.delete(keys)
                return self.there()
        except HoldfastError:
            return sorted(self.made)
        return []

    # ---- the attempts ----

    def create(self) -> str:
        key = self.key("create/one")
        if not self.making(key, lambda: self.store.create(key, b"first")):
            return "a new key was said to be taken"
        if self.store.create(key, b"second"):
            return "an object was created over another one: create-if-absent is ignored"
        if self.look(key) != b"first":
            return "a create that was refused changed the object all the same"
        if not self.store.create(key, b"first"):
            return "an object was not recognised by its own bytes"
        self.creates = True
        return ""

    def race(self) -> str:
        if not self.creates:
            # Nothing more is learnt, and writers that overtake each other may leave an object after its deletion.
            raise _Unproven("not tried: one writer alone is not served right")
        for number in range(self.rounds):
            key = self.key(f"race/{number}")
            bodies = [f"racer {racer}".encode() for racer in range(self.threads)]
            barrier = threading.Barrier(self.threads)

            def run(body: bytes, key: str = key, barrier: threading.Barrier = barrier) -> bool:
                barrier.wait()
                return self.store.create(key, body)

            self.made.add(key)
            with ThreadPoolExecutor(self.threads) as pool:
                won = [*pool.map(run, bodies)]
            if sum(won) != 1:
                return f"{sum(won)} of {self.threads} writers at once were told that they had created one object"
            if self.look(key) != bodies[won.index(True)]:
                return "after a race the object held the bytes of a writer that had lost"
        return ""

    def get(self) -> str:
        if self.store.get(self.seed("get/one", b"0123456789")) != b"0123456789":
            return "an object did not read back as it was written"
        try:
            self.store.get(self.key("get/absent"))
        except ObjectMissing:
            return ""
        return "an object that never was could be read"

    def get_ranges(self) -> str:
        parts = self.store.get_ranges(self.seed("ranges/one", b"0123456789"), [(7, 3), (0, 2), (8, 100)])
        return "" if parts == [b"789", b"01", b"89"] else f"ranges came back as {parts}"

    def read(self) -> str:
        key = self.seed("read/one", b"0123456789")
        whole, part = b"".join(self.store.read(key)), b"".join(self.store.read(key, 3, 4))
        return "" if (whole, part) == (b"0123456789", b"3456") else "an object did not stream out as it was written"

    def list(self) -> str:
        keys = []
        for number in range(3):
            keys.append(self.seed(f"list/{number}", b"1"))
            if keys[-1] not in (info.key for info in self.store.list(self.key("list/"))):
                return "an object was not listed right after it was written"
        listed = [info.key for info in self.store.list(self.key("list/"), start_after=keys[0])]
        return "" if listed == keys[1:] else f"listing after a key gave {listed}"

    def folders(self) -> str:
        self.seed("folders/a/one", b"1")
        self.seed("folders/b/one", b"1")
        found = self.store.folders(self.key("folders/"))
        return "" if found == ["a", "b"] else f"folders came back as {found}"

    def put(self) -> str:
        key = self.key("put/one")
        self.making(key, lambda: self.store.put(key, b"old"))
        self.store.put(key, b"new")
        return "" if self.look(key) == b"new" else "an object was not seen right after it was replaced"

    def copy(self) -> str:
        source, target = self.seed("copy/one", b"content"), self.key("copy/two")
        self.making(target, lambda: self.store.copy(source, target))
        return "" if self.look(target) == b"content" else "a copy differs from its source"

    def write(self) -> str:
        key = self.key("write/one")
        size = self.making(key, lambda: self.store.write(key, [b"streamed ", b"content"]))
        is_right = (size, self.look(key)) == (16, b"streamed content")
        return "" if is_right else "a streamed object did not read back as written"

    def delete(self) -> str:
        keys = sorted({*self.there(), *self.made})
        self.store.delete([*keys, self.key("never/was")])
        if not keys:
            raise _Unproven(NOTHING_THERE)
        left = self.there()
        return f"{len(left)} of {len(keys)} deleted objects were still there" if left else ""


def _first(ways: Sequence[Callable[[], T]], otherwise: str) -> T:
    """What the first of these gives that the store does not refuse; raises _Unproven if there is none.

    That it can't be reached, or has lost an object, is no reason to try another way.
    """
    for way in ways:
        try:
            return way()
        except (StoreUnavailable, ObjectMissing):
            raise
        except HoldfastError:
            continue
    raise _Unproven(otherwise)
