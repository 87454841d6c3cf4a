from __future__ import annotations

import pytest

from builders import (
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
    start,
    state,
    truncate,
)
from holdfast.check import Checked
from holdfast.gc import sweep
from holdfast.handles import Repository, open_url
from holdfast.layout import Slot
from holdfast.recovery import Demands
from holdfast.repository.packs import read_index
from holdfast.store import open_store
from holdfast.testing.faults import Crash, CrashingStore


def mend(repo: Repository) -> Checked:
    return look(repo).check(read_percent=100, mend=True)


def test_with_nothing_wrong_nothing_is_touched() -> None:
    repo = filled(3)
    before = dump(repo.store)
    assert mend(repo).repaired == []
    assert dump(repo.store) == before


@pytest.mark.parametrize("harm", [flip, truncate, lambda store, key: store.delete([key])])
def test_the_hint_is_rebuilt_from_the_records(harm: object) -> None:
    repo = filled(3)
    harm(repo.store, keys_of().latest)  # type: ignore[operator]
    assert "0-2" in mend(repo).repaired[0]
    hint = look(repo).records.hint()
    assert hint is not None
    assert (hint.generation, hint.slot) == (0, 2)


def test_a_damaged_index_is_rebuilt_beside_its_pack_and_the_pack_is_left_as_it_is() -> None:
    repo = make_repo()
    with start(repo) as run:
        written = save(run, 0, 5)
    key = data_key(written)
    flip(repo.store, key, -1)
    pack = repo.store.get(key)
    assert len(mend(repo).repaired) == 1
    assert repo.store.get(key) == pack
    members = read_index(key, repo.store.get(f"{key}.index"))
    assert [(m.offset, m.sha256) for m in members] == sorted((a.offset, a.sha256) for _, a in written.artifacts())
    assert not [fault for fault in look(repo).check(read_percent=100).faults if fault.kind == "index"]


def test_a_rebuilt_index_goes_when_its_pack_is_swept() -> None:
    repo = filled(4)
    key = data_key(look(repo).records.manifest(Slot(0, 0)))
    flip(repo.store, key, -1)
    mend(repo)
    look(repo).forget(Slot(0, 0))
    with start(repo):
        sweep(look(repo).records)
    assert keys(repo.store, key) == []


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_checkpoint_that_can_not_be_restored_is_set_aside_and_its_manifest_kept(number: int) -> None:
    repo = filled(3)
    written = look(repo).records.manifest(Slot(0, number))
    damage_state(repo.store, written)
    before = repo.store.get(manifest_key(Slot(0, number)))
    report = mend(repo)
    assert any(f"0-{number}: set aside" in line for line in report.repaired)
    assert epochs(look(repo)) == [epoch for epoch in range(3) if epoch != number]
    [aside] = keys(repo.store, "aside/")
    assert repo.store.get(aside) == before
    assert look(repo).check(read_percent=100).damaged == []
    with start(repo) as run:
        assert run.recovered.skipped == ()


def test_an_unreadable_manifest_is_set_aside_and_the_hint_moves_to_what_is_newest() -> None:
    repo = filled(3)
    flip(repo.store, manifest_key(Slot(0, 2)))
    mend(repo)
    assert epochs(look(repo)) == [0, 1]
    hint = look(repo).records.hint()
    assert hint is not None
    assert hint.slot == 1
    with start(repo) as run:
        assert (run.recovered.skipped, save(run, 5).at) == ((), Slot(1, 0))


def test_bytes_that_healthy_checkpoints_share_are_not_taken_by_a_repair() -> None:
    repo = make_repo()
    with start(repo) as run:
        save(run, 0, {0: state(0), 1: state(1)})
        hurt = save(run, 1, {0: state(0), 1: state(1), 2: state(2)})
        save(run, 2, {0: state(0), 1: state(3)})
    damage_state(repo.store, hurt, partition=2)
    data = set(keys(repo.store, "data/"))
    mend(repo)
    assert set(keys(repo.store, "data/")) == data
    assert epochs(look(repo)) == [0, 2]
    assert look(repo).check(read_percent=100).damaged == []


def test_the_last_ones_are_not_set_aside_when_nothing_whole_would_be_left() -> None:
    repo = filled(3)
    for number in range(3):
        damage_state(repo.store, look(repo).records.manifest(Slot(0, number)))
    report = mend(repo)
    assert report.repaired == []
    assert report.left == [f"0-{n}: not set aside, no whole checkpoint would be left" for n in range(3)]
    assert len(keys(repo.store, "checkpoints/")) == 3


def test_what_somebody_needs_is_not_set_aside_and_the_report_says_so() -> None:
    repo = filled(5)
    look(repo)["epoch:0"].savepoint("v1")
    look(repo)["epoch:1"].pin("audit")
    with start(repo, demands=Demands(to=Slot(0, 2))) as run:
        save(run, 3)
    for number in range(3):
        damage_state(repo.store, look(repo).records.manifest(Slot(0, number)))
    report = mend(repo)
    said = "\n".join(report.left)
    assert report.repaired == []
    for words in ("savepoint v1", "pin: audit", "newest generation began"):
        assert words in said
    assert all(keys(repo.store, f"checkpoints/0000000000/000000000{number}.json") for number in range(3))
    assert keys(repo.store, ".intent") == []


def test_a_repair_killed_before_its_end_can_be_run_again() -> None:
    at = 0
    while True:
        inner = open_store("memory://")
        repo = filled(4, inner)
        damage_state(inner, look(repo).records.manifest(Slot(0, 3)))
        crashed = False
        try:
            mend(open_url(CrashingStore(inner, at, "after")))
        except Crash:
            crashed = True
        mend(repo)
        assert epochs(look(repo)) == [0, 1, 2], at
        assert look(repo).check(read_percent=100).damaged == []
        if not crashed:
            break
        at += 1
    assert at > 10
