from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, TypeVar

import pytest

from builders import (
    NAME,
    Table,
    damage_state,
    data_key,
    dump,
    epochs,
    filled,
    flip,
    keys,
    keys_of,
    look,
    make_repo,
    manifest_key,
    save,
    sinking,
    start,
    state,
    truncate,
)
from holdfast.copying import Copied, Copier, copy_pipeline
from holdfast.decide.retention import KeepPolicy
from holdfast.errors import (
    BadValue,
    BeingForgotten,
    CheckpointMissing,
    DamagedCopy,
    Diverged,
    MissingRecords,
    NotActivated,
    PipelineMissing,
)
from holdfast.handles import Repository, open_url
from holdfast.ids import new_token
from holdfast.layout import Slot
from holdfast.records import Intent, Settled, VoidSlot, seal
from holdfast.recovery import Demands
from holdfast.repository.uploads import Limits
from holdfast.store import Buffer, ObjectInfo, Store, open_store
from holdfast.testing.faults import Around, CountingStore, Crash, CrashingStore

T = TypeVar("T")


def copy(source: Repository, target: Repository) -> Copied:
    return copy_pipeline(look(source).records, look(target).records)


def storied() -> Repository:
    """Two generations, a rewind, shared bytes, a large object, a savepoint, a void and a forgotten checkpoint."""
    repo = make_repo()
    with start(repo, limits=Limits(inline=10, single=400)) as run:
        save(run, 0, {0: state(0), 1: b"tiny"})
        for epoch in range(1, 5):
            save(run, epoch, {0: state(epoch), 2: state(epoch, 2, 500)}, carry=True)
    with start(repo, demands=Demands(to=Slot(0, 2))) as run:
        records = look(repo).records
        records.create(records.keys.manifest(Slot(1, 0)), VoidSlot(token=new_token(), generation=1, slot=0))
        save(run, 3)
    look(repo)["epoch:1"].savepoint("v1")
    look(repo).forget(Slot(0, 0))
    return repo


def settling() -> Repository:
    """Six checkpoints whose sinks were all settled, one of them after a failure."""
    repo, table = make_repo(), Table()
    with start(repo, sinks={"table": table}) as run:
        for epoch in range(6):
            save(run, epoch, about=sinking(epoch, table=table))
    records, token = look(repo).records, new_token()
    records.create(records.keys.failed(Slot(0, 1), token), Settled(token=token, generation=0, slot=1, outcomes={}))
    return repo


def twin(repo: Repository) -> Repository:
    """The same repository in a store of its own, to be changed without changing the first."""
    store = open_store("memory://")
    for key, data in dump(repo.store).items():
        store.put(key, data)
    return open_url(store)


def killed_copy(source: Repository, target: Repository, at: int, when: Literal["before", "after"]) -> bool:
    """Copy and die at this request to the target; False if there were fewer."""
    try:
        # The first request opens the repository.
        copy(source, open_url(CrashingStore(target.store, at + 1, when)))
    except Crash:
        return True
    return False


def same(source: Repository, target: Repository) -> bool:
    """Whether the pipeline's records and bytes are the same on both sides, the hint aside, which is no record."""
    left, right = (
        {k: v for k, v in dump(r.store).items() if k.startswith(keys_of().prefix) and k != keys_of().latest}
        for r in (source, target)
    )
    return left == right


def test_a_copy_holds_the_same_and_restores_at_the_other_end() -> None:
    source, target = storied(), make_repo()
    copied = copy(source, target)
    assert same(source, target)
    assert (copied.checkpoints, copied.damaged) == (5, [])
    assert epochs(look(target)) == epochs(look(source)) == [1, 2, 3]
    assert look(target)["v1"].epoch == 1
    assert look(target).check(read_percent=100).damaged == []
    latest = look(target).latest()
    assert latest is not None
    assert latest.load(latest.operators["count"][0][0]) == state(3)


def test_a_second_copy_moves_only_what_is_missing() -> None:
    source, store = filled(3), CountingStore(open_store("memory://"))
    target = make_repo(store)
    copy(source, target)
    store.reset()
    assert (copy(source, target).checkpoints, store.counts["create"], store.counts["write"]) == (0, 0 + 1, 0)
    with start(source) as run:
        save(run, 3, {0: state(3), 1: state(4)})
    copied = copy(source, target)
    assert (copied.checkpoints, copied.objects) == (1, 1)
    assert same(source, target)


