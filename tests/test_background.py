"""Checkpoints in the background: captured in the loop, finished on a thread, and no failure is lost on the way."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

import holdfast
from holdfast import Checkpoint, CheckpointManager, Repository
from holdfast.background import Background
from holdfast.decide.schedule import Schedule
from holdfast.errors import BackgroundFailed, BadValue, Fenced, SinkFailed, StoreUnavailable
from holdfast.store import Buffer, Store, open_store
from holdfast.testing.faults import Around
from loop_sinks import Table, TableSink

NEVER = Schedule()


class GatedStore(Around):
    """Holds every create of a manifest at a gate, and fails as many of them as it is told to."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.gate = threading.Event()
        self.gate.set()
        self.arrived = threading.Semaphore(0)
        self.failures = 0

    def create(self, key: str, data: Buffer) -> bool:
        if "/checkpoints/" in key:
            self.arrived.release()
            self.gate.wait()
            if self.failures:
                self.failures -= 1
                raise StoreUnavailable(self.url, "create", 30, "no route")
        return super().create(key, data)


@pytest.fixture
def store() -> Iterator[GatedStore]:
    inner = open_store("memory://")
    holdfast.open(inner, create=True)
    store = GatedStore(inner)
    yield store
    store.gate.set()


@pytest.fixture
def repository(store: GatedStore) -> Repository:
    return holdfast.open(store)


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """A clock that the test moves: `passes(ms)`."""
    now = [10**15]
    monkeypatch.setattr("holdfast.stream.time.monotonic_ns", lambda: now[0])

    def move(milliseconds: int) -> None:
        now[0] += milliseconds * 1_000_000

    return move


def listing(repository: Repository, **options: Any) -> tuple[CheckpointManager, list[int]]:
    manager = CheckpointManager(repository, background=True, **options)
    return manager, manager.register("orders", "seen", [])


def drive(manager: CheckpointManager, seen: list[int], sequences: range) -> list[Future[Checkpoint]]:
    taken = []
    for sequence in sequences:
        seen.append(sequence)
        if handle := manager.on_event("orders", sequence):
            assert isinstance(handle, Future)
            taken.append(handle)
    return taken


def test_the_loop_goes_on_while_its_checkpoint_is_under_way(store: GatedStore, repository: Repository) -> None:
    manager, seen = listing(repository, every=10)
    manager.recover("orders")
    store.gate.clear()
    [handle] = drive(manager, seen, range(15))
    assert not handle.done()
    assert manager.status("orders").pending == 1
    assert manager.status("orders").last_checkpoint is None
    store.gate.set()
    manager.wait("orders")
    assert manager.status("orders").pending == 0
    assert handle.result().manifest.processed_records == 10

    again, restored = listing(repository)
    assert again.recover("orders").next_sequence == 10
    assert restored == list(range(10))


def test_the_state_is_captured_as_it_was_when_the_checkpoint_was_due(store: GatedStore, repository: Repository) -> None:
    manager = CheckpointManager(repository, background=True, every=1)
    buffer = manager.register("orders", "buffer", bytearray(b"first"))
    manager.recover("orders")
    store.gate.clear()
    manager.on_event("orders", 0)
    buffer[:] = b"later"
    store.gate.set()
    manager.wait()
    manager.recover("orders")
    assert buffer == b"first"


def test_no_more_than_max_pending_wait_and_the_loop_is_held_back(store: GatedStore, repository: Repository) -> None:
    manager, seen = listing(repository, every=1, max_pending=3)
    manager.recover("orders")
    store.gate.clear()
    drive(manager, seen, range(3))
    assert manager.status("orders").pending == 3
    assert manager.counters.backpressure_waits == 0

    loop = threading.Thread(target=drive, args=(manager, seen, range(3, 4)))
    loop.start()
    loop.join(0.2)
    assert loop.is_alive()
    assert manager.status("orders").pending == 3
    store.gate.set()
    loop.join()
    manager.wait()
    status = manager.status("orders")
    assert (status.backpressure_waits, status.pending, status.checkpoints) == (1, 0, 4)
    assert [c.epoch for c in repository.pipeline("orders")] == [0, 1, 2, 3]


