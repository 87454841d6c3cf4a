"""A checkpoint of a Spark query is laid down in a new place as it was captured, whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

import holdfast
from builders import dump, flip
from holdfast.checkpoint import Checkpoint
from holdfast.errors import (
    BadURL,
    BadValue,
    BrokenBatch,
    DamagedArtifact,
    HasSinks,
    InvalidManifest,
    OtherTimeline,
    PlaceNotEmpty,
    SinkLogGone,
    SparkRejects,
    UnfinishedRestore,
)
from holdfast.handles import Repository
from holdfast.laying import StoreFolder
from holdfast.manifest import SinkStatus
from holdfast.records import Owner, unseal
from holdfast.spark.capture import Capturer, Taken
from holdfast.spark.lay import UNFINISHED, Changes, FileSink, Laid, lay_down
from holdfast.spark.logs import parse_query_id
from holdfast.store import Store, open_directory, open_store
from holdfast.store.local_directory import LocalDirectory
from servers import S3Server
from spark.directories import ROCKSDB, MadeDirectory
from spark.test_sink_log import log_in, log_of, visible, write_log

OWNER = "_holdfast/owner.json"
VICTIM = Path(__file__).with_name("lay_victim.py")


def tree(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def directory(tmp_path: Path) -> MadeDirectory:
    """A query that has run for a few batches on RocksDB with changelogs."""
    made = MadeDirectory(tmp_path / "ck", provider=ROCKSDB, partitions=3)
    for batch in range(6):
        made.batch()
        if batch % 3 == 2:
            made.snapshot()
    return made


def capture(repository: Repository, directory: MadeDirectory | Path, **more: Any) -> Checkpoint:
    root = directory.root if isinstance(directory, MadeDirectory) else directory
    capturer = Capturer(repository.pipeline("p").records, LocalDirectory(root), **more)
    taken = capturer.take(10**9)
    capturer.close()
    assert isinstance(taken, Taken), taken
    latest = repository.pipeline("p").latest()
    assert latest is not None
    return latest


@pytest.fixture
def repository() -> Repository:
    return holdfast.open("memory://", create=True)


@pytest.fixture
def checkpoint(repository: Repository, directory: MadeDirectory) -> Checkpoint:
    return capture(repository, directory)


def captured_files(checkpoint: Checkpoint) -> dict[str, bytes]:
    return {name: checkpoint.load(artifact) for name, artifact in checkpoint.manifest.files.items()}


def laid(checkpoint: Checkpoint, destination: str | Path, **more: Any) -> Laid:
    done = checkpoint.restore(destination, **more)
    assert isinstance(done, Laid)
    return done


# ---- a new directory ----


def test_a_restore_is_the_captured_files_and_a_record_of_where_they_came_from(
    tmp_path: Path, checkpoint: Checkpoint, directory: MadeDirectory
) -> None:
    done = laid(checkpoint, tmp_path / "new")
    files = tree(tmp_path / "new")
    owner = unseal(OWNER, files.pop(OWNER), Owner)
    assert files == captured_files(checkpoint)
    assert (owner.at, owner.epoch, owner.checkpoint_id) == (checkpoint.slot, 5, checkpoint.id)
    assert (owner.query_id, owner.fork, owner.edits) == (directory.query_id, False, [])
    assert (done.files, done.bytes, done.epoch) == (len(files), sum(map(len, files.values())), 5)
    assert done.destination == f"file:{tmp_path / 'new'}"
    assert done.start == f'.option("checkpointLocation", "file:{tmp_path}/new")'
    assert names_in(tmp_path) == ["ck", "new"]


def test_a_fork_has_an_id_of_its_own_and_may_not_go_on_in_the_pipeline(
    tmp_path: Path, checkpoint: Checkpoint, directory: MadeDirectory, repository: Repository
) -> None:
    done = checkpoint.fork(tmp_path / "fork")
    assert uuid.UUID(done.query_id) != uuid.UUID(directory.query_id)
    files = tree(tmp_path / "fork")
    assert parse_query_id(files["metadata"]) == done.query_id
    assert unseal(OWNER, files.pop(OWNER), Owner).fork
    assert {**files, "metadata": b""} == {**captured_files(checkpoint), "metadata": b""}
    with pytest.raises(OtherTimeline, match="forked"):
        capture(repository, tmp_path / "fork")
    assert checkpoint.fork(tmp_path / "another").query_id != done.query_id


def test_what_is_said_of_sinks_names_every_kind_that_skips(tmp_path: Path, checkpoint: Checkpoint) -> None:
    said = " ".join(laid(checkpoint, tmp_path / "new").remarks)
    for word in ("next batch is 6", "file sink", "txnAppId", "foreachBatch", "back to batch 5"):
        assert word in said
    assert "sinks of its own" in " ".join(checkpoint.fork(tmp_path / "fork").remarks)


def test_a_restored_directory_that_ran_on_is_captured_on(
    tmp_path: Path, checkpoint: Checkpoint, repository: Repository, directory: MadeDirectory
) -> None:
    laid(checkpoint, tmp_path / "new")
    moved = MadeDirectory.__new__(MadeDirectory)
    moved.__dict__ |= {**directory.__dict__, "root": tmp_path / "new"}
    moved.batch()
    after = capture(repository, tmp_path / "new")
    assert (after.epoch, after.slot.generation) == (6, checkpoint.slot.generation + 1)


@pytest.mark.parametrize("name", ["plain", "with space", "ünïcode", "100%", "a%20b", "q?x#y", "..dots", "k=v"])
def test_a_place_may_have_any_name(tmp_path: Path, checkpoint: Checkpoint, name: str) -> None:
    for number, destination in enumerate(
        (str(tmp_path / name), f"file:{tmp_path}/2{name}", f"file://{tmp_path}/3{name}")
    ):
        done = laid(checkpoint, destination)
        prefix = "" if number == 0 else str(number + 1)
        assert done.destination == f"file:{tmp_path}/{prefix}{name}"
        assert (tmp_path / f"{prefix}{name}" / "metadata").exists()


def test_what_is_there_is_never_touched(tmp_path: Path, checkpoint: Checkpoint, directory: MadeDirectory) -> None:
    before = tree(directory.root)
    with pytest.raises(PlaceNotEmpty):
        laid(checkpoint, directory.root)
    assert tree(directory.root) == before


@pytest.mark.parametrize("url", ["memory://x", "hdfs://host/x", "ftp://x/y", "s3://", "az://c/x"])
def test_a_place_that_spark_can_not_reach_from_here_is_refused(checkpoint: Checkpoint, url: str) -> None:
    with pytest.raises(BadURL):
        laid(checkpoint, url)


def test_a_local_place_takes_no_options(tmp_path: Path, checkpoint: Checkpoint) -> None:
    with pytest.raises(BadURL):
        laid(checkpoint, tmp_path / "new", options={"endpoint": "x"})
    assert not (tmp_path / "new").exists()


# ---- what is refused ----


def altered(checkpoint: Checkpoint, **fields: Any) -> Any:
    return msgspec.structs.replace(checkpoint.manifest, **fields)


def test_a_checkpoint_with_sinks_is_refused_unless_they_are_to_stay(tmp_path: Path, checkpoint: Checkpoint) -> None:
    manifest = altered(checkpoint, sink_names=["table"], sink_commit_statuses={"table": SinkStatus(status="committed")})
    with pytest.raises(HasSinks, match="table"):
        lay_down(checkpoint.pipeline.records, manifest, str(tmp_path / "new"))
    assert names_in(tmp_path) == ["ck"]
    lay_down(checkpoint.pipeline.records, manifest, str(tmp_path / "new"), state_only=True)


def test_a_manifest_that_does_not_hold_together_is_refused(tmp_path: Path, checkpoint: Checkpoint) -> None:
    records = checkpoint.pipeline.records
    files = checkpoint.manifest.files
    broken = [
        altered(checkpoint, engine="python"),
        altered(checkpoint, metadata={}),
        altered(checkpoint, files={**files, "../../out": files["metadata"]}),
        altered(checkpoint, files={**files, "/etc/out": files["metadata"]}),
        altered(checkpoint, files={name: a for name, a in files.items() if not name.startswith("offsets/")}),
    ]
    for manifest in broken:
        with pytest.raises(InvalidManifest):
            lay_down(records, manifest, str(tmp_path / "new"))
    assert names_in(tmp_path) == ["ck"]


def test_what_the_spark_that_is_to_go_on_rejects_is_refused(tmp_path: Path, repository: Repository) -> None:
    made = MadeDirectory(tmp_path / "ck", provider=ROCKSDB, changelog=False, checkpoint_format=2, snapshot_version=2)
    for _ in range(3):
        made.batch()
    checkpoint = capture(repository, made, spark_version="4.0.5")
    with pytest.raises(SparkRejects, match=r"only Spark 4\.0 reads"):
        laid(checkpoint, tmp_path / "new", spark="4.3.0")
    with pytest.raises(SparkRejects, match=r"needs Spark 4\.0"):
        laid(checkpoint, tmp_path / "new", spark="3.5.1")
    with pytest.raises(SparkRejects):
        laid(checkpoint, tmp_path / "new")  # the pyspark that is installed here is newer
    assert names_in(tmp_path) == ["ck"]
    laid(checkpoint, tmp_path / "new", spark="4.0.1")


def test_state_that_another_spark_would_take_for_other_columns_is_refused(
    tmp_path: Path, repository: Repository
) -> None:
    made = MadeDirectory(tmp_path / "ck")
    columns = ["source", "status", "target", "quantity", "channel"]
    structs = [
        {"type": "struct", "fields": [{"name": n, "type": "string"} for n in names]}
        for names in (columns, ["__dummy__"])
    ]
    made.write(
        "state/0/0/_metadata/schema", b"\0\x02v2" + b"\0\0\0\x01\x01".join(json.dumps(s).encode() for s in structs)
    )
    made.batch()
    checkpoint = capture(repository, made)
    with pytest.raises(SparkRejects, match="source, status, target, quantity, channel"):
        laid(checkpoint, tmp_path / "new", spark="3.5.9")
    assert names_in(tmp_path) == ["ck"]
    laid(checkpoint, tmp_path / "new", spark="4.3.0")


def test_changes_that_fit_nothing_are_refused_before_anything_is_written(
    tmp_path: Path, checkpoint: Checkpoint
) -> None:
    for change in (
        {"set_offsets": ["0:orders:0=1"]},
        {"set_offsets": ["nonsense"]},
        {"map_paths": {"/a": "/b"}},
        {"map_paths": {"relative": "/b"}},
        {"spark": "new"},
    ):
        with pytest.raises(BadValue):
            laid(checkpoint, tmp_path / "new", **change)
    with pytest.raises(SinkLogGone):
        laid(checkpoint, tmp_path / "new", file_sink=str(tmp_path / "no-sink"))
    assert names_in(tmp_path) == ["ck"]


def test_each_single_damaged_file_is_found_and_leaves_nothing(tmp_path: Path, directory: MadeDirectory) -> None:
    for number in range(1000):
        repository = holdfast.open(f"memory://damage-{number}", create=True)
        checkpoint = capture(repository, directory)
        files = sorted(checkpoint.manifest.files.items())
        if number == len(files):
            break
        _, artifact = files[number]
        assert artifact.path is not None
        at = (artifact.offset or 0) + artifact.size_bytes // 2
        flip(repository.store, checkpoint.pipeline.records.keys.prefix + artifact.path, at)
        with pytest.raises(DamagedArtifact):
            laid(checkpoint, tmp_path / "new", map_paths={})
        assert names_in(tmp_path) == ["ck"]
    assert number >= 18


# ---- changes ----


def with_sources(made: MadeDirectory, *offsets: str) -> MadeDirectory:
    """The same directory, whose newest batch has these offsets."""
    for batch in (made.next_batch - 2, made.next_batch - 1):
        head = (made.root / f"offsets/{batch}").read_text().split("\n")[:2]
        made.write(f"offsets/{batch}", "\n".join([*head, *offsets]))
    return made


def test_an_offset_is_set_told_and_recorded_and_the_directory_goes_on(
    tmp_path: Path, repository: Repository, directory: MadeDirectory
) -> None:
    checkpoint = capture(repository, with_sources(directory, '{"orders":{"0":10,"1":20}}'))
    done = laid(checkpoint, tmp_path / "new", set_offsets=["0:orders:1=21"])
    files = tree(tmp_path / "new")
    assert files["offsets/5"].endswith(b'\n{"orders":{"0":10,"1":21}}')
    assert done.edits == ("source 0, orders-1: 20 -> 21 (skips 1)",)
    assert unseal(OWNER, files[OWNER], Owner).edits == list(done.edits)
    unchanged = {name: data for name, data in captured_files(checkpoint).items() if name != "offsets/5"}
    assert {name: data for name, data in files.items() if name not in ("offsets/5", OWNER)} == unchanged
    moved = MadeDirectory.__new__(MadeDirectory)
    moved.__dict__ |= {**directory.__dict__, "root": tmp_path / "new"}
    moved.batch()
    assert capture(repository, tmp_path / "new").epoch == 6


def test_paths_are_mapped_in_every_entry_of_a_file_sources_log(
    tmp_path: Path, repository: Repository, directory: MadeDirectory
) -> None:
    def entries(*batches: int, root: str = "/data/in%20x") -> str:
        lines = [json.dumps({"path": f"file://{root}/{n}.json", "timestamp": n, "batchId": n}) for n in batches]
        return "\n".join(["v1", *lines])

    directory.write("sources/0/3.compact", entries(0, 1, 2, 3))
    directory.write("sources/0/4", entries(4))
    directory.write("sources/1/0", "not a file source's")
    checkpoint = capture(repository, with_sources(directory, '{"logOffset":4}', "17"))
    done = laid(checkpoint, tmp_path / "new", map_paths={"/data": "/else", "/data/in x": "/moved/y z"})
    files = tree(tmp_path / "new")
    compact = lambda text: text.replace('": ', '":').replace(', "', ',"').encode()  # noqa: E731
    assert files["sources/0/3.compact"] == compact(entries(0, 1, 2, 3, root="/moved/y%20z"))
    assert files["sources/0/4"] == compact(entries(4, root="/moved/y%20z"))
    assert files["sources/1/0"] == b"not a file source's"
    assert done.edits == ("paths /data -> /else, /data/in x -> /moved/y z, in 5 places",)
    with pytest.raises(BadValue, match=r"there is /data/in x/0\.json"):
        laid(checkpoint, tmp_path / "other", map_paths={"/dat": "/x"})


def test_a_state_file_that_is_not_text_is_laid_down_as_it_was(tmp_path: Path, checkpoint: Checkpoint) -> None:
    laid(checkpoint, tmp_path / "new")
    for name, artifact in checkpoint.manifest.files.items():
        assert hashlib.sha256((tmp_path / "new" / name).read_bytes()).hexdigest() == artifact.sha256


# ---- the file sink ----


@pytest.fixture
def sink(tmp_path: Path) -> Path:
    """A file sink that is ahead of the checkpoint."""
    root = tmp_path / "sink"
    write_log(root, log_of(f"file://{root}", 9))
    return root


def test_the_trimmed_log_lies_beside_the_directory_and_the_sink_is_left(
    tmp_path: Path, checkpoint: Checkpoint, sink: Path
) -> None:
    before = tree(sink)
    done = laid(checkpoint, tmp_path / "new", file_sink=str(sink))
    assert tree(sink) == before
    assert visible(tree(tmp_path / "new-sink-log")) == list(range(6))
    assert (done.sink, done.sink_log) == (f"file:{sink}", f"file:{tmp_path}/new-sink-log")
    assert not done.sink_applied
    assert not [name for name in tree(tmp_path / "new") if "sink" in name]
    assert f"{done.sink}/_spark_metadata" in done.remarks[-1]


def test_the_trimmed_log_is_swapped_in_before_the_directory_counts(
    tmp_path: Path, checkpoint: Checkpoint, sink: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = log_in(sink / "_spark_metadata")
    seen: list[bool] = []
    rename = os.rename

    def watched(old: Any, new: Any, **named: Any) -> None:
        if Path(new) == tmp_path / "new":
            seen.append(visible(log_in(sink / "_spark_metadata")) == list(range(6)))
        rename(old, new, **named)

    monkeypatch.setattr(os, "rename", watched)
    done = laid(checkpoint, tmp_path / "new", file_sink=str(sink), apply_sink=True)
    assert seen == [True]
    assert done.sink_applied
    assert done.sink_kept is not None
    assert log_in(Path(done.sink_kept)) == before
    assert "ends at batch 5" in done.remarks[-1]


def test_a_sinks_log_that_was_captured_outlives_the_sinks_own(
    tmp_path: Path, repository: Repository, directory: MadeDirectory, sink: Path
) -> None:
    checkpoint = capture(repository, directory, file_sink=LocalDirectory(sink))
    for name in ("0", "1", "2", "3.compact", "4", "5", "6"):
        (sink / "_spark_metadata" / name).unlink()
    done = laid(checkpoint, tmp_path / "new", file_sink=str(sink), apply_sink=True)
    assert visible(log_in(sink / "_spark_metadata")) == list(range(6))
    assert not (tmp_path / "new" / "_holdfast" / "file-sink").exists()
    assert done.files == len([name for name in checkpoint.manifest.files if not name.startswith("_holdfast/")])
    assert "--file-sink" in laid(checkpoint, tmp_path / "another").remarks[-1]


def test_a_moved_sink_is_mapped(tmp_path: Path, repository: Repository, directory: MadeDirectory, sink: Path) -> None:
    checkpoint = capture(repository, directory, file_sink=LocalDirectory(sink))
    shutil.move(sink, tmp_path / "moved sink")
    moved = tmp_path / "moved sink"
    with pytest.raises(SinkLogGone, match="map the path"):
        laid(checkpoint, tmp_path / "new", file_sink=str(moved))
    done = laid(checkpoint, tmp_path / "new", file_sink=str(moved), apply_sink=True, map_paths={str(sink): str(moved)})
    assert done.edits == (f"paths {sink} -> {moved}, in 6 places",)
    assert b"moved%20sink" in b"".join(log_in(moved / "_spark_metadata").values())


def test_a_fork_does_not_touch_the_sink_of_its_origin(tmp_path: Path, checkpoint: Checkpoint, sink: Path) -> None:
    with pytest.raises(BadValue, match="fork"):
        lay_down(
            checkpoint.pipeline.records,
            checkpoint.manifest,
            str(tmp_path / "new"),
            Changes(fork=True),
            sink=FileSink(str(sink), apply=True),
        )
    assert checkpoint.fork(tmp_path / "new", file_sink=str(sink)).sink_log


def test_a_copy_of_a_sinks_log_that_is_another_is_refused_before_anything_is_written(
    tmp_path: Path, checkpoint: Checkpoint, sink: Path
) -> None:
    (tmp_path / "new-sink-log").mkdir()
    (tmp_path / "new-sink-log" / "mine").write_text("precious")
    with pytest.raises(PlaceNotEmpty):
        laid(checkpoint, tmp_path / "new", file_sink=str(sink), apply_sink=True)
    assert not (tmp_path / "new").exists()
    assert visible(log_in(sink / "_spark_metadata")) == list(range(10))


# ---- killed and run again ----


def begun(given: list[Any]) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, str(VICTIM), json.dumps(given)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


def expect(checkpoint: Checkpoint) -> dict[str, str]:
    return {name: artifact.sha256 for name, artifact in checkpoint.manifest.files.items()}


def digests(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(data).hexdigest() for name, data in files.items() if name != OWNER}


def kill_locally(tmp_path: Path, checkpoint: Checkpoint, sink: Path, steps: range) -> int:
    """Kill a restore with its sink at each of these steps, up to its last, and run it again; gives how many it was."""
    killed = 0
    for step in steps:
        root = tmp_path / f"round-{step}"
        shutil.copytree(sink, root / "sink")
        for path in (root / "sink" / "_spark_metadata").iterdir():
            path.write_text(path.read_text().replace(str(sink), str(root / "sink")))
        given = [checkpoint.pipeline.repository.url, str(root / "new"), {}, str(root / "sink")]
        process = begun([*given, step])
        out, _ = process.communicate()
        if process.returncode == -signal.SIGKILL:
            killed += 1
            if (root / "new").exists():
                assert digests(tree(root / "new")) == expect(checkpoint), "what has its name is whole"
                assert visible(log_in(root / "sink" / "_spark_metadata")) == list(range(6))
            else:
                assert begun([*given, 0]).communicate()[0] == "done\n"
        else:
            assert out == "done\n"
        assert digests(tree(root / "new")) == expect(checkpoint)
        assert visible(log_in(root / "sink" / "_spark_metadata")) == list(range(6))
        assert visible(tree(root / "new-sink-log")) == list(range(6))
        assert [name for name in names_in(root) if name.startswith(".")] == []
        kept = (root / "sink" / "_spark_metadata.before").iterdir()
        assert list(range(10)) in [visible(log_in(path)) for path in kept], "the old log is kept"
        shutil.rmtree(root)
        if out == "done\n":
            break
    return killed


@pytest.fixture
def on_disk(tmp_path: Path) -> Checkpoint:
    """A checkpoint of some size in a repository that other processes can open."""
    made = MadeDirectory(tmp_path / "ck", provider=ROCKSDB, partitions=20)
    for _ in range(6):
        made.batch()
    return capture(holdfast.open(str(tmp_path / "repository"), create=True), made)


def test_a_restore_killed_at_any_step_is_run_again_to_the_same_end(
    tmp_path: Path, on_disk: Checkpoint, sink: Path
) -> None:
    assert kill_locally(tmp_path, on_disk, sink, range(5, 1000, 37)) >= 4


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_restore_killed_at_every_step_is_run_again_to_the_same_end(
    tmp_path: Path, on_disk: Checkpoint, sink: Path
) -> None:
    killed = kill_locally(tmp_path, on_disk, sink, range(1, 2000))
    assert 150 < killed < 1999, "every step was tried, up to the end"
    print(f"a restore was killed at each of its {killed} steps on the disk")


def kill_in_store(
    checkpoint: Checkpoint, server: S3Server, rounds: int, seconds: float, draw: random.Random
) -> tuple[int, int]:
    """Kill restores to S3 at random instants and run them again; gives how many were cut off and had ended."""
    cut_off = ended = 0
    for _ in range(rounds):
        url = server.url(f"t-{uuid.uuid4().hex}/ck").replace("s3://", "s3a://")
        store = open_store(url, server.options)
        given = [checkpoint.pipeline.repository.url, url, server.options, None, 0]
        process = begun(given)
        time.sleep(draw.uniform(0, seconds))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        there = dump(store)
        if there and hashlib.sha256(there["metadata"]).hexdigest() == checkpoint.manifest.files["metadata"].sha256:
            ended += 1
        else:
            if there:
                cut_off += 1
                assert json.loads(there["metadata"])["id"] == UNFINISHED
                with pytest.raises(BrokenBatch):
                    Capturer(checkpoint.pipeline.records, open_directory(url, server.options))._look_around(_BATCHES)
            assert begun(given).communicate()[0] == "done\n"
        assert digests(dump(store)) == expect(checkpoint)
    return cut_off, ended


class _Batches:
    commits = (5,)


_BATCHES: Any = _Batches()


def test_a_restore_to_an_object_store_killed_at_random_is_run_again_to_the_same_end(
    on_disk: Checkpoint, s3_server: S3Server
) -> None:
    cut_off, _ = kill_in_store(on_disk, s3_server, 6, 0.15, random.Random(11))
    assert cut_off >= 1


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_restores_to_an_object_store_killed_hundreds_of_times_end_the_same(
    on_disk: Checkpoint, s3_server: S3Server
) -> None:
    rounds = int(os.environ.get("HOLDFAST_SOAK_ROUNDS", "100"))
    draw = random.Random(int(os.environ.get("HOLDFAST_SOAK_SEED", "1")))
    cut_off, ended = kill_in_store(on_disk, s3_server, rounds, 0.3, draw)
    assert cut_off > rounds // 10
    print(f"{rounds} restores to S3 were killed: {cut_off} cut off, {ended} had ended")


# ---- in an object store ----


@pytest.fixture
def place(s3_server: S3Server, s3_url: str) -> tuple[str, Store]:
    return s3_url, open_store(s3_url, s3_server.options)


def test_a_restore_to_a_store_is_the_captured_files(
    checkpoint: Checkpoint, s3_server: S3Server, place: tuple[str, Store]
) -> None:
    url, store = place
    doubled = url.replace("s3://", "s3a://").replace("/t-", "//t-") + "/"
    done = laid(checkpoint, doubled, options=s3_server.options)
    assert digests(dump(store)) == expect(checkpoint)
    assert unseal(OWNER, store.get(OWNER), Owner).at == checkpoint.slot
    assert done.destination == doubled.rstrip("/")
    with pytest.raises(PlaceNotEmpty):
        laid(checkpoint, url, options=s3_server.options)


def test_damage_leaves_nothing_in_a_store(
    directory: MadeDirectory, s3_server: S3Server, place: tuple[str, Store]
) -> None:
    url, store = place
    repository = holdfast.open("memory://", create=True)
    checkpoint = capture(repository, directory)
    artifact = checkpoint.manifest.files[max(checkpoint.manifest.files)]
    at = (artifact.offset or 0) + artifact.size_bytes // 2
    flip(repository.store, checkpoint.pipeline.records.keys.prefix + (artifact.path or ""), at)
    with pytest.raises(DamagedArtifact):
        laid(checkpoint, url, options=s3_server.options)
    assert dump(store) == {}


class Cut(Exception):
    pass


def cut_off(
    checkpoint: Checkpoint, url: str, options: dict[str, str], monkeypatch: pytest.MonkeyPatch, **more: Any
) -> None:
    """A restore that dies after its files and before its end."""
    from holdfast.spark import lay

    with monkeypatch.context() as patch:

        def die(*_: object) -> None:
            raise Cut

        patch.setattr(lay.StoreFolder, "lift", die)
        with pytest.raises(Cut):
            (checkpoint.fork if more.pop("fork", False) else checkpoint.restore)(url, options=options, **more)


def test_a_restore_that_was_cut_off_is_taken_up_only_by_the_same_one(
    checkpoint: Checkpoint, s3_server: S3Server, place: tuple[str, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, store = place
    cut_off(checkpoint, url, s3_server.options, monkeypatch)
    left = dump(store)
    with pytest.raises(UnfinishedRestore, match=checkpoint.id):
        checkpoint.fork(url, options=s3_server.options)
    assert dump(store) == left
    laid(checkpoint, url.replace("s3://", "s3a://"), options=s3_server.options)
    after = dump(store)
    assert digests(after) == expect(checkpoint)
    assert after[OWNER] == left[OWNER], "the first one's record stays"


def test_a_fork_that_was_cut_off_keeps_the_id_that_it_drew(
    checkpoint: Checkpoint, s3_server: S3Server, place: tuple[str, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, store = place
    cut_off(checkpoint, url, s3_server.options, monkeypatch, fork=True)
    drawn = unseal(OWNER, store.get(OWNER), Owner).query_id
    assert checkpoint.fork(url, options=s3_server.options).query_id == drawn
    assert parse_query_id(store.get("metadata")) == drawn


def test_several_restores_to_one_place_end_in_one_directory(
    checkpoint: Checkpoint, s3_server: S3Server, place: tuple[str, Store]
) -> None:
    url, store = place
    ids: list[str] = []

    def fork() -> None:
        try:
            ids.append(checkpoint.fork(url, options=s3_server.options).query_id)
        except PlaceNotEmpty:
            return

    threads = [threading.Thread(target=fork) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(ids) == {parse_query_id(store.get("metadata"))}
    assert unseal(OWNER, store.get(OWNER), Owner).query_id == ids[0]


def test_the_log_of_a_sink_in_a_store_is_cut_back_there_before_the_directory_counts(
    checkpoint: Checkpoint, s3_server: S3Server, s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = open_store(f"{s3_url}/table", s3_server.options)
    for name, data in log_of(f"{s3_url.replace('s3://', 's3a://')}/table", 9).items():
        table.put(f"_spark_metadata/{name}", data)
    sink = {"file_sink": f"{s3_url}/table", "sink_options": s3_server.options, "apply_sink": True}

    def log(url: str) -> dict[str, bytes]:
        return dump(open_store(url, s3_server.options))

    seen: list[bool] = []
    lift = StoreFolder.lift

    def watched(place: StoreFolder, data: bytes) -> None:
        if place.url.rpartition("?")[0].endswith("/new"):
            seen.append(visible(log(f"{s3_url}/table/_spark_metadata")) == list(range(6)))
        lift(place, data)

    monkeypatch.setattr(StoreFolder, "lift", watched)
    done = laid(checkpoint, f"{s3_url}/new", options=s3_server.options, **sink)
    assert seen == [True]
    assert done.sink_kept is not None
    assert visible(log(f"{s3_url}/table/_spark_metadata")) == list(range(6))
    assert visible(log(f"{s3_url}/new-sink-log")) == list(range(6))
    assert visible(log(done.sink_kept)) == list(range(10))
