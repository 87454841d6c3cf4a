from __future__ import annotations

from collections.abc import Callable

import pytest

from builders import dump, epochs, filled, keys, look, make_repo, save, start
from holdfast.claim import Begin, Generation, Reason, take_over
from holdfast.errors import Fenced, NotActivated, OutcomeUnknown
from holdfast.handles import Repository, open_url
from holdfast.ids import new_token
from holdfast.layout import Slot
from holdfast.records import Base, Decision, Intent
from holdfast.store import Buffer, Store, open_store
from holdfast.testing.faults import Around, Crash, CrashingStore, LateStore

REASON = Reason("start")
FRESH = Begin()
Fence = Callable[[int, str], None]


def take(repo: Repository, begin: Begin | Callable[[], Begin] = FRESH, **more: Fence) -> Generation:
    records = look(repo).records
    records.ensure_identity()
    return take_over(records, REASON, begin if callable(begin) else lambda: begin, **more)


def bases(repo: Repository) -> dict[int, str]:
    return {info.number: info.began for info in look(repo).generations()}


def test_generations_are_numbered_without_gaps_and_carry_who_and_why() -> None:
    repo = make_repo()
    for number in range(3):
        assert take(repo).number == number
    records = look(repo).records
    claim = records.claim(2)
    assert (claim.why, claim.repository_id) == ("start", repo.id)
    assert "@" in claim.who
    assert bases(repo) == {0: "fresh", 1: "fresh", 2: "fresh"}


def test_the_claim_stands_before_the_fence_and_the_fence_before_the_choice() -> None:
    repo = filled(1)
    seen: list[str] = []

    def fence(generation: int, token: str) -> None:
        assert keys(repo.store, f"generations/{generation:010d}.json")
        seen.append(f"fence {generation} {len(token)}")

    def choose() -> Begin:
        seen.append("choose")
        assert not keys(repo.store, "0000000001.base.json")
        return Begin(Slot(0, 0), 0)

    take(repo, choose, fence=fence)
    assert seen == ["fence 1 32", "choose"]
    assert bases(repo)[1] == "at 0-0"


def test_what_a_choice_may_read_is_final_because_all_lower_ones_are_settled_by_then() -> None:
    repo = make_repo()
    with pytest.raises(RuntimeError):
        take(repo, lambda: (_ for _ in ()).throw(RuntimeError("died choosing")))
    assert bases(repo) == {0: "not yet"}

    def choose() -> Begin:
        assert bases(repo) == {0: "void", 1: "not yet"}
        return Begin()

    assert take(repo, choose).number == 1


def test_a_claim_that_was_voided_before_it_began_is_fenced() -> None:
    repo = make_repo()

    def slow() -> Begin:
        take(repo)
        return Begin()

    with pytest.raises(Fenced):
        take(repo, slow)
    assert bases(repo) == {0: "void", 1: "fresh"}


def test_a_base_that_was_there_before_the_void_counts() -> None:
    repo = make_repo()

    class SlowVoid(Around):
        """While the void is on its way, the lower claim begins after all."""

        def create(self, key: str, data: Buffer) -> bool:
            if key.endswith("0000000000.base.json") and b'"void":true' in data:
                look(repo).records.create(key, Base(token="theirs", generation=0))
            return super().create(key, data)

    with pytest.raises(RuntimeError):
        take(repo, lambda: (_ for _ in ()).throw(RuntimeError))
    take(open_url(SlowVoid(repo.store)))
    assert bases(repo) == {0: "fresh", 1: "fresh"}


def test_the_chosen_checkpoint_is_pinned_until_the_base_stands() -> None:
    repo = filled(2)
    seen: list[list[str]] = []

    class Watching(Around):
        def create(self, key: str, data: Buffer) -> bool:
            if "base" in key:
                seen.append(keys(self.inner, "pins/"))
            return super().create(key, data)

    take(open_url(Watching(repo.store)), Begin(Slot(0, 1), 1))
    assert [len(pins) for pins in seen] == [1]
    assert keys(repo.store, "pins/") == []


