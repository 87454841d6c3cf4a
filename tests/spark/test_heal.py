"""Healing: every harm is undone to the very same bytes, and what can't be undone in place is left alone."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest

import holdfast
from holdfast.errors import BrokenBatch, DamagedArtifact, DamagedRecord, NotHealable, StillRunning
from holdfast.handles import StoredPipeline
from holdfast.manifest import Manifest
from holdfast.report import check_directory, plain
from holdfast.spark.capture import Capturer
from holdfast.spark.heal import HealPlan, plan_heal
from holdfast.spark.held import find_checkpoint
from holdfast.spark.inspect import inspect
from holdfast.spark.lay import lay_down
from holdfast.spark.moving import Changes
from holdfast.spark.places import SparkPlace
from holdfast.store import open_store
from holdfast.store.local_directory import LocalDirectory
from servers import S3Server
from spark.harms import HARMS, harm, sidecar, without_sidecars
from spark.samples import KINDS, bring_back, capture, run_on, samples


@pytest.fixture
def pipeline(tmp_path: Path) -> StoredPipeline:
    return holdfast.open(str(tmp_path / "repository"), create=True).pipeline("orders")


def plan(pipeline: StoredPipeline, root: Path | str, manifest: Manifest | None = None) -> HealPlan:
    return plan_heal(pipeline.records, SparkPlace(str(root)), manifest)


def heal(pipeline: StoredPipeline, root: Path) -> HealPlan:
    made = plan(pipeline, root)
    made.apply(stopped=True)
    return made


def contents(root: Path) -> dict[str, bytes]:
    """Every file but Holdfast's own and Hadoop's."""
    paths = (path for path in root.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {n: path.read_bytes() for path in paths if not (n := str(path.relative_to(root))).startswith("_holdfast/")}


def last_batch(root: Path) -> int:
    return max(int(path.name) for path in (root / "commits").iterdir() if path.name.isdecimal())


@pytest.mark.parametrize("sidecars", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_every_harm_to_any_file_of_the_batch_is_found_and_undone_to_the_same_bytes(
    kind: str, sidecars: bool, pipeline: StoredPipeline
) -> None:
    with bring_back(samples()[kind]) as root:
        if not sidecars:
            without_sidecars(root)
        manifest = capture(pipeline, LocalDirectory(root))
        for name in sorted(manifest.files):
            for how in HARMS:
                path = root / name
                kept, sums = path.read_bytes(), sidecar(path).read_bytes() if sidecars else None
                harm(path, how)
                broken = path.read_bytes() if path.exists() else None
                why = {"removed": "missing", "cut short": "other size", "one bit flipped": "damaged"}[how]
                made = plan(pipeline, root)
                assert ([(o.name, o.why) for o in made.files], made.refused) == ([(name, why)], ()), (name, how)
                healed = made.apply(stopped=True)
                assert path.read_bytes() == kept
                assert not sidecar(path).exists()
                if broken is not None:
                    assert healed.aside is not None
                    assert (root / healed.aside / name).read_bytes() == broken
                if sums is not None:
                    sidecar(path).write_bytes(sums)
        assert plan(pipeline, root).nothing_to_do
        assert inspect(LocalDirectory(root)).faults == []
        assert contents(root) == contents(samples()[kind].pristine)


@pytest.mark.parametrize("kind", KINDS)
def test_many_harms_at_once_are_undone_at_once(kind: str, pipeline: StoredPipeline) -> None:
    with bring_back(samples()[kind]) as root:
        manifest = capture(pipeline, LocalDirectory(root))
        offsets = {f"offsets/{manifest.epoch}", f"offsets/{manifest.epoch - 1}"}
        chance = random.Random(kind)
        for name in sorted(set(manifest.files) - offsets):
            harm(root / name, chance.choice(HARMS))
        made = heal(pipeline, root)
        assert {other.name for other in made.files} == set(manifest.files) - offsets
        assert contents(root) == contents(samples()[kind].pristine)


def test_a_whole_directory_needs_no_healing_and_none_is_done(pipeline: StoredPipeline) -> None:
    with bring_back(samples()["hdfs"]) as root:
        capture(pipeline, LocalDirectory(root))
        before = sorted(root.rglob("*"))
        made = plan(pipeline, root)
        assert (made.nothing_to_do, made.files, made.refused) == (True, (), ())
        assert made.apply(stopped=True).files == 0
        assert sorted(root.rglob("*")) == before


def test_a_plan_changes_nothing(pipeline: StoredPipeline) -> None:
    with bring_back(samples()["hdfs"]) as root:
        capture(pipeline, LocalDirectory(root))
        harm(root / "metadata", "cut short")
        before = contents(root)
        assert plan(pipeline, root).files
        assert contents(root) == before
        assert not (root / "_holdfast").exists()


def test_what_is_brought_back_belongs_to_whom_the_directory_belongs(pipeline: StoredPipeline) -> None:
    with bring_back(samples()["hdfs"]) as root:
        capture(pipeline, LocalDirectory(root))
        owner = 12345 if os.geteuid() == 0 else os.geteuid()  # only root can give files away
        os.chown(root, owner, -1)
        shutil.rmtree(root / "state/0/1")
        heal(pipeline, root)
        healed = [root / "state/0/1", *(root / "state/0/1").iterdir()]
        assert {path.stat().st_uid for path in healed} == {owner}
        os.chown(root, os.geteuid(), -1)


def test_a_plan_shows_no_secret(pipeline: StoredPipeline) -> None:
    with bring_back(samples()["hdfs"]) as root:
        capture(pipeline, LocalDirectory(root))
        harm(root / "metadata", "cut short")
        made = plan(pipeline, root)
        shown = plain(made)
    assert set(shown) == {"directory", "checkpoint", "epoch", "files", "refused"}
    assert "SparkPlace" not in repr(made)


def test_a_stale_checksum_beside_a_good_file_is_taken_away(pipeline: StoredPipeline) -> None:
    with bring_back(samples()["hdfs"]) as root:
        capture(pipeline, LocalDirectory(root))
        harm(sidecar(root / "metadata"), "one bit flipped", at=0.9)
        made = plan(pipeline, root)
        assert [(o.name, o.why) for o in made.files] == [("metadata", "checksum file")]
        before = (root / "metadata").stat().st_ino
        healed = made.apply(stopped=True)
        assert not sidecar(root / "metadata").exists()
        assert (root / "metadata").stat().st_ino == before
        assert healed.aside is not None
        assert (root / healed.aside / ".metadata.crc").exists()


def test_a_lost_commit_is_brought_back_also_when_the_next_batch_had_begun(pipeline: StoredPipeline) -> None:
    with bring_back(samples()["hdfs"]) as root:
        last = last_batch(root)
        (root / f"offsets/{last + 1}").write_bytes((root / f"offsets/{last}").read_bytes())
        capture(pipeline, LocalDirectory(root))
        (root / f"commits/{last}").unlink()
        assert [o.name for o in heal(pipeline, root).files] == [f"commits/{last}"]
        assert last_batch(root) == last


# ---- which checkpoint, and when not ----


def capture_at(pipeline: StoredPipeline, root: Path, batch: int) -> None:
    """A checkpoint of an older batch, as if it had been captured when that was the last."""
    later = [root / f"commits/{b}" for b in range(batch + 1, last_batch(root) + 1)]
    for path in later:
        path.rename(path.with_name(f"later-{path.name}"))
    capturer = Capturer(pipeline.records, LocalDirectory(root))
    capturer.take(known=batch)
    capturer.close()
    for path in later:
        path.with_name(f"later-{path.name}").rename(path)


def test_an_older_checkpoint_heals_what_the_last_batch_still_needs(pipeline: StoredPipeline) -> None:
    with bring_back(samples()["join"]) as root:
        last = last_batch(root)
        capture_at(pipeline, root, last - 1)
        latest = pipeline.latest()
        assert latest is not None
        assert latest.epoch == last - 1
        shared = sorted({*latest.manifest.files} & {*_cut_files(root)} - {f"offsets/{last - 1}"})
        assert any(name.endswith(".zip") for name in shared)
        for name in shared:
            harm(root / name, "one bit flipped")
        made = heal(pipeline, root)
        assert made.epoch == last
        assert [other.name for other in made.files] == shared
        assert contents(root) == contents(samples()["join"].pristine)


def _cut_files(root: Path) -> set[str]:
    from holdfast.spark.cut import Cut, cut_at

    directory = LocalDirectory(root)
    cut = cut_at(directory, directory.look(), last_batch(root))
    assert isinstance(cut, Cut)
    return set(cut.files)


def test_a_directory_is_never_taken_back_to_an_older_batch(pipeline: StoredPipeline) -> None:
    with bring_back(samples()["hdfs"]) as root:
        last = last_batch(root)
        capture_at(pipeline, root, last - 1)
        for path in (root / f"state/0/1/{last + 1}.delta", root / f"state/0/1/{last + 1}.snapshot"):
            path.unlink(missing_ok=True)
        before = contents(root)
        made = plan(pipeline, root)
        assert made.refused[0] == f"batch {last} would not be whole: state/0/1/{last + 1}.delta: it is not there"
        assert "NEW_DIRECTORY" in made.refused[1]
        with pytest.raises(NotHealable) as refused:
            made.apply(stopped=True)
        assert refused.value.exit_code == 6
        assert contents(root) == before


def test_a_file_that_no_checkpoint_holds_and_that_is_damaged_stops_all(pipeline: StoredPipeline) -> None:
    with bring_back(samples()["hdfs"]) as root:
        last = last_batch(root)
        capture_at(pipeline, root, last - 1)
        harm(root / "metadata", "cut short")
        harm(root / f"commits/{last}", "one bit flipped")
        made = plan(pipeline, root)
        assert made.refused[0].startswith(f"commits/{last} is damaged")
        with pytest.raises(NotHealable):
            made.apply(stopped=True)
        assert len((root / "metadata").read_bytes()) < 30


def test_a_directory_with_another_past_is_refused(pipeline: StoredPipeline) -> None:
    with bring_back(samples()["hdfs"]) as root:
        manifest = capture(pipeline, LocalDirectory(root))
        last = last_batch(root)
        without_sidecars(root)
        # Taken back in place and run on: the batch was planned at another time, and came to another result.
        path = root / f"offsets/{last}"
        path.write_text(path.read_text().replace('"batchTimestampMs":1', '"batchTimestampMs":2'))
        harm(root / next(name for name in manifest.files if name.startswith("state/0/1/")), "one bit flipped")
        (root / "metadata").unlink()
        made = plan(pipeline, root)
        assert made.refused[0].startswith(f"its batch {last} is not the one that was captured")
        assert made.files == ()
        assert check_directory(LocalDirectory(root), pipeline.records).damaged


def test_offsets_that_alone_differ_are_damaged_and_not_another_past(pipeline: StoredPipeline) -> None:
    with bring_back(samples()["hdfs"]) as root:
        capture(pipeline, LocalDirectory(root))
        without_sidecars(root)
        path = root / f"offsets/{last_batch(root)}"
        path.write_text(path.read_text().replace('"batchTimestampMs":1', '"batchTimestampMs":2'))
        assert [other.name for other in heal(pipeline, root).files] == [f"offsets/{last_batch(root)}"]


def test_where_nothing_tells_the_past_nothing_is_done(pipeline: StoredPipeline) -> None:
    with bring_back(samples()["hdfs"]) as root:
        last = last_batch(root)
        capture(pipeline, LocalDirectory(root))
        for batch in (last, last - 1):
            (root / f"offsets/{batch}").unlink()
        assert plan(pipeline, root).refused[0].startswith(f"offsets/{last} is gone, and nothing else tells")


def test_a_batch_whose_logs_are_both_gone_was_taken_back_on_purpose(pipeline: StoredPipeline) -> None:
    with bring_back(samples()["hdfs"]) as root:
        last = last_batch(root)
        capture(pipeline, LocalDirectory(root))
        (root / f"offsets/{last}").unlink()
        (root / f"commits/{last}").unlink()
        manifest = pipeline["epoch:" + str(last)].manifest
        made = plan(pipeline, root, manifest)
        assert made.refused[0] == f"its last batch is {last - 1}, and the checkpoint holds batch {last}"
        assert plan(pipeline, root).refused[0].startswith("pipeline 'orders' has no checkpoint of this directory")


def test_a_checkpoint_that_is_older_than_the_logs_is_not_compared(pipeline: StoredPipeline) -> None:
    with bring_back(samples()["hdfs"]) as root:
        capture_at(pipeline, root, 1)
        for batch in range(4):
            (root / f"offsets/{batch}").unlink()
            (root / f"commits/{batch}").unlink()
        made = plan(pipeline, root)
        assert made.refused[0] == "the checkpoint holds batch 1, of which the directory's logs no longer tell"
        assert not check_directory(LocalDirectory(root), pipeline.records).damaged


def test_the_checkpoint_of_another_query_is_refused(pipeline: StoredPipeline) -> None:
    with bring_back(samples()["join"]) as other:
        capture(pipeline, LocalDirectory(other))
        manifest = pipeline["epoch:" + str(last_batch(other))].manifest
    with bring_back(samples()["hdfs"]) as root:
        harm(root / "metadata", "removed")
        assert plan(pipeline, root).checkpoint is None
        assert plan(pipeline, root, manifest).refused[0].startswith("the checkpoint is of another query")


# ---- directories that a restore has made ----


@pytest.mark.parametrize("fork", [False, True])
def test_a_restored_directory_is_healed_from_the_checkpoint_that_it_was_made_of(
    fork: bool, pipeline: StoredPipeline, tmp_path: Path
) -> None:
    with bring_back(samples()["tws"]) as root:
        manifest = capture(pipeline, LocalDirectory(root))
    place = tmp_path / "restored"
    lay_down(pipeline.records, manifest, str(place), Changes(fork=fork))
    before = contents(place)
    assert plan(pipeline, place).nothing_to_do
    for name in sorted(manifest.files):
        for how in HARMS:
            harm(place / name, how)
            made = heal(pipeline, place)
            assert [other.name for other in made.files] == [name], how
            assert contents(place) == before


def test_a_restored_directory_is_healed_from_what_was_captured_of_it_since(
    pipeline: StoredPipeline, tmp_path: Path
) -> None:
    with bring_back(samples()["hdfs"]) as root:
        first = capture(pipeline, LocalDirectory(root))
        place = tmp_path / "restored"
        lay_down(pipeline.records, first, str(place))
        _run_one_batch_more(place)
        second = capture(pipeline, LocalDirectory(place))
        assert (second.generation, second.epoch) == (1, first.epoch + 1)
        assert find_checkpoint(pipeline.records, LocalDirectory(place)) == second
        # The original is still what it was: only its own checkpoints are of it.
        assert find_checkpoint(pipeline.records, LocalDirectory(root)) == first
        harm(place / f"commits/{second.epoch}", "cut short")
        assert [other.name for other in heal(pipeline, place).files] == [f"commits/{second.epoch}"]


def _run_one_batch_more(root: Path) -> None:
    """As if the query had run on: a batch without data."""
    last = last_batch(root)
    entry = (root / f"offsets/{last}").read_text().replace('"batchTimestampMs":1', '"batchTimestampMs":2')
    (root / f"offsets/{last + 1}").write_text(entry)
    for partition in (root / "state/0").glob("[0-9]*"):
        shutil.copyfile(_empty_delta(), partition / f"{last + 2}.delta")
    (root / f"commits/{last + 1}").write_text((root / f"commits/{last}").read_text())


def _empty_delta() -> Path:
    return min(samples()["hdfs"].pristine.glob("state/0/*/*.delta"), key=lambda path: path.stat().st_size)


def test_a_directory_whose_restore_left_a_damaged_record_is_left_alone(
    pipeline: StoredPipeline, tmp_path: Path
) -> None:
    with bring_back(samples()["hdfs"]) as root:
        manifest = capture(pipeline, LocalDirectory(root))
    place = tmp_path / "restored"
    lay_down(pipeline.records, manifest, str(place))
    harm(place / "_holdfast/owner.json", "one bit flipped")
    harm(place / f"commits/{manifest.epoch}", "cut short")
    with pytest.raises(DamagedRecord):
        plan(pipeline, place)
    found = check_directory(LocalDirectory(place), pipeline.records)
    assert any("it can't be compared" in fault.what for fault in found.faults)


def test_what_was_edited_in_a_restore_is_not_taken_for_damage(pipeline: StoredPipeline, tmp_path: Path) -> None:
    with bring_back(samples()["hdfs"]) as root:
        manifest = capture(pipeline, LocalDirectory(root))
    place = tmp_path / "restored"
    old = str(samples()["hdfs"].inputs)
    lay_down(pipeline.records, manifest, str(place), Changes(map_paths={old: "/elsewhere"}))
    assert plan(pipeline, place).nothing_to_do
    harm(place / "metadata", "one bit flipped")
    assert [other.name for other in heal(pipeline, place).files] == ["metadata"]
    harm(place / f"offsets/{manifest.epoch}", "cut short")
    assert plan(pipeline, place).refused


# ---- while others are at work ----


def test_a_directory_in_which_something_changes_is_left_alone(pipeline: StoredPipeline) -> None:
    with bring_back(samples()["hdfs"]) as root:
        capture(pipeline, LocalDirectory(root))
        harm(root / "metadata", "removed")
        made = plan(pipeline, root)
        writer = threading.Timer(0.3, (root / f"offsets/.9.{uuid.uuid4()}.tmp").touch)
        writer.start()
        with pytest.raises(StillRunning):
            made.apply(quiet_seconds=1.0)
        writer.join()
        assert not (root / "metadata").exists()
        plan(pipeline, root).apply(quiet_seconds=0.1)
        assert (root / "metadata").exists()


def test_a_plan_made_before_the_query_went_on_is_not_carried_out(pipeline: StoredPipeline) -> None:
    with bring_back(samples()["hdfs"]) as root:
        capture(pipeline, LocalDirectory(root))
        harm(root / "metadata", "removed")
        made = plan(pipeline, root)
        last = last_batch(root)
        (root / f"offsets/{last + 1}").touch()
        with pytest.raises(StillRunning):
            made.apply(stopped=True)


def test_what_was_brought_back_is_read_again(pipeline: StoredPipeline) -> None:
    with bring_back(samples()["hdfs"]) as root:
        capture(pipeline, LocalDirectory(root))
        harm(root / "metadata", "removed")

        def spoil(_what: str, done: int, total: int) -> None:
            if done == total:
                harm(root / "metadata", "one bit flipped")

        with pytest.raises(BrokenBatch, match="metadata: its bytes are not those that were captured"):
            plan(pipeline, root).apply(stopped=True, progress=spoil)


def test_a_repository_that_is_damaged_itself_replaces_nothing_and_healing_goes_on_later(
    pipeline: StoredPipeline,
) -> None:
    with bring_back(samples()["hdfs"]) as root:
        manifest = capture(pipeline, LocalDirectory(root))
        harm(root / "state/0/_metadata/metadata", "one bit flipped")
        harm(root / "metadata", "removed")
        pack = Path(pipeline.repository.url.removeprefix("file://")) / pipeline.records.keys.prefix
        artifact = manifest.files["state/0/_metadata/metadata"]
        assert artifact.path is not None
        stored = pack / artifact.path
        good = stored.read_bytes()
        bad = bytearray(good)
        bad[(artifact.offset or 0) + 5] ^= 1
        stored.write_bytes(bad)
        with pytest.raises(DamagedArtifact):
            heal(pipeline, root)
        stored.write_bytes(good)
        heal(pipeline, root)
        assert contents(root) == contents(samples()["hdfs"].pristine)
        assert not (root / "_holdfast/healing").exists()


HEALER = """
import sys, holdfast
from holdfast.spark.heal import plan_heal
from holdfast.spark.places import SparkPlace
records = holdfast.open(sys.argv[1]).pipeline("orders").records
print("ready", flush=True)
plan_heal(records, SparkPlace(sys.argv[2])).apply(stopped=True)
"""


def test_a_healing_that_is_killed_again_and_again_comes_to_the_same_end(pipeline: StoredPipeline) -> None:
    with bring_back(samples()["join"]) as root:
        manifest = capture(pipeline, LocalDirectory(root))
        offsets = f"offsets/{manifest.epoch}"
        for name in set(manifest.files) - {offsets}:
            harm(root / name, "one bit flipped")
        chance = random.Random(7)
        for _ in range(6):
            command = [sys.executable, "-c", HEALER, pipeline.repository.url, str(root)]
            running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            assert running.stdout is not None
            assert running.stdout.readline() == "ready\n"
            time.sleep(chance.uniform(0.0, 0.25))
            running.kill()
            running.communicate()
            for name in manifest.files:
                assert (root / name).stat().st_size == manifest.files[name].size_bytes
        heal(pipeline, root)
        assert contents(root) == contents(samples()["join"].pristine)
        kept = [path for path in (root / "_holdfast/damaged").rglob("*") if path.is_file() and path.name[0] != "."]
        assert len({str(path.relative_to(root)).split("/", 3)[3] for path in kept}) == len(manifest.files) - 1


# ---- object stores ----


def test_a_directory_in_an_object_store_is_healed(s3_server: S3Server, s3_url: str, pipeline: StoredPipeline) -> None:
    store = open_store(s3_url, s3_server.options)
    with bring_back(samples()["tws"]) as root:
        good = contents(root)
    for name, data in good.items():
        store.put(name, data)
    place = SparkPlace(s3_url.replace("s3://", "s3a://"), s3_server.options)
    manifest = capture(pipeline, place.directory())
    chance = random.Random(3)
    harmed = sorted({*manifest.files} - {f"offsets/{manifest.epoch}"})
    for name in harmed:
        how = chance.choice(HARMS)
        if how == "removed":
            store.delete([name])
        else:
            data = bytearray(good[name])
            data[len(data) // 2] ^= 1
            store.put(name, data if how == "one bit flipped" else data[: len(data) // 2])
    made = plan_heal(pipeline.records, place)
    assert [other.name for other in made.files] == harmed
    healed = made.apply(stopped=True)
    assert {name: store.get(name) for name in good} == good
    assert healed.aside is not None
    assert store.list(f"{healed.aside}/")
    assert plan_heal(pipeline.records, place).nothing_to_do


# ---- and Spark ----


def test_spark_goes_on_from_a_healed_directory_as_if_nothing_had_happened(tmp_path: Path) -> None:
    repository = holdfast.open(str(tmp_path / "repository"), create=True)
    truths = run_on(1)
    assert all(truths.values())
    for kind, sample in samples().items():
        shutil.rmtree(sample.checkpoint)
        shutil.copytree(sample.pristine, sample.checkpoint)
        pipeline = repository.pipeline(kind)
        manifest = capture(pipeline, LocalDirectory(sample.checkpoint))
        chance = random.Random(kind)
        for name in sorted({*manifest.files} - {f"offsets/{manifest.epoch}"}):
            harm(sample.checkpoint / name, chance.choice(HARMS))
        heal(pipeline, sample.checkpoint)
    assert run_on(1) == truths
    for sample in samples().values():
        shutil.rmtree(sample.checkpoint)
        shutil.copytree(sample.pristine, sample.checkpoint)
