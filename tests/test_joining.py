from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import NAME, epochs, filled, keys, look, make_repo, manifest_key, save, start
from holdfast import joining
from holdfast.decide.retention import KeepPolicy
from holdfast.errors import BeingForgotten
from holdfast.handles import Repository, open_url
from holdfast.ids import new_token
from holdfast.joining import ranges
from holdfast.layout import Slot
from holdfast.manifest import encode_manifest
from holdfast.names import name_checkpoint, pin_checkpoint
from holdfast.records import Intent
from holdfast.store import open_store
from holdfast.testing.faults import Crash, CrashingStore


@pytest.fixture(autouse=True)
def _join_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "JOIN_ABOVE", 3)


def prune(repo: Repository) -> None:
    look(repo).prune(KeepPolicy(last=2), dry_run=False)


def records_of(repo: Repository) -> list[str]:
    return ["joined" if "-joined-" in key else "alone" for key in keys(repo.store, "forgotten/")]


@given(st.sets(st.integers(0, 60)))
def test_ranges_hold_the_same_numbers_in_as_few_pieces_as_can_be(numbers: set[int]) -> None:
    found = ranges(numbers)
    assert {n for first, last in found for n in range(first, last + 1)} == numbers
    assert all(later[0] > earlier[1] + 1 for earlier, later in pairwise(found))


def test_a_few_decisions_stand_alone_and_many_are_joined_without_changing_what_they_mean() -> None:
    repo = filled(5)
    prune(repo)
    assert records_of(repo) == ["alone"] * 3
    with start(repo) as run:
        for epoch in range(5, 12):
            save(run, epoch)
    prune(repo)
    with start(repo) as run:
        for epoch in range(12, 20):
            save(run, epoch)
    prune(repo)
    assert records_of(repo).count("joined") >= 1
    assert len(records_of(repo)) < 10
    assert epochs(look(repo))[-2:] == [18, 19]
    assert look(repo).check(read_percent=100).damaged == []


def test_a_long_life_leaves_one_record_for_all_that_was_forgotten() -> None:
    repo = make_repo()
    with start(repo) as run:
        for epoch in range(40):
            save(run, epoch)
            if epoch % 5 == 4:
                prune(repo)
    assert len(records_of(repo)) <= 4
    assert look(repo).records.forgotten() == {Slot(0, n) for n in range(38)}
    assert look(repo).records.forgotten(Slot(0, 36)) == {Slot(0, 36), Slot(0, 37)}
    assert epochs(look(repo)) == [38, 39]


def joined() -> Repository:
    repo = filled(8)
    prune(repo)
    assert records_of(repo) == ["joined"]
    return repo


def test_what_was_forgotten_and_joined_is_still_forgotten_to_everybody() -> None:
    """No name, pin, rewind or late manifest brings it back, and its slot is never used again."""
    repo = filled(8)
    old = look(repo).records.manifest(Slot(0, 1))
    head = look(repo).records.head(Slot(0, 1))
    prune(repo)
    records = look(repo).records
    with pytest.raises(BeingForgotten):
        name_checkpoint(records, head, "v1")
    with pytest.raises(BeingForgotten):
        pin_checkpoint(records, Slot(0, 1), "audit")
    repo.store.create(manifest_key(Slot(0, 1)), encode_manifest(old))
    assert epochs(look(repo)) == [6, 7]
    prune(repo)
    assert not keys(repo.store, manifest_key(Slot(0, 1)))
    with start(repo) as run:
        assert save(run, 8).at == Slot(1, 0)


def test_a_decision_whose_prune_was_killed_is_not_joined_before_it_is_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    repo = filled(8)
    records, token = look(repo).records, new_token()
    for number in range(3):
        look(repo).forget(Slot(0, number))
    records.create(records.keys.intent(Slot(0, 0), token), Intent(token=token, generation=0, slot=0))
    monkeypatch.setattr(joining, "JOIN_ABOVE", 1)
    joining.join_decisions(look(repo).records)
    assert records.keys.decision(Slot(0, 0)) in keys(repo.store)
    assert records.keys.decision(Slot(0, 1)) not in keys(repo.store)
    assert look(repo).records.forgotten() == {Slot(0, n) for n in range(3)}


@pytest.mark.parametrize("when", ["before", "after"])
def test_joining_killed_at_any_request_changes_nothing_of_what_counts(when: str) -> None:
    at = 1
    while True:
        inner = open_store("memory://")
        repo = filled(7, inner)
        dying = open_url(CrashingStore(inner, at, "before" if when == "before" else "after"))
        crashed = False
        try:
            dying.pipeline(NAME).prune(KeepPolicy(last=2), dry_run=False)
        except Crash:
            crashed = True
        gone = look(repo).records.forgotten()
        assert epochs(look(repo)) == [epoch for epoch in range(7) if Slot(0, epoch) not in gone]
        prune(repo)
        joining.join_decisions(look(repo).records)
        assert look(repo).records.forgotten() == {Slot(0, n) for n in range(5)}
        assert look(repo).check(read_percent=100).damaged == []
        if not crashed:
            break
        at += 1
    assert at > 10


def test_two_who_join_at_once_lose_nothing() -> None:
    repo = joined()
    with start(repo) as run:
        for epoch in range(8, 16):
            save(run, epoch)
    first, second = look(repo), look(repo)
    first.prune(KeepPolicy(last=2), dry_run=False)
    joining.join_decisions(second.records)
    assert look(repo).records.forgotten() >= {Slot(0, n) for n in range(6)}
    assert epochs(look(repo))[-2:] == [14, 15]


def test_a_copy_follows_what_was_joined() -> None:
    source, target = filled(8), make_repo()
    source.copy_to(target, NAME)
    prune(source)
    source.copy_to(target, NAME)
    assert look(target).records.forgotten() == look(source).records.forgotten()
    assert epochs(look(target)) == [6, 7]
    fresh = make_repo()
    source.copy_to(fresh, NAME)
    assert epochs(look(fresh)) == [6, 7]
    assert look(fresh).check(read_percent=100).damaged == []
