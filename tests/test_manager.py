"""CheckpointManager: a plain loop that is checkpointed, crashes, and goes on where it stood."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast
from holdfast import Cell, Checkpoint, CheckpointManager, KeepPolicy, Repository
from holdfast.decide.schedule import Schedule
from holdfast.errors import (
    BadName,
    BadValue,
    CheckpointMissing,
    DamagedArtifact,
    Fenced,
    FingerprintMismatch,
    HoldfastError,
    NothingRestorable,
    NotMutable,
    OutcomeUnknown,
    RepositoryMissing,
    SinkFailed,
    SinksAhead,
    StoreUnavailable,
    Unsettled,
)
from holdfast.store import Store, open_store
from holdfast.testing import Crash, CrashingStore, LateStore
from holdfast.testing.faults import Around
from loop_sinks import RollingTableSink, Table, TableSink

NEVER = Schedule()


@pytest.fixture
def repository() -> Repository:
    return holdfast.open("memory://", create=True)


@pytest.fixture
def at_every_look(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """A clock that the test moves: `at_every_look(ms)` passes that many milliseconds."""
    now = [10**15]
    monkeypatch.setattr("holdfast.stream.time.monotonic_ns", lambda: now[0])

    def passes(milliseconds: int) -> None:
        now[0] += milliseconds * 1_000_000

    return passes


def totals_of(
    repository: Repository, stream: str = "orders", **options: Any
) -> tuple[CheckpointManager, dict[str, int]]:
    manager = CheckpointManager(repository, **options)
    return manager, manager.register(stream, "totals", {})


def drive(
    manager: CheckpointManager, totals: dict[str, int], sequences: range, stream: str = "orders"
) -> list[Checkpoint]:
    taken = []
    for sequence in sequences:
        totals[f"c{sequence % 3}"] = totals.get(f"c{sequence % 3}", 0) + sequence
        if checkpoint := manager.on_event(stream, sequence):
            assert isinstance(checkpoint, Checkpoint)
            taken.append(checkpoint)
    return taken


def counted(upto: int) -> dict[str, int]:
    totals: dict[str, int] = {}
    for sequence in range(upto):
        totals[f"c{sequence % 3}"] = totals.get(f"c{sequence % 3}", 0) + sequence
    return totals


# ---- saving and recovering ----


def test_a_stream_goes_on_with_the_event_after_the_last_one_included(repository: Repository) -> None:
    manager, totals = totals_of(repository, every=10)
    assert manager.recover("orders").next_sequence == 0
    drive(manager, totals, range(25))

    again, restored = totals_of(repository, every=10)
    recovered = again.recover("orders")
    assert recovered.next_sequence == 20
    assert restored == counted(20)
    drive(again, restored, range(20, 40))
    assert restored == counted(40)


def test_an_event_saves_every_registered_state_and_the_offsets(repository: Repository) -> None:
    manager = CheckpointManager(repository, every=4)
    random_numbers = manager.register("orders", "random", random.Random(7))
    array = manager.register("orders", "array", np.zeros(3))
    cell = manager.register("orders", "cell", Cell(("a", 1)))
    position = {"partition-0": "0"}
    manager.register_offsets("orders", "kafka", lambda: position)
    manager.configure("orders", metadata={"team": "billing"})
    manager.recover("orders")
    for sequence in range(4):
        drawn = random_numbers.random()
        array += sequence
        cell.value = ("b", sequence)
        position["partition-0"] = str(1000 + sequence)
        checkpoint = manager.on_event("orders", sequence, watermark=sequence * 1_000_000)
    following = random_numbers.random()

    assert isinstance(checkpoint, Checkpoint)
    manifest = checkpoint.manifest
    assert manifest.source_offsets["kafka"].offsets == {"partition-0": "1003"}
    assert (manifest.processed_records, manifest.watermark, manifest.metadata) == (4, 3, {"team": "billing"})

    again = CheckpointManager(repository, every=4)
    numbers = again.register("orders", "random", random.Random(0))
    other = again.register("orders", "array", np.ones(3))
    box = again.register("orders", "cell", Cell(None))
    again.register_offsets("orders", "kafka", dict)
    recovered = again.recover("orders")
    assert numbers.random() == following != drawn
    assert other.tolist() == [6, 6, 6]
    assert box.value == ("b", 3)
    assert recovered.state is not None
    assert recovered.source_offsets == {"kafka": {"partition-0": "1003"}}
    assert recovered.state.metadata == {"team": "billing"}
    assert (recovered.state.sequence, recovered.state.event_count, recovered.state.watermark_ns) == (3, 4, 3_000_000)
    assert recovered.state.stream == "orders"
    assert recovered.state.created_ns > 0


def test_without_a_repository_a_private_one_in_memory_is_used() -> None:
    with CheckpointManager(every=5) as manager, CheckpointManager() as other:
        totals = manager.register("orders", "totals", {})
        manager.recover("orders")
        drive(manager, totals, range(7))
        totals.clear()
        assert manager.recover("orders").next_sequence == 5
        assert totals == counted(5)
        assert other.recover("orders").next_sequence == 0


def test_an_address_must_hold_a_repository(tmp_path: Path) -> None:
    with pytest.raises(RepositoryMissing):
        CheckpointManager(str(tmp_path / "typo"))
    holdfast.open(str(tmp_path / "there"), create=True)
    with CheckpointManager(str(tmp_path / "there"), every=2) as manager:
        manager.recover("orders")
        assert manager.on_event("orders", 0) is None
        assert manager.on_event("orders", 1) is not None


def test_checkpoints_are_counted_over_restarts(repository: Repository) -> None:
    for run in range(3):
        manager, totals = totals_of(repository, every=5)
        next_sequence = manager.recover("orders").next_sequence
        taken = drive(manager, totals, range(next_sequence, next_sequence + 10))
        assert [checkpoint.epoch for checkpoint in taken] == [run * 2, run * 2 + 1]


def test_a_checkpoint_can_be_asked_for_at_any_time(repository: Repository) -> None:
    manager, totals = totals_of(repository, every=NEVER)
    manager.recover("orders")
    assert drive(manager, totals, range(100)) == []
    manager.checkpoint("orders")
    again, restored = totals_of(repository)
    assert again.recover("orders").next_sequence == 100
    assert restored == counted(100)


def test_a_checkpoint_before_any_event_recovers_to_the_first_one(repository: Repository) -> None:
    manager, totals = totals_of(repository)
    manager.recover("orders")
    totals["preloaded"] = 1
    manager.checkpoint("orders")
    again, restored = totals_of(repository)
    assert again.recover("orders").next_sequence == 0
    assert restored == {"preloaded": 1}


def test_sequences_may_have_gaps(repository: Repository) -> None:
    manager, _ = totals_of(repository, every=2)
    manager.recover("orders")
    manager.on_event("orders", 10)
    manager.on_event("orders", 500)
    again, _ = totals_of(repository)
    recovered = again.recover("orders")
    assert recovered.next_sequence == 501
    assert recovered.state is not None
    assert recovered.state.event_count == 2


def test_a_watermark_never_goes_back(repository: Repository) -> None:
    manager, _ = totals_of(repository)
    manager.recover("orders")
    for sequence, watermark in enumerate([5, None, 3]):
        manager.on_event("orders", sequence, watermark)
    assert manager.status("orders").watermark_ns == 5
    manager.checkpoint("orders")
    manager.recover("orders")
    assert manager.status("orders").watermark_ns == 5


def test_a_second_fresh_start_begins_with_the_states_of_the_first(repository: Repository) -> None:
    manager = CheckpointManager(repository, every=NEVER)
    totals = manager.register("orders", "totals", {"before": 1})
    manager.recover("orders")
    drive(manager, totals, range(5))
    assert manager.recover("orders").next_sequence == 0
    assert totals == {"before": 1}


def test_a_stream_goes_back_to_a_savepoint(repository: Repository) -> None:
    manager, totals = totals_of(repository, every=10)
    manager.recover("orders")
    taken = drive(manager, totals, range(30))
    taken[0].savepoint("before-upgrade")
    assert manager.recover("orders", to="before-upgrade").next_sequence == 10
    assert totals == counted(10)
    assert manager.recover("orders", to=taken[1].slot).next_sequence == 20
    with pytest.raises(CheckpointMissing):
        manager.recover("orders", to="epoch:77")


def test_a_request_for_a_savepoint_is_answered_with_the_next_checkpoint(repository: Repository) -> None:
    manager, totals = totals_of(repository, every=NEVER)
    manager.recover("orders")
    drive(manager, totals, range(3))
    answers: list[Checkpoint] = []
    asking = threading.Thread(target=lambda: answers.append(repository.pipeline("orders").request_savepoint("soon")))
    asking.start()
    while not repository.store.list("pipelines/orders/requests/"):
        pass
    manager.checkpoint("orders")
    asking.join()
    assert answers[0].slot == manager.status("orders").last_checkpoint.slot  # type: ignore[union-attr]


# ---- what is refused ----


def test_an_event_that_is_counted_already_is_refused(repository: Repository) -> None:
    manager, totals = totals_of(repository, every=5)
    manager.recover("orders")
    drive(manager, totals, range(5))
    with pytest.raises(BadValue, match="event 4 does not come after 4"):
        manager.on_event("orders", 4)
    manager.recover("orders")
    with pytest.raises(BadValue, match="event 2 does not come after 4"):
        manager.on_event("orders", 2)
    manager.on_event("orders", 5)
    assert manager.status("orders").event_count == 6


def test_an_event_before_recovery_is_refused_and_not_counted(repository: Repository) -> None:
    manager, _ = totals_of(repository)
    with pytest.raises(BadValue, match="recover it first"):
        manager.on_event("orders", 0)
    with pytest.raises(BadValue, match="recover it first"):
        manager.checkpoint("orders")
    assert manager.counters.events == 0
    assert not repository.pipeline("orders").exists()


@pytest.mark.parametrize("call", ["on_event", "checkpoint", "status", "wait"])
def test_a_stream_that_nobody_registered_is_refused(repository: Repository, call: str) -> None:
    manager = CheckpointManager(repository)
    with pytest.raises(BadValue, match="not known here"):
        getattr(manager, call)(*(["ordres", 0] if call == "on_event" else ["ordres"]))


def test_registering_twice_is_refused(repository: Repository) -> None:
    manager = CheckpointManager(repository)
    manager.register("orders", "totals", {})
    manager.register_offsets("orders", "kafka", dict)
    manager.register_sink("orders", "table", TableSink(Table()))
    with pytest.raises(BadValue, match="the state 'totals' is registered already"):
        manager.register("orders", "totals", {})
    with pytest.raises(BadValue, match="the source 'kafka' is registered already"):
        manager.register_offsets("orders", "kafka", dict)
    with pytest.raises(BadValue, match="the sink 'table' is registered already"):
        manager.register_sink("orders", "table", TableSink(Table()))
    manager.register("payments", "totals", {})


def test_registering_once_a_stream_runs_is_refused(repository: Repository) -> None:
    manager, _ = totals_of(repository)
    manager.recover("orders")
    for late in (
        lambda: manager.register("orders", "more", {}),
        lambda: manager.register_offsets("orders", "kafka", dict),
        lambda: manager.register_sink("orders", "table", TableSink(Table())),
        lambda: manager.configure("orders", every=5),
    ):
        with pytest.raises(BadValue, match="before that"):
            late()


def test_what_can_not_be_registered_is_refused(repository: Repository) -> None:
    manager = CheckpointManager(repository)
    with pytest.raises(NotMutable):
        manager.register("orders", "number", 5)
    with pytest.raises(BadName):
        manager.register("no/name", "totals", {})
    with pytest.raises(BadValue, match="needs a name"):
        manager.register("orders", "", {})


def test_offsets_that_are_not_text_are_refused_by_name(repository: Repository) -> None:
    manager = CheckpointManager(repository)
    manager.register_offsets("orders", "kafka", lambda: {"partition-0": 5})  # type: ignore[dict-item]
    manager.recover("orders")
    with pytest.raises(BadValue, match="source 'kafka'"):
        manager.checkpoint("orders")
    assert repository.pipeline("orders").latest() is None


def test_a_state_that_gives_no_bytes_is_refused_by_name(repository: Repository) -> None:
    class Wrong:
        def checkpoint(self) -> bytes:
            return 5  # type: ignore[return-value]

        def restore(self, data: bytes) -> None: ...

    manager = CheckpointManager(repository)
    manager.register("orders", "wrong", Wrong())
    with pytest.raises(BadValue, match="state 'wrong'"):
        manager.recover("orders")


def test_a_pipeline_of_something_else_is_refused_before_it_is_claimed(repository: Repository) -> None:
    with repository.pipeline("orders").recover() as spark:
        draft = spark.begin(0)
        spark.save_snapshot(draft, "aggregate", 0, b"rows")
        spark.save_manifest(draft)
        with pytest.raises(BadValue, match="not taken by a plain loop"):
            CheckpointManager(repository).recover("orders")
        spark.save_manifest(spark.begin(1))


def test_a_changed_fingerprint_is_refused_before_anything_is_claimed(repository: Repository) -> None:
    manager, totals = totals_of(repository)
    manager.configure("orders", fingerprint=holdfast.fingerprint(version=1))
    manager.recover("orders")
    drive(manager, totals, range(3))
    manager.checkpoint("orders")
    changed, restored = totals_of(repository)
    changed.configure("orders", fingerprint=holdfast.fingerprint(version=2))
    with pytest.raises(FingerprintMismatch, match="version changed from 1 to 2"):
        changed.recover("orders")
    manager.checkpoint("orders")
    changed.recover("orders", allow_changed=True)
    assert restored == counted(3)


def test_a_state_that_is_new_or_no_longer_registered_is_named(repository: Repository) -> None:
    manager, totals = totals_of(repository)
    manager.register("orders", "seen", {1, 2})
    manager.recover("orders")
    drive(manager, totals, range(3))
    manager.checkpoint("orders")

    other = CheckpointManager(repository)
    restored = other.register("orders", "totals", {})
    names = other.register("orders", "names", ["kept"])
    with pytest.raises(FingerprintMismatch) as refused:
        other.recover("orders")
    assert refused.value.differences == ["state names was added: registered", "state seen was removed: registered"]
    assert restored == {}
    manager.checkpoint("orders")

    recovered = other.recover("orders", allow_changed=True)
    assert (restored, names) == (counted(3), ["kept"])
    assert recovered.state is not None
    assert "seen" in recovered.state.operator_states


def test_states_are_restored_all_or_none(repository: Repository) -> None:
    manager = CheckpointManager(repository)
    manager.register("orders", "a", {"saved": 1})
    manager.register("orders", "b", [1, 2, 3])
    manager.register("orders", "c", {"saved": 2})
    manager.recover("orders")
    manager.checkpoint("orders")

    other = CheckpointManager(repository)
    first = other.register("orders", "a", {"mine": 1})
    other.register("orders", "b", {"not": "a list"})
    last = other.register("orders", "c", {"mine": 2})
    with pytest.raises(BadValue, match="a list was saved") as refused:
        other.recover("orders")
    assert "state 'b'" in refused.value.__notes__[0]
    assert (first, last) == ({"mine": 1}, {"mine": 2})
    with pytest.raises(BadValue, match="recover it first"):
        other.on_event("orders", 0)


# ---- schedules ----


def test_every_stream_has_its_own_schedule(repository: Repository) -> None:
    manager = CheckpointManager(repository, every=3)
    manager.configure("slow", every="5 events")
    manager.recover("fast")
    manager.recover("slow")
    taken: dict[str, list[int]] = {"fast": [], "slow": []}
    for sequence in range(15):
        for stream, into in taken.items():
            if manager.on_event(stream, sequence):
                into.append(sequence)
    assert taken == {"fast": [2, 5, 8, 11, 14], "slow": [4, 9, 14]}


def test_recovery_begins_the_schedule_anew(repository: Repository) -> None:
    manager, totals = totals_of(repository, every=10)
    manager.recover("orders")
    drive(manager, totals, range(19))
    again, restored = totals_of(repository, every=10)
    assert again.recover("orders").next_sequence == 10
    assert [c.manifest.processed_records for c in drive(again, restored, range(10, 40))] == [20, 30, 40]
    drive(again, restored, range(40, 45))
    assert again.recover("orders").next_sequence == 40
    assert drive(again, restored, range(40, 49)) == []
    assert len(drive(again, restored, range(49, 50))) == 1


def test_a_schedule_can_go_by_the_clock(repository: Repository, at_every_look: Callable[[int], None]) -> None:
    manager, totals = totals_of(repository, every="30 seconds")
    manager.recover("orders")
    assert drive(manager, totals, range(100)) == []
    at_every_look(29_999)
    assert drive(manager, totals, range(100, 101)) == []
    at_every_look(1)
    assert len(drive(manager, totals, range(101, 102))) == 1
    at_every_look(29_000)
    assert drive(manager, totals, range(102, 103)) == []
    manager.recover("orders")
    at_every_look(29_000)
    assert drive(manager, totals, range(102, 103)) == []
    at_every_look(1_000)
    assert len(drive(manager, totals, range(103, 104))) == 1


def test_whichever_comes_first_of_events_and_time(repository: Repository, at_every_look: Callable[[int], None]) -> None:
    manager, totals = totals_of(repository, every=Schedule(every_events=10, every_ms=1000))
    manager.recover("orders")
    assert len(drive(manager, totals, range(10))) == 1
    at_every_look(1000)
    assert len(drive(manager, totals, range(10, 11))) == 1
    assert len(drive(manager, totals, range(11, 21))) == 1


# ---- damage and races ----


def test_a_damaged_checkpoint_is_fallen_back_over_and_reported(tmp_path: Path) -> None:
    repository = holdfast.open(str(tmp_path), create=True)
    manager = CheckpointManager(repository, every=10)
    blob = manager.register("orders", "blob", bytearray(5000))
    manager.recover("orders")
    for sequence in range(30):
        blob[sequence] = 1
        manager.on_event("orders", sequence)
    newest = repository.pipeline("orders").latest()
    assert newest is not None
    packs = [path for path in newest.manifest.objects if newest.manifest.upload in path]
    damaged = tmp_path / "pipelines/orders" / packs[0]
    damaged.write_bytes(damaged.read_bytes()[:-4000] + bytes(4000))

    again = CheckpointManager(repository.url, every=10)
    restored = again.register("orders", "blob", bytearray())
    with pytest.raises(NothingRestorable):
        again.recover("orders", max_fallback=0)
    recovered = again.recover("orders")
    assert recovered.next_sequence == 20
    assert sum(restored) == 20
    assert [skipped.slot for skipped in recovered.skipped] == [newest.slot]
    assert DamagedArtifact.code in recovered.skipped[0].why
    assert again.counters.skipped == 1


def test_a_second_manager_fences_the_first_for_good(repository: Repository) -> None:
    first, totals = totals_of(repository, every=5)
    first.recover("orders")
    drive(first, totals, range(7))
    second, restored = totals_of(repository, every=5)
    assert second.recover("orders").next_sequence == 5

    with pytest.raises(Fenced):
        drive(first, totals, range(7, 10))
    for _ in range(2):
        with pytest.raises(Fenced):
            first.on_event("orders", 10)
        with pytest.raises(Fenced):
            first.checkpoint("orders")
    status = first.status("orders")
    assert (status.fenced, status.running, status.next_sequence) == (1, False, 10)

    drive(second, restored, range(5, 15))
    assert restored == counted(15)
    assert first.recover("orders").next_sequence == 15
    assert totals == counted(15)


class FailingStore(Around):
    """Fails every operation that touches a key with the given text in it, while `failing` is set."""

    def __init__(self, store: Store, text: str) -> None:
        super().__init__(store)
        self.text = text
        self.failing = False

    def create(self, key: str, data: Any) -> bool:
        self._fail(key)
        return super().create(key, data)

    def get(self, key: str) -> bytes:
        self._fail(key)
        return super().get(key)

    def list(self, prefix: str, start_after: str = "") -> Any:
        self._fail(prefix)
        return super().list(prefix, start_after)

    def _fail(self, key: str) -> None:
        if self.failing and self.text in key:
            raise StoreUnavailable(self.url, "reach it", 30, "no route")


def attempts(manager: CheckpointManager, totals: dict[str, int], sequences: range) -> list[int]:
    """The events at which a checkpoint was tried; all of them fail."""
    tried = []
    for sequence in sequences:
        try:
            assert drive(manager, totals, range(sequence, sequence + 1)) == []
        except StoreUnavailable:
            tried.append(sequence)
    return tried


def test_after_a_failure_the_first_event_after_a_pause_takes_the_checkpoint(
    memory_store: Store, at_every_look: Callable[[int], None]
) -> None:
    holdfast.open(memory_store, create=True)
    store = FailingStore(memory_store, "/checkpoints/")
    manager, totals = totals_of(holdfast.open(store), every=10)
    manager.recover("orders")
    store.failing = True
    assert attempts(manager, totals, range(9)) == []
    assert attempts(manager, totals, range(9, 40)) == [9]
    at_every_look(999)
    assert attempts(manager, totals, range(40, 80)) == []
    at_every_look(1)
    assert attempts(manager, totals, range(80, 120)) == [80]
    store.failing = False
    assert drive(manager, totals, range(120, 150)) == []
    at_every_look(2000)
    taken = drive(manager, totals, range(150, 170))
    assert [c.manifest.processed_records for c in taken] == [151, 161]
    assert manager.counters.failures == 2
    again, restored = totals_of(holdfast.open(memory_store))
    assert again.recover("orders").next_sequence == 161
    assert restored == counted(161)


@pytest.mark.parametrize("every", [1, 1000, "250 ms", "1 hour", NEVER])
def test_the_pauses_double_up_to_a_minute_whatever_the_schedule(
    memory_store: Store, at_every_look: Callable[[int], None], every: Any
) -> None:
    holdfast.open(memory_store, create=True)
    store = FailingStore(memory_store, "/checkpoints/")
    manager, totals = totals_of(holdfast.open(store), every=every)
    manager.recover("orders")
    store.failing = True
    with pytest.raises(StoreUnavailable):
        manager.checkpoint("orders")
    tried, sequence = [], 0
    for second in range(1, 250):
        at_every_look(1000)
        tried += [second for _ in attempts(manager, totals, range(sequence, sequence + 5))]
        sequence += 5
    assert tried == [1, 3, 7, 15, 31, 63, 123, 183, 243]


def test_once_a_checkpoint_is_durable_the_pauses_begin_anew(
    memory_store: Store, at_every_look: Callable[[int], None]
) -> None:
    holdfast.open(memory_store, create=True)
    store = FailingStore(memory_store, "/checkpoints/")
    manager, totals = totals_of(holdfast.open(store), every=1)
    manager.recover("orders")
    for start in (0, 100):
        store.failing = True
        assert attempts(manager, totals, range(start, start + 10)) == [start]
        at_every_look(1000)
        assert attempts(manager, totals, range(start + 10, start + 20)) == [start + 10]
        store.failing = False
        manager.checkpoint("orders")
        assert len(drive(manager, totals, range(start + 20, start + 25))) == 5


def test_recovery_ends_the_pause(memory_store: Store, at_every_look: Callable[[int], None]) -> None:
    holdfast.open(memory_store, create=True)
    store = FailingStore(memory_store, "/checkpoints/")
    manager, totals = totals_of(holdfast.open(store), every=2)
    manager.recover("orders")
    store.failing = True
    assert attempts(manager, totals, range(5)) == [1]
    store.failing = False
    assert manager.recover("orders").next_sequence == 0
    assert len(drive(manager, totals, range(4))) == 2


def test_a_checkpoint_on_demand_is_tried_at_once_in_a_pause(
    memory_store: Store, at_every_look: Callable[[int], None]
) -> None:
    holdfast.open(memory_store, create=True)
    store = FailingStore(memory_store, "/checkpoints/")
    manager, totals = totals_of(holdfast.open(store), every=5)
    manager.recover("orders")
    store.failing = True
    assert attempts(manager, totals, range(9)) == [4]
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            manager.checkpoint("orders")
    store.failing = False
    checkpoint = manager.checkpoint("orders")
    assert isinstance(checkpoint, Checkpoint)
    assert checkpoint.manifest.processed_records == 9


def test_a_checkpoint_whose_reply_was_lost_is_settled_before_the_next(
    memory_store: Store, at_every_look: Callable[[int], None]
) -> None:
    holdfast.open(memory_store, create=True)
    lost = [True]
    store = LateStore(memory_store, lambda key: lost[0] and "/checkpoints/" in key)
    table = Table()
    manager, totals = totals_of(holdfast.open(store), every=5)
    sink = TableSink(table)
    manager.register_sink("orders", "table", sink)
    manager.recover("orders")
    with pytest.raises(OutcomeUnknown):
        feed(manager, totals, range(5), sink)
    store.land()
    lost[0] = False
    at_every_look(1000)
    feed(manager, totals, range(5, 6), sink)
    assert table.rows == [0, 1, 2, 3, 4, 5]
    assert sink.commits == [[0, 4], [0, 5]]
    assert manager.counters.checkpoints == 2
    assert [c.epoch for c in holdfast.open(memory_store).pipeline("orders")] == [0, 1]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_at_any_request_loses_and_doubles_nothing(when: Any) -> None:
    at = 0
    while True:
        inner = open_store("memory://")
        holdfast.open(inner, create=True)
        store = CrashingStore(inner, at, when)
        table = Table()
        with suppress(Crash):
            run(holdfast.open(store), table, 12)
        state = run(holdfast.open(inner), table, 30)
        assert state == counted(30), at
        assert table.rows == list(range(30)), at
        if not store.crashed:
            break
        at += 1
    assert at > 50


def run(repository: Repository, table: Table, upto: int) -> dict[str, int]:
    manager, totals = totals_of(repository, every=2, keep=KeepPolicy(last=2))
    sink = TableSink(table)
    manager.register_sink("orders", "table", sink)
    try:
        for sequence in range(manager.recover("orders").next_sequence, upto):
            sink.write(sequence)
            drive(manager, totals, range(sequence, sequence + 1))
    finally:
        manager.close()
    return totals


# ---- sinks ----


def with_sinks(repository: Repository, **sinks: TableSink) -> tuple[CheckpointManager, dict[str, int]]:
    manager, totals = totals_of(repository, every=5)
    for name, sink in sinks.items():
        manager.register_sink("orders", name, sink)
    return manager, totals


def feed(manager: CheckpointManager, totals: dict[str, int], sequences: range, *sinks: TableSink) -> list[Checkpoint]:
    taken = []
    for sequence in sequences:
        for sink in sinks:
            sink.write(sequence)
        taken += drive(manager, totals, range(sequence, sequence + 1))
    return taken


def test_a_sink_shows_what_a_checkpoint_holds_and_no_more(repository: Repository) -> None:
    sink = TableSink(Table())
    manager, totals = with_sinks(repository, table=sink)
    manager.recover("orders")
    [taken] = feed(manager, totals, range(8), sink)
    assert sink.table.rows == [0, 1, 2, 3, 4]
    assert taken.sinks["table"].status == "committed"
    assert taken.manifest.sink_commit_statuses["table"].status == "pending"
    assert taken.manifest.sink_epochs == {"table": 0}


def test_a_sink_that_can_not_prepare_stops_the_checkpoint(
    repository: Repository, at_every_look: Callable[[int], None]
) -> None:
    good, bad = TableSink(Table()), TableSink(Table(), fail_prepare=True)
    manager, totals = with_sinks(repository, a=good, b=bad)
    manager.recover("orders")
    with pytest.raises(ConnectionError) as failed:
        feed(manager, totals, range(5), good, bad)
    assert "sink 'b'" in failed.value.__notes__[0]
    assert repository.pipeline("orders").latest() is None
    assert (good.table.rows, bad.table.rows) == ([], [])
    bad.fail_prepare = False
    at_every_look(1000)
    feed(manager, totals, range(5, 6), good, bad)
    assert good.table.rows == bad.table.rows == [0, 1, 2, 3, 4, 5]


def test_a_sink_that_fails_is_driven_first_and_never_passed(
    repository: Repository, at_every_look: Callable[[int], None]
) -> None:
    good, bad = TableSink(Table()), TableSink(Table(), fail_commits=3)
    manager, totals = with_sinks(repository, a=good, b=bad)
    manager.recover("orders")
    for sequences in (range(5), range(5, 6), range(6, 7)):
        with pytest.raises(SinkFailed, match="'b'"):
            feed(manager, totals, sequences, good, bad)
        assert len(repository.pipeline("orders").checkpoints()) == 1
        at_every_look(60_000)
    [taken] = feed(manager, totals, range(7, 8), good, bad)
    assert bad.commits == [[0, 4]] * 4 + [[0, 7]]
    assert taken.epoch == 1
    assert good.table.rows == bad.table.rows == list(range(8))
    assert manager.counters.failures == 3
    assert manager.counters.checkpoints == 2


def test_a_checkpoint_on_demand_drives_a_failed_sink_first(repository: Repository) -> None:
    sink = TableSink(Table(), fail_commits=1)
    manager, totals = with_sinks(repository, table=sink)
    manager.recover("orders")
    feed(manager, totals, range(3), sink)
    with pytest.raises(SinkFailed):
        manager.checkpoint("orders")
    manager.checkpoint("orders")
    assert sink.commits == [[0, 2], [0, 2], [0, 2]]
    assert sink.table.rows == [0, 1, 2]


def test_an_event_drives_a_sink_that_failed_on_demand_whatever_the_schedule(
    repository: Repository, at_every_look: Callable[[int], None]
) -> None:
    sink = TableSink(Table(), fail_commits=1)
    manager, totals = totals_of(repository, every=NEVER)
    manager.register_sink("orders", "table", sink)
    manager.recover("orders")
    feed(manager, totals, range(3), sink)
    with pytest.raises(SinkFailed):
        manager.checkpoint("orders")
    at_every_look(1000)
    assert len(feed(manager, totals, range(3, 5), sink)) == 1
    assert sink.table.rows == [0, 1, 2, 3]


def test_recovery_drives_a_decided_checkpoint_forward(repository: Repository) -> None:
    table = Table()
    sink = TableSink(table, fail_commits=1)
    manager, totals = with_sinks(repository, table=sink)
    manager.recover("orders")
    with pytest.raises(SinkFailed):
        feed(manager, totals, range(5), sink)
    assert table.rows == []

    without, _ = totals_of(repository)
    with pytest.raises((Unsettled, FingerprintMismatch)):
        without.recover("orders")
    with pytest.raises(Unsettled):
        without.recover("orders", allow_changed=True)

    sink = TableSink(table)
    again, restored = with_sinks(repository, table=sink)
    assert again.recover("orders").next_sequence == 5
    assert table.rows == [0, 1, 2, 3, 4]
    feed(again, restored, range(5, 10), sink)
    assert table.rows == list(range(10))
    with pytest.raises(Fenced):
        manager.checkpoint("orders")


def test_a_sink_goes_back_with_the_state(repository: Repository) -> None:
    table = Table()
    sink = RollingTableSink(table)
    manager, totals = with_sinks(repository, table=sink)
    manager.recover("orders")
    taken = feed(manager, totals, range(20), sink)
    recovered = manager.recover("orders", to=taken[1].slot)
    assert recovered.rolled_back == ("table",)
    assert table.rows == list(range(10))
    feed(manager, totals, range(10, 15), sink)
    assert (table.rows, totals) == (list(range(15)), counted(15))


def test_a_sink_that_can_not_go_back_is_refused_unless_duplicates_are_accepted(repository: Repository) -> None:
    sink = TableSink(Table())
    manager, totals = with_sinks(repository, table=sink)
    manager.recover("orders")
    taken = feed(manager, totals, range(10), sink)
    with pytest.raises(SinksAhead):
        manager.recover("orders", to=taken[0].slot)
    with pytest.raises(BadValue, match="recover it first"):
        manager.on_event("orders", 10)
    assert manager.recover("orders", to=taken[0].slot, accept_duplicates=True).next_sequence == 5


def test_a_sink_that_finds_itself_fenced_stops_the_stream(repository: Repository) -> None:
    table = Table()
    sink = TableSink(table)
    manager, totals = with_sinks(repository, table=sink)
    manager.recover("orders")
    table.generation = 9
    with pytest.raises(Fenced):
        feed(manager, totals, range(5), sink)
    with pytest.raises(Fenced):
        manager.on_event("orders", 5)


def test_a_token_that_json_can_not_hold_is_refused_at_once(repository: Repository) -> None:
    class Raw(TableSink):
        def prepare(self, sequence: int) -> Any:
            return b"bytes would come back as something else"

    manager, _ = with_sinks(repository, table=Raw(Table()))
    manager.recover("orders")
    with pytest.raises(BadValue, match="token of sink 'table'"):
        manager.checkpoint("orders")


# ---- retention ----


def test_each_stream_keeps_its_own_bounded_past(repository: Repository) -> None:
    manager = CheckpointManager(repository, every=1, keep=KeepPolicy(last=4))
    manager.configure("long", keep=KeepPolicy(last=20))
    manager.configure("all", keep=KeepPolicy())
    most = dict.fromkeys(["short", "long", "all"], 0)
    for stream in most:
        manager.recover(stream)
    for sequence in range(60):
        for stream in most:
            manager.on_event(stream, sequence)
            standing = len(repository.pipeline(stream).checkpoints())
            most[stream] = max(most[stream], standing)
            assert standing >= min(sequence + 1, 4)
    assert most == {"short": 7, "long": 27, "all": 60}
    assert manager.status("short").prunes > manager.status("long").prunes > 0
    assert manager.status("all").prunes == 0


def test_the_past_stays_bounded_over_restarts(repository: Repository) -> None:
    for _ in range(10):
        manager, totals = totals_of(repository, every=1, keep=KeepPolicy(last=3))
        next_sequence = manager.recover("orders").next_sequence
        drive(manager, totals, range(next_sequence, next_sequence + 3))
    assert len(repository.pipeline("orders").checkpoints()) <= 3 + 2 + 1
    assert totals == counted(30)


def test_a_savepoint_outlives_retention(repository: Repository) -> None:
    manager, totals = totals_of(repository, every=1, keep=KeepPolicy(last=2))
    manager.recover("orders")
    [first] = drive(manager, totals, range(1))
    first.savepoint("first")
    drive(manager, totals, range(1, 30))
    assert manager.recover("orders", to="first").next_sequence == 1


def test_a_prune_that_fails_is_shown_and_tried_again_and_fails_no_checkpoint(memory_store: Store) -> None:
    holdfast.open(memory_store, create=True)
    store = FailingStore(memory_store, "/savepoints/")
    repository = holdfast.open(store)
    manager, totals = totals_of(repository, every=1, keep=KeepPolicy(last=2))
    manager.recover("orders")
    drive(manager, totals, range(2))
    store.failing = True
    assert len(drive(manager, totals, range(2, 10))) == 8
    status = manager.status("orders")
    assert (status.prunes, status.prune_failures, status.failures) == (0, 6, 0)
    assert status.prune_error is not None
    assert "no route" in status.prune_error
    store.failing = False
    drive(manager, totals, range(10, 11))
    status = manager.status("orders")
    assert (status.prunes, status.prune_error) == (1, None)
    assert len(repository.pipeline("orders").checkpoints()) == 2


def test_bytes_that_a_killed_run_left_are_swept(memory_store: Store) -> None:
    holdfast.open(memory_store, create=True)
    store = FailingStore(memory_store, "/checkpoints/")
    killed = CheckpointManager(holdfast.open(store), every=1)
    killed.register("orders", "blob", bytearray(5000))
    killed.recover("orders")
    store.failing = True
    with pytest.raises(StoreUnavailable):
        killed.on_event("orders", 0)
    left = {info.key for info in memory_store.list("pipelines/orders/data/")}
    assert left

    manager = CheckpointManager(holdfast.open(memory_store), every=1, keep=KeepPolicy(last=2))
    blob = manager.register("orders", "blob", bytearray(5000))
    manager.recover("orders")
    for sequence in range(10):
        blob[sequence] = 1
        manager.on_event("orders", sequence)
    assert not left & {info.key for info in memory_store.list("pipelines/orders/data/")}


# ---- status, threads, closing ----


def test_the_status_tells_where_a_stream_stands(repository: Repository) -> None:
    manager, totals = totals_of(repository, every=5)
    manager.recover("orders")
    taken = drive(manager, totals, range(12))
    status = manager.status("orders")
    assert (status.stream, status.running, status.next_sequence, status.event_count) == ("orders", True, 12, 12)
    assert (status.events, status.checkpoints, status.pending, status.failures) == (12, 2, 0, 0)
    assert status.bytes == sum(checkpoint.bytes for checkpoint in taken)
    assert status.last_checkpoint is not None
    assert status.last_checkpoint.slot == taken[-1].slot
    manager.recover("orders")
    drive(manager, totals, range(10, 13))
    status = manager.status("orders")
    assert (status.events, status.event_count, status.next_sequence) == (15, 13, 13)
    manager.recover("payments")
    manager.on_event("payments", 0)
    assert manager.counters.events == 16


def test_threads_drive_streams_of_their_own(repository: Repository) -> None:
    manager = CheckpointManager(repository, every=7, keep=KeepPolicy(last=2))
    failures: list[BaseException] = []

    def loop(stream: str) -> None:
        try:
            totals = manager.register(stream, "totals", {})
            manager.recover(stream)
            drive(manager, totals, range(100), stream)
            manager.checkpoint(stream)
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=loop, args=(f"stream-{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert manager.counters.events == 800
    assert manager.counters.checkpoints == 8 * 15
    again = CheckpointManager(repository)
    for n in range(8):
        totals = again.register(f"stream-{n}", "totals", {})
        assert again.recover(f"stream-{n}").next_sequence == 100
        assert totals == counted(100)


def test_a_closed_manager_takes_nothing(repository: Repository) -> None:
    manager, totals = totals_of(repository, every=5)
    with manager:
        manager.recover("orders")
        drive(manager, totals, range(7))
    manager.close()
    with pytest.raises(BadValue, match="closed"):
        manager.on_event("orders", 7)
    with pytest.raises(BadValue, match="closed"):
        manager.recover("orders")
    with pytest.raises(BadValue):
        manager.register("orders", "more", {})
    again, _ = totals_of(repository)
    assert again.recover("orders").next_sequence == 5


@settings(max_examples=60, deadline=None)
@given(
    lives=st.lists(st.tuples(st.integers(0, 25), st.booleans()), min_size=1, max_size=6),
    every=st.integers(1, 9),
    background=st.booleans(),
)
def test_however_often_it_dies_every_event_is_counted_once(
    lives: list[tuple[int, bool]], every: int, background: bool
) -> None:
    repository, table = holdfast.open("memory://", create=True), Table()
    for length, ask in lives:
        manager, totals = totals_of(repository, every=every, background=background, keep=KeepPolicy(last=2))
        sink = TableSink(table)
        manager.register_sink("orders", "table", sink)
        start = manager.recover("orders").next_sequence
        assert totals == counted(start)
        assert table.rows == list(range(start))
        for sequence in range(start, start + length):
            totals[f"c{sequence % 3}"] = totals.get(f"c{sequence % 3}", 0) + sequence
            sink.write(sequence)
            manager.on_event("orders", sequence)
        if ask:
            manager.checkpoint("orders")
        manager.wait()
        # It is dropped as it stands; the threads go, as they would with their process.
        manager.close()


def test_a_look_that_fails_after_the_manifest_landed_costs_nothing(
    memory_store: Store, at_every_look: Callable[[int], None]
) -> None:
    holdfast.open(memory_store, create=True)
    store = FailingStore(memory_store, "/generations/0000000001")
    sink = TableSink(Table())
    manager, totals = with_sinks(holdfast.open(store), table=sink)
    manager.recover("orders")
    feed(manager, totals, range(4), sink)
    store.failing = True
    with pytest.raises(StoreUnavailable):
        feed(manager, totals, range(4, 5), sink)
    store.failing = False
    for sequence in range(5, 15):
        at_every_look(1000)
        with suppress(HoldfastError):
            feed(manager, totals, range(sequence, sequence + 1), sink)
    manager.checkpoint("orders")
    assert sink.table.rows == list(range(15))
    assert all(c.sinks["table"].status == "committed" for c in manager.repository.pipeline("orders"))
    again, restored = with_sinks(holdfast.open(memory_store), table=sink)
    assert again.recover("orders").next_sequence == 15
    assert restored == counted(15)
