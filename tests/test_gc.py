from __future__ import annotations

import pytest

from builders import NAME, dump, epochs, filled, flip, keys, look, make_repo, manifest_key, save, start, state
from holdfast.decide.retention import KeepPolicy
from holdfast.errors import CheckpointMissing, Damage, Fenced, NotActivated, StillNeeded
from holdfast.gc import Removed, delete_checkpoint, named_objects, needs, plan_prune, sweep
from holdfast.handles import Repository, open_url
from holdfast.ids import new_token
from holdfast.layout import Slot
from holdfast.manifest import encode_manifest
from holdfast.names import name_checkpoint, pin_checkpoint
from holdfast.records import Intent, Pin
from holdfast.recovery import Demands
from holdfast.store import Buffer, ObjectInfo, open_store
from holdfast.testing.faults import Around, Crash, CrashingStore

LAST_TWO = KeepPolicy(last=2)


def prune(repo: Repository, policy: KeepPolicy = LAST_TWO) -> Removed:
    return plan_prune(look(repo).records, policy).apply()


def whole(repo: Repository) -> bool:
    return look(repo).check(read_percent=100).damaged == []


def chained(repo: Repository) -> None:
    """Epoch 0 is a snapshot, the others deltas on top of it, so that all share its bytes."""
    with start(repo) as run:
        save(run, 0)
        for epoch in range(1, 5):
            draft = run.begin(epoch)
            run.save_delta(draft, "count", 0, state(epoch))
            run.save_manifest(draft)


# ---- deleting ----


def test_deleting_really_deletes_and_says_what() -> None:
    repo = filled(4)
    doomed = list(look(repo).records.manifest(Slot(0, 1)).objects)
    removed = delete_checkpoint(look(repo).records, Slot(0, 1))
    assert (removed.checkpoints, removed.objects) == ([Slot(0, 1)], doomed)
    assert all(not keys(repo.store, path) for path in doomed)
    assert not keys(repo.store, "checkpoints/0000000000/0000000001.json")
    assert epochs(look(repo)) == [0, 2, 3]
    assert keys(repo.store, ".intent") == []
    assert whole(repo)


def test_what_is_deleted_is_gone_for_whoever_deleted_it_too() -> None:
    repo = filled(4)
    with start(repo) as run:
        run.load_manifest(Slot(0, 1))
        run.delete_checkpoint(Slot(0, 1))
        with pytest.raises(CheckpointMissing):
            run.load_manifest(Slot(0, 1))


def test_deleting_what_is_not_there_is_an_error_and_not_a_success() -> None:
    repo = filled(4)
    before = dump(repo.store)
    for slot in (Slot(0, 9), Slot(3, 0)):
        with pytest.raises(CheckpointMissing):
            delete_checkpoint(look(repo).records, slot)
    assert dump(repo.store) == before
    delete_checkpoint(look(repo).records, Slot(0, 0))
    with pytest.raises(CheckpointMissing):
        delete_checkpoint(look(repo).records, Slot(0, 0))


def test_deleting_leaves_the_bytes_that_other_checkpoints_depend_on() -> None:
    repo = make_repo()
    chained(repo)
    for number in (0, 1, 2):
        assert delete_checkpoint(look(repo).records, Slot(0, number)).objects == []
    assert epochs(look(repo)) == [3, 4]
    assert whole(repo)
    with start(repo) as run:
        assert run.tip is not None
        assert run.load_partition(run.tip, "count", 0) == [state(epoch) for epoch in range(5)]


def test_the_last_bytes_go_with_the_last_checkpoint_that_names_them() -> None:
    repo = make_repo()
    chained(repo)
    with start(repo) as run:
        for epoch in (5, 6, 7):
            save(run, epoch)
    for number in range(4):
        assert delete_checkpoint(look(repo).records, Slot(0, number)).objects == []
    with start(repo):
        pass
    assert len(delete_checkpoint(look(repo).records, Slot(0, 4)).objects) == 5
    assert whole(repo)


@pytest.mark.parametrize("number", [2, 3])
def test_the_last_two_are_never_deleted(number: int) -> None:
    repo = filled(4)
    with pytest.raises(StillNeeded, match="last two"):
        delete_checkpoint(look(repo).records, Slot(0, number))


