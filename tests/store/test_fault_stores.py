"""The stores that fail on purpose fail just as they say."""

from __future__ import annotations

from typing import Literal

import pytest

from holdfast.errors import OutcomeUnknown
from holdfast.store import Store
from holdfast.testing import CountingStore, Crash, CrashingStore, LateStore


def test_requests_are_counted_by_verb(memory_store: Store) -> None:
    store = CountingStore(memory_store)
    store.create("a/1", b"1")
    store.create("a/2", b"1")
    store.get("a/1")
    assert b"".join(store.read("a/1")) == b"1"
    assert store.counts == {"create": 2, "get": 1, "read": 1}
    assert store.total == 4
    store.reset()
    assert store.total == 0


@pytest.mark.parametrize(("when", "left"), [("before", ["1"]), ("after", ["1", "2"])])
def test_a_crash_comes_before_or_after_its_operation(
    memory_store: Store, when: Literal["before", "after"], left: list[str]
) -> None:
    store = CrashingStore(memory_store, at=1, when=when)
    store.create("1", b"1")
    assert not store.crashed
    with pytest.raises(Crash):
        store.create("2", b"2")
    assert store.crashed
    with pytest.raises(Crash):
        store.get("1")
    assert [info.key for info in memory_store.list("")] == left


def test_no_except_exception_catches_a_crash() -> None:
    assert not issubclass(Crash, Exception)


def test_a_late_create_lands_only_when_told_and_only_where_the_key_is_free(memory_store: Store) -> None:
    store = LateStore(memory_store, delays=lambda key: key.startswith("late/"))
    assert store.create("prompt", b"1") is True
    for key in ("late/free", "late/taken"):
        with pytest.raises(OutcomeUnknown):
            store.create(key, b"late")
    assert [info.key for info in memory_store.list("")] == ["prompt"]
    memory_store.create("late/taken", b"void")
    assert store.land() == ["late/free"]
    assert memory_store.get("late/free") == b"late"
    assert memory_store.get("late/taken") == b"void"
    assert store.land() == []
