"""Patience, on a clock of our own: how long, how often, and what is told in the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import AccessDenied, ObjectMissing, OutcomeUnknown, StoreError, StoreFailure, StoreUnavailable
from holdfast.store import CHUNK, RetryPolicy
from holdfast.store.memory import MemoryStore
from holdfast.store.retry import RetryingStore, Transient
from holdfast.testing.faults import Around

T = TypeVar("T")


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0
        self.naps: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.now += seconds


class Scripted(Around):
    """Goes through a list of fates, one for each operation: "ok", "lost" (never sent), "late" (done, reply lost)."""

    def __init__(self, *fates: str | StoreError, forever: str = "ok") -> None:
        super().__init__(MemoryStore())
        self.fates: Iterator[str | StoreError] = iter(fates)
        self.forever = forever
        self.seen: list[str] = []

    def _around(self, verb: str, act: Callable[[], T]) -> T:
        self.seen.append(verb)
        match next(self.fates, self.forever):
            case "ok":
                return act()
            case "lost":
                raise Transient("refused", may_have_landed=False)
            case "doubt":
                raise Transient("timed out")
            case "late":
                act()
                raise Transient("reset")
            case StoreError() as error:
                raise error
        raise AssertionError


def patient(store: Scripted, clock: Clock, policy: RetryPolicy | None = None) -> RetryingStore:
    return RetryingStore(store, policy or RetryPolicy(), sleep=clock.sleep, clock=clock)


def test_reads_are_retried_like_writes() -> None:
    store = Scripted("ok", "lost", "doubt", "ok", "doubt", "ok", "lost", "ok")
    retrying = patient(store, Clock())
    retrying.put("k", b"1")
    assert retrying.get("k") == b"1"
    assert retrying.list("") == [("k", 1)]
    assert retrying.folders("") == []


def test_the_budget_bounds_the_time_and_the_last_words_are_told() -> None:
    clock = Clock()
    with pytest.raises(StoreUnavailable, match=r"memory://: get k kept failing for 60 s: timed out") as raised:
        patient(Scripted(forever="doubt"), clock).get("k")
    assert raised.value.seconds == pytest.approx(60)
    assert clock.now == pytest.approx(60)


def test_a_budget_of_nothing_is_one_attempt() -> None:
    store = Scripted(forever="doubt")
    with pytest.raises(StoreUnavailable):
        patient(store, Clock(), RetryPolicy(budget_seconds=0)).get("k")
    assert store.seen == ["get"]


@given(attempt=st.integers(0, 10_000), first=st.floats(0.001, 10), most=st.floats(0.001, 100))
def test_delays_stay_within_their_bounds(attempt: int, first: float, most: float) -> None:
    delay = RetryPolicy(first_delay=first, max_delay=most).delay(attempt)
    assert 0 <= delay <= min(most, first * 2.0 ** min(attempt, 60))


def test_delays_are_spread_at_random() -> None:
    assert len({RetryPolicy().delay(5) for _ in range(20)}) == 20


def test_a_permanent_error_is_told_at_once() -> None:
    clock = Clock()
    store = Scripted(AccessDenied("memory://", "get k", "no"))
    with pytest.raises(AccessDenied):
        patient(store, clock).get("k")
    with pytest.raises(ObjectMissing):
        patient(store, clock).get("k")
    assert clock.naps == []


def test_a_create_that_landed_unheard_is_ours() -> None:
    store = Scripted("late")
    assert patient(store, Clock()).create("k", b"mine") is True
    assert store.seen == ["create", "get"]


def test_a_create_that_was_never_sent_is_simply_sent_again() -> None:
    store = Scripted("lost", "lost")
    assert patient(store, Clock()).create("k", b"mine") is True
    assert store.seen == ["create", "create", "create"]


def test_a_create_in_doubt_is_looked_for_before_it_is_sent_again() -> None:
    store = Scripted("doubt")
    assert patient(store, Clock()).create("k", b"mine") is True
    assert store.seen == ["create", "get", "create"]


def test_a_create_in_doubt_that_another_won_is_lost() -> None:
    store = Scripted("doubt")
    store.inner.create("k", b"theirs")
    assert patient(store, Clock()).create("k", b"mine") is False


def test_a_create_in_doubt_to_the_end_is_unknown() -> None:
    with pytest.raises(OutcomeUnknown) as raised:
        patient(Scripted("doubt", forever="lost"), Clock()).create("k", b"mine")
    assert raised.value.key == "k"


def test_a_create_in_doubt_whose_look_is_denied_is_unknown() -> None:
    with pytest.raises(OutcomeUnknown):
        patient(Scripted("doubt", AccessDenied("memory://", "get k", "expired")), Clock()).create("k", b"mine")


def test_a_create_that_never_got_through_has_failed() -> None:
    with pytest.raises(StoreUnavailable):
        patient(Scripted(forever="lost"), Clock()).create("k", b"mine")


@given(fates=st.lists(st.sampled_from(["ok", "lost", "doubt", "late"]), max_size=12), taken=st.booleans())
def test_whatever_fails_a_create_tells_the_truth(fates: list[str], taken: bool) -> None:
    store = Scripted(*fates)
    if taken:
        store.inner.create("k", b"theirs")
    assert patient(store, Clock()).create("k", b"mine") is not taken
    assert store.inner.get("k") == (b"theirs" if taken else b"mine")


def test_a_small_stream_is_sent_again_as_a_whole() -> None:
    store = Scripted("lost", "late")
    assert patient(store, Clock()).write("k", iter([b"a", b"b"])) == 2
    assert store.inner.get("k") == b"ab"


def test_a_large_stream_passes_by_once() -> None:
    store = Scripted("doubt")
    with pytest.raises(StoreUnavailable):
        patient(store, Clock()).write("k", iter([bytes(CHUNK), b"1"]))
    assert store.seen == ["write"]
    assert patient(store, Clock()).write("k", iter([bytes(CHUNK), b"1"])) == CHUNK + 1
    assert store.inner.get("k") == bytes(CHUNK) + b"1"


def test_a_stream_to_a_taken_key_is_refused() -> None:
    store = Scripted()
    store.inner.create("k", b"theirs")
    with pytest.raises(StoreFailure, match="taken"):
        patient(store, Clock()).write("k", [b"mine"])


def test_keys_to_delete_may_come_from_an_iterator() -> None:
    store = Scripted("lost", "lost")
    store.inner.create("k", b"1")
    patient(store, Clock()).delete(iter(["k"]))
    assert store.inner.list("") == []


def test_a_stream_that_fits_one_range_costs_one_request() -> None:
    store = Scripted()
    store.inner.create("k", b"123")
    assert [*patient(store, Clock()).read("k")] == [b"123"]
    assert store.seen == ["get_ranges"]