def test_a_choice_that_a_prune_decided_on_meanwhile_is_made_again_under_a_new_claim() -> None:
    repo = filled(3)
    records = look(repo).records
    choices = iter([Begin(Slot(0, 1), 1), Begin(Slot(0, 2), 2)])

    def pruned_as_it_is_chosen() -> Begin:
        begin = next(choices)
        if begin.slot == Slot(0, 1):
            decision = Decision(token=new_token(), generation=0, slot=1, objects=[])
            records.create(records.keys.decision(Slot(0, 1)), decision)
        return begin

    assert take(repo, pruned_as_it_is_chosen).begin.slot == Slot(0, 2)
    assert bases(repo) == {0: "fresh", 1: "void", 2: "at 0-2"}
    assert keys(repo.store, "pins/") == []


def test_a_prune_that_was_killed_before_it_decided_stands_in_nobodys_way() -> None:
    repo = filled(3)
    records = look(repo).records
    intent = records.keys.intent(Slot(0, 1), token := new_token())
    records.create(intent, Intent(token=token, generation=0, slot=1))
    assert take(repo, lambda: Begin(Slot(0, 1), 1)).begin.slot == Slot(0, 1)
    assert keys(repo.store, "pins/") == []
    assert records.intents() == {}


def test_a_base_whose_create_stays_unknown_is_given_up_as_void() -> None:
    inner = open_store("memory://")
    lost: list[str] = []

    def first_base(key: str) -> bool:
        if "base" in key:
            lost.append(key)
        return "base" in key and len(lost) == 1

    late = LateStore(inner, first_base)
    repo = make_repo(late)
    with pytest.raises(Fenced):
        take(repo)
    assert late.land() == []
    assert bases(repo) == {0: "void"}


def test_a_base_that_can_not_be_settled_at_all_is_unknown_and_voided_by_the_next() -> None:
    inner = open_store("memory://")
    repo = make_repo(LateStore(inner, lambda key: "base" in key))
    with pytest.raises(OutcomeUnknown):
        take(repo)
    take(open_url(inner))
    assert bases(open_url(inner)) == {0: "void", 1: "fresh"}


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_take_over_killed_at_any_request_leaves_the_timeline_as_it_was_or_begun(when: str) -> None:
    at = 0
    while True:
        inner = open_store("memory://")
        repo = filled(3, inner)
        dying = CrashingStore(inner, at, "before" if when == "before" else "after")
        try:
            crashed = False
            with start(open_url(dying)):
                pass
        except Crash:
            crashed = True
        assert epochs(look(repo)) == [0, 1, 2]
        with start(repo) as run:
            save(run, 3)
        assert epochs(look(repo)) == [0, 1, 2, 3]
        assert look(repo).check(read_percent=100).damaged == []
        if not crashed:
            break
        at += 1
    assert at > 8


def test_two_claimants_at_once_get_two_numbers_and_the_lower_is_fenced() -> None:
    repo = filled(1)
    lower: list[Generation] = []

    class Racing(Around):
        """Another claims first, every time a claim is about to be created for the first time."""

        raced = False

        def create(self, key: str, data: Buffer) -> bool:
            if "generations/" in key and "base" not in key and not self.raced:
                self.raced = True
                lower.append(take(repo, Begin(Slot(0, 0), 0)))
            return super().create(key, data)

    higher = take(open_url(Racing(repo.store)), Begin(Slot(0, 0), 0))
    assert (lower[0].number, higher.number) == (1, 2)


def copied() -> tuple[Repository, Repository]:
    source, target = filled(2), make_repo()
    source.copy_to(target, "orders")
    return source, target


def test_a_copy_is_not_claimed_unless_it_is_activated() -> None:
    _, target = copied()
    before = dump(target.store)
    with pytest.raises(NotActivated):
        take(target)
    assert dump(target.store) == before
    with start(target, activate=True) as run:
        save(run, 2)
    assert epochs(look(target)) == [0, 1, 2]


def test_every_store_kind_takes_over_alike(file_store: Store) -> None:
    repo = make_repo(file_store)
    with start(repo) as old:
        save(old, 0)
        with start(repo) as new:
            with pytest.raises(Fenced):
                save(old, 1)
            save(new, 1)
    assert [c.slot for c in look(repo).checkpoints()] == [Slot(0, 0), Slot(1, 0)]
