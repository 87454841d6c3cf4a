"""What the file store promises beyond the contract: durability, no leftovers, and typed failures."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.errors import AccessDenied, BadName, ObjectMissing, StoreFailure
from holdfast.store.file import OPEN_FOLDERS, TEMPORARIES, FileStore


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


class Journal:
    """Records what a power cut would keep: which files and folders were synced, and in what order names appeared."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[tuple[str, str]] = []
        for name in ("fsync", "link", "mkdir", "replace", "rmdir", "unlink"):
            monkeypatch.setattr(os, name, self._recording(name, getattr(os, name)))

    def _recording(self, name: str, real: Callable[..., None]) -> Callable[..., None]:
        def record(target: int | str, *rest: str, **options: int) -> None:
            named = Path(f"/proc/self/fd/{target}").readlink() if isinstance(target, int) else (rest or [target])[0]
            real(target, *rest, **options)
            self.events.append((name, str(named)))

        return record

    def index(self, event: str, path: Path) -> int:
        return self.events.index((event, str(path)))

    def synced_after(self, at: int) -> set[str]:
        return {path for event, path in self.events[at:] if event == "fsync"}


def test_a_create_is_on_disk_before_it_is_told(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileStore(root)
    journal = Journal(monkeypatch)
    store.create("a/b/k", b"1")
    linked = journal.index("link", root / "a/b/k")
    before = [path for event, path in journal.events[:linked] if event == "fsync"]
    assert any(TEMPORARIES in path for path in before), "the bytes were not synced before they got their name"
    assert str(root / "a/b") in journal.synced_after(linked), "the name was not synced"
    for folder in (root, root / "a", root / "a/b"):
        made = journal.index("mkdir", folder)
        assert str(folder.parent) in journal.synced_after(made), f"the new folder {folder} was not synced"


def test_a_second_create_in_a_folder_costs_two_syncs(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileStore(root)
    store.create("a/b/1", b"1")
    journal = Journal(monkeypatch)
    store.create("a/b/2", b"2")
    assert [event for event, _ in journal.events] == ["fsync", "link", "fsync", "unlink"]


def test_a_folder_that_another_process_made_is_synced_all_the_same(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileStore(root)
    store.create("a/1", b"1")
    (root / "a" / "b").mkdir()
    journal = Journal(monkeypatch)
    store.create("a/b/1", b"1")
    assert {str(root / "a/b"), str(root / "a")} <= journal.synced_after(0)


def test_a_folder_that_was_removed_and_made_again_is_synced_anew(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileStore(root)
    store.create("a/b/1", b"1")
    FileStore(root).delete(["a/b/1"])
    (root / "a" / "b").mkdir(parents=True)
    journal = Journal(monkeypatch)
    store.create("a/b/1", b"1")
    assert {str(root / "a/b"), str(root / "a"), str(root)} <= journal.synced_after(0)


def test_the_same_bytes_found_are_synced_before_they_count(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FileStore(root).create("a/1", b"1")
    journal = Journal(monkeypatch)
    assert FileStore(root).create("a/1", b"1") is True
    assert str(root / "a") in journal.synced_after(0)


def test_a_hint_is_not_synced(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileStore(root)
    store.put("latest", b"1")
    journal = Journal(monkeypatch)
    store.put("latest", b"2")
    assert journal.synced_after(0) == set()


def test_a_streamed_object_is_on_disk_before_it_is_told(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileStore(root)
    store.create("a/other", b"1")
    journal = Journal(monkeypatch)
    store.write("a/k", [b"1", b"2"])
    assert [event for event, _ in journal.events] == ["fsync", "link", "fsync", "unlink"]


def test_nothing_temporary_is_left_or_listed(root: Path) -> None:
    store = FileStore(root)
    store.create("k", b"1")
    store.create("k", b"2")
    store.put("hint", b"1")
    store.copy("k", "copy")
    store.write("big", [b"1"])
    with pytest.raises(ObjectMissing):
        store.copy("absent", "target")
    assert [*(root / TEMPORARIES).iterdir()] == []
    (root / TEMPORARIES / "somebody's").write_bytes(b"")
    assert [info.key for info in store.list("")] == ["big", "copy", "hint", "k"]
    assert store.folders("") == []
    with pytest.raises(BadName):
        store.get(f"{TEMPORARIES}/somebody's")


WRITER = """
import sys, time
from holdfast.store.file import FileStore
def chunks():
    yield b"x" * 1000
    print("writing", flush=True)
    time.sleep(60)
FileStore(sys.argv[1]).write("never/finished", chunks())
"""


def test_leftovers_of_a_killed_writer_are_removed_and_those_of_a_living_one_are_not(root: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(root)]
    dead, living = (subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2))
    try:
        for process in (dead, living):
            assert process.stdout is not None
            assert process.stdout.readline() == b"writing\n"
        (root / TEMPORARIES / "of.another.host.1").write_bytes(b"")
        assert len([*(root / TEMPORARIES).iterdir()]) == 3
        dead.send_signal(signal.SIGKILL)
        dead.wait()
        store = FileStore(root)
        left = sorted(path.name for path in (root / TEMPORARIES).iterdir())
        assert len(left) == 2
        assert any(f".{living.pid}." in name for name in left)
        assert "of.another.host.1" in left
        assert store.list("") == []
    finally:
        for process in (dead, living):
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def test_a_recycled_process_number_is_not_taken_for_the_writer(root: Path) -> None:
    store = FileStore(root)
    store.create("k", b"1")
    with store._temporary() as temporary:
        host, pid, started, number = Path(temporary.path).name.split(".")
    assert pid == str(os.getpid())
    stale = root / TEMPORARIES / f"{host}.{pid}.{int(started) - 1}.{number}"
    stale.write_bytes(b"")
    FileStore(root)
    assert not stale.exists()


def test_writers_and_pruners_of_one_folder_do_not_trip_each_other(root: Path) -> None:
    store = FileStore(root)
    stop = threading.Event()

    def prune() -> None:
        other = FileStore(root)
        while not stop.is_set():
            other.delete([info.key for info in other.list("a/") if info.key.endswith("gone")])

    def write(n: int) -> None:
        for k in range(30):
            assert store.create(f"a/b{k % 3}/{n}-{k}.gone", b"1")
            if k % 10 == 0:
                assert store.create(f"a/b{k % 3}/{n}-{k}.stays", b"1")

    with ThreadPoolExecutor(5) as pool:
        pruner = pool.submit(prune)
        for written in [pool.submit(write, n) for n in range(4)]:
            written.result()
        stop.set()
        pruner.result()
    assert len([info for info in store.list("a/") if info.key.endswith("stays")]) == 12


def test_a_folder_that_is_pruned_while_it_is_made_is_made_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileStore(root)
    store.create("other", b"1")
    make = os.mkdir
    pruned: list[str] = []

    def mkdir_after_a_prune(path: str) -> None:
        if path == str(root / "a/b") and not pruned:
            pruned.append(path)
            (root / "a").rmdir()
        make(path)

    monkeypatch.setattr(os, "mkdir", mkdir_after_a_prune)
    assert store.create("a/b/k", b"1") is True
    assert pruned
    assert store.get("a/b/k") == b"1"


def test_deleting_prunes_empty_folders_but_never_the_root(root: Path) -> None:
    store = FileStore(root)
    store.create("a/b/c/k", b"1")
    store.create("a/other", b"1")
    store.delete(["a/b/c/k"])
    assert sorted(path.name for path in (root / "a").iterdir()) == ["other"]
    store.delete(["a/other"])
    assert [path.name for path in root.iterdir()] == [TEMPORARIES]


def open_files() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


def test_open_folders_are_bounded(root: Path) -> None:
    store = FileStore(root)
    before = open_files()
    for n in range(OPEN_FOLDERS + 50):
        store.create(f"{n}/k", b"1")
    assert open_files() - before <= OPEN_FOLDERS + 1
    store.close()
    assert open_files() <= before


def test_a_full_disk_is_told_and_leaves_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileStore(root)
    store.create("k", b"1")

    def full(fd: int, data: memoryview) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    for call in (
        lambda: store.create("new", b"1"),
        lambda: store.put("new", b"1"),
        lambda: store.write("new", [b"1"]),
    ):
        with pytest.raises(StoreFailure, match="No space left"):
            call()
    monkeypatch.undo()
    assert [info.key for info in store.list("")] == ["k"]
    assert [*(root / TEMPORARIES).iterdir()] == []


def test_a_sync_that_fails_is_no_success(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileStore(root)
    store.create("k", b"1")

    def failing(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(StoreFailure, match="Input/output error"):
        store.create("new", b"1")
    monkeypatch.undo()
    assert [info.key for info in store.list("")] == ["k"]


def test_denied_access_is_told_as_such(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileStore(root)
    store.create("k", b"1")

    def denied(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "link", denied)
    with pytest.raises(AccessDenied, match="Permission denied"):
        store.create("new", b"1")


def test_a_file_in_the_way_of_the_root_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = FileStore(tmp_path / "file" / "store")
    with pytest.raises(StoreFailure):
        store.create("k", b"1")
    assert store.list("") == []


def test_a_copy_shares_no_bytes_with_its_source(root: Path) -> None:
    store = FileStore(root)
    store.create("source", b"content")
    store.copy("source", "target")
    (root / "source").write_bytes(b"damaged")
    assert store.get("target") == b"content"


def test_a_forked_child_goes_on_using_the_store(root: Path) -> None:
    store = FileStore(root)
    store.create("a/parent", b"1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of a fork beside threads
        child = os.fork()
    if child == 0:
        code = 2
        try:
            code = 0 if store.create("a/child", b"2") and store.get("a/parent") == b"1" else 1
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert store.get("a/child") == b"2"
    assert store.create("a/parent-again", b"3")
