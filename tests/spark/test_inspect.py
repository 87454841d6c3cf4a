"""What a directory says of itself: which batches are whole, what is wrong with others, and what that means."""

from __future__ import annotations

import json
import shutil
import threading
import uuid
from pathlib import Path

import pytest

from holdfast.errors import NotCapturable, NoWholeBatch
from holdfast.spark.cut import Cut, cut_at
from holdfast.spark.inspect import Fault, Inspected, inspect
from holdfast.store import open_directory, open_store
from holdfast.store.local_directory import LocalDirectory
from servers import S3Server
from spark.directories import MadeDirectory
from spark.harms import HARMS, harm, sidecar, without_sidecars
from spark.meddling import Meddling
from spark.replay import History, Replay
from spark.samples import KINDS, UPTO, bring_back, samples

STREAMS = (".delta", ".snapshot", ".changelog")
REDUNDANT = (".zip", ".snapshot", ".crc", "_metadata/metadata")
"""Without one of these a batch may still be whole: older snapshots, or Spark, make up for it."""

STANDS_FOR = {"state/0/_metadata/v2/0": "state/0/_metadata/metadata"}
"""Where no description of an operator is left, the one that all operators had first is missed."""


def look_at(root: Path, *, read_all: bool = False) -> Inspected:
    return inspect(LocalDirectory(root), read_all=read_all)


def newest_cut(root: Path) -> Cut:
    directory = LocalDirectory(root)
    cut = cut_at(directory, directory.look(), look_at(root).committed[-1])
    assert isinstance(cut, Cut)
    return cut


def fault_of(found: Inspected, name: str) -> Fault:
    [fault] = [fault for fault in found.faults if fault.name == name]
    return fault


@pytest.mark.parametrize("kind", KINDS)
def test_a_directory_as_spark_left_it_is_whole_from_its_first_batch_to_its_last(kind: str) -> None:
    found = look_at(samples()[kind].pristine)
    assert found.faults == []
    assert found.whole == found.committed == tuple(range(found.committed[-1] + 1))
    assert found.newest_whole == found.newest_committed >= UPTO - 1
    assert found.query_id == json.loads((samples()[kind].pristine / "metadata").read_text())["id"]
    assert found.files == sum(found.proofs.values()) == found.files_read > 10


def test_operators_provider_and_format_are_told() -> None:
    told = {}
    for kind, sample in samples().items():
        found = look_at(sample.pristine)
        [operator] = found.operators
        told[kind] = (found.provider, found.checkpoint_format, operator.name, operator.partitions)
    assert told["hdfs"] == ("HDFS-backed", 1, "stateStoreSave", 3)
    assert told["join"] == ("RocksDB", 1, "symmetricHashJoin", 3)
    assert told["tws"][:2] == ("RocksDB", 2)


@pytest.mark.parametrize("kind", KINDS)
def test_every_harm_to_any_file_of_the_newest_batch_is_found_on_a_disk(kind: str) -> None:
    with bring_back(samples()[kind]) as root:
        newest = look_at(root).newest_committed
        for name in sorted(newest_cut(root).files):
            for how in HARMS:
                path, kept = root / name, (root / name).read_bytes()
                harm(path, how)
                found = look_at(root)
                faulty = [fault for fault in found.faults if fault.name in (name, STANDS_FOR.get(name))]
                if how == "removed" and name.endswith(REDUNDANT):
                    # Something else removed it, which is told; the batch may be whole without it.
                    assert faulty, (name, how)
                else:
                    assert found.damaged, (name, how)
                    assert found.damaged == [f for f in faulty if f.severity == "damage"], (name, how, found.faults)
                    lost_commit = (name, how) == (f"commits/{newest}", "removed")
                    assert lost_commit or found.newest_whole != newest
                path.write_bytes(kept)
        assert look_at(root).faults == []


