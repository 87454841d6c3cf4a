"""Files are laid down whole or not at all: in a folder that is moved into place, in a store behind a mark."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from builders import dump, flip, look, make_repo, start
from holdfast import laying
from holdfast.errors import AccessDenied, BadURL, DamagedArtifact, PlaceNotEmpty, StoreFailure
from holdfast.laying import Folder, StoreFolder, lay_files
from holdfast.manifest import Artifact
from holdfast.repository.pipeline import PipelineRecords
from holdfast.repository.uploads import Limits
from holdfast.store import Store, open_store

MARK, LAST = b"mark", b"last"


def tree(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# ---- folders ----


def test_a_folder_appears_with_all_that_was_written(tmp_path: Path) -> None:
    with Folder(tmp_path / "deep" / "place").opened() as folder:
        folder.write("a/b/c", b"one")
        folder.write_stream("a/d", [b"t", b"wo"])
        assert names_in(tmp_path / "deep") == [folder.partial.name]
    assert tree(tmp_path) == {"deep/place/a/b/c": b"one", "deep/place/a/d": b"two"}


def test_a_block_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def lay() -> None:
        with Folder(tmp_path / "place").opened() as folder:
            folder.write("a", b"one")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        lay()
    assert names_in(tmp_path) == []


def test_a_long_name_is_no_obstacle(tmp_path: Path) -> None:
    place = tmp_path / ("é" * 120)
    with Folder(place).opened() as folder:
        folder.write("a", b"one")
    assert tree(place) == {"a": b"one"}


def test_a_link_is_followed_to_the_place_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with Folder(tmp_path / "link").opened() as folder:
        folder.write("a", b"one")
    assert tree(tmp_path / "real") == {"a": b"one"}
    with pytest.raises(PlaceNotEmpty):
        Folder(tmp_path / "link")


def test_a_mount_point_is_refused_since_nothing_can_be_moved_onto_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert os.path.ismount("/proc")
    monkeypatch.setattr(Path, "iterdir", lambda self: iter(()))
    with pytest.raises(BadURL, match="mounted"):
        Folder(Path("/proc"))


def test_what_the_system_refuses_has_a_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreFailure, match="Not a directory"), Folder(tmp_path / "file" / "place").opened():
        pass
    with pytest.raises((AccessDenied, StoreFailure)), Folder(Path("/proc/place")).opened():
        pass


def partials(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name.endswith(".partial")]


HOLD = """
import sys, time
from pathlib import Path
from holdfast.laying import Folder
with Folder(Path(sys.argv[1])).opened() as folder:
    folder.write("state/half", b"half")
    print("begun", flush=True)
    time.sleep(600)
