"""The log of a file sink is cut back to a batch exactly, or not at all; the swap can be killed and run again."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from builders import dump
from holdfast.errors import NotCapturable, SinkLogGone
from holdfast.spark import sink_swap
from holdfast.spark.locations import PathMap
from holdfast.spark.places import SparkPlace
from holdfast.spark.sink_log import KEPT, LOG, Trimmed, batch_of, chain_at, cut_back, trim
from holdfast.spark.sink_swap import swap_in
from holdfast.store import Store
from holdfast.store.local_directory import LocalDirectory
from holdfast.testing.faults import Crash, CrashingStore

NOTHING = PathMap(())


def entry(root: str, batch: int) -> str:
    fields = {"path": f"{root}/part-{batch}.json", "size": 10, "isDir": False, "modificationTime": 5, "action": "add"}
    return json.dumps(fields, separators=(",", ":"))


def log_of(root: str, upto: int, interval: int = 4) -> dict[str, bytes]:
    """A log as Spark leaves it after a batch, with nothing dropped yet."""
    files = {}
    for batch in range(upto + 1):
        joined = (batch + 1) % interval == 0
        lines = [entry(root, b) for b in range(0 if joined else batch, batch + 1)]
        files[f"{batch}.compact" if joined else str(batch)] = "\n".join(["v1", *lines]).encode()
    return files


def drop_before(files: Mapping[str, bytes], batch: int) -> dict[str, bytes]:
    """What Spark's clean-up leaves."""
    return {name: data for name, data in files.items() if (batch_of(name) or 0) >= batch}