@pytest.mark.parametrize("kind", KINDS)
def test_without_sidecars_a_flip_is_found_wherever_there_is_a_checksum_at_all(kind: str) -> None:
    with bring_back(samples()[kind]) as root:
        without_sidecars(root)
        vouched = 0
        for name in sorted(newest_cut(root).files):
            for how in HARMS:
                path, kept = root / name, (root / name).read_bytes()
                # In a stream: its first checksum. A turned bit elsewhere may lead to the same plain bytes, unharmed.
                harm(path, how, at=18 / len(kept) if how == HARMS[2] and name.endswith(STREAMS) else 0.5)
                found = look_at(root)
                state = name.endswith((".delta", ".snapshot", ".zip", ".changelog"))
                if how == "cut short" or (how == HARMS[2] and state) or (how == HARMS[0] and not _may_lack(name)):
                    blamed = {fault.name for fault in found.damaged}
                    assert blamed & {name, STANDS_FOR.get(name)}, (name, how, found.faults)
                    vouched += 1
                path.write_bytes(kept)
        assert vouched > 25


def _may_lack(name: str) -> bool:
    return name.endswith(REDUNDANT) or name.startswith("commits/")


def test_a_missing_delta_hits_every_batch_that_needs_it_and_older_ones_stay_whole() -> None:
    with bring_back(samples()["hdfs"]) as root:
        newest = look_at(root).committed[-1]
        for path in root.glob("state/0/1/*.snapshot"):
            path.unlink()
        (root / "state/0/1/5.delta").unlink()
        without_sidecars(root)
        found = look_at(root)
        assert found.whole == (0, 1, 2, 3)
        fault = fault_of(found, "state/0/1/5.delta")
        assert fault.severity == "damage"
        assert fault.batches == tuple(range(4, newest + 1))
        assert fault.what == "it is not there"
        assert "CANNOT_LOAD_STATE_STORE" in fault.means


def test_a_temporary_file_that_was_never_renamed_is_named() -> None:
    with bring_back(samples()["hdfs"]) as root:
        version = look_at(root).committed[-1] + 1
        path = root / f"state/0/2/{version}.delta"
        left = path.with_name(f".{path.name}.{uuid.uuid4()}.tmp")
        path.rename(left)
        (path.parent / f"{version}.snapshot").unlink(missing_ok=True)
        found = look_at(root)
        assert fault_of(found, f"state/0/2/{version}.delta").what == (
            f"it is not there, but its temporary file {left.name} is: it was never renamed"
        )
        assert found.newest_whole == version - 2
        leftover = root / f"commits/.9.{uuid.uuid4()}.tmp"
        leftover.touch()
        assert fault_of(look_at(root), f"commits/{leftover.name}").severity == "note"


def test_lost_metadata_is_damage_of_every_batch() -> None:
    with bring_back(samples()["hdfs"]) as root:
        (root / "metadata").unlink()
        found = look_at(root)
        fault = fault_of(found, "metadata")
        assert found.whole == ()
        assert fault.batches == found.committed
        assert "STREAMING_CHECKPOINT_MISSING_METADATA_FILE" in fault.means


def test_an_offset_log_that_is_one_ahead_is_normal_and_two_ahead_is_not() -> None:
    with bring_back(samples()["hdfs"]) as root:
        last = look_at(root).committed[-1]
        for batch in (last + 1, last + 2):
            shutil.copyfile(root / f"offsets/{last}", root / f"offsets/{batch}")
            found = look_at(root)
            assert found.planned == batch
            if batch == last + 1:
                assert found.faults == []
        assert fault_of(found, f"commits/{last + 1}").what == "the offset log is ahead by more than one batch"
        assert found.damaged


def test_a_commit_that_somebody_removed_is_told_by_its_checksum() -> None:
    with bring_back(samples()["hdfs"]) as root:
        last = look_at(root).committed[-1]
        (root / f"commits/{last}").unlink()
        found = look_at(root)
        assert fault_of(found, f"commits/{last}").means.startswith(f"Spark runs batch {last} again")
        sidecar(root / f"commits/{last}").unlink()
        assert look_at(root).faults == []  # as after a crash just before the commit


