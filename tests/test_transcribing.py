"""Every kind of record on its way to a copy: damaged at the source, on the way, and at the target."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from builders import (
    NAME,
    Table,
    dump,
    epochs,
    flip,
    flipped,
    keys,
    keys_of,
    look,
    make_repo,
    manifest_key,
    save,
    sinking,
    start,
)
from holdfast.copying import Copied, Copier, copy_pipeline
from holdfast.encryption.store import EncryptedStore
from holdfast.errors import DamagedCopy, DamagedRecord, Diverged
from holdfast.handles import Repository, open_url
from holdfast.ids import new_token
from holdfast.layout import Slot, parse
from holdfast.records import Intent, Joined, Kept, Settled, VoidSlot, seal
from holdfast.recovery import Demands
from holdfast.store import Store, open_store
from holdfast.testing.faults import Around

KEY = holdfast.Key.generate()
NOT_COPIED = {"latest", "data", "intent", "request", "answer", "aside"}
HOLDS_UP = {"claim", "base"}


def every_kind(repo: Repository) -> Repository:
    """Three generations, and at least one of every record that a copy brings."""
    table = Table()
    with start(repo, sinks={"table": table}) as run:
        for epoch in range(4):
            save(run, epoch, about=sinking(epoch, table=table))
    for epoch in (4, 5):
        with start(repo, demands=Demands(accept_duplicates=True)) as run:
            save(run, epoch)
            save(run, 10 * epoch)
    records, token = look(repo).records, new_token()
    look(repo)["epoch:2"].savepoint("v1")
    look(repo)["epoch:3"].pin("a look at it")
    look(repo).forget(Slot(0, 0))
    records.create(records.keys.decision(Slot(0, 1)), Kept(token=token, generation=0, slot=1))
    records.create(records.keys.joined(0, 1, token), Joined(token=token, generation=0, ranges=[(0, 0)]))
    records.create(records.keys.manifest(Slot(2, 2)), VoidSlot(token=token, generation=2, slot=2))
    records.create(records.keys.failed(Slot(0, 1), token), Settled(token=token, generation=0, slot=1, outcomes={}))
    for name in (f"{50:010}-0000.json", f"{51:010}-{52:010}.aa.joined"):
        # What it says is a pipeline's to know; it is sealed as all records are.
        sealed = seal(Intent(token=name, generation=2, slot=0))
        records.store.create(f"{records.keys.ledger}{2:010}/{name}", sealed)
    return repo


WHOLE = dump(every_kind(make_repo()).store)
RECORDS = [
    key
    for key in sorted(WHOLE)
    if (name := parse(key.removeprefix(keys_of().prefix))) is not None and name.what not in NOT_COPIED
]


def titled(key: str) -> str:
    """A name for a test, without what is drawn anew each time."""
    return re.sub(r"[0-9a-f]{32}", "token", key.removeprefix(keys_of().prefix))


def kind_of(key: str) -> str:
    name = parse(key.removeprefix(keys_of().prefix))
    assert name is not None
    return name.what


def whole() -> Repository:
    store = open_store("memory://")
    for key, data in WHOLE.items():
        store.put(key, data)
    return open_url(store)


def copy(source: Repository, target: Repository) -> Copied:
    return copy_pipeline(look(source).records, look(target).records)


def brought(target: Repository) -> dict[str, bytes]:
    found = {info.key: target.store.get(info.key) for info in target.store.list(keys_of().prefix)}
    return {key: data for key, data in found.items() if key != keys_of().latest}


def is_whole_copy(target: Repository, source: Repository | None = None) -> bool:
    everything = brought(source or whole())
    # A joined decision takes the place of those that it speaks of.
    gone = {key for key in everything if key.endswith(keys_of().decision(Slot(0, 0)))}
    return brought(target) == {key: data for key, data in everything.items() if key not in gone}


def test_the_sample_has_every_kind_of_record_that_is_copied() -> None:
    kinds = {"pipeline", "claim", "base", "manifest", "ledger", "savepoint", "pin", "decision", "joined", "settled"}
    assert {kind_of(key) for key in RECORDS} == {*kinds, "failed"}
    assert copy(whole(), target := make_repo()).damaged == []
    assert is_whole_copy(target)


@pytest.mark.parametrize("key", RECORDS, ids=titled)
def test_a_record_that_is_damaged_at_the_source_is_told_and_never_written(key: str) -> None:
    source, target = whole(), make_repo()
    flip(source.store, key, 40)
    if key == keys_of().identity:
        with pytest.raises(DamagedRecord):
            copy(source, target)
        assert brought(target) == {}
    else:
        for _ in range(2):
            copied = copy(source, target)
            assert [lost.key for lost in copied.damaged] == [key]
            assert "damaged" in copied.damaged[0].why
            found = brought(target)
            assert key not in found
            assert found.items() <= brought(whole()).items()
        if kind_of(key) not in HOLDS_UP:
            lacking = brought(whole()).keys() - found.keys() - {key, keys_of().decision(Slot(0, 0))}
            # A name for a checkpoint that is not here is not brought either, nor are bytes that only it names.
            assert all(kind_of(each) in {"savepoint", "pin", "data"} for each in lacking), lacking
            assert kind_of(key) == "manifest" or not lacking
    flip(source.store, key, 40)
    assert copy(source, target).damaged == []
    assert is_whole_copy(target)


class Turning(Around):
    """Turns a bit over in the first reply for each key that it is told of."""

    def __init__(self, store: Store, *turned: str, at: int = 40) -> None:
        super().__init__(store)
        self.left = set(turned)
        self._at = at

    def _turned(self, key: str, data: bytes) -> bytes:
        if key not in self.left or not data:
            return data
        self.left.discard(key)
        return flipped(data, self._at % len(data))

    def get(self, key: str) -> bytes:
        return self._turned(key, super().get(key))

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return [self._turned(key, data) for data in super().get_ranges(key, ranges)]


@given(at=st.integers(0, 10_000), several=st.sets(st.sampled_from(sorted(WHOLE)), min_size=1))
def test_bits_that_turn_over_on_the_way_never_arrive_and_never_pass_for_damage(at: int, several: set[str]) -> None:
    target = make_repo()
    copied = copy(open_url(Turning(whole().store, *several, at=at)), target)
    assert copied.damaged == []
    assert is_whole_copy(target)


def test_every_record_and_all_bytes_may_turn_over_on_the_way_once() -> None:
    turning, target = Turning(whole().store, *WHOLE), make_repo()
    assert copy(open_url(turning), target).damaged == []
    assert is_whole_copy(target)
    assert {kind_of(key) for key in turning.left if key.startswith(keys_of().prefix)} <= NOT_COPIED | {"decision"}


def test_what_turns_over_as_a_later_round_reads_the_target_is_read_again_too() -> None:
    source, target = whole(), make_repo()
    copy(source, target)
    turning = Turning(target.store, *dump(target.store))
    assert copy(source, open_url(turning)).damaged == []
    assert is_whole_copy(target)


@pytest.mark.parametrize("key", RECORDS, ids=titled)
def test_a_record_that_is_damaged_at_the_target_is_damage_there_and_no_divergence(key: str) -> None:
    source, target = whole(), make_repo()
    copy(source, target)
    if key not in brought(target):
        return
    flip(target.store, key, 40)
    before = brought(target)
    with start(source, demands=Demands(accept_duplicates=True)) as run:
        save(run, 77)
    told: list[DamagedCopy] = []
    try:
        copy(source, target)
    except DamagedCopy as error:
        told.append(error)
    assert [(error.key, error.url) for error in told] in ([], [(key, target.url)])
    assert all("delete that object" in error.hint for error in told)
    # What was brought once is not read again, but for what decides and for what is to be deleted.
    assert told or kind_of(key) in {"ledger", "savepoint", "pin", "settled", "failed", "decision"}
    assert before.items() <= brought(target).items()
    target.store.delete([key])
    copy(source, target)
    assert is_whole_copy(target, source)


def test_an_identity_of_another_pipeline_has_diverged_and_a_damaged_one_has_not() -> None:
    source, target = whole(), make_repo()
    with start(target) as run:
        save(run, 0)
    with pytest.raises(Diverged):
        copy(source, target)
    flip(target.store, keys_of().identity)
    with pytest.raises(DamagedCopy):
        copy(source, target)


def test_a_record_of_a_newer_format_is_told_and_holds_up_what_can_not_be_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, target = whole(), make_repo()
    records = look(source).records
    word, base = records.savepoints()["v1"], records.generations().bases[2]
    with monkeypatch.context() as newer:
        newer.setattr("holdfast.records.FORMAT", "99.0")
        source.store.put(records.keys.savepoint("v1", 0), seal(word))
        source.store.put(records.keys.base(2), seal(base))
    assert {lost.key for lost in copy(source, target).damaged} == {
        records.keys.savepoint("v1", 0),
        records.keys.base(2),
    }
    assert epochs(look(target)) == [1, 2, 3, 4, 40]


# ---- what a damaged claim or base holds up ----


def generation(target: Repository, number: int) -> list[str]:
    """All that is here of a generation, but for its claim."""
    found = ((key, name) for key in brought(target) if (name := parse(key.removeprefix(keys_of().prefix))) is not None)
    return [key for key, name in found if name.generation == number and name.what != "claim"]


def test_nothing_of_the_newest_generation_is_copied_without_its_claim_and_its_number_may_be_claimed() -> None:
    source, target = whole(), make_repo()
    with start(source, sinks={"table": Table()}, demands=Demands(accept_duplicates=True)) as run:
        save(run, 78)
    records = look(source).records
    token = new_token()
    records.create(records.keys.settled(Slot(3, 0)), Settled(token=token, generation=3, slot=0, outcomes={}))
    records.create(records.keys.joined(3, 1, token), Joined(token=token, generation=3, ranges=[(5, 5)]))
    flip(source.store, keys_of().claim(3))
    copier = Copier(look(source).records, look(target).records)
    assert [lost.key for lost in copier.copy().damaged] == [keys_of().claim(3)]
    assert (generation(target, 3), copier.missing) == ([], [Slot(3, 0)])
    assert look(target).check(read_percent=100).damaged == []
    with start(target, activate=True, demands=Demands(accept_duplicates=True)) as run:
        assert run.generation == 3
        save(run, 79)
    with pytest.raises(Diverged):
        copy(source, target)


def test_an_old_claim_holds_nothing_up() -> None:
    source, target = whole(), make_repo()
    flip(source.store, keys_of().claim(1))
    assert [lost.key for lost in copy(source, target).damaged] == [keys_of().claim(1)]
    assert brought(whole()).keys() - brought(target).keys() == {keys_of().claim(1), keys_of().decision(Slot(0, 0))}
    assert epochs(look(target)) == epochs(look(whole()))
    with start(target, activate=True, demands=Demands(accept_duplicates=True)) as run:
        assert run.generation == 3


def test_without_a_base_the_target_is_as_it_stood_before_that_generation() -> None:
    source, target = whole(), make_repo()
    flip(source.store, keys_of().base(1))
    copier = Copier(look(source).records, look(target).records)
    assert [lost.key for lost in copier.copy().damaged] == [keys_of().base(1)]
    assert (generation(target, 1), generation(target, 2)) == ([], [])
    assert copier.missing == [Slot(1, 0), Slot(1, 1), Slot(2, 0), Slot(2, 1)]
    assert epochs(look(target)) == [1, 2, 3]
    assert look(target).check(read_percent=100).damaged == []


@pytest.mark.parametrize("part", ["claim", "base"])
def test_what_was_brought_before_it_was_damaged_holds_nothing_up(part: str) -> None:
    source, target = whole(), make_repo()
    copy(source, target)
    key = getattr(keys_of(), part)(2)
    flip(source.store, key)
    with open_source(source, key) as run:
        save(run, 6)
    copied = copy(source, target)
    assert [lost.key for lost in copied.damaged] == [key]
    assert epochs(look(target))[-1] == 6
    assert target.store.get(key) == WHOLE[key]


def open_source(source: Repository, damaged: str) -> holdfast.Checkpointer:
    """Go on at the source as a run would that had read what is damaged now before it was."""
    flip(source.store, damaged)
    run = start(source, demands=Demands(accept_duplicates=True))
    flip(source.store, damaged)
    return run


def test_a_claim_that_can_not_be_compared_is_not_taken_for_the_same() -> None:
    source, target = whole(), make_repo()
    copy(source, target)
    with start(source, demands=Demands(accept_duplicates=True)) as run:
        save(run, 6)
    # Somebody has claimed that very number at the target, and has not begun.
    claim = seal(look(target).records.claim(2)).partition(b',"sha256"')[0].replace(b'"generation":2', b'"generation":3')
    target.store.create(keys_of().claim(3), claim + f',"sha256":"{hashlib.sha256(claim).hexdigest()}"}}\n'.encode())
    flip(source.store, keys_of().claim(3))
    before = brought(target)
    for _ in range(2):
        assert [lost.key for lost in copy(source, target).damaged] == [keys_of().claim(3)]
    assert brought(target) == before
    flip(source.store, keys_of().claim(3))
    with pytest.raises(Diverged):
        copy(source, target)


# ---- encrypted ----


def make_sealed() -> Repository:
    return holdfast.open(open_store("memory://"), create=True, key=KEY)


def sealed_pair() -> tuple[Repository, Repository]:
    return every_kind(make_sealed()), make_sealed()


def hidden(repo: Repository, key: str) -> tuple[Store, str]:
    """The store below the encryption, and what a key is called there."""
    assert isinstance(repo.store, EncryptedStore)
    return repo.store.inner, repo.store._names.hide(key)


def test_records_of_an_encrypted_source_are_proven_after_they_were_opened() -> None:
    source, _ = sealed_pair()
    [ledger] = keys(source.store, "0000000050-0000.json")
    for key in (ledger, manifest_key(Slot(2, 1)), keys_of().savepoint("v1", 0), keys_of().claim(2)):
        (store, name), target = hidden(source, key), make_sealed()
        flip(store, name, 60)
        assert [lost.key for lost in copy(source, target).damaged] == [key]
        assert key not in brought(target)
        flip(store, name, 60)
        assert copy(source, target).damaged == []
        assert is_whole_copy(target, source)


def test_bits_of_an_encrypted_source_may_turn_over_on_the_way() -> None:
    source, target = sealed_pair()
    assert isinstance(source.store, EncryptedStore)
    turning = Turning(source.store.inner)
    opened = holdfast.open(turning, key=KEY)
    turning.left = set(dump(source.store.inner))
    assert copy(opened, target).damaged == []
    assert is_whole_copy(target, source)


def test_a_record_that_is_damaged_in_an_encrypted_copy_is_damage_there() -> None:
    source, target = sealed_pair()
    copy(source, target)
    flip(*hidden(target, keys_of().identity), 60)
    with pytest.raises(DamagedCopy) as caught:
        copy(source, target)
    assert caught.value.key == keys_of().identity
    assert NAME in str(caught.value)
