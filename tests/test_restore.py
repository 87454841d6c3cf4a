from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import damage_state, data_key, dump, filled, look, make_repo, plain_manifest, save, start, state
from holdfast import laying
from holdfast import restore as module
from holdfast.checkpoint import Checkpoint
from holdfast.codec import CheckpointState, decode_state, encode_state
from holdfast.draft import Draft
from holdfast.errors import BadValue, DamagedArtifact, InvalidManifest, PlaceNotEmpty
from holdfast.handles import Repository
from holdfast.layout import Slot
from holdfast.manifest import Artifact, decode_manifest
from holdfast.repository.uploads import Limits
from holdfast.restore import restore_to_files


def tree(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def latest(repo: Repository) -> Checkpoint:
    newest = look(repo).latest()
    assert newest is not None
    return newest


def full() -> Repository:
    repo = make_repo()
    with start(repo, limits=Limits(inline=10, single=500)) as run:
        save(run, 0, {0: state(0), 1: b"tiny"})
        draft: Draft = run.begin(1, carry=True)
        run.save_delta(draft, "count", 0, state(1))
        run.save_snapshot(draft, "large", 3, state(1, 3, 1000))
        draft.save_driver_state("totals", b"driver")
        draft.save_file("offsets/0", b"v1\n{}")
        run.save_manifest(draft)
    return repo


def test_a_checkpoint_is_laid_down_as_files_with_its_manifest(tmp_path: Path) -> None:
    repo = full()
    restored = latest(repo).restore(tmp_path / "new" / "place")
    found = tree(tmp_path / "new" / "place")
    assert decode_manifest("manifest.json", found.pop("manifest.json")) == latest(repo).manifest
    assert found == {
        "operators/count/0/0000-snapshot": state(0),
        "operators/count/0/0001-delta": state(1),
        "operators/count/1/0000-snapshot": b"tiny",
        "operators/large/3/0000-snapshot": state(1, 3, 1000),
        "driver/totals": b"driver",
        "files/offsets/0": b"v1\n{}",
    }
    assert (restored.files, restored.bytes) == (6, sum(map(len, found.values())))
    assert names_in(tmp_path / "new") == ["place"]


def test_the_record_of_a_loop_is_also_taken_apart(tmp_path: Path) -> None:
    repo = make_repo()
    record = CheckpointState(
        stream="orders",
        sequence=41,
        created_ns=7,
        event_count=42,
        operator_states={"totals": b"one", "../out": b"two"},
        source_offsets={"kafka": {"partition-0": "1234"}},
        metadata={"host": "é"},
    )
    with start(repo) as run:
        draft = run.begin(0)
        draft.save_driver_state("loop", encode_state(record))
        draft.save_driver_state("other", b"HFSTATE\nbut not one")
        run.save_manifest(draft)
    latest(repo).restore(tmp_path / "place")
    found = tree(tmp_path / "place")
    assert decode_state(found["driver/loop"]) == record
    assert {path: data for path, data in found.items() if "/states/" in path} == {
        "decoded/loop/states/totals": b"one",
        "decoded/loop/states/..%2Fout": b"two",
    }
    told = json.loads(found["decoded/loop/record.json"])
    assert (told["stream"], told["sequence"], told["event_count"]) == ("orders", 41, 42)
    assert (told["source_offsets"], told["metadata"]) == ({"kafka": {"partition-0": "1234"}}, {"host": "é"})
    assert told["states"] == {"totals": "states/totals", "../out": "states/..%2Fout"}
    assert [path for path in found if path.startswith("decoded/other")] == []


def test_an_empty_folder_is_as_good_as_a_new_one(tmp_path: Path) -> None:
    latest(full()).restore(tmp_path)
    assert "manifest.json" in names_in(tmp_path)


def test_the_folder_one_stands_in_is_a_place_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    latest(full()).restore(".")
    assert (tmp_path / "here" / "manifest.json").exists()


def test_nothing_is_ever_written_into_a_place_that_holds_something(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    for place in (tmp_path, tmp_path / "mine"):
        with pytest.raises(PlaceNotEmpty):
            latest(full()).restore(place)
    assert tree(tmp_path) == {"mine": b"precious"}


def test_a_place_that_somebody_fills_meanwhile_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "place"
    lay = module.lay_files

    def slow(*arguments: object, **named: object) -> object:
        done = lay(*arguments, **named)  # type: ignore[arg-type]
        place.mkdir()
        (place / "theirs").write_text("theirs")
        return done

    monkeypatch.setattr(module, "lay_files", slow)
    with pytest.raises(PlaceNotEmpty):
        latest(full()).restore(place)
    assert tree(tmp_path) == {"place/theirs": b"theirs"}


@pytest.mark.parametrize("harm", [damage_state, lambda store, manifest: store.delete([data_key(manifest)])])
def test_a_damaged_byte_leaves_nothing_behind(tmp_path: Path, harm: object) -> None:
    repo = filled(1)
    harm(repo.store, latest(repo).manifest)  # type: ignore[operator]
    with pytest.raises(DamagedArtifact):
        latest(repo).restore(tmp_path / "place")
    assert names_in(tmp_path) == []


def test_a_damaged_byte_in_a_stream_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laying, "STREAM_FROM", 50)
    repo = filled(1)
    latest(repo).restore(tmp_path / "good")
    assert tree(tmp_path / "good")["operators/count/0/0000-snapshot"] == state(0)
    damage_state(repo.store, latest(repo).manifest)
    with pytest.raises(DamagedArtifact):
        latest(repo).restore(tmp_path / "place")
    assert names_in(tmp_path) == ["good"]


def test_errors_in_the_manifest_stop_a_restore_and_warnings_do_not(tmp_path: Path) -> None:
    repo = filled(1)
    records = look(repo).records
    corrupt = Artifact(sha256=hashlib.sha256(b"abc").hexdigest(), size_bytes=3, inline="")
    with pytest.raises(InvalidManifest, match="inline"):
        restore_to_files(records, plain_manifest(driver_states={"totals": corrupt}), tmp_path / "place")
    assert names_in(tmp_path) == []
    assert latest(repo).manifest.validate()
    latest(repo).restore(tmp_path / "place")


def test_the_repository_is_not_touched(tmp_path: Path) -> None:
    repo = full()
    before = dump(repo.store)
    latest(repo).restore(tmp_path / "place")
    assert dump(repo.store) == before


def test_names_can_not_lead_out_of_the_place(tmp_path: Path) -> None:
    repo = make_repo()
    names = ["..", ".", "../../out", "/etc/passwd", "a/../../b", "..\\x", "nul\0", "tab\t", "é", "a%2Fb", "x" * 60]
    with start(repo) as run:
        draft = run.begin(0)
        for n, name in enumerate(names):
            draft.save_driver_state(name, f"driver {n}".encode())
            run.save_snapshot(draft, name, 0, f"state {n}".encode())
            if not all(part.strip(".") for part in name.split("/")):
                with pytest.raises(BadValue):
                    draft.save_file(f"deep-{n}/{name}", b"")
                name = "harmless"
            draft.save_file(f"deep-{n}/{name}", f"file {n}".encode())
        run.save_manifest(draft)
    latest(repo).restore(tmp_path / "place")
    assert names_in(tmp_path) == ["place"]
    assert names_in(tmp_path / "place") == ["driver", "files", "manifest.json", "operators"]
    found = list(tree(tmp_path / "place").values())
    for n in range(len(names)):
        for kind in ("driver", "state", "file"):
            assert found.count(f"{kind} {n}".encode()) == 1


@settings(max_examples=25, deadline=None)
@given(st.sets(st.text(st.characters(codec="utf-8"), min_size=1, max_size=12), max_size=6))
def test_different_names_become_different_files(tmp_path_factory: pytest.TempPathFactory, names: set[str]) -> None:
    repo = make_repo()
    with start(repo) as run:
        draft = run.begin(0)
        for name in names:
            draft.save_driver_state(name, name.encode())
        run.save_manifest(draft)
    place = tmp_path_factory.mktemp("restored") / "place"
    latest(repo).restore(place)
    assert sorted(v for k, v in tree(place).items() if k.startswith("driver/")) == sorted(n.encode() for n in names)


def test_the_same_bytes_in_several_places_are_laid_down_in_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place, stream_from in ((tmp_path / "small", 10**9), (tmp_path / "large", 10)):
        monkeypatch.setattr(laying, "STREAM_FROM", stream_from)
        repo = make_repo()
        with start(repo) as run:
            save(run, 0, {0: state(0)})
            save(run, 1, {p: state(0) for p in range(4)})
        restored = latest(repo).restore(place)
        assert (restored.files, restored.bytes) == (4, 400)
        assert [tree(place)[f"operators/count/{p}/0000-snapshot"] for p in range(4)] == [state(0)] * 4


def test_progress_is_told_up_to_the_whole(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    latest(full()).restore(tmp_path / "place", lambda *said: told.append(said))
    done, total = told[-1][1:]
    assert done == total > 0


def test_any_older_checkpoint_restores_as_well(tmp_path: Path) -> None:
    repo = filled(5)
    for number in range(5):
        place = tmp_path / str(number)
        Checkpoint(look(repo), Slot(0, number)).restore(place)
        assert tree(place)["operators/count/0/0000-snapshot"] == state(number)