def test_a_gap_in_the_offset_log_is_a_warning() -> None:
    with bring_back(samples()["hdfs"]) as root:
        for log in ("offsets", "commits"):
            (root / log / "2").unlink()
            sidecar(root / log / "2").unlink()
        found = look_at(root)
        assert found.damaged == []
        assert fault_of(found, "offsets/2").batches == (3,)  # Spark does not start after it without offsets/2
        assert found.newest_whole == found.newest_committed


def test_a_longer_gap_is_told_as_one() -> None:
    with bring_back(samples()["hdfs"]) as root:
        for batch in (1, 2, 3):
            for log in ("offsets", "commits"):
                (root / log / str(batch)).unlink()
                sidecar(root / log / str(batch)).unlink()
        found = look_at(root)
        assert found.damaged == []
        assert fault_of(found, "offsets/1, offsets/2").what == "a gap in the offset log"


def test_the_offsets_before_the_newest_are_needed_too() -> None:
    with bring_back(samples()["join"]) as root:
        before = look_at(root).committed[-1] - 1
        (root / f"offsets/{before}").unlink()
        found = look_at(root)
        assert f"offsets/{before}" in {fault.name for fault in found.damaged}
        assert "doesn't exist" in fault_of(found, f"offsets/{before}").means


def test_offsets_that_lack_a_source_are_found() -> None:
    with bring_back(samples()["join"]) as root:
        without_sidecars(root)
        path = root / f"offsets/{look_at(root).committed[-1]}"
        path.write_text("\n".join(path.read_text().split("\n")[:-1]))
        found = look_at(root)
        assert "names 1 sources where" in found.damaged[0].what


def test_what_sparks_clean_up_removed_is_no_fault() -> None:
    with bring_back(samples()["hdfs"]) as root:
        for partition in root.glob("state/0/[0-9]"):
            base = max(int(path.stem) for path in partition.glob("*.snapshot"))
            for path in partition.glob("[0-9]*.*"):
                if int(path.stem) < base or path.name == f"{base}.delta":
                    path.unlink()
                    sidecar(path).unlink()
        found = look_at(root)
        assert found.faults == []
        assert found.cleaned
        assert found.whole[-1] == found.committed[-1]
        assert set(found.cleaned) | set(found.whole) == set(found.committed)


def test_damage_to_an_older_batch_alone_is_a_warning() -> None:
    with bring_back(samples()["hdfs"]) as root:
        harm(root / "commits/1", "cut short")
        found = look_at(root)
        assert (found.damaged, found.newest_whole) == ([], found.newest_committed)
        assert fault_of(found, "commits/1").batches == (1,)


def test_damage_inside_an_older_batch_is_found_only_by_reading_all() -> None:
    with bring_back(samples()["hdfs"]) as root:
        harm(root / "state/0/0/1.delta", "one bit flipped")
        assert look_at(root).faults == []
        found = look_at(root, read_all=True)
        assert fault_of(found, "state/0/0/1.delta").severity == "warning"
        assert 0 not in found.whole


def test_a_damaged_record_of_a_restore_is_a_warning() -> None:
    with bring_back(samples()["hdfs"]) as root:
        (root / "_holdfast").mkdir()
        (root / "_holdfast/owner.json").write_text("{")
        assert fault_of(look_at(root), "_holdfast/owner.json").severity == "warning"


def test_a_turned_bit_that_makes_a_directory_look_like_no_sparks_is_damage_all_the_same() -> None:
    with bring_back(samples()["join"]) as root:
        last = look_at(root).committed[-1]
        path = root / f"offsets/{last}"
        path.write_text(path.read_text().replace("RocksDBStateStoreProvider", "RocksDBStateStoreProvides"))
        found = look_at(root)
        assert [fault.name for fault in found.damaged] == [f"offsets/{last}"]
        assert found.newest_whole == last - 1
        without_sidecars(root)
        with pytest.raises(NotCapturable, match="not Spark's own"):
            look_at(root)


