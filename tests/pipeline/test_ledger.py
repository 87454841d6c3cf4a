"""The ledger: single decisions, joined ones, and their way into the repository."""

from __future__ import annotations

import time

import pytest

import holdfast
from holdfast.epochs import EpochDecision, Link, Staged
from holdfast.errors import DamagedRecord, StoreUnavailable
from holdfast.layout import Slot
from holdfast.pipeline import carrier as carrying
from holdfast.pipeline.carrier import Carrier
from holdfast.pipeline.ledger import Ledger, merged
from holdfast.pipeline.trimming import trim
from holdfast.store.memory import MemoryStore
from holdfast.testing.faults import CountingStore


def decision(epoch: int, generation: int = 0, token: str = "t") -> EpochDecision:
    return EpochDecision(
        token=token,
        generation=generation,
        attempt=0,
        before=Link(epoch - 1, "a"),
        after=Link(epoch, "b"),
        offsets=b"v1",
        sources={},
        staged=Staged("memory://x", [], ""),
        tokens={},
        states={"seen": b"\x00\xff"},
    )


def carried(remote: Ledger, local: Ledger) -> Carrier:
    return Carrier(0, remote, local, lambda: None)


def test_decisions_read_the_same_alone_and_joined() -> None:
    ledger = Ledger(MemoryStore(), "ledger/")
    several = [decision(epoch) for epoch in range(4)]
    for each in several:
        ledger.add(each)
    assert ledger.read() == several
    ledger.join(1, several)
    assert ledger.read() == several
    ledger.remove_alone(several)
    assert ledger.read() == several
    assert [each.epoch for each in ledger.read(after=1)] == [2, 3]
    assert [(e.generation, e.first, e.last) for e in ledger.entries()] == [(1, 0, 3)]


def test_the_last_decision_is_found_by_one_listing_and_one_read() -> None:
    store = CountingStore(MemoryStore())
    ledger = Ledger(store, "ledger/0000000000/")
    assert ledger.last_decided(4) is None
    for first in (0, 5, 8):
        whole = Ledger(store, "ledger/")
        whole.join(0, [decision(epoch) for epoch in range(first, first + 3)])
    store.reset()
    found = ledger.last_decided(4)
    assert found is not None
    assert found.epoch == 10
    assert store.counts == {"list": 1, "get": 1}
    assert ledger.last_decided(11) is None


def test_two_places_that_do_not_agree_are_damage() -> None:
    with pytest.raises(DamagedRecord):
        merged([decision(3)], [decision(3, token="other")])


def test_a_reader_that_finds_a_decision_joined_under_its_hands_looks_again() -> None:
    class Joining(MemoryStore):
        """Joins what is there between the list and the first get."""

        joined = False

        def get(self, key: str) -> bytes:
            if not self.joined:
                self.joined = True
                ledger.join(0, several)
                ledger.remove_alone(several)
            return super().get(key)

    ledger = Ledger(Joining(), "ledger/")
    several = [decision(epoch) for epoch in range(2)]
    for each in several:
        ledger.add(each)
    assert ledger.read() == several


def test_decisions_arrive_in_the_background_and_are_joined_with_a_capture() -> None:
    remote, local = Ledger(MemoryStore(), "remote/"), Ledger(MemoryStore())
    carrier = carried(remote, local)
    several = [decision(epoch) for epoch in range(3)]
    for each in several:
        local.add(each)
        carrier.note(each)
    until = time.monotonic() + 10
    while not remote.read():
        assert time.monotonic() < until
        time.sleep(0.01)
    carrier.join()
    assert remote.read() == several
    assert len(remote.entries()) == 1
    assert local.read() == []
    carrier.join()
    assert len(remote.entries()) == 1
    carrier.close()


def test_what_did_not_arrive_in_the_background_arrives_with_the_capture_or_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Away(MemoryStore):
        away = True

        def create(self, key: str, data: bytes | bytearray | memoryview) -> bool:
            if self.away:
                raise StoreUnavailable(self.url, f"create {key}", "it is away", 1)
            return super().create(key, data)

    monkeypatch.setattr(carrying, "EVERY_SECONDS", 0.01)
    store = Away()
    remote, local = Ledger(store, "remote/"), Ledger(MemoryStore())
    carrier = carried(remote, local)
    local.add(decision(0))
    carrier.note(decision(0))
    with pytest.raises(StoreUnavailable):
        carrier.join()
    assert local.read() == [decision(0)]
    store.away = False
    carrier.join()
    carrier.close()
    assert remote.read() == [decision(0)]
    assert local.read() == []


def test_whoever_closes_it_leaves_nothing_behind_that_could_be_sent() -> None:
    remote = Ledger(MemoryStore(), "remote/")
    carrier = carried(remote, Ledger(MemoryStore()))
    carrier.note(decision(0))
    until = time.monotonic() + 10
    while not remote.read():
        assert time.monotonic() < until
        time.sleep(0.01)
    carrier.note(decision(1))
    carrier.note(decision(2))
    carrier.close()
    assert [each.epoch for each in remote.read()] == [0, 1, 2]


def test_many_epochs_between_two_captures_cost_few_requests() -> None:
    store = CountingStore(MemoryStore())
    carrier = carried(Ledger(store, "remote/"), Ledger(MemoryStore()))
    for epoch in range(500):
        carrier.note(decision(epoch))
    carrier.join()
    carrier.close()
    assert sum(store.counts.values()) <= 6


def test_a_ledger_is_trimmed_up_to_the_oldest_checkpoint_and_left_alone_if_that_is_damaged() -> None:
    store = MemoryStore()
    repository = holdfast.open(store, create=True)
    with repository.pipeline("orders").recover() as checkpointer:
        for epoch in (3, 5):
            checkpointer.save_manifest(checkpointer.begin(epoch))
    records = repository.pipeline("orders").records
    ledger = Ledger(records.store, records.keys.ledger)
    ledger.join(0, [decision(epoch) for epoch in range(3)])
    ledger.join(0, [decision(epoch) for epoch in range(2, 6)])
    oldest = records.keys.manifest(Slot(0, 0))
    whole = records.store.get(oldest)
    store.put(oldest, whole.replace(b"epoch", b"espoo", 1))
    assert trim(ledger, holdfast.open(store).pipeline("orders").records, None) == 0
    store.put(oldest, whole)
    assert trim(ledger, holdfast.open(store).pipeline("orders").records, None) == 1
    assert [each.epoch for each in ledger.read()] == [2, 3, 4, 5]
