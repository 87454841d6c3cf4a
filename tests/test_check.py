from __future__ import annotations

import random

import msgspec
import pytest

from builders import (
    NAME,
    damage_state,
    data_key,
    dump,
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
from holdfast.check import Checked, check, verify_integrity
from holdfast.handles import Repository, open_url
from holdfast.ids import new_token
from holdfast.layout import Slot
from holdfast.manifest import Manifest, encode_manifest
from holdfast.records import Decision, Intent, seal
from holdfast.repository.uploads import Limits
from holdfast.store import ObjectInfo
from holdfast.testing.faults import Around


def manifest(repo: Repository, number: int) -> Manifest:
    return look(repo).records.manifest(Slot(0, number))


def found(repo: Repository, percent: float = 100) -> list[tuple[str, str]]:
    """Severity and kind of each fault, without the notes on what these manifests leave out."""
    faults = check(look(repo).records, read_percent=percent).faults
    return [(fault.severity, fault.kind) for fault in faults if fault.kind != "note"]


def test_a_sound_pipeline_has_no_faults_and_every_byte_was_read() -> None:
    repo = filled(3)
    report = check(look(repo).records, read_percent=100)
    assert report.damaged == []
    assert found(repo) == []
    assert (report.checkpoints, report.bytes_read) == (3, 300)
    assert report.objects == len(keys(repo.store, "pipelines/"))


def test_a_check_changes_nothing() -> None:
    repo = filled(3)
    damage_state(repo.store, manifest(repo, 1))
    repo.store.delete([manifest_key(Slot(0, 0))])
    before = dump(repo.store)
    check(look(repo).records, read_percent=100)
    assert dump(repo.store) == before


def test_a_missing_object_is_found_without_reading_data_and_says_whom_it_hits() -> None:
    repo = filled(3)
    repo.store.delete([data_key(manifest(repo, 1))])
    report = check(look(repo).records)
    assert [(f.kind, f.checkpoints) for f in report.damaged] == [("missing", (Slot(0, 1),))]
    assert report.hit == {Slot(0, 1)}
    assert found(repo, 100) == [("damage", "missing")]


def test_a_truncated_object_is_found_without_reading_data() -> None:
    repo = filled(3)
    truncate(repo.store, data_key(manifest(repo, 2)))
    assert [(f.kind, f.checkpoints) for f in check(look(repo).records).damaged] == [("truncated", (Slot(0, 2),))]


def test_a_flipped_bit_is_found_only_by_reading_and_hits_all_that_share_it() -> None:
    repo = make_repo()
    with start(repo) as run:
        save(run, 0, {0: state(0)})
        shared = save(run, 1, {0: state(0), 1: state(1)})
        save(run, 2, {1: state(2)})
    damage_state(repo.store, shared, partition=0)
    assert found(repo, 0) == []
    [fault] = check(look(repo).records, read_percent=100).damaged
    assert (fault.kind, fault.checkpoints) == ("flipped", (Slot(0, 0), Slot(0, 1)))


def test_every_artifact_of_every_kind_is_read() -> None:
    repo = make_repo()
    with start(repo, limits=Limits(inline=0, single=300)) as run:
        draft = run.begin(0)
        draft.save_driver_state("driver", b"d" * 100)
        draft.save_file("offsets/0", b"f" * 400)
        run.save_snapshot(draft, "count", 0, b"s" * 100)
        run.save_delta(draft, "count", 0, b"x" * 100)
        written = run.save_manifest(draft)
    places = [(a.path or "", (a.offset or 0)) for _, a in written.artifacts()]
    assert len(places) == 4
    for path, offset in places:
        key = keys_of().prefix + path
        flip(repo.store, key, offset + 50)
        assert found(repo) == [("damage", "flipped")], path
        flip(repo.store, key, offset + 50)
    assert found(repo) == []


def test_a_damaged_index_of_a_pack_is_a_warning_because_its_members_are_whole() -> None:
    repo = filled(2)
    key = data_key(manifest(repo, 0))
    flip(repo.store, key, -1)
    assert found(repo) == [("warning", "index")]


@pytest.mark.parametrize("at", [30, -5])
def test_an_unreadable_manifest_is_damage_of_its_checkpoint(at: int) -> None:
    repo = filled(3)
    flip(repo.store, manifest_key(Slot(0, 1)), at)
    [fault] = check(look(repo).records).damaged
    assert (fault.kind, fault.where, fault.checkpoints) == ("unreadable", manifest_key(Slot(0, 1)), (Slot(0, 1),))


def test_a_missing_manifest_is_found_as_a_gap_or_by_the_hint() -> None:
    repo = filled(3)
    repo.store.delete([manifest_key(Slot(0, 1))])
    assert [f.what for f in check(look(repo).records).damaged] == ["the manifest of 0-1"]
    repo = filled(3)
    repo.store.delete([manifest_key(Slot(0, 2))])
    [fault] = check(look(repo).records).damaged
    assert "hint names 0-2" in fault.what


@pytest.mark.parametrize("part", ["pipeline.json", "generations/0000000000.json", "generations/0000000000.base.json"])
def test_a_missing_or_damaged_record_is_damage(part: str) -> None:
    for harm in (flip, truncate, lambda store, key: store.delete([key])):
        repo = filled(3)
        [key] = keys(repo.store, part)
        harm(repo.store, key)
        assert check(look(repo).records).damaged, part


def test_every_other_record_that_is_damaged_is_named() -> None:
    repo = filled(6)
    look(repo)["epoch:1"].savepoint("v1")
    look(repo)["epoch:2"].pin()
    look(repo).forget(Slot(0, 0))
    # Whatever a pipeline has decided is sealed as all records are; here any will do.
    decided = Intent(token=new_token(), generation=0, slot=0)
    repo.store.put(f"{keys_of(NAME).ledger}{0:010}/{7:010}-0000.json", seal(decided))
    for part in ("savepoints/", "pins/", "forgotten/", "ledger/"):
        [key] = keys(repo.store, part)
        flip(repo.store, key)
        try:
            assert key in [fault.where for fault in check(look(repo).records).damaged]
        finally:
            flip(repo.store, key)
    assert found(repo) == []


def test_objects_that_are_not_ours_are_noted_and_left_alone() -> None:
    repo = filled(2)
    repo.store.put(f"{keys_of().prefix}notes.txt", b"mine")
    assert found(repo) == [("note", "extra")]


def test_bytes_that_nothing_names_are_noted_with_what_becomes_of_them() -> None:
    repo = filled(2)
    with start(repo) as run:
        draft = run.begin(9)
        run.save_snapshot(draft, "count", 0, state(9))
        draft._upload.finish()
        [fault] = [f for f in check(look(repo).records).faults if f.kind == "extra"]
        assert "under way" in fault.what
    with start(repo):
        [fault] = [f for f in check(look(repo).records).faults if f.kind == "extra"]
        assert "sweeps it" in fault.what


def test_leftovers_of_a_prune_are_noted() -> None:
    repo = filled(4)
    records, late = look(repo).records, manifest(repo, 0)
    look(repo).forget(Slot(0, 0))
    repo.store.create(manifest_key(Slot(0, 0)), encode_manifest(late))
    token = new_token()
    records.create(records.keys.intent(Slot(0, 1), token), Intent(token=token, generation=0, slot=1))
    assert found(repo) == [("note", "extra"), ("note", "extra")]


def test_a_savepoint_whose_checkpoint_is_gone_is_damage() -> None:
    repo = filled(4)
    look(repo)["epoch:1"].savepoint("v1")
    repo.store.delete([manifest_key(Slot(0, 1))])
    assert ("damage", "savepoint v1") in [(f.severity, f.where) for f in check(look(repo).records).faults]


def test_a_name_whose_giver_died_before_it_saw_the_prune_is_a_warning() -> None:
    repo = filled(4)
    look(repo)["epoch:1"].savepoint("v1")
    records = look(repo).records
    records.create(records.keys.decision(Slot(0, 1)), Decision(token=new_token(), generation=0, slot=1, objects=[]))
    assert ("warning", "savepoint v1") in [(f.severity, f.where) for f in check(look(repo).records).faults]


def test_what_a_running_pipeline_publishes_and_names_meanwhile_is_not_taken_for_lost() -> None:
    repo = make_repo()
    with start(repo) as run:
        save(run, 0)

        class Running(Around):
            """Right after the first look at the decisions the pipeline goes on."""

            gone_on = False

            def list(self, prefix: str, start_after: str = "") -> list[ObjectInfo]:
                found = super().list(prefix, start_after)
                if "forgotten/" in prefix and not self.gone_on:
                    self.gone_on = True
                    save(run, 1)
                    look(repo)["epoch:1"].savepoint("soon")
                return found

        report = check(look(open_url(Running(repo.store))).records, read_percent=100)
    assert report.damaged == []


@pytest.mark.parametrize("harm", [flip, truncate, lambda store, key: store.delete([key])])
def test_a_missing_or_corrupt_hint_is_only_a_warning(harm: object) -> None:
    repo = filled(3)
    harm(repo.store, keys_of().latest)  # type: ignore[operator]
    assert found(repo) == [("warning", "hint")]


def test_a_fault_tells_its_place_once() -> None:
    repo = filled(3)
    flip(repo.store, manifest_key(Slot(0, 1)))
    flip(repo.store, keys_of().claim(0))
    faults = [f for f in check(look(repo).records).faults if f.kind == "unreadable"]
    assert len(faults) == 2
    assert not [f for f in faults if f.where in f.what]


def test_an_invalid_manifest_is_damage_and_a_warning_in_it_a_note() -> None:
    repo = filled(1)
    plain = manifest(repo, 0)
    broken = msgspec.structs.replace(plain, slot=1, epoch=1, sink_names=["table"], parent=None)
    repo.store.create(manifest_key(Slot(0, 1)), encode_manifest(broken))
    faults = check(look(repo).records).faults
    assert {(f.severity, f.checkpoints) for f in faults if f.kind == "invalid"} == {("damage", (Slot(0, 1),))}
    notes = [f for f in faults if f.kind == "note"]
    assert {(f.severity, f.checkpoints) for f in notes} == {("note", ())}
    assert len([f for f in notes if "pipeline_hash" in f.what]) == 1


# ---- a share of the data ----


def many() -> Repository:
    repo = make_repo()
    with start(repo) as run:
        save(run, 0, 200)
    return repo


def test_a_percentage_reads_about_that_share_and_a_seed_reads_the_same_again() -> None:
    repo = many()
    shares = [check(look(repo).records, read_percent=30, seed=seed).bytes_read for seed in range(5)]
    assert all(0.1 < share / 20_000 < 0.5 for share in shares)
    assert len(set(shares)) > 1
    assert check(look(repo).records, read_percent=30, seed=3).bytes_read == shares[3]
    assert check(look(repo).records, read_percent=0).bytes_read == 0
    assert check(look(repo).records, read_percent=100).bytes_read == 20_000


def test_reading_a_share_often_enough_finds_every_damage() -> None:
    repo = many()
    damage_state(repo.store, manifest(repo, 0), partition=random.Random(3).randrange(200))
    seeds = [seed for seed in range(60) if check(look(repo).records, read_percent=20, seed=seed).damaged]
    assert 2 < len(seeds) < 40


def test_progress_is_told_up_to_the_whole() -> None:
    repo, told = filled(3), list[tuple[str, int, int]]()
    check(look(repo).records, read_percent=100, progress=lambda *said: told.append(said))
    assert told[-1] == ("reading", 300, 300)


# ---- one checkpoint ----


def test_one_checkpoint_is_proven_by_itself() -> None:
    repo = filled(3)
    damage_state(repo.store, manifest(repo, 1))

    def kinds(number: int) -> list[str]:
        report: Checked = verify_integrity(look(repo).records, Slot(0, number))
        assert report.pipeline == NAME
        return [fault.kind for fault in report.damaged]

    assert [kinds(number) for number in range(3)] == [[], ["flipped"], []]
    repo.store.delete([data_key(manifest(repo, 2)), manifest_key(Slot(0, 0))])
    assert [kinds(number) for number in range(3)] == [["missing"], ["flipped"], ["missing"]]


def test_what_was_read_before_the_damage_does_not_hide_it() -> None:
    repo = filled(2)
    pipeline = look(repo)
    pipeline.records.manifest(Slot(0, 1))
    flip(repo.store, manifest_key(Slot(0, 1)))
    assert pipeline.check().damaged
    assert verify_integrity(pipeline.records, Slot(0, 1)).damaged