def test_a_failure_is_raised_by_the_next_event_once(
    store: GatedStore, repository: Repository, passes: Callable[[int], None]
) -> None:
    manager, seen = listing(repository, every=10)
    manager.recover("orders")
    store.failures = 1
    [handle] = drive(manager, seen, range(10))
    assert isinstance(handle.exception(), StoreUnavailable)
    with pytest.raises(BackgroundFailed, match="no route") as failed:
        drive(manager, seen, range(10, 11))
    assert isinstance(failed.value.__cause__, StoreUnavailable)
    assert drive(manager, seen, range(11, 50)) == []
    passes(1000)
    assert len(drive(manager, seen, range(50, 51))) == 1
    manager.wait()
    assert manager.counters.failures == 1
    again, restored = listing(repository)
    assert again.recover("orders").next_sequence == 51
    assert restored == list(range(51))


def test_while_they_fail_one_checkpoint_at_a_time_is_tried_and_the_loop_is_not_held_back(
    store: GatedStore, repository: Repository, passes: Callable[[int], None]
) -> None:
    manager, seen = listing(repository, every=1, max_pending=2)
    manager.recover("orders")
    store.failures = 3
    drive(manager, seen, range(1))
    for attempt, pause in enumerate((1000, 2000, 4000)):
        with pytest.raises(BackgroundFailed):
            manager.wait()
        at = 1 + 20 * attempt
        passes(pause - 1)
        assert drive(manager, seen, range(at, at + 10)) == []
        passes(1)
        store.gate.clear()
        # However much time goes by, the one on its way must end first.
        assert len(drive(manager, seen, range(at + 10, at + 15))) == 1
        passes(3_600_000)
        assert drive(manager, seen, range(at + 15, at + 20)) == []
        store.gate.set()
    manager.wait()
    assert len(drive(manager, seen, range(61, 63))) == 2
    manager.wait()
    assert (manager.counters.failures, manager.counters.backpressure_waits) == (3, 0)


def test_a_later_one_that_lands_ends_the_pause(
    store: GatedStore, repository: Repository, passes: Callable[[int], None]
) -> None:
    manager, seen = listing(repository, every=5, max_pending=2)
    manager.recover("orders")
    store.gate.clear()
    store.failures = 1
    drive(manager, seen, range(12))
    store.gate.set()
    with pytest.raises(BackgroundFailed):
        manager.wait()
    assert drive(manager, seen, range(12, 14)) == []
    assert len(drive(manager, seen, range(14, 15))) == 1
    manager.wait()


def test_waiting_raises_the_first_failure_once(store: GatedStore, repository: Repository) -> None:
    manager, seen = listing(repository, every=1, max_pending=4)
    manager.recover("orders")
    store.gate.clear()
    store.failures = 1
    handles = drive(manager, seen, range(3))
    store.gate.set()
    with pytest.raises(BackgroundFailed, match="no route"):
        manager.wait()
    manager.wait()
    assert handles[0].exception() is not None
    assert [handle.result().epoch for handle in handles[1:]] == [0, 1]
    drive(manager, seen, range(3, 4))
    manager.close()


def test_closing_finishes_what_waits_and_raises_what_failed(store: GatedStore, repository: Repository) -> None:
    manager, seen = listing(repository, every=1, max_pending=4)
    manager.recover("orders")
    store.gate.clear()
    store.failures = 1
    drive(manager, seen, range(3))
    threading.Timer(0.05, store.gate.set).start()
    with pytest.raises(BackgroundFailed):
        manager.close()
    manager.close()
    again, _ = listing(repository)
    assert again.recover("orders").next_sequence == 3
    with pytest.raises(BadValue, match="closed"):
        manager.on_event("orders", 3)


