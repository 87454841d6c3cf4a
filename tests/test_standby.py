"""A standby follows, says how far behind it is, and outlasts both stores."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from builders import (
    NAME,
    damage_state,
    dump,
    epochs,
    filled,
    flip,
    keys_of,
    look,
    make_repo,
    manifest_key,
    save,
    start,
)
from holdfast.encryption.keys import Key
from holdfast.errors import BadValue, Diverged, FormatTooNew, StoreUnavailable
from holdfast.handles import Repository, open_url
from holdfast.layout import Slot
from holdfast.records import seal
from holdfast.standby import Behind, Ended, Event, Failed, Followed, Seen, Standby, Waiting
from holdfast.store import open_store
from holdfast.testing.faults import Around

T = TypeVar("T")
SECONDS = 20


class Leaving(Around):
    """A store that can be away."""

    is_away = False

    def _around(self, verb: str, act: Callable[[], T]) -> T:
        if self.is_away:
            raise StoreUnavailable(self.url, verb, 0, "nobody answers")
        return act()


class Ends:
    """A source and a target that can go away, a standby between them, and what it tells."""

    def __init__(self, checkpoints: int = 3, *pipelines: str) -> None:
        self.source = Leaving(filled(checkpoints).store if checkpoints else make_repo().store)
        self.target = Leaving(make_repo().store)
        self.told: list[tuple[str, Event]] = []
        self.standby = Standby(
            lambda: (open_url(self.source), open_url(self.target)),
            every_seconds=0.02,
            pipelines=pipelines,
            tell=lambda name, event: self.told.append((name, event)),
        )
        self.primary, self.copy = open_url(self.source.inner), open_url(self.target.inner)

    def of(self, kind: type[T]) -> list[T]:
        return [event for _, event in self.told if isinstance(event, kind)]

    @contextmanager
    def running(self) -> Iterator[list[BaseException]]:
        stop, raised = threading.Event(), list[BaseException]()

        def run() -> None:
            try:
                self.standby.run(stop)
            except BaseException as error:  # noqa: BLE001
                raised.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield raised
        finally:
            stop.set()
            thread.join(SECONDS)
            assert not thread.is_alive()


def until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.standby.FIRST_RETRY", 0.02)
    monkeypatch.setattr("holdfast.standby.LAST_RETRY", 0.05)


def latest(repo: Repository) -> int | None:
    found = look(repo).latest() if look(repo).exists() else None
    return found.epoch if found else None


def test_it_follows_checkpoint_after_checkpoint_and_tells_of_each() -> None:
    ends = Ends()
    with ends.running() as raised:
        until(lambda: latest(ends.copy) == 2)
        with start(ends.primary) as run:
            for epoch in (3, 4):
                save(run, epoch)
                until(lambda epoch=epoch: latest(ends.copy) == epoch)  # type: ignore[misc]
    assert raised == []
    rounds = [event for event in ends.of(Followed) if event.copied.checkpoints]
    assert [event.copied.checkpoints for event in rounds] == [3, 1, 1]
    last = rounds[-1]
    assert last.lag.here is not None
    assert (last.lag.here.slot, last.lag.here.epoch, last.lag.bytes) == (Slot(1, 1), 4, 0)
    assert last.lag.source == last.lag.here
    assert 0 < last.lag.seconds < SECONDS
    assert last.age_seconds is not None
    assert last.age_seconds >= 0


@pytest.mark.parametrize("end", ["source", "target"])
def test_it_outlasts_a_store_that_goes_away_and_tells_how_far_behind_it_is(end: str) -> None:
    ends = Ends()
    with ends.running() as raised:
        until(lambda: latest(ends.copy) == 2)
        getattr(ends, end).is_away = True
        with start(ends.primary) as run:
            save(run, 3)
        until(lambda: len(ends.of(Failed)) > 3)
        getattr(ends, end).is_away = False
        until(lambda: latest(ends.copy) == 3)
    assert raised == []
    failed = ends.of(Failed)
    assert [event.failures for event in failed[:3]] == [1, 2, 3]
    lags = [event.lag for event in failed if event.lag is not None]
    assert 0 < lags[0].seconds < lags[-1].seconds
    assert dump(ends.target.inner).keys() >= {
        key for key in dump(ends.source.inner) if key.startswith(keys_of().prefix)
    }


def test_a_target_that_fails_in_the_middle_of_a_copy_leaves_a_lag_in_bytes() -> None:
    ends = Ends()

    class Full(Leaving):
        def create(self, key: str, data: bytes) -> bool:  # type: ignore[override]
            if "/data/" in key:
                raise StoreUnavailable(self.url, "create", 0, "full")
            return super().create(key, data)

    ends.target = Full(ends.target.inner)
    with ends.running():
        until(lambda: ends.of(Failed))
    lag = ends.of(Failed)[0].lag
    assert lag is not None
    assert (lag.source and lag.source.slot, lag.here) == (Slot(0, 2), None)
    assert lag.bytes == sum(checkpoint.head.bytes_new for checkpoint in look(ends.primary).checkpoints())


def test_a_damaged_record_is_told_in_each_round_and_is_not_copied() -> None:
    ends = Ends()
    look(ends.primary)["epoch:1"].savepoint("v1")
    key = keys_of().savepoint("v1", 0)
    flip(ends.source.inner, key)
    with ends.running() as raised:
        until(lambda: len(ends.of(Followed)) > 2)
        with start(ends.primary) as run:
            save(run, 3)
        until(lambda: latest(ends.copy) == 3)
    assert raised == []
    assert [lost.key for lost in ends.of(Followed)[0].copied.damaged] == [key]
    assert all(event.copied.damaged for event in ends.of(Followed))
    assert look(ends.copy).savepoints() == {}


def test_what_is_damaged_and_newest_at_the_source_is_behind_for_as_long_as_it_is() -> None:
    ends = Ends(0)
    with start(ends.primary) as run:
        save(run, 0)
        damaged = save(run, 1)
        damage_state(ends.source.inner, damaged)
        with ends.running() as raised:
            until(lambda: len(ends.of(Followed)) > 3)
            rounds = ends.of(Followed)
            save(run, 2)
            until(lambda: latest(ends.copy) == 2)
            until(lambda: ends.of(Followed)[-1].lag.here != rounds[0].lag.here)
    assert raised == []
    assert {lost.slot for event in rounds for lost in event.copied.damaged} == {damaged.at}
    for event in rounds:
        assert (event.lag.here and event.lag.here.epoch, event.lag.source and event.lag.source.epoch) == (0, 1)
        assert event.lag.bytes == look(ends.primary)["epoch:1"].head.bytes_new > 0
    seconds = [event.lag.seconds for event in rounds]
    assert seconds == sorted(set(seconds))
    last = ends.of(Followed)[-1].lag
    assert (last.here, last.here and last.here.epoch) == (last.source, 2)
    # It was level a round ago: the old one, which will never come, holds nobody up, and is still counted.
    assert last.seconds < time.time() - damaged.timestamp_ms / 1000
    assert last.bytes == rounds[0].lag.bytes


def test_a_manifest_that_can_not_be_read_is_behind_too() -> None:
    ends = Ends()
    flip(ends.source.inner, manifest_key(Slot(0, 2)))
    flip(ends.source.inner, manifest_key(Slot(0, 1)))
    with ends.running():
        until(lambda: len(ends.of(Followed)) > 2)
    lags = [event.lag for event in ends.of(Followed)]
    assert {lag.here and lag.here.epoch for lag in lags} == {0}
    assert lags[0].seconds < lags[-1].seconds


def test_a_source_that_goes_away_before_what_is_missing_was_weighed_leaves_an_unknown_lag() -> None:
    ends = Ends(0)
    with start(ends.primary) as run:
        save(run, 0)
    ends.standby.once()
    with start(ends.primary) as run:
        save(run, 1)

    class Dying(Leaving):
        """It goes away as the first manifest that is new is asked for."""

        def get(self, key: str) -> bytes:
            self.is_away = self.is_away or key == manifest_key(Slot(1, 0))
            return super().get(key)

    ends.source = Dying(ends.source.inner)
    with pytest.raises(StoreUnavailable):
        ends.standby.once()
    lag = ends.of(Failed)[0].lag
    assert lag is not None
    assert (lag.source, lag.bytes) == (Seen(Slot(1, 0), None, None), None)


def test_what_is_here_is_seen_here_while_the_source_is_away() -> None:
    ends = Ends()
    with ends.running():
        until(lambda: ends.of(Followed))
        ends.source.is_away = True
        until(lambda: ends.of(Failed))
    lag = ends.of(Failed)[-1].lag
    assert lag is not None
    assert (lag.here and lag.here.epoch, lag.source, lag.bytes) == (2, lag.here, 0)


def test_a_manifest_that_can_not_be_read_leaves_an_unknown_number_of_bytes() -> None:
    ends = Ends()
    flip(ends.source.inner, manifest_key(Slot(0, 2)))
    ends.standby.once()
    lag = ends.of(Followed)[0].lag
    assert (lag.source, lag.bytes) == (Seen(Slot(0, 2), None, None), None)


def test_a_round_that_takes_long_tells_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.standby.TELL_SECONDS", 0)
    ends = Ends(4)
    sizes = [checkpoint.head.bytes_new for checkpoint in look(ends.primary).checkpoints()]
    oldest = look(ends.primary)["epoch:0"].head.timestamp_ms / 1000
    ends.standby.once()
    told = ends.of(Behind)
    assert [(event.done, event.total) for event in told] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert [event.lag.bytes for event in told] == [sum(sizes[done:]) for done in (1, 2, 3, 4)]
    assert [event.lag.source and event.lag.source.epoch for event in told] == [3, 3, 3, None]
    # Nobody was level before: what counts is when the first that is missing was taken.
    assert 0 < told[0].lag.seconds <= time.time() - oldest


def test_one_object_that_takes_long_tells_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.standby.TELL_SECONDS", 0)
    monkeypatch.setattr("holdfast.carrying.BEAT_SECONDS", 0.01)
    ends, is_told = Ends(1), threading.Event()

    class Slow(Leaving):
        def create(self, key: str, data: bytes) -> bool:  # type: ignore[override]
            if "/data/" in key:
                assert is_told.wait(SECONDS)
            return super().create(key, data)

    ends.target = Slow(ends.target.inner)
    with ends.running():
        until(lambda: ends.of(Behind))
        is_told.set()
        until(lambda: latest(ends.copy) == 0)
    assert (ends.of(Behind)[0].done, ends.of(Behind)[0].total) == (0, 1)


def test_both_stores_may_be_away_when_it_begins() -> None:
    ends = Ends()
    ends.source.is_away = ends.target.is_away = True
    with ends.running() as raised:
        until(lambda: ends.of(Failed))
        ends.source.is_away = False
        until(lambda: len(ends.of(Failed)) > 2)
        ends.target.is_away = False
        until(lambda: latest(ends.copy) == 2)
    assert raised == []


def test_a_pipeline_that_comes_later_is_followed_too() -> None:
    ends = Ends(0)
    with ends.running():
        until(lambda: ends.of(Waiting))
        with start(ends.primary) as run:
            save(run, 0)
        until(lambda: latest(ends.copy) == 0)


def make_newer(repo: Repository, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipeline of a format that is yet to come."""
    repo.pipeline(name).recover().close()
    records = repo.pipeline(name).records
    identity = records.identity()
    with monkeypatch.context() as newer:
        newer.setattr("holdfast.records.FORMAT", "99.0")
        repo.store.put(records.keys.identity, seal(identity))