def test_shared_bytes_travel_once() -> None:
    source, target = make_repo(), make_repo()
    with start(source) as run:
        for epoch in range(5):
            save(run, epoch, {0: state(0), 1: state(epoch, 1)})
    copied = copy(source, target)
    assert copied.objects == len(keys(target.store, "data/")) == 5
    assert copied.bytes == sum(len(target.store.get(key)) for key in keys(target.store, "data/"))


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("side", ["source", "target"])
def test_a_copy_killed_at_any_request_leaves_whole_checkpoints_and_is_finished_by_the_next(
    side: str, when: str
) -> None:
    source, at = storied(), 0
    while True:
        inner = open_store("memory://")
        target = make_repo(inner)
        moment = "before" if when == "before" else "after"
        ends = {"source": source, "target": target}
        ends[side] = open_url(CrashingStore(ends[side].store, at + 1, moment))  # type: ignore[arg-type]
        crashed = False
        try:
            copy(ends["source"], ends["target"])
        except Crash:
            crashed = True
        if keys(inner, "pipeline.json"):
            assert [f for f in look(target).check(read_percent=100).damaged if f.kind in ("flipped", "truncated")] == []
            for checkpoint in look(target).checkpoints(with_abandoned=True):
                assert checkpoint.verify().damaged == []
        copy(source, target)
        assert same(source, target)
        if not crashed:
            break
        at += 3
    assert at > 10


def test_a_manifest_arrives_after_all_that_it_names() -> None:
    source, order = filled(3), list[str]()

    class Watching(Around):
        def create(self, key: str, data: Buffer) -> bool:
            order.append(key.removeprefix(keys_of().prefix).split("/")[0])
            return super().create(key, data)

    inner = open_store("memory://")
    make_repo(inner)
    copy(source, open_url(Watching(inner)))
    assert order == ["pipeline.json", "generations", "generations", *["data", "checkpoints"] * 3]


def test_every_byte_is_verified_on_the_way_and_a_damaged_checkpoint_is_reported_and_not_copied() -> None:
    source, target = filled(4), make_repo()
    damage_state(source.store, look(source).records.manifest(Slot(0, 1)))
    flip(source.store, manifest_key(Slot(0, 2)))
    copied = copy(source, target)
    assert [lost.slot for lost in copied.damaged] == [Slot(0, 1), Slot(0, 2)]
    assert all(lost.why for lost in copied.damaged)
    assert epochs(look(target)) == [0, 3]
    for checkpoint in look(target).checkpoints():
        assert checkpoint.verify().damaged == []


@pytest.mark.parametrize("harm", [truncate, lambda store, key: store.delete([key])])
def test_missing_and_truncated_bytes_at_the_source_are_reported(harm: object) -> None:
    source, target = filled(3), make_repo()
    harm(source.store, data_key(look(source).records.manifest(Slot(0, 1))))  # type: ignore[operator]
    assert [lost.slot for lost in copy(source, target).damaged] == [Slot(0, 1)]
    assert epochs(look(target)) == [0, 2]


def test_a_large_object_is_verified_before_it_stands_at_the_target(tmp_path: object) -> None:
    source, target = make_repo(), make_repo(open_store(f"{tmp_path}/target"))
    with start(source, limits=Limits(single=1000)) as run:
        written = save(run, 0, {0: state(0, 0, 5000)})
    damage_state(source.store, written)
    assert len(copy(source, target).damaged) == 1
    assert keys(target.store, "data/") == []


def test_damage_at_the_target_that_shows_in_its_size_is_mended_by_the_next_copy() -> None:
    source, target = filled(2), make_repo()
    copy(source, target)
    truncate(target.store, data_key(look(source).records.manifest(Slot(0, 1))))
    target.store.delete([manifest_key(Slot(0, 1))])
    copy(source, target)
    assert same(source, target)


def test_what_the_source_has_forgotten_is_forgotten_at_the_target_too() -> None:
    source, target = filled(6), make_repo()
    copy(source, target)
    look(source).prune(KeepPolicy(last=2), dry_run=False)
    copied = copy(source, target)
    assert copied.removed == [Slot(0, n) for n in range(4)]
    assert same(source, target)
    assert epochs(look(target)) == [4, 5]


