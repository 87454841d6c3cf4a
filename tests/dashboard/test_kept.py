from __future__ import annotations

import time
from itertools import count

import pytest

from builders import flip, make_repo
from dashboard.sample import Writer
from holdfast.dashboard import fleet as fleet_module
from holdfast.dashboard.fleet import Fleet
from holdfast.dashboard.kept import Kept, KeptReads
from holdfast.handles import Repository, open_url
from holdfast.layout import Slot
from holdfast.manifest import HEAD_LIMIT
from holdfast.report import read_history
from holdfast.store import open_store
from holdfast.testing.faults import CountingStore

NOW = time.time_ns() // 1_000_000


def written(store: CountingStore, checkpoints: int = 30, name: str = "orders") -> Writer:
    repository = make_repo(store) if not store.list("pipelines/") else open_url(store)
    it = Writer(repository, name, NOW, partitions=1)
    it.claim(0)
    it.hint(it.run(0, range(checkpoints), 1_000, 1_000))
    return it


@pytest.fixture
def counting() -> CountingStore:
    return CountingStore(open_store("memory://"))


def test_the_oldest_unused_goes_first_when_it_weighs_too_much() -> None:
    kept: Kept[str, bytes] = Kept(10, len)
    kept.put("a", b"1234")
    kept.put("b", b"1234")
    assert kept.get("a") == b"1234"
    kept.put("c", b"1234")
    assert (kept.get("a"), kept.get("b"), kept.get("c")) == (b"1234", None, b"1234")
    kept.put("c", b"1")
    kept.put("d", b"12345")
    assert len(kept) == 3
    kept.put("huge", b"x" * 99)
    assert kept.get("huge") is None


def test_heads_and_records_are_read_once(counting: CountingStore) -> None:
    it = written(counting)
    repository = open_url(KeptReads(counting))
    for first in (True, False):
        counting.reset()
        read_history(repository.pipeline("orders"))
        reads = counting.counts["get_ranges"]
        assert reads == (30 if first else 0)
    assert it.store is counting


def test_memory_stays_within_its_bound_however_much_is_read(counting: CountingStore) -> None:
    it = written(counting, 200)
    reads = KeptReads(counting, most_bytes=20_000)
    for number in range(200):
        reads.get_ranges(it.keys.manifest(Slot(0, number)), [(0, HEAD_LIMIT)])
    assert len(reads._kept) < 20


def test_damage_is_not_kept(counting: CountingStore) -> None:
    it = written(counting, 3)
    key = it.keys.manifest(Slot(0, 1))
    flip(counting, key, 40)
    repository = open_url(KeptReads(counting))
    assert [row.slot for row in read_history(repository.pipeline("orders")).rows if row.problem] == ["0-1"]
    flip(counting, key, 40)
    assert not any(row.problem for row in read_history(repository.pipeline("orders")).rows)


def test_it_is_for_looking_only(counting: CountingStore) -> None:
    reads = KeptReads(counting)
    for act in (
        lambda: reads.put("latest", b""),
        lambda: reads.create("latest", b""),
        lambda: reads.delete(["latest"]),
        lambda: reads.copy("a", "b"),
        lambda: reads.write("a", []),
    ):
        with pytest.raises(NotImplementedError):
            act()


# ---- the fleet ----


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that moves only when told."""
    now = [1000.0]

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return now[0]

    monkeypatch.setattr(fleet_module, "time", Clock)
    return now


def looking(counting: CountingStore) -> Repository:
    return open_url(KeptReads(counting))


def test_a_pipeline_whose_hint_has_not_moved_costs_one_request(counting: CountingStore, clock: list[float]) -> None:
    it = written(counting)
    fleet = Fleet(looking(counting))
    try:
        fleet.look(["orders"])
        counting.reset()
        fleet.look(["orders"])
        assert counting.total == 0
        clock[0] += fleet_module.FRESH_SECONDS + 0.1
        fleet.look(["orders"])
        assert counting.total == 1
        it.hint(it.run(0, range(31), 1_000, 0))
        clock[0] += fleet_module.FRESH_SECONDS + 0.1
        [row] = fleet.look(["orders"])
        assert row.seen is not None
        assert row.seen.newest == "0-30"
    finally:
        fleet.close()


def test_a_take_over_is_seen_although_the_hint_has_not_moved(counting: CountingStore, clock: list[float]) -> None:
    it = written(counting)
    fleet = Fleet(looking(counting))
    try:
        fleet.look(["orders"])
        it.claim(1, began=Slot(0, 29))
        clock[0] += fleet_module.CLOSE_LOOK_SECONDS + 0.1
        [row] = fleet.look(["orders"])
        assert row.seen is not None
        assert row.seen.generation == 1
    finally:
        fleet.close()


def test_nobody_looks_and_nothing_is_asked(counting: CountingStore) -> None:
    written(counting)
    fleet = Fleet(looking(counting))
    counting.reset()
    fleet.close()
    assert counting.total == 0


def test_pipelines_that_are_gone_are_not_listed_any_more(counting: CountingStore, clock: list[float]) -> None:
    written(counting, 3)
    other = written(counting, 3, "other")
    fleet = Fleet(looking(counting))
    try:
        assert [row.name for row in fleet.rows()] == ["orders", "other"]
        counting.delete([info.key for info in counting.list(other.keys.prefix)])
        clock[0] += 60
        assert [row.name for row in fleet.rows()] == ["orders"]
        assert fleet.look(["other"]) == []
    finally:
        fleet.close()


def test_a_folder_that_is_no_pipeline_is_left_out(counting: CountingStore) -> None:
    written(counting, 3)
    counting.inner._shelf.set("pipelines/<script>/x", b"")  # type: ignore[attr-defined]
    fleet = Fleet(looking(counting))
    try:
        assert [row.name for row in fleet.rows()] == ["orders"]
    finally:
        fleet.close()


def test_all_are_swept_in_the_background_once_somebody_looks(counting: CountingStore) -> None:
    for number in range(20):
        written(counting, 2, f"p{number:02}")
    fleet = Fleet(looking(counting))
    try:
        for _ in count():
            rows = fleet.rows()
            if all(row.seen for row in rows):
                break
            time.sleep(0.02)
        assert len(rows) == 20
    finally:
        fleet.close()
