"""A standby follows, says how far behind it is, and outlasts both stores."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from builders import NAME, dump, epochs, filled, keys_of, look, make_repo, save, start
from holdfast.errors import BadValue, Diverged, StoreUnavailable
from holdfast.handles import Repository, open_url
from holdfast.layout import Slot
from holdfast.standby import Ended, Event, Failed, Followed, Standby, Waiting
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
            lambda: open_url(self.source),
            lambda: open_url(self.target),
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
    assert (last.lag.here.slot, last.lag.here.epoch, last.lag.seconds, last.lag.bytes) == (Slot(1, 1), 4, 0, 0)
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