def test_what_a_name_a_pin_or_the_newest_generation_needs_is_not_deleted() -> None:
    repo = filled(6)
    look(repo)["epoch:0"].savepoint("v1")
    look(repo)["epoch:1"].pin("audit")
    with start(repo, demands=Demands(to=Slot(0, 2))) as run:
        for epoch in (3, 4, 5):
            save(run, epoch)
    for number, why in ((0, "savepoint v1"), (1, "pin: audit"), (2, "newest generation began")):
        with pytest.raises(StillNeeded, match=why):
            delete_checkpoint(look(repo).records, Slot(0, number))
    assert delete_checkpoint(look(repo).records, Slot(0, 5)).checkpoints == [Slot(0, 5)]


# ---- pruning ----


def test_a_prune_keeps_what_the_policy_keeps_and_the_plan_says_so_before() -> None:
    repo = filled(10)
    plan = plan_prune(look(repo).records, KeepPolicy(last=3))
    before = dump(repo.store)
    assert plan.drops == [Slot(0, n) for n in range(7)]
    assert all(verdict.reasons for verdict in plan.verdicts)
    assert dump(repo.store) == before
    assert plan.apply().checkpoints == plan.drops
    assert epochs(look(repo)) == [7, 8, 9]
    assert whole(repo)
    assert len(keys(repo.store, "data/")) == 3


def test_keeping_one_keeps_two_so_that_a_damaged_newest_leaves_something() -> None:
    repo = filled(5)
    prune(repo, KeepPolicy(last=1))
    assert epochs(look(repo)) == [3, 4]
    flip(repo.store, manifest_key(Slot(0, 4)))
    with start(repo) as run:
        assert run.recovered.manifest is not None
        assert run.recovered.manifest.epoch == 3


def test_a_prune_before_the_next_commit_never_leaves_nothing_restorable() -> None:
    repo = filled(1)
    for _ in range(3):
        prune(repo, KeepPolicy(last=1))
        with start(repo) as run:
            assert run.recovered.manifest is not None


def test_named_pinned_and_begun_from_checkpoints_outlive_every_prune() -> None:
    repo = filled(8)
    look(repo)["epoch:1"].savepoint("v1")
    look(repo)["epoch:2"].pin()
    with start(repo, demands=Demands(to=Slot(0, 4))) as run:
        for epoch in (5, 6, 7):
            save(run, epoch)
    prune(repo)
    left = [c.slot for c in look(repo).checkpoints(with_abandoned=True)]
    assert left == [Slot(0, 1), Slot(0, 2), Slot(0, 4), Slot(1, 1), Slot(1, 2)]
    assert whole(repo)


def test_abandoned_checkpoints_go_and_with_nothing_on_the_timeline_nothing_goes() -> None:
    repo = filled(3)
    with start(repo, demands=Demands(to=Slot(0, 0))) as run:
        save(run, 1)
    assert prune(repo).checkpoints == [Slot(0, 1), Slot(0, 2)]
    lonely = make_repo()
    with start(lonely) as old, start(lonely), pytest.raises(Fenced):
        save(old, 0)
    assert prune(lonely, KeepPolicy(last=1)).checkpoints == []
    assert len(keys(lonely.store, "checkpoints/")) == 1


def test_a_pin_that_a_dead_claim_left_holds_nothing_once_that_claim_is_void() -> None:
    repo = filled(5)
    records = look(repo).records
    pin = Pin(token=new_token(), generation=0, slot=1, why="start", who="me", created_ms=0, claim=1)
    records.create(records.keys.pin(Slot(0, 1), pin.token), pin)
    assert Slot(0, 1) not in prune(repo).checkpoints
    with start(repo):
        pass
    assert Slot(0, 1) in prune(repo).checkpoints


def test_an_unreadable_manifest_stops_a_prune_before_anything_is_deleted() -> None:
    """Clean-up must never swallow a read error: what the damaged one names is not known."""
    repo = filled(6)
    flip(repo.store, manifest_key(Slot(0, 2)), at=-5)
    flip(repo.store, manifest_key(Slot(0, 5)), at=-5)
    before = dump(repo.store)
    with pytest.raises(Damage):
        prune(repo)
    after = dump(repo.store)
    assert {k: v for k, v in after.items() if "forgotten/" not in k} == before
    flip(repo.store, manifest_key(Slot(0, 3)), at=5)
    with pytest.raises(Damage):
        plan_prune(look(repo).records, LAST_TWO)


def test_missing_lists_never_look_like_an_empty_pipeline_to_a_prune() -> None:
    """A missing list was read as empty elsewhere, and start-up clean-up deleted every checkpoint."""
    for part in ("generations/", ".base.json", "pipeline.json"):
        repo = filled(5)
        repo.store.delete(keys(repo.store, part))
        before = dump(repo.store)
        try:
            assert prune(repo).checkpoints == []
            assert sweep(look(repo).records).objects == []
        except Damage:
            pass
        assert dump(repo.store) == before