def test_what_broke_the_loop_is_not_hidden_by_what_failed_behind_it(store: GatedStore, repository: Repository) -> None:
    manager, seen = listing(repository, every=1)
    store.failures = 1

    def loop() -> None:
        with manager:
            manager.recover("orders")
            drive(manager, seen, range(1))
            raise ZeroDivisionError("the loop's own")

    with pytest.raises(ZeroDivisionError) as broken:
        loop()
    assert "no route" in broken.value.__notes__[0]


def test_waiting_gives_up_after_its_timeout(store: GatedStore, repository: Repository) -> None:
    manager, seen = listing(repository, every=1)
    manager.recover("orders")
    store.gate.clear()
    drive(manager, seen, range(1))
    with pytest.raises(TimeoutError):
        manager.wait(timeout=0.01)
    store.gate.set()
    manager.wait("orders", timeout=60)


def test_one_stream_is_waited_for_without_the_others(store: GatedStore, repository: Repository) -> None:
    manager, seen = listing(repository, every=1)
    manager.recover("orders")
    manager.recover("quiet")
    store.gate.clear()
    drive(manager, seen, range(1))
    manager.wait("quiet", timeout=0.01)
    store.gate.set()
    manager.wait()


def test_being_fenced_stops_the_stream_for_good(repository: Repository) -> None:
    manager, seen = listing(repository, every=5)
    manager.recover("orders")
    drive(manager, seen, range(5))
    manager.wait()
    other, restored = listing(repository, every=5)
    assert other.recover("orders").next_sequence == 5
    drive(manager, seen, range(5, 10))
    with pytest.raises(Fenced):
        manager.wait()
    for _ in range(2):
        with pytest.raises(Fenced):
            manager.on_event("orders", 10)
        with pytest.raises(Fenced):
            manager.checkpoint("orders")
    assert manager.status("orders").fenced == 1
    drive(other, restored, range(5, 10))
    other.wait()
    assert manager.recover("orders").next_sequence == 10
    assert seen == list(range(10))


def test_checkpoints_that_wait_behind_the_fence_come_to_nothing(store: GatedStore, repository: Repository) -> None:
    manager, seen = listing(repository, every=1, max_pending=4)
    manager.recover("orders")
    store.gate.clear()
    handles = drive(manager, seen, range(4))
    store.arrived.acquire()
    taker = holdfast.open(store.inner).pipeline("orders").recover()
    store.gate.set()
    assert [type(handle.exception()) for handle in handles] == [Fenced] * 4
    assert taker.read_latest() is None
    assert manager.status("orders").fenced == 1


def test_a_sink_that_fails_in_the_background_is_driven_before_the_next(
    repository: Repository, passes: Callable[[int], None]
) -> None:
    sink = TableSink(Table(), fail_commits=2)
    manager, seen = listing(repository, every=NEVER)
    manager.register_sink("orders", "table", sink)
    manager.recover("orders")
    for sequence in range(3):
        sink.write(sequence)
        drive(manager, seen, range(sequence, sequence + 1))
    for _ in range(2):
        manager.checkpoint("orders")
        with pytest.raises(BackgroundFailed) as failed:
            manager.wait()
        assert isinstance(failed.value.__cause__, SinkFailed)
    assert len(repository.pipeline("orders").checkpoints()) == 1
    sink.write(3)
    passes(2000)
    assert len(drive(manager, seen, range(3, 4))) == 1
    manager.wait()
    assert sink.commits == [[0, 2]] * 3 + [[0, 3]]
    assert sink.table.rows == [0, 1, 2, 3]


def test_rows_of_a_checkpoint_that_failed_come_with_the_next(store: GatedStore, repository: Repository) -> None:
    sink = TableSink(Table())
    manager, seen = listing(repository, every=2, max_pending=4)
    manager.register_sink("orders", "table", sink)
    manager.recover("orders")
    store.gate.clear()
    store.failures = 1
    for sequence in range(6):
        sink.write(sequence)
        drive(manager, seen, range(sequence, sequence + 1))
    store.gate.set()
    with pytest.raises(BackgroundFailed):
        manager.wait()
    assert sink.table.rows == list(range(6))