def test_a_pipeline_of_a_newer_format_is_told_and_the_others_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = Ends()
    make_newer(ends.primary, "aged", monkeypatch)
    with ends.running() as raised:
        until(lambda: latest(ends.copy) == 2)
        with start(ends.primary) as run:
            save(run, 3)
        until(lambda: latest(ends.copy) == 3)
        until(lambda: len(ends.of(Failed)) > 1)
    assert raised == []
    failed = [(name, event) for name, event in ends.told if isinstance(event, Failed)]
    assert {name for name, _ in failed} == {"aged"}
    assert isinstance(failed[0][1].error, FormatTooNew)


def test_a_pipeline_that_another_key_has_sealed_is_told_and_the_others_are_followed() -> None:
    mine, theirs = Key.generate(), Key.generate()
    store = open_store("memory://")
    source, told = open_url(store, create=True, key=mine), list[tuple[str, Event]]()
    with start(source) as run:
        save(run, 0)
    assert source.keys is not None
    source.keys.rotate(theirs)
    open_url(store, key=theirs).pipeline("aged").recover().close()
    target = make_repo()
    standby = Standby(
        lambda: (source, target), every_seconds=0.02, decrypt=True, tell=lambda *event: told.append(event)
    )
    stop = threading.Event()
    thread = threading.Thread(target=standby.run, args=(stop,))
    thread.start()
    try:
        until(lambda: latest(target) == 0)
        until(lambda: any(isinstance(event, Failed) for _, event in told))
        assert thread.is_alive()
    finally:
        stop.set()
        thread.join(SECONDS)
    assert {name for name, event in told if isinstance(event, Failed)} == {"aged"}


