from __future__ import annotations

import pytest

from builders import dump, filled, keys, look, make_repo, save, start
from holdfast.errors import BadName, BeingForgotten, CheckpointMissing, NameTaken
from holdfast.handles import Repository, open_url
from holdfast.ids import new_token
from holdfast.layout import Slot
from holdfast.names import answer, ask, name_checkpoint, pin_checkpoint, remove_name, remove_pins, waiting_requests
from holdfast.records import Answer, Decision, Intent, Pin
from holdfast.store import ObjectInfo, open_store
from holdfast.testing.faults import Around, LateStore


def name(repo: Repository, slot: Slot, word: str) -> Slot:
    records = look(repo).records
    return name_checkpoint(records, records.head(slot), word).at


def intend(repo: Repository, slot: Slot) -> None:
    records, token = look(repo).records, new_token()
    records.create(records.keys.intent(slot, token), Intent(token=token, generation=slot.generation, slot=slot.number))


def decide(repo: Repository, slot: Slot) -> None:
    records = look(repo).records
    decision = Decision(token=new_token(), generation=slot.generation, slot=slot.number, objects=[])
    records.create(records.keys.decision(slot), decision)


def test_a_name_stands_for_one_checkpoint_and_saying_it_again_is_no_error() -> None:
    repo = filled(3)
    assert name(repo, Slot(0, 1), "v1") == name(repo, Slot(0, 1), "v1") == Slot(0, 1)
    assert len(keys(repo.store, "savepoints/")) == 1
    with pytest.raises(NameTaken) as taken:
        name(repo, Slot(0, 2), "v1")
    assert taken.value.checkpoint == "0-1"


def test_a_removed_name_can_be_given_again_and_nothing_is_overwritten() -> None:
    repo = filled(3)
    name(repo, Slot(0, 1), "v1")
    before = dump(repo.store)
    assert remove_name(look(repo).records, "v1").at == Slot(0, 1)
    assert look(repo).savepoints() == {}
    assert name(repo, Slot(0, 2), "v1") == Slot(0, 2)
    assert look(repo).savepoints()["v1"].at == Slot(0, 2)
    assert before.items() <= dump(repo.store).items()
    assert len(keys(repo.store, "savepoints/v1/")) == 3


def test_removing_a_name_that_does_not_stand_is_an_error_that_names_it() -> None:
    repo = filled(1)
    with pytest.raises(CheckpointMissing, match="orders@v1"):
        remove_name(look(repo).records, "v1")


@pytest.mark.parametrize("word", ["", "a/b", "..", ".x", "a b"])
def test_a_name_that_could_not_stand_in_a_key_is_refused(word: str) -> None:
    repo = filled(1)
    with pytest.raises(BadName):
        name(repo, Slot(0, 0), word)
    with pytest.raises(BadName):
        ask(look(repo).records, word)


def test_a_prune_that_has_not_decided_is_beaten_to_it_by_a_name_or_a_pin() -> None:
    repo = filled(4)
    intend(repo, Slot(0, 0))
    intend(repo, Slot(0, 1))
    assert name(repo, Slot(0, 0), "v1") == Slot(0, 0)
    pin_checkpoint(look(repo).records, Slot(0, 1), "audit")
    records = look(repo).records
    assert records.intents() == {}
    assert records.forgotten() == set()
    assert records.attempts() == {Slot(0, 0): 1, Slot(0, 1): 1}


def test_a_checkpoint_that_was_kept_once_can_be_forgotten_later() -> None:
    repo = filled(4)
    intend(repo, Slot(0, 0))
    name(repo, Slot(0, 0), "v1")
    look(repo).remove_savepoint("v1")
    assert look(repo).forget(Slot(0, 0)).checkpoints == [Slot(0, 0)]
    assert Slot(0, 0) in look(repo).records.forgotten()


def test_naming_and_pinning_give_way_to_a_decision_and_take_their_record_back() -> None:
    repo = filled(3)
    decide(repo, Slot(0, 0))
    before = keys(repo.store)
    with pytest.raises(BeingForgotten):
        name(repo, Slot(0, 0), "v1")
    with pytest.raises(BeingForgotten):
        pin_checkpoint(look(repo).records, Slot(0, 0), "audit")
    assert keys(repo.store) == before
    assert name(repo, Slot(0, 1), "v1") == Slot(0, 1)


