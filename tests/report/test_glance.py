"""Read models of whole pipelines: at a glance, page by page, over time."""

from __future__ import annotations

import time

import pytest

from builders import flip, make_repo
from dashboard.sample import Writer, make_fleet
from holdfast.epochs import EpochDecision, Link, Staged
from holdfast.errors import BadName
from holdfast.handles import Repository, open_url
from holdfast.layout import Slot
from holdfast.pipeline.ledger import Ledger
from holdfast.records import VoidSlot
from holdfast.report import course_at, glance, read_history, sample
from holdfast.report.course import position
from holdfast.store import Store, open_store
from holdfast.testing.faults import CountingStore

NOW = time.time_ns() // 1_000_000


@pytest.fixture
def fleet(memory_store: Store) -> Repository:
    return make_fleet(memory_store, NOW)


def test_a_glance_tells_what_the_newest_checkpoint_says(fleet: Repository) -> None:
    it = glance(fleet.pipeline("orders"))
    assert it is not None
    assert (it.newest, it.epoch, it.generation, it.claimed) == ("3-29", 73, 3, 3)
    assert it.usual_interval_ms == 60_000
    assert it.timestamp_ms is not None
    assert it.watermark is not None
    assert it.lag_ms == it.timestamp_ms - it.watermark
    assert it.sinks == {"lake.orders_by_hour": "committed", "postgres.totals": "committed"}
    assert (it.committed_ms, it.committed_epoch) == (it.timestamp_ms, 73)


def test_a_glance_at_what_is_not_there_is_none(fleet: Repository) -> None:
    assert glance(fleet.pipeline("nothing")) is None


def test_a_damaged_newest_checkpoint_is_told_with_all_that_is_known(fleet: Repository) -> None:
    it = glance(fleet.pipeline("inventory"))
    assert it is not None
    assert it.problem
    assert "does not match" in it.problem or "do not match" in it.problem
    assert (it.generation, it.newest) == (0, "0-13")


def test_where_the_newest_cannot_be_read_the_figures_are_those_of_the_last_that_can(fleet: Repository) -> None:
    it = glance(fleet.pipeline("inventory"))
    assert it is not None
    assert (it.figures_of, it.epoch, it.processed_records) == ("0-12", 12, 12 * 900)
    assert it.timestamp_ms == it.committed_ms == NOW - 90_000
    assert it.lag_ms is not None
    assert it.bytes
    assert it.sinks == {"lake.orders_by_hour": "committed", "postgres.totals": "committed"}
    well = glance(fleet.pipeline("orders"))
    assert well is not None
    assert well.figures_of == well.newest


def test_where_a_generation_has_nothing_that_can_be_read_the_one_before_tells(memory_store: Store) -> None:
    it = Writer(make_repo(memory_store), "orders", NOW, partitions=1)
    it.claim(0)
    it.run(0, range(5), 1_000, 60_000)
    it.claim(1, "start", Slot(0, 2))
    it.hint(it.run(1, range(3, 5), 1_000, 1_000, Slot(0, 2)))
    for number in range(2):
        flip(memory_store, it.keys.manifest(Slot(1, number)), 40)
    seen = glance(it.pipeline)
    assert seen is not None
    assert (seen.newest, seen.figures_of, seen.epoch) == ("1-1", "0-2", 2)


def test_a_look_for_what_can_be_read_ends_where_all_is_damage() -> None:
    costs = []
    for generations in (5, 40):
        store = CountingStore(open_store("memory://"))
        it = Writer(make_repo(store), "orders", NOW, partitions=1)
        began = None
        for generation in range(generations):
            it.claim(generation, began=began)
            began = it.run(generation, range(2), 1_000, 1_000, began)
            it.hint(began)
            for number in range(2):
                flip(store, it.keys.manifest(Slot(generation, number)), 40)
        store.reset()
        seen = glance(open_url(store).pipeline("orders"))
        assert seen is not None
        assert seen.problem
        assert (seen.figures_of, seen.epoch) == (None, None)
        costs.append(store.total - generations)  # Each base is read once, and was before.
    assert costs[0] == costs[1]


