"""A repository on a disk that is not mounted looks empty and takes writes: a copier concludes nothing from that.

Walked on stores in memory, at every request of a round; then with real folders that are moved away, and with a real
server that is killed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from builders import dump, epochs, filled, keys_of, look, make_repo, save, start, state
from holdfast.copying import Copier
from holdfast.errors import (
    BadInput,
    Diverged,
    HoldfastError,
    MissingRecords,
    PipelineMissing,
    RepositoryGone,
    StoreError,
)
from holdfast.handles import Repository, open_url
from holdfast.layout import Slot
from holdfast.standby import Event, Failed, Followed, Standby
from holdfast.store import ObjectInfo, RetryPolicy, Store, open_store
from holdfast.testing.faults import Around
from servers import MortalS3

T = TypeVar("T")
FOR_GOOD = 1_000_000
SECONDS = 60
IMPATIENT = RetryPolicy(budget_seconds=2)


class Unmounted(Around):
    """From request number `at` on, and for so many requests, an empty store answers in place of the real one."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.can_vanish = True
        self.real, self.bare = store, open_store("memory://")
        self.at, self.length, self.count = FOR_GOOD, 0, 0
        self._lock = threading.Lock()

    def leave(self, at: int, length: int) -> None:
        self.at, self.length, self.count = self.count + at, length, self.count

    def come_back(self) -> None:
        self.inner, self.at = self.real, FOR_GOOD

    def _around(self, verb: str, act: Callable[[], T]) -> T:
        with self._lock:
            is_away = self.at <= self.count < self.at + self.length
            self.inner = self.bare if is_away else self.real
            self.count += 1
            return act()


def changing(source: Repository) -> None:
    """All that a round can bring or take away: bytes that are shared, a name, a pin, outcomes, a prune, a take-over."""
    with start(source) as run:
        save(run, 10, {0: state(0), 1: state(10, 1)})
        save(run, 11, {0: state(0), 1: state(11, 1)})
        save(run, 12, {0: state(0), 1: state(12, 1)})
    look(source)["epoch:10"].savepoint("v1")
    look(source)["epoch:1"].unpin()
    look(source)["epoch:11"].pin("a look at it")
    look(source).forget(Slot(0, 0))


def records(repo: Repository) -> dict[str, bytes]:
    """All that there is of the pipeline, but for the hint, which is no record."""
    return {k: v for k, v in dump(repo.store).items() if k.startswith(keys_of().prefix) and k != keys_of().latest}


class Ends:
    """A source and a target, one of which goes away, and a copier that has brought the target up once."""

    def __init__(self, leaving: str) -> None:
        self.source, self.target = filled(4), make_repo()
        with start(self.source) as run:
            save(run, 4, {0: state(0)})
        look(self.source)["epoch:1"].pin("for a while")
        look(self.source)["epoch:3"].pin("for good")
        self.store = Unmounted(getattr(self, leaving).store)
        ends = {"source": self.source, "target": self.target, leaving: open_url(self.store)}
        self.copier = Copier(look(ends["source"]).records, look(ends["target"]).records)
        self.copier.copy()
        changing(self.source)

    def round(self) -> HoldfastError | None:
        try:
            self.copier.copy()
        except HoldfastError as error:
            return error
        return None


@pytest.mark.parametrize("length", [1, 2, 8, FOR_GOOD])
@pytest.mark.parametrize("leaving", ["source", "target"])
def test_one_that_goes_away_at_any_request_of_a_round_and_comes_back_leaves_whole_checkpoints_and_is_caught_up(
    leaving: str, length: int
) -> None:
    failed = at = 0
    while True:
        ends = Ends(leaving)
        kept = records(ends.target).items() & records(ends.source).items()
        ends.store.leave(at, length)
        before = ends.store.count
        error = ends.round()
        if ends.store.count - before <= at:
            break
        ends.store.come_back()
        assert not isinstance(error, Diverged | BadInput | PipelineMissing), (at, error)
        if length == FOR_GOOD:
            assert error is not None, at
            assert records(ends.target).items() >= kept, at
        for checkpoint in look(ends.target).checkpoints(with_abandoned=True):
            assert checkpoint.verify().damaged == [], at
        failed += error is not None
        assert [ends.round(), ends.round()] == [None, None], at
        assert look(ends.target).check(read_percent=100).damaged == [], at
        assert records(ends.source).items() <= records(ends.target).items(), at
        # What could not be deleted stays until a copier looks at all of the target: at a start.
        Copier(look(ends.source).records, look(ends.target).records).copy()
        assert records(ends.source) == records(ends.target), at
        at += 1
    assert at > 20
    assert failed > 5


@pytest.mark.parametrize("leaving", ["source", "target"])
def test_a_round_in_which_nothing_is_new_is_not_reported_by_one_end_alone(leaving: str) -> None:
    ends = Ends(leaving)
    assert [ends.round(), ends.round()] == [None, None]
    ends.store.leave(1, FOR_GOOD)
    assert isinstance(ends.round(), RepositoryGone)


def test_a_target_that_was_away_before_the_round_is_not_written_to() -> None:
    ends = Ends("target")
    ends.store.leave(0, FOR_GOOD)
    assert isinstance(ends.round(), RepositoryGone)
    assert dump(ends.store.bare) == {}