def write_log(root: Path, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        (root / LOG).mkdir(parents=True, exist_ok=True)
        (root / LOG / name).write_bytes(data)
        (root / LOG / f".{name}.crc").write_bytes(b"crc")


def visible(files: Mapping[str, bytes]) -> list[int]:
    """The batches whose files a reader of Spark's sees in a log, by Spark's own rule; fails where Spark does."""
    if not files:
        return []
    joined = sorted(batch_of(name) or 0 for name in files if name.endswith(".compact"))
    interval = joined[-1] - joined[-2] if len(joined) > 1 else joined[-1] + 1 if joined else 10
    last = max(batch_of(name) or 0 for name in files)
    found = []
    for batch in range(max(0, (last + 1) // interval * interval - 1), last + 1):
        name = f"{batch}.compact" if (batch + 1) % interval == 0 else str(batch)
        found += [json.loads(line)["path"] for line in files[name].decode().split("\n")[1:]]
    return [int(path.rpartition("-")[2].removesuffix(".json")) for path in found]


def trimmed_of(root: Path, epoch: int, recorded: Mapping[str, bytes] | None = None, since_ms: int = 0) -> Trimmed:
    return trim(f"file:{root}", LocalDirectory(root), epoch, recorded or {}, NOTHING, since_ms)


# ---- which files ----


@pytest.mark.parametrize(
    ("there", "epoch", "chain"),
    [
        (["0"], 0, ["0"]),
        (["0", "1", "2", "3.compact", "4", "5", "6"], 5, ["3.compact", "4", "5"]),
        (["0", "1", "2", "3.compact", "4"], 3, ["3.compact"]),
        (["0", "1", "2", "3.compact", "4"], 2, ["0", "1", "2"]),
        (["3.compact", "7.compact", "8", "11.compact"], 8, ["3.compact", "7.compact", "8"]),
        (["7.compact", "8"], 8, ["7.compact", "8"]),
        (["0", "1", "2", "3.compact", ".4.crc", "x", "4", "_tmp"], 4, ["3.compact", "4"]),
    ],
)
def test_a_log_at_a_batch_is_its_joined_entries_and_every_single_one_after(
    there: list[str], epoch: int, chain: list[str]
) -> None:
    assert chain_at(there, epoch) == chain


@pytest.mark.parametrize(
    ("there", "epoch", "missing"),
    [([], 0, "0"), (["0", "2"], 2, "1"), (["7.compact", "8"], 6, "0"), (["3.compact", "5", "7.compact"], 5, "4")],
)
def test_a_hole_is_named(there: list[str], epoch: int, missing: str) -> None:
    assert chain_at(there, epoch) == missing


# ---- trimming ----


@pytest.mark.parametrize("epoch", range(11))
def test_a_trimmed_log_holds_exactly_the_batches_up_to_the_epoch(tmp_path: Path, epoch: int) -> None:
    write_log(tmp_path, log_of(f"file://{tmp_path}", 10))
    trimmed = trimmed_of(tmp_path, epoch)
    assert visible(trimmed.files) == list(range(epoch + 1))
    assert batch_of(trimmed.newest) == epoch


def test_entries_that_were_joined_and_dropped_can_not_be_told_apart(tmp_path: Path) -> None:
    write_log(tmp_path, drop_before(log_of(f"file://{tmp_path}", 10), 7))
    assert visible(trimmed_of(tmp_path, 8).files) == list(range(9))
    with pytest.raises(SinkLogGone, match="joined or dropped"):
        trimmed_of(tmp_path, 5)


def test_what_was_recorded_does_it_all_the_same(tmp_path: Path) -> None:
    files = log_of(f"file://{tmp_path}", 10)
    write_log(tmp_path, drop_before(files, 7))
    recorded = {name: files[name] for name in ("3.compact", "4", "5")}
    assert visible(trimmed_of(tmp_path, 5, recorded).files) == list(range(6))


def test_what_was_recorded_in_part_counts_for_nothing(tmp_path: Path) -> None:
    files = log_of(f"file://{tmp_path}", 10)
    write_log(tmp_path, drop_before(files, 7))
    with pytest.raises(SinkLogGone):
        trimmed_of(tmp_path, 5, {"4": files["4"], "5": files["5"]})


def test_what_was_recorded_beats_a_log_that_has_been_written_anew_since(tmp_path: Path) -> None:
    write_log(tmp_path, log_of(f"file://{tmp_path}/other", 10))
    recorded = {str(batch): data for batch, data in enumerate(log_of(f"file://{tmp_path}", 2, 10).values())}
    assert trimmed_of(tmp_path, 2, recorded).files == recorded


@pytest.mark.parametrize("present", [[], range(3)])
def test_a_sink_without_the_batch_is_another_sink(tmp_path: Path, present: Iterable[int]) -> None:
    for batch in present:
        write_log(tmp_path, {str(batch): b"v1"})
    with pytest.raises(SinkLogGone, match=r"there is no|newest batch is 2"):
        trimmed_of(tmp_path, 5)


def test_a_log_that_names_files_elsewhere_is_another_sinks(tmp_path: Path) -> None:
    write_log(tmp_path, log_of("file:///elsewhere", 3))
    with pytest.raises(SinkLogGone, match=r"/elsewhere/part-0\.json"):
        trimmed_of(tmp_path, 2)
    mapping = PathMap.of({"/elsewhere": str(tmp_path)})
    trimmed = trim(f"file:{tmp_path}", LocalDirectory(tmp_path), 2, {}, mapping, 0)
    assert trimmed.mapped == 3
    assert trimmed.files == {name: data for name, data in log_of(f"file://{tmp_path}", 3).items() if name < "3"}


@pytest.mark.parametrize("data", [b"v1\n{", b"v1\n{}", b"v1\n\xff"])
def test_a_log_that_is_not_understood_is_not_trimmed(tmp_path: Path, data: bytes) -> None:
    write_log(tmp_path, {"0": data, "1": b"v1"})
    with pytest.raises(SinkLogGone, match=f"{LOG}/0"):
        trimmed_of(tmp_path, 1)


def test_a_log_that_was_cut_back_since_tells_of_another_run(tmp_path: Path) -> None:
    write_log(tmp_path, log_of(f"file://{tmp_path}", 10))
    (tmp_path / KEPT / "epoch-3-5000-abcd").mkdir(parents=True)
    assert cut_back("epoch-3-5000-abcd") == (3, 5000)
    with pytest.raises(SinkLogGone, match="cut back to batch 3"):
        trimmed_of(tmp_path, 5, since_ms=4999)
    assert visible(trimmed_of(tmp_path, 5, since_ms=5000).files) == list(range(6))
    assert visible(trimmed_of(tmp_path, 3, since_ms=0).files) == list(range(4))


# ---- swapping on a disk ----


def log_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if batch_of(path.name) is not None}


def test_a_swap_leaves_the_new_log_and_keeps_the_old_one(tmp_path: Path) -> None:
    files = log_of(f"file://{tmp_path}", 10)
    write_log(tmp_path, files)
    trimmed = trimmed_of(tmp_path, 5)
    kept = swap_in(SparkPlace(str(tmp_path)), trimmed)
    assert kept is not None
    assert log_in(tmp_path / LOG) == trimmed.files
    assert log_in(Path(kept)) == files
    assert sorted(path.name for path in tmp_path.iterdir()) == [LOG, KEPT]
    assert not list((tmp_path / LOG).glob(".*")), "a checksum that is left would not fit"
    assert swap_in(SparkPlace(str(tmp_path)), trimmed) is None
    assert swap_in(SparkPlace(str(tmp_path)), trimmed_of(tmp_path, 5)) is None


def test_a_sink_that_is_not_ahead_is_left_as_it_is(tmp_path: Path) -> None:
    files = log_of(f"file://{tmp_path}", 5)
    write_log(tmp_path, files)
    assert swap_in(SparkPlace(str(tmp_path)), trimmed_of(tmp_path, 5)) is None
    assert log_in(tmp_path / LOG) == files


def test_a_sink_without_a_log_gets_the_recorded_one(tmp_path: Path) -> None:
    recorded = log_of(f"file://{tmp_path}", 2)
    assert swap_in(SparkPlace(str(tmp_path)), trimmed_of(tmp_path, 2, recorded)) is None
    assert log_in(tmp_path / LOG) == recorded


@pytest.mark.parametrize("exchanges", [True, False])
def test_a_swap_that_is_cut_off_anywhere_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchanges: bool
) -> None:
    if not exchanges:
        monkeypatch.setattr(sink_swap, "_RENAME", None)
    crashed = 0
    for step in range(1, 20):
        root = tmp_path / str(step)
        files = log_of(f"file://{root}", 10)
        write_log(root, files)
        trimmed = trimmed_of(root, 5)
        try:
            with pytest.MonkeyPatch.context() as patch:
                _crash_at(patch, step)
                swap_in(SparkPlace(str(root)), trimmed)
        except Crash:
            crashed += 1
        if exchanges:
            assert visible(log_in(root / LOG)) in (list(range(6)), list(range(11)))
        swap_in(SparkPlace(str(root)), trimmed)
        assert log_in(root / LOG) == trimmed.files
        kept = [path for path in (root / KEPT).iterdir() if cut_back(path.name)]
        assert files in [log_in(path) for path in kept], "the old log is kept whole"
        assert {path.name for path in root.iterdir()} == {LOG, KEPT}
    assert crashed >= 2


def _crash_at(patch: pytest.MonkeyPatch, step: int) -> None:
    """Die before the n-th change of a name."""
    left = [step]

    def counted(act: object) -> object:
        def change(*arguments: object, **named: object) -> object:
            left[0] -= 1
            if left[0] == 0:
                raise Crash
            return act(*arguments, **named)  # type: ignore[operator]

        return change

    patch.setattr(Path, "rename", counted(Path.rename))
    patch.setattr(os, "rename", counted(os.rename))
    if sink_swap._RENAME is not None:
        patch.setattr(sink_swap, "_RENAME", counted(sink_swap._RENAME))


# ---- swapping in a store ----


class Place(SparkPlace):
    """A place whose store the test hands in."""

    def __init__(self, store: Store) -> None:
        super().__init__("s3://bucket/sink")
        object.__setattr__(self, "given", store)

    def store(self) -> Store:
        return self.given  # type: ignore[attr-defined, no-any-return]


def fill(store: Store, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        store.put(f"{LOG}/{name}", data)


def stored(store: Store, folder: str = LOG) -> dict[str, bytes]:
    return {info.key.rpartition("/")[2]: store.get(info.key) for info in store.list(f"{folder}/")}


def of(files: Mapping[str, bytes], epoch: int) -> Trimmed:
    chain = chain_at(files, epoch)
    assert isinstance(chain, list)
    return Trimmed(epoch, {name: files[name] for name in chain}, 0)


ROOT = "s3a://bucket/sink"


def test_a_swap_in_a_store_leaves_the_new_log_and_keeps_the_old_one(any_store: Store) -> None:
    files = log_of(ROOT, 10)
    fill(any_store, files)
    kept = swap_in(Place(any_store), of(files, 5))
    assert kept is not None
    assert kept.startswith(f"s3a://bucket/sink/{KEPT}/epoch-5-")
    assert stored(any_store) == {name: data for name, data in files.items() if (batch_of(name) or 0) <= 5}
    assert stored(any_store, kept.partition("/sink/")[2]) == files
    assert swap_in(Place(any_store), of(files, 5)) is None


def surely_visible(files: Mapping[str, bytes]) -> list[int] | None:
    """What a reader sees, or None if it fails for lack of an entry."""
    try:
        return visible(files)
    except KeyError:
        return None


@pytest.mark.parametrize("dropped", [0, 7])
def test_a_swap_in_a_store_that_is_cut_off_anywhere_is_finished_by_the_next(dropped: int) -> None:
    from holdfast.store import open_store

    files = log_of(ROOT, 10)
    trimmed = of(files, 5)
    for step in range(1, 60):
        store = open_store(f"memory://swap-{dropped}-{step}")
        fill(store, drop_before(files, dropped))
        crashed = False
        try:
            swap_in(Place(CrashingStore(store, step)), trimmed)
        except Crash:
            crashed = True
        seen = surely_visible(stored(store))
        # Only while entries are put back that Spark had dropped may a reader fail, and none ever sees a hole.
        assert (dropped and seen is None) or seen in [list(range(end)) for end in range(6, 12)]
        swap_in(Place(store), trimmed)
        assert {name: data for name, data in stored(store).items() if name in trimmed.files} == trimmed.files
        assert visible(stored(store)) == list(range(6))
        kept = {key.rpartition("/")[0] for key in dump(store)} - {LOG}
        assert drop_before(files, dropped) in [stored(store, folder) for folder in kept], "the old log is kept whole"
        if not crashed:
            return
    raise AssertionError("it never came to its end")


# ---- capturing ----


def test_a_log_that_does_not_reach_the_batch_is_not_captured(tmp_path: Path) -> None:
    import holdfast
    from holdfast.spark.capture import Capturer
    from spark.directories import MadeDirectory

    directory = MadeDirectory(tmp_path / "ck")
    for _ in range(3):
        directory.batch()
    write_log(tmp_path / "sink", log_of(f"file://{tmp_path}/sink", 1))
    pipeline = holdfast.open("memory://", create=True).pipeline("p")
    capturer = Capturer(pipeline.records, LocalDirectory(directory.root), file_sink=LocalDirectory(tmp_path / "sink"))
    with pytest.raises(NotCapturable, match=f"{LOG}/2"):
        capturer.take(2)
    write_log(tmp_path / "sink", log_of(f"file://{tmp_path}/sink", 9))
    capturer.take(2)
    latest = pipeline.latest()
    assert latest is not None
    assert {n for n in latest.manifest.files if n.startswith("_holdfast/")} == {
        f"_holdfast/file-sink/{batch}" for batch in range(3)
    }
    assert latest.manifest.metadata["file_sink"] == f"file:{tmp_path}/sink"