def test_a_sink_that_can_not_prepare_fails_in_the_loop_and_frees_its_room(
    repository: Repository, passes: Callable[[int], None]
) -> None:
    sink = TableSink(Table(), fail_prepare=True)
    manager, seen = listing(repository, every=1, max_pending=1)
    manager.register_sink("orders", "table", sink)
    manager.recover("orders")
    for sequence in range(0, 15, 5):
        with pytest.raises(ConnectionError):
            drive(manager, seen, range(sequence, sequence + 1))
        assert drive(manager, seen, range(sequence + 1, sequence + 5)) == []
        passes(60_000)
    assert manager.status("orders").pending == 0
    sink.fail_prepare = False
    assert len(drive(manager, seen, range(15, 16))) == 1
    manager.wait()
    assert manager.counters.failures == 3


def test_a_sink_that_finds_itself_fenced_while_preparing_stops_the_stream(repository: Repository) -> None:
    table = Table()
    manager, seen = listing(repository, every=1)
    manager.register_sink("orders", "table", TableSink(table))
    manager.recover("orders")
    table.generation = 9
    for sequence in range(2):
        with pytest.raises(Fenced):
            drive(manager, seen, range(sequence, sequence + 1))
    assert manager.status("orders").running is False


def test_a_request_that_came_after_the_capture_waits_for_the_next(store: GatedStore, repository: Repository) -> None:
    manager, seen = listing(repository, every=NEVER)
    manager.recover("orders")
    drive(manager, seen, range(3))
    store.gate.clear()
    manager.checkpoint("orders")
    store.arrived.acquire()
    # The first checkpoint is under way; the second is captured and waits when the question comes.
    manager.checkpoint("orders")
    answers: list[Checkpoint] = []
    pipeline = holdfast.open(store.inner).pipeline("orders")
    asking = threading.Thread(target=lambda: answers.append(pipeline.request_savepoint("soon")))
    asking.start()
    while not store.inner.list("pipelines/orders/requests/"):
        pass
    drive(manager, seen, range(3, 5))
    store.gate.set()
    manager.wait()
    assert pipeline.savepoints() == {}
    manager.checkpoint("orders")
    asking.join()
    manager.wait()
    assert answers[0].manifest.processed_records == 5
    assert answers[0].epoch == 2


def test_recovery_waits_for_what_is_under_way(store: GatedStore, repository: Repository) -> None:
    manager, seen = listing(repository, every=5)
    manager.recover("orders")
    store.gate.clear()
    drive(manager, seen, range(7))
    threading.Timer(0.05, store.gate.set).start()
    assert manager.recover("orders").next_sequence == 5
    assert seen == list(range(5))


def test_streams_on_threads_of_their_own_share_the_room(repository: Repository) -> None:
    manager = CheckpointManager(repository, background=True, every=3, max_pending=2)
    failures: list[BaseException] = []

    def loop(stream: str) -> None:
        try:
            seen = manager.register(stream, "seen", [])
            manager.recover(stream)
            for sequence in range(60):
                seen.append(sequence)
                manager.on_event(stream, sequence)
                assert manager.status(stream).pending <= 2
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=loop, args=(f"stream-{n}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    manager.wait()
    assert failures == []
    assert manager.counters.checkpoints == 6 * 20
    again = CheckpointManager(repository)
    for n in range(6):
        restored = again.register(f"stream-{n}", "seen", [])
        assert again.recover(f"stream-{n}").next_sequence == 60
        assert restored == list(range(60))


def test_room_for_none_is_refused() -> None:
    with pytest.raises(BadValue, match="max_pending"):
        Background(0)


def test_a_job_that_comes_after_the_end_gives_its_room_back() -> None:
    background = Background(1)
    background.reserve("orders")
    background.close()
    with pytest.raises(RuntimeError):
        background.submit("orders", lambda: None)
    background.drain(timeout=0)


def test_a_program_that_forgets_to_close_still_ends() -> None:
    program = """
import holdfast
manager = holdfast.CheckpointManager(background=True, every=1)
manager.recover("orders")
manager.on_event("orders", 0)
manager.wait()
print("end")
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "end\n"