def test_unknown_objects_are_never_deleted() -> None:
    repo = filled(5)
    prefix = look(repo).records.keys.prefix
    foreign = ["notes.txt", "data/keep/me", "data/0000000000-x/pack-0", "checkpoints/0000000000/old.json", "backup/x"]
    for path in foreign:
        repo.store.put(prefix + path, b"mine")
    with start(repo) as run:
        save(run, 5)
    prune(repo)
    sweep(look(repo).records)
    assert all(repo.store.get(prefix + path) == b"mine" for path in foreign)


def test_a_name_given_while_the_prune_looks_spares_the_checkpoint() -> None:
    repo = filled(6)

    class Naming(Around):
        """Somebody names 0-1 right after its intent stands, and beats the prune to its decision."""

        raced = False

        def create(self, key: str, data: Buffer) -> bool:
            done = super().create(key, data)
            if key.endswith(".intent") and "0000000000-0000000001" in key and not self.raced:
                self.raced = True
                look(repo)["epoch:1"].savepoint("late")
            return done

    removed = prune(open_url(Naming(repo.store)))
    assert Slot(0, 1) in removed.spared
    assert look(repo)["late"].verify().damaged == []


def test_a_name_given_before_the_intent_is_seen_by_the_look() -> None:
    repo = filled(6)
    plan = plan_prune(look(repo).records, LAST_TWO)
    look(repo)["epoch:1"].savepoint("v1")
    look(repo)["epoch:2"].pin("audit")
    removed = plan.apply()
    assert removed.spared == {Slot(0, 1): ["savepoint v1"], Slot(0, 2): ["pin: audit"]}
    assert epochs(look(repo)) == [1, 2, 4, 5]
    assert keys(repo.store, ".intent") == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_prune_killed_at_any_request_is_finished_by_the_next(when: str) -> None:
    at = 0
    while True:
        inner = open_store("memory://")
        repo = filled(5, inner)
        look(repo)["epoch:0"].savepoint("v1")
        dying = CrashingStore(inner, at, "before" if when == "before" else "after")
        crashed = False
        try:
            prune(open_url(dying))
        except Crash:
            crashed = True
        assert epochs(look(repo))[-2:] == [3, 4]
        assert whole(repo)
        prune(repo)
        assert epochs(look(repo)) == [0, 3, 4]
        assert keys(inner, ".intent") == []
        assert len(keys(inner, "data/")) == 3
        assert whole(repo)
        if not crashed:
            break
        at += 1
    assert at > 10


def test_a_manifest_that_lands_late_on_a_forgotten_slot_is_removed_by_the_next_prune() -> None:
    repo = filled(5)
    late = look(repo).records.manifest(Slot(0, 0))
    delete_checkpoint(look(repo).records, Slot(0, 0))
    repo.store.create(manifest_key(Slot(0, 0)), encode_manifest(late))
    assert epochs(look(repo)) == [1, 2, 3, 4]
    plan = plan_prune(look(repo).records, KeepPolicy(last=10))
    assert (plan.drops, plan.leftovers) == ([], [Slot(0, 0)])
    plan.apply()
    assert not keys(repo.store, "checkpoints/0000000000/0000000000.json")


def test_an_intent_of_a_killed_prune_on_a_checkpoint_that_is_needed_now_removes_nothing() -> None:
    repo = filled(4)
    records, token = look(repo).records, new_token()
    records.create(records.keys.intent(Slot(0, 3), token), Intent(token=token, generation=0, slot=3))
    prune(repo)
    assert epochs(look(repo)) == [2, 3]


def test_needs_lists_everybody_who_needs_a_checkpoint() -> None:
    repo = filled(3)
    records = look(repo).records
    name_checkpoint(records, records.head(Slot(0, 0)), "v1")
    pin_checkpoint(records, Slot(0, 0), "audit")
    with start(repo, demands=Demands(to=Slot(0, 0))):
        pass
    found = needs(look(repo).records)
    assert found == {Slot(0, 0): ["savepoint v1", "pin: audit", "the newest generation began from it"]}


# ---- sweeping ----


def left_over(repo: Repository) -> list[str]:
    """An upload of the newest generation that never became a checkpoint."""
    before = set(keys(repo.store, "data/"))
    with start(repo) as run:
        draft = run.begin(99)
        run.save_snapshot(draft, "count", 0, state(99))
        draft._upload.finish()
    return sorted(set(keys(repo.store, "data/")) - before)