def test_the_prune_of_another_checkpoint_is_in_nobodys_way() -> None:
    repo = filled(12)
    intend(repo, Slot(0, 1))
    intend(repo, Slot(0, 11))
    for number in (0, 2, 10):
        assert name(repo, Slot(0, number), f"v{number}") == Slot(0, number)


def test_two_who_give_the_same_name_at_once_get_one_checkpoint() -> None:
    repo = filled(3)

    class Racing(Around):
        raced = False

        def list(self, prefix: str, start_after: str = "") -> list[ObjectInfo]:
            found = super().list(prefix, start_after)
            if "savepoints/" in prefix and not self.raced:
                self.raced = True
                name(repo, Slot(0, 1), "v1")
            return found

    with pytest.raises(NameTaken):
        name(open_url(Racing(repo.store)), Slot(0, 2), "v1")
    assert look(repo).savepoints()["v1"].at == Slot(0, 1)


def test_a_name_whose_create_stays_unknown_is_voided_there_and_said_again() -> None:
    inner = open_store("memory://")
    filled(2, inner)
    lost: list[str] = []

    def first(key: str) -> bool:
        if "savepoints/" in key:
            lost.append(key)
        return "savepoints/" in key and len(lost) == 1

    late = LateStore(inner, first)
    repo = open_url(late)
    assert name(repo, Slot(0, 1), "v1") == Slot(0, 1)
    assert late.land() == []
    assert look(repo).savepoints()["v1"].at == Slot(0, 1)


def test_pins_hold_until_they_are_let_go_and_a_claims_own_pin_is_left_alone() -> None:
    repo = filled(3)
    records = look(repo).records
    for why in ("audit", "incident"):
        pin_checkpoint(records, Slot(0, 0), why)
    pin_checkpoint(records, Slot(0, 1), "other")
    held = Pin(token=new_token(), generation=0, slot=0, why="start", who="me", created_ms=0, claim=9)
    records.create(records.keys.pin(Slot(0, 0), held.token), held)
    assert sorted(pin.why for pin in remove_pins(records, Slot(0, 0))) == ["audit", "incident"]
    assert sorted(pin.why for pin in look(repo).pins()) == ["other", "start"]


def test_a_request_is_answered_with_the_next_checkpoint_and_not_an_older_one() -> None:
    repo = make_repo()
    with start(repo) as run:
        save(run, 0)
        late = run.begin(1)
        request = ask(look(repo).records, "before-upgrade")
        run.save_manifest(late)
        assert look(repo).savepoints() == {}
        answered = save(run, 2)
    assert look(repo).savepoints()["before-upgrade"].at == answered.at
    records = look(repo).records
    assert records.read(records.keys.answer(request.token), Answer).slot == answered.slot
    assert waiting_requests(records) == []


def test_a_request_for_a_name_that_is_taken_is_answered_with_the_reason() -> None:
    repo = filled(2)
    name(repo, Slot(0, 0), "v1")
    records = look(repo).records
    reply = answer(records, ask(records, "v1"), records.head(Slot(0, 1)))
    assert reply.refused is not None
    assert "v1" in reply.refused
    assert reply.slot is None
    assert waiting_requests(records) == []


def test_a_request_that_is_withdrawn_while_it_is_read_is_passed_over() -> None:
    inner = open_store("memory://")
    repo = filled(1, inner)
    records = look(repo).records
    ask(records, "gone")
    ask(records, "stays")

    class Withdrawn(Around):
        def list(self, prefix: str, start_after: str = "") -> list[ObjectInfo]:
            found = super().list(prefix, start_after)
            if "requests/" in prefix:
                self.inner.delete(i.key for i in found if b'"gone"' in self.inner.get(i.key))
            return found

    with start(open_url(Withdrawn(inner))) as run:
        save(run, 1)
    assert list(look(repo).savepoints()) == ["stays"]
