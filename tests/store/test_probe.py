"""A store that can't hold a repository is found out, and says why."""

from __future__ import annotations

import threading
import time
import uuid

import pytest

from holdfast.errors import AccessDenied, StoreUnavailable, UnsafeStore
from holdfast.store import Buffer, ObjectInfo, RetryPolicy, Store, examine, open_store, probe
from holdfast.store.memory import MemoryStore
from holdfast.testing.faults import Around
from servers import S3Server


def test_a_good_store_passes_and_keeps_nothing_of_the_probe(any_store: Store) -> None:
    findings = probe(any_store)
    assert all(finding.ok for finding in findings)
    assert {"create", "create, raced", "get", "get_ranges", "list", "folders", "put", "copy", "write", "delete"} == {
        finding.verb for finding in findings
    }
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