@pytest.mark.parametrize("name", ["offsets/1", "state/0/0/_metadata/schema"])
def test_logs_that_lack_what_a_cut_needs_are_damage(name: str, tmp_path: Path) -> None:
    made = MadeDirectory(tmp_path, keyless=True)
    made.batch()
    made.batch()
    text = (tmp_path / name).read_bytes()
    made.write(name, text.replace(b"shuffle.partitions", b"shuffle.partitionr").replace(b'"fields"', b'"fieldz"'))
    assert [fault.name for fault in look_at(tmp_path).damaged] == [name]


def test_a_folder_that_is_no_checkpoint_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data.parquet").touch()
    for place in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(NoWholeBatch, match="no offsets, no commits and no metadata"):
            look_at(place)


def test_a_directory_of_continuous_mode_is_refused_with_the_reason() -> None:
    with bring_back(samples()["hdfs"]) as root:
        without_sidecars(root)
        path = root / f"offsets/{look_at(root).committed[-1]}"
        lines = path.read_text().split("\n")
        path.write_text("\n".join([lines[0], "", *lines[2:]]))
        with pytest.raises(NotCapturable, match="continuous mode"):
            look_at(root)


def test_a_query_that_has_only_begun_is_no_fault() -> None:
    with bring_back(samples()["hdfs"]) as root:
        for name in ("commits", "state"):
            shutil.rmtree(root / name)
        for path in (root / "offsets").iterdir():
            if path.name.strip(".cr") != "0":
                path.unlink()
        found = look_at(root)
        assert (found.faults, found.committed, found.planned, found.newest_whole) == ([], (), 0, None)


def test_a_running_query_is_never_called_damaged(history: History, tmp_path: Path) -> None:
    replay = Replay(history, tmp_path / "live")
    replay.to("commits/1")
    player = threading.Thread(target=replay.run, args=(0.05,))
    player.start()
    newest = 0
    try:
        while player.is_alive():
            found = look_at(tmp_path / "live")
            assert found.damaged == [], found.faults
            assert found.newest_whole == found.newest_committed
            assert found.newest_committed is not None
            newest = max(newest, found.newest_committed)
    finally:
        player.join()
    assert newest > 2


def test_a_file_that_goes_while_it_is_read_is_looked_for_again(history: History, tmp_path: Path) -> None:
    live = tmp_path / "live"
    replay = Replay(history, live)
    replay.to("commits/6")

    def move_on() -> None:
        replay.to("commits/20")
        for batch in range(7):
            (live / f"offsets/{batch}").unlink()

    directory = Meddling(live)
    directory.before_read("offsets/5", move_on)
    found = inspect(directory)
    assert (found.damaged, found.newest_whole) == ([], 20)


def test_a_directory_in_an_object_store_is_read_too(s3_server: S3Server, s3_url: str) -> None:
    store = open_store(s3_url, s3_server.options)
    root = samples()["hdfs"].pristine
    for path in root.rglob("*"):
        if path.is_file() and not path.name.startswith("."):
            store.put(str(path.relative_to(root)), path.read_bytes())
    directory = open_directory(s3_url.replace("s3://", "s3a://"), s3_server.options)
    found = inspect(directory)
    last = found.committed[-1]
    assert (found.faults, found.whole) == ([], (last,))  # older ones cost requests, and are left out
    assert inspect(directory, read_all=True).whole == found.committed
    store.delete([f"state/0/1/{last + 1}.delta", f"state/0/1/{last + 1}.snapshot"])
    store.put(f"offsets/.{last}.{uuid.uuid4()}.tmp", b"x")
    found = inspect(directory)
    assert found.damaged[0].name == f"state/0/1/{last + 1}.delta"
    assert found.newest_whole == last - 1
    assert [fault.severity for fault in found.faults] == ["note", "damage"]