"""


@contextlib.contextmanager
def holder(place: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that is in the middle of laying something down there."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(place)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_what_a_killed_process_left_is_removed_by_the_next_for_the_same_name(tmp_path: Path) -> None:
    with holder(tmp_path / "place") as process:
        process.send_signal(signal.SIGKILL)
    assert len(partials(tmp_path)) == 1
    with Folder(tmp_path / "other").opened():
        pass
    assert len(partials(tmp_path)) == 1, "another name's is not touched"
    with Folder(tmp_path / "place").opened() as folder:
        folder.write("a", b"one")
        assert partials(tmp_path) == [folder.partial]
    assert names_in(tmp_path) == ["other", "place"]


def test_what_a_living_process_writes_is_left_alone(tmp_path: Path) -> None:
    with holder(tmp_path / "place"):
        [theirs] = partials(tmp_path)
        with Folder(tmp_path / "place").opened() as folder:
            folder.write("a", b"one")
        assert tree(theirs) == {"state/half": b"half"}
    assert tree(tmp_path / "place") == {"a": b"one"}


def test_a_folder_that_is_being_removed_as_it_is_made_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []
    mkdir = os.mkdir

    def raced(path: str, *arguments: object, **named: object) -> None:
        mkdir(path, *arguments, **named)  # type: ignore[arg-type]
        if path.endswith(".partial") and len(taken) < 2:
            taken.append(os.open(path, os.O_RDONLY))
            fcntl.flock(taken[-1], fcntl.LOCK_EX)
            if len(taken) == 2:
                Path(path).rmdir()

    monkeypatch.setattr(os, "mkdir", raced)
    with Folder(tmp_path / "place").opened() as folder:
        folder.write("a/b", b"one")
    for fd in taken:
        os.close(fd)
    assert tree(tmp_path / "place") == {"a/b": b"one"}


def test_a_folder_that_was_removed_before_it_could_be_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock, removed = fcntl.flock, []

    def late(fd: int, how: int) -> None:
        if not removed:
            removed.extend(partials(tmp_path))
            removed[0].rmdir()
        flock(fd, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with Folder(tmp_path / "place").opened() as folder:
        assert folder.partial not in removed
        folder.write("a/b", b"one")
    assert tree(tmp_path / "place") == {"a/b": b"one"}


def test_a_folder_that_is_taken_away_is_never_moved_into_place(tmp_path: Path) -> None:
    def lay() -> None:
        with Folder(tmp_path / "place").opened() as folder:
            folder.write("a/first", b"one")
            folder.partial.rename(tmp_path / "away")
            folder.write("b/second", b"two")
            folder.partial.mkdir()

    with pytest.raises(StoreFailure, match="taken away"):
        lay()
    assert not (tmp_path / "place").exists()


def test_without_locks_nothing_is_taken_for_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with holder(tmp_path / "place") as process:
        process.send_signal(signal.SIGKILL)

    def refuse(_fd: int, _how: int) -> None:
        raise OSError(9, "no locks here")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with Folder(tmp_path / "place").opened() as folder:
        folder.write("a", b"one")
        assert len(partials(tmp_path)) == 2
    assert tree(tmp_path / "place") == {"a": b"one"}
    assert len(partials(tmp_path)) == 1


def test_of_many_that_lay_down_at_once_one_wins_whole(tmp_path: Path) -> None:
    place, lost = tmp_path / "place", []

    def lay(number: int) -> None:
        try:
            with Folder(place).opened() as folder:
                for file in range(20):
                    folder.write(f"{file % 4}/{file}", str(number).encode())
        except PlaceNotEmpty:
            lost.append(number)

    threads = [threading.Thread(target=lay, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(lost) == 7
    assert len(tree(place)) == 20
    assert len(set(tree(place).values())) == 1
    assert names_in(tmp_path) == ["place"]


# ---- stores ----


def test_a_store_holds_the_mark_from_the_first_write_to_the_last(any_store: Store) -> None:
    with StoreFolder(any_store, "metadata").opened(MARK) as place:
        assert dump(any_store) == {"metadata": MARK}
        place.write("a/b", b"one")
        place.write_stream("c", [b"t", b"wo"])
        assert any_store.get("metadata") == place.mark == MARK
        place.lift(LAST)
    assert dump(any_store) == {"metadata": LAST, "a/b": b"one", "c": b"two"}


def test_what_was_cut_off_shows_its_mark_to_the_next(any_store: Store) -> None:
    with contextlib.suppress(KeyboardInterrupt), StoreFolder(any_store, "metadata").opened(MARK) as place:
        place.write("a", b"one")
        raise KeyboardInterrupt
    assert StoreFolder(any_store, "metadata").standing() == MARK
    with StoreFolder(any_store, "metadata").opened(b"mine") as again:
        assert again.mark == MARK
        again.write("a", b"one")
        again.lift(LAST)
    assert dump(any_store) == {"a": b"one", "metadata": LAST}


def test_a_place_that_holds_something_else_is_refused(any_store: Store) -> None:
    any_store.put("mine", b"precious")
    place = StoreFolder(any_store, "metadata")
    with pytest.raises(PlaceNotEmpty):
        place.standing()
    with pytest.raises(PlaceNotEmpty), place.opened(MARK):
        pass
    assert dump(any_store) == {"mine": b"precious"}


def test_damage_leaves_nothing_in_a_store(any_store: Store) -> None:
    def lay() -> None:
        with StoreFolder(any_store, "metadata").opened(MARK) as place:
            place.write("a/b", b"one")
            raise DamagedArtifact("x", "damaged")

    with pytest.raises(DamagedArtifact):
        lay()
    assert dump(any_store) == {}


def test_the_marker_of_an_empty_folder_is_nothing(s3_store: Store, s3_url: str, s3_server: object) -> None:
    above = open_store(s3_url.rpartition("/")[0], s3_server.options)  # type: ignore[attr-defined]
    above.put(s3_url.rpartition("/")[2] + "/x", b"")
    above.delete([s3_url.rpartition("/")[2] + "/x"])
    assert StoreFolder(s3_store, "metadata").standing() is None


# ---- files ----


def saved(files: dict[str, bytes], store: Store | None = None) -> tuple[PipelineRecords, dict[str, Artifact]]:
    repo = make_repo(store)
    with start(repo, limits=Limits(inline=0, single=5000)) as run:
        draft = run.begin(0)
        for name, data in files.items():
            draft.save_file(name, data)
        manifest = run.save_manifest(draft)
    return look(repo).records, manifest.files


def some_files() -> dict[str, bytes]:
    draw = random.Random(3)
    sizes = [0, 1, 100, 3000, 5000, 20_000, 90_000]
    return {f"{n % 5}/{n % 3}/{n}": draw.randbytes(sizes[n % 7]) for n in range(60)}


@pytest.mark.parametrize("stream_from", [10_000, 10**9])
@pytest.mark.parametrize("waiting", [1, 10**9])
def test_every_file_arrives_with_its_own_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream_from: int, waiting: int
) -> None:
    monkeypatch.setattr(laying, "STREAM_FROM", stream_from)
    monkeypatch.setattr(laying, "WAITING", waiting)
    files = some_files()
    records, artifacts = saved(files)
    total = sum(map(len, files.values()))
    told: list[tuple[str, int, int]] = []
    with Folder(tmp_path / "place").opened() as folder:
        assert lay_files(records, artifacts, folder, lambda *said: told.append(said)) == (60, total)
    assert tree(tmp_path / "place") == files
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
    assert told[-1] == ("restoring", total, total)
    store = open_store("memory://")
    with StoreFolder(store, "metadata").opened(MARK) as place:
        assert lay_files(records, artifacts, place) == (60, total)
        place.lift(LAST)
    assert dump(store) == {**files, "metadata": LAST}


@pytest.mark.parametrize("stream_from", [1, 10**9])
def test_each_single_damaged_byte_is_found_and_nothing_arrives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream_from: int
) -> None:
    monkeypatch.setattr(laying, "STREAM_FROM", stream_from)
    files = {name: data for name, data in some_files().items() if data}
    for name in files:
        records, artifacts = saved(files)
        at = artifacts[name].offset or 0
        flip(records.store, records.keys.prefix + (artifacts[name].path or ""), at + len(files[name]) // 2)
        with pytest.raises(DamagedArtifact), Folder(tmp_path / "place").opened() as folder:
            lay_files(records, artifacts, folder)
        assert names_in(tmp_path) == []
        store = open_store("memory://")
        with pytest.raises(DamagedArtifact), StoreFolder(store, "metadata").opened(MARK) as place:
            lay_files(records, artifacts, place)
        assert dump(store) == {}


def test_a_bit_that_turns_over_on_the_way_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laying, "STREAM_FROM", 1)
    records, artifacts = saved({"a": bytes(20_000)})
    stream, turned = laying.stream_artifact, []

    def once(*arguments: object) -> Iterator[bytes]:
        yield from stream(*arguments)  # type: ignore[arg-type]
        if not turned:
            turned.append(1)
            raise DamagedArtifact("x", "its bytes do not match its digest")

    monkeypatch.setattr(laying, "stream_artifact", once)
    with Folder(tmp_path / "place").opened() as folder:
        lay_files(records, artifacts, folder)
    assert tree(tmp_path / "place") == {"a": bytes(20_000)}


def test_a_slow_place_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laying, "WAITING", 5_000)
    monkeypatch.setattr(laying, "STREAM_FROM", 10**9)
    records, artifacts = saved({str(n): bytes([n]) * 1_000 for n in range(100)})
    loaded, written, most = [0], [0], [0]
    load = laying.load_artifacts

    def counted(*arguments: object) -> Iterator[tuple[Artifact, bytes]]:
        for artifact, data in load(*arguments):  # type: ignore[arg-type]
            loaded[0] += len(data)
            most[0] = max(most[0], loaded[0] - written[0])
            yield artifact, data

    class Slow(StoreFolder):
        def write(self, name: str, data: object) -> None:
            time.sleep(0.001)
            written[0] += 1_000

    monkeypatch.setattr(laying, "load_artifacts", counted)
    lay_files(records, artifacts, Slow(open_store("memory://"), "metadata"))
    assert written[0] == 100_000
    assert most[0] <= 5_000 + 2_000