def test_a_sweep_removes_what_nothing_names_only_of_generations_that_are_over() -> None:
    repo = filled(3)
    [orphan] = left_over(repo)
    assert sweep(look(repo).records).objects == []
    with start(repo):
        looked = sweep(look(repo).records, dry_run=True)
        assert orphan in keys(repo.store)
        swept = sweep(look(repo).records)
    prefix = look(repo).records.keys.prefix
    assert (swept.objects, swept.bytes > 100) == ([orphan.removeprefix(prefix)], True)
    assert looked == swept
    assert orphan not in keys(repo.store)
    assert whole(repo)


def test_an_upload_under_way_is_never_swept_however_long_it_takes() -> None:
    repo = filled(2)
    with start(repo) as run:
        draft = run.begin(2)
        run.save_snapshot(draft, "count", 0, state(2))
        draft._upload.finish()
        sweep(look(repo).records)
        run.save_manifest(draft)
    assert whole(repo)


def test_a_sweep_that_can_not_read_a_manifest_removes_nothing() -> None:
    repo = filled(3)
    left_over(repo)
    with start(repo):
        flip(repo.store, manifest_key(Slot(0, 1)), at=-5)
        before = dump(repo.store)
        with pytest.raises(Damage):
            sweep(look(repo).records)
        assert dump(repo.store) == before


def test_bytes_that_move_on_to_a_newer_generation_while_a_sweep_reads_are_kept() -> None:
    """Older generations are read first: a checkpoint that moved on meanwhile is seen in the newer one."""
    repo = make_repo()
    with start(repo) as run:
        for epoch in range(3):
            save(run, epoch, {0: state(0)})
    inner = repo.store

    class Moving(Around):
        moved = False

        def list(self, prefix: str, start_after: str = "") -> list[ObjectInfo]:
            found = super().list(prefix, start_after)
            if prefix.endswith("checkpoints/0000000000/") and not self.moved:
                self.moved = True
                with start(repo) as run:
                    for epoch in range(3, 6):
                        save(run, epoch, {0: state(0)})
                with start(repo):
                    prune(repo)
            return found

    with start(repo):
        swept = sweep(open_url(Moving(inner)).pipeline(NAME).records)
    assert swept.objects == []
    assert whole(repo)


def test_all_that_any_manifest_names_is_named() -> None:
    repo = make_repo()
    chained(repo)
    with start(repo, demands=Demands(to=Slot(0, 1))) as run:
        save(run, 2)
    records = look(repo).records
    everything = {key.removeprefix(records.keys.prefix) for key in keys(repo.store, "data/")}
    assert named_objects(records) == everything
    assert named_objects(records, but=[Slot(1, 0)]) < everything


# ---- copies ----


def test_a_copy_is_neither_pruned_nor_swept_nor_thinned() -> None:
    source, target = filled(5), make_repo()
    source.copy_to(target, NAME)
    before = dump(target.store)
    for act in (
        lambda: plan_prune(look(target).records, LAST_TWO),
        lambda: sweep(look(target).records),
        lambda: delete_checkpoint(look(target).records, Slot(0, 0)),
    ):
        with pytest.raises(NotActivated):
            act()
    assert dump(target.store) == before


def three_generations() -> Repository:
    repo = make_repo()
    for generation in range(3):
        with start(repo) as run:
            for number in range(4):
                save(run, 4 * generation + number)
    return repo


LOST = [
    "generations/0000000000.base.json",
    "generations/0000000001.base.json",
    "generations/0000000002.base.json",
    "generations/0000000002.json",
    "checkpoints/0000000002/0000000003.json",
    "checkpoints/0000000001/0000000003.json",
    "checkpoints/0000000000/0000000001.json",
]


@pytest.mark.parametrize("lost", LOST)
def test_with_any_record_lost_that_says_what_counts_nothing_is_deleted(lost: str) -> None:
    repo = three_generations()
    repo.store.delete([f"pipelines/{NAME}/{lost}"])
    before = keys(repo.store)
    with pytest.raises(Damage):
        plan_prune(look(repo).records, KeepPolicy(last=2)).apply()
    with pytest.raises(Damage):
        sweep(look(repo).records)
    with pytest.raises(Damage):
        delete_checkpoint(look(repo).records, Slot(0, 0))
    assert keys(repo.store) == before


def test_the_loss_of_an_old_claim_does_not_stop_clean_up() -> None:
    repo = three_generations()
    repo.store.delete([f"pipelines/{NAME}/generations/0000000000.json"])
    assert prune(repo).checkpoints != []