def test_another_repository_in_its_place_is_not_taken_for_it() -> None:
    ends = Ends("target")
    make_repo(ends.store.bare)
    ends.store.leave(0, FOR_GOOD)
    error = ends.round()
    assert isinstance(error, RepositoryGone)
    assert "another one lies there" in error.message
    assert len(dump(ends.store.bare)) == 1


def test_a_listing_that_was_cut_short_costs_no_bytes() -> None:
    ends = Ends("target")

    class CutShort(Around):
        """A folder that goes away while it is walked through."""

        def list(self, prefix: str, start_after: str = "") -> list[ObjectInfo]:
            found = super().list(prefix, start_after)
            return found[:2] if prefix == keys_of().checkpoints else found

    ends.store.real = CutShort(ends.store.real)
    assert isinstance(ends.round(), MissingRecords)
    ends.store.real = ends.target.store
    assert ends.round() is None
    assert look(ends.target).check(read_percent=100).damaged == []
    assert records(ends.source) == records(ends.target)


# ---- real folders ----


class Disk:
    """A folder that is taken away and put back, as a disk is unmounted and mounted."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._away = place.with_name(f"{place.name}-away")

    def open(self) -> Store:
        return open_store(str(self.place))

    def leave(self) -> Repository:
        """Where it lies meanwhile."""
        self.place.rename(self._away)
        self.place.mkdir()
        return open_url(str(self._away))

    def come_back(self) -> None:
        # What was written into the bare folder is covered when the disk is mounted again.
        self.place.rename(self.place.with_name(f"{self.place.name}-covered"))
        self._away.rename(self.place)


@contextmanager
def following(source: Callable[[], Store], target: Callable[[], Store]) -> Iterator[list[Event]]:
    """A standby between them, and what it tells."""
    told, stop, raised = list[Event](), threading.Event(), list[BaseException]()
    standby = Standby(
        lambda: (open_url(source()), open_url(target())),
        every_seconds=0.02,
        tell=lambda _, event: told.append(event),
    )

    def run() -> None:
        try:
            standby.run(stop)
        except BaseException as error:  # noqa: BLE001
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield told
    finally:
        stop.set()
        thread.join(SECONDS)
    assert raised == []


def until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def failures(told: list[Event]) -> list[Failed]:
    return [event for event in told if isinstance(event, Failed)]


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.standby.FIRST_RETRY", 0.02)
    monkeypatch.setattr("holdfast.standby.LAST_RETRY", 0.05)


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("leaving", ["source", "target"])
def test_a_standby_outlasts_a_disk_that_is_taken_away_and_put_back(leaving: str, tmp_path: Path) -> None:
    disks = {name: Disk(tmp_path / name) for name in ("source", "target")}
    source, target = filled(3, disks["source"].open()), make_repo(disks["target"].open())
    with following(disks["source"].open, disks["target"].open) as told:
        until(lambda: epochs_in(target) == [0, 1, 2])
        moved = disks[leaving].leave()
        until(lambda: failures(told))
        with start(moved if leaving == "source" else source) as run:
            save(run, 3, {0: state(2), 1: state(3, 1)})
            save(run, 4, {0: state(2), 1: state(4, 1)})
        failed = failures(told)
        until(lambda: len(failures(told)) > len(failed) + 2)
        disks[leaving].come_back()
        until(lambda: epochs_in(target) == [0, 1, 2, 3, 4])
        with start(source) as run:
            save(run, 5, {0: state(2), 1: state(5, 1)})
        until(lambda: epochs_in(target) == [0, 1, 2, 3, 4, 5])
    assert all(isinstance(event.error, RepositoryGone) for event in failed)
    assert records(source) == records(target)
    assert look(target).check(read_percent=100).damaged == []


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("leaving", ["source", "target"])
def test_a_standby_outlasts_a_server_that_is_killed_and_started_again(leaving: str, tmp_path: Path) -> None:
    mortal = MortalS3(tmp_path / "seaweedfs")
    opening: dict[str, Callable[[], Store]] = {
        name: lambda name=name: open_store(str(tmp_path / name))  # type: ignore[misc]
        for name in ("source", "target")
    }
    opening[leaving] = lambda: open_store(mortal.server.url("repository"), mortal.server.options, IMPATIENT)
    try:
        # It answers before its volumes take writes.
        open_store(mortal.server.url("repository"), mortal.server.options).create("ready", b"")
        source, target = filled(3, opening["source"]()), make_repo(opening["target"]())
        with following(opening["source"], opening["target"]) as told:
            until(lambda: epochs_in(target) == [0, 1, 2])
            mortal.kill()
            until(lambda: failures(told))
            if leaving == "source":
                mortal.start()
            with start(source) as run:
                save(run, 3, {0: state(2), 1: state(3, 1)})
                save(run, 4, {0: state(2), 1: state(4, 1)})
            if leaving == "target":
                mortal.start()
            until(lambda: (told and isinstance(told[-1], Followed)) and epochs_in(target) == [0, 1, 2, 3, 4])
        assert isinstance(failures(told)[0].error, StoreError)
        assert records(source) == records(target)
        assert look(target).check(read_percent=100).damaged == []
    finally:
        mortal.kill()


def epochs_in(repo: Repository) -> list[int]:
    return epochs(look(repo)) if look(repo).exists() else []
