"""Proof, by trying, that a store does what a repository needs; above all create-if-absent, also under a race."""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from holdfast.errors import HoldfastError, ObjectMissing, StoreError, StoreUnavailable, UnsafeStore
from holdfast.layout import PROBES
from holdfast.store.contract import Store

__all__ = ["Finding", "examine", "probe"]


class Finding(NamedTuple):
    """What came of trying one verb: `why` says what is wrong, `error` is what the store raised, if it did."""

    verb: str
    ok: bool
    why: str = ""
    error: HoldfastError | None = None


def probe(store: Store, rounds: int = 5, threads: int = 4) -> Sequence[Finding]:
    """Raise UnsafeStore if the store can't hold a repository; the store's own error if it can't be used at all.

    A store that is merely lucky passes a race now and then: the more rounds, the surer. Leaves nothing behind.
    """
    findings = examine(store, rounds, threads)
    for finding in findings:
        if finding.error is not None:
            raise finding.error
        if not finding.ok:
            raise UnsafeStore(store.url, f"{finding.verb}: {finding.why}")
    return findings


def examine(store: Store, rounds: int = 5, threads: int = 4) -> Sequence[Finding]:
    """Try every verb and say what came of it, without raising; what can't be tried any more is reported as such."""
    trial = _Trial(store, f"{PROBES}{secrets.token_hex(16)}/", rounds, threads)
    findings: list[Finding] = []
    unreachable: StoreError | None = None
    try:
        for verb, attempt in trial.attempts.items():
            if unreachable is not None:
                findings.append(Finding(verb, False, "not tried: the store can't be reached", unreachable))
                continue
            try:
                why = attempt()
                findings.append(Finding(verb, not why, why))
            except StoreUnavailable as error:
                unreachable = error
                findings.append(Finding(verb, False, error.message, error))
            except HoldfastError as error:
                findings.append(Finding(verb, False, error.message, error))
    finally:
        if unreachable is None:
            with contextlib.suppress(HoldfastError):  # already among the findings
                store.delete([info.key for info in store.list(trial.place)])
    return findings


class _Trial:
    """The attempts, each giving what is wrong, or "" when all is well."""

    def __init__(self, store: Store, place: str, rounds: int, threads: int) -> None:
        self.store = store
        self.place = place
        self.rounds = rounds
        self.threads = threads
        self.creates = False
        """Whether create-if-absent holds for one writer alone."""
        self.attempts: dict[str, Callable[[], str]] = {
            "create": self.create,
            "create, raced": self.race,
            "get": self.get,
            "get_ranges": self.get_ranges,
            "list": self.list,
            "folders": self.folders,
            "put": self.put,
            "copy": self.copy,
            "write": self.write,
            "delete": self.delete,
        }

    def key(self, name: str) -> str:
        return f"{self.place}{name}"

    def create(self) -> str:
        key = self.key("create/one")
        if not self.store.create(key, b"first"):
            return "a new key was said to be taken"
        if self.store.create(key, b"second"):
            return "an object was created over another one: create-if-absent is ignored"
        if self.store.get(key) != b"first":
            return "a create that was refused changed the object all the same"
        if not self.store.create(key, b"first"):
            return "an object was not recognised by its own bytes"
        self.creates = True
        return ""

    def race(self) -> str:
        if not self.creates:
            # Nothing more is learnt, and writers that overtake each other may leave an object after its deletion.
            return "not tried: one writer alone is not served right"
        for number in range(self.rounds):
            key = self.key(f"race/{number}")
            bodies = [f"racer {racer}".encode() for racer in range(self.threads)]
            barrier = threading.Barrier(self.threads)

            def run(body: bytes, key: str = key, barrier: threading.Barrier = barrier) -> bool:
                barrier.wait()
                return self.store.create(key, body)

            with ThreadPoolExecutor(self.threads) as pool:
                won = list(pool.map(run, bodies))
            if sum(won) != 1:
                return f"{sum(won)} of {self.threads} writers at once were told that they had created one object"
            if self.store.get(key) != bodies[won.index(True)]:
                return "after a race the object held the bytes of a writer that had lost"
        return ""

    def get(self) -> str:
        key = self.key("get/one")
        self.store.create(key, b"0123456789")
        if self.store.get(key) != b"0123456789":
            return "an object did not read back as it was written"
        try:
            self.store.get(self.key("get/absent"))
        except ObjectMissing:
            return ""
        return "an object that never was could be read"

    def get_ranges(self) -> str:
        key = self.key("ranges/one")
        self.store.create(key, b"0123456789")
        parts = self.store.get_ranges(key, [(7, 3), (0, 2), (8, 100)])
        return "" if parts == [b"789", b"01", b"89"] else f"ranges came back as {parts}"

    def list(self) -> str:
        keys = [self.key(f"list/{number}") for number in range(3)]
        for key in keys:
            self.store.create(key, b"1")
            if key not in (info.key for info in self.store.list(self.key("list/"))):
                return "an object was not listed right after it was written"
        listed = [info.key for info in self.store.list(self.key("list/"), start_after=keys[0])]
        return "" if listed == keys[1:] else f"listing after a key gave {listed}"

    def folders(self) -> str:
        self.store.create(self.key("folders/a/one"), b"1")
        self.store.create(self.key("folders/b/one"), b"1")
        found = self.store.folders(self.key("folders/"))
        return "" if found == ["a", "b"] else f"folders came back as {found}"

    def put(self) -> str:
        key = self.key("put/one")
        self.store.put(key, b"old")
        self.store.put(key, b"new")
        return "" if self.store.get(key) == b"new" else "an object was not seen right after it was replaced"

    def copy(self) -> str:
        self.store.create(self.key("copy/one"), b"content")
        self.store.copy(self.key("copy/one"), self.key("copy/two"))
        return "" if self.store.get(self.key("copy/two")) == b"content" else "a copy differs from its source"

    def write(self) -> str:
        size = self.store.write(self.key("write/one"), [b"streamed ", b"content"])
        whole = b"".join(self.store.read(self.key("write/one")))
        return "" if (size, whole) == (16, b"streamed content") else "a streamed object did not read back as written"

    def delete(self) -> str:
        keys = [info.key for info in self.store.list(self.place)]
        self.store.delete([*keys, self.key("never/was")])
        left = self.store.list(self.place)
        return f"{len(left)} of {len(keys)} deleted objects were still listed" if left else ""