def test_a_named_pipeline_is_waited_for_and_others_are_let_be() -> None:
    ends = Ends(2, "another")
    with ends.running():
        until(lambda: ends.of(Waiting))
        with ends.primary.pipeline("another").recover() as run:
            save(run, 7)
        until(lambda: ends.copy.pipeline("another").exists() and ends.copy.pipeline("another").latest())
    assert not look(ends.copy).exists()


def test_a_copy_that_is_activated_ends_the_standby_and_the_others_are_followed_on() -> None:
    ends = Ends()
    with ends.primary.pipeline("another").recover() as run:
        save(run, 0)
    with ends.running() as raised:
        until(lambda: latest(ends.copy) == 2 and ends.copy.pipeline("another").exists())
        until(lambda: ends.copy.pipeline("another").latest() is not None)
        start(ends.copy, activate=True).close()
        until(lambda: ends.of(Ended))
        with ends.primary.pipeline("another").recover() as run:
            save(run, 1)
        until(lambda: [c.epoch for c in ends.copy.pipeline("another").checkpoints()] == [0, 1])
        assert raised == []
        ends.copy.pipeline("another").recover(activate=True).close()
        until(lambda: raised)
    assert isinstance(raised[0], Diverged)
    assert [name for name, event in ends.told if isinstance(event, Ended)] == [NAME, "another"]


def test_a_repository_does_not_follow_itself() -> None:
    ends = Ends()
    ends.target = ends.source
    with ends.running() as raised:
        until(lambda: raised)
    assert isinstance(raised[0], BadValue)


def test_one_round_copies_all_and_raises_what_went_wrong_after_the_others_had_their_turn() -> None:
    ends = Ends()
    ends.standby.once()
    assert epochs(look(ends.copy)) == [0, 1, 2]
    with ends.primary.pipeline("another").recover() as run:
        save(run, 0)
    start(ends.copy, activate=True).close()
    with pytest.raises(Diverged):
        ends.standby.once()
    assert ends.copy.pipeline("another").exists()
