"""A store that can't hold a repository is found out, and says why."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from typing import TypeVar

import pytest

from holdfast.errors import AccessDenied, StoreUnavailable, UnsafeStore
from holdfast.store import Buffer, ObjectInfo, RetryPolicy, Store, examine, open_store, probe
from holdfast.store.memory import MemoryStore
from holdfast.testing.faults import Around
from servers import S3Server

VERBS = ("create", "put", "get", "get_ranges", "read", "folders", "list", "delete", "copy", "write")
T = TypeVar("T")


def test_a_good_store_passes_and_keeps_nothing_of_the_probe(any_store: Store) -> None:
    findings = probe(any_store)
    assert all(finding.ok for finding in findings)
    assert {finding.verb for finding in findings} == {"create, raced", *VERBS}
    assert any_store.list("") == []


def test_a_server_that_ignores_create_if_absent_is_refused(bad_s3_server: S3Server) -> None:
    store = open_store(bad_s3_server.url(f"t-{uuid.uuid4().hex}"), bad_s3_server.options)
    with pytest.raises(UnsafeStore, match="create-if-absent is ignored"):
        probe(store)
    assert store.list("") == []


class Racy(Around):
    """Looks, then writes: right one at a time, wrong under a race."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())

    def create(self, key: str, data: Buffer) -> bool:
        if any(info.key == key for info in self.inner.list("")):
            return self.inner.get(key) == data
        time.sleep(0.02)
        self.inner.put(key, data)
        return True


def test_a_store_whose_create_is_only_racy_is_refused() -> None:
    with pytest.raises(UnsafeStore, match="writers at once were told"):
        probe(Racy())


class Swapping(Around):
    """Tells one racer that it won, and keeps the bytes of another."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self._lock = threading.Lock()

    def create(self, key: str, data: Buffer) -> bool:
        with self._lock:
            won = self.inner.create(key, data)
            if not won and "/race/" in key:
                self.inner.put(key, data)
            return won


def test_a_store_that_keeps_the_losers_bytes_is_refused() -> None:
    with pytest.raises(UnsafeStore, match="a writer that had lost"):
        probe(Swapping())


class SlowToList(Around):
    """Lists an object only some time after it was written."""

    def list(self, prefix: str, start_after: str = "") -> list[ObjectInfo]:
        return super().list(prefix, start_after)[:-1]


def test_a_store_that_lists_late_is_refused(memory_store: Store) -> None:
    with pytest.raises(UnsafeStore, match="list: an object was not listed right after it was written"):
        probe(SlowToList(memory_store))


def test_denied_access_is_told_as_such_for_every_verb(s3_server: S3Server, s3_url: str) -> None:
    store = open_store(s3_url, {**s3_server.options, "secret_access_key": "wrong"})
    with pytest.raises(AccessDenied):
        probe(store)
    assert not any(finding.ok for finding in examine(store))


def test_a_store_that_cant_be_reached_is_tried_only_once(s3_server: S3Server) -> None:
    policy = RetryPolicy(budget_seconds=0.2, first_delay=0.01)
    store = open_store("s3://bucket/x", {**s3_server.options, "endpoint": "http://127.0.0.1:1"}, policy)
    first, *others = examine(store)
    assert isinstance(first.error, StoreUnavailable)
    assert all(finding.why.startswith("not tried") for finding in others)


# ---- one verb at a time ----


class Denying(Around):
    """Does all but some verbs."""

    def __init__(self, store: Store, *verbs: str) -> None:
        super().__init__(store)
        self.verbs = verbs

    def _around(self, verb: str, act: Callable[[], T]) -> T:
        if verb in self.verbs:
            raise AccessDenied(self.url, verb, "policy")
        return super()._around(verb, act)


@pytest.mark.parametrize("denied", VERBS)
def test_a_verb_that_is_denied_is_the_only_one_that_fails_and_leaves_nothing_but_what_it_can_not_delete(
    any_store: Store, denied: str
) -> None:
    found = {finding.verb: finding for finding in examine(Denying(any_store, denied))}
    assert [verb for verb, finding in found.items() if finding.tried and not finding.ok] == [denied]
    assert isinstance(found[denied].error, AccessDenied)
    untried = {verb: finding.why for verb, finding in found.items() if not finding.tried}
    assert untried == (
        {"create, raced": "not tried: one writer alone is not served right"} if denied == "create" else {}
    )
    assert bool(any_store.list("")) == (denied == "delete")


def test_what_could_not_be_deleted_is_told(memory_store: Store) -> None:
    [delete] = [finding for finding in examine(Denying(memory_store, "delete")) if finding.verb == "delete"]
    left = memory_store.list("")
    place = "/".join(left[0].key.split("/")[:2])
    assert delete.why.endswith(f"delete was denied: policy; {len(left)} objects are left behind below {place}/")
    unlisted = MemoryStore()
    [delete] = [finding for finding in examine(Denying(unlisted, "delete", "list")) if finding.verb == "delete"]
    count = len(unlisted.list(""))
    assert f"; {count} objects are left behind" in delete.why, "what was made is known without a list"


def test_where_nothing_can_be_written_nothing_else_is_said_to_fail(memory_store: Store) -> None:
    found = {f.verb: f for f in examine(Denying(memory_store, "create", "put", "write", "copy"))}
    assert {verb for verb, f in found.items() if f.tried} == {"create", "put", "write"}
    reading = ("get", "get_ranges", "read", "list", "folders", "copy", "delete")
    assert {found[verb].why for verb in reading} == {"not tried: nothing could be created"}
    with pytest.raises(AccessDenied, match="create was denied"):
        probe(Denying(memory_store, "create", "put", "write"))


def test_where_nothing_can_be_read_what_is_written_is_not_said_to_fail(memory_store: Store) -> None:
    found = {f.verb: f for f in examine(Denying(memory_store, "get", "read", "get_ranges"))}
    assert {verb for verb, f in found.items() if f.tried and not f.ok} == {"get", "read", "get_ranges"}
    written = ("create", "put", "copy", "write")
    assert {found[verb].why for verb in written} == {"not proven: what it wrote could not be read back"}
    assert found["delete"].ok
    with pytest.raises(AccessDenied, match="get was denied"):
        probe(Denying(memory_store, "get", "read"))


class Forgetting(Around):
    """Says that it deleted, and did not."""

    def _around(self, verb: str, act: Callable[[], T]) -> T:
        return super()._around(verb, (lambda: None) if verb == "delete" else act)  # type: ignore[arg-type,return-value]


def test_a_store_that_only_says_that_it_deletes_is_refused(memory_store: Store) -> None:
    with pytest.raises(UnsafeStore, match=r"delete: .* deleted objects were still there; .* are left behind below"):
        probe(Forgetting(memory_store))


class Leaving(Around):
    """Goes away after some requests."""

    left = 12

    def _around(self, verb: str, act: Callable[[], T]) -> T:
        self.left -= 1
        if self.left < 0:
            raise StoreUnavailable(self.url, verb, 1.0, "no route")
        return super()._around(verb, act)


def test_what_may_be_left_in_a_store_that_goes_away_meanwhile_is_told(memory_store: Store) -> None:
    delete = examine(Leaving(memory_store), rounds=1)[-1]
    assert (delete.verb, delete.tried) == ("delete", False)
    assert "not tried: the store can't be reached; " in delete.why
    assert "may be left behind below probe" in delete.why