def test_shared_bytes_survive_at_the_target_when_one_of_their_checkpoints_is_forgotten() -> None:
    source, target = make_repo(), make_repo()
    with start(source) as run:
        for epoch in range(4):
            save(run, epoch, {0: state(0)})
    copy(source, target)
    look(source).forget(Slot(0, 0))
    copy(source, target)
    assert look(target).check(read_percent=100).damaged == []


def test_bytes_of_decisions_that_arrive_joined_go_too(monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = settling(), make_repo()
    look(source).prune(KeepPolicy(last=5), dry_run=False)
    copy(source, target)
    monkeypatch.setattr("holdfast.joining.JOIN_ABOVE", 1)
    look(source).prune(KeepPolicy(last=2), dry_run=False)
    assert keys(source.store, "joined")
    assert copy(source, target).removed == [Slot(0, n) for n in range(1, 4)]
    for kind in ("/data/", "/settled/", "/forgotten/", "/checkpoints/"):
        assert keys(target.store, kind) == keys(source.store, kind)
    assert same(source, target)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("join_above", [1, 64])
def test_a_copy_killed_as_it_forgets_is_finished_by_the_next(
    join_above: int, when: Literal["before", "after"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.joining.JOIN_ABOVE", join_above)
    source, behind, at = settling(), make_repo(), 0
    copy(source, behind)
    look(source).prune(KeepPolicy(last=2), dry_run=False)
    with start(source, sinks={"table": Table()}, demands=Demands(accept_duplicates=True)) as run:
        save(run, 6)
    while killed_copy(source, target := twin(behind), at, when):
        copy(source, target)
        assert same(source, target)
        at += 1
    assert at > 20


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_a_killed_copy_had_begun_and_the_source_forgot_meanwhile_leaves_no_bytes(
    when: Literal["before", "after"],
) -> None:
    whole, at = settling(), 0
    while killed_copy(source := twin(whole), target := make_repo(), at, when):
        look(source).prune(KeepPolicy(last=2), dry_run=False)
        copy(source, target)
        assert same(source, target)
        at += 1
    assert at > 20


def test_bytes_that_another_copier_has_just_brought_stay_until_its_manifest_follows() -> None:
    source, target = filled(2), make_repo()
    brought: list[str] = []
    with start(source) as run:

        class Beside(Around):
            def list(self, prefix: str, start_after: str = "") -> list[ObjectInfo]:
                if prefix == keys_of().data and not brought:
                    brought.append(data_key(save(run, 2)))
                    target.store.create(brought[0], source.store.get(brought[0]))
                return super().list(prefix, start_after)

        copy(source, open_url(Beside(target.store)))
    assert brought[0] in keys(target.store, "/data/")
    copy(source, target)
    assert same(source, target)


def test_uploads_of_a_generation_that_activates_the_copy_meanwhile_stay() -> None:
    source, target = filled(2), make_repo()
    under_way = f"{keys_of().upload(1, new_token())}pack-0"

    class Activated(Around):
        def list(self, prefix: str, start_after: str = "") -> list[ObjectInfo]:
            if prefix == keys_of().data:
                start(target, activate=True).close()
                target.store.create(under_way, b"not named yet")
            return super().list(prefix, start_after)

    copy(source, open_url(Activated(target.store)))
    assert under_way in keys(target.store, "/data/")


def test_an_unreadable_manifest_at_the_target_is_told_and_costs_no_bytes() -> None:
    source, target = filled(3), make_repo()
    copy(source, target)
    held = keys(target.store, "/data/")
    flip(target.store, manifest_key(Slot(0, 1)))
    with start(source) as run:
        save(run, 3)
    with pytest.raises(DamagedCopy):
        copy(source, target)
    assert set(held) < set(keys(target.store, "/data/"))
    latest = look(target).latest()
    assert latest is not None
    assert latest.epoch == 3


def test_the_hint_of_a_copy_names_what_has_arrived_while_the_source_moves_on() -> None:
    source, target = filled(3), make_repo()
    with start(source) as run:

        class Moving(Around):
            moved = False

            def list(self, prefix: str, start_after: str = "") -> list[ObjectInfo]:
                if prefix == keys_of().savepoints and not self.moved:
                    self.moved = True
                    save(run, 3)
                return super().list(prefix, start_after)

        copy(open_url(Moving(source.store)), target)
    records = look(target).records
    hint = records.hint()
    assert hint is not None
    assert (hint.generation, hint.slot) == Slot(0, 2) == records.locate().newest
    assert look(target).check().damaged == []
    with start(target, activate=True) as run:
        assert run.recovered.skipped == ()


class MovingOn(Around):
    """A source that goes on and prunes once, when the copier has brought all that it had listed."""

    def __init__(self, source: Repository, upto: int, then: Callable[[], object] = lambda: None) -> None:
        super().__init__(source.store)
        self._source, self._upto, self._then = source, upto, then
        self.moved = False

    def list(self, prefix: str, start_after: str = "") -> list[ObjectInfo]:
        if prefix == keys_of().savepoints and not self.moved:
            self.moved = True
            first = epochs(look(self._source))[-1] + 1
            with start(self._source) as run:
                for epoch in range(first, self._upto):
                    save(run, epoch)
            look(self._source).prune(KeepPolicy(last=2), dry_run=False)
            self._then()
        return super().list(prefix, start_after)


class ActivatedAt(Around):
    """A target that is taken over at one request to it, the last but one checkpoint of its source being gone back to.

    `epoch` is the one that was gone back to; None: there were fewer requests, or it was forgotten by then.
    """

    def __init__(self, target: Repository, at: int) -> None:
        super().__init__(target.store)
        self._target, self._left = target, at
        self.epoch: int | None = None
        self.came = False

    def _around(self, verb: str, act: Callable[[], T]) -> T:
        self._left -= 1
        if self._left == -1:
            self.came = True
            with (
                suppress(CheckpointMissing, BeingForgotten),
                start(self._target, activate=True, demands=Demands(to=Slot(0, 1))) as run,
            ):
                self.epoch = run.tip.epoch if run.tip else None
        return super()._around(verb, act)


@pytest.mark.parametrize("join_above", [1, 64])
def test_a_source_that_forgets_all_that_is_being_copied_takes_it_not_from_the_copy(
    join_above: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.joining.JOIN_ABOVE", join_above)
    source, target = filled(4), make_repo()
    copied = copy(open_url(MovingOn(source, 8)), target)
    assert copied.removed == [Slot(0, 0), Slot(0, 1)]
    assert epochs(look(target)) == [2, 3]
    assert look(target).missing() == []
    assert look(target).check(read_percent=100).damaged == []
    with start(twin(target), activate=True) as run:
        assert run.tip is not None
        assert run.tip.epoch == 3

    copy(source, target)
    # Where the newest generation began is not forgotten.
    assert epochs(look(target)) == epochs(look(source)) == [3, 6, 7]
    assert look(target).missing() == []


@pytest.mark.parametrize("join_above", [1, 64])
def test_checkpoints_that_are_gone_before_they_are_copied_leave_the_copy_behind_and_whole(
    join_above: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.joining.JOIN_ABOVE", join_above)
    source, target = filled(4), make_repo()
    copy(source, target)
    with start(source) as run:
        save(run, 4)

        class Overtaken(Around):
            moved = False

            def get(self, key: str) -> bytes:
                if key == manifest_key(Slot(1, 0)) and not self.moved:
                    self.moved = True
                    for epoch in range(5, 8):
                        save(run, epoch)
                    look(source).prune(KeepPolicy(last=2), dry_run=False)
                return super().get(key)

        copier = Copier(look(open_url(Overtaken(source.store))).records, look(target).records)
        assert copier.copy().damaged == []
    assert copier.missing == [Slot(1, 0)]
    assert copier.newest == Slot(0, 3)
    assert epochs(look(target)) == [2, 3]
    assert look(target).missing() == []
    copier.copy()
    assert copier.missing == []
    # Where the newest generation began is not forgotten.
    assert epochs(look(target)) == epochs(look(source)) == [3, 6, 7]
    assert look(target).missing() == []


@pytest.mark.parametrize("join_above", [1, 64])
def test_a_round_that_outlasts_an_activation_forgets_nothing_that_it_goes_on_from(
    join_above: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.joining.JOIN_ABOVE", join_above)
    source, target = filled(5), make_repo()
    activated = MovingOn(source, 9, then=lambda: start(target, activate=True, demands=Demands(to=Slot(0, 1))).close())
    with pytest.raises(Diverged):
        copy(open_url(activated), target)
    assert epochs(look(target)) == [0, 1]
    assert not keys(target.store, "intent")
    with start(target) as run:
        assert run.tip is not None
        assert run.tip.epoch == 1


def test_whenever_a_copy_is_activated_as_it_forgets_the_one_sees_the_other() -> None:
    at, back = 0, 0
    while True:
        source, target = filled(5), make_repo()
        copy(source, target)
        look(source).prune(KeepPolicy(last=2), dry_run=False)
        activated = ActivatedAt(target, at)
        with suppress(Diverged):
            copy(source, open_url(activated))
        if not activated.came:
            break
        back += activated.epoch is not None
        with start(target, activate=activated.epoch is None) as run:
            assert run.tip is not None, at
            assert run.tip.epoch == (4 if activated.epoch is None else 1), at
        assert look(target).check(read_percent=100).damaged == [], at
        at += 1
    assert 10 < back < at


def test_a_pipeline_that_is_not_there_is_not_copied() -> None:
    target = make_repo()
    with pytest.raises(PipelineMissing):
        make_repo().copy_to(target, NAME)
    with pytest.raises(PipelineMissing):
        copy(make_repo(), target)
    source = filled(1)
    source.store.delete([keys_of().identity])
    with pytest.raises(MissingRecords):
        copy(source, target)
    assert keys(target.store, "pipelines/") == []


# ---- whose it is ----


def test_a_copy_refuses_every_change_until_it_is_activated() -> None:
    source, target = filled(4), make_repo()
    copy(source, target)
    before = dump(target.store)
    for act in (
        lambda: look(target).recover(),
        lambda: look(target).prune(KeepPolicy(last=2), dry_run=False),
        lambda: look(target).forget(Slot(0, 0)),
        lambda: look(target).sweep(),
    ):
        with pytest.raises(NotActivated):
            act()
    assert dump(target.store) == before


def test_an_activated_copy_goes_on_and_its_copier_finds_that_they_have_diverged() -> None:
    source, target = filled(2), make_repo()
    copy(source, target)
    with start(target, activate=True) as run:
        save(run, 2)
    assert epochs(look(target)) == [0, 1, 2]
    look(target).prune(KeepPolicy(last=2), dry_run=False)
    before = dump(target.store)
    with start(source) as run:
        save(run, 77)
    with pytest.raises(Diverged):
        copy(source, target)
    assert dump(target.store) == before


def test_an_activated_copy_diverges_even_when_the_source_stood_still() -> None:
    source, target = filled(2), make_repo()
    copy(source, target)
    with start(target, activate=True):
        pass
    with pytest.raises(Diverged):
        copy(source, target)


def test_an_activation_that_died_before_it_began_has_diverged_all_the_same() -> None:
    class Unwilling(Table):
        def fence(self, pipeline_id: str, generation: int, token: str) -> None:
            raise RuntimeError("not today")

    source, target = filled(2), make_repo()
    copy(source, target)
    with pytest.raises(RuntimeError):
        start(target, activate=True, sinks={"table": Unwilling()})
    with pytest.raises(Diverged):
        copy(source, target)


def test_another_pipeline_of_the_same_name_is_never_written_over() -> None:
    source, target = filled(2), filled(3)
    before = dump(target.store)
    with pytest.raises(Diverged):
        copy(source, target)
    assert dump(target.store) == before


def test_a_repository_is_not_copied_onto_itself() -> None:
    source = filled(2)
    before = dump(source.store)
    for target in (source, twin(source)):
        with pytest.raises(BadValue, match="the same repository"):
            source.copy_to(target, NAME)
    assert dump(source.store) == before


def test_copying_back_to_the_original_leaves_its_hint_and_its_uploads_under_way_alone() -> None:
    primary, standby = filled(2), make_repo()
    copy(primary, standby)
    with start(primary) as run:
        save(run, 2)
        copy(primary, standby)
        save(run, 3)
        under_way = f"{keys_of().upload(1, new_token())}pack-0"
        primary.store.create(under_way, b"not named yet")
        before = dump(primary.store)
        copy(standby, primary)
        assert dump(primary.store) == before


def test_failing_back_brings_the_original_up_to_its_copy_and_hands_it_over_again() -> None:
    primary, standby = filled(2), make_repo()
    copy(primary, standby)
    with start(standby, activate=True) as run:
        save(run, 2)
    copied = copy(standby, primary)
    assert copied.checkpoints == 1
    assert epochs(look(primary)) == [0, 1, 2]
    with pytest.raises(NotActivated):
        start(primary)
    with start(primary, activate=True) as run:
        assert run.generation == 2
        save(run, 3)
    assert epochs(look(primary)) == [0, 1, 2, 3]
    assert look(primary).check(read_percent=100).damaged == []


def test_a_primary_that_wrote_on_after_its_copy_was_activated_can_not_be_failed_back_over() -> None:
    primary, standby = filled(2), make_repo()
    copy(primary, standby)
    with start(standby, activate=True) as run:
        save(run, 2)
    with start(primary) as run:
        save(run, 2)
    with pytest.raises(Diverged):
        copy(standby, primary)


def test_a_zombie_of_the_primary_writes_into_the_original_alone() -> None:
    primary, standby = filled(1), make_repo()
    with start(primary) as zombie:
        save(zombie, 1)
        copy(primary, standby)
        with start(standby, activate=True) as run:
            save(run, 2)
            save(zombie, 2)
        with pytest.raises(Diverged):
            copy(primary, standby)
    assert epochs(look(standby)) == [0, 1, 2]


def test_progress_never_passes_its_total() -> None:
    source, told = storied(), list[tuple[str, int, int]]()
    copy_pipeline(look(source).records, look(make_repo()).records, lambda *said: told.append(said))
    assert all(0 <= done <= total for _, done, total in told)
    assert told[-1][1] == told[-1][2] > 0


def test_copies_between_kinds_of_stores(file_store: Store, memory_store: Store) -> None:
    source = filled(3, file_store)
    target = make_repo(memory_store)
    copy(source, target)
    assert same(source, target)


# ---- round after round ----


def following(source: Repository, target: Repository) -> Copier:
    return Copier(look(source).records, look(target).records)


def test_a_round_in_which_nothing_is_new_costs_the_same_however_much_there_is() -> None:
    costs = []
    for checkpoints in (3, 40):
        stores = [CountingStore(open_store("memory://")) for _ in range(2)]
        copier = following(filled(checkpoints, stores[0]), make_repo(stores[1]))
        copier.copy()
        for store in stores:
            store.reset()
        assert copier.copy() == Copied(NAME)
        costs.append([store.counts.copy() for store in stores])
    assert costs[0] == costs[1]
    assert [counts["get"] for counts in costs[0]] == [2, 2]
    assert {*costs[0][0], *costs[0][1]} == {"list", "get"}
    assert sum(counts.total() for counts in costs[0]) <= 14


def test_a_round_costs_what_is_new_and_not_what_is_there() -> None:
    costs = []
    for checkpoints in (3, 40):
        stores = [CountingStore(open_store("memory://")) for _ in range(2)]
        source, target = filled(checkpoints, stores[0]), make_repo(stores[1])
        copier = following(source, target)
        copier.copy()
        with start(source) as run:
            save(run, checkpoints)
        copier.copy()
        with start(source) as run:
            save(run, checkpoints + 1)
            held = len(keys(source.store, "/data/"))
            save(run, checkpoints + 2)
        for store in stores:
            store.reset()
        copied = copier.copy()
        assert copied.objects == len(keys(source.store, "/data/")) - held + 1
        costs.append([store.counts.copy() for store in stores])
        assert same(source, target)
    assert costs[0] == costs[1]


def test_a_round_moves_each_new_byte_and_each_new_manifest_once() -> None:
    stores = [CountingStore(open_store("memory://")) for _ in range(2)]
    source, target = make_repo(stores[0]), make_repo(stores[1])
    copier = following(source, target)
    with start(source, limits=Limits(inline=10, single=400)) as run:
        for epoch in range(3):
            save(run, epoch, {0: state(0), 1: state(epoch, 1), 2: state(epoch, 2, 5000)})
        copier.copy()
        before = set(keys(source.store))
        for epoch in range(3, 5):
            save(run, epoch, {0: state(0), 1: state(epoch, 1), 2: state(epoch, 2, 5000)})
    new = {info.key: info.size for info in source.store.list("") if info.key not in before}
    data = {key: size for key, size in new.items() if "/data/" in key and not key.endswith(".index")}
    for store in stores:
        store.reset()
    copied = copier.copy()
    assert len(data) == copied.objects == 4
    assert copied.bytes == sum(data.values()) > 10_000
    records = {key: size for key, size in new.items() if "/data/" not in key}
    assert {
        key: size for key, size in stores[0].read_bytes.items() if key in records or "/data/" in key
    } == data | records
    assert stores[1].written_bytes - Counter({keys_of().latest: 10_000}) == data | records
    # What else is read are small records: who both are, and what stood in the one before.
    assert sum(stores[0].read_bytes.values()) < sum((data | records).values()) + 2_000


def test_what_comes_and_goes_at_the_source_round_after_round_comes_and_goes_at_the_target() -> None:
    source, target = filled(3), make_repo()
    copier = following(source, target)
    copier.copy()
    for epoch in range(3, 9):
        with start(source) as run:
            save(run, epoch, {0: state(0), 1: state(epoch, 1)})
            save(run, epoch + 100)
        if epoch == 4:
            look(source)["epoch:3"].savepoint("v1")
        if epoch == 6:
            look(source).remove_savepoint("v1")
        look(source).prune(KeepPolicy(last=2), dry_run=False)
        copier.copy()
        assert same(source, target), epoch
        assert look(target).check(read_percent=100).damaged == []


def test_a_pin_comes_and_goes_with_the_source() -> None:
    source, target = filled(3), make_repo()
    copier = following(source, target)
    look(source)["epoch:1"].pin("a look at it")
    copier.copy()
    assert [pin.at for pin in look(target).pins()] == [Slot(0, 1)]
    look(source)["epoch:1"].unpin()
    copier.copy()
    assert look(target).pins() == []


def test_after_a_round_that_failed_the_target_is_looked_at_anew() -> None:
    source, store = filled(2), open_store("memory://")
    target = make_repo(store)
    copier = following(source, target)
    copier.copy()
    with start(source) as run:
        save(run, 2)
    with pytest.raises(RuntimeError):
        copier.copy(lambda *_: (_ for _ in ()).throw(RuntimeError("told to stop")))
    store.delete([manifest_key(Slot(0, 1))])
    copier.copy()
    assert same(source, target)


def test_a_target_that_is_activated_between_two_rounds_has_diverged() -> None:
    source, target = filled(2), make_repo()
    copier = following(source, target)
    copier.copy()
    start(target, activate=True).close()
    with pytest.raises(Diverged):
        copier.copy()


# ---- the ledger ----


def ledger_of(repo: Repository) -> list[str]:
    return [key.rpartition("/")[2] for key in keys(repo.store, "/ledger/")]


def put_ledger(repo: Repository, *names: str) -> None:
    for name in names:
        # What it says is a pipeline's to know; it is sealed as all records are.
        sealed = seal(Intent(token=name, generation=0, slot=0))
        repo.store.create(f"{keys_of().ledger}0000000000/{name}", sealed)


def test_decisions_that_the_source_has_joined_are_joined_at_the_target_and_a_loss_is_not_copied() -> None:
    source, target = filled(2), make_repo()
    copier = following(source, target)
    alone = ["0000000005-0001.json", "0000000005-0000000006.aa.joined", "0000000009-0001.json"]
    put_ledger(source, *alone)
    copier.copy()
    assert ledger_of(target) == sorted(alone)
    put_ledger(source, "0000000005-0000000008.bb.joined")
    source.store.delete([f"{keys_of().ledger}0000000000/{name}" for name in alone])
    copier.copy()
    assert ledger_of(target) == ["0000000005-0000000008.bb.joined", "0000000009-0001.json"]


def test_decisions_up_to_the_oldest_checkpoint_go_from_the_target_too() -> None:
    source, target = filled(4), make_repo()
    put_ledger(source, "0000000001-0000000002.aa.joined", "0000000003-0000000003.bb.joined")
    copier = following(source, target)
    copier.copy()
    assert len(ledger_of(target)) == 2
    look(source).prune(KeepPolicy(last=2), dry_run=False)
    copier.copy()
    assert ledger_of(target) == ["0000000003-0000000003.bb.joined"]
