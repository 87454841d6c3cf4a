from __future__ import annotations

import hashlib

import msgspec
import pytest

from builders import (
    damage_state,
    epochs,
    filled,
    flip,
    look,
    make_repo,
    manifest_key,
    plain_manifest,
    save,
    start,
    state,
)
from holdfast.errors import BrokenChain, CheckpointMissing, DamagedArtifact, DamagedRecord, StillNeeded
from holdfast.layout import Slot


def test_saving_gives_the_digest_of_what_was_saved() -> None:
    with start(make_repo()) as run:
        draft = run.begin(0)
        assert run.save_snapshot(draft, "count", 0, b"whole") == hashlib.sha256(b"whole").hexdigest()
        assert run.save_delta(draft, "count", 0, b"delta") == hashlib.sha256(b"delta").hexdigest()


def test_what_was_saved_loads_again_in_another_process() -> None:
    repo = make_repo()
    with start(repo) as run:
        save(run, 7, 3)
    with start(repo) as run:
        manifest = run.load_manifest(Slot(0, 0))
        assert manifest.epoch == 7
        assert [run.load_partition(manifest, "count", p) for p in range(3)] == [[state(7, p)] for p in range(3)]
        assert run.load_artifact(manifest.operators["count"][1][0]) == state(7, 1)


def test_loading_what_is_not_there_names_it() -> None:
    with start(filled(1)) as run:
        with pytest.raises(CheckpointMissing, match=r"orders@.*0-9"):
            run.load_manifest(Slot(0, 9))
        assert run.tip is not None
        with pytest.raises(CheckpointMissing, match="partition 9"):
            run.load_partition(run.tip, "count", 9)
        with pytest.raises(CheckpointMissing, match="'other'"):
            run.load_partition(run.tip, "other", 0)


def test_loading_is_always_verified() -> None:
    repo = filled(2)
    with start(repo) as run:
        assert run.tip is not None
        damage_state(repo.store, run.tip)
        with pytest.raises(DamagedArtifact):
            run.load_partition(run.tip, "count", 0)
        flip(repo.store, manifest_key(Slot(0, 0)))
        with pytest.raises(DamagedRecord):
            run.load_manifest(Slot(0, 0))


def test_a_chain_with_a_hole_is_never_loaded_as_if_it_were_whole() -> None:
    with start(make_repo()) as run:
        save(run, 0)
        for epoch in (1, 2):
            draft = run.begin(epoch)
            run.save_delta(draft, "count", 0, state(epoch))
            manifest = run.save_manifest(draft)
        snapshot, first, second = manifest.operators["count"][0]
        for chain in ([snapshot, second], [first, second], [snapshot, second, first], []):
            holed = msgspec.structs.replace(plain_manifest(), operators={"count": {0: chain}})
            with pytest.raises(BrokenChain) as broken:
                run.load_partition(holed, "count", 0)
            assert (broken.value.operator, broken.value.partition) == ("count", 0)


def test_the_list_is_of_what_counts_oldest_first() -> None:
    with start(filled(3)) as run:
        save(run, 3)
        assert [(head.at, head.epoch) for head in run.list_checkpoints()] == [
            (Slot(0, 0), 0),
            (Slot(0, 1), 1),
            (Slot(0, 2), 2),
            (Slot(1, 0), 3),
        ]


def test_moving_the_hint_by_hand_never_changes_what_is_latest() -> None:
    with start(filled(3)) as run:
        for slot in (Slot(0, 0), Slot(0, 99)):
            run.update_latest(slot)
            assert run.read_latest() == Slot(0, 2)


def test_deleting_refuses_what_is_needed_and_says_what_went() -> None:
    repo = filled(4)
    with start(repo) as run:
        with pytest.raises(StillNeeded):
            run.delete_checkpoint(Slot(0, 3))
        assert run.delete_checkpoint(Slot(0, 0)).checkpoints == [Slot(0, 0)]
    assert epochs(look(repo)) == [1, 2, 3]


def test_integrity_is_proven_for_one_checkpoint() -> None:
    repo = filled(2)
    with start(repo) as run:
        assert run.verify_integrity(Slot(0, 1)).damaged == []
        damage_state(repo.store, run.load_manifest(Slot(0, 1)))
        assert [fault.kind for fault in run.verify_integrity(Slot(0, 1)).damaged] == ["flipped"]