def test_a_commit_that_is_newer_than_the_newest_checkpoint_is_told(memory_store: Store) -> None:
    it = Writer(make_repo(memory_store), "orders", NOW, partitions=1)
    it.claim(0)
    it.hint(it.run(0, range(5), 1_000, 60_000))
    decision = EpochDecision(
        token="t",
        generation=0,
        attempt=0,
        before=Link(6, "a"),
        after=Link(7, "b"),
        offsets=b"v1",
        sources={},
        staged=Staged("memory://x", [], ""),
        tokens={},
        created_ms=NOW - 2_000,
    )
    Ledger(memory_store, it.keys.ledger).join(0, [decision])
    seen = glance(it.pipeline)
    assert seen is not None
    assert (seen.epoch, seen.committed_epoch, seen.committed_ms) == (4, 7, NOW - 2_000)


def test_slots_that_were_given_up_are_told(memory_store: Store) -> None:
    it = Writer(make_repo(memory_store), "orders", NOW, partitions=2)
    it.claim(0)
    it.hint(it.run(0, range(3), 1_000, 1_000))
    it.put(it.keys.manifest(Slot(0, 3)), VoidSlot(token="t", generation=0, slot=3))
    it.checkpoint(Slot(0, 4), 4, 0)
    seen = glance(it.pipeline)
    assert seen is not None
    assert (seen.newest, seen.given_up) == ("0-4", ["0-3"])


def test_a_glance_costs_the_same_however_many_checkpoints_there_are() -> None:
    costs = []
    for count in (10, 300):
        store = CountingStore(open_store("memory://"))
        it = Writer(make_repo(store), "orders", NOW, partitions=1)
        it.claim(0)
        it.hint(it.run(0, range(count), 1_000, 1_000))
        store.reset()
        glance(open_url(store).pipeline("orders"))
        costs.append(store.total)
    assert costs[0] == costs[1]


def test_a_history_is_read_page_by_page_the_newest_first(fleet: Repository) -> None:
    orders = fleet.pipeline("orders")
    first = read_history(orders, "timeline", 0, 30)
    assert [row.slot for row in first.rows] == [f"3-{n}" for n in range(30)]
    assert (first.pages, first.counts) == (3, {"timeline": 74, "abandoned": 12, "savepoints": 2})
    assert read_history(orders, "timeline", 99, 30).page == 2
    assert [row.slot for row in read_history(orders, "savepoints").rows] == ["1-9", "3-12"]
    assert {row.on_timeline for row in read_history(orders, "abandoned").rows} == {False}


def test_a_page_reads_only_its_own_heads(memory_store: Store) -> None:
    store = CountingStore(memory_store)
    it = Writer(make_repo(store), "orders", NOW, partitions=1)
    it.claim(0)
    it.hint(it.run(0, range(200), 1_000, 1_000))
    store.reset()
    read_history(open_url(store).pipeline("orders"), "timeline", 0, 20)
    assert store.counts["get_ranges"] == 20


def test_damage_stands_in_the_history_where_it_is(fleet: Repository) -> None:
    rows = read_history(fleet.pipeline("inventory")).rows
    assert [row.slot for row in rows if row.problem] == ["0-9", "0-13"]


def test_a_course_has_a_number_for_each_source(fleet: Repository) -> None:
    newest = fleet.pipeline("orders").latest()
    assert newest is not None
    found = course_at(newest)
    assert found.sources["orders"] == sum(48_000 + 73 * 130 + n * 7 for n in range(6))
    assert found.sources["customers"] == 0x16B3748 + 73 * 4096


@pytest.mark.parametrize(
    ("offsets", "number"),
    [({}, None), ({"a": "1", "b": "41"}, 42), ({"lsn": "1/0"}, 2**32), ({"gtid": "3E11:1-5"}, None)],
)
def test_a_place_is_a_number_where_it_can_be_one(offsets: dict[str, str], number: int | None) -> None:
    assert position(offsets) == number


def test_a_sample_has_the_first_and_the_last() -> None:
    assert sample(list(range(100)), 4) == [0, 33, 66, 99]
    assert sample([1, 2], 4) == [1, 2]


@pytest.mark.parametrize("text", ["", "1", "1-", "1-2-3", "a-b", "1-2\n", "99999999999-1"])
def test_what_is_no_slot_is_refused(text: str) -> None:
    assert Slot.read("3-14") == Slot(3, 14)
    with pytest.raises(BadName):
        Slot.read(text)
